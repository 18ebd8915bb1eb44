//! A changed nibble, scale or order of rows is seen at every width, and only where it is.

use super::super::activations::Activations;
use super::super::contract::{strided_sum, term};
use super::super::packed::{Block, Packed};
use super::super::{IDENTITY, MRow};
use super::{MROWS, failed, fixture, layout_parameters, pack, run, source_of, verdicts, weights};
use crate::half::f16_to_f32;
use crate::{Case, Fixture};

/// Columns in which the output differs from what is expected, over all rows.
fn changed_columns(fixture: &Fixture, case: &Case, output: &[u8]) -> Vec<usize> {
    let expected = &fixture.tensors[&case.expected[1].tensor].bytes;
    let columns = usize::try_from(fixture.parameters["n"]).expect("because it is small");
    let (expected, _) = expected.as_chunks::<4>();
    let (output, _) = output.as_chunks::<4>();
    let differs = |column: &usize| {
        let pairs = expected.iter().zip(output).skip(*column);
        pairs.step_by(columns).any(|(expected, y)| expected != y)
    };
    (0..columns).filter(differs).collect()
}

/// Asserts that a kernel fails with other weights, in these columns alone.
fn assert_seen(kernel: &MRow, fixture: &Fixture, tampered: &[u8], columns: &[usize], what: &str) {
    for case in &fixture.cases {
        let outputs = run(kernel, fixture, case, &[("weights", tampered)]);
        let seen = format!("{} m{}: {what}", fixture.id, case.width);
        assert_eq!(
            failed(&verdicts(fixture, case, 0, &outputs[0].bytes)),
            [0; 0],
            "{seen}"
        );
        let verdicts = verdicts(fixture, case, 1, &outputs[1].bytes);
        assert_ne!(failed(&verdicts), [0; 0], "{seen}");
        assert_eq!(
            changed_columns(fixture, case, &outputs[1].bytes),
            columns,
            "{seen}"
        );
        let worst = verdicts.iter().find_map(|verdict| verdict.worst.as_ref());
        let worst = worst.expect("because a row failed").column;
        assert!(
            columns.iter().any(|column| *column as u64 == worst),
            "{seen}"
        );
    }
}

/// The rows whose blocks a payload gives otherwise than another.
fn changed_rows(kernel: &MRow, fixture: &Fixture, tampered: &[u8]) -> Vec<usize> {
    let mut changed = fixture.clone();
    let name = format!("weights.{}.bin", super::layout(kernel.order).id());
    let tensor = changed
        .tensors
        .get_mut(&name)
        .expect("because it has weights");
    tensor.bytes = tampered.to_vec();
    let row_bytes = 18 * 19;
    let (before, after) = (
        source_of(kernel.order, fixture),
        source_of(kernel.order, &changed),
    );
    let rows = before
        .chunks_exact(row_bytes)
        .zip(after.chunks_exact(row_bytes));
    let rows = rows
        .enumerate()
        .filter(|(_, (before, after))| before != after);
    rows.map(|(row, _)| row).collect()
}

/// Bytes all over the payload: in each, each half is changed by itself.
#[test]
fn one_nibble_is_seen_at_every_width_in_its_own_column() {
    for kernel in MROWS {
        let fixture = fixture(kernel);
        let payload = weights(&fixture);
        let mut seen = 0;
        for at in (5..payload.len()).step_by(1801) {
            for bit in [0x01, 0x80] {
                let mut tampered = payload.to_vec();
                tampered[at] ^= bit;
                let rows = changed_rows(kernel, &fixture, &tampered);
                // Lanes beyond the last row are no row's; rows of zeros show no nibble, and of the
                // row that cancels not all do.
                if rows.is_empty() || [1, 2, 5, 7].contains(&rows[0]) {
                    continue;
                }
                assert_seen(
                    kernel,
                    &fixture,
                    &tampered,
                    &rows,
                    &format!("byte {at} bit {bit}"),
                );
                seen += 1;
            }
        }
        assert!(seen >= 16, "{} {seen}", fixture.id);
    }
}

