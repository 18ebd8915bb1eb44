//! The canonical encoding whose BLAKE3 is an id: each item is a u64 LE length and its bytes, the
//! domain tag is the first item, an integer is an 8-byte LE item, a hash a 32-byte item.
//!
//! The same items as in `docs/format/keys.md`, under another hash.

/// A sequence under construction; it hashes what is added and keeps no bytes.
pub(crate) struct Items(blake3::Hasher);

impl Items {
    /// Starts a sequence with its domain tag.
    pub(crate) fn new(domain_tag: &str) -> Self {
        let mut items = Self(blake3::Hasher::new());
        items.bytes(domain_tag.as_bytes());
        items
    }

    /// Adds raw bytes as one item.
    pub(crate) fn bytes(&mut self, item: &[u8]) -> &mut Self {
        self.0.update(&(item.len() as u64).to_le_bytes());
        self.0.update(item);
        self
    }

    /// Adds an integer.
    pub(crate) fn integer(&mut self, item: u64) -> &mut Self {
        self.bytes(&item.to_le_bytes())
    }

    /// Ends the sequence.
    pub(crate) fn finish(&self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
