//! Owner records: which head an owner serves in one geometry.
//!
//! Invariants:
//! - one valid encoding per record; every other byte string is refused by its reason;
//! - the name follows from the content, so a record under another name is refused too.
//!
//! Specified in `docs/format/head-image.md`, section "Owner records".

use crate::hex::Hex;
use crate::items::Items;
use crate::key::{ImageKey, layout_id};
use crate::owner::Owner;
use packhouse_layout::int8_tile::{GeometryError, TileGeometry, TileOrder, TileSizes};

/// Which head an owner serves in one geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The owner.
    pub owner: Owner,
    /// Layout and sizes of its tiles.
    pub geometry: TileGeometry,
    /// The key of its images.
    pub key: ImageKey,
    /// The key that it moved away from and whose files may still be there.
    pub leaving: Option<ImageKey>,
    /// Rows of the head.
    pub vocabulary: u64,
}

/// Why bytes are no owner record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordRefusal {
    /// Too short or too long for any record, or for its own owner.
    #[error("{actual} bytes, expected {expected}")]
    Length {
        /// Bytes there.
        actual: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// Another file altogether.
    #[error("begins with {actual:02x?}, expected {MAGIC:02x?}")]
    Magic {
        /// The first bytes.
        actual: [u8; 4],
    },
    /// Another version.
    #[error("format version {actual}, expected {VERSION}")]
    Version {
        /// The version there.
        actual: u32,
    },
    /// The hash at the end is not that of the bytes before it.
    #[error("hash of the bytes {actual}, recorded {expected}")]
    Hash {
        /// Hash of the bytes there.
        actual: String,
        /// Hash recorded.
        expected: String,
    },
    /// A field that must be zero is not.
    #[error("reserved field is {actual:#x}, expected 0")]
    Reserved {
        /// Its value.
        actual: u32,
    },
    /// No layout has this id.
    #[error("layout {actual:?} is not known")]
    Layout {
        /// The text there.
        actual: String,
    },
    /// The sizes make no tile.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The tile count does not follow from vocabulary and geometry.
    #[error("{actual} tiles, expected {expected} for {vocabulary} rows")]
    Tiles {
        /// Tiles recorded.
        actual: u64,
        /// Tiles of the geometry.
        expected: u64,
        /// Rows of the head.
        vocabulary: u64,
    },
    /// A key is said to be left for itself.
    #[error("key {key} is left for itself")]
    Leaving {
        /// The key.
        key: ImageKey,
    },
    /// The owner is no text.
    #[error("owner is not UTF-8 from byte {at}")]
    Owner {
        /// The first bad byte.
        at: u64,
    },
    /// The record is another one's by its content.
    #[error("is the record {expected} by its content")]
    Name {
        /// The name that follows from the content.
        expected: String,
    },
}

impl OwnerRecord {
    /// The record's file name below `v1/owners`.
    pub fn name(&self) -> String {
        record_name(&self.owner, &self.geometry)
    }

    /// Tiles of the head.
    pub fn tile_count(&self) -> u64 {
        self.geometry.tile_count(self.vocabulary)
    }

