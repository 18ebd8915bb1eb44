//! The lm-head of a model: which tensor it is, and its bytes, read once.
//!
//! Invariants:
//! - the head is `output.weight`; where a model has none, its token embedding (`token_embd.weight`)
//!   serves as both: it is tied. Another tensor is taken only by its name;
//! - one tensor feeds a head column: its row. A head with a scale tensor of its own is refused,
//!   since engines differ in whether they multiply it into the columns or into the products;
//! - the bytes are read once, into private memory; whoever hashes them hashes what is packed;
//! - a model that somebody can write to, or that changed since it was opened, is refused.
//!
//! Never: opens a path, reads any tensor but the head.

use crate::model::{Model, ModelError};
use crate::prepare::{Event, Progress};
use packhouse_base::Blame;
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::{Container, Tensor};
use packhouse_layout::dequant;
use std::path::PathBuf;

/// Where the head of a container is, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHead {
    tensor: Tensor,
    shard: usize,
    width: u64,
    vocabulary: u64,
}

/// A head's bytes in private memory.
pub struct HeadBytes {
    bytes: Vec<u8>,
    ggml_type: GgmlType,
    row_bytes: usize,
    width: usize,
}

/// Who hears of a read, and may end it.
#[derive(Clone, Copy)]
pub struct ReadWatcher<'a> {
    /// Hears of the bytes that were read; the phase is the caller's.
    pub progress: &'a dyn Progress,
    /// Asked between two pieces.
    pub cancel: &'a dyn Fn() -> bool,
}

/// Why a container has no head that can be tiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Neither of the two names is there.
    #[error("there is no tensor {OUTPUT:?} and no {EMBEDDING:?}, so it has no head")]
    Absent,
    /// The tensor that was named is not there.
    #[error("there is no tensor {name:?}")]
    NotThere {
        /// The name.
        name: String,
    },
    /// No matrix.
    #[error("tensor {name:?} has the dims {dims:?}, expected two: a row's length, and the rows")]
    Dims {
        /// The tensor.
        name: String,
        /// Its dims.
        dims: Vec<u64>,
    },
    /// A matrix of nothing.
    #[error("tensor {name:?} is empty: its dims are {dims:?}")]
    Empty {
        /// The tensor.
        name: String,
        /// Its dims.
        dims: Vec<u64>,
    },
    /// A type that stands for no values by itself.
    #[error("tensor {name:?} has the type {type_name}, which has no values to quantise")]
    Values {
        /// The tensor.
        name: String,
        /// Its type.
        type_name: &'static str,
    },
    /// A tensor beside it that scales it.
    #[error(
        "tensor {name:?} is scaled by {scale:?}, and engines differ in where they multiply: such \
         a head is not tiled"
    )]
    Scaled {
        /// The head.
        name: String,
        /// The tensor that scales it.
        scale: String,
    },
}

/// Why a head's bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be read, or changed meanwhile.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Somebody can write to it now.
    #[error("{} is open for writing: what is read may never have been whole", path.display())]
    Writer {
        /// The file.
        path: PathBuf,
    },
    /// It does not fit.
    #[error("the head takes {bytes} bytes of memory, and {available} are available")]
    Memory {
        /// Its bytes.
        bytes: u64,
        /// What the caller gave, or the system had.
        available: u64,
    },
    /// The caller wants no more.
    #[error("stopped while the head was read, {done} of {bytes} bytes")]
    Cancelled {
        /// Bytes that were read.
        done: u64,
        /// Bytes of the head.
        bytes: u64,
    },
}

impl ModelHead {
    /// Finds the head, or judges the tensor that is named as one.
    ///
    /// # Errors
    /// When there is none, or it is no matrix of values.
    pub fn find(container: &Container, named: Option<&str>) -> Result<Self, HeadError> {
        let found = match named {
            Some(name) => container.tensor(name).ok_or_else(|| HeadError::NotThere {
                name: name.to_owned(),
            })?,
            None => {
                let own = container.tensor(OUTPUT);
                let tied = || container.tensor(EMBEDDING);
                own.or_else(tied).ok_or(HeadError::Absent)?
            }
        };
        let (shard, tensor) = found;
        let (width, vocabulary) = judge(tensor)?;
        refuse_scaled(container, tensor)?;
        Ok(Self {
            tensor: tensor.clone(),
            shard,
            width,
            vocabulary,
        })
    }

    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.tensor.name
    }

    /// Its type.
    pub fn ggml_type(&self) -> GgmlType {
        self.tensor.ggml_type
    }

    /// Values of a row: the hidden size.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Its rows.
    pub fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.tensor.bytes
    }

    /// Whether the head is the token embedding.
    pub fn is_tied(&self) -> bool {
        self.tensor.name == EMBEDDING
    }

    /// Reads the head into memory, of which no more than `memory_bytes` may be taken.
    ///
    /// # Errors
    /// When the model can't be read, changed since it was opened, or can be written to; when memory
    /// does not suffice; when the caller wants no more.
    pub fn read(
        &self,
        model: &Model,
        memory_bytes: u64,
        watcher: ReadWatcher<'_>,
    ) -> Result<HeadBytes, ReadError> {
        let file = &model.files()[self.shard];
        if file.has_writer() {
            let path = file.path().to_owned();
            return Err(ReadError::Writer { path });
        }
        let total = self.tensor.bytes;
        let mut bytes = allocate(total, memory_bytes)?;
        let mut done = 0;
        for part in bytes.chunks_mut(READ_BYTES) {
            if (watcher.cancel)() {
                let bytes = total;
                return Err(ReadError::Cancelled { done, bytes });
            }
            file.read_exact_at(self.tensor.offset + done, part)?;
            let bytes = part.len() as u64;
            done += bytes;
            watcher.progress.hear(Event::Done { bytes });
        }
        // Only the head's own file: what happens to other shards is nothing to it.
        file.unchanged()?;
        let rows = usize::try_from(self.vocabulary).unwrap_or(usize::MAX);
        Ok(HeadBytes {
            row_bytes: bytes.len() / rows,
            bytes,
            ggml_type: self.tensor.ggml_type,
            width: usize::try_from(self.width).unwrap_or(usize::MAX),
        })
    }
}

