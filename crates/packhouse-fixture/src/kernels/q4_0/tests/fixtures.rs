//! What the fixtures hold, and that the kernels make it.

use super::super::XE2;
use super::super::activations::Quantised;
use super::{MROWS, failed, fixture, numbers, pack, run, source_of, verdicts};
use crate::families::{self, Family};
use crate::half::f16_to_f32;
use crate::{Inputs, Kernel};
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

const WIDTHS: [u64; 5] = [1, 4, 6, 8, 16];

#[test]
fn each_kernel_makes_every_row_of_its_fixture() {
    for kernel in MROWS {
        let fixture = fixture(kernel);
        let widths: Vec<u64> = fixture.cases.iter().map(|case| case.width).collect();
        assert_eq!(widths, WIDTHS);
        for case in &fixture.cases {
            let outputs = run(kernel, &fixture, case, &[]);
            assert_eq!(outputs.len(), 2);
            for (index, output) in outputs.iter().enumerate() {
                assert_eq!(output.boundary, case.expected[index].boundary);
                let verdicts = verdicts(&fixture, case, index, &output.bytes);
                assert_eq!(failed(&verdicts), [0; 0], "{} {}", fixture.id, case.width);
            }
            let output = fixture.tensors[&case.expected[1].tensor].shape.as_slice();
            assert_eq!(output, [case.width, fixture.parameters["n"]]);
        }
    }
}

/// The orders have 64, 61 and 56 rows of one weight, so their outputs share columns.
#[test]
fn the_orders_of_one_weight_give_the_same_bits() {
    let made = MROWS.map(|kernel| {
        let fixture = fixture(kernel);
        let columns = usize::try_from(fixture.parameters["n"]).expect("because it is small");
        let cases = fixture.cases.iter();
        let outputs = cases.map(|case| run(kernel, &fixture, case, &[]).remove(1).bytes);
        (columns, outputs.collect::<Vec<Vec<u8>>>())
    });
    let rows = |columns: usize, output: &[u8]| -> Vec<Vec<u8>> {
        let rows = output.chunks_exact(4 * columns);
        rows.map(|row| row[..4 * 56].to_vec()).collect()
    };
    let (first_columns, first) = &made[0];
    for (columns, outputs) in &made[1..] {
        for (output, first) in outputs.iter().zip(first) {
            assert_eq!(rows(*columns, output), rows(*first_columns, first));
        }
    }
    assert_eq!(made.map(|(columns, _)| columns), [64, 61, 61, 61, 56]);
}

/// Whole weights of 64 rows, in every order, with units of 16 and tiles of other sizes too.
#[test]
fn whole_weights_in_every_order_give_the_same_bits() {
    let wide = fixture(&XE2);
    let source = source_of(XE2.order, &wide);
    let case = &wide.cases[2];
    let input = &wide.tensors[&case.inputs["input"]].bytes;
    let output = |kernel: &super::MRow, own: &[(&str, u64)]| {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let mut parameters: BTreeMap<String, u64> = own.collect();
        let payload = pack(kernel.order, [608, 64], &parameters, &source);
        parameters.extend([("k".to_owned(), 608), ("n".to_owned(), 64)]);
        let tensors = BTreeMap::from([
            ("weights".to_owned(), payload.as_slice()),
            ("input".to_owned(), input.as_slice()),
        ]);
        let inputs = Inputs {
            width: case.width,
            parameters: &parameters,
            tensors: &tensors,
        };
        let mut outputs = kernel.run(&inputs).expect("because the sizes fit");
        outputs.remove(1).bytes
    };
    let expected = &wide.tensors[&case.expected[1].tensor].bytes;
    for kernel in MROWS {
        let own: &[&[(&str, u64)]] = match kernel.order {
            super::Order::Xe2 | super::Order::Reordered | super::Order::Rows => &[&[]],
            super::Order::JointN => &[&[("n_tile", 1)], &[("n_tile", 8)], &[("n_tile", 48)]],
            super::Order::Repack8 => &[&[("unit_rows", 16)]],
        };
        for own in own {
            assert_eq!(&output(kernel, own), expected, "{:?} {own:?}", kernel.order);
        }
    }
}

