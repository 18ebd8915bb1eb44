//! Rows made for an edge are what their labels say, judged by their numbers.

use super::super::activations::{Activations, Quantised};
use super::super::packed::{Block, Packed};
use super::super::{IDENTITY, contract};
use super::{fixture, numbers, weights};
use crate::Fixture;

/// The widest case, in numbers.
struct Widest {
    fixture: Fixture,
    input: Vec<f32>,
    activations: Activations,
    output: Vec<f32>,
}

impl Widest {
    fn new() -> Self {
        let fixture = fixture(&IDENTITY);
        let case = &fixture.cases[4];
        let input = numbers(&fixture, &case.inputs["input"]);
        let output = numbers(&fixture, &case.expected[1].tensor);
        Self {
            activations: Activations::of(&input, 19),
            fixture,
            input,
            output,
        }
    }

    /// The blocks of a row of the input.
    fn blocks(&self, row: usize) -> &[[f32; 32]] {
        &self.input.as_chunks().0[19 * row..][..19]
    }

    fn quantised(&self, row: usize) -> &[Quantised] {
        let mut rows = self.activations.rows();
        rows.nth(row).expect("because the case has 16 rows")
    }

    fn weight(&self, row: usize) -> Vec<Block> {
        Packed::source(weights(&self.fixture), 19)
            .row(row)
            .collect()
    }

    fn y(&self, row: usize, column: usize) -> f32 {
        self.output[61 * row + column]
    }
}

#[test]
fn every_label_is_of_a_row_that_is_there() {
    let fixture = fixture(&IDENTITY);
    for case in &fixture.cases {
        let rows = |of: &str| -> Vec<u64> {
            let edges = case.edge_rows.iter().filter(|edge| edge.of == of);
            edges.map(|edge| edge.row).collect()
        };
        let inputs: Vec<u64> = (1..case.width.min(8)).collect();
        assert_eq!(rows("activations"), inputs);
        assert_eq!(rows("output"), inputs);
        let weights: Vec<u64> = (1..=7).chain(9..=20).chain(60..=60).collect();
        assert_eq!(rows("weights"), weights);
    }
}

#[test]
fn zeros_are_nothing_and_have_a_plus_sign_in_the_output() {
    let widest = Widest::new();
    let zeros = widest.blocks(1).as_flattened();
    assert!(zeros.iter().all(|x| *x == 0.0));
    assert!(zeros.iter().any(|x| x.is_sign_negative()));
    assert!((0..61).all(|column| widest.y(1, column).to_bits() == 0));
    for column in [1, 2, 7] {
        assert!((0..16).all(|row| widest.y(row, column).to_bits() == 0));
    }
    // Nibbles of zero leave c, which is nothing where the quants are exact.
    assert!(
        widest
            .weight(6)
            .iter()
            .all(|block| block.nibbles == [0; 32])
    );
    assert!((0..16).all(|row| [1, 3, 4].contains(&row) || widest.y(row, 6) != 0.0));
}

#[test]
fn midpoints_are_ties_of_scales_sums_and_quants_in_both_directions() {
    let widest = Widest::new();
    // 13 bits are dropped on the way to a half; the bit above them tells which way a tie goes.
    let tie = |x: f32| (x.to_bits() & 0x1fff == 0x1000).then_some(x.to_bits() >> 13 & 1);
    let d = |block: usize| widest.blocks(2)[block][0] / 127.0;
    assert_eq!([d(0), d(1)].map(tie), [Some(0), Some(1)]);
    let sum = |row: usize, block: usize| widest.blocks(row)[block].iter().sum::<f32>();
    assert_eq!(
        [sum(2, 2), sum(2, 5), sum(0, 5)].map(tie),
        [Some(0), Some(1), Some(1)]
    );
    // The first row, which every width has, rounds a scale down and a sum up.
    assert_eq!(tie(widest.blocks(0)[4][0] / 127.0), Some(0));
    for block in [widest.blocks(2)[0], widest.blocks(0)[4]] {
        let quotients = block.map(|x| x / (block[0] / 127.0));
        assert!(quotients[1..].iter().all(|x| x.abs() % 1.0 == 0.5));
        for sign in [-1, 1] {
            for odd in [0, 1] {
                let wholes = quotients.iter().map(|x| x.trunc() as i32 * sign);
                assert!(wholes.filter(|x| *x > 0).any(|x| x % 2 == odd));
            }
        }
    }
}

