//! What a registered pack is bound to, and the key that all of it makes. Pure values.
//!
//! Invariants:
//! - every part is an item of its own with its length, so that no two bindings share a key by
//!   moving a boundary;
//! - a text is shown as it is: nothing in it is obeyed by a terminal, and none is empty.

use packhouse_base::Blame;
use packhouse_base::digest::{Digest, DigestError};
use packhouse_base::encode::Sequence;
use packhouse_base::shown::is_hidden;

/// The domain tag of registry keys.
pub const REGISTRY_TAG: &str = "packhouse/registry/1";

/// Identity of a registered pack: what it is and what it is bound to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryKey(pub Digest);

/// What a pack is bound to, by the word of whoever registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    model: Digest,
    packer_revision: String,
    layout: String,
    kernel_abi: String,
}

/// Why a text can't be part of a binding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// Nothing, or only blanks.
    #[error("{field} is empty")]
    Empty {
        /// Which text.
        field: &'static str,
    },
    /// Longer than a table has room for.
    #[error("{field} has {actual} bytes, at most {TEXT_BYTES_MAX} are kept")]
    TooLong {
        /// Which text.
        field: &'static str,
        /// Its length.
        actual: usize,
    },
    /// A character that a terminal would obey.
    #[error("{field} has the character {} at byte {at}", character.escape_unicode())]
    Character {
        /// Which text.
        field: &'static str,
        /// Where.
        at: usize,
        /// The character.
        character: char,
    },
}

impl RegistryKey {
    /// Parses 64 lower-case hex digits. Errors on any other text.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        Digest::parse(text).map(Self)
    }
}

impl std::fmt::Display for RegistryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::fmt::Debug for RegistryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegistryKey({})", self.0)
    }
}

impl Binding {
    /// Binds to a model by its key, a packer's revision, a layout and the ABI of the kernels that
    /// read it. Errors on a text that is empty, too long, or holds what a terminal obeys.
    pub fn new(
        model: Digest,
        packer_revision: String,
        layout: String,
        kernel_abi: String,
    ) -> Result<Self, BindingError> {
        judge("packer revision", &packer_revision)?;
        judge("layout", &layout)?;
        judge("kernel ABI", &kernel_abi)?;
        Ok(Self {
            model,
            packer_revision,
            layout,
            kernel_abi,
        })
    }

    /// The model: the SHA-256 of its file, or the key of its shards.
    pub fn model(&self) -> Digest {
        self.model
    }

    /// The revision of the packer that made it.
    pub fn packer_revision(&self) -> &str {
        &self.packer_revision
    }

    /// Its layout.
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// The ABI of the kernels that read it.
    pub fn kernel_abi(&self) -> &str {
        &self.kernel_abi
    }

    /// The key of an artifact under this binding.
    pub fn key(&self, artifact: &Digest) -> RegistryKey {
        let mut sequence = Sequence::new(REGISTRY_TAG);
        sequence.digest(&self.model);
        sequence.text(&self.packer_revision);
        sequence.text(&self.layout);
        sequence.text(&self.kernel_abi);
        sequence.digest(artifact);
        RegistryKey(sequence.finish())
    }
}

impl BindingError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty { .. } | Self::TooLong { .. } | Self::Character { .. } => Blame::Caller,
        }
    }
}

fn judge(field: &'static str, text: &str) -> Result<(), BindingError> {
    if text.trim().is_empty() {
        return Err(BindingError::Empty { field });
    }
    if text.len() > TEXT_BYTES_MAX {
        let actual = text.len();
        return Err(BindingError::TooLong { field, actual });
    }
    match text.char_indices().find(|(_, letter)| is_hidden(*letter)) {
        None => Ok(()),
        Some((at, character)) => Err(BindingError::Character {
            field,
            at,
            character,
        }),
    }
}

const TEXT_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(revision: &str, layout: &str, abi: &str, model: &[u8], artifact: &[u8]) -> RegistryKey {
        let texts = [revision, layout, abi].map(str::to_owned);
        let [revision, layout, abi] = texts;
        let binding = Binding::new(Digest::of(model), revision, layout, abi);
        let binding = binding.expect("because these are plain texts");
        binding.key(&Digest::of(artifact))
    }

    #[test]
    fn every_part_and_every_boundary_between_parts_makes_another_key() {
        let keys = [
            key("r1", "l", "a", b"m", b"x"),
            key("r2", "l", "a", b"m", b"x"),
            key("r1", "l1", "a", b"m", b"x"),
            key("r1", "l", "b", b"m", b"x"),
            key("r1", "l", "a", b"n", b"x"),
            key("r1", "l", "a", b"m", b"y"),
            key("r1l", "a", "a", b"m", b"x"),
            key("r", "1l", "a", b"m", b"x"),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(one), "key {index}");
        }
        // What the format's page says, byte by byte.
        let mut bytes = Vec::new();
        let digests = [Digest::of(b"m"), Digest::of(b"x")];
        let items: [&[u8]; 6] = [
            b"packhouse/registry/1",
            digests[0].as_bytes(),
            b"r1",
            b"l",
            b"a",
            digests[1].as_bytes(),
        ];
        for item in items {
            bytes.extend_from_slice(&(item.len() as u64).to_le_bytes());
            bytes.extend_from_slice(item);
        }
        assert_eq!(keys[0], RegistryKey(Digest::of(&bytes)));
    }

    #[test]
    fn texts_that_say_nothing_or_too_much_are_refused() {
        let bound = |text: &str| {
            let other = || "x".to_owned();
            let bound = Binding::new(Digest::of(b""), other(), other(), text.to_owned());
            bound.map_err(|error| (error.to_string(), error.blame()))
        };
        let long = "y".repeat(TEXT_BYTES_MAX);
        assert!(bound(&long).is_ok());
        for (text, said) in [
            ("", "kernel ABI is empty"),
            (" \t", "kernel ABI is empty"),
            (
                &format!("{long}y"),
                "kernel ABI has 201 bytes, at most 200 are kept",
            ),
            ("a\nb", "kernel ABI has the character \\u{a} at byte 1"),
            (
                "a\u{202e}",
                "kernel ABI has the character \\u{202e} at byte 1",
            ),
        ] {
            assert_eq!(bound(text), Err((said.to_owned(), Blame::Caller)));
        }
    }
}
