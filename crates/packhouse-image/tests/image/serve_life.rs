//! The life of an image: missed, written, hit; who is asked for which columns; what lies where.

use crate::serve_world::{
    PACKERS, V1, Weights, assert_no_litter, buffers, geometries, geometry_of, image_files,
    image_path, images, key, new_disk, owner, serve, settings, start, weights,
};
use packhouse_image::{
    HEADER_BYTES, Header, ImageName, Outcome, Owner, RequestRefusal, Settings, TileError, Written,
    file_bytes,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_pack::int8_tile::Gather;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::num::NonZeroUsize;
use std::sync::Arc;

#[test]
fn the_first_start_packs_and_writes_the_judges_bytes() {
    for geometry in geometries() {
        let (sim, weights) = (new_disk(), weights());
        let first = start(&sim, settings(), &weights, &geometry);
        first.assert_all_missed();
        first.assert_right(&weights, &geometry);
        assert_eq!(first.asked, weights.vocabulary, "each column once");
        let counters = &first.counters;
        assert_eq!(counters.columns_gathered, weights.vocabulary);
        assert_eq!(counters.columns_sampled, 0);
        assert_eq!((counters.tiles_packed, counters.tiles_written), (3, 3));
        assert_eq!((counters.tiles_hit, counters.tiles_refused()), (0, 0));
        assert_eq!((counters.bytes_read, counters.files_removed), (0, 0));
        assert_eq!(counters.bytes_written, 3 * file_bytes(&geometry));
        for tile in 0..3 {
            let bytes = sim.read(image_path(&weights, &geometry, tile));
            let bytes = bytes.expect("because it was written");
            let (codes, scales) = weights.judged(&geometry, tile);
            let mut payload: Vec<u8> = codes.iter().map(|code| *code as u8).collect();
            payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
            assert_eq!(
                &bytes[HEADER_BYTES..],
                payload,
                "codes, scales, nothing else"
            );
            let header = Header::parse(&bytes[..HEADER_BYTES]).expect("because it is whole");
            assert_eq!(header.tile(), tile);
            assert_eq!(*header.owner(), owner().id());
            assert_eq!(
                header.payload_hash().bytes(),
                blake3::hash(&payload).as_bytes()
            );
            assert_eq!(header.key(), key(&weights, &geometry));
        }
    }
}

#[test]
fn the_second_start_takes_every_tile_from_its_image_and_asks_for_samples_only() {
    for geometry in geometries() {
        let (sim, weights) = (new_disk(), weights());
        start(&sim, settings(), &weights, &geometry);
        let second = start(&sim, settings(), &weights, &geometry);
        second.assert_all_hit();
        second.assert_right(&weights, &geometry);
        // Eight of each full tile, and all seven of the last.
        assert_eq!(second.asked, 23);
        let counters = &second.counters;
        assert_eq!(
            (counters.columns_gathered, counters.columns_sampled),
            (0, 23)
        );
        assert_eq!((counters.tiles_hit, counters.tiles_packed), (3, 0));
        assert_eq!((counters.bytes_written, counters.tiles_written), (0, 0));
        assert_eq!(counters.bytes_read, 3 * file_bytes(&geometry));
    }
}

#[test]
fn only_the_files_that_keys_name_are_there_and_all_go() {
    let sim = new_disk();
    let mut expected = Vec::new();
    for geometry in geometries() {
        start(&sim, settings(), &weights(), &geometry);
        expected.extend((0..3).map(|tile| image_path(&weights(), &geometry, tile)));
    }
    expected.sort();
    assert_eq!(image_files(&sim), expected);
    assert_no_litter(&sim);
    // Two geometries of one head do not evict each other.
    for geometry in geometries() {
        start(&sim, settings(), &weights(), &geometry).assert_all_hit();
    }
}

#[test]
fn another_head_is_a_miss_and_what_its_owner_left_goes_once_it_is_published() {
    for geometry in geometries() {
        let (sim, old) = (new_disk(), weights());
        start(&sim, settings(), &old, &geometry);
        let new = Weights::new(47, 64, 2);
        let first = start(&sim, settings(), &new, &geometry);
        first.assert_all_missed();
        first.assert_right(&new, &geometry);
        assert_eq!(first.counters.tiles_refused(), 0, "a miss has no reason");
        assert_eq!(first.tiles[0].served.removed.len(), 3, "the old head's");
        let mut bytes = first.tiles[0]
            .served
            .removed
            .iter()
            .map(|removed| removed.bytes);
        assert!(bytes.all(|bytes| bytes == file_bytes(&geometry)));
        assert_eq!(first.counters.files_removed, 3);
        assert_eq!(first.counters.bytes_removed, 3 * file_bytes(&geometry));
        let expected: Vec<_> = (0..3)
            .map(|tile| image_path(&new, &geometry, tile))
            .collect();
        assert_eq!(image_files(&sim), expected);
        start(&sim, settings(), &new, &geometry).assert_all_hit();
    }
}

/// The file of a model is exchanged at the same path, with the same length and its times restored;
/// nothing but its content says so.
#[test]
fn a_container_replaced_in_place_at_the_same_path_is_a_miss() {
    let folder = tempfile::tempdir().expect("because tests may make folders");
    let model = folder.path().join("model.bin");
    let [geometry, _] = geometries();
    let (old, new) = (weights(), Weights::new(47, 64, 9));
    let root = folder.path().join("images");
    let start = |expected: &Weights| {
        let bytes = std::fs::read(&model).expect("because it was written");
        let (chunks, _) = bytes.as_chunks();
        let values = chunks
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let weights = Weights {
            values,
            ..expected.clone()
        };
        let fs = Arc::new(RealFs);
        let images =
            packhouse_image::Images::open(fs, Arc::new(RealClock), Some(&root), settings());
        assert_eq!(images.why_off(), None);
        let start = crate::serve_world::start_as(&images, weights.head(), &weights, &geometry);
        start.assert_right(expected, &geometry);
        start
    };
    std::fs::write(&model, old.bytes()).expect("because there is room");
    let time = std::fs::metadata(&model).and_then(|stat| stat.modified());
    start(&old).assert_all_missed();
    start(&old).assert_all_hit();
    std::fs::write(&model, new.bytes()).expect("because there is room");
    let file = std::fs::File::options().write(true).open(&model);
    let file = file.expect("because it is there");
    file.set_modified(time.expect("because it has one"))
        .expect("because it is ours");
    start(&new).assert_all_missed();
    start(&new).assert_all_hit();
}

#[test]
fn keys_that_differ_in_one_thing_only_are_of_other_files() {
    let base = [128, 256, 100, 90];
    let geometry = geometry_of(TileOrder::RowMajor, base);
    let weights = weights();
    let mut keys = vec![key(&weights, &geometry)];
    for (order, sizes) in [
        (TileOrder::Blocked, base),
        (TileOrder::RowMajor, [192, 256, 100, 90]),
        (TileOrder::RowMajor, [128, 384, 100, 90]),
        (TileOrder::RowMajor, [128, 256, 101, 90]),
        (TileOrder::RowMajor, [128, 256, 100, 91]),
    ] {
        keys.push(key(&weights, &geometry_of(order, sizes)));
    }
    keys.push(key(&Weights::new(47, 64, 2), &geometry));
    let fingerprint = PACKERS.tile_fingerprint(TileOrder::Blocked);
    let digest = weights.head().digest;
    keys.push(packhouse_image::ImageKey::new(
        &geometry,
        &digest,
        &fingerprint,
    ));
    let names: std::collections::BTreeSet<_> = keys.iter().map(|key| key.prefix()).collect();
    assert_eq!(names.len(), keys.len(), "{keys:?}");
}

/// Each of the scalars and tensors that feed a head names other files.
#[test]
fn each_part_of_a_head_changes_its_digest() {
    let digest = |vocabulary, width, tied, dtype, tensors: &[&[u8]]| {
        let dtype = packhouse_image::Dtype::new(dtype).expect("because it is printable");
        let one = NonZeroUsize::MIN;
        packhouse_image::HeadDigest::of(vocabulary, width, tied, &dtype, tensors, one)
    };
    let digests = [
        digest(47, 64, false, "F32", &[b"codes", b"scales"]),
        digest(48, 64, false, "F32", &[b"codes", b"scales"]),
        digest(47, 65, false, "F32", &[b"codes", b"scales"]),
        digest(47, 64, true, "F32", &[b"codes", b"scales"]),
        digest(47, 64, false, "F16", &[b"codes", b"scales"]),
        digest(47, 64, false, "F32", &[b"codes", b"scale."]),
        digest(47, 64, false, "F32", &[b"code.", b"scales"]),
        digest(47, 64, false, "F32", &[b"codess", b"cales"]),
        digest(47, 64, false, "F32", &[b"codesscales"]),
        digest(47, 64, false, "F32", &[b"codes", b"scales", b""]),
        digest(47, 64, false, "F32", &[b"scales", b"codes"]),
    ];
    let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(distinct.len(), digests.len());
}

#[test]
fn a_head_on_several_threads_has_the_same_digest() {
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i / 3) as u8).collect();
    let dtype = packhouse_image::Dtype::new("BF16").expect("because it is printable");
    let digest = |threads| {
        let threads = NonZeroUsize::new(threads).expect("because some are asked for");
        packhouse_image::HeadDigest::of(10, 20, true, &dtype, &[&bytes, b"x"], threads)
    };
    assert_eq!(digest(1), digest(3));
    assert_ne!(digest(1).bytes(), &[0; 32]);
}

