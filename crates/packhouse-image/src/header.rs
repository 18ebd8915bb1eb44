//! The first 4096 bytes of an image: its whole identity, so that a file is judged without its name.
//!
//! Invariants:
//! - one header has one encoding; every other string of bytes is refused by name;
//! - what follows from other fields (tile count, real columns, payload length) is stored too, and
//!   must be what follows;
//! - the last 32 bytes are BLAKE3 of all before.
//!
//! Specified in `docs/format/head-image.md`.

use crate::head::{DTYPE_BYTES, Dtype, Head, HeadDigest};
use crate::hex::{Hex, hash_type};
use crate::key::{FORMAT_VERSION, ImageKey, TILES_MAX, layout_id};
use crate::owner::OwnerId;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Fingerprint};
use packhouse_layout::int8_tile::{GeometryError, TileGeometry, TileOrder, TileSizes};
use std::fmt;

hash_type!(
    /// BLAKE3 of a payload's bytes.
    PayloadHash
);

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    geometry: TileGeometry,
    head: Head,
    fingerprint: Fingerprint,
    tile: u64,
    owner: OwnerId,
    payload_hash: PayloadHash,
}

/// A field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderField {
    /// The layout's id.
    Layout,
    /// Depth rows of the buffer.
    Kd,
    /// Columns of the buffer.
    Nd,
    /// Packed depth rows.
    Kpad,
    /// Columns of a full tile.
    T,
    /// This tile.
    Tile,
    /// Tiles of the head.
    TileCount,
    /// Rows of the stored tensor.
    Vocabulary,
    /// Columns of the head in this tile.
    Columns,
    /// Values that the reader delivers per column.
    Width,
    /// Whether the head is the token embedding.
    Tied,
    /// The stored type's name.
    Dtype,
    /// The head's content.
    HeadDigest,
    /// The packer's fingerprint.
    Fingerprint,
    /// Bytes of codes and scales.
    PayloadBytes,
}

/// Why a head has no tiles in a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The reader delivers more values per column than are packed, or none.
    #[error("width is {width}, expected 1 to kpad, which is {kpad}")]
    Width {
        /// Values per column.
        width: u64,
        /// Packed depth.
        kpad: u64,
    },
    /// A head without columns, or of more tiles than there are names.
    #[error(
        "vocabulary is {vocabulary}, expected 1 to {max}: at most {TILES_MAX} tiles of {t} columns"
    )]
    Vocabulary {
        /// Rows of the stored tensor.
        vocabulary: u64,
        /// The largest that there are names for.
        max: u64,
        /// Columns of a full tile.
        t: u64,
    },
}

/// Why bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not as long as a header.
    #[error("the header has {actual} bytes, expected {HEADER_BYTES}")]
    Length {
        /// Bytes there are.
        actual: u64,
    },
    /// Another kind of file.
    #[error("the magic is \"{}\", expected \"PHTI\"", .actual.escape_ascii())]
    Magic {
        /// The first four bytes.
        actual: [u8; 4],
    },
    /// Another version of the format.
    #[error("the format version is {actual}, expected {FORMAT_VERSION}")]
    Version {
        /// The version.
        actual: u32,
    },
    /// The header's bytes are not those that were written.
    #[error("the header hashes to {}, and says {}", Hex(.actual), Hex(.expected))]
    Hash {
        /// What the header says.
        expected: [u8; 32],
        /// What its bytes hash to.
        actual: [u8; 32],
    },
    /// A byte that is reserved is not zero.
    #[error("the reserved byte at {offset} is {actual}, expected 0")]
    Reserved {
        /// Its place in the header.
        offset: u64,
        /// Its value.
        actual: u8,
    },
    /// A layout that is none of ours, or not spelled as ours.
    #[error("the layout is \"{actual}\", which is not known")]
    Layout {
        /// The field, escaped.
        actual: String,
    },
    /// Sizes that make no tile.
    #[error("the geometry: {0}")]
    Geometry(GeometryError),
    /// A head that has no tiles in this geometry.
    #[error("the head: {0}")]
    Head(HeadError),
    /// A flag that is neither 0 nor 1.
    #[error("tied is {actual}, expected 0 or 1")]
    Tied {
        /// Its value.
        actual: u64,
    },
    /// A type's name that is empty, not printable, or not followed by zeros.
    #[error("the dtype is \"{}\", expected printable letters and then zeros", trimmed(.actual))]
    Dtype {
        /// The field.
        actual: [u8; DTYPE_BYTES],
    },
    /// A tile that the head has not.
    #[error("the tile is {tile}, and the head has {count}")]
    Tile {
        /// The tile.
        tile: u64,
        /// Tiles of the head.
        count: u64,
    },
    /// A field is not what follows from the others.
    #[error("{field} is {actual}, and {expected} follows from the other fields")]
    Derived {
        /// The field.
        field: HeaderField,
        /// What follows.
        expected: u64,
        /// What it says.
        actual: u64,
    },
}