    /// The record's bytes: 192 and the owner's.
    pub fn encode(&self) -> Vec<u8> {
        let owner = self.owner.text().as_bytes();
        let mut bytes = Vec::with_capacity(RECORD_BYTES + owner.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((owner.len() as u64).to_le_bytes()[..4].iter());
        bytes.extend([0; 4]);
        let mut layout = [0; LAYOUT_BYTES];
        let id = layout_id(self.geometry.order()).as_bytes();
        layout[..id.len()].copy_from_slice(id);
        bytes.extend(layout);
        let TileSizes { kd, nd, kpad, t } = self.geometry.sizes();
        for size in [kd, nd, kpad, t, self.vocabulary, self.tile_count()] {
            bytes.extend(size.to_le_bytes());
        }
        bytes.extend(self.key.bytes());
        bytes.extend(self.leaving.as_ref().map_or([0; 32], |key| *key.bytes()));
        bytes.extend(owner);
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }

    /// Reads a record's bytes.
    ///
    /// # Errors
    /// The first thing that is wrong with them: length, magic, version and hash before any field.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordRefusal> {
        let length = bytes.len() as u64;
        let refuse_length = |expected: usize| RecordRefusal::Length {
            actual: length,
            expected: expected as u64,
        };
        if bytes.len() <= RECORD_BYTES {
            return Err(refuse_length(RECORD_BYTES + 1));
        }
        let mut fields = Fields(bytes);
        let magic = fields.take::<4>();
        if magic != MAGIC {
            return Err(RecordRefusal::Magic { actual: magic });
        }
        let version = u32::from_le_bytes(fields.take());
        if version != VERSION {
            return Err(RecordRefusal::Version { actual: version });
        }
        let (content, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
        let actual = blake3::hash(content);
        if actual.as_bytes() != hash {
            return Err(RecordRefusal::Hash {
                actual: Hex(actual.as_bytes()).to_string(),
                expected: Hex(hash).to_string(),
            });
        }
        let owner_bytes = u32::from_le_bytes(fields.take()) as usize;
        let expected = RECORD_BYTES.saturating_add(owner_bytes);
        if bytes.len() != expected {
            return Err(refuse_length(expected));
        }
        let reserved = u32::from_le_bytes(fields.take());
        if reserved != 0 {
            return Err(RecordRefusal::Reserved { actual: reserved });
        }
        Self::of_fields(fields, owner_bytes)
    }

    fn of_fields(mut fields: Fields<'_>, owner_bytes: usize) -> Result<Self, RecordRefusal> {
        let order = order_of(&fields.take())?;
        let [kd, nd, kpad, t, vocabulary, tiles] = std::array::from_fn(|_| fields.integer());
        let geometry = TileGeometry::new(order, TileSizes { kd, nd, kpad, t })?;
        let expected = geometry.tile_count(vocabulary);
        if tiles != expected {
            return Err(RecordRefusal::Tiles {
                actual: tiles,
                expected,
                vocabulary,
            });
        }
        let key = ImageKey::from_bytes(fields.take());
        let leaving = Some(fields.take())
            .filter(|bytes| *bytes != [0; 32])
            .map(ImageKey::from_bytes);
        if leaving == Some(key) {
            return Err(RecordRefusal::Leaving { key });
        }
        let text = &fields.0[..owner_bytes];
        let text = std::str::from_utf8(text).map_err(|error| RecordRefusal::Owner {
            at: error.valid_up_to() as u64,
        })?;
        let owner = Owner::new(text).map_err(|error| RecordRefusal::Length {
            actual: error.bytes,
            expected: crate::owner::OWNER_BYTES_MAX as u64,
        })?;
        Ok(Self {
            owner,
            geometry,
            key,
            leaving,
            vocabulary,
        })
    }
}

/// The name of an owner's record for one geometry.
pub(crate) fn record_name(owner: &Owner, geometry: &TileGeometry) -> String {
    let mut items = Items::new("packhouse/owner-record/1");
    items
        .bytes(owner.id().bytes())
        .bytes(layout_id(geometry.order()).as_bytes());
    let TileSizes { kd, nd, kpad, t } = geometry.sizes();
    for size in [kd, nd, kpad, t] {
        items.integer(size);
    }
    format!("{}{RECORD_SUFFIX}", Hex(&items.finish()[..NAME_BYTES]))
}

/// Whether a name could be a record's.
pub(crate) fn is_record_name(name: &str) -> bool {
    let digits = name.strip_suffix(RECORD_SUFFIX);
    digits.is_some_and(|digits| crate::hex::parse(digits, &mut [0; NAME_BYTES]).is_some())
}

/// Bytes of a record without its owner's.
pub const RECORD_BYTES: usize = 192;

/// Most bytes of a record.
pub(crate) const RECORD_BYTES_MAX: u64 = (RECORD_BYTES + crate::owner::OWNER_BYTES_MAX) as u64;

const MAGIC: [u8; 4] = *b"PHOW";
const VERSION: u32 = 1;
const LAYOUT_BYTES: usize = 32;
const HASH_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
const RECORD_SUFFIX: &str = ".own";

const _: () = assert!(RECORD_BYTES == 4 * 4 + LAYOUT_BYTES + 6 * 8 + 2 * 32 + HASH_BYTES);

/// The rest of a record whose length was proven.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .expect("because the record's length was compared");
        self.0 = rest;
        *field
    }

    fn integer(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

fn order_of(field: &[u8; LAYOUT_BYTES]) -> Result<TileOrder, RecordRefusal> {
    let orders = [TileOrder::RowMajor, TileOrder::Blocked];
    let known = orders.into_iter().find(|order| {
        let id = layout_id(*order).as_bytes();
        field.starts_with(id) && field[id.len()..].iter().all(|byte| *byte == 0)
    });
    known.ok_or_else(|| RecordRefusal::Layout {
        actual: String::from_utf8_lossy(field).into_owned(),
    })
}