#[test]
fn requests_that_cannot_be_right_are_refused_before_any_file_is_touched() {
    for geometry in geometries() {
        let (sim, weights) = (new_disk(), weights());
        start(&sim, settings(), &weights, &geometry);
        // An image that would be refused, if it were looked at.
        sim.rot(image_path(&weights, &geometry, 0), |bytes| bytes[0] ^= 1);
        let images = images(&sim, settings());
        let mut serve = serve(&images, weights.head(), &geometry);
        let count = sim.operation_count();
        let (codes_len, scales_len) = (geometry.code_bytes(), geometry.nd());
        let kpad = geometry.kpad();
        let mut try_tile = |tile, k, codes_len: u64, scales_len: u64| {
            let mut codes = vec![-128; codes_len as usize];
            let mut scales = vec![-1.0; scales_len as usize];
            let gather = |_: u64, _: &mut [f32]| -> Result<(), ()> { panic!("nobody is asked") };
            let gather = Gather::Parallel(&gather);
            let error = serve.tile(tile, k, gather, &mut codes, &mut scales);
            assert!(codes.iter().all(|code| *code == -128), "codes were written");
            assert!(
                scales.iter().all(|scale| *scale == -1.0),
                "scales were written"
            );
            match error {
                Err(TileError::Request(refusal)) => refusal.to_string(),
                other => panic!("not refused: {other:?}"),
            }
        };
        for k in [kpad - 1, kpad + 1, 0, u64::MAX] {
            let expected = format!("k is {k}, and kpad is {kpad}");
            assert_eq!(try_tile(0, k, codes_len, scales_len), expected);
        }
        for tile in [3, u64::MAX] {
            let expected = format!("tile is {tile}, and the head has 3");
            assert_eq!(try_tile(tile, kpad, codes_len, scales_len), expected);
        }
        for wrong in [0, codes_len - 1, codes_len + 1] {
            let expected = format!("codes are {wrong}, expected kd * nd, which is {codes_len}");
            assert_eq!(try_tile(0, kpad, wrong, scales_len), expected);
        }
        for wrong in [0, scales_len - 1, scales_len + 1] {
            let expected = format!("scales are {wrong}, expected nd, which is {scales_len}");
            assert_eq!(try_tile(0, kpad, codes_len, wrong), expected);
        }
        assert_eq!(*serve.counters(), packhouse_image::Counters::default());
        assert_eq!(sim.operation_count(), count);
    }
}

