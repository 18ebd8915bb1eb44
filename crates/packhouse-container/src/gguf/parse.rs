//! Bytes to `TensorDirectory`: one pass, front to back, no recursion.
//!
//! Invariants:
//! - a count is compared with the room that is left before anything is kept for it, and vectors grow as
//!   bytes are read, so memory is bounded by the bytes present;
//! - all arithmetic on sizes and offsets is checked;
//! - what the rules refuse: `docs/format/gguf.md`, with one test per class.

use super::cursor::{Cursor, WINDOW_BYTES};
use super::directory::{Split, Tensor, TensorDirectory};
use super::error::{Field, GgufError};
use super::limits::{
    ALIGNMENT_MAX, ARRAY_ELEMENTS_MAX, DIMENSIONS_MAX, KEY_BYTES_MAX, METADATA_KEYS_MAX,
    SHARDS_MAX, STRING_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSORS_MAX,
};
use super::value::{Array, Entry, Metadata, StringArray, Value, ValueType, index_by};
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, SPLIT_COUNT_KEY, SPLIT_NO_KEY,
    SPLIT_TENSORS_COUNT_KEY, VERSIONS,
};
use crate::source::ReadAt;
use packhouse_base::ggml_type::GgmlType;

impl TensorDirectory {
    /// Parses the directory of a GGUF file. Errors on everything that `docs/format/gguf.md` does not
    /// allow, and when the source can't be read.
    pub fn parse(source: &impl ReadAt) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(source);
        let version = parse_version(&mut cursor)?;
        let tensor_count = parse_count(
            &mut cursor,
            &Field::TensorCount,
            TENSOR_BYTES_MIN,
            TENSORS_MAX,
        )?;
        let key_count = parse_count(
            &mut cursor,
            &Field::MetadataCount,
            ENTRY_BYTES_MIN,
            METADATA_KEYS_MAX,
        )?;
        let (metadata, alignment) = parse_metadata(&mut cursor, key_count)?;
        let mut tensors = parse_tensors(&mut cursor, tensor_count, alignment)?;
        let directory_end = cursor.offset();
        let file_bytes = cursor.length();
        // Below 2^28 + 2^20 by the limits.
        let data_offset = directory_end.next_multiple_of(alignment);
        place(&mut tensors, data_offset, file_bytes)?;
        refuse_trailing(&tensors, directory_end, alignment, file_bytes)?;
        let by_name = index_by(&tensors, |tensor| &tensor.name).map_err(|(first, second)| {
            GgufError::TensorDoubled {
                tensor: tensors[second].name.clone(),
                first,
                second,
            }
        })?;
        let split = parse_split(&metadata, tensors.len())?;
        Ok(Self {
            version,
            alignment,
            metadata,
            tensors,
            by_name,
            data_offset,
            file_bytes,
            split,
        })
    }
}

/// Fewest bytes of a metadata entry: key length, one byte of key, value type, one byte of value.
const ENTRY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Fewest bytes of a tensor entry: name length, one byte of name, dimension count, type, offset.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 4 + 8;

fn parse_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let found = cursor.array(&Field::Magic)?;
    if found != MAGIC {
        return Err(GgufError::Magic { found });
    }
    let version = cursor.u32(&Field::Version)?;
    if VERSIONS.contains(&version) {
        Ok(version)
    } else if version & 0xffff == 0 && version != 0 {
        // The rule of ggml: a version whose low half is empty is one of the other byte order.
        Err(GgufError::BigEndian { version })
    } else {
        Err(GgufError::Version { version })
    }
}

/// Parses a count of records of at least `record_bytes_min` each.
fn parse_count(
    cursor: &mut Cursor<'_>,
    field: &Field,
    record_bytes_min: u64,
    limit: u64,
) -> Result<u64, GgufError> {
    let offset = cursor.offset();
    let count = cursor.u64(field)?;
    let limit = limit.min(cursor.left() / record_bytes_min);
    if count > limit {
        return Err(GgufError::Count {
            field: field.clone(),
            offset,
            count,
            limit,
        });
    }
    Ok(count)
}

fn parse_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<(Metadata, u64), GgufError> {
    let mut entries = Vec::new();
    let mut alignment = DEFAULT_ALIGNMENT;
    for index in 0..count {
        let offset = cursor.offset();
        let key = parse_name(cursor, &Field::Key { index }, KEY_BYTES_MAX)?;
        let value = parse_value(cursor, &key)?;
        if key == ALIGNMENT_KEY {
            alignment = alignment_of(&value, offset)?;
        }
        entries.push(Entry { key, value });
    }
    // The error needs the key, which `index` takes with the entries.
    let doubled = index_by(&entries, |entry| &entry.key).err();
    if let Some((first, second)) = doubled {
        let key = entries.swap_remove(second).key;
        return Err(GgufError::KeyDoubled { key, first, second });
    }
    let metadata = Metadata::index(entries).expect("because no key is there twice");
    Ok((metadata, alignment))
}

