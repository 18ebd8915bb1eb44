//! Tensor entries: names, shapes, types, and the proof that their bytes follow each other inside
//! the file.

use super::parse_name;
use crate::gguf::cursor::Cursor;
use crate::gguf::directory::Tensor;
use crate::gguf::error::{Field, GgufError};
use crate::gguf::limits::{DIMENSIONS_MAX, TENSOR_NAME_BYTES_MAX};
use packhouse_base::ggml_type::GgmlType;

/// Parses all tensor entries. Offsets are still counted from the start of the data.
pub(super) fn parse_tensors(
    cursor: &mut Cursor<'_>,
    count: u64,
    alignment: u64,
) -> Result<Vec<Tensor>, GgufError> {
    let mut tensors = Vec::new();
    let mut expected = 0u64;
    for index in 0..count {
        let name = parse_name(cursor, &Field::TensorName { index }, TENSOR_NAME_BYTES_MAX)?;
        let tensor = parse_tensor(cursor, name)?;
        refuse_offset(&tensor, expected, alignment, cursor.offset() - OFFSET_BYTES)?;
        expected = tensor
            .bytes
            .checked_next_multiple_of(alignment)
            .and_then(|bytes| expected.checked_add(bytes))
            .ok_or_else(|| GgufError::DataTooLarge {
                tensor: tensor.name.clone(),
            })?;
        tensors.push(tensor);
    }
    Ok(tensors)
}

/// Bytes of a tensor's data offset, the last field of its entry.
const OFFSET_BYTES: u64 = 8;

fn parse_tensor(cursor: &mut Cursor<'_>, name: String) -> Result<Tensor, GgufError> {
    let field = &Field::TensorEntry {
        tensor: name.clone(),
    };
    let dims = parse_dims(cursor, field, &name)?;
    let type_offset = cursor.offset();
    let ggml_type = match GgmlType::from_id(cursor.u32(field)?) {
        Ok(ggml_type) => ggml_type,
        Err(source) => {
            return Err(GgufError::TensorType {
                tensor: name,
                offset: type_offset,
                source,
            });
        }
    };
    let offset = cursor.u64(field)?;
    if !dims[0].is_multiple_of(ggml_type.block_elements()) {
        return Err(GgufError::RowBlocks {
            tensor: name,
            offset: cursor.offset(),
            row: dims[0],
            block: ggml_type.block_elements(),
        });
    }
    let Some(bytes) = tensor_bytes(ggml_type, &dims) else {
        return Err(GgufError::TensorTooLarge {
            tensor: name,
            offset: cursor.offset(),
            dims,
        });
    };
    Ok(Tensor {
        name,
        ggml_type,
        dims,
        offset,
        bytes,
    })
}

/// Parses one to four dimensions; a stored count of 0 means one element.
fn parse_dims(cursor: &mut Cursor<'_>, field: &Field, name: &str) -> Result<Vec<u64>, GgufError> {
    let offset = cursor.offset();
    let count = cursor.u32(field)?;
    if count > DIMENSIONS_MAX {
        return Err(GgufError::DimensionCount {
            tensor: name.to_owned(),
            offset,
            count,
            limit: DIMENSIONS_MAX,
        });
    }
    let mut dims = Vec::new();
    for _ in 0..count {
        let offset = cursor.offset();
        let value = cursor.u64(field)?;
        if value > SIGNED_MAX {
            return Err(GgufError::Dimension {
                tensor: name.to_owned(),
                offset,
                index: dims.len(),
                value,
            });
        }
        dims.push(value);
    }
    if dims.is_empty() {
        dims.push(1);
    }
    Ok(dims)
}

/// The largest size that engines, which count in i64, can hold.
const SIGNED_MAX: u64 = i64::MAX.cast_unsigned();

/// Bytes of a tensor, when they fit in 63 bits and so do the elements, counted dimension by
/// dimension as engines count them.
fn tensor_bytes(ggml_type: GgmlType, dims: &[u64]) -> Option<u64> {
    let fits = |value: &u64| *value <= SIGNED_MAX;
    dims.iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim).filter(fits))?;
    ggml_type.tensor_bytes(dims).filter(fits)
}

/// Proves that a data offset is where the padded bytes of all tensors before end.
fn refuse_offset(
    tensor: &Tensor,
    expected: u64,
    alignment: u64,
    field_offset: u64,
) -> Result<(), GgufError> {
    let name = || tensor.name.clone();
    let found = tensor.offset;
    if !found.is_multiple_of(alignment) {
        Err(GgufError::TensorMisaligned {
            tensor: name(),
            offset: field_offset,
            found,
            alignment,
        })
    } else if found < expected {
        Err(GgufError::TensorOverlap {
            tensor: name(),
            offset: field_offset,
            found,
            expected,
        })
    } else if found > expected {
        Err(GgufError::TensorHole {
            tensor: name(),
            offset: field_offset,
            found,
            expected,
        })
    } else {
        Ok(())
    }
}

/// Turns data offsets into file offsets and proves that each tensor lies inside the file.
pub(super) fn place(
    tensors: &mut [Tensor],
    data_offset: u64,
    file_bytes: u64,
) -> Result<(), GgufError> {
    for tensor in tensors {
        let offset = data_offset.checked_add(tensor.offset);
        let end = offset.and_then(|offset| offset.checked_add(tensor.bytes));
        let (Some(offset), Some(end)) = (offset, end) else {
            return Err(GgufError::DataTooLarge {
                tensor: tensor.name.clone(),
            });
        };
        if end > file_bytes {
            return Err(GgufError::TensorPastEnd {
                tensor: tensor.name.clone(),
                offset,
                end,
                file_bytes,
            });
        }
        tensor.offset = offset;
    }
    Ok(())
}

/// Allows after the last tensor (or the directory, when there is none) at most its padding.
pub(super) fn refuse_trailing(
    tensors: &[Tensor],
    directory_end: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<(), GgufError> {
    let end = tensors
        .last()
        .map_or(directory_end, |tensor| tensor.offset + tensor.bytes);
    match end.checked_next_multiple_of(alignment) {
        Some(padded_end) if file_bytes > padded_end => Err(GgufError::Trailing {
            offset: padded_end,
            bytes: file_bytes - padded_end,
        }),
        Some(_) | None => Ok(()),
    }
}
