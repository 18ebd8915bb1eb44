//! Who images belong to: a text that an engine keeps from one start to the next, as the path of the
//! model it serves.
//!
//! Never: part of an image's identity. Two owners of one head share its images.

use crate::hex::hash_type;
use crate::items::Items;
use std::fmt;

/// An owner's text: 1 to 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

/// Why a text is no owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("owner has {bytes} bytes, expected 1 to {OWNER_BYTES_MAX}")]
pub struct OwnerError {
    /// The text's length.
    pub bytes: u64,
}

hash_type!(
    /// An owner in headers and in the names of its records: BLAKE3 of its text.
    OwnerId
);

impl Owner {
    /// Takes an owner's text.
    ///
    /// # Errors
    /// When it is empty or longer than 1024 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, OwnerError> {
        let text = text.into();
        if text.is_empty() || text.len() > OWNER_BYTES_MAX {
            let bytes = text.len() as u64;
            return Err(OwnerError { bytes });
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The id.
    pub fn id(&self) -> OwnerId {
        let mut items = Items::new("packhouse/owner/1");
        items.bytes(self.0.as_bytes());
        OwnerId(items.finish())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        packhouse_base::shown::Shown(&self.0).fmt(f)
    }
}

/// Longest text of an owner.
pub const OWNER_BYTES_MAX: usize = 1024;