fn alignment_of(value: &Value, offset: u64) -> Result<u64, GgufError> {
    let Value::U32(value) = *value else {
        return Err(GgufError::AlignmentType {
            offset,
            type_id: value.value_type().id(),
        });
    };
    let alignment = u64::from(value);
    if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        return Err(GgufError::Alignment {
            offset,
            value,
            limit: ALIGNMENT_MAX,
        });
    }
    Ok(alignment)
}

/// Parses a string that names something: not empty, no NUL.
fn parse_name(cursor: &mut Cursor<'_>, field: &Field, limit: u64) -> Result<String, GgufError> {
    let offset = cursor.offset();
    let name = parse_text(cursor, field, limit)?.to_owned();
    if name.is_empty() {
        return Err(GgufError::Empty {
            field: field.clone(),
            offset,
        });
    }
    refuse_nul(&name, offset, field)?;
    Ok(name)
}

fn refuse_nul(text: &str, offset: u64, field: &Field) -> Result<(), GgufError> {
    match text.bytes().zip(0u64..).find(|(byte, _)| *byte == 0) {
        Some((_, position)) => Err(GgufError::Nul {
            field: field.clone(),
            offset: offset + LENGTH_BYTES + position,
        }),
        None => Ok(()),
    }
}

/// Bytes of the length before a string.
const LENGTH_BYTES: u64 = 8;

fn parse_text<'c>(
    cursor: &'c mut Cursor<'_>,
    field: &Field,
    limit: u64,
) -> Result<&'c str, GgufError> {
    let offset = cursor.offset();
    let length = cursor.u64(field)?;
    if length > limit {
        return Err(GgufError::StringTooLong {
            field: field.clone(),
            offset,
            length,
            limit,
        });
    }
    std::str::from_utf8(cursor.take(length, field)?).map_err(|error| GgufError::NotUtf8 {
        field: field.clone(),
        offset: offset + LENGTH_BYTES + wide(error.valid_up_to()),
    })
}

fn parse_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let field = &Field::Value {
        key: key.to_owned(),
    };
    let offset = cursor.offset();
    Ok(match parse_value_type(cursor, key, field)? {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(field)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(field)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(field)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(field)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(field)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(field)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(field)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(field)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(field)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(field)?)),
        ValueType::Bool => {
            let [byte] = cursor.array(field)?;
            Value::Bool(bool_of(byte, key, offset + TYPE_BYTES)?)
        }
        ValueType::String => {
            let text = parse_text(cursor, field, STRING_BYTES_MAX)?.to_owned();
            refuse_nul(&text, offset + TYPE_BYTES, field)?;
            Value::String(text)
        }
        ValueType::Array => Value::Array(parse_array(cursor, key, field)?),
    })
}

/// Bytes of a value type.
const TYPE_BYTES: u64 = 4;

fn parse_value_type(
    cursor: &mut Cursor<'_>,
    key: &str,
    field: &Field,
) -> Result<ValueType, GgufError> {
    let offset = cursor.offset();
    let type_id = cursor.u32(field)?;
    ValueType::from_id(type_id).ok_or_else(|| GgufError::ValueType {
        key: key.to_owned(),
        offset,
        type_id,
    })
}

fn bool_of(byte: u8, key: &str, offset: u64) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(GgufError::Bool {
            key: key.to_owned(),
            offset,
            value,
        }),
    }
}

fn parse_array(cursor: &mut Cursor<'_>, key: &str, field: &Field) -> Result<Array, GgufError> {
    let offset = cursor.offset();
    let element = parse_value_type(cursor, key, field)?;
    let count = parse_count(cursor, field, element.bytes_min(), ARRAY_ELEMENTS_MAX)?;
    Ok(match element {
        ValueType::U8 => Array::U8(parse_numbers(cursor, count, field, u8::from_le_bytes)?),
        ValueType::I8 => Array::I8(parse_numbers(cursor, count, field, i8::from_le_bytes)?),
        ValueType::U16 => Array::U16(parse_numbers(cursor, count, field, u16::from_le_bytes)?),
        ValueType::I16 => Array::I16(parse_numbers(cursor, count, field, i16::from_le_bytes)?),
        ValueType::U32 => Array::U32(parse_numbers(cursor, count, field, u32::from_le_bytes)?),
        ValueType::I32 => Array::I32(parse_numbers(cursor, count, field, i32::from_le_bytes)?),
        ValueType::F32 => Array::F32(parse_numbers(cursor, count, field, f32::from_le_bytes)?),
        ValueType::U64 => Array::U64(parse_numbers(cursor, count, field, u64::from_le_bytes)?),
        ValueType::I64 => Array::I64(parse_numbers(cursor, count, field, i64::from_le_bytes)?),
        ValueType::F64 => Array::F64(parse_numbers(cursor, count, field, f64::from_le_bytes)?),
        ValueType::Bool => {
            let first = cursor.offset();
            let bytes = parse_numbers(cursor, count, field, u8::from_le_bytes)?;
            let bools = bytes.iter().zip(first..);
            let bools = bools.map(|(byte, offset)| bool_of(*byte, key, offset));
            Array::Bool(bools.collect::<Result<_, _>>()?)
        }
        ValueType::String => Array::String(parse_strings(cursor, count, field)?),
        ValueType::Array => {
            return Err(GgufError::NestedArray {
                key: key.to_owned(),
                offset,
            });
        }
    })
}

