//! Writes GGUF 3 files front to back: the directory first, then each tensor's bytes in order.
//!
//! What it writes, `TensorDirectory::parse` reads: the padding after the last tensor is written
//! too.

use super::limits::ALIGNMENT_MAX;
use super::value::{Array, Entry, Value};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use packhouse_base::Blame;
use packhouse_base::ggml_type::GgmlType;
use std::io::{self, Write};

/// What a file shall hold, before its bytes.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Metadata in file order. A `general.alignment` in it sets the alignment.
    pub metadata: Vec<Entry>,
    /// Tensors in file order.
    pub tensors: Vec<DraftTensor>,
}

/// One tensor of a draft.
#[derive(Clone, Debug)]
pub struct DraftTensor {
    /// Name.
    pub name: String,
    /// Element type.
    pub ggml_type: GgmlType,
    /// Dimensions, ne0 first.
    pub dims: Vec<u64>,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The target refused.
    #[error("writing the file")]
    Target(#[from] io::Error),
    /// The dims of a tensor don't fit its type or overflow.
    #[error("tensor {tensor:?} with dimensions {dims:?} has no byte size")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// The alignment is no u32, no power of two or past the limit.
    #[error("general.alignment is {value:?}, not a u32 power of two up to 2^20")]
    Alignment {
        /// The value given.
        value: Value,
    },
    /// More bytes were given than the tensors have.
    #[error("{bytes} bytes are more than tensor {tensor:?} has left: {left}")]
    TooManyBytes {
        /// The tensor, empty after the last.
        tensor: String,
        /// Bytes given.
        bytes: usize,
        /// Bytes left.
        left: u64,
    },
    /// The file was ended before all bytes were given.
    #[error("tensor {tensor:?} still misses {left} bytes")]
    TooFewBytes {
        /// The first tensor that is not complete.
        tensor: String,
        /// Bytes left.
        left: u64,
    },
}

/// A file whose directory is written and whose tensors are being written.
pub struct Writer<W> {
    target: W,
    alignment: u64,
    tensors: Vec<(String, u64)>,
    /// Index of the tensor being written.
    index: usize,
    /// Bytes of it that are still missing.
    left: u64,
}

impl WriteError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Target(_) => Blame::Host,
            Self::Size { .. }
            | Self::Alignment { .. }
            | Self::TooManyBytes { .. }
            | Self::TooFewBytes { .. } => Blame::Caller,
        }
    }
}

impl Draft {
    /// Bytes of the whole file. Errors like `begin`.
    pub fn file_bytes(&self) -> Result<u64, WriteError> {
        let alignment = self.alignment()?;
        let mut directory = Vec::new();
        let sizes = self.write_directory(&mut directory, alignment)?;
        let start = wide(directory.len()).next_multiple_of(alignment);
        Ok(sizes.iter().fold(start, |sum, (_, bytes)| {
            sum + bytes.next_multiple_of(alignment)
        }))
    }

    /// Writes the directory. Errors when a tensor has no byte size, the alignment is none, or the
    /// target refuses.
    pub fn begin<W: Write>(&self, mut target: W) -> Result<Writer<W>, WriteError> {
        let alignment = self.alignment()?;
        let mut directory = Vec::new();
        let tensors = self.write_directory(&mut directory, alignment)?;
        let length = wide(directory.len());
        pad(&mut directory, length, alignment)?;
        target.write_all(&directory)?;
        let mut writer = Writer {
            target,
            alignment,
            left: tensors.first().map_or(0, |(_, bytes)| *bytes),
            tensors,
            index: 0,
        };
        writer.skip_complete()?;
        Ok(writer)
    }