/// There is no request, and so no file, of a blocked geometry that would cut a block.
#[test]
fn blocked_geometries_that_would_cut_a_block_are_refused_before_there_is_a_request() {
    for (sizes, text) in [
        (
            [100, 128, 66, 20],
            "kd is 100, which the blocked order needs to be a multiple of 64",
        ),
        (
            [128, 192, 66, 20],
            "nd is 192, which the blocked order needs to be a multiple of 128",
        ),
    ] {
        let [kd, nd, kpad, t] = sizes;
        let sizes = TileSizes { kd, nd, kpad, t };
        let error = TileGeometry::new(TileOrder::Blocked, sizes);
        assert_eq!(
            error.map_err(|error| error.to_string()),
            Err(text.to_owned())
        );
        assert!(TileGeometry::new(TileOrder::RowMajor, sizes).is_ok());
    }
}

#[test]
fn heads_that_have_no_tiles_are_refused_with_their_numbers() {
    let [geometry, _] = geometries();
    let images = images(&new_disk(), settings());
    let refuse = |edit: fn(&mut packhouse_image::Head)| -> RequestRefusal {
        let mut head = weights().head();
        edit(&mut head);
        let serve = images.serve(PACKERS.clone(), head, geometry, owner());
        serve.err().expect("because it has no tiles")
    };
    for (edit, text) in [
        (
            (|head| head.width = 67) as fn(&mut packhouse_image::Head),
            "width is 67, expected 1 to kpad, which is 66",
        ),
        (
            |head| head.width = 0,
            "width is 0, expected 1 to kpad, which is 66",
        ),
        (
            |head| head.vocabulary = 0,
            "vocabulary is 0, expected 1 to 2000000: at most 100000 tiles of 20 columns",
        ),
        (
            |head| head.vocabulary = 2_000_001,
            "vocabulary is 2000001, expected 1 to 2000000: at most 100000 tiles of 20 columns",
        ),
    ] {
        assert_eq!(refuse(edit).to_string(), text);
    }
    let mut head = weights().head();
    head.vocabulary = 2_000_000;
    assert!(
        images
            .serve(PACKERS.clone(), head, geometry, owner())
            .is_ok()
    );
}

