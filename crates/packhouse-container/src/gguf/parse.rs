//! Bytes to `TensorDirectory`: one pass, front to back, no recursion.
//!
//! Invariants:
//! - a count is compared with the room that is left before anything is kept for it, and vectors
//!   grow as bytes are read, so memory is bounded by the bytes present;
//! - all arithmetic on sizes and offsets is checked;
//! - what the rules refuse: `docs/format/gguf.md`, with one test per class.

mod split;
mod tensors;

use super::cursor::{Cursor, WINDOW_BYTES};
use super::directory::TensorDirectory;
use super::error::{Field, GgufError};
use super::limits::{
    ALIGNMENT_MAX, ARRAY_ELEMENTS_MAX, KEY_BYTES_MAX, METADATA_KEYS_MAX, STRING_BYTES_MAX,
    TENSORS_MAX,
};
use super::value::{Array, Entry, Metadata, StringArray, Value, ValueType, index_by};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, VERSIONS};
use crate::source::ReadAt;
use split::parse_split;
use tensors::{parse_tensors, place, refuse_trailing};

impl TensorDirectory {
    /// Parses the directory of a GGUF file. Errors on everything that `docs/format/gguf.md` does
    /// not allow, and when the source can't be read.
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
    let metadata = Metadata::index(entries)
        .map_err(|(key, first, second)| GgufError::KeyDoubled { key, first, second })?;
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

fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("because no target has a usize above 64 bits")
}
