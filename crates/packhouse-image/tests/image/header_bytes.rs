//! Headers byte by byte: the table of the specification, one encoding per value, every flip.

use crate::serve_world::{PACKERS, geometries, geometry_of, owner, weights};
use packhouse_base::digest::{Digest, Fingerprint};
use packhouse_image::{
    Dtype, HEADER_BYTES, Head, HeadDigest, Header, HeaderError, Owner, OwnerId, PayloadHash,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use proptest::prelude::*;

fn header() -> Header {
    let [geometry, _] = geometries();
    let fingerprint = PACKERS.tile_fingerprint(TileOrder::RowMajor);
    let hash = PayloadHash::from_bytes([0x5a; 32]);
    Header::new(
        geometry,
        weights().head(),
        fingerprint,
        2,
        owner().id(),
        hash,
    )
    .expect("because the head has three tiles")
}

/// An encoding with some bytes edited, and its hash made right again.
fn edited(offset: usize, bytes: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = header().encode();
    header[offset..offset + bytes.len()].copy_from_slice(bytes);
    sealed(header)
}

fn sealed(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let hash = blake3::hash(&header[..HEADER_BYTES - 32]);
    header[HEADER_BYTES - 32..].copy_from_slice(hash.as_bytes());
    header
}

/// The first table of the specification: offset, width and name of each field.
fn specified() -> Vec<(usize, usize, String)> {
    let page = include_str!("../../../../docs/format/head-image.md");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| offset | width | field"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let rows = rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let mut number = || cells.next().and_then(|cell| cell.parse().ok());
        let offset = number().expect("because the first cell is an offset");
        let width = number().expect("because the second cell is a width");
        let name = cells.next().expect("because the third cell is a name");
        (offset, width, name.trim_matches('`').to_owned())
    });
    rows.collect()
}

/// Rebuilds a header by the table alone.
#[test]
fn the_table_of_the_specification_is_what_is_encoded() {
    let header = header();
    let integer = |value: u64| value.to_le_bytes().to_vec();
    let padded = |text: &str, width: usize| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(width, 0);
        bytes
    };
    let mut bytes = Vec::new();
    for (offset, width, name) in specified() {
        assert_eq!(offset, bytes.len(), "{name} follows what is before it");
        let field = match name.as_str() {
            "magic" => b"PHTI".to_vec(),
            "version" => vec![1, 0, 0, 0],
            "layout" => padded("int8-tile-rm-v1", 32),
            "kd" => integer(70),
            "nd" => integer(24),
            "kpad" => integer(66),
            "t" => integer(20),
            "tile" => integer(2),
            "tile_count" => integer(3),
            "vocabulary" => integer(47),
            "columns" => integer(7),
            "width" => integer(64),
            "tied" => integer(0),
            "dtype" => padded("F32", 16),
            "head_digest" => header.head().digest.bytes().to_vec(),
            "fingerprint" => header.fingerprint().as_bytes().to_vec(),
            "owner" => owner().id().bytes().to_vec(),
            "payload_bytes" => integer(70 * 24 + 4 * 24),
            "payload_hash" => vec![0x5a; 32],
            "reserved" => vec![0; width],
            "header_hash" => blake3::hash(&bytes).as_bytes().to_vec(),
            other => panic!("the table has a field {other}"),
        };
        assert_eq!(field.len(), width, "width of {name}");
        bytes.extend(field);
    }
    assert_eq!(
        bytes.len(),
        HEADER_BYTES,
        "all of the header is in the table"
    );
    assert_eq!(header.encode()[..], bytes[..]);
}

#[test]
fn every_flip_of_one_bit_is_refused() {
    let whole = header().encode();
    assert_eq!(Header::parse(&whole), Ok(header()));
    let mut bytes = whole;
    for bit in 0..8 * HEADER_BYTES {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = Header::parse(&bytes).expect_err("because a bit was flipped");
        let expected = match bit / 8 {
            0..4 => matches!(error, HeaderError::Magic { .. }),
            4..8 => matches!(error, HeaderError::Version { .. }),
            _ => matches!(error, HeaderError::Hash { .. }),
        };
        assert!(expected, "bit {bit}: {error}");
        bytes[bit / 8] = whole[bit / 8];
    }
}

#[test]
fn other_lengths_are_no_header() {
    let whole = header().encode();
    let mut longer = whole.to_vec();
    longer.push(0);
    for bytes in [&whole[..0], &whole[..1], &whole[..4095], &longer] {
        let actual = bytes.len() as u64;
        assert_eq!(Header::parse(bytes), Err(HeaderError::Length { actual }));
    }
}