/// A caller's own error is the caller's: no refusal, nothing written, and the next start is right.
#[test]
fn an_error_of_a_column_comes_back_and_costs_no_image() {
    let [geometry, _] = geometries();
    let (sim, weights) = (new_disk(), weights());
    let fail_at = |sim, bad: u64| {
        let images = images(sim, settings());
        let mut serve = serve(&images, weights.head(), &geometry);
        let (mut codes, mut scales) = buffers(&geometry);
        let fill = |column, target: &mut [f32]| {
            weights.fill(column, target);
            if column == bad {
                Err("no such row")
            } else {
                Ok(())
            }
        };
        let gather = Gather::Parallel(&fill);
        let error = serve.tile(0, geometry.kpad(), gather, &mut codes, &mut scales);
        assert_eq!(error, Err(TileError::Gather("no such row")), "{bad}");
        (serve.counters().clone(), image_files(sim))
    };
    let (counters, files) = fail_at(&sim, 5);
    assert_eq!((counters.tiles_packed, counters.tiles_written), (0, 0));
    assert!(files.is_empty(), "{files:?}");
    start(&sim, settings(), &weights, &geometry).assert_all_missed();
    let before = sim.read(image_path(&weights, &geometry, 0));
    let (counters, _) = fail_at(&sim, 19);
    assert_eq!((counters.tiles_hit, counters.tiles_refused()), (0, 0));
    assert_eq!(sim.read(image_path(&weights, &geometry, 0)), before);
    start(&sim, settings(), &weights, &geometry).assert_all_hit();
}

