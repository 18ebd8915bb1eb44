//! Every way in which a file that is there can be wrong: refused for its own reason, which names
//! the file and the values; the tile is right all the same, the file replaced, the next start hits.

use crate::serve_world::{
    PACKERS, Start, V1, Weights, assert_no_litter, geometries, geometry_of, image_path, images,
    new_disk, reseal, settings, start, start_as, weights,
};
use packhouse_base::digest::{Digest, Fingerprint};
use packhouse_image::{
    Dtype, HEADER_BYTES, Head, HeadDigest, Header, NotWrittenCode, Outcome, RefusalCode, Written,
    file_bytes,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use packhouse_sim::SimFs;

/// A disk with the images of `weights()`.
fn filled(geometry: &TileGeometry) -> SimFs {
    let sim = new_disk();
    start(&sim, settings(), &weights(), geometry).assert_all_missed();
    sim
}

/// Starts twice on a disk where the image of tile 0 is wrong: refused with this text after the
/// file's name, replaced, then hit. The other tiles hit.
fn assert_refused(sim: &SimFs, geometry: &TileGeometry, code: RefusalCode, text: &str) -> Start {
    let weights = weights();
    let path = image_path(&weights, geometry, 0);
    let first = start(sim, settings(), &weights, geometry);
    let refusal = first.refusal(0);
    assert_eq!(
        refusal.to_string(),
        format!("image {path} not used: {text}")
    );
    assert_eq!(refusal.code(), code);
    assert_healed(sim, &first, geometry);
    assert_eq!(first.counters.refused.get(&code), Some(&1));
    first
}

/// Tile 0 was refused and is right, and hits at the next start.
fn assert_healed(sim: &SimFs, first: &Start, geometry: &TileGeometry) {
    first.assert_right(&weights(), geometry);
    let bytes = file_bytes(geometry);
    let Outcome::Packed { written, .. } = &first.tiles[0].served.outcome else {
        panic!("a refused file was a hit");
    };
    assert_eq!(*written, Written::Yes { bytes });
    assert_eq!(first.counters.tiles_refused(), 1);
    assert_eq!(
        (first.counters.tiles_hit, first.counters.tiles_packed),
        (2, 1)
    );
    let second = start(sim, settings(), &weights(), geometry);
    second.assert_all_hit();
    second.assert_right(&weights(), geometry);
    assert_no_litter(sim);
}

/// The header of tile 0's image with something else in it.
fn with_header(sim: &SimFs, geometry: &TileGeometry, edit: impl FnOnce(Header) -> Header) {
    sim.rot(image_path(&weights(), geometry, 0), |bytes| {
        let header = Header::parse(&bytes[..HEADER_BYTES]).expect("because it was whole");
        bytes[..HEADER_BYTES].copy_from_slice(&edit(header).encode());
    });
}

#[test]
fn every_byte_of_the_payload_is_covered_by_the_hash() {
    let geometry = geometry_of(TileOrder::RowMajor, [6, 5, 5, 4]);
    let sim = new_disk();
    let weights = Weights::new(4, 5, 3);
    start(&sim, settings(), &weights, &geometry).assert_all_missed();
    let path = image_path(&weights, &geometry, 0);
    for at in 0..geometry.payload_bytes() as usize {
        for flip in [0x01, 0x80] {
            sim.rot(&path, |bytes| bytes[HEADER_BYTES + at] ^= flip);
            let start = start(&sim, settings(), &weights, &geometry);
            let refusal = start.refusal(0);
            assert_eq!(refusal.code(), RefusalCode::PayloadHash, "byte {at}");
            let text = refusal.to_string();
            assert!(text.contains(&path), "{text}");
            assert!(text.contains(" not used: the payload hashes to "), "{text}");
            start.assert_right(&weights, &geometry);
            assert_eq!(start.counters.columns_sampled, 0, "damage needs no sample");
        }
    }
    start(&sim, settings(), &weights, &geometry).assert_all_hit();
}

#[test]
fn every_flipped_bit_of_a_files_header_is_refused() {
    for geometry in geometries() {
        let sim = filled(&geometry);
        let path = image_path(&weights(), &geometry, 0);
        for at in (0..272).chain([1000, 4063, 4064, 4095]) {
            sim.rot(&path, |bytes| bytes[at] ^= 0x10);
            let start = start(&sim, settings(), &weights(), &geometry);
            let code = match at {
                0..4 => RefusalCode::Magic,
                4..8 => RefusalCode::Version,
                _ => RefusalCode::HeaderHash,
            };
            assert_eq!(start.refusal(0).code(), code, "byte {at}");
            assert_healed(&sim, &start, &geometry);
        }
    }
}

#[test]
fn short_files_and_trailing_bytes_are_refused_with_both_lengths() {
    for geometry in geometries() {
        let full = file_bytes(&geometry);
        for actual in [
            0,
            1,
            4095,
            4096,
            4097,
            full - 1,
            full - 4 * geometry.nd(),
            full + 1,
            full + 4096,
        ] {
            let sim = filled(&geometry);
            let path = image_path(&weights(), &geometry, 0);
            sim.rot(&path, |bytes| bytes.resize(actual as usize, 0));
            let text = format!("it has {actual} bytes, expected {full}");
            assert_refused(&sim, &geometry, RefusalCode::Length, &text);
        }
    }
}

/// What a header can say of the image that it heads.
struct Said {
    geometry: TileGeometry,
    head: Head,
    fingerprint: Fingerprint,
    tile: u64,
}

/// The image of tile 0, row-major, says something else, is sealed, and is refused for it.
fn assert_field(edit: impl FnOnce(&mut Said), code: RefusalCode, text: &str) {
    let [geometry, _] = geometries();
    let sim = filled(&geometry);
    with_header(&sim, &geometry, |old| {
        let mut said = Said {
            geometry: *old.geometry(),
            head: old.head().clone(),
            fingerprint: *old.fingerprint(),
            tile: old.tile(),
        };
        edit(&mut said);
        let (owner, hash) = (*old.owner(), *old.payload_hash());
        let Said { geometry, head, .. } = said;
        Header::new(geometry, head, said.fingerprint, said.tile, owner, hash)
            .expect("because the head has this tile")
    });
    assert_refused(&sim, &geometry, code, text);
}

#[test]
fn headers_of_another_geometry_are_refused_for_their_own_field() {
    for (order, sizes, code, text) in [
        (
            TileOrder::Blocked,
            [128, 128, 66, 20],
            RefusalCode::Layout,
            "layout is int8-tile-b8-v1, expected int8-tile-rm-v1",
        ),
        (
            TileOrder::RowMajor,
            [71, 24, 66, 20],
            RefusalCode::Geometry,
            "kd is 71, expected 70",
        ),
        (
            TileOrder::RowMajor,
            [70, 25, 66, 20],
            RefusalCode::Geometry,
            "nd is 25, expected 24",
        ),
        (
            TileOrder::RowMajor,
            [70, 24, 65, 20],
            RefusalCode::Geometry,
            "kpad is 65, expected 66",
        ),
        (
            TileOrder::RowMajor,
            [70, 24, 66, 21],
            RefusalCode::Geometry,
            "t is 21, expected 20",
        ),
    ] {
        assert_field(|said| said.geometry = geometry_of(order, sizes), code, text);
    }
}

#[test]
fn headers_of_another_head_tile_or_packer_are_refused_for_their_own_field() {
    let head = |edit: fn(&mut Head), text: &str| {
        assert_field(|said| edit(&mut said.head), RefusalCode::Head, text);
    };
    head(|head| head.vocabulary = 46, "vocabulary is 46, expected 47");
    head(|head| head.width = 63, "width is 63, expected 64");
    head(|head| head.tied = true, "tied is true, expected false");
    head(
        |head| head.dtype = Dtype::new("F16").expect("because it is printable"),
        "dtype is F16, expected F32",
    );
    let (zeros, digest) = ("00".repeat(32), weights().head().digest);
    head(
        |head| head.digest = HeadDigest::from_bytes([0; 32]),
        &format!("head_digest is {zeros}, expected {digest}"),
    );
    let text = "tile is 1, expected 0";
    assert_field(|said| said.tile = 1, RefusalCode::Tile, text);
    let (ones, own) = (
        "11".repeat(32),
        PACKERS.tile_fingerprint(TileOrder::RowMajor),
    );
    let other = Fingerprint(Digest::from_bytes([0x11; 32]));
    let text = format!("fingerprint is {ones}, expected {own}");
    assert_field(
        |said| said.fingerprint = other,
        RefusalCode::Fingerprint,
        &text,
    );
}

/// The owner in a header is who wrote it, no part of the identity: any owner may use the file.
#[test]
fn an_image_that_another_owner_wrote_is_a_hit() {
    let [geometry, _] = geometries();
    let sim = filled(&geometry);
    with_header(&sim, &geometry, |old| {
        let owner = packhouse_image::OwnerId::from_bytes([7; 32]);
        let (head, hash) = (old.head().clone(), *old.payload_hash());
        Header::new(*old.geometry(), head, *old.fingerprint(), 0, owner, hash)
            .expect("because only the owner is another")
    });
    start(&sim, settings(), &weights(), &geometry).assert_all_hit();
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let [geometry, _] = geometries();
    let sim = filled(&geometry);
    sim.rot(image_path(&weights(), &geometry, 0), |bytes| {
        bytes[96] = 19;
        let hash = blake3::hash(&bytes[..HEADER_BYTES - 32]);
        bytes[HEADER_BYTES - 32..HEADER_BYTES].copy_from_slice(hash.as_bytes());
    });
    let text = "columns is 19, and 20 follows from the other fields";
    assert_refused(&sim, &geometry, RefusalCode::Header, text);
}

#[test]
fn images_of_two_tiles_swapped_are_both_refused() {
    for geometry in geometries() {
        let sim = filled(&geometry);
        let path = |tile| image_path(&weights(), &geometry, tile);
        sim.swap(path(0), path(1));
        let first = start(&sim, settings(), &weights(), &geometry);
        first.assert_right(&weights(), &geometry);
        for (tile, text) in [(0, "tile is 1, expected 0"), (1, "tile is 0, expected 1")] {
            let refusal = first.refusal(tile);
            let path = path(tile as u64);
            assert_eq!(
                refusal.to_string(),
                format!("image {path} not used: {text}")
            );
            assert_eq!(refusal.code(), RefusalCode::Tile);
        }
        assert_eq!(first.counters.tiles_hit, 1);
        start(&sim, settings(), &weights(), &geometry).assert_all_hit();
    }
}

#[test]
fn a_row_major_file_under_a_blocked_name_is_refused() {
    let sizes = [128, 128, 66, 20];
    let blocked = geometry_of(TileOrder::Blocked, sizes);
    let row_major = geometry_of(TileOrder::RowMajor, sizes);
    let sim = filled(&blocked);
    start(&sim, settings(), &weights(), &row_major).assert_all_missed();
    let bytes = sim.read(image_path(&weights(), &row_major, 0));
    sim.replace(
        image_path(&weights(), &blocked, 0),
        &bytes.expect("because it was written"),
        0o400,
    );
    let text = "layout is int8-tile-rm-v1, expected int8-tile-b8-v1";
    assert_refused(&sim, &blocked, RefusalCode::Layout, text);
}

/// The header says that the file is of this head, and it is intact: only the sample can tell.
fn forge(sim: &SimFs, geometry: &TileGeometry, other: &Weights) {
    let weights = weights();
    let images = images(sim, settings());
    start_as(&images, weights.head(), other, geometry);
    assert_eq!(sim.files(V1).len(), 5, "three images, a lock and a record");
}

#[test]
fn an_intact_image_of_other_weights_with_other_scales_is_refused_by_the_sample() {
    for geometry in geometries() {
        let sim = new_disk();
        let mut other = weights();
        other.column(0)[3] = 4.0;
        forge(&sim, &geometry, &other);
        let (_, image) = other.judged(&geometry, 0);
        let (_, packed) = weights().judged(&geometry, 0);
        let text = format!(
            "the scale of column 0 is {:.8e}, and the packer makes {:.8e} of the weights held now: \
             it was made of other head weights, or by another packer",
            image[0], packed[0]
        );
        assert!(
            text.starts_with("the scale of column 0 is 3.14960629e-2, "),
            "{text}"
        );
        let start = assert_refused(&sim, &geometry, RefusalCode::SampleScale, &text);
        assert_eq!(
            start.counters.columns_sampled,
            1 + 8 + 7,
            "the first one ends it"
        );
    }
}

/// Scales are equal because the largest value is; the last column of the tile has another code.
#[test]
fn an_intact_image_of_other_weights_with_the_same_scales_is_refused_by_the_sample() {
    for geometry in geometries() {
        let sim = new_disk();
        let mut other = weights();
        let column = other.column(19);
        let largest = column
            .iter()
            .fold(0.0f32, |most, value| most.max(value.abs()));
        let row = column.iter().position(|value| value.abs() < largest / 2.0);
        let row = row.expect("because most are small");
        column[row] = -column[row] - largest / 4.0;
        forge(&sim, &geometry, &other);
        let position = geometry.position(row as u64, 19) as usize;
        let (image, packed) = (other.judged(&geometry, 0), weights().judged(&geometry, 0));
        assert_eq!(image.1, packed.1, "the scales are equal");
        let text = format!(
            "the code of column 19, depth row {row}, is {}, and the packer makes {} of the weights \
             held now: it was made of other head weights, or by another packer",
            image.0[position], packed.0[position]
        );
        assert_refused(&sim, &geometry, RefusalCode::SampleCode, &text);
    }
}

#[test]
fn columns_in_reasons_are_counted_from_the_start_of_the_head() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    let mut other = weights();
    other.column(46)[0] = 9.0;
    forge(&sim, &geometry, &other);
    let start = start(&sim, settings(), &weights(), &geometry);
    let text = start.refusal(2).to_string();
    assert!(
        text.contains(": the scale of column 46 is 7.08661452e-2, "),
        "{text}"
    );
    assert_eq!(start.counters.tiles_hit, 2);
}