/// Whoever can write a header's hash can write it for anything: each field is judged by itself.
#[test]
fn sealed_headers_that_say_what_cannot_be_are_refused_each_in_its_own_words() {
    for (offset, bytes, text) in IMPOSSIBLE {
        let bytes = edited(*offset, bytes);
        let error = Header::parse(&bytes).expect_err("because it can't be");
        assert_eq!(error.to_string(), *text);
    }
}

/// What is written where, and what is said of it.
const IMPOSSIBLE: &[(usize, &[u8], &str)] = &[
    (0, b"PHTX", "the magic is \"PHTX\", expected \"PHTI\""),
    (4, &[2], "the format version is 2, expected 1"),
    (
        8,
        b"int8-tile-rm-v2",
        "the layout is \"int8-tile-rm-v2\", which is not known",
    ),
    (
        8,
        b"int8-tile-rm-v1\0x",
        "the layout is \"int8-tile-rm-v1\\x00x\", which is not known",
    ),
    (
        8,
        b"int8-tile-rm-v\0",
        "the layout is \"int8-tile-rm-v\", which is not known",
    ),
    (8, &[0; 32], "the layout is \"\", which is not known"),
    (40, &le(0), "the geometry: kd is 0, expected 1 to 16777216"),
    (
        40,
        &le(65),
        "the geometry: kpad is 66, more than kd, which is 65",
    ),
    (
        48,
        &le(19),
        "the geometry: t is 20, more than nd, which is 19",
    ),
    (
        48,
        &le(u64::MAX),
        "the geometry: nd is 18446744073709551615, expected 1 to 16777216",
    ),
    (72, &le(3), "the tile is 3, and the head has 3"),
    (
        72,
        &le(u64::MAX),
        "the tile is 18446744073709551615, and the head has 3",
    ),
    (
        80,
        &le(4),
        "tile_count is 4, and 3 follows from the other fields",
    ),
    (
        88,
        &le(0),
        "the head: vocabulary is 0, expected 1 to 2000000: at most 100000 tiles of 20 columns",
    ),
    (
        96,
        &le(20),
        "columns is 20, and 7 follows from the other fields",
    ),
    (
        104,
        &le(67),
        "the head: width is 67, expected 1 to kpad, which is 66",
    ),
    (
        104,
        &le(0),
        "the head: width is 0, expected 1 to kpad, which is 66",
    ),
    (112, &le(2), "tied is 2, expected 0 or 1"),
    (112, &le(256), "tied is 256, expected 0 or 1"),
    (
        120,
        &[0; 16],
        "the dtype is \"\", expected printable letters and then zeros",
    ),
    (
        121,
        &[0, b'6'],
        "the dtype is \"F\\x006\", expected printable letters and then zeros",
    ),
    (
        120,
        b"F 2",
        "the dtype is \"F 2\", expected printable letters and then zeros",
    ),
    (
        232,
        &le(0),
        "payload_bytes is 0, and 1776 follows from the other fields",
    ),
    (272, &[1], "the reserved byte at 272 is 1, expected 0"),
    (4063, &[255], "the reserved byte at 4063 is 255, expected 0"),
];