/// What every block of every fixture keeps to, so that no order of a sum and no flushing of
/// subnormals is judged.
#[test]
fn sums_are_exact_in_any_order_and_nothing_is_beyond_the_domain() {
    let normal = |x: f32| x == 0.0 || x.is_normal();
    for kernel in MROWS {
        let family = families::find(kernel.fixture()).expect("because it is listed");
        let drawn = family.drawn.expect("because it can be drawn");
        for fixture in [(family.generate)(), drawn(7)] {
            for case in &fixture.cases {
                let input = numbers(&fixture, &case.inputs["input"]);
                for block in input.as_chunks::<32>().0 {
                    assert_sums_are_exact(block);
                    let quantised = Quantised::of(block);
                    assert!(f16_to_f32(quantised.d).is_finite());
                    assert!(f16_to_f32(quantised.s).is_finite());
                    assert!(quantised.quants.iter().all(|q| *q != -128));
                    assert!(normal(quantised.c()) && block.iter().all(|x| normal(*x)));
                }
                let output = numbers(&fixture, &case.expected[1].tensor);
                assert!(output.iter().all(|y| normal(*y)));
            }
        }
    }
}

/// All numbers are multiples of a unit, and those of either sign sum up to less than 2^24 of it:
/// each sum of some of them is between.
fn assert_sums_are_exact(block: &[f32; 32]) {
    let magnitudes = block.map(|x| f64::from(x.abs()));
    let of_sign = |sign: f32| block.iter().map(move |x| f64::from((x * sign).max(0.0)));
    let sum = of_sign(1.0).sum::<f64>().max(of_sign(-1.0).sum());
    // A power of two above the sum, over 2^24.
    let unit = f64::from_bits(((sum.to_bits() >> 52) + 1) << 52) / 16_777_216.0;
    assert!(magnitudes.iter().all(|x| x % unit == 0.0), "{block:?}");
}

#[test]
fn what_is_drawn_has_the_same_shapes_and_edges_and_other_bytes() {
    for kernel in MROWS {
        let family: &Family = families::find(kernel.fixture()).expect("because it is listed");
        let draw = family.drawn.expect("because it can be drawn");
        let (published, one, other) = ((family.generate)(), draw(1), draw(2));
        assert_eq!(one, draw(1));
        assert_eq!(published, (family.generate)());
        for drawn in [&one, &other] {
            assert_eq!(drawn.boundaries, published.boundaries);
            for (case, published) in drawn.cases.iter().zip(&published.cases) {
                assert_eq!(case.width, published.width);
                assert_eq!(case.edge_rows, published.edge_rows);
            }
            for (name, tensor) in &published.tensors {
                assert_eq!(drawn.tensors[name].shape, tensor.shape, "{name}");
                assert_ne!(drawn.tensors[name].bytes, tensor.bytes, "{name}");
            }
            for case in &drawn.cases {
                for (index, output) in run(kernel, drawn, case, &[]).iter().enumerate() {
                    assert_eq!(failed(&verdicts(drawn, case, index, &output.bytes)), [0; 0]);
                }
            }
        }
        assert!(
            one.tensors
                .iter()
                .all(|(name, tensor)| other.tensors[name] != *tensor)
        );
    }
}

/// The bytes are frozen with version 1 of the fixtures; the page has the same digests.
#[test]
fn the_bytes_are_those_that_the_page_names() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/kernels.md");
    let page = std::fs::read_to_string(page).expect("because the page is there");
    let mut missing = Vec::new();
    for kernel in MROWS {
        let fixture = fixture(kernel);
        let mut all = Vec::new();
        for (name, tensor) in &fixture.tensors {
            all.extend(format!("{}  {name}\n", Digest::of(&tensor.bytes)).bytes());
        }
        let row = format!("| `{}` | `{}` |", fixture.id, Digest::of(&all));
        if !page.contains(&row) {
            missing.push(row);
        }
    }
    assert!(
        missing.is_empty(),
        "the page lacks:\n{}",
        missing.join("\n")
    );
}
