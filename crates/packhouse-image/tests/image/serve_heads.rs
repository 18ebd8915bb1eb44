//! What a start says of its head, and where it looks.

use crate::serve_world::{
    PACKERS, geometries, images, new_disk, owner, settings, start, start_as, weights,
};
use packhouse_base::Blame;
use packhouse_image::{GGML_VALUES, Head, HeadDigest, Mode, Settings};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

/// A forgotten digest would find and write images of any head; with images off nobody asks for it.
#[test]
fn a_head_that_was_never_hashed_is_refused_while_images_are_on() {
    let [geometry, _] = geometries();
    let head = || Head {
        digest: HeadDigest::NONE,
        ..weights().head()
    };
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        let sim = new_disk();
        start(&sim, settings(), &weights(), &geometry);
        let images = images(&sim, Settings { mode, ..settings() });
        let refused = images.serve(PACKERS.clone(), head(), geometry, owner());
        let refused = refused.err().expect("because it has no digest");
        let zeros = "00".repeat(32);
        let text = format!("the head's digest is {zeros}, and images are on");
        assert_eq!(refused.to_string(), text);
        assert_eq!(refused.blame(), Blame::Caller);
    }
    let off = Settings {
        mode: Mode::Off,
        ..settings()
    };
    let sim = new_disk();
    let start = start_as(&images(&sim, off), head(), &weights(), &geometry);
    start.assert_right(&weights(), &geometry);
}

/// Who says nothing looks elsewhere at each start, and the line says where.
#[test]
fn a_seed_that_nobody_gives_is_drawn_at_each_start() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    let drawn = || Settings {
        seed: None,
        ..settings()
    };
    assert_eq!(Settings::default().seed, None);
    let mut seeds = BTreeSet::new();
    for _ in 0..5 {
        let images = images(&sim, drawn());
        let start = start_as(&images, weights().head(), &weights(), &geometry);
        let said = format!("(seed {:x})", images.seed());
        assert!(start.line.contains(&said), "{}", start.line);
        seeds.insert(images.seed());
    }
    assert_eq!(seeds.len(), 5);
    let given = Settings {
        seed: Some(77),
        ..settings()
    };
    assert_eq!(images(&sim, given).seed(), 77);
}

/// The code that makes floats of a head takes part in its digest as whoever reads it says.
#[test]
fn a_head_that_other_code_reads_is_another_head() {
    let (bytes, dtype) = (weights().bytes(), weights().head().dtype);
    let digest =
        |tensors: &[&[u8]]| HeadDigest::of(47, 64, false, &dtype, tensors, NonZeroUsize::MIN);
    assert_eq!(GGML_VALUES, b"ggml-values/1");
    let readers = [
        digest(&[&bytes]),
        digest(&[&bytes, GGML_VALUES]),
        digest(&[&bytes, b"ggml-values/2"]),
    ];
    let distinct: BTreeSet<_> = readers.iter().collect();
    assert_eq!(distinct.len(), 3);
}
