//! Tests of these fixtures, and of their kernels through them.

use super::*;
use crate::{KernelError, Output, families, judge, kernels};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, quantise_column};

const ORDERS: [Order; 2] = [Order::RowMajor, Order::Blocked];

fn tensors<'a>(fixture: &'a Fixture, case: &Case) -> BTreeMap<String, &'a [u8]> {
    let inputs = case.inputs.iter();
    let inputs = inputs.map(|(role, file)| (role.clone(), &fixture.tensors[file].bytes[..]));
    inputs.collect()
}

/// The outputs of a case with these tiles.
fn run(fixture: &Fixture, case: &Case, tiles: &[u8]) -> Vec<Output> {
    let mut tensors = tensors(fixture, case);
    tensors.insert("weights".to_owned(), tiles);
    let kernel = kernels::of_fixture(&fixture.id).expect("because there is a kernel");
    let outputs = kernel.run(&Inputs {
        width: case.width,
        parameters: &fixture.parameters,
        tensors: &tensors,
    });
    outputs.expect("because the fixture has what its kernel needs")
}

/// The rows of a boundary that fail, each with its worst column.
fn failing(
    fixture: &Fixture,
    case: &Case,
    expected: &Expected,
    actual: &[u8],
) -> Vec<(u64, Option<u64>)> {
    let tensor = &fixture.tensors[&expected.tensor];
    let limit = expected.tolerance.limit(&fixture.tensors);
    let (edges, limit) = (
        &case.edge_rows,
        limit.expect("because its bounds are there"),
    );
    let verdicts = judge(&expected.boundary, tensor, edges, limit, actual);
    let verdicts = verdicts.expect("because lengths and types are the boundary's");
    let failing = verdicts.into_iter().filter(|verdict| !verdict.passed);
    let columns = failing.map(|verdict| (verdict.row, verdict.worst.map(|worst| worst.column)));
    columns.collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks();
    values
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect()
}

#[test]
fn every_case_is_what_its_kernel_gives_and_both_orders_give_the_same_bits() {
    let [row_major, blocked] = ORDERS.map(|order| Recipe::published(order).fixture());
    for fixture in [&row_major, &blocked] {
        assert!(FAMILIES.iter().any(|family| family.id == fixture.id));
        for case in &fixture.cases {
            for (output, expected) in run(fixture, case, &fixture.tensors[WEIGHTS].bytes)
                .iter()
                .zip(&case.expected)
            {
                assert_eq!(output.boundary, expected.boundary);
                assert_eq!(failing(fixture, case, expected, &output.bytes), []);
            }
            let output = &fixture.tensors[&case.expected[2].tensor].bytes;
            assert!(floats_of(output).iter().all(|y| y.is_finite()));
            assert_eq!(failing(fixture, case, &case.near[0], output), []);
        }
    }
    assert_ne!(row_major.tensors[WEIGHTS], blocked.tensors[WEIGHTS]);
    let apart = |fixture: &Fixture| {
        let mut tensors = fixture.tensors.clone();
        tensors.remove(WEIGHTS);
        tensors
    };
    assert_eq!(apart(&row_major), apart(&blocked));
    assert_eq!(row_major.cases, blocked.cases);
}

