//! The bytes of owner records, as `docs/format/head-image.md`, section 12, has them.

use crate::disk::owner;
use packhouse_image::{ImageKey, Owner, OwnerRecord, RECORD_BYTES, RecordRefusal};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn geometry(order: TileOrder) -> TileGeometry {
    let sizes = TileSizes {
        kd: 4096,
        nd: 28_672,
        kpad: 4032,
        t: 28_000,
    };
    TileGeometry::new(order, sizes).expect("because the sizes fit")
}

fn record() -> OwnerRecord {
    OwnerRecord {
        owner: owner("/models/m\u{e9}lange.q4nx"),
        geometry: geometry(TileOrder::Blocked),
        key: ImageKey::from_bytes([0xab; 32]),
        leaving: Some(ImageKey::from_bytes([0xcd; 32])),
        vocabulary: 128_256,
    }
}

/// Edits a record's bytes and gives them their hash again.
fn sealed(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = record().encode();
    bytes.truncate(bytes.len() - 32);
    edit(&mut bytes);
    let hash = blake3::hash(&bytes);
    bytes.extend(hash.as_bytes());
    bytes
}

fn refusal(bytes: &[u8]) -> String {
    OwnerRecord::parse(bytes)
        .expect_err("because it is damaged")
        .to_string()
}

#[test]
fn each_field_lies_where_the_page_says() {
    let record = record();
    let text = record.owner.text().as_bytes();
    let mut expected = Vec::new();
    expected.extend(b"PHOW");
    expected.extend(1u32.to_le_bytes());
    expected.extend(21u32.to_le_bytes());
    expected.extend([0; 4]);
    expected.extend(b"int8-tile-b8-v1");
    expected.extend([0; 17]);
    for value in [4096u64, 28_672, 4032, 28_000, 128_256, 5] {
        expected.extend(value.to_le_bytes());
    }
    expected.extend([0xab; 32]);
    expected.extend([0xcd; 32]);
    assert_eq!(expected.len(), 160);
    expected.extend(text);
    let hash = blake3::hash(&expected);
    expected.extend(hash.as_bytes());
    assert_eq!(text.len(), 21);
    assert_eq!(record.encode(), expected);
    assert_eq!(expected.len(), RECORD_BYTES + text.len());
    assert_eq!(OwnerRecord::parse(&expected), Ok(record.clone()));
    // The name, by hand: items are a length and bytes each.
    let mut items = Vec::new();
    let mut item = |bytes: &[u8]| {
        items.extend((bytes.len() as u64).to_le_bytes());
        items.extend(bytes);
    };
    item(b"packhouse/owner-record/1");
    item(record.owner.id().bytes());
    item(b"int8-tile-b8-v1");
    for value in [4096u64, 28_672, 4032, 28_000] {
        item(&value.to_le_bytes());
    }
    let hash = blake3::hash(&items).to_hex();
    assert_eq!(record.name(), format!("{}.own", &hash[..32]));
}

#[test]
fn the_name_is_of_the_owner_and_its_geometry_alone() {
    let base = record();
    let mut other = base.clone();
    other.key = ImageKey::from_bytes([1; 32]);
    other.leaving = None;
    other.vocabulary = 1;
    assert_eq!(other.name(), base.name());
    other.owner = owner("/models/another");
    assert_ne!(other.name(), base.name());
    let sizes = base.geometry.sizes();
    let grown = [
        TileSizes {
            kd: sizes.kd * 2,
            ..sizes
        },
        TileSizes {
            nd: sizes.nd * 2,
            ..sizes
        },
        TileSizes {
            kpad: sizes.kpad + 1,
            ..sizes
        },
        TileSizes {
            t: sizes.t + 1,
            ..sizes
        },
    ];
    let grown = grown.map(|sizes| TileGeometry::new(TileOrder::Blocked, sizes));
    let mut geometries: Vec<_> = grown
        .into_iter()
        .map(|it| it.expect("because it fits"))
        .collect();
    geometries.push(geometry(TileOrder::RowMajor));
    for geometry in geometries {
        let other = OwnerRecord {
            geometry,
            ..base.clone()
        };
        assert_ne!(other.name(), base.name(), "{geometry:?}");
    }
}

