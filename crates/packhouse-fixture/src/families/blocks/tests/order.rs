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

/// What near sees of the changes of a weight, of those that were tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    upper_bits: [u32; 2],
    lowest_bits: [u32; 2],
    scales: [u32; 2],
}

/// Changes one byte of row 0's neighbours that were drawn, block by block.
fn seen_by_near(recipe: Recipe, fixture: &Fixture, case: &Case) -> Seen {
    let blocks = recipe.blocks;
    let clean = &fixture.tensors[&case.inputs["weights"]].bytes;
    let mut seen = Seen::default();
    let sees = |packed: &[u8]| {
        let output = &run(fixture, case, Some(packed))[1];
        u32::from(!failing(fixture, case, &case.near[0], &output.bytes).is_empty())
    };
    let (upper, lowest) = match blocks {
        Blocks::Q2K => (0x02, 0x01),
        Blocks::Q4K | Blocks::Iq4Nl | Blocks::Mxfp4 => (0x08, 0x01),
    };
    // Rows 5, 14 and 39 are drawn in both weights.
    for row in [5, 14, 39] {
        let group = row / GROUP_ROWS * recipe.block_count();
        for block in (group..group + recipe.block_count()).step_by(recipe.block_count() / 3) {
            let start = block * blocks.packed_bytes();
            // Two chunks of eight codes: the first and the last.
            let last = blocks.packed_bytes() - 8 * (GROUP_ROWS - row % GROUP_ROWS);
            for code in [last, last - 8 * GROUP_ROWS] {
                for (bit, counts) in [
                    (upper, &mut seen.upper_bits),
                    (lowest, &mut seen.lowest_bits),
                ] {
                    let mut packed = clean.clone();
                    packed[start + code + 3] ^= bit;
                    counts[0] += sees(&packed);
                    counts[1] += 1;
                }
            }
            // The next scale: of a half one unit in the last place, of MXFP4 a doubled one.
            let scale_bytes = if blocks == Blocks::Mxfp4 { 1 } else { 2 };
            let mut packed = clean.clone();
            packed[start + row % GROUP_ROWS * scale_bytes] ^= 1;
            seen.scales[0] += sees(&packed);
            seen.scales[1] += 1;
        }
    }
    seen
}

#[test]
fn near_sees_a_wrong_code_and_the_next_scale_at_every_width() {
    for blocks in Blocks::ALL {
        let recipe = Recipe::published(blocks);
        let fixture = recipe.fixture();
        for case in &fixture.cases {
            let seen = seen_by_near(recipe, &fixture, case);
            let what = format!("{} width {}: {seen:?}", fixture.id, case.width);
            // What is left: codes of MXFP4 for the two zeros, and one small product of Q2_K.
            for [seen, tried] in [seen.upper_bits, seen.lowest_bits] {
                assert!(seen + 2 >= tried && tried >= 18, "{what}");
            }
            // A scale's last place is less than the roundings of most outputs of one row.
            let [seen, tried] = seen.scales;
            let least = match (blocks, case.width) {
                (Blocks::Mxfp4, _) => tried,
                (_, 1) => 2,
                (_, 4) => tried - 2,
                (_, _) => tried - 1,
            };
            assert!(seen >= least && tried >= 9, "{what}");
        }
    }
}

/// In row 0, which is drawn; columns 1, 9 and 10 have scales of zero.
#[test]
fn near_sees_a_skipped_block_in_every_output_at_every_width() {
    fn short(terms: &[Term], skipped: usize) -> f32 {
        let kept = terms.iter().enumerate();
        let kept = kept.filter(|(index, _)| *index != skipped);
        let kept: Vec<Term> = kept.map(|(_, term)| *term).collect();
        sum(&kept)
    }
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        for case in &fixture.cases {
            let exact = floats_of(&fixture.tensors[&case.near[0].tensor].bytes);
            let bounds = floats_of(&fixture.tensors[&bound_of(case)].bytes);
            for (place, by) in [
                ("first", (|terms| short(terms, 0)) as By),
                ("last", |terms| short(terms, terms.len() - 1)),
            ] {
                let made = floats_of(&outputs_by(&fixture, case, blocks, by));
                let mut hidden = 0;
                for ((exact, bound), made) in exact.iter().zip(&bounds).zip(&made) {
                    hidden += u32::from((made - exact).abs() <= *bound);
                }
                println!(
                    "{} {} {place}: {hidden} of {}",
                    fixture.id,
                    case.width,
                    made.len()
                );
            }
        }
    }
}

fn bound_of(case: &Case) -> String {
    match &case.near[0].tolerance {
        Tolerance::Within { tensor } => tensor.clone(),
        Tolerance::BitEqual | Tolerance::Ulp { .. } => panic!("a bound for each output"),
    }
}

/// Every output that is made a zero fails by itself, but for those that are as good as zeros: of a
/// row or column of zeros, and where what cancels leaves no more than its roundings.
#[test]
fn near_sees_every_output_that_is_zeroed() {
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        for case in &fixture.cases {
            let exact = floats_of(&fixture.tensors[&case.near[0].tensor].bytes);
            let bounds = floats_of(&fixture.tensors[&bound_of(case)].bytes);
            let mut hidden = Vec::new();
            for (index, (exact, bound)) in exact.iter().zip(&bounds).enumerate() {
                assert!(bound.is_finite() && *bound >= 0.0);
                // An output of nothing but zeros has a bound of zero.
                if exact.abs() <= *bound && *bound > 0.0 {
                    hidden.push((index / N, index % N));
                }
            }
            let what = format!("{} width {}", fixture.id, case.width);
            match (blocks, case.width) {
                // Drawn like that: 0.047, of magnitudes that sum up to 4000.
                (Blocks::Q4K, 1) => assert_eq!(hidden, [(0, 36)], "{what}"),
                (_, 1 | 2) => assert_eq!(hidden, [], "{what}"),
                // Cancellation of both, which is zero exactly.
                (_, _) => assert_eq!(hidden, [(2, 2)], "{what}"),
            }
        }
    }
}
