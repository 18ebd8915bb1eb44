//! The canonical encoding whose SHA-256 is a key.
//!
//! A sequence of items, each a u64 LE length and its bytes; the domain tag is the first item; text
//! is UTF-8; an integer is an 8-byte LE item; a digest is 32 raw bytes; a list is an integer item
//! with its count, then its elements. Specified in `docs/format/keys.md`.

use crate::digest::{Digest, Hasher};

/// A canonical sequence under construction; it hashes what is added and keeps no bytes.
pub struct Sequence {
    hasher: Hasher,
}

impl Sequence {
    /// Starts a sequence with its domain tag, e.g. `packhouse/pack/1`.
    pub fn new(domain_tag: &str) -> Self {
        let mut sequence = Self {
            hasher: Hasher::default(),
        };
        sequence.bytes(domain_tag.as_bytes());
        sequence
    }

    /// Adds raw bytes as one item.
    pub fn bytes(&mut self, item: &[u8]) -> &mut Self {
        let length =
            u64::try_from(item.len()).expect("because no target has a usize above 64 bits");
        self.hasher.update(&length.to_le_bytes());
        self.hasher.update(item);
        self
    }

    /// Adds UTF-8 text as one item.
    pub fn text(&mut self, item: &str) -> &mut Self {
        self.bytes(item.as_bytes())
    }

    /// Adds an integer as an 8-byte LE item.
    pub fn integer(&mut self, item: u64) -> &mut Self {
        self.bytes(&item.to_le_bytes())
    }

    /// Adds a digest as a 32-byte item.
    pub fn digest(&mut self, item: &Digest) -> &mut Self {
        self.bytes(item.as_bytes())
    }

    /// Adds a list: its count as an integer, then each element as `element` writes it.
    pub fn list<T>(&mut self, items: &[T], mut element: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.integer(u64::try_from(items.len()).expect("because no list is longer than u64"));
        for item in items {
            element(self, item);
        }
        self
    }

    /// Ends the sequence and returns its SHA-256.
    pub fn finish(self) -> Digest {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_hashed_are_the_bytes_specified() {
        let mut sequence = Sequence::new("t");
        sequence.text("ab").integer(5).list(&[7u64, 8], |s, v| {
            s.integer(*v);
        });
        let mut expected = Vec::new();
        let mut item = |bytes: &[u8]| {
            expected.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            expected.extend_from_slice(bytes);
        };
        item(b"t");
        item(b"ab");
        item(&5u64.to_le_bytes());
        item(&2u64.to_le_bytes());
        item(&7u64.to_le_bytes());
        item(&8u64.to_le_bytes());
        assert_eq!(sequence.finish(), Digest::of(&expected));
    }

    #[test]
    fn moving_a_boundary_between_items_changes_the_key() {
        let (mut one, mut other) = (Sequence::new("t"), Sequence::new("t"));
        one.text("ab").text("c");
        other.text("a").text("bc");
        assert_ne!(one.finish(), other.finish());
    }
}
