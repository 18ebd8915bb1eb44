//! The rows made for an edge are on it, and drawn fixtures are of another seed and the same shapes.

use super::*;
use crate::families;
use crate::half::{f16_from_f32, f16_to_f32};
use crate::kernels::blocks::Activations;

/// A row of a tensor.
fn row<'a>(fixture: &'a Fixture, file: &str, row: u64) -> &'a [u8] {
    let tensor = &fixture.tensors[file];
    let row_bytes = tensor.bytes.len() / at(tensor.shape[0]);
    &tensor.bytes[at(row) * row_bytes..][..row_bytes]
}

/// The scales and codes of a row of activations, block by block.
fn codes(blocks: Blocks, row: &[u8]) -> Vec<(f32, Vec<i8>)> {
    let form = blocks.activations();
    let rows = row.chunks_exact(form.block_bytes()).map(|block| {
        let (scale, codes) = form.read(block);
        (scale, codes.iter().map(|code| code.cast_signed()).collect())
    });
    rows.collect()
}

fn labelled(case: &Case, of: &str, label: &str) -> Vec<u64> {
    let rows = case.edge_rows.iter();
    let rows = rows.filter(|edge| edge.of == of && edge.label == label);
    rows.map(|edge| edge.row).collect()
}

/// Every label of a fixture is in some case, with this many rows of activations at width 16.
#[test]
fn rows_of_activations_are_on_their_edge() {
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        let case = fixture.cases.last().expect("because there are cases");
        let codes_of = |label: &str| {
            let rows = labelled(case, ACTIVATIONS, label);
            assert_eq!(rows, labelled(case, OUTPUT, label), "{label}");
            let [row_index] = rows[..] else {
                panic!("{} rows of {label}", rows.len());
            };
            codes(blocks, row(&fixture, &case.expected[0].tensor, row_index))
        };
        let is_zero = |codes: &[i8]| codes.iter().all(|code| *code == 0);
        assert!(
            codes_of("zeros")
                .iter()
                .all(|(scale, codes)| *scale == 0.0 && is_zero(codes))
        );
        for (scale, codes) in codes_of("midpoints").into_iter().step_by(2) {
            assert_eq!(scale.abs(), 1.0);
            assert_eq!(codes[0].abs(), 127);
            let even = codes[2..].iter().filter(|code| *code % 2 == 0).count();
            match blocks.activations() {
                Activations::Q8_0 => assert!(even > 0 && even < 30, "halves go away from zero"),
                Activations::Q8K => assert_eq!(even, 254, "halves go to the even code"),
            }
        }
        for (_, codes) in codes_of("largest codes") {
            assert_eq!(codes[0].abs(), 126);
            assert!(codes[1..].iter().all(|code| code.abs() == 127));
        }
        for (scale, codes) in codes_of("largest magnitudes") {
            assert!(scale.abs() >= 65504.0 && !is_zero(&codes), "{scale}");
        }
        let subnormal = codes_of("subnormal scales");
        assert!(subnormal.iter().all(|(_, codes)| !is_zero(codes)));
        match blocks.activations() {
            Activations::Q8_0 => {
                let scales: Vec<f32> = subnormal.iter().map(|(scale, _)| *scale).collect();
                assert_eq!(scales[..2], [2.0 / 16_777_216.0, 0.0]);
            }
            Activations::Q8K => assert!(subnormal.iter().all(|(scale, _)| scale.is_subnormal())),
        }
        for (_, codes) in codes_of("outliers") {
            assert!(codes[1..].iter().all(|code| code.abs() <= 1));
        }
    }
}

