//! `q4_0-joint-n-v1` version 1: Q4_0 by K block, then by tile of `n_tile` rows.
//!
//! A tile is `n_tile` scales, then the 16 quant bytes of each row, byte number outer and row inner.
//! Missing rows of the last tile are zero blocks, so the payload is longer than the source where
//! `n_tile` does not divide the rows. One matrix.

use crate::admitted::{Admitted, Form, Run, Split};
use crate::judge::Judge;
use crate::layout::Parameter;
use crate::q4_0::{BLOCK_BYTES, Matrix, QUANT_BYTES, SCALE_BYTES, at, copy};
use crate::{Geometry, Refusal};
use packhouse_base::ggml_type::GgmlType;
use std::collections::BTreeMap;

/// Layout id.
pub const ID: &str = "q4_0-joint-n-v1";
/// Layout version.
pub const VERSION: u64 = 1;
/// Name of the layout parameter that holds a tile's rows.
pub const N_TILE: &str = "n_tile";

pub(crate) const JUDGE: Judge = Judge {
    pack,
    unpack: Some(unpack),
};

pub(crate) static PARAMETERS: [Parameter; 1] = [Parameter {
    name: N_TILE,
    default: Some(8),
    min: 1,
    max: 1024,
}];

/// Rows of the golden weight: whole tiles with at least 24 rows, then half a tile.
pub(crate) const fn golden_rows(n_tile: u64) -> u64 {
    24_u64.next_multiple_of(n_tile) + n_tile / 2
}

/// Where the scale of a row and block lies, in bytes; `tile_count` is the padded matrix's.
pub const fn scale_offset(n_tile: u64, tile_count: u64, row: u64, block: u64) -> u64 {
    tile_offset(n_tile, tile_count, row / n_tile, block) + SCALE_BYTES * (row % n_tile)
}

/// Where a quant byte (0 to 15) of a row and block lies.
pub const fn quant_offset(n_tile: u64, tile_count: u64, row: u64, block: u64, byte: u64) -> u64 {
    let tile = tile_offset(n_tile, tile_count, row / n_tile, block);
    tile + SCALE_BYTES * n_tile + byte * n_tile + row % n_tile
}

const fn tile_offset(n_tile: u64, tile_count: u64, tile: u64, block: u64) -> u64 {
    BLOCK_BYTES * n_tile * (block * tile_count + tile)
}

pub(crate) fn form(
    ty: GgmlType,
    dims: &[u64],
    parameters: &BTreeMap<String, u64>,
) -> Result<Form, Refusal> {
    let matrix = Matrix::admit(ID, ty, dims)?;
    let n_tile = parameters.get(N_TILE).copied();
    let n_tile = n_tile.expect("because the parameter has a default");
    let overflow = || Refusal::Overflow {
        dims: dims.to_vec(),
    };
    let padded_rows = matrix.row_count.checked_next_multiple_of(n_tile);
    let step_bytes = padded_rows.and_then(|rows| rows.checked_mul(BLOCK_BYTES));
    let step_bytes = step_bytes.ok_or_else(overflow)?;
    step_bytes
        .checked_mul(matrix.block_count)
        .ok_or_else(overflow)?;
    Ok(Form {
        geometry: Geometry {
            row_count: matrix.row_count,
            row_bytes: matrix.row_bytes(),
            // A record's unit has at most as many rows as the tensor.
            unit_rows: n_tile.min(matrix.row_count),
        },
        split: Split {
            step_count: matrix.block_count,
            step_bytes: [step_bytes, 0],
        },
    })
}

pub(crate) fn runs(admitted: &Admitted, tile: u64) -> [Run; 2] {
    let tile_bytes = BLOCK_BYTES * admitted.parameter(N_TILE);
    let run = Run {
        first: tile * tile_bytes,
        length: tile_bytes,
        distance: admitted.split().step_bytes[0],
        count: Matrix::of(admitted).block_count,
    };
    [run, Run::NONE]
}

fn pack(admitted: &Admitted, source: &[u8], target: &mut [u8]) {
    let matrix = Matrix::of(admitted);
    let n_tile = admitted.parameter(N_TILE);
    let tile_count = matrix.row_count.div_ceil(n_tile);
    target.fill(0);
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(n_tile, tile_count, row, block);
        copy(source, block_at, target, scale_at, SCALE_BYTES);
        for byte in 0..QUANT_BYTES {
            let quant_at = quant_offset(n_tile, tile_count, row, block, byte);
            target[at(quant_at)] = source[at(block_at + SCALE_BYTES + byte)];
        }
    }
}

fn unpack(admitted: &Admitted, payload: &[u8], target: &mut [u8]) {
    let matrix = Matrix::of(admitted);
    let n_tile = admitted.parameter(N_TILE);
    let tile_count = matrix.row_count.div_ceil(n_tile);
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(n_tile, tile_count, row, block);
        copy(payload, scale_at, target, block_at, SCALE_BYTES);
        for byte in 0..QUANT_BYTES {
            let quant_at = quant_offset(n_tile, tile_count, row, block, byte);
            target[at(block_at + SCALE_BYTES + byte)] = payload[at(quant_at)];
        }
    }
}
