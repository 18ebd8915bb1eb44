//! A whole head as a payload of its layout, from its bytes in any type that has values: tile after
//! tile, each by all threads.

use crate::int8_tile::bound::Bound;
use crate::int8_tile::{Gather, Tile, pack, size};
use packhouse_layout::Admitted;
use packhouse_layout::dequant::{NoValues, dequantise};
use std::num::NonZeroUsize;

/// Packs a head. `as_codes` lends bytes as codes, all of them.
///
/// # Panics
/// When a length is not the tensor's, or its layout is not one of tiles.
pub(crate) fn pack_head(
    bound: Bound,
    admitted: &Admitted,
    source: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
    as_codes: fn(&mut [u8]) -> &mut [i8],
) {
    assert_eq!(source.len() as u64, admitted.source_bytes(), "source bytes");
    assert_eq!(
        target.len() as u64,
        admitted.payload_bytes(),
        "payload bytes"
    );
    let geometry = admitted.tile_geometry();
    let geometry = &geometry.expect("because the layout is one of tiles");
    let (vocabulary, row_bytes) = (admitted.geometry().row_count, admitted.geometry().row_bytes);
    let width = size(admitted.dims()[0]);
    let fill = |row: u64, values: &mut [f32]| {
        let row = &source[size(row * row_bytes)..][..size(row_bytes)];
        // What lies beyond the width stays zero.
        dequantise(admitted.ty(), row, &mut values[..width])
    };
    let mut scales = vec![0.0; size(geometry.nd())];
    let tiles = target.chunks_exact_mut(size(geometry.payload_bytes()));
    for (tile, target) in (0..).zip(tiles) {
        let (codes, scale_bytes) = target.split_at_mut(size(geometry.code_bytes()));
        let tile = Tile {
            geometry,
            columns: geometry.tile_columns(vocabulary, tile),
            codes: as_codes(codes),
            scales: &mut scales,
        };
        let packed: Result<_, NoValues> = pack(bound, tile, Gather::Parallel(&fill), thread_count);
        packed.expect("because admission asks for a type with values");
        for (bytes, scale) in scale_bytes.chunks_exact_mut(4).zip(&scales) {
            bytes.copy_from_slice(&scale.to_le_bytes());
        }
    }
}
