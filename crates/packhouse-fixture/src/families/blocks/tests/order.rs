//! Kernels of another order: none is bit-equal, all are near, and near still sees a wrong weight.

use super::*;

/// What a kernel that does not keep the declared order makes of the terms.
type By = fn(&[Term]) -> f32;

/// From the last block to the first.
fn reversed(terms: &[Term]) -> f32 {
    let reversed: Vec<Term> = terms.iter().rev().copied().collect();
    sum(&reversed)
}

/// Both halves of the blocks apart, one added to the other at the end.
fn halved(terms: &[Term]) -> f32 {
    let (first, last) = terms.split_at(terms.len() / 2);
    sum(last) + sum(first)
}

/// The two factors first, as kernels do that multiply a vector of sums once.
fn factors_first(terms: &[Term]) -> f32 {
    let (mut products, mut minima) = (0.0f32, 0.0f32);
    for term in terms {
        products += term.dot as f32 * (term.scale * term.activation_scale);
        minima += term.minimum_dot as f32 * (term.minimum * term.activation_scale);
    }
    products - minima
}

/// Each block's product fused with the sum.
fn fused(terms: &[Term]) -> f32 {
    let (mut products, mut minima) = (0.0f32, 0.0f32);
    for term in terms {
        products = (term.dot as f32 * term.scale).mul_add(term.activation_scale, products);
        let minimum = term.minimum_dot as f32 * term.minimum;
        minima = minimum.mul_add(term.activation_scale, minima);
    }
    products - minima
}

/// Each block's minima at once, for the types that have any.
fn blockwise(terms: &[Term]) -> f32 {
    terms.iter().fold(0.0, |output, term| {
        let product = (term.dot as f32 * term.scale) * term.activation_scale;
        output + (product - (term.minimum_dot as f32 * term.minimum) * term.activation_scale)
    })
}

const ORDERS: [(&str, By); 5] = [
    ("reversed", reversed),
    ("halved", halved),
    ("factors first", factors_first),
    ("fused", fused),
    ("blockwise", blockwise),
];

#[test]
fn another_order_fails_at_every_width_and_is_near() {
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        for case in &fixture.cases {
            for (name, by) in ORDERS {
                let what = format!("{} width {} {name}", fixture.id, case.width);
                let output = outputs_by(&fixture, case, blocks, by);
                let near = failing(&fixture, case, &case.near[0], &output);
                assert_eq!(near, [], "{what}");
                let is_declared = match (name, blocks) {
                    // Products with a power of two are exact in any order, and those of a small
                    // sum and a binary16 mostly fit a binary32.
                    ("factors first" | "fused", Blocks::Mxfp4) => true,
                    ("blockwise", Blocks::Iq4Nl | Blocks::Mxfp4) => true,
                    _ => false,
                };
                if is_declared {
                    continue;
                }
                let equal = failing(&fixture, case, &case.expected[1], &output);
                assert!(equal.iter().any(|(row, _)| *row == 0), "{what}");
            }
            let declared = outputs_by(&fixture, case, blocks, sum);
            assert_eq!(failing(&fixture, case, &case.near[0], &declared), []);
        }
    }
}

/// Terms of four elements each, the worst that the bound allows: drawn in an order of their own.
#[test]
fn the_bound_holds_for_sums_of_four_elements_in_any_order() {
    for blocks in Blocks::ALL {
        let recipe = Recipe::published(blocks);
        let fixture = recipe.fixture();
        for case in &fixture.cases {
            let packed = &fixture.tensors[&case.inputs["weights"]].bytes;
            let codes = &fixture.tensors[&case.expected[0].tensor].bytes;
            let output = by_fours(recipe, packed, codes);
            let output: Vec<u8> = output.into_iter().flat_map(f32::to_le_bytes).collect();
            let near = failing(&fixture, case, &case.near[0], &output);
            assert_eq!(near, [], "{} width {}", fixture.id, case.width);
        }
    }
}