#[test]
fn tiles_come_in_any_order_and_again() {
    let [_, geometry] = geometries();
    let (sim, weights) = (new_disk(), weights());
    let images = images(&sim, settings());
    let mut serve = serve(&images, weights.head(), &geometry);
    for (tile, hit) in [(2, false), (0, false), (2, true), (1, false), (0, true)] {
        let (mut codes, mut scales) = buffers(&geometry);
        let fill = |column, target: &mut [f32]| {
            weights.fill(column, target);
            Ok::<(), ()>(())
        };
        let gather = Gather::Parallel(&fill);
        let served = serve.tile(tile, geometry.kpad(), gather, &mut codes, &mut scales);
        let outcome = served.expect("because no column fails").outcome;
        assert_eq!(outcome == Outcome::Hit, hit, "tile {tile}");
        assert_eq!(codes, weights.judged(&geometry, tile).0);
    }
    assert_eq!(serve.counters().tiles(), 5);
}

/// Two models with one head: one set of images, which stays while one of them uses it.
#[test]
fn two_owners_of_one_head_share_its_images() {
    let [geometry, _] = geometries();
    let (sim, weights) = (new_disk(), weights());
    let run = |owner: &str, weights: &Weights| {
        let images = images(&sim, settings());
        let owner = Owner::new(owner).expect("because it is short");
        let serve = images.serve(PACKERS.clone(), weights.head(), geometry, owner);
        let mut serve = serve.expect("because the head fits");
        for tile in 0..3 {
            let (mut codes, mut scales) = buffers(&geometry);
            let fill = |column, target: &mut [f32]| {
                weights.fill(column, target);
                Ok::<(), ()>(())
            };
            let gather = Gather::Parallel(&fill);
            let served = serve.tile(tile, geometry.kpad(), gather, &mut codes, &mut scales);
            assert!(served.is_ok());
        }
        serve.counters().clone()
    };
    assert_eq!(run("one", &weights).tiles_written, 3);
    assert_eq!(run("other", &weights).tiles_hit, 3, "shared");
    let new = Weights::new(47, 64, 4);
    assert_eq!(
        run("one", &new).files_removed,
        0,
        "the other still serves it"
    );
    assert_eq!(run("other", &weights).tiles_hit, 3);
    assert_eq!(run("other", &new).files_removed, 3, "nobody does any more");
}

/// The shapes at which tiles have edges.
#[test]
fn ragged_and_single_columns_and_narrow_heads_are_served_bit_for_bit() {
    for (order, sizes, vocabulary, width) in [
        (TileOrder::RowMajor, [1, 1, 1, 1], 1, 1),
        (TileOrder::RowMajor, [1, 1, 1, 1], 3, 1),
        (TileOrder::RowMajor, [5, 9, 5, 9], 10, 5),
        (TileOrder::RowMajor, [33, 40, 31, 40], 41, 17),
        (TileOrder::RowMajor, [16, 40, 16, 10], 29, 16),
        (TileOrder::Blocked, [64, 128, 64, 128], 129, 64),
        (TileOrder::Blocked, [64, 128, 3, 5], 11, 1),
        (TileOrder::Blocked, [128, 256, 65, 200], 207, 64),
    ] {
        let geometry: TileGeometry = geometry_of(order, sizes);
        let (sim, weights) = (new_disk(), Weights::new(vocabulary, width, 5));
        let first = start(&sim, settings(), &weights, &geometry);
        first.assert_all_missed();
        first.assert_right(&weights, &geometry);
        let second = start(&sim, settings(), &weights, &geometry);
        second.assert_all_hit();
        second.assert_right(&weights, &geometry);
        let sampled: u64 = (0..geometry.tile_count(vocabulary))
            .map(|tile| geometry.tile_columns(vocabulary, tile))
            .map(|columns| (columns.end - columns.start).min(8))
            .sum();
        assert_eq!(second.asked, sampled, "{geometry:?}");
    }
}

