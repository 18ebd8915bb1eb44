//! Names of fleets and workers: they become names of folders.

use std::fmt;
use thiserror::Error;

/// The name of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetName(String);

/// The name of a worker in its fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerName(String);

impl FleetName {
    /// Parses a name. Errors say what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        refuse_other(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl WorkerName {
    /// Parses a name. Errors say what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        refuse_other(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        target.write_str(&self.0)
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        target.write_str(&self.0)
    }
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[error("{text:?} is no name: 1 to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first")]
pub struct NameError {
    /// What was given.
    pub text: String,
}

/// Errors unless a text is 1 to 64 of the letters of names, the first a letter or digit: so it is
/// a safe name of a folder, never hidden, never `.` or `..`.
pub(super) fn refuse_other(text: &str) -> Result<(), NameError> {
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_next = |byte: &u8| is_first(byte) || b"._-".contains(byte);
    let bytes = text.as_bytes();
    let is_name = bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(is_first)
        && bytes.iter().all(is_next);
    if is_name {
        Ok(())
    } else {
        Err(NameError {
            text: text.to_owned(),
        })
    }
}

const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_names_of_folders() {
        let longest = "a".repeat(64);
        for good in ["a", "0", "w0", "home-2.x_y", longest.as_str()] {
            assert_eq!(FleetName::parse(good).map(|name| name.0), Ok(good.into()));
            assert_eq!(WorkerName::parse(good).map(|name| name.0), Ok(good.into()));
        }
        let long = "a".repeat(65);
        for wrong in [
            "", ".", "..", ".a", "-a", "_a", "A", "a/b", "a b", "a\0", "\u{e4}", &long,
        ] {
            let said = WorkerName::parse(wrong).expect_err("because it is no name");
            assert_eq!(said.text, wrong);
            assert!(FleetName::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
