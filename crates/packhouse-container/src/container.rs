//! A model as its shards: one file, or several whose split keys and tensors fit together.

use crate::gguf::{Tensor, TensorDirectory};
use packhouse_base::Blame;

/// The shards of one model, complete and in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    shards: Vec<TensorDirectory>,
}

/// Why files are not the shards of one model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// No file was given.
    #[error("a container of no files")]
    Empty,
    /// Several files were given, and one is no shard.
    #[error("file {position} is no shard: it has no split.count")]
    NotSplit {
        /// Position in the order given, from 0.
        position: usize,
    },
    /// A shard names another number of shards than the first.
    #[error("file {position} is of {found} shards, and file 0 of {expected}")]
    CountDiffers {
        /// Position in the order given, from 0.
        position: usize,
        /// Its split.count.
        found: u16,
        /// That of the first.
        expected: u16,
    },
    /// A shard names another number of tensors than the first.
    #[error(
        "file {position} is of a model with {found} tensors, and file 0 of one with {expected}"
    )]
    TensorsCountDiffers {
        /// Position in the order given, from 0.
        position: usize,
        /// Its split.tensors.count.
        found: u32,
        /// That of the first.
        expected: u32,
    },
    /// A shard is there twice.
    #[error("shard {no} is there twice, as file {first} and {second}")]
    ShardDoubled {
        /// Its split.no.
        no: u16,
        /// Position of the first.
        first: usize,
        /// Position of the second.
        second: usize,
    },
    /// A shard is not there.
    #[error("shard {no} of {count} is missing")]
    ShardMissing {
        /// Its split.no.
        no: u16,
        /// How many there must be.
        count: u16,
    },
    /// A shard is not at its place.
    #[error("file {position} is shard {found}")]
    ShardMoved {
        /// Position in the order given, from 0.
        position: usize,
        /// Its split.no.
        found: u16,
    },
    /// A later shard gives a key another value than the first shard.
    #[error("file {position} has another value of {key:?} than file 0")]
    MetadataDiffers {
        /// Position in the order given, from 0.
        position: usize,
        /// The key.
        key: String,
    },
    /// Two shards have a tensor of the same name.
    #[error("tensor {tensor:?} is in file {first} and in file {second}")]
    TensorDoubled {
        /// Its name.
        tensor: String,
        /// Position of the first file.
        first: usize,
        /// Position of the second file.
        second: usize,
    },
    /// The shards together have another number of tensors than they say.
    #[error("the shards have {found} tensors together and say {expected}")]
    TensorTotal {
        /// Tensors that are there.
        found: usize,
        /// Their split.tensors.count.
        expected: u32,
    },
}

impl ContainerError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Empty => Blame::Caller,
            Self::NotSplit { .. }
            | Self::CountDiffers { .. }
            | Self::TensorsCountDiffers { .. }
            | Self::ShardDoubled { .. }
            | Self::ShardMissing { .. }
            | Self::ShardMoved { .. }
            | Self::MetadataDiffers { .. }
            | Self::TensorDoubled { .. }
            | Self::TensorTotal { .. } => Blame::Source,
        }
    }
}

impl Container {
    /// Joins shards given in the order of `split.no`; a file that is no shard is a container alone.
    /// Errors when shards are missing, doubled, out of order or of different models.
    pub fn new(shards: Vec<TensorDirectory>) -> Result<Self, ContainerError> {
        let first = shards.first().ok_or(ContainerError::Empty)?;
        if shards.len() > 1 || first.split().is_some() {
            refuse_numbers(&shards)?;
            refuse_mixed(first, &shards)?;
            refuse_total(first, &shards)?;
        }
        Ok(Self { shards })
    }

    /// The shards in order, at least one.
    pub fn shards(&self) -> &[TensorDirectory] {
        &self.shards
    }

    /// The metadata of the model, which the first shard has.
    pub fn metadata(&self) -> &crate::gguf::Metadata {
        self.shards[0].metadata()
    }

    /// All tensors in file order, each with the index of its shard.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(|(shard, directory)| {
            directory
                .tensors()
                .iter()
                .map(move |tensor| (shard, tensor))
        })
    }

    /// Finds a tensor by name, with the index of its shard.
    pub fn tensor(&self, name: &str) -> Option<(usize, &Tensor)> {
        let mut shards = self.shards.iter().enumerate();
        shards.find_map(|(shard, directory)| Some((shard, directory.tensor(name)?)))
    }
}

/// Proves that the numbers are 0, 1, 2, ... of one count.
fn refuse_numbers(shards: &[TensorDirectory]) -> Result<(), ContainerError> {
    let mut splits = Vec::new();
    for (position, shard) in shards.iter().enumerate() {
        splits.push(shard.split().ok_or(ContainerError::NotSplit { position })?);
    }
    let expected = splits[0];
    let mut position_of = vec![None; usize::from(expected.count)];
    for (position, split) in splits.iter().enumerate() {
        if split.count != expected.count {
            return Err(ContainerError::CountDiffers {
                position,
                found: split.count,
                expected: expected.count,
            });
        }
        if split.tensors_count != expected.tensors_count {
            return Err(ContainerError::TensorsCountDiffers {
                position,
                found: split.tensors_count,
                expected: expected.tensors_count,
            });
        }
        // In range: a parsed split has a number below its count.
        if let Some(first) = position_of[usize::from(split.no)].replace(position) {
            return Err(ContainerError::ShardDoubled {
                no: split.no,
                first,
                second: position,
            });
        }
    }
    for (no, position) in (0..expected.count).zip(&position_of) {
        if position.is_none() {
            return Err(ContainerError::ShardMissing {
                no,
                count: expected.count,
            });
        }
    }
    let moved = splits
        .iter()
        .zip(0u16..)
        .position(|(split, no)| split.no != no);
    moved.map_or(Ok(()), |position| {
        Err(ContainerError::ShardMoved {
            position,
            found: splits[position].no,
        })
    })
}

/// Proves that no later shard contradicts the first one's metadata and no tensor is in two shards.
fn refuse_mixed(first: &TensorDirectory, shards: &[TensorDirectory]) -> Result<(), ContainerError> {
    for (position, shard) in shards.iter().enumerate().skip(1) {
        let differs = shard.metadata().entries().iter().find(|entry| {
            let value = first.metadata().value(&entry.key);
            entry.key != crate::gguf::SPLIT_NO_KEY && value.is_some_and(|v| *v != entry.value)
        });
        if let Some(entry) = differs {
            return Err(ContainerError::MetadataDiffers {
                position,
                key: entry.key.clone(),
            });
        }
    }
    let mut names: Vec<_> = shards
        .iter()
        .enumerate()
        .flat_map(|(position, shard)| shard.tensors().iter().map(move |t| (&t.name, position)))
        .collect();
    names.sort_unstable();
    let doubled = names.windows(2).find(|pair| pair[0].0 == pair[1].0);
    doubled.map_or(Ok(()), |pair| {
        Err(ContainerError::TensorDoubled {
            tensor: pair[0].0.clone(),
            first: pair[0].1,
            second: pair[1].1,
        })
    })
}

fn refuse_total(first: &TensorDirectory, shards: &[TensorDirectory]) -> Result<(), ContainerError> {
    let found = shards.iter().map(|shard| shard.tensors().len()).sum();
    let expected = first.split().map_or(0, |split| split.tensors_count);
    if usize::try_from(expected) == Ok(found) {
        Ok(())
    } else {
        Err(ContainerError::TensorTotal { found, expected })
    }
}
