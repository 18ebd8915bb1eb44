//! How copies of models are named: by what their files are.
//!
//! Invariants:
//! - the key of one file is the file's SHA-256; the key of several is made of all of theirs, in the
//!   order of shards;
//! - no path and no file name takes part: a renamed model has the same copy.

use packhouse_base::digest::{Digest, DigestError};
use packhouse_base::encode::Sequence;

/// Identity of a model's content, whatever its files are called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey(pub Digest);

impl ModelKey {
    /// The key of files with these digests, shards in order.
    pub fn of(files: &[Digest]) -> Self {
        match files {
            [only] => Self(*only),
            several => {
                let mut sequence = Sequence::new(KEY_TAG);
                sequence.list(several, |sequence, digest| {
                    sequence.digest(digest);
                });
                Self(sequence.finish())
            }
        }
    }

    /// Parses 64 lower-case hex digits. Errors on any other text.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        Digest::parse(text).map(Self)
    }
}

impl std::fmt::Display for ModelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModelKey({})", self.0)
    }
}

/// A published copy: `<model key>.<generation>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryName {
    pub(crate) key: ModelKey,
    /// From 1; a newer copy of the same model has a higher one.
    pub(crate) generation: u64,
}

impl EntryName {
    /// Reads a folder's name; `None` for any other spelling.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (key, generation) = name.split_once('.')?;
        let parsed = Self {
            key: ModelKey::parse(key).ok()?,
            generation: generation.parse().ok()?,
        };
        (parsed.generation > 0 && parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for EntryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.key, self.generation)
    }
}

const KEY_TAG: &str = "packhouse/model/1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_named_by_its_digest_and_several_by_all_in_order() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(ModelKey::of(&[a]), ModelKey(a));
        let both = ModelKey::of(&[a, b]);
        assert_eq!(
            both.to_string(),
            "ed885d86d85b4830181c1cb5e8be43ce36f15cfff69631b07a207d1cc986e79d"
        );
        assert_ne!(both, ModelKey::of(&[b, a]));
        assert_ne!(both, ModelKey::of(&[a, b, b]));
    }

    #[test]
    fn a_copy_has_one_name() {
        let key = ModelKey(Digest::of(b"model"));
        let name = EntryName {
            key,
            generation: 12,
        };
        assert_eq!(EntryName::parse(&name.to_string()), Some(name));
        for wrong in [
            format!("{key}"),
            format!("{key}."),
            format!("{key}.0"),
            format!("{key}.01"),
            format!("{key}.+1"),
            format!("{key}.1.2"),
            format!("{}.1", key.to_string().to_uppercase()),
            "../x.1".to_owned(),
        ] {
            assert_eq!(EntryName::parse(&wrong), None, "{wrong}");
        }
    }
}
