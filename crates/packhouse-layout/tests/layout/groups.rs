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
    for layout in [Layout::Int8TileB8, Layout::Int8TileRm] {
        for (name, dims) in [("F32", [5, 3]), ("F16", [70, 131]), ("Q4_0", [64, 1])] {
            all.push(admit(layout, name, &dims, &[]));
            let sizes = [("kd", 192), ("nd", 256), ("kpad", 73), ("t", 130)];
            all.push(admit(layout, name, &dims, &sizes));
        }
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
        match admitted.tile_geometry() {
            None => assert_tiles(payload.collect(), admitted.payload_bytes(), &admitted),
            Some(_) => assert_all_but_padding(payload.collect(), &admitted),
        }
    }
}

/// What groups leave out of tiles is what no column fills: a byte beside them is the padding's.
fn assert_all_but_padding(mut pieces: Vec<Range<u64>>, admitted: &Admitted) {
    let geometry = admitted.tile_geometry().expect("because it is of tiles");
    let columns = admitted.geometry().row_count;
    let bytes = pieces.iter().map(|piece| piece.end - piece.start);
    assert_eq!(bytes.sum::<u64>(), columns * (geometry.kpad() + 4));
    pieces.sort_by_key(|piece| piece.start);
    let apart = |pair: &[Range<u64>]| pair[0].end <= pair[1].start;
    assert!(pieces.windows(2).all(apart), "{admitted:?}");
    let mut payload = pack(admitted, &random(admitted.source_bytes(), 5));
    for piece in pieces {
        payload[bytes_of(piece)].fill(0);
    }
    let tiles = payload.chunks_exact(length(geometry.payload_bytes()));
    for (tile, payload) in (0..).zip(tiles) {
        let filled = geometry.tile_columns(columns, tile);
        let (codes, scales) = payload.split_at(length(geometry.code_bytes()));
        assert!(codes.iter().all(|code| *code == 0), "{admitted:?}");
        let (filled, empty) = scales.split_at(length(4 * (filled.end - filled.start)));
        assert!(filled.iter().all(|byte| *byte == 0), "{admitted:?}");
        let is_padding = |scale: &[u8]| scale == (1.0_f32 / 127.0).to_le_bytes();
        assert!(empty.chunks_exact(4).all(is_padding), "{admitted:?}");
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
            match admitted.tile_geometry() {
                None => assert_eq!(group.parameters(), admitted.parameters()),
                Some(_) => assert_eq!(group.layout(), Layout::Int8TileRm),
            }
            assert_eq!(group.group_count(), 1, "{admitted:?}");
            let alone = pack(&group, &source[bytes_of(admitted.group_source(index))]);
            let pieces = admitted.group_payload(index).map(bytes_of);
            let pieces: Vec<u8> = pieces
                .flat_map(|piece| payload[piece].iter().copied())
                .collect();
            assert_eq!(alone, pieces, "group {index} of {admitted:?}");
        }
    }
}

fn bytes_of(range: Range<u64>) -> Range<usize> {
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

/// The group of a column of any tile is a tile of its own: its codes down the depth, its scale.
#[test]
fn a_column_of_a_head_is_a_row_major_tile() {
    let sizes = [("kd", 64), ("nd", 128), ("kpad", 9), ("t", 4)];
    let admitted = admit(Layout::Int8TileB8, "F16", &[8, 6], &sizes);
    let group = admitted.group(5);
    assert_eq!(group.layout(), Layout::Int8TileRm);
    assert_eq!(group.dims(), [8]);
    let geometry = group.tile_geometry().expect("because it is of tiles");
    let sizes = geometry.sizes();
    assert_eq!((sizes.kd, sizes.nd, sizes.kpad, sizes.t), (9, 1, 9, 1));
    // The second tile begins at 64 * 128 + 4 * 128; column 5 is its column 1.
    let tile = 8704;
    let codes = [1, 9, 17, 25, 33, 41, 49, 57, 1025];
    let codes = codes.map(|at| tile + at..tile + at + 1);
    let scale = tile + 8192 + 4..tile + 8192 + 8;
    let pieces: Vec<_> = admitted.group_payload(5).collect();
    assert_eq!(pieces, [&codes[..], &[scale]].concat());
}

/// Samples name the row of a difference without an inverse because it is the group's only one.
#[test]
fn groups_without_an_inverse_are_single_rows() {
    let tensors = admitted_tensors().into_iter();
    let rounded = tensors.filter(|admitted| !admitted.layout().is_invertible());
    let rounded: Vec<_> = rounded.collect();
    assert_eq!(rounded.len(), 12);
    for admitted in rounded {
        assert_eq!(admitted.geometry().unit_rows, 1, "{admitted:?}");
    }
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