/// What a refused file put into the buffers is gone: padding in depth and width, and scales.
#[test]
fn a_refused_file_leaves_no_byte_behind() {
    for geometry in geometries() {
        let sim = filled(&geometry);
        for tile in 0..3 {
            sim.rot(image_path(&weights(), &geometry, tile), |bytes| {
                // Damaged: found after all of it was copied.
                bytes[HEADER_BYTES..].fill(0x77);
            });
        }
        let damaged = start(&sim, settings(), &weights(), &geometry);
        assert_eq!(
            damaged.counters.refused.get(&RefusalCode::PayloadHash),
            Some(&3)
        );
        damaged.assert_right(&weights(), &geometry);
        for tile in 0..3 {
            sim.rot(image_path(&weights(), &geometry, tile), |bytes| {
                // Intact, and of other weights.
                reseal(bytes, |payload| payload.fill(0x77));
            });
        }
        let forged = start(&sim, settings(), &weights(), &geometry);
        assert_eq!(
            forged.counters.refused.get(&RefusalCode::SampleScale),
            Some(&3)
        );
        forged.assert_right(&weights(), &geometry);
        start(&sim, settings(), &weights(), &geometry).assert_all_hit();
    }
}

#[test]
fn files_that_others_own_or_can_change_are_refused() {
    let [geometry, _] = geometries();
    let path = image_path(&weights(), &geometry, 0);
    let sim = filled(&geometry);
    sim.set_owner(&path, 0);
    let text = "it belongs to uid 0, expected 1000";
    assert_refused(&sim, &geometry, RefusalCode::Owner, text);
    for mode in [0o420, 0o402, 0o666] {
        let sim = filled(&geometry);
        sim.set_mode(&path, mode);
        let text = format!("it has mode {mode:04o}: others than its owner can change it");
        assert_refused(&sim, &geometry, RefusalCode::Writable, &text);
    }
}