#[test]
fn every_flipped_bit_and_every_other_length_is_refused() {
    let good = record().encode();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let refused = OwnerRecord::parse(&bytes).expect_err("because a bit is flipped");
            let fits = match at {
                0..4 => matches!(refused, RecordRefusal::Magic { .. }),
                4..8 => matches!(refused, RecordRefusal::Version { .. }),
                _ => matches!(refused, RecordRefusal::Hash { .. }),
            };
            assert!(fits, "bit {bit} of byte {at}: {refused}");
        }
    }
    for length in 0..good.len() {
        assert!(
            OwnerRecord::parse(&good[..length]).is_err(),
            "{length} bytes"
        );
    }
    let mut longer = good;
    longer.push(0);
    assert!(OwnerRecord::parse(&longer).is_err());
    assert_eq!(refusal(&[0; 192]), "192 bytes, expected 193");
}

#[test]
fn what_is_sealed_and_can_not_be_is_refused_each_in_its_own_words() {
    let put = |offset: usize, field: &[u8]| {
        refusal(&sealed(|bytes| {
            bytes[offset..offset + field.len()].copy_from_slice(field);
        }))
    };
    assert_eq!(put(8, &20u32.to_le_bytes()), "213 bytes, expected 212");
    assert_eq!(put(8, &[0xff; 4]), "213 bytes, expected 4294967487");
    assert_eq!(
        put(12, &3u32.to_le_bytes()),
        "reserved field is 0x3, expected 0"
    );
    let text = put(16, b"int8-tile-b9-v1");
    assert!(text.starts_with("layout \"int8-tile-b9-v1"), "{text}");
    let text = put(47, &[1]);
    assert!(text.ends_with("is not known"), "{text}");
    assert_eq!(
        put(48, &0u64.to_le_bytes()),
        "kd is 0, expected 1 to 16777216"
    );
    let text = put(64, &5000u64.to_le_bytes());
    assert_eq!(text, "kpad is 5000, more than kd, which is 4096");
    let text = put(88, &6u64.to_le_bytes());
    assert_eq!(text, "6 tiles, expected 5 for 128256 rows");
    assert_eq!(put(160, &[0xff]), "owner is not UTF-8 from byte 0");
    assert_eq!(put(169, &[0xff]), "owner is not UTF-8 from byte 9");
    let text = put(128, &[0xab; 32]);
    assert_eq!(text, format!("key {} is left for itself", "ab".repeat(32)));
    let empty = sealed(|bytes| {
        bytes.truncate(160);
        bytes[8..12].fill(0);
    });
    assert_eq!(refusal(&empty), "192 bytes, expected 193");
    let long = sealed(|bytes| {
        bytes.truncate(160);
        bytes.extend([b'a'; 1025]);
        bytes[8..12].copy_from_slice(&1025u32.to_le_bytes());
    });
    assert_eq!(refusal(&long), "1025 bytes, expected 1024");
}

proptest! {
    #[test]
    fn a_record_is_what_its_encoding_says_and_edited_bytes_are_refused_or_another_one(
        text in ".{1,300}",
        key in any::<[u8; 32]>(),
        leaving in any::<Option<[u8; 32]>>(),
        vocabulary in 0u64..1 << 40,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let leaving = leaving.filter(|left| *left != key && *left != [0; 32]);
        let owner = Owner::new(text.chars().take(250).collect::<String>());
        let record = OwnerRecord {
            owner: owner.map_err(|error| TestCaseError::reject(error.to_string()))?,
            geometry: geometry(TileOrder::RowMajor),
            key: ImageKey::from_bytes(key),
            leaving: leaving.map(ImageKey::from_bytes),
            vocabulary,
        };
        let mut bytes = record.encode();
        prop_assert_eq!(OwnerRecord::parse(&bytes), Ok(record));
        // One encoding: what is read of edited and sealed bytes encodes to them again.
        bytes.truncate(bytes.len() - 32);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        if let Ok(other) = OwnerRecord::parse(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
        }
    }
}
