//! The head that an engine holds: what its tiles are cut from, and the digest that names it.
//!
//! Invariants:
//! - the digest covers every tensor that feeds a column of the head, whole, and the scalars that
//!   say how they are read;
//! - no path, date or version takes part.

use crate::hex::hash_type;
use crate::items::Items;
use crate::tree;
use std::fmt;
use std::num::NonZeroUsize;

/// An lm-head as an engine reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Rows of the stored tensor, which are columns of the head.
    pub vocabulary: u64,
    /// How many f32 values the engine's reader delivers per column: at most the packed depth.
    pub width: u64,
    /// Whether the head is the token embedding.
    pub tied: bool,
    /// The stored type's name.
    pub dtype: Dtype,
    /// What the head's content is. While images are off it is not used and may be
    /// `HeadDigest::NONE`.
    pub digest: HeadDigest,
}

/// A stored type's name: 1 to 16 printable ASCII characters without blanks, 0x21 to 0x7e.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dtype([u8; DTYPE_BYTES]);

/// Why a text is no type's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dtype is {text:?}, expected 1 to {DTYPE_BYTES} printable ASCII characters without blanks")]
pub struct DtypeError {
    /// The text, cut to 80 characters.
    pub text: String,
}

hash_type!(
    /// What a head's content is: BLAKE3 over its scalars and every tensor that feeds a column.
    HeadDigest
);

impl HeadDigest {
    /// Of no head: what a caller gives whose images are off. A serve with images refuses it.
    pub const NONE: Self = Self([0; 32]);

    /// Hashes a head on up to `threads` threads. `tensors` is all that feeds a column, in an order
    /// that stays the same: the matrix as stored, scales that lie apart from it, an adapter that is
    /// merged into it, and last the name of the code that makes values of them, as `GGML_VALUES`.
    pub fn of(
        vocabulary: u64,
        width: u64,
        tied: bool,
        dtype: &Dtype,
        tensors: &[&[u8]],
        threads: NonZeroUsize,
    ) -> Self {
        let mut items = Items::new("packhouse/head-digest/1");
        items
            .integer(vocabulary)
            .integer(width)
            .integer(u64::from(tied))
            .bytes(dtype.text().as_bytes())
            .integer(tensors.len() as u64);
        for tensor in tensors {
            items.integer(tensor.len() as u64);
            items.bytes(&tree::hash_bytes(tensor, threads));
        }
        Self(items.finish())
    }
}

impl Dtype {
    /// Takes a type's name.
    ///
    /// # Errors
    /// When it is empty, longer than 16 bytes, or not printable ASCII without blanks.
    pub fn new(text: &str) -> Result<Self, DtypeError> {
        let mut bytes = [0; DTYPE_BYTES];
        let fits = (1..=DTYPE_BYTES).contains(&text.len());
        if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let text = text.chars().take(80).collect();
            return Err(DtypeError { text });
        }
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes))
    }

    /// Reads a name that zeros follow.
    pub(crate) fn from_padded(bytes: [u8; DTYPE_BYTES]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = std::str::from_utf8(&bytes[..end.unwrap_or(DTYPE_BYTES)]).ok()?;
        let dtype = Self::new(text).ok()?;
        (dtype.0 == bytes).then_some(dtype)
    }

    /// The name, with zeros up to 16 bytes.
    pub(crate) const fn padded(&self) -> &[u8; DTYPE_BYTES] {
        &self.0
    }

    /// The name.
    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0);
        std::str::from_utf8(&self.0[..end.unwrap_or(DTYPE_BYTES)])
            .expect("because a type's name is ASCII")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dtype({})", self.text())
    }
}

/// Names the reading of ggml's types by `packhouse_layout::dequant`, which is ggml's own, bit for
/// bit. Whoever reads a head so gives this as the last of the tensors to `HeadDigest::of`. Another
/// number stands in it as soon as any value is another.
pub const GGML_VALUES: &[u8] = b"ggml-values/1";

/// Bytes of a type's name in a header.
pub(crate) const DTYPE_BYTES: usize = 16;