    fn alignment(&self) -> Result<u64, WriteError> {
        let entry = self
            .metadata
            .iter()
            .find(|entry| entry.key == ALIGNMENT_KEY);
        match entry.map(|entry| &entry.value) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some(Value::U32(value))
                if value.is_power_of_two() && u64::from(*value) <= ALIGNMENT_MAX =>
            {
                Ok(u64::from(*value))
            }
            Some(value) => Err(WriteError::Alignment {
                value: value.clone(),
            }),
        }
    }

    fn write_directory(
        &self,
        directory: &mut Vec<u8>,
        alignment: u64,
    ) -> Result<Vec<(String, u64)>, WriteError> {
        directory.extend(MAGIC);
        directory.extend(VERSION_WRITTEN.to_le_bytes());
        directory.extend(wide(self.tensors.len()).to_le_bytes());
        directory.extend(wide(self.metadata.len()).to_le_bytes());
        for entry in &self.metadata {
            put_text(directory, &entry.key);
            directory.extend(entry.value.value_type().id().to_le_bytes());
            put_value(directory, &entry.value);
        }
        let mut sizes = Vec::new();
        let mut offset = 0u64;
        for tensor in &self.tensors {
            let size = || WriteError::Size {
                tensor: tensor.name.clone(),
                dims: tensor.dims.clone(),
            };
            let bytes = tensor
                .ggml_type
                .tensor_bytes(&tensor.dims)
                .ok_or_else(size)?;
            put_text(directory, &tensor.name);
            let count = u32::try_from(tensor.dims.len()).map_err(|_| size())?;
            directory.extend(count.to_le_bytes());
            for dim in &tensor.dims {
                directory.extend(dim.to_le_bytes());
            }
            directory.extend(tensor.ggml_type.id().to_le_bytes());
            directory.extend(offset.to_le_bytes());
            offset = bytes
                .checked_next_multiple_of(alignment)
                .and_then(|bytes| offset.checked_add(bytes))
                .ok_or_else(size)?;
            sizes.push((tensor.name.clone(), bytes));
        }
        Ok(sizes)
    }
}

/// The version that is written.
const VERSION_WRITTEN: u32 = 3;

impl<W: Write> Writer<W> {
    /// Adds bytes of the current tensor; when it is complete, its padding follows and the next one
    /// begins. Errors when the tensor has less left, and when the target refuses.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let count = wide(bytes.len());
        if count > self.left {
            let tensor = self.tensors.get(self.index);
            return Err(WriteError::TooManyBytes {
                tensor: tensor.map_or_else(String::new, |(name, _)| name.clone()),
                bytes: bytes.len(),
                left: self.left,
            });
        }
        self.target.write_all(bytes)?;
        self.left -= count;
        self.skip_complete()
    }

    /// Ends the file and gives the target back. Errors when bytes are missing or the target can't
    /// be flushed.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some((tensor, _)) = self.tensors.get(self.index) {
            return Err(WriteError::TooFewBytes {
                tensor: tensor.clone(),
                left: self.left,
            });
        }
        self.target.flush()?;
        Ok(self.target)
    }

    /// Pads and passes over tensors that miss nothing.
    fn skip_complete(&mut self) -> Result<(), WriteError> {
        while self.left == 0
            && let Some((_, bytes)) = self.tensors.get(self.index)
        {
            pad(&mut self.target, *bytes, self.alignment)?;
            self.index += 1;
            self.left = self.tensors.get(self.index).map_or(0, |(_, bytes)| *bytes);
        }
        Ok(())
    }
}

/// Writes the zero bytes between `length` and its next multiple of `alignment`.
fn pad(target: &mut impl Write, length: u64, alignment: u64) -> io::Result<()> {
    let count = length.next_multiple_of(alignment) - length;
    io::copy(&mut io::Read::take(io::repeat(0), count), target).map(drop)
}

fn put_text(target: &mut Vec<u8>, text: &str) {
    target.extend(wide(text.len()).to_le_bytes());
    target.extend(text.as_bytes());
}

fn put_value(target: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => target.extend(value.to_le_bytes()),
        Value::I8(value) => target.extend(value.to_le_bytes()),
        Value::U16(value) => target.extend(value.to_le_bytes()),
        Value::I16(value) => target.extend(value.to_le_bytes()),
        Value::U32(value) => target.extend(value.to_le_bytes()),
        Value::I32(value) => target.extend(value.to_le_bytes()),
        Value::F32(value) => target.extend(value.to_le_bytes()),
        Value::U64(value) => target.extend(value.to_le_bytes()),
        Value::I64(value) => target.extend(value.to_le_bytes()),
        Value::F64(value) => target.extend(value.to_le_bytes()),
        Value::Bool(value) => target.push(u8::from(*value)),
        Value::String(value) => put_text(target, value),
        Value::Array(array) => put_array(target, array),
    }
}

fn put_array(target: &mut Vec<u8>, array: &Array) {
    target.extend(array.element_type().id().to_le_bytes());
    target.extend(wide(array.len()).to_le_bytes());
    match array {
        Array::U8(values) => target.extend(values),
        Array::I8(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::U16(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::I16(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::U32(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::I32(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::F32(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::U64(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::I64(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::F64(values) => target.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::Bool(values) => target.extend(values.iter().map(|value| u8::from(*value))),
        Array::String(strings) => strings.iter().for_each(|text| put_text(target, text)),
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("because no target has a usize above 64 bits")
}
