//! `q4_0-reordered-v1` version 1: all quants of a Q4_0 matrix, then all its scales, both in the
//! order of the source. The device order of ggml's SYCL back end. The payload is as long as the
//! source. One matrix.

use crate::admitted::{Admitted, Form, Run, Split};
use crate::judge::Judge;
use crate::q4_0::{Matrix, QUANT_BYTES, SCALE_BYTES, copy};
use crate::{Geometry, Refusal};
use packhouse_base::ggml_type::GgmlType;
use std::ops::Range;

/// Layout id.
pub const ID: &str = "q4_0-reordered-v1";
/// Layout version.
pub const VERSION: u64 = 1;
/// Rows of the golden weight.
pub(crate) const GOLDEN_ROWS: u64 = 25;

pub(crate) const JUDGE: Judge = Judge {
    pack,
    unpack: Some(unpack),
};

/// Where the quants of a row and block lie, in bytes.
pub const fn quants_offset(column_count: u64, row: u64, block: u64) -> u64 {
    QUANT_BYTES * (row * (column_count / 32) + block)
}

/// Where the scale of a row and block lies, in bytes.
pub const fn scale_offset(column_count: u64, row_count: u64, row: u64, block: u64) -> u64 {
    column_count / 2 * row_count + SCALE_BYTES * (row * (column_count / 32) + block)
}

pub(crate) fn form(ty: GgmlType, dims: &[u64]) -> Result<Form, Refusal> {
    let matrix = Matrix::admit(ID, ty, dims)?;
    Ok(Form {
        geometry: Geometry {
            row_count: matrix.row_count,
            row_bytes: matrix.row_bytes(),
            unit_rows: 1,
        },
        split: Split {
            step_count: matrix.row_count,
            step_bytes: [
                matrix.block_count * QUANT_BYTES,
                matrix.block_count * SCALE_BYTES,
            ],
        },
    })
}

pub(crate) fn runs(admitted: &Admitted, rows: Range<u64>) -> [Run; 2] {
    let scales_at = Matrix::of(admitted).all_quant_bytes();
    let [quants, scales] = admitted.split().step_bytes;
    [
        Run::one(rows.start * quants..rows.end * quants),
        Run::one(scales_at + rows.start * scales..scales_at + rows.end * scales),
    ]
}

fn pack(admitted: &Admitted, source: &[u8], target: &mut [u8]) {
    let (matrix, columns) = (Matrix::of(admitted), admitted.columns());
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(columns, matrix.row_count, row, block);
        let quants_at = quants_offset(columns, row, block);
        copy(source, block_at, target, scale_at, SCALE_BYTES);
        let source_at = block_at + SCALE_BYTES;
        copy(source, source_at, target, quants_at, QUANT_BYTES);
    }
}

fn unpack(admitted: &Admitted, payload: &[u8], target: &mut [u8]) {
    let (matrix, columns) = (Matrix::of(admitted), admitted.columns());
    for (row, block) in matrix.blocks() {
        let block_at = matrix.block_at(row, block);
        let scale_at = scale_offset(columns, matrix.row_count, row, block);
        let quants_at = quants_offset(columns, row, block);
        copy(payload, scale_at, target, block_at, SCALE_BYTES);
        let target_at = block_at + SCALE_BYTES;
        copy(payload, quants_at, target, target_at, QUANT_BYTES);
    }
}