#[test]
fn what_is_no_file_is_refused_and_a_symlink_is_replaced() {
    let [geometry, _] = geometries();
    let path = image_path(&weights(), &geometry, 0);
    let sim = filled(&geometry);
    let bytes = sim.read(&path).expect("because it was written");
    sim.replace("/home/user/elsewhere", &bytes, 0o400);
    sim.remove(&path);
    sim.symlink(&path, "/home/user/elsewhere", 1000);
    let text = "it is a symlink, expected a regular file";
    assert_refused(&sim, &geometry, RefusalCode::NotRegular, text);
    assert_eq!(
        sim.read("/home/user/elsewhere"),
        Some(bytes),
        "what it pointed to stays"
    );
    // A folder is not replaced, and the tile is right at every start.
    sim.remove(&path);
    sim.make_dirs(&path, 1000, 0o700);
    for _ in 0..2 {
        let start = start(&sim, settings(), &weights(), &geometry);
        let refusal = start.refusal(0);
        let text = format!("image {path} not used: it is a folder, expected a regular file");
        assert_eq!(refusal.to_string(), text);
        start.assert_right(&weights(), &geometry);
        let Outcome::Packed { written, .. } = &start.tiles[0].served.outcome else {
            panic!("a folder was a hit");
        };
        assert!(matches!(written, Written::No(_)), "{written:?}");
        assert_no_litter(&sim);
    }
}

