//! One bit of the weights, or two rows of them, must show: at every width, in the right place.

use super::*;

/// The weight row whose source a changed payload changes.
fn changed_row(recipe: Recipe, source: &[u8], packed: &[u8]) -> usize {
    let mut changed = vec![0; packed.len()];
    unpack_scalar(&recipe.admitted(), packed, &mut changed).expect("because it is packed");
    let row_bytes = source.len() / N;
    let mut rows = source
        .chunks_exact(row_bytes)
        .zip(changed.chunks_exact(row_bytes));
    let row = rows.position(|(before, after)| before != after);
    assert!(
        rows.all(|(before, after)| before == after),
        "one byte is of one row"
    );
    row.expect("because unpacking is exact")
}

/// A bit that no kind of code or scale ignores: the lowest of one of the codes in a byte.
const fn bit(blocks: Blocks, place: usize) -> u8 {
    match blocks {
        Blocks::Q2K => 1 << (2 * (place % 4)),
        Blocks::Q4K | Blocks::Iq4Nl | Blocks::Mxfp4 => 1 << (4 * (place % 2)),
    }
}

/// Flips one bit of each `step`th byte of each case's weights.
fn flip(blocks: Blocks, case_of: impl Fn(&Case) -> bool, step: usize) -> usize {
    let recipe = Recipe::published(blocks);
    let fixture = recipe.fixture();
    let mut seen = 0;
    for case in fixture.cases.iter().filter(|case| case_of(case)) {
        let is_edges = case.width == EDGE_WIDTH;
        let (source, kinds) = (recipe.source(is_edges), weights::kinds(blocks, is_edges, N));
        let mut packed = fixture.tensors[&case.inputs["weights"]].bytes.clone();
        for place in (at(case.width)..packed.len()).step_by(step) {
            packed[place] ^= bit(blocks, place);
            let row = changed_row(recipe, &source, &packed);
            if kinds[row] == weights::RowKind::Drawn {
                let output = &run(&fixture, case, Some(&packed))[1];
                let failing = failing(&fixture, case, &case.expected[1], &output.bytes);
                let first = failing.first();
                let what = format!("{}, width {}, byte {place}", fixture.id, case.width);
                assert_eq!(first, Some(&(0, Some(row as u64))), "{what}");
                let is_local = failing
                    .iter()
                    .all(|(_, column)| *column == Some(row as u64));
                assert!(is_local, "{what}: {failing:?}");
                seen += 1;
            }
            packed[place] ^= bit(blocks, place);
        }
    }
    seen
}

#[test]
fn one_bit_of_any_byte_fails_its_row_at_width_1() {
    for blocks in Blocks::ALL {
        let seen = flip(blocks, |case| case.width == 1, 29);
        assert!(seen > 200, "{}: {seen}", blocks.type_name());
    }
}

#[test]
fn one_bit_fails_its_row_at_every_width() {
    for blocks in Blocks::ALL {
        let seen = flip(blocks, |_| true, 997);
        assert!(seen > 35, "{}: {seen}", blocks.type_name());
    }
}

#[test]
fn two_rows_that_change_places_fail_at_every_width() {
    for blocks in Blocks::ALL {
        let recipe = Recipe::published(blocks);
        let fixture = recipe.fixture();
        for case in &fixture.cases {
            let mut source = recipe.source(case.width == EDGE_WIDTH);
            let row_bytes = source.len() / N;
            // Two neighbours, and the same row of two groups.
            for (one, other) in [(20, 21), (22, 30)] {
                let swap = |source: &mut [u8]| {
                    for place in 0..row_bytes {
                        source.swap(one * row_bytes + place, other * row_bytes + place);
                    }
                };
                swap(&mut source);
                let mut packed = vec![0; source.len()];
                pack_scalar(&recipe.admitted(), &source, &mut packed)
                    .expect("because these are types that we pack");
                swap(&mut source);
                let output = &run(&fixture, case, Some(&packed))[1];
                let failing = failing(&fixture, case, &case.expected[1], &output.bytes);
                let first = failing.first().expect("because the rows differ");
                assert_eq!(first.0, 0, "{} width {}", fixture.id, case.width);
                let column = first.1.expect("because a failing row has a worst column");
                assert!([one, other].contains(&at(column)), "{first:?}");
            }
        }
    }
}
