//! What each trust asks of an object, by the counters.

use crate::fake::{PLAIN, Packer};
use crate::world::{SMALL, WIDE, World, edit_file};
use packhouse_loader::{Settings, Trust};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

fn settings(world: &World, trust: Trust) -> Settings {
    Settings {
        trust,
        ..world.settings.clone()
    }
}

/// The only object of a store.
fn object(world: &World) -> PathBuf {
    let folder = fs::read_dir(world.root().join("v1/objects")).expect("because it is there");
    let mut files = folder.flat_map(|aa| {
        let aa = aa.expect("because it was listed").path();
        fs::read_dir(aa).expect("because it is a folder")
    });
    let file = files.next().expect("because one object was stored");
    assert!(files.next().is_none());
    file.expect("because it was listed").path()
}

#[test]
fn each_trust_verifies_as_it_says() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    for (trust, how) in [
        (Trust::Receipt, "receipt"),
        (Trust::Deep, "deep"),
        (Trust::Sample, "sample"),
    ] {
        let session = world.session_with(PLAIN, settings(&world, trust));
        let outcome = session.load(0, &[&model]);
        outcome.assert_all_mapped(&[&model]);
        assert_eq!(outcome.reason("verified", how), 4, "{trust:?}");
        let verified = outcome.report["tally"]["verified"].as_object();
        assert_eq!(verified.map(serde_json::Map::len), Some(1), "{trust:?}");
        assert_eq!(outcome.report["tally"]["samples"]["taken"], 13, "{trust:?}");
    }
}

/// A byte flipped in a unit that is not sampled, and its receipt forged to fit: only `deep` can see
/// it.
#[test]
fn deep_finds_what_a_forged_receipt_hides() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let store = world.store();
    let set = store.list_sets().expect("because the store is sound")[0];
    let entry = store.read_set(set).expect("because it is there").entries()[0].clone();
    let name = entry.object.to_string();
    let path = world.root().join("v1/objects").join(&name[..2]).join(&name);
    edit_file(&path, |file| {
        file.write_all_at(b"x", 7).expect("because it is writable");
    });
    let receipts = store.receipts().expect("because there is a state");
    let file = fs::File::open(&path).expect("because it is there");
    let mut receipt = receipts
        .find(entry.object)
        .expect("because it was recorded");
    use std::os::fd::AsFd as _;
    receipt.stat = packhouse_sys::real::identity_of_fd(file.as_fd()).expect("because it is open");
    receipts.record(&receipt).expect("because it is writable");
    let session = world.session_with(PLAIN, settings(&world, Trust::Deep));
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [3, 0, 1, 1]);
    assert_eq!(outcome.reason("refused", "corrupt"), 1);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// The same, where the byte is in a sampled unit: the sample is what is left to see it.
#[test]
fn the_sample_finds_what_a_forged_receipt_hides_and_the_object_is_replaced() {
    for trust in [Trust::Receipt, Trust::Sample] {
        let world = World::new();
        let model = world.model("a.gguf", &SMALL[..1], 1);
        world.fill(PLAIN, &[&model]);
        let path = object(&world);
        edit_file(&path, |file| {
            file.write_all_at(b"x", 7).expect("because it is writable");
        });
        let store = world.store();
        let receipts = store.receipts().expect("because there is a state");
        let digest = receipts.objects().expect("because there is a state")[0];
        let mut receipt = receipts.find(digest).expect("because it was recorded");
        let file = fs::File::open(&path).expect("because it is there");
        use std::os::fd::AsFd as _;
        let identity = packhouse_sys::real::identity_of_fd(file.as_fd());
        receipt.stat = identity.expect("because it is open");
        receipts.record(&receipt).expect("because it is writable");
        let session = world.session_with(PLAIN, settings(&world, trust));
        let outcome = session.load(0, &[&model]);
        assert_eq!(outcome.counts(), [0, 0, 1, 1], "{trust:?}");
        assert_eq!(outcome.reason("refused", "sample"), 1);
        let says = "differs from the live weights in rows 0 to 7, byte 7 of them: 0x78 stored";
        assert!(outcome.line.contains(says), "{}", outcome.line);
        let session = world.session_with(PLAIN, settings(&world, trust));
        session.load(0, &[&model]).assert_all_mapped(&[&model]);
        world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    }
}

#[test]
fn a_packer_whose_units_do_not_pack_alone_packs_whole_and_is_not_sampled() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    let serial = Packer {
        by_units: false,
        ..PLAIN
    };
    let session = world.session(serial);
    session.load(0, &[&model]).assert_fill("done");
    assert_eq!(
        session.engine.heard().runs,
        [2_304_000],
        "one run, the whole tensor"
    );
    for (trust, how) in [(Trust::Receipt, "receipt"), (Trust::Deep, "deep")] {
        let session = world.session_with(serial, settings(&world, trust));
        let outcome = session.load(0, &[&model]);
        outcome.assert_all_mapped(&[&model]);
        assert_eq!(outcome.reason("verified", how), 1);
        assert_eq!(outcome.number("source_bytes_read"), 0);
        assert_eq!(session.engine.heard().runs, [0; 0]);
    }
    // Samples alone prove nothing here.
    let session = world.session_with(serial, settings(&world, Trust::Sample));
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 1, 1]);
    assert_eq!(outcome.reason("refused", "no-samples"), 1);
    let why = "output.weight: this packer packs no units alone";
    assert!(outcome.line.contains(why), "{}", outcome.line);
}

/// Units that are not in memory are read only while the load's time for that lasts.
#[test]
fn samples_that_would_read_from_the_disk_too_long_are_left_out_and_counted() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let model = cold(&world, model);
    let session = world.session(PLAIN);
    let clock = world.clock.clone();
    // Two samples use the 100 ms up.
    session
        .engine
        .before_pack(move |_| clock.advance_ns(60_000_000));
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [1, 0, 0, 0]);
    let samples = &outcome.report["tally"]["samples"];
    let (taken, skipped) = (samples["taken"].as_u64(), samples["skipped"].as_u64());
    assert_eq!((taken, skipped), (Some(2), Some(6)), "{outcome:#?}");
    let says = "; 2 samples in 120 ms (6 left out, not in memory)";
    assert!(outcome.line.ends_with(says), "{}", outcome.line);
}

/// Where samples are all the proof there is, none is left out however long it takes.
#[test]
fn with_trust_in_samples_alone_none_is_left_out() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let model = cold(&world, model);
    let session = world.session_with(PLAIN, settings(&world, Trust::Sample));
    let clock = world.clock.clone();
    session
        .engine
        .before_pack(move |_| clock.advance_ns(60_000_000));
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [1, 0, 0, 0]);
    assert_eq!(outcome.reason("verified", "sample"), 1);
    let samples = &outcome.report["tally"]["samples"];
    let (taken, skipped) = (samples["taken"].as_u64(), samples["skipped"].as_u64());
    assert_eq!((taken, skipped), (Some(8), Some(0)), "{outcome:#?}");
}

/// The model with none of its bytes in the page cache.
fn cold(world: &World, model: crate::world::Model) -> crate::world::Model {
    use packhouse_sys::source_map::is_resident;
    let path = model.path.clone();
    drop(model);
    let file = fs::File::open(&path).expect("because it is there");
    file.sync_all().expect("because the disk works");
    let model = crate::world::Model::open(&path);
    crate::world::until("the source left the page cache", || {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .expect("because it is a file");
        let source = model.source(0);
        source.chunks(2304).all(|unit| !is_resident(unit))
    });
    assert!(world.root().exists());
    model
}
