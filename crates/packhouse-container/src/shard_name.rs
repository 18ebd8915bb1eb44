//! The names of a split model's files: `<prefix>-00001-of-00003.gguf`. Pure; nothing is opened.
//!
//! A name only says where shards may be. What they are is proved by `Container::new`; that a path
//! has no symlink or foreign owner in it is for whoever opens it.

use crate::gguf::limits::SHARDS_MAX;
use packhouse_base::Blame;
use std::path::{Path, PathBuf};

/// A parsed shard file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    prefix: String,
    no: u32,
    count: u32,
}

/// Why a path names no shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardNameError {
    /// The path does not end in a file name: it is empty, or ends in `/`, `.` or `..`.
    #[error("path {path:?} does not end in a file name")]
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// The file name is not UTF-8, or has a separator or a control character in it.
    #[error("file name {name:?} has a separator, a control character or no UTF-8")]
    Characters {
        /// The name, as far as it can be shown.
        name: String,
    },
    /// The file name does not follow the rule.
    #[error("file name {name:?} is not <prefix>-00001-of-00003.gguf")]
    Form {
        /// The name.
        name: String,
    },
    /// The number is 0 or above the count, or the count is 0 or above the limit.
    #[error("file name {name:?} is shard {number} of {count}; the limit is {limit}")]
    Number {
        /// The name.
        name: String,
        /// The number in it, from 1.
        number: u32,
        /// The count in it.
        count: u32,
        /// `limits::SHARDS_MAX`.
        limit: u32,
    },
}

impl ShardNameError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::NoFileName { .. }
            | Self::Characters { .. }
            | Self::Form { .. }
            | Self::Number { .. } => Blame::Source,
        }
    }
}

impl ShardName {
    /// Parses a bare file name. Errors when it has separators or control characters, does not
    /// follow the rule, or has an impossible number.
    pub fn parse(name: &str) -> Result<Self, ShardNameError> {
        if name.contains(['/', '\\']) || name.chars().any(char::is_control) {
            return Err(ShardNameError::Characters {
                name: name.to_owned(),
            });
        }
        let form = || ShardNameError::Form {
            name: name.to_owned(),
        };
        let stem = name.strip_suffix(SUFFIX).ok_or_else(form)?;
        let (rest, count) = stem.rsplit_once(BETWEEN).ok_or_else(form)?;
        let (prefix, number) = rest.rsplit_once('-').ok_or_else(form)?;
        let count = five_digits(count).ok_or_else(form)?;
        let number = five_digits(number).ok_or_else(form)?;
        if prefix.is_empty() {
            return Err(form());
        }
        if number == 0 || number > count || count > SHARDS_MAX {
            return Err(ShardNameError::Number {
                name: name.to_owned(),
                number,
                count,
                limit: SHARDS_MAX,
            });
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            no: number - 1,
            count,
        })
    }

    /// The shard's number, from 0 as in `split.no` (the name counts from 1).
    pub const fn no(&self) -> u32 {
        self.no
    }

    /// The number of shards.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The file names of all shards of the same model, in order.
    pub fn siblings(&self) -> impl Iterator<Item = String> {
        let (prefix, count) = (&self.prefix, self.count);
        (1..=count).map(move |number| format!("{prefix}-{number:05}{BETWEEN}{count:05}{SUFFIX}"))
    }
}

/// Gives the paths of all shards, in order, from the path of any one: same folder, same prefix.
/// Errors when the path does not end in a shard's file name.
pub fn sibling_paths(path: &Path) -> Result<Vec<PathBuf>, ShardNameError> {
    let file_name = path.file_name().filter(|name| {
        // `file_name` passes over a final `/` and `/.`, which make the path one of a folder.
        let (whole, end) = (path.as_os_str(), name);
        whole.as_encoded_bytes().ends_with(end.as_encoded_bytes())
    });
    let file_name = file_name.ok_or_else(|| ShardNameError::NoFileName {
        path: path.to_owned(),
    })?;
    let text = file_name
        .to_str()
        .ok_or_else(|| ShardNameError::Characters {
            name: file_name.to_string_lossy().into_owned(),
        })?;
    let name = ShardName::parse(text)?;
    Ok(name
        .siblings()
        .map(|name| path.with_file_name(name))
        .collect())
}

const SUFFIX: &str = ".gguf";
const BETWEEN: &str = "-of-";

fn five_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_gives_the_same_siblings_in_order() {
        let expected = ["d/m-00001-of-00002.gguf", "d/m-00002-of-00002.gguf"].map(PathBuf::from);
        for path in &expected {
            assert_eq!(sibling_paths(path), Ok(expected.to_vec()));
        }
        let bare = sibling_paths(Path::new("a-of-b-00002-of-00002.gguf"));
        let names = ["a-of-b-00001-of-00002.gguf", "a-of-b-00002-of-00002.gguf"];
        assert_eq!(bare, Ok(names.map(PathBuf::from).to_vec()));
    }

    #[test]
    fn names_that_break_the_rule_are_refused() {
        for name in [
            "m.gguf",
            "m-00001-of-00003.GGUF",
            "m-0001-of-00003.gguf",
            "m-00001-of-3.gguf",
            "m-000001-of-00003.gguf",
            "m-+0001-of-00003.gguf",
            "m-00001of-00003.gguf",
            "-00001-of-00003.gguf",
            "00001-of-00003.gguf",
            "m-00001-of-00003.gguf.part",
            "",
        ] {
            let form = Err(ShardNameError::Form { name: name.into() });
            assert_eq!(ShardName::parse(name), form, "{name}");
        }
        for name in [
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00000-of-00000.gguf",
            "m-00001-of-04097.gguf",
            "m-00001-of-99999.gguf",
        ] {
            let parsed = ShardName::parse(name);
            assert!(
                matches!(parsed, Err(ShardNameError::Number { .. })),
                "{name}"
            );
        }
    }

    #[test]
    fn path_tricks_are_refused() {
        for path in [
            "",
            "/",
            "..",
            "d/..",
            "m-00001-of-00002.gguf/",
            "m-00001-of-00002.gguf/.",
        ] {
            let refused = sibling_paths(Path::new(path));
            assert!(
                matches!(refused, Err(ShardNameError::NoFileName { .. })),
                "{path}"
            );
        }
        for name in [
            "../m-00001-of-00002.gguf",
            "d\\m-00001-of-00002.gguf",
            "m\0-00001-of-00002.gguf",
            "m\n-00001-of-00002.gguf",
        ] {
            let refused = ShardName::parse(name);
            assert!(
                matches!(refused, Err(ShardNameError::Characters { .. })),
                "{name}"
            );
        }
        let raw = std::ffi::OsStr::from_bytes(b"m\xff-00001-of-00002.gguf");
        let refused = sibling_paths(Path::new(raw));
        assert!(matches!(refused, Err(ShardNameError::Characters { .. })));
    }

    use std::os::unix::ffi::OsStrExt as _;
}