/// Values at which quantisers go wrong: an image of them is what the judge makes, and hits.
#[test]
fn columns_of_odd_values_are_served_bit_for_bit() {
    let rows = [
        [f32::NAN, 1.0, -2.0, f32::INFINITY],
        [f32::NEG_INFINITY, f32::NAN, f32::INFINITY, f32::NAN],
        [0.0, -0.0, 0.0, -0.0],
        [9e-13, -9e-13, 1e-20, f32::MIN_POSITIVE],
        [1e-12, -1e-12, 5e-13, 0.0],
        // Halves of a scale of 1: away from zero.
        [127.0, 0.5, -0.5, 2.5],
        [127.0, 63.5, -63.5, -127.0],
        [f32::MAX, -f32::MAX, f32::MAX / 2.0, 1.0],
        [1.0e-45, 0.0, f32::NAN, 0.0],
        [127.49, -127.5, 127.5, 3.0],
    ];
    for geometry in [
        geometry_of(TileOrder::RowMajor, [7, 11, 6, 9]),
        geometry_of(TileOrder::Blocked, [64, 128, 6, 9]),
    ] {
        let weights = Weights {
            vocabulary: rows.len() as u64,
            width: 4,
            values: rows.concat(),
        };
        let sim = new_disk();
        start(&sim, settings(), &weights, &geometry).assert_right(&weights, &geometry);
        let second = start(&sim, settings(), &weights, &geometry);
        second.assert_all_hit();
        second.assert_right(&weights, &geometry);
    }
}

#[test]
fn padding_columns_have_code_0_and_the_scale_of_zeros() {
    for geometry in geometries() {
        let (sim, weights) = (new_disk(), weights());
        start(&sim, settings(), &weights, &geometry);
        let start = start(&sim, settings(), &weights, &geometry);
        let last = &start.tiles[2];
        assert!(
            last.scales[7..]
                .iter()
                .all(|scale| scale.to_bits() == 0x3c01_0204)
        );
        for column in 7..geometry.nd() {
            for row in 0..geometry.kd() {
                let code = last.codes[geometry.position(row, column) as usize];
                assert_eq!(code, 0, "row {row} of column {column}");
            }
        }
    }
}

#[test]
fn a_name_has_one_spelling() {
    let name = ImageName::new(&key(&weights(), &geometries()[0]), 7);
    let name = name.expect("because there are few tiles");
    let text = name.to_string();
    assert_eq!(text.len(), 32 + "-t00007.phti".len());
    assert_eq!(ImageName::parse(&text), Some(name));
    for wrong in [
        text.to_uppercase(),
        text.replace("-t00007", "-t7"),
        text.replace("-t00007", "-t000007"),
        text.replace("-t00007", "-t+0007"),
        text.replace(".phti", ".phtI"),
        text[1..].to_owned(),
        format!("0{text}"),
        format!(".{text}"),
        String::new(),
    ] {
        assert_eq!(ImageName::parse(&wrong), None, "{wrong}");
    }
    assert_eq!(
        ImageName::new(&key(&weights(), &geometries()[0]), 100_000),
        None
    );
}

#[test]
fn the_size_of_an_image_is_the_formula() {
    let geometry = geometry_of(TileOrder::Blocked, [4096, 28_672, 4096, 28_672]);
    assert_eq!(file_bytes(&geometry), 4096 + 4096 * 28_672 + 4 * 28_672);
    let [small, _] = geometries();
    let sim = new_disk();
    start(&sim, Settings { ..settings() }, &weights(), &small);
    for path in image_files(&sim) {
        let length = sim.read(&path).map(|bytes| bytes.len() as u64);
        assert_eq!(length, Some(4096 + 70 * 24 + 4 * 24), "{path}");
    }
    let written = |outcome: &Outcome| match outcome {
        Outcome::Packed {
            written: Written::Yes { bytes },
            ..
        } => *bytes,
        other => panic!("not written: {other:?}"),
    };
    let sim = new_disk();
    let start = start(&sim, settings(), &weights(), &small);
    assert!(
        start
            .outcomes()
            .into_iter()
            .all(|outcome| written(outcome) == file_bytes(&small))
    );
    assert!(image_files(&sim).iter().all(|path| path.starts_with(V1)));
}
