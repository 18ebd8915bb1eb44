//! `identity-v1` version 1: the bytes of a tensor of any type and dims, as they are.
//!
//! A tensor without elements is one of no bytes. A sample group is the fewest rows that fill a
//! page, so that a sample of short rows does not cost a page fault each.

use crate::admitted::{Admitted, Form, Split};
use crate::judge::Judge;
use crate::{Geometry, Refusal};
use packhouse_base::ggml_type::GgmlType;

/// Layout id.
pub const ID: &str = "identity-v1";
/// Layout version.
pub const VERSION: u64 = 1;
/// Rows of the golden weight.
pub(crate) const GOLDEN_ROWS: u64 = 25;

pub(crate) const JUDGE: Judge = Judge {
    pack: copy,
    unpack: Some(copy),
};

const PAGE_BYTES: u64 = 4096;

pub(crate) fn form(ty: GgmlType, dims: &[u64]) -> Result<Form, Refusal> {
    let overflow = || Refusal::Overflow {
        dims: dims.to_vec(),
    };
    let Some((columns, rest)) = dims.split_first() else {
        return Err(Refusal::Shape {
            dims: dims.to_vec(),
        });
    };
    if columns % ty.block_elements() != 0 {
        return Err(Refusal::Columns {
            columns: *columns,
            block: ty.block_elements(),
        });
    }
    ty.tensor_bytes(dims).ok_or_else(overflow)?;
    let row_bytes = ty.tensor_bytes(&[*columns]).ok_or_else(overflow)?;
    let row_count = rest
        .iter()
        .try_fold(1_u64, |product, dim| product.checked_mul(*dim))
        .ok_or_else(overflow)?;
    let page_rows = PAGE_BYTES.div_ceil(row_bytes.max(1));
    Ok(Form {
        geometry: Geometry {
            row_count,
            row_bytes,
            unit_rows: page_rows.clamp(1, row_count.max(1)),
        },
        split: Split {
            step_count: row_count,
            step_bytes: [row_bytes, 0],
        },
    })
}

fn copy(_: &Admitted, from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}