/// A field in which a header is not the one that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The field.
    pub field: HeaderField,
    /// What was looked for.
    pub expected: String,
    /// What the header says.
    pub actual: String,
}

impl Header {
    /// The header of one tile.
    ///
    /// # Errors
    /// When the head has no such tile in this geometry.
    pub fn new(
        geometry: TileGeometry,
        head: Head,
        fingerprint: Fingerprint,
        tile: u64,
        owner: OwnerId,
        payload_hash: PayloadHash,
    ) -> Result<Self, HeaderError> {
        head.fits(&geometry).map_err(HeaderError::Head)?;
        let count = geometry.tile_count(head.vocabulary);
        if tile >= count {
            return Err(HeaderError::Tile { tile, count });
        }
        Ok(Self {
            geometry,
            head,
            fingerprint,
            tile,
            owner,
            payload_hash,
        })
    }

    /// The tile's sizes and order.
    pub const fn geometry(&self) -> &TileGeometry {
        &self.geometry
    }

    /// The head that the tile was cut from.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// The fingerprint of the packer that made it.
    pub const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The tile.
    pub const fn tile(&self) -> u64 {
        self.tile
    }

    /// Who wrote it; others may use it too.
    pub const fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// The hash of codes and scales.
    pub const fn payload_hash(&self) -> &PayloadHash {
        &self.payload_hash
    }

    /// Tiles of the head.
    pub const fn tile_count(&self) -> u64 {
        self.geometry.tile_count(self.head.vocabulary)
    }

    /// Columns of the head in this tile; the others of its `nd` are padding.
    pub fn column_count(&self) -> u64 {
        let columns = self.geometry.tile_columns(self.head.vocabulary, self.tile);
        columns.end - columns.start
    }

    /// Bytes of codes and scales.
    pub const fn payload_bytes(&self) -> u64 {
        self.geometry.payload_bytes()
    }

    /// Bytes of the whole file.
    pub const fn file_bytes(&self) -> u64 {
        file_bytes(&self.geometry)
    }

    /// The key that its identity has.
    pub fn key(&self) -> ImageKey {
        ImageKey::new(&self.geometry, &self.head.digest, &self.fingerprint)
    }