/// Parses numbers of `N` bytes, a window at a time.
fn parse_numbers<const N: usize, T>(
    cursor: &mut Cursor<'_>,
    count: u64,
    field: &Field,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    let mut numbers = Vec::new();
    let mut left = count;
    while left > 0 {
        let piece = left.min(wide(WINDOW_BYTES / N));
        let bytes = cursor.take(piece * wide(N), field)?;
        let (chunks, _) = bytes.as_chunks::<N>();
        numbers.extend(chunks.iter().map(|chunk| decode(*chunk)));
        left -= piece;
    }
    Ok(numbers)
}

/// Parses the strings of an array. A NUL is allowed here: vocabularies have a token for byte 0.
fn parse_strings(
    cursor: &mut Cursor<'_>,
    count: u64,
    field: &Field,
) -> Result<StringArray, GgufError> {
    let mut strings = StringArray::default();
    for _ in 0..count {
        let added = strings.push(parse_text(cursor, field, STRING_BYTES_MAX)?);
        assert!(added, "a directory within the limit has less than 4 GiB");
    }
    Ok(strings)
}

/// Parses all tensor entries. Offsets are still counted from the start of the data.
fn parse_tensors(
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

/// Bytes of a tensor, when they fit in 63 bits and so do the elements, counted dimension by dimension as
/// engines count them.
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
fn place(tensors: &mut [Tensor], data_offset: u64, file_bytes: u64) -> Result<(), GgufError> {
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
fn refuse_trailing(
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

/// Reads the shard keys. A `split.count` of 0, which merged files keep, means one file.
fn parse_split(metadata: &Metadata, tensors: usize) -> Result<Option<Split>, GgufError> {
    let no = split_value(metadata, SPLIT_NO_KEY, ValueType::U16)?;
    let count = split_value(metadata, SPLIT_COUNT_KEY, ValueType::U16)?;
    let total = split_value(metadata, SPLIT_TENSORS_COUNT_KEY, ValueType::I32)?;
    let Some(count) = count.and_then(|count| u16::try_from(count).ok()) else {
        return Ok(None);
    };
    if count == 0 {
        return Ok(None);
    }
    let absent = |key| GgufError::SplitAbsent { key, count };
    let impossible = |key, value| GgufError::SplitValue {
        key,
        value,
        tensors,
        count,
    };
    let no = no.ok_or_else(|| absent(SPLIT_NO_KEY))?;
    let total = total.ok_or_else(|| absent(SPLIT_TENSORS_COUNT_KEY))?;
    if u32::from(count) > SHARDS_MAX {
        return Err(impossible(SPLIT_COUNT_KEY, i64::from(count)));
    }
    let valid_no = u16::try_from(no).ok().filter(|no| *no < count);
    let valid_total = u32::try_from(total)
        .ok()
        .filter(|total| tensors <= usize::try_from(*total).unwrap_or(usize::MAX));
    Ok(Some(Split {
        no: valid_no.ok_or_else(|| impossible(SPLIT_NO_KEY, no))?,
        count,
        tensors_count: valid_total.ok_or_else(|| impossible(SPLIT_TENSORS_COUNT_KEY, total))?,
    }))
}

fn split_value(
    metadata: &Metadata,
    key: &'static str,
    expected: ValueType,
) -> Result<Option<i64>, GgufError> {
    let found = match metadata.value(key) {
        None => return Ok(None),
        Some(Value::U16(value)) if expected == ValueType::U16 => {
            return Ok(Some(i64::from(*value)));
        }
        Some(Value::I32(value)) if expected == ValueType::I32 => {
            return Ok(Some(i64::from(*value)));
        }
        Some(other) => other.value_type(),
    };
    Err(GgufError::SplitType {
        key,
        found: found.id(),
        expected: expected.id(),
    })
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("because no target has a usize above 64 bits")
}