#[test]
fn one_scale_and_rows_that_change_places_are_seen_at_every_width() {
    for kernel in MROWS {
        let fixture = fixture(kernel);
        let own = layout_parameters(kernel.order, &fixture);
        let dims = [fixture.parameters["k"], fixture.parameters["n"]];
        let source = source_of(kernel.order, &fixture);
        let row_bytes = 18 * 19;
        for (row, block) in [(0, 0), (1, 9), (2, 18), (3, 3), (4, 4), (55, 18), (9, 16)] {
            let mut tampered = source.clone();
            tampered[row * row_bytes + 18 * block] ^= 1;
            let packed = pack(kernel.order, dims, &own, &tampered);
            assert_seen(kernel, &fixture, &packed, &[row], "one scale");
        }
        for (one, other) in [(0, 8), (8, 9), (15, 16), (54, 55), (3, 4)] {
            let mut tampered = source.clone();
            let (first, second) = tampered.split_at_mut(other * row_bytes);
            first[one * row_bytes..][..row_bytes].swap_with_slice(&mut second[..row_bytes]);
            let packed = pack(kernel.order, dims, &own, &tampered);
            assert_seen(kernel, &fixture, &packed, &[one, other], "two rows");
        }
    }
}

/// Every nibble and scale of every row that is not all zeros, one by one, at every width. The small
/// blocks of the row that is made to cancel show only where it does: beside large terms, a step of
/// theirs is below a unit in the last place.
#[test]
fn every_nibble_and_scale_is_seen_at_every_width() {
    let fixture = fixture(&IDENTITY);
    let weight = Packed::source(weights(&fixture), 19);
    for case in &fixture.cases {
        let (input, _) = fixture.tensors[&case.inputs["input"]].bytes.as_chunks();
        let input: Vec<f32> = input.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let activations = Activations::of(&input, 19);
        for row in 0..weight.row_count() {
            let blocks: Vec<Block> = weight.row(row).collect();
            let is_seen = |at: usize, changed: &Block| {
                activations.rows().any(|activation| {
                    let pairs = blocks.iter().zip(activation);
                    let mut terms: Vec<f32> = pairs.map(|(w, a)| term(w, a)).collect();
                    let y = strided_sum(&terms);
                    terms[at] = term(changed, &activation[at]);
                    strided_sum(&terms).to_bits() != y.to_bits()
                })
            };
            for (at, block) in blocks.iter().enumerate() {
                let mut scaled = block.clone();
                scaled.scale ^= 0x200;
                let place = format!("width {} row {row} block {at}", case.width);
                let is_small = row == 5 && at >= 16 && case.width < 4;
                assert!(is_seen(at, &scaled) || is_small, "{place}: scale");
                if f16_to_f32(block.scale) == 0.0 {
                    continue;
                }
                for column in 0..32 {
                    let mut changed = block.clone();
                    // One step, and never beyond a nibble.
                    changed.nibbles[column] ^= 1;
                    assert!(is_seen(at, &changed) || is_small, "{place} column {column}");
                }
            }
        }
    }
}

#[test]
fn one_changed_input_is_seen_in_its_own_row() {
    for kernel in MROWS {
        let fixture = fixture(kernel);
        for case in &fixture.cases {
            for row in (0..usize::try_from(case.width).expect("because it is small")).step_by(3) {
                let mut input = fixture.tensors[&case.inputs["input"]].bytes.clone();
                let at = 4 * (608 * row + 32 * 7 + 4);
                let number: [u8; 4] = input[at..at + 4].try_into().expect("because it has four");
                let changed = f32::from_le_bytes(number) * 0.5 + 0.25;
                input[at..at + 4].copy_from_slice(&changed.to_le_bytes());
                let outputs = run(kernel, &fixture, case, &[("input", &input)]);
                let failed = failed(&verdicts(&fixture, case, 1, &outputs[1].bytes));
                assert_eq!(failed, [row as u64], "{} m{}", fixture.id, case.width);
            }
        }
    }
}