/// The head's columns are quantised by the judge of tiles without any tile, both operands become
/// numbers, and the products are summed in binary64.
#[test]
fn outputs_are_those_of_dequantised_columns_in_binary64() {
    let recipe = Recipe::published(Order::Blocked);
    let fixture = recipe.fixture();
    let columns = recipe.columns();
    let columns = columns.chunks_exact(at(K)).map(|column| {
        let mut codes = vec![0; column.len()];
        let scale = f64::from(quantise_column(column, &mut codes));
        let values = codes.into_iter().map(|code| f64::from(code) * scale);
        values.collect::<Vec<f64>>()
    });
    let columns: Vec<_> = columns.collect();
    for case in &fixture.cases {
        let bytes = |index: usize| &fixture.tensors[&case.expected[index].tensor].bytes;
        let (codes, scales, output) = (bytes(0), floats_of(bytes(1)), floats_of(bytes(2)));
        let exact = floats_of(&fixture.tensors[&case.near[0].tensor].bytes);
        let input = floats_of(&fixture.tensors[&case.inputs["input"]].bytes);
        let rows = codes
            .chunks_exact(at(K))
            .zip(scales)
            .zip(input.chunks_exact(at(K)));
        for (row, ((codes, scale), input)) in rows.enumerate() {
            let scale = f64::from(scale);
            let x: Vec<f64> = codes
                .iter()
                .map(|code| f64::from(code.cast_signed()) * scale)
                .collect();
            for (x, input) in x.iter().zip(input) {
                let error = (x - f64::from(*input)).abs();
                assert!(error <= scale * 0.500_02, "row {row}: {x} for {input}");
            }
            for (column, w) in columns.iter().enumerate() {
                let products = || w.iter().zip(&x).map(|(w, x)| w * x);
                let (sum, magnitude) = (
                    products().sum::<f64>(),
                    products().map(f64::abs).sum::<f64>(),
                );
                // Three roundings to binary32, and those of binary64.
                let bound = 3.01 * 2f64.powi(-24) * sum.abs() + 2f64.powi(-40) * magnitude;
                for y in [&output, &exact] {
                    let error = (f64::from(y[row * at(N) + column]) - sum).abs();
                    assert!(
                        error <= bound,
                        "row {row} column {column}: {error} of {bound}"
                    );
                }
            }
        }
    }
}

/// What each byte of the tiles is: of which column, or of none.
fn owners(recipe: Recipe) -> Vec<Option<u64>> {
    let sizes = recipe.sizes();
    let order = match recipe.order {
        Order::RowMajor => TileOrder::RowMajor,
        Order::Blocked => TileOrder::Blocked,
    };
    let sizes = TileSizes {
        kd: sizes["kd"],
        nd: sizes["nd"],
        kpad: sizes["kpad"],
        t: sizes["t"],
    };
    let geometry = TileGeometry::new(order, sizes).expect("because the sizes fit each other");
    let mut owners = vec![None; at(geometry.tile_count(N) * geometry.payload_bytes())];
    for column in 0..N {
        let tile = column / T * geometry.payload_bytes();
        for i in 0..K {
            owners[at(tile + geometry.position(i, column % T))] = Some(column);
        }
        for byte in 0..4 {
            let scale = geometry.code_bytes() + 4 * (column % T) + byte;
            owners[at(tile + scale)] = Some(column);
        }
    }
    owners
}

/// One bit of a code or of a scale fails its column in the first row and in no other column; one of
/// padding is nobody's.
#[test]
fn one_bit_fails_its_column_at_every_width_and_padding_does_not_count() {
    for order in ORDERS {
        let recipe = Recipe::published(order);
        let fixture = recipe.fixture();
        let (owners, kinds) = (owners(recipe), recipe.column_kinds());
        let scale_bytes = 2 * 4 * at(recipe.sizes()["nd"]);
        let mut tiles = fixture.tensors[WEIGHTS].bytes.clone();
        let mut seen = [0; 2];
        for case in &fixture.cases {
            let codes = (at(case.width)..tiles.len()).step_by(30_011);
            // The low byte of each scale of the last tile, and its padding.
            let scales = (tiles.len() - scale_bytes / 2..tiles.len()).step_by(4);
            let places = codes.chain(scales.step_by(17)).collect::<Vec<_>>();
            for place in places {
                tiles[place] ^= 1;
                let output = &run(&fixture, case, &tiles)[2];
                tiles[place] ^= 1;
                let failing = failing(&fixture, case, &case.expected[2], &output.bytes);
                let what = format!("{}, width {}, byte {place}", fixture.id, case.width);
                match owners[place] {
                    None => assert_eq!(failing, [], "{what}"),
                    Some(column) if kinds[at(column)] == RowKind::Drawn => {
                        assert_eq!(failing.first(), Some(&(0, Some(column))), "{what}");
                        assert!(
                            failing.iter().all(|(_, other)| *other == Some(column)),
                            "{what}"
                        );
                    }
                    Some(_) => continue,
                }
                seen[usize::from(owners[place].is_some())] += 1;
            }
        }
        assert!(seen.iter().all(|seen| *seen > 20), "{order:?}: {seen:?}");
    }
}