#[test]
fn numbers_and_terms_cancel() {
    let widest = Widest::new();
    let quantised = widest.quantised(3);
    assert!(
        quantised
            .iter()
            .all(|block| block.s == 0 && block.c() == 0.0)
    );
    let weight = widest.weight(5);
    let pairs = weight.iter().zip(quantised);
    let terms: Vec<f32> = pairs.map(|(w, a)| contract::term(w, a)).collect();
    assert!((0..8).all(|b| terms[b] + terms[b + 8] == 0.0 && terms[b] != 0.0));
    assert_eq!(widest.y(3, 5), terms[16] + terms[17] + terms[18]);
    assert!(widest.y(3, 5) != 0.0);
    assert!(
        terms[..16]
            .iter()
            .all(|term| term.abs() > 64.0 * widest.y(3, 5).abs())
    );
}

#[test]
fn the_largest_are_the_largest_of_halves_nibbles_and_dot_products() {
    let widest = Widest::new();
    let quantised = widest.quantised(4);
    assert!(quantised.iter().all(|block| block.d == 0x7bff));
    assert!(quantised.iter().all(|block| block.s & 0x7fff == 0x7bff));
    assert!(widest.weight(4).iter().all(|block| block.scale == 0x7bff));
    assert!(widest.weight(60).iter().all(|block| block.scale == 0xfbff));
    let dot = |row| contract::dot(&widest.weight(row)[0], &widest.quantised(7)[0]);
    assert_eq!([dot(4), dot(60)], [8 * 127 * 32, -7 * 127 * 32]);
    assert!([4, 60].iter().all(|column| widest.y(4, *column) != 0.0));
    // Long dot products, some of which have more bits than a number once they are scaled.
    let products = |row: usize| -> Vec<(f64, f64)> {
        let weight = widest.weight(row);
        let pairs = weight.iter().zip(widest.quantised(0));
        let products = pairs.map(|(w, a)| (f64::from(contract::dot(w, a)), f64::from(a.d())));
        products.collect()
    };
    assert!((9..=12).all(|row| products(row).iter().any(|(dot, _)| dot.abs() > 8192.0)));
    let is_cut = |(dot, d): &(f64, f64)| f64::from((dot * d) as f32) != dot * d;
    assert!((9..=12).any(|row| products(row).iter().any(is_cut)));
}

#[test]
fn the_smallest_are_subnormal_or_vanish_beside_quants_that_do_not() {
    let widest = Widest::new();
    let quantised = widest.quantised(5);
    let is_subnormal = |half: u16| (1..0x400).contains(&(half & 0x7fff));
    let mut first = quantised.iter().step_by(3);
    assert!(first.all(|block| is_subnormal(block.d)));
    assert!(quantised.iter().any(|block| is_subnormal(block.s)));
    let vanished = || quantised.iter().skip(1).step_by(3);
    assert!(vanished().all(|block| block.d == 0));
    assert!(vanished().all(|block| !block.quants.contains(&0)));
    assert!(vanished().any(|block| block.c() != 0.0));
    assert!(
        widest
            .weight(3)
            .iter()
            .all(|block| is_subnormal(block.scale))
    );
    assert!((0..16).any(|row| widest.y(row, 3) != 0.0));
}

#[test]
fn one_number_is_one_quant_and_the_largest_sums_have_one_sign() {
    let widest = Widest::new();
    for block in widest.quantised(6) {
        assert_eq!(block.quants.iter().filter(|q| **q != 0).count(), 1);
    }
    let quants = widest.quantised(7).iter().map(|block| block.quants);
    let signs: Vec<i8> = quants.map(|quants| quants[0]).collect();
    assert_eq!(signs[..3], [-127, 127, -127]);
    let mut blocks = widest.quantised(7).iter().zip(signs);
    assert!(blocks.all(|(block, sign)| block.quants == [sign; 32]));
}

/// A number that is rounded above a power of two has a unit twice as large as below it.
#[test]
fn a_term_falls_below_a_power_of_two() {
    let widest = Widest::new();
    let activation = &widest.quantised(0)[6];
    for row in 13..=20 {
        let dot = contract::dot(&widest.weight(row)[6], activation) as f32;
        let (d, c) = (activation.d(), activation.c());
        assert_eq!(dot, 16401.0);
        assert!(dot * d > 128.0 && dot * d + c < 128.0);
        assert_ne!(dot * d + c, dot.mul_add(d, c));
    }
}