    /// Encodes it.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |offset: usize, field: &[u8]| {
            bytes[offset..offset + field.len()].copy_from_slice(field);
        };
        put(MAGIC, &MAGIC_BYTES);
        put(VERSION, &FORMAT_VERSION.to_le_bytes());
        put(LAYOUT, layout_id(self.geometry.order()).as_bytes());
        for (offset, value) in [
            (KD, self.geometry.kd()),
            (ND, self.geometry.nd()),
            (KPAD, self.geometry.kpad()),
            (T, self.geometry.t()),
            (TILE, self.tile),
            (TILE_COUNT, self.tile_count()),
            (VOCABULARY, self.head.vocabulary),
            (COLUMNS, self.column_count()),
            (WIDTH, self.head.width),
            (TIED, u64::from(self.head.tied)),
            (PAYLOAD_BYTES, self.payload_bytes()),
        ] {
            put(offset, &value.to_le_bytes());
        }
        put(DTYPE, self.head.dtype.padded());
        put(HEAD_DIGEST, self.head.digest.bytes());
        put(FINGERPRINT, self.fingerprint.as_bytes());
        put(OWNER, self.owner.bytes());
        put(PAYLOAD_HASH, self.payload_hash.bytes());
        let hash = blake3::hash(&bytes[..HEADER_HASH]);
        bytes[HEADER_HASH..].copy_from_slice(hash.as_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The first thing that is not as `encode` writes it.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| HeaderError::Length {
            actual: bytes.len() as u64,
        })?;
        parse_envelope(bytes)?;
        let header = Self::new(
            parse_geometry(bytes)?,
            parse_head(bytes)?,
            Fingerprint(Digest::from_bytes(field(bytes, FINGERPRINT))),
            integer(bytes, TILE),
            OwnerId::from_bytes(field(bytes, OWNER)),
            PayloadHash::from_bytes(field(bytes, PAYLOAD_HASH)),
        )?;
        for (field, offset, expected) in [
            (HeaderField::TileCount, TILE_COUNT, header.tile_count()),
            (HeaderField::Columns, COLUMNS, header.column_count()),
            (
                HeaderField::PayloadBytes,
                PAYLOAD_BYTES,
                header.payload_bytes(),
            ),
        ] {
            let actual = integer(bytes, offset);
            if actual != expected {
                return Err(HeaderError::Derived {
                    field,
                    expected,
                    actual,
                });
            }
        }
        Ok(header)
    }

    /// The first field of its identity that is not this tile's of this head by this packer. What
    /// follows from other fields is not compared again.
    pub(crate) fn difference(
        &self,
        geometry: &TileGeometry,
        head: &Head,
        fingerprint: &Fingerprint,
        tile: u64,
    ) -> Option<Difference> {
        let (asked, own) = (geometry, &self.geometry);
        let integers = [
            (HeaderField::Kd, asked.kd(), own.kd()),
            (HeaderField::Nd, asked.nd(), own.nd()),
            (HeaderField::Kpad, asked.kpad(), own.kpad()),
            (HeaderField::T, asked.t(), own.t()),
            (HeaderField::Tile, tile, self.tile),
            (
                HeaderField::Vocabulary,
                head.vocabulary,
                self.head.vocabulary,
            ),
            (HeaderField::Width, head.width, self.head.width),
        ];
        let layout = (asked.order() != own.order()).then(|| Difference {
            field: HeaderField::Layout,
            expected: layout_id(asked.order()).to_owned(),
            actual: layout_id(own.order()).to_owned(),
        });
        let integer = || integers.iter().find(|(_, asked, own)| asked != own);
        let difference = |(field, asked, own): &(HeaderField, u64, u64)| Difference {
            field: *field,
            expected: asked.to_string(),
            actual: own.to_string(),
        };
        layout
            .or_else(|| integer().map(difference))
            .or_else(|| text_difference(HeaderField::Tied, &head.tied, &self.head.tied))
            .or_else(|| text_difference(HeaderField::Dtype, &head.dtype, &self.head.dtype))
            .or_else(|| {
                let field = HeaderField::HeadDigest;
                text_difference(field, &head.digest, &self.head.digest)
            })
            .or_else(|| text_difference(HeaderField::Fingerprint, fingerprint, &self.fingerprint))
    }
}

fn text_difference<V: PartialEq + fmt::Display>(
    field: HeaderField,
    asked: &V,
    own: &V,
) -> Option<Difference> {
    (asked != own).then(|| Difference {
        field,
        expected: asked.to_string(),
        actual: own.to_string(),
    })
}

/// What says that these are a header of ours and whole.
fn parse_envelope(bytes: &[u8; HEADER_BYTES]) -> Result<(), HeaderError> {
    let actual: [u8; 4] = field(bytes, MAGIC);
    if actual != MAGIC_BYTES {
        return Err(HeaderError::Magic { actual });
    }
    let actual = u32::from_le_bytes(field(bytes, VERSION));
    if actual != FORMAT_VERSION {
        return Err(HeaderError::Version { actual });
    }
    let expected: [u8; 32] = field(bytes, HEADER_HASH);
    let actual: [u8; 32] = blake3::hash(&bytes[..HEADER_HASH]).into();
    if actual != expected {
        return Err(HeaderError::Hash { expected, actual });
    }
    let mut reserved = (RESERVED as u64..).zip(&bytes[RESERVED..HEADER_HASH]);
    match reserved.find(|(_, byte)| **byte != 0) {
        Some((offset, byte)) => Err(HeaderError::Reserved {
            offset,
            actual: *byte,
        }),
        None => Ok(()),
    }
}

fn parse_geometry(bytes: &[u8; HEADER_BYTES]) -> Result<TileGeometry, HeaderError> {
    let id: [u8; LAYOUT_BYTES] = field(bytes, LAYOUT);
    let is_id = |order: &TileOrder| {
        let text = layout_id(*order).as_bytes();
        id.starts_with(text) && id[text.len()..].iter().all(|byte| *byte == 0)
    };
    let orders = [TileOrder::RowMajor, TileOrder::Blocked];
    let order = orders
        .into_iter()
        .find(is_id)
        .ok_or_else(|| HeaderError::Layout {
            actual: trimmed(&id),
        })?;
    let sizes = TileSizes {
        kd: integer(bytes, KD),
        nd: integer(bytes, ND),
        kpad: integer(bytes, KPAD),
        t: integer(bytes, T),
    };
    TileGeometry::new(order, sizes).map_err(HeaderError::Geometry)
}

/// A field of text without the zeros at its end, for messages.
fn trimmed(field: &[u8]) -> String {
    let last = field.iter().rposition(|byte| *byte != 0);
    let end = last.map_or(0, |at| at + 1);
    field[..end].escape_ascii().to_string()
}