/// A packer of another version has another fingerprint, so its images have other names: a miss.
#[test]
fn an_image_of_another_packer_has_another_name() {
    let [geometry, _] = geometries();
    let head = weights().head();
    let other = Fingerprint(Digest::from_bytes([0x22; 32]));
    let other = packhouse_image::ImageKey::new(&geometry, &head.digest, &other);
    let name = packhouse_image::ImageName::new(&other, 0).expect("because there are few tiles");
    let sim = filled(&geometry);
    let bytes = sim.read(image_path(&weights(), &geometry, 0));
    let bytes = bytes.expect("because it was written");
    for tile in 0..3 {
        sim.remove(image_path(&weights(), &geometry, tile));
    }
    sim.replace(format!("{V1}/{name}"), &bytes, 0o400);
    start(&sim, settings(), &weights(), &geometry).assert_all_missed();
}

#[test]
fn every_code_has_its_own_name_and_is_in_the_page() {
    let names: std::collections::BTreeSet<_> =
        RefusalCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), RefusalCode::ALL.len());
    assert!(RefusalCode::ALL.is_sorted(), "in the order of the checks");
    let page = include_str!("../../../../docs/format/head-image.md");
    let unwritten = [
        NotWrittenCode::Off,
        NotWrittenCode::ReadOnly,
        NotWrittenCode::NoRoom,
        NotWrittenCode::Failed,
    ];
    let names = names.into_iter().chain(unwritten.map(NotWrittenCode::name));
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "the page explains {name}"
        );
    }
}