const fn le(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

#[test]
fn every_reserved_byte_must_be_zero() {
    for offset in 272..4064 {
        let error = Header::parse(&edited(offset, &[0x80]));
        let expected = HeaderError::Reserved {
            offset: offset as u64,
            actual: 0x80,
        };
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn blocked_headers_need_whole_blocks() {
    let [_, geometry] = geometries();
    let hash = PayloadHash::from_bytes([0; 32]);
    let fingerprint = PACKERS.tile_fingerprint(TileOrder::Blocked);
    let header = Header::new(
        geometry,
        weights().head(),
        fingerprint,
        0,
        owner().id(),
        hash,
    );
    let whole = header.expect("because the head has tiles").encode();
    assert!(Header::parse(&whole).is_ok());
    for (offset, value, text) in [
        (
            40,
            120u64,
            "the geometry: kd is 120, which the blocked order needs to be a multiple of 64",
        ),
        (
            48,
            192,
            "the geometry: nd is 192, which the blocked order needs to be a multiple of 128",
        ),
    ] {
        let mut bytes = whole;
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        let error = Header::parse(&sealed(bytes)).expect_err("because blocks would be cut");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn names_of_types_and_owners_have_bounds() {
    for wrong in ["", "F 32", "F32\n", "gr\u{f6}\u{df}e", "seventeen-letters"] {
        let error = Dtype::new(wrong).expect_err("because it is no name");
        let expected = "1 to 16 printable ASCII characters without blanks";
        let text = format!("dtype is {wrong:?}, expected {expected}");
        assert_eq!(error.to_string(), text);
    }
    for right in ["F", "sixteen--letters"] {
        assert_eq!(
            Dtype::new(right).map(|dtype| dtype.to_string()),
            Ok(right.to_owned())
        );
    }
    for wrong in [String::new(), "x".repeat(1025)] {
        let error = Owner::new(wrong.clone()).expect_err("because it is no owner");
        let text = format!("owner has {} bytes, expected 1 to 1024", wrong.len());
        assert_eq!(error.to_string(), text);
    }
    let longest = Owner::new("x".repeat(1024)).expect("because it just fits");
    assert_ne!(longest.id(), owner().id());
    let forged = Owner::new("a\u{1b}[2J\nb").expect("because any text is an owner");
    assert_eq!(forged.to_string(), "a\\u{1b}[2J\\u{a}b");
}

/// The ids of one owner, head and key, rebuilt by hand as the specification says.
#[test]
fn the_bytes_that_ids_hash_are_those_of_the_specification() {
    let items = |items: &[&[u8]]| {
        let mut bytes = Vec::new();
        for item in items {
            bytes.extend((item.len() as u64).to_le_bytes());
            bytes.extend(*item);
        }
        *blake3::hash(&bytes).as_bytes()
    };
    let integer = |value: u64| value.to_le_bytes();
    let id = items(&[b"packhouse/owner/1", b"/models/one.gguf"]);
    assert_eq!(owner().id().bytes(), &id);

    let weights = weights();
    let tensor = weights.bytes();
    let digest = items(&[
        b"packhouse/head-digest/1",
        &integer(47),
        &integer(64),
        &integer(0),
        b"F32",
        &integer(1),
        &integer(tensor.len() as u64),
        blake3::hash(&tensor).as_bytes(),
    ]);
    assert_eq!(weights.head().digest.bytes(), &digest);

    let fingerprint = PACKERS.tile_fingerprint(TileOrder::RowMajor);
    let key = items(&[
        b"packhouse/image-key/1",
        &integer(1),
        b"int8-tile-rm-v1",
        &integer(70),
        &integer(24),
        &integer(66),
        &integer(20),
        &digest,
        fingerprint.as_bytes(),
    ]);
    assert_eq!(header().key().bytes(), &key);
}

fn any_geometry() -> impl Strategy<Value = TileGeometry> {
    let sizes = (1u64..300, 1u64..300, any::<bool>());
    sizes.prop_flat_map(|(kd, nd, blocked)| {
        let (order, kd, nd) = match blocked {
            true => (
                TileOrder::Blocked,
                kd.div_ceil(64) * 64,
                nd.div_ceil(128) * 128,
            ),
            false => (TileOrder::RowMajor, kd, nd),
        };
        (1..=kd, 1..=nd).prop_map(move |(kpad, t)| geometry_of(order, [kd, nd, kpad, t]))
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    let hashes = (
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
    );
    let head = (
        any_geometry(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
    );
    (head, "[!-~]{1,16}", hashes).prop_map(
        |((geometry, rows, width, tile, tied), dtype, hashes)| {
            let head = Head {
                vocabulary: rows % (geometry.t() * 100_000) + 1,
                width: width % geometry.kpad() + 1,
                tied,
                dtype: Dtype::new(&dtype).expect("because it is printable"),
                digest: HeadDigest::from_bytes(hashes.0),
            };
            let tile = tile % geometry.tile_count(head.vocabulary);
            let fingerprint = Fingerprint(Digest::from_bytes(hashes.1));
            let (owner, payload) = (
                OwnerId::from_bytes(hashes.2),
                PayloadHash::from_bytes(hashes.3),
            );
            Header::new(geometry, head, fingerprint, tile, owner, payload)
                .expect("because it was made to fit")
        },
    )
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written_and_has_one_encoding(header in any_header()) {
        let bytes = header.encode();
        prop_assert_eq!(Header::parse(&bytes), Ok(header.clone()));
        prop_assert_eq!(Header::parse(&bytes).map(|header| header.encode()), Ok(bytes));
    }

    /// Whatever is accepted encodes to what was read: no second spelling.
    #[test]
    fn a_sealed_header_with_any_bytes_edited_is_refused_or_is_its_own_encoding(
        header in any_header(),
        edits in prop::collection::vec((8usize..280, any::<u8>()), 1..4),
    ) {
        let mut bytes = header.encode();
        for (offset, byte) in edits {
            bytes[offset] = byte;
        }
        let bytes = sealed(bytes);
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
        }
    }
}