fn by_fours(recipe: Recipe, packed: &[u8], codes: &[u8]) -> Vec<f32> {
    let (blocks, form) = (recipe.blocks, recipe.blocks.activations());
    let packed_bytes = blocks.packed_bytes();
    let group_bytes = recipe.block_count() * packed_bytes;
    let mut draws = Draws::new(7);
    let mut outputs = Vec::new();
    for x in codes.chunks_exact(recipe.block_count() * form.block_bytes()) {
        for n in 0..N {
            let group = &packed[n / GROUP_ROWS * group_bytes..][..group_bytes];
            let mut terms = Vec::new();
            let pairs = group
                .chunks_exact(packed_bytes)
                .zip(x.chunks_exact(form.block_bytes()));
            for (packed, x) in pairs {
                let block = blocks.read(packed, n % GROUP_ROWS);
                let (d, codes) = form.read(x);
                let dot = |weights: &[i32], codes: &[u8]| {
                    let products = weights.iter().zip(codes);
                    let dot: i32 = products.map(|(w, x)| w * i32::from(x.cast_signed())).sum();
                    dot as f32
                };
                let fours = block.codes.chunks_exact(4).zip(codes.chunks_exact(4));
                terms.extend(fours.map(|(w, x)| dot(w, x) * block.scale * d));
                let sub_blocks = block.minima.chunks_exact(16).zip(codes.chunks_exact(16));
                terms.extend(sub_blocks.map(|(m, x)| -(dot(m, x) * block.minimum * d)));
            }
            for place in (1..terms.len()).rev() {
                terms.swap(place, draws.below(place as u32 + 1) as usize);
            }
            outputs.push(terms.into_iter().sum());
        }
    }
    outputs
}

/// At width 2 the largest outputs hide the others; at all others near sees one scale of one block
/// that is doubled, and the upper bit of one code.
#[test]
fn near_sees_a_doubled_scale_and_a_wrong_code() {
    for blocks in Blocks::ALL {
        let recipe = Recipe::published(blocks);
        let fixture = recipe.fixture();
        // Row 4 is drawn: its scale, and the last chunk of its codes.
        let (scale, doubling) = match blocks {
            Blocks::Mxfp4 => (4, 1),
            // The exponent's place in the upper byte of a half.
            Blocks::Q4K | Blocks::Q2K | Blocks::Iq4Nl => (9, 4),
        };
        let code = blocks.packed_bytes() - 8 * (GROUP_ROWS - 4);
        for case in fixture.cases.iter().filter(|case| case.width != EDGE_WIDTH) {
            let clean = &fixture.tensors[&case.inputs["weights"]].bytes;
            let mut doubled = clean.clone();
            doubled[scale] += doubling;
            let mut wrong = clean.clone();
            wrong[code] ^= if blocks == Blocks::Q2K { 0xaa } else { 0x88 };
            for packed in [doubled, wrong] {
                let output = &run(&fixture, case, Some(&packed))[1];
                let near = failing(&fixture, case, &case.near[0], &output.bytes);
                assert!(!near.is_empty(), "{} width {}", fixture.id, case.width);
            }
        }
    }
}

#[test]
fn the_bounds_are_these() {
    let bounds = Blocks::ALL.map(|blocks| {
        let fixture = Recipe::published(blocks).fixture();
        let cases = fixture
            .cases
            .iter()
            .map(|case| match case.near[0].tolerance {
                Tolerance::Nmse { max_log2 } => max_log2,
                Tolerance::BitEqual | Tolerance::Ulp { .. } => panic!("an NMSE"),
            });
        cases.collect::<Vec<_>>()
    });
    let expected = [
        [-22, -23, -21, -22, -22, -21],
        [-21, -21, -22, -21, -21, -21],
        [-27, -23, -26, -26, -27, -27],
        [-28, -27, -28, -28, -27, -27],
    ];
    assert_eq!(bounds, expected);
}
