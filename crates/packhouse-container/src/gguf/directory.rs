//! The tensor directory of one file: what a parse proved.

use super::value::{Metadata, find_by};
use packhouse_base::digest::Digest;
use packhouse_base::encode::Sequence;
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::canonical_dims;

/// The directory of one GGUF file. Only a parse makes one, so all its claims hold:
/// names are unique, tensors follow each other in file order with nothing but padding between, and
/// every byte range lies inside the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDirectory {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<Tensor>,
    pub(super) by_name: Vec<u32>,
    pub(super) data_offset: u64,
    pub(super) file_bytes: u64,
    pub(super) split: Option<Split>,
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name: UTF-8 without NUL, 1 to 63 bytes.
    pub name: String,
    /// Element type.
    pub ggml_type: GgmlType,
    /// One to four dimensions as stored, ne0 first; a file that stores none means one element:
    /// `[1]`.
    pub dims: Vec<u64>,
    /// Where its bytes begin, from the start of the file.
    pub offset: u64,
    /// How many bytes it has; 0 when a dimension is 0.
    pub bytes: u64,
}

/// What a shard says of the model that it is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// This shard's number, from 0.
    pub no: u16,
    /// How many shards there are, at least 1.
    pub count: u16,
    /// How many tensors all shards have together.
    pub tensors_count: u32,
}

impl TensorDirectory {
    /// The domain tag of `digest`.
    pub const DIGEST_DOMAIN: &'static str = "packhouse/tensor-directory/1";

    /// The GGUF version: 2 or 3.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The alignment of tensors, a power of two.
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The metadata.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in file order, which is also the order of their bytes.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Finds a tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        find_by(&self.tensors, &self.by_name, |tensor| &tensor.name, name)
    }

    /// Where tensor bytes begin: the end of the directory, aligned. It is past the end of a file
    /// that has no tensors and no padding.
    pub const fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Length of the file.
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The shard's place in a split model; `None` for a model in one file.
    pub const fn split(&self) -> Option<Split> {
        self.split
    }

    /// SHA-256 of {`packhouse/tensor-directory/1`, list of (name, type id, list of canonical dims,
    /// absolute offset, bytes) in file order} in canonical encoding. Metadata takes no part.
    pub fn digest(&self) -> Digest {
        let mut sequence = Sequence::new(Self::DIGEST_DOMAIN);
        sequence.list(&self.tensors, |s, tensor| {
            s.text(&tensor.name)
                .integer(u64::from(tensor.ggml_type.id()));
            s.list(&canonical_dims(&tensor.dims), |s, dim| {
                s.integer(*dim);
            });
            s.integer(tensor.offset).integer(tensor.bytes);
        });
        sequence.finish()
    }
}
