//! The keys by which a file says that it is a shard, and of what.

use crate::gguf::directory::Split;
use crate::gguf::error::GgufError;
use crate::gguf::limits::SHARDS_MAX;
use crate::gguf::value::{Metadata, Value, ValueType};
use crate::gguf::{SPLIT_COUNT_KEY, SPLIT_NO_KEY, SPLIT_TENSORS_COUNT_KEY};

/// Reads the shard keys. A `split.count` of 0, which merged files keep, means one file.
pub(super) fn parse_split(metadata: &Metadata, tensors: usize) -> Result<Option<Split>, GgufError> {
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