impl HeadBytes {
    /// All bytes, as they are in the model.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Fills the first `width` values of a column with those of a row.
    ///
    /// # Panics
    /// When there is no such row or the target is shorter.
    pub fn fill(&self, row: u64, target: &mut [f32]) {
        let row = usize::try_from(row).expect("because the rows lie in memory");
        let source = &self.bytes[row * self.row_bytes..][..self.row_bytes];
        dequant::dequantise(self.ggml_type, source, &mut target[..self.width])
            .expect("because a head of a type without values is refused");
    }
}

impl HeadError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotThere { .. } => Blame::Caller,
            Self::Absent
            | Self::Dims { .. }
            | Self::Empty { .. }
            | Self::Values { .. }
            | Self::Scaled { .. } => Blame::Source,
        }
    }
}

impl ReadError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Model(error) => error.blame(),
            Self::Writer { .. } => Blame::Source,
            Self::Memory { .. } => Blame::Host,
            Self::Cancelled { .. } => Blame::Caller,
        }
    }
}

/// A row's length and the number of rows of a matrix of values.
fn judge(tensor: &Tensor) -> Result<(u64, u64), HeadError> {
    let name = || tensor.name.clone();
    // A file may spell dims of 1 out behind the two.
    let (width, vocabulary) = match tensor.dims.as_slice() {
        [width, vocabulary, rest @ ..] if rest.iter().all(|dim| *dim == 1) => (*width, *vocabulary),
        dims => {
            let (name, dims) = (name(), dims.to_vec());
            return Err(HeadError::Dims { name, dims });
        }
    };
    if width == 0 || vocabulary == 0 {
        let (name, dims) = (name(), tensor.dims.clone());
        return Err(HeadError::Empty { name, dims });
    }
    if !dequant::has_values(tensor.ggml_type) {
        return Err(HeadError::Values {
            name: name(),
            type_name: tensor.ggml_type.name(),
        });
    }
    Ok((width, vocabulary))
}

/// Refuses a head that another tensor scales: by its own name, or as the model's output.
fn refuse_scaled(container: &Container, tensor: &Tensor) -> Result<(), HeadError> {
    let stem = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
    let own = format!("{stem}.scale");
    let is_output = match tensor.name.as_str() {
        OUTPUT => true,
        EMBEDDING => container.tensor(OUTPUT).is_none(),
        _ => false,
    };
    let output = is_output.then(|| OUTPUT_SCALE.to_owned());
    let mut scales = std::iter::once(own).chain(output);
    match scales.find(|scale| container.tensor(scale).is_some()) {
        None => Ok(()),
        Some(scale) => Err(HeadError::Scaled {
            name: tensor.name.clone(),
            scale,
        }),
    }
}

/// Memory for the head, if it is to be had.
fn allocate(bytes: u64, available: u64) -> Result<Vec<u8>, ReadError> {
    let refused = || ReadError::Memory { bytes, available };
    let length = usize::try_from(bytes).map_err(|_| refused())?;
    if bytes > available {
        return Err(refused());
    }
    let mut memory = Vec::new();
    memory.try_reserve_exact(length).map_err(|_| refused())?;
    memory.resize(length, 0);
    Ok(memory)
}

/// The head of a model that has one of its own.
const OUTPUT: &str = "output.weight";

/// The token embedding, which is the head of a model without one of its own.
const EMBEDDING: &str = "token_embd.weight";

/// One number for the products of a head, which newer files of the types that need it have.
const OUTPUT_SCALE: &str = "output.scale";

/// Bytes read between two questions whether to stop.
const READ_BYTES: usize = 8 << 20;
