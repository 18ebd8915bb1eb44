//! Sample groups: they tile source and payload, and each packs alone to the pieces it has in the
//! whole. A loader that compares samples relies on both.

use crate::{admit, length, pack, random};
use packhouse_layout::{Admitted, Layout, judge};
use std::ops::Range;

fn admitted_tensors() -> Vec<Admitted> {
    let mut all = Vec::new();
    for (columns, rows) in [(32, 16), (64, 48), (160, 32)] {
        all.push(admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[columns, rows], &[]));
    }
    for (columns, rows, tile) in [(32, 1, 8), (64, 5, 4), (96, 8, 8), (64, 25, 8), (32, 3, 1)] {
        let tile = [("n_tile", tile)];
        all.push(admit(Layout::Q4_0JointN, "Q4_0", &[columns, rows], &tile));
    }
    for (columns, rows) in [(32, 1), (96, 5)] {
        all.push(admit(Layout::Q4_0Reordered, "Q4_0", &[columns, rows], &[]));
    }
    for (name, dims) in [
        ("F32", vec![5]),
        ("F16", vec![64, 100]),
        ("Q4_0", vec![4096, 3, 2]),
        ("I8", vec![4097, 3]),
        ("Q8_0", vec![32, 200, 3, 2]),
    ] {
        all.push(admit(Layout::Identity, name, &dims, &[]));
    }
    for (name, dims) in [
        ("Q4_0", vec![64, 32]),
        ("Q4_K", vec![256, 24, 3]),
        ("IQ4_NL", vec![32, 8]),
    ] {
        all.push(admit(Layout::GgmlCpuRepack, name, &dims, &[]));
    }
    all
}

#[test]
fn groups_tile_source_and_payload() {
    for admitted in admitted_tensors() {
        let groups = 0..admitted.group_count();
        let source = groups.clone().map(|index| admitted.group_source(index));
        assert_tiles(source.collect(), admitted.source_bytes(), &admitted);
        let payload = groups.flat_map(|index| admitted.group_payload(index));
        assert_tiles(payload.collect(), admitted.payload_bytes(), &admitted);
    }
}

fn assert_tiles(mut pieces: Vec<Range<u64>>, byte_count: u64, admitted: &Admitted) {
    pieces.sort_by_key(|piece| piece.start);
    let mut end = 0;
    for piece in pieces {
        assert_eq!(piece.start, end, "{admitted:?}");
        assert!(!piece.is_empty(), "{admitted:?}");
        end = piece.end;
    }
    assert_eq!(end, byte_count, "{admitted:?}");
}

#[test]
fn each_group_packs_alone_to_its_pieces_of_the_whole() {
    for admitted in admitted_tensors() {
        assert!(judge(&admitted).is_ok(), "{admitted:?}");
        let source = random(admitted.source_bytes(), 11);
        let payload = pack(&admitted, &source);
        for index in 0..admitted.group_count() {
            let group = admitted.group(index);
            assert_eq!(group.parameters(), admitted.parameters());
            assert_eq!(group.group_count(), 1, "{admitted:?}");
            let alone = pack(&group, &source[bytes(admitted.group_source(index))]);
            let pieces = admitted.group_payload(index).map(bytes);
            let pieces: Vec<u8> = pieces
                .flat_map(|piece| payload[piece].iter().copied())
                .collect();
            assert_eq!(alone, pieces, "group {index} of {admitted:?}");
        }
    }
}

fn bytes(range: Range<u64>) -> Range<usize> {
    length(range.start)..length(range.end)
}

#[test]
fn a_records_unit_never_has_more_rows_than_the_tensor() {
    for admitted in admitted_tensors() {
        let geometry = admitted.geometry();
        assert!(geometry.unit_rows >= 1, "{admitted:?}");
        assert!(
            geometry.unit_rows <= geometry.row_count.max(1),
            "{admitted:?}"
        );
    }
    let short = admit(Layout::Q4_0JointN, "Q4_0", &[32, 3], &[]);
    let geometry = short.geometry();
    assert_eq!((geometry.unit_rows, geometry.row_count), (3, 3));
    assert_eq!(short.payload_bytes(), 8 * 18);
}

#[test]
fn a_ragged_last_group_has_the_rows_that_are_left() {
    let admitted = admit(Layout::Q4_0JointN, "Q4_0", &[64, 5], &[("n_tile", 4)]);
    assert_eq!(admitted.group_count(), 2);
    assert_eq!(admitted.group_source(1), 144..180);
    assert_eq!(
        admitted.group_payload(1).collect::<Vec<_>>(),
        [72..144, 216..288]
    );
    assert_eq!(admitted.group(1).dims(), [64]);
    assert_eq!(admitted.group(0).dims(), [64, 4]);
}

#[test]
#[should_panic(expected = "group 3 of 3")]
fn a_group_that_is_not_there_is_a_bug_of_the_caller() {
    let _ = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[64, 48], &[]).group_source(3);
}

#[test]
fn identity_groups_fill_a_page() {
    for (dims, unit_rows) in [
        (vec![64, 100], 32),
        (vec![1024, 100], 2),
        (vec![4096, 100], 1),
        (vec![8], 1),
        (vec![64, 10], 10),
        (vec![0, 4], 4),
        (vec![4, 0], 1),
    ] {
        let admitted = admit(Layout::Identity, "F16", &dims, &[]);
        assert_eq!(admitted.geometry().unit_rows, unit_rows, "{dims:?}");
    }
}
