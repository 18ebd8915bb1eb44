//! `q4_0-xe2-dpas-v2` version 2: Q4_0 for the matrix engine of Intel Xe2.
//!
//! All quants as signed nibbles `[k_block][n_tile][group of 8 columns][16 lanes][8]`, then all
//! scales `[k_block][row]` as they are. A stored nibble is the source's XOR 8: the two's complement
//! of what it stands for. The payload is as long as the source. One matrix; rows in whole tiles
//! of 16.

use crate::admitted::{Admitted, Form, Run, Split};
use crate::judge::Judge;
use crate::q4_0::{BLOCK_ELEMENTS, Matrix, QUANT_BYTES, SCALE_BYTES, at, copy};
use crate::{Geometry, Refusal};
use packhouse_base::ggml_type::GgmlType;

/// Layout id.
pub const ID: &str = "q4_0-xe2-dpas-v2";
/// Layout version.
pub const VERSION: u64 = 2;
/// Rows of a tile, which is the sample group.
pub const TILE_ROWS: u64 = 16;
/// Rows of the golden weight.
pub(crate) const GOLDEN_ROWS: u64 = 48;

pub(crate) const JUDGE: Judge = Judge {
    pack,
    unpack: Some(unpack),
};

const TILE_QUANT_BYTES: u64 = TILE_ROWS * QUANT_BYTES;
const TILE_SCALE_BYTES: u64 = TILE_ROWS * SCALE_BYTES;
const GROUP_COLUMNS: u64 = 8;
const GROUPS: u64 = BLOCK_ELEMENTS / GROUP_COLUMNS;
const SIGN: u8 = 8;

/// Where the nibble of a row and column lies, in nibbles: byte `index / 2`, the low half when even.
pub const fn nibble_index(row_count: u64, row: u64, column: u64) -> u64 {
    let (block, in_block) = (column / BLOCK_ELEMENTS, column % BLOCK_ELEMENTS);
    let (group, in_group) = (in_block / GROUP_COLUMNS, in_block % GROUP_COLUMNS);
    let (tile, lane) = (row / TILE_ROWS, row % TILE_ROWS);
    let tile_index = block * (row_count / TILE_ROWS) + tile;
    ((tile_index * GROUPS + group) * TILE_ROWS + lane) * GROUP_COLUMNS + in_group
}

/// Where the scale of a row and block lies, in bytes.
pub const fn scale_offset(column_count: u64, row_count: u64, row: u64, block: u64) -> u64 {
    column_count / 2 * row_count + SCALE_BYTES * (block * row_count + row)
}

pub(crate) fn form(ty: GgmlType, dims: &[u64]) -> Result<Form, Refusal> {
    let matrix = Matrix::admit(ID, ty, dims)?;
    if matrix.row_count % TILE_ROWS != 0 {
        return Err(Refusal::Rows {
            rows: matrix.row_count,
            multiple: TILE_ROWS,
        });
    }
    Ok(Form {
        geometry: Geometry {
            row_count: matrix.row_count,
            row_bytes: matrix.row_bytes(),
            unit_rows: TILE_ROWS,
        },
        split: Split {
            step_count: matrix.block_count,
            step_bytes: [
                matrix.row_count * QUANT_BYTES,
                matrix.row_count * SCALE_BYTES,
            ],
        },
    })
}

pub(crate) fn runs(admitted: &Admitted, tile: u64) -> [Run; 2] {
    let matrix = Matrix::of(admitted);
    let [quants, scales] = admitted.split().step_bytes;
    [
        Run {
            first: tile * TILE_QUANT_BYTES,
            length: TILE_QUANT_BYTES,
            distance: quants,
            count: matrix.block_count,
        },
        Run {
            first: matrix.all_quant_bytes() + tile * TILE_SCALE_BYTES,
            length: TILE_SCALE_BYTES,
            distance: scales,
            count: matrix.block_count,
        },
    ]
}

fn pack(admitted: &Admitted, source: &[u8], target: &mut [u8]) {
    let matrix = Matrix::of(admitted);
    target.fill(0);
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(admitted.columns(), matrix.row_count, row, block);
        copy(source, block_at, target, scale_at, SCALE_BYTES);
        let quants = &source[at(block_at + SCALE_BYTES)..][..at(QUANT_BYTES)];
        for in_block in 0..BLOCK_ELEMENTS {
            let byte = quants[at(in_block % QUANT_BYTES)];
            let nibble = byte >> (4 * (in_block / QUANT_BYTES)) & 15 ^ SIGN;
            let column = block * BLOCK_ELEMENTS + in_block;
            let index = nibble_index(matrix.row_count, row, column);
            target[at(index / 2)] |= nibble << (4 * (index % 2));
        }
    }
}

fn unpack(admitted: &Admitted, payload: &[u8], target: &mut [u8]) {
    let matrix = Matrix::of(admitted);
    target.fill(0);
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(admitted.columns(), matrix.row_count, row, block);
        copy(payload, scale_at, target, block_at, SCALE_BYTES);
        let quants = &mut target[at(block_at + SCALE_BYTES)..][..at(QUANT_BYTES)];
        for in_block in 0..BLOCK_ELEMENTS {
            let column = block * BLOCK_ELEMENTS + in_block;
            let index = nibble_index(matrix.row_count, row, column);
            let nibble = payload[at(index / 2)] >> (4 * (index % 2)) & 15 ^ SIGN;
            quants[at(in_block % QUANT_BYTES)] |= nibble << (4 * (in_block / QUANT_BYTES));
        }
    }
}
