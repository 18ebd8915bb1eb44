//! The part of a key that is in the names of its files.

use crate::key::{ImageKey, ImageName};
use std::fmt;

/// 32 hex digits that the names of a key's files begin with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyStem(String);

impl KeyStem {
    /// The stem of a key.
    pub fn of(key: &ImageKey) -> Self {
        Self(key.prefix())
    }

    /// The stem in a name.
    pub fn of_name(name: &ImageName) -> Self {
        Self(name.prefix())
    }

    /// The hex digits.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyStem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
