//! What an image is of, as one hash, and the name of its file.
//!
//! Invariants:
//! - each field of an identity changes the key;
//! - a tile's index is outside the key: in the file's name, and in its header.

use crate::head::HeadDigest;
use crate::hex::{self, Hex, hash_type};
use crate::items::Items;
use packhouse_base::digest::Fingerprint;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use std::fmt;

hash_type!(
    /// Identity of all images of one head in one geometry by one packer.
    ImageKey
);

/// Name of an image's file: the key's first half, and the tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    key: [u8; NAME_KEY_BYTES],
    tile: u32,
}

impl ImageKey {
    /// Hashes an identity.
    pub fn new(geometry: &TileGeometry, head: &HeadDigest, fingerprint: &Fingerprint) -> Self {
        Self::of_version(FORMAT_VERSION, geometry, head, fingerprint)
    }

    fn of_version(
        version: u32,
        geometry: &TileGeometry,
        head: &HeadDigest,
        fingerprint: &Fingerprint,
    ) -> Self {
        let mut items = Items::new("packhouse/image-key/1");
        items
            .integer(u64::from(version))
            .bytes(layout_id(geometry.order()).as_bytes())
            .integer(geometry.kd())
            .integer(geometry.nd())
            .integer(geometry.kpad())
            .integer(geometry.t())
            .bytes(head.bytes())
            .bytes(fingerprint.as_bytes());
        Self(items.finish())
    }

    /// The part of a file's name that stands for this key: 32 hex digits.
    pub fn prefix(&self) -> String {
        Hex(&self.0[..NAME_KEY_BYTES]).to_string()
    }
}

impl ImageName {
    /// Names a tile of a key; `None` for a tile beyond 99,999.
    pub fn new(key: &ImageKey, tile: u64) -> Option<Self> {
        let tile = u32::try_from(tile).ok().filter(|tile| *tile < TILES_MAX)?;
        let mut half = [0; NAME_KEY_BYTES];
        half.copy_from_slice(&key.0[..NAME_KEY_BYTES]);
        Some(Self { key: half, tile })
    }

    /// Reads a file's name; no other spelling is one.
    pub fn parse(name: &str) -> Option<Self> {
        let (digits, tile) = name.strip_suffix(".phti")?.split_once("-t")?;
        let mut key = [0; NAME_KEY_BYTES];
        hex::parse(digits, &mut key)?;
        let plain = tile.len() == 5 && tile.bytes().all(|digit| digit.is_ascii_digit());
        let tile = plain.then(|| tile.parse().ok())??;
        Some(Self { key, tile })
    }

    /// Whether this is a name of that key's files.
    pub fn is_of(&self, key: &ImageKey) -> bool {
        key.0.starts_with(&self.key)
    }

    /// The key's half in this name: 32 hex digits.
    pub fn prefix(&self) -> String {
        Hex(&self.key).to_string()
    }

    /// The tile.
    pub const fn tile(&self) -> u64 {
        self.tile as u64
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-t{:05}.phti", Hex(&self.key), self.tile)
    }
}

impl fmt::Debug for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageName({self})")
    }
}

/// The layout's id, in keys and headers.
pub(crate) const fn layout_id(order: TileOrder) -> &'static str {
    order.layout().id()
}

/// Version of the format, in keys and headers.
pub const FORMAT_VERSION: u32 = 1;

/// Most tiles of a head: names have five digits for them.
pub const TILES_MAX: u32 = 100_000;

const NAME_KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;
    use packhouse_layout::int8_tile::TileSizes;

    #[test]
    fn keys_that_differ_only_in_version_are_of_other_files() {
        let sizes = TileSizes {
            kd: 8,
            nd: 8,
            kpad: 8,
            t: 8,
        };
        let geometry = TileGeometry::new(TileOrder::RowMajor, sizes);
        let geometry = geometry.expect("because the sizes fit");
        let head = HeadDigest::from_bytes([1; 32]);
        let fingerprint = Fingerprint(Digest::from_bytes([2; 32]));
        let key = |version| ImageKey::of_version(version, &geometry, &head, &fingerprint);
        assert_eq!(
            key(FORMAT_VERSION),
            ImageKey::new(&geometry, &head, &fingerprint)
        );
        assert_ne!(
            key(FORMAT_VERSION).prefix(),
            key(FORMAT_VERSION + 1).prefix()
        );
    }
}