#[test]
fn two_columns_that_change_places_fail_at_every_width() {
    for order in ORDERS {
        let recipe = Recipe::published(order);
        let fixture = recipe.fixture();
        let owners = owners(recipe);
        let clean = &fixture.tensors[WEIGHTS].bytes;
        // Neighbours, and the first columns of both tiles.
        for (one, other) in [(20, 21), (0, T)] {
            let places = |column: u64| {
                let owned = owners.iter().enumerate();
                owned
                    .filter(move |(_, owner)| **owner == Some(column))
                    .map(|(place, _)| place)
            };
            let mut tiles = clean.clone();
            for (one, other) in places(one).zip(places(other)) {
                tiles.swap(one, other);
            }
            for case in &fixture.cases {
                let output = &run(&fixture, case, &tiles)[2];
                let failing = failing(&fixture, case, &case.expected[2], &output.bytes);
                assert_eq!(
                    failing.first().map(|(row, _)| *row),
                    Some(0),
                    "{}",
                    fixture.id
                );
            }
        }
    }
}

/// Kernels of another order: none is bit-equal, all are near.
#[test]
fn another_order_of_the_products_fails_at_every_width_and_is_near() {
    let fixture = Recipe::published(Order::RowMajor).fixture();
    let orders: [fn(&Term) -> f32; 3] = [
        |term| (term.sum as f32 * term.column_scale) * term.activation_scale,
        |term| term.sum as f32 * (term.activation_scale * term.column_scale),
        |term| (f64::from(term.sum) * f64::from(term.activation_scale)) as f32 * term.column_scale,
    ];
    for case in &fixture.cases {
        let inputs = Inputs {
            width: case.width,
            parameters: &fixture.parameters,
            tensors: &tensors(&fixture, case),
        };
        let kernel = KernelCase::of(Order::RowMajor, &inputs);
        let kernel = kernel.expect("because the fixture is whole");
        for (index, order) in orders.into_iter().enumerate() {
            let output = kernel.each_output(order).into_iter();
            let output: Vec<u8> = output.flat_map(f32::to_le_bytes).collect();
            let what = format!("order {index} at width {}", case.width);
            assert_eq!(
                failing(&fixture, case, &case.near[0], &output),
                [],
                "{what}"
            );
            let failing = failing(&fixture, case, &case.expected[2], &output);
            // The last differs only where the sum itself is rounded.
            let first = match index {
                0 | 1 => Some(0),
                _ => (case.width >= 6).then_some(4),
            };
            assert_eq!(failing.first().map(|(row, _)| *row), first, "{what}");
        }
        if case.width >= 6 {
            let sums = kernel.each_output(|term| term.sum);
            let (row, column) = (4, 4);
            let sum = sums[row * at(N) + column];
            assert_eq!(sum, 1_089 * 127 * 127 + 126 * 126, "the largest codes");
        }
    }
}