/// What makes a stored scale and one code, from a block's value furthest from zero and a value.
type Quantiser = (&'static str, fn(f32) -> f32, fn(f32, f32) -> f32);

const Q8_0: Quantiser = (
    "the rule's",
    |f| stored(f.abs() / 127.0),
    |x, f| (x * (1.0 / (f.abs() / 127.0))).round(),
);

const Q8_K: Quantiser = (
    "the rule's",
    |f| 1.0 / (-127.0 / f),
    |x, f| (-127.0 / f * x).round_ties_even(),
);

fn stored(scale: f32) -> f32 {
    f16_to_f32(f16_from_f32(scale))
}

/// Others are to be seen in the row of midpoints only: kernels in use are of other codes there.
const OTHER_Q8_0: [Quantiser; 3] = [
    (
        "a scale by the reciprocal of 127",
        |f| stored(f.abs() * (1.0 / 127.0)),
        Q8_0.2,
    ),
    ("a scale that is not stored", |f| f.abs() / 127.0, Q8_0.2),
    ("by the stored scale", Q8_0.1, |x, f| {
        (x * (1.0 / (Q8_0.1)(f))).round()
    }),
];

const OTHER_Q8_K: [Quantiser; 6] = [
    ("a scale by a quotient", |f| f / -127.0, Q8_K.2),
    (
        "a scale by the reciprocal of 127",
        |f| f * (-1.0 / 127.0),
        Q8_K.2,
    ),
    ("divided by the stored scale", Q8_K.1, |x, f| {
        (x / (Q8_K.1)(f)).round_ties_even()
    }),
    ("divided by a quotient", Q8_K.1, |x, f| {
        (x / (f / -127.0)).round_ties_even()
    }),
    ("by the scale's reciprocal", Q8_K.1, |x, f| {
        (x * (1.0 / (Q8_K.1)(f))).round_ties_even()
    }),
    ("halves away from zero", Q8_K.1, |x, f| {
        (-127.0 / f * x).round()
    }),
];

#[test]
fn another_quantiser_fails_in_the_first_row_at_every_width() {
    for blocks in Blocks::ALL {
        let (right, others) = match blocks.activations() {
            Activations::Q8_0 => (Q8_0, &OTHER_Q8_0[..]),
            Activations::Q8K => (Q8_K, &OTHER_Q8_K[..]),
        };
        for recipe in [Recipe::published(blocks), Recipe::drawn(blocks, 7)] {
            let fixture = recipe.fixture();
            for case in &fixture.cases {
                let input = floats_of(row(&fixture, &case.inputs["input"], 0));
                let expected = codes(blocks, row(&fixture, &case.expected[0].tensor, 0));
                let is_expected = |(_, scale, code): &Quantiser| {
                    let made = input.chunks_exact(blocks.elements()).map(|x| {
                        let further = |f: f32, x: &f32| if x.abs() > f.abs() { *x } else { f };
                        let f = x.iter().fold(0.0, further);
                        (scale(f), x.iter().map(|x| code(*x, f) as i8).collect())
                    });
                    made.eq(expected.iter().cloned())
                };
                assert!(is_expected(&right), "{} {}", fixture.id, case.width);
                for other in others {
                    let what = format!("{} at width {} of {}", other.0, case.width, fixture.id);
                    assert!(!is_expected(other), "{what}");
                }
            }
        }
    }
}

#[test]
fn opposite_blocks_cancel_and_zeros_give_zeros() {
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        for case in fixture.cases.iter().filter(|case| case.width >= 4) {
            let outputs = |label: &str| {
                let [index] = labelled(case, OUTPUT, label)[..] else {
                    panic!("one row of {label}");
                };
                floats_of(row(&fixture, &case.expected[1].tensor, index))
            };
            assert!(outputs("zeros").iter().all(|y| *y == 0.0));
            let cancelled = outputs("cancellation");
            let [column] = labelled(case, "weights", "cancellation")[..] else {
                panic!("one row of weights that cancels");
            };
            assert_eq!(cancelled[at(column)].to_bits(), 0);
            let zeros = cancelled.iter().filter(|y| **y == 0.0).count();
            assert!(zeros <= 3, "{zeros} outputs are zeros");
        }
    }
}

/// Sums between two binary32: only conversion to the nearest, ties to even, gives the output.
#[test]
fn the_largest_codes_make_sums_that_are_rounded() {
    let recipe = Recipe::published(Blocks::Q4K);
    let fixture = recipe.fixture();
    let case = fixture.cases.last().expect("because there are cases");
    let inputs = Inputs {
        width: case.width,
        parameters: &fixture.parameters,
        tensors: &tensors(&fixture, case),
    };
    let kernel = KernelCase::of(recipe.blocks, &inputs).expect("because the fixture is whole");
    let dots = kernel.each_output(|terms| terms[0].dot);
    let [x] = labelled(case, OUTPUT, "largest codes")[..] else {
        panic!("one row of the largest codes");
    };
    let [w] = labelled(case, "weights", "largest codes")[..] else {
        panic!("one row of weights of the largest codes");
    };
    let dot = dots[at(x) * N + at(w)].unsigned_abs();
    assert_eq!(dot, 945 * (255 * 127 + 126));
    assert!(dot > 1 << 24 && dot % 2 == 1, "{dot} is a tie");
}

#[test]
fn drawn_fixtures_have_the_published_shapes_and_other_data() {
    for family in FAMILIES {
        let published = (family.generate)();
        let drawn = family.drawn.expect("because all of these are drawn too");
        let (one, other) = (drawn(1), drawn(u64::MAX));
        assert_eq!(one, drawn(1), "the same seed gives the same bytes");
        assert_eq!(one.boundaries, published.boundaries);
        assert!(families::find(&one.id).is_some());
        for (file, tensor) in &published.tensors {
            assert_eq!(one.tensors[file].shape, tensor.shape, "{file}");
            assert_ne!(one.tensors[file], *tensor, "{file}");
            assert_ne!(one.tensors[file], other.tensors[file], "{file}");
        }
        assert_eq!(one.tensors.len(), published.tensors.len());
        for case in &one.cases {
            assert_eq!(case.edge_rows, []);
            for (output, expected) in run(&one, case, None).iter().zip(&case.expected) {
                assert_eq!(failing(&one, case, expected, &output.bytes), []);
            }
        }
    }
}