fn parse_head(bytes: &[u8; HEADER_BYTES]) -> Result<Head, HeaderError> {
    let tied = match integer(bytes, TIED) {
        0 => false,
        1 => true,
        actual => return Err(HeaderError::Tied { actual }),
    };
    let actual = field(bytes, DTYPE);
    Ok(Head {
        vocabulary: integer(bytes, VOCABULARY),
        width: integer(bytes, WIDTH),
        tied,
        dtype: Dtype::from_padded(actual).ok_or(HeaderError::Dtype { actual })?,
        digest: HeadDigest::from_bytes(field(bytes, HEAD_DIGEST)),
    })
}

impl Head {
    /// Judges whether a head has tiles in a geometry.
    ///
    /// # Errors
    /// The first number that is in the way.
    pub fn fits(&self, geometry: &TileGeometry) -> Result<(), HeadError> {
        let (width, kpad) = (self.width, geometry.kpad());
        if width == 0 || width > kpad {
            return Err(HeadError::Width { width, kpad });
        }
        fits_vocabulary(self.vocabulary, geometry)
    }
}

/// Judges whether a head of so many columns has tiles in a geometry.
///
/// # Errors
/// `HeadError::Vocabulary`: it has none, or more than there are names for.
pub fn fits_vocabulary(vocabulary: u64, geometry: &TileGeometry) -> Result<(), HeadError> {
    let t = geometry.t();
    let max = t * u64::from(TILES_MAX);
    if vocabulary == 0 || vocabulary > max {
        return Err(HeadError::Vocabulary { vocabulary, max, t });
    }
    Ok(())
}

impl HeadError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Width { .. } | Self::Vocabulary { .. } => Blame::Caller,
        }
    }
}

impl HeaderError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Length { .. }
            | Self::Magic { .. }
            | Self::Version { .. }
            | Self::Hash { .. }
            | Self::Reserved { .. }
            | Self::Layout { .. }
            | Self::Geometry(_)
            | Self::Head(_)
            | Self::Tied { .. }
            | Self::Dtype { .. }
            | Self::Tile { .. }
            | Self::Derived { .. } => Blame::Store,
        }
    }
}

impl HeaderField {
    /// The field's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Layout => "layout",
            Self::Kd => "kd",
            Self::Nd => "nd",
            Self::Kpad => "kpad",
            Self::T => "t",
            Self::Tile => "tile",
            Self::TileCount => "tile_count",
            Self::Vocabulary => "vocabulary",
            Self::Columns => "columns",
            Self::Width => "width",
            Self::Tied => "tied",
            Self::Dtype => "dtype",
            Self::HeadDigest => "head_digest",
            Self::Fingerprint => "fingerprint",
            Self::PayloadBytes => "payload_bytes",
        }
    }
}

impl fmt::Display for HeaderField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of an image's file: header, codes, scales.
pub const fn file_bytes(geometry: &TileGeometry) -> u64 {
    HEADER_BYTES as u64 + geometry.payload_bytes()
}

fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("because the range is as long as the field")
}

fn integer(bytes: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    u64::from_le_bytes(field(bytes, offset))
}

/// Bytes of a header; the payload begins here, on a page.
pub const HEADER_BYTES: usize = 4096;

const MAGIC_BYTES: [u8; 4] = *b"PHTI";
const LAYOUT_BYTES: usize = 32;

const MAGIC: usize = 0;
const VERSION: usize = MAGIC + 4;
const LAYOUT: usize = VERSION + 4;
const KD: usize = LAYOUT + LAYOUT_BYTES;
const ND: usize = KD + 8;
const KPAD: usize = ND + 8;
const T: usize = KPAD + 8;
const TILE: usize = T + 8;
const TILE_COUNT: usize = TILE + 8;
const VOCABULARY: usize = TILE_COUNT + 8;
const COLUMNS: usize = VOCABULARY + 8;
const WIDTH: usize = COLUMNS + 8;
const TIED: usize = WIDTH + 8;
const DTYPE: usize = TIED + 8;
const HEAD_DIGEST: usize = DTYPE + DTYPE_BYTES;
const FINGERPRINT: usize = HEAD_DIGEST + 32;
const OWNER: usize = FINGERPRINT + 32;
const PAYLOAD_BYTES: usize = OWNER + 32;
const PAYLOAD_HASH: usize = PAYLOAD_BYTES + 8;
const RESERVED: usize = PAYLOAD_HASH + 32;
const HEADER_HASH: usize = HEADER_BYTES - 32;
const _: () = assert!(RESERVED == 272 && HEADER_HASH == 4064);