/// What makes a scale and one code, from the largest magnitude and a value.
type Quantiser = (&'static str, fn(f32) -> f32, fn(f32, f32) -> f32);

const RIGHT: Quantiser = (
    "the rule's",
    |a| a / 127.0,
    |x, a| (x * (127.0 / a)).round(),
);

/// Each is of another scale or other codes, in the first row that every width has.
const OTHER_QUANTISERS: [Quantiser; 5] = [
    (
        "a scale by the reciprocal of 127",
        |a| a * (1.0 / 127.0),
        RIGHT.2,
    ),
    ("divided by the scale", RIGHT.1, |x, a| {
        (x / (a / 127.0)).round()
    }),
    ("by the scale's reciprocal", RIGHT.1, |x, a| {
        (x * (1.0 / (a / 127.0))).round()
    }),
    ("halves to even", RIGHT.1, |x, a| {
        (x * (127.0 / a)).round_ties_even()
    }),
    ("toward zero", RIGHT.1, |x, a| (x * (127.0 / a)).trunc()),
];

#[test]
fn another_quantiser_fails_in_the_first_row_at_every_width() {
    for fixture in [
        Recipe::published(Order::RowMajor).fixture(),
        Recipe::drawn(Order::RowMajor, 7).fixture(),
    ] {
        for case in &fixture.cases {
            let row = |file: &str| &fixture.tensors[file].bytes;
            let input = floats_of(row(&case.inputs["input"]));
            let input = &input[..at(K)];
            let (codes, scales) = (row(&case.expected[0].tensor), row(&case.expected[1].tensor));
            let largest = input.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
            let is_expected = |(_, scale, code): &Quantiser| {
                let made = input
                    .iter()
                    .map(|x| (code(*x, largest) as i8).cast_unsigned());
                scale(largest) == floats_of(scales)[0] && made.eq(codes[..at(K)].iter().copied())
            };
            assert!(is_expected(&RIGHT));
            for other in &OTHER_QUANTISERS {
                assert!(!is_expected(other), "{} at width {}", other.0, case.width);
            }
        }
    }
}

#[test]
fn rows_and_columns_are_on_their_edge() {
    let recipe = Recipe::published(Order::RowMajor);
    let fixture = recipe.fixture();
    let case = fixture.cases.last().expect("because there are cases");
    let find = |of: &str, label: &str| {
        let mut edges = case.edge_rows.iter();
        let edge = edges.find(|edge| edge.of == of && edge.label == label);
        at(edge.unwrap_or_else(|| panic!("no {label} of {of}")).row)
    };
    let scales = floats_of(&fixture.tensors[&case.expected[1].tensor].bytes);
    let codes = &fixture.tensors[&case.expected[0].tensor].bytes;
    let codes = |row: usize| {
        codes[row * at(K)..][..at(K)]
            .iter()
            .map(|code| code.cast_signed())
    };
    let output = floats_of(&fixture.tensors[&case.expected[2].tensor].bytes);
    let zeros = find(CODES, "zeros");
    assert_eq!(scales[zeros], 1.0);
    assert!(codes(zeros).all(|code| code == 0));
    let midpoints = find(SCALES, "midpoints");
    assert_eq!(scales[midpoints], 1.0);
    assert!(
        codes(midpoints).all(|code| code != 0),
        "a half goes away from zero"
    );
    let (row, column) = (
        find(OUTPUT, "cancellation"),
        find("weights", "cancellation"),
    );
    assert_eq!(output[row * at(N) + column].to_bits(), 0);
    let cancelled = output[row * at(N)..][..at(N)]
        .iter()
        .filter(|y| **y == 0.0)
        .count();
    assert_eq!(
        cancelled, 4,
        "zeros in both tiles, what vanishes, and what cancels"
    );
    assert!(scales[find(CODES, "largest magnitudes")] > 1e15);
    assert!(scales[find(CODES, "smallest magnitudes")] < 1e-20);
    assert!(
        codes(find(CODES, "outlier"))
            .skip(1)
            .all(|code| code.abs() <= 1)
    );
}

#[test]
fn drawn_fixtures_have_the_published_shapes_and_other_data() {
    for family in FAMILIES {
        let published = (family.generate)();
        let drawn = family.drawn.expect("because both are drawn too");
        let one = drawn(1);
        assert_eq!(one.boundaries, published.boundaries);
        assert!(families::find(&one.id).is_some());
        for (file, tensor) in &published.tensors {
            assert_eq!(one.tensors[file].shape, tensor.shape, "{file}");
            // The largest value of row 0, so its scale, is the same in all of them.
            let is_same = file == "activation-scales-m1.f32.bin";
            assert_eq!(one.tensors[file] == *tensor, is_same, "{file}");
        }
        for case in &one.cases {
            assert_eq!(case.edge_rows, []);
            let outputs = run(&one, case, &one.tensors[WEIGHTS].bytes);
            for (output, expected) in outputs.iter().zip(&case.expected) {
                assert_eq!(failing(&one, case, expected, &output.bytes), []);
            }
        }
    }
}

#[test]
fn a_kernel_says_which_size_is_in_the_way() {
    let fixture = Recipe::published(Order::Blocked).fixture();
    let case = &fixture.cases[0];
    let refusals = [
        (
            "kd",
            100,
            "parameter kd is 100, expected a positive multiple of 64",
        ),
        (
            "nd",
            129,
            "parameter nd is 129, expected a positive multiple of 128",
        ),
        (
            "kpad",
            1_153,
            "parameter kpad is 1153, expected at most kd, which is 1152",
        ),
        (
            "k",
            1_097,
            "parameter k is 1097, expected at most kpad, which is 1096",
        ),
        ("t", 0, "parameter t is 0, expected 1 or more"),
        ("n", 281, "input weights has 591872 bytes, expected 887808"),
        (
            "n",
            u64::MAX,
            "input weights has 591872 bytes, expected 18446744073709551615",
        ),
        ("k", 1_089, "input input has 4360 bytes, expected 4356"),
    ];
    for (name, value, expected) in refusals {
        let mut parameters = fixture.parameters.clone();
        parameters.insert(name.to_owned(), value);
        let inputs = Inputs {
            width: case.width,
            parameters: &parameters,
            tensors: &tensors(&fixture, case),
        };
        let refused = KernelCase::of(Order::Blocked, &inputs).err();
        let refused: KernelError = refused.expect("because the size is wrong");
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_depth_whose_sums_may_not_fit_is_refused_and_any_numbers_are_taken() {
    let depth = (1 << 17) + 1;
    let sizes = [
        ("k", depth),
        ("kpad", depth),
        ("kd", depth),
        ("nd", 1),
        ("t", 1),
        ("n", 1),
    ];
    let parameters = sizes.map(|(name, size)| (name.to_owned(), size)).into();
    let inputs = Inputs {
        width: 1,
        parameters: &parameters,
        tensors: &BTreeMap::new(),
    };
    let refused = KernelCase::of(Order::RowMajor, &inputs).err();
    let refused = refused.expect("because the depth is one more than fits");
    let expected = "parameter k is 131073, expected at most the depth whose sums fit 32 bits, \
                    which is 131072";
    assert_eq!(refused.to_string(), expected);

    let sizes = [
        ("k", 4),
        ("kpad", 4),
        ("kd", 4),
        ("nd", 1),
        ("t", 1),
        ("n", 1),
    ];
    let parameters = sizes.map(|(name, size)| (name.to_owned(), size)).into();
    for odd in ODD_NUMBERS {
        let input: Vec<u8> = [odd, 1.0, -odd, 0.0]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        let tensors = [("weights", &[0x80; 8][..]), ("input", &input)];
        let tensors = tensors.map(|(role, bytes)| (role.to_owned(), bytes)).into();
        let inputs = Inputs {
            width: 1,
            parameters: &parameters,
            tensors: &tensors,
        };
        let kernel = KernelCase::of(Order::RowMajor, &inputs);
        let kernel = kernel.expect("because the lengths are right");
        assert_eq!(kernel.each_output(product).len(), 1, "{odd}");
    }
}

/// Outside the contract's domain: whatever comes out, the kernel ends.
const ODD_NUMBERS: [f32; 5] = [
    f32::NAN,
    f32::INFINITY,
    f32::MAX,
    f32::MIN_POSITIVE,
    f32::from_bits(1),
];
