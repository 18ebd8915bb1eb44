//! Staged sets are searched before the store; what is wrong with one is named, and the store
//! serves.

use crate::fake::{PLAIN, Packer};
use crate::world::{Outcome, SMALL, World, edit_file};
use packhouse_base::digest::SetKey;
use packhouse_loader::{Settings, Trust};
use packhouse_stage::{StageOptions, StageOutcome, StageRoot, Watcher, open, stage};
use packhouse_store::root::Owners;
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

impl World {
    fn stage_root(&self) -> StageRoot {
        let owners = Owners::new(RealFs.effective_uid(), &[]);
        let path = self.path("stage");
        StageRoot::make(Arc::new(RealFs), self.clock.clone(), &path, &owners)
            .expect("because the folder is this user's")
    }

    /// Stages the store's only set.
    fn stage(&self) -> (SetKey, StageOutcome) {
        let store = self.store();
        let set = store.list_sets().expect("because the store is sound")[0];
        let options = StageOptions {
            min_free_bytes: 0,
            ..StageOptions::default()
        };
        let quiet = Watcher {
            tell: &|_| (),
            cancel: &|| false,
        };
        let staged = stage(&store, &self.stage_root(), set, &options, quiet);
        (set, staged.expect("because nothing is in the way").outcome)
    }

    /// The copy of the set's first object.
    fn first_copy(&self, set: SetKey) -> PathBuf {
        let staged = open(&self.stage_root(), set).expect("because it was staged");
        let object = staged.manifest().entries()[0].object.to_string();
        staged.path().join("objects").join(object)
    }

    /// Takes the store away, so that only stages can serve.
    fn hide_store(&self) {
        let hidden = self.path("hidden");
        fs::rename(self.root(), hidden).expect("because it is there");
    }
}

fn staged(outcome: &Outcome) -> u64 {
    outcome.report["tally"]["staged"]["tensors"]
        .as_u64()
        .expect("because it is counted")
}

fn stage_refused(outcome: &Outcome, reason: &str) -> u64 {
    outcome.report["tally"]["stage_refused"][reason]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn a_staged_set_serves_before_the_store_and_the_line_says_so() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    assert_eq!(staged(&world.load(PLAIN, &[&model])), 0);
    world.stage();
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(staged(&hit), 4);
    assert_eq!(hit.reason("verified", "receipt"), 4);
    let line = "4 tensors mapped (11.1 KiB), 4 of them staged, 0 packed, 0 refused; 13 samples in ";
    assert!(hit.line.starts_with(line), "{}", hit.line);
    // The same without one byte of the store's objects.
    fs::remove_dir_all(world.root().join("v1/objects")).expect("because it is there");
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(staged(&hit), 4);
    assert_eq!(hit.warnings(), [""; 0]);
}

#[test]
fn each_trust_is_kept_for_staged_copies() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    world.stage();
    for (trust, how) in [
        (Trust::Receipt, "receipt"),
        (Trust::Deep, "deep"),
        (Trust::Sample, "receipt"),
    ] {
        let settings = Settings {
            trust,
            ..world.settings.clone()
        };
        let outcome = world.session_with(PLAIN, settings).load(0, &[&model]);
        outcome.assert_all_mapped(&[&model]);
        assert_eq!((staged(&outcome), outcome.reason("verified", how)), (4, 4));
    }
}

#[test]
fn a_damaged_copy_is_named_and_the_store_serves_it() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let (set, _) = world.stage();
    edit_file(&world.first_copy(set), |file| {
        file.write_all_at(b"x", 7).expect("because it is writable");
    });
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!((staged(&hit), stage_refused(&hit, "stale")), (3, 1));
    assert!(hit.line.contains("; not staged: "), "{}", hit.line);
    assert!(hit.line.contains("is not what was hashed"), "{}", hit.line);
    // The stage is healed by the next `stage`, not by a load.
    assert!(matches!(world.stage().1, StageOutcome::Replaced { .. }));
    assert_eq!(staged(&world.load(PLAIN, &[&model])), 4);
}

/// Deep hashes the copy; a byte that rotted under its receipt is found, and the store serves.
#[test]
fn deep_finds_a_rotten_copy_whose_receipt_was_made_to_fit() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let (set, _) = world.stage();
    forge(&world, set);
    let settings = Settings {
        trust: Trust::Deep,
        ..world.settings.clone()
    };
    let outcome = world.session_with(PLAIN, settings).load(0, &[&model]);
    outcome.assert_all_mapped(&[&model]);
    assert_eq!(
        (staged(&outcome), stage_refused(&outcome, "corrupt")),
        (3, 1)
    );
    // By receipt nobody sees it but a sample: then the store's object takes the copy's place, and
    // stays where it is, as does its record.
    for _ in 0..2 {
        let outcome = world.load(PLAIN, &[&model]);
        outcome.assert_all_mapped(&[&model]);
        assert_eq!(
            (staged(&outcome), stage_refused(&outcome, "sample")),
            (3, 1)
        );
        assert!(
            outcome
                .line
                .contains("differs from the live weights in rows 0 to 7")
        );
    }
}

/// Flips a byte of a copy and forges the receipt of it.
fn forge(world: &World, set: SetKey) {
    let path = world.first_copy(set);
    edit_file(&path, |file| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 7)
            .expect("because it is inside");
        file.write_all_at(&[!byte[0]], 7)
            .expect("because it is writable");
    });
    let staged = open(&world.stage_root(), set).expect("because it was staged");
    let mut receipts = staged.receipts().clone();
    let file = fs::File::open(&path).expect("because it is there");
    use std::os::fd::AsFd as _;
    let now = packhouse_sys::real::identity_of_fd(file.as_fd()).expect("because it is open");
    let name = path.file_name().and_then(|name| name.to_str());
    let copies = &mut receipts.copies;
    let copy = copies
        .iter_mut()
        .find(|copy| Some(copy.object.to_string().as_str()) == name)
        .expect("because it has a receipt");
    (copy.mtime_ns, copy.ctime_ns) = (now.mtime_ns, now.ctime_ns);
    receipts.mode = now.mode;
    let path = staged.path().join("receipts.json");
    fs::remove_file(&path).expect("because it is there");
    fs::write(&path, receipts.render()).expect("because the folder is ours");
}

#[test]
fn without_a_store_the_stage_serves_and_the_rest_is_packed() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    world.stage();
    let other = world.model("b.gguf", SMALL, 2);
    for (root, state) in [
        (None, world.settings.state.clone()),
        (world.settings.root.clone(), None),
    ] {
        let settings = Settings {
            root,
            state,
            ..world.settings.clone()
        };
        let outcome = world
            .session_with(PLAIN, settings.clone())
            .load(0, &[&model]);
        assert_eq!(outcome.counts(), [4, 0, 0, 0]);
        assert_eq!(staged(&outcome), 4);
        // No ledger without a store: the source is hashed at each load.
        assert_eq!(outcome.number("source_bytes_hashed"), model.bytes());
        outcome.assert_fill("none");
        let outcome = world.session_with(PLAIN, settings).load(0, &[&other]);
        assert_eq!(outcome.counts()[..3], [0, 0, 4]);
    }
}

#[test]
fn a_new_store_beside_a_stage_is_not_filled_with_what_the_stage_has() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    world.stage();
    world.hide_store();
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(staged(&hit), 4);
    assert_eq!(hit.report["fill"]["set"], serde_json::Value::Null);
    assert_eq!(hit.report["fill"]["complaint"], serde_json::Value::Null);
    assert!(world.store().list_sets().is_ok_and(|sets| sets.is_empty()));
}

#[test]
fn a_stage_root_that_is_not_ours_alone_is_named_and_the_store_serves() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    world.stage();
    let mode = |mode| {
        fs::set_permissions(world.path("stage"), fs::Permissions::from_mode(mode))
            .expect("because it is ours");
    };
    mode(0o750);
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!((staged(&hit), stage_refused(&hit, "root_mode")), (0, 1));
    assert!(
        hit.line.contains("has mode 0750, expected 0700"),
        "{}",
        hit.line
    );
    mode(0o700);
    assert_eq!(staged(&world.load(PLAIN, &[&model])), 4);
    // A file, then a symlink, where the folder should be.
    fs::rename(world.path("stage"), world.path("moved")).expect("because it is there");
    fs::write(world.path("stage"), "").expect("because the name is free");
    let hit = world.load(PLAIN, &[&model]);
    assert_eq!((staged(&hit), stage_refused(&hit, "root")), (0, 1));
    fs::remove_file(world.path("stage")).expect("because it is there");
    std::os::unix::fs::symlink(world.path("moved"), world.path("stage"))
        .expect("because the name is free");
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert!(hit.line.contains("is a symlink"), "{}", hit.line);
}

#[test]
fn a_spoiled_stage_is_named_and_the_store_serves() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let (set, _) = world.stage();
    let staged_path = open(&world.stage_root(), set).map(|staged| staged.path().to_owned());
    let path = staged_path
        .expect("because it was staged")
        .join("manifest.json");
    edit_file(&path, |file| {
        file.write_all_at(b"[", 0).expect("because it is writable");
    });
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!((staged(&hit), stage_refused(&hit, "differs")), (0, 1));
}

#[test]
fn a_pack_of_another_packer_in_a_stage_is_no_hit() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    world.stage();
    let other = Packer {
        turn: PLAIN.turn + 1,
        ..PLAIN
    };
    let outcome = world.load(other, &[&model]);
    assert_eq!(staged(&outcome), 0);
    assert_eq!(outcome.counts()[..3], [0, 0, 4]);
}

#[test]
fn an_unstaged_set_is_served_by_the_store_and_open_loads_stay() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let (set, _) = world.stage();
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    run.serve_all(&[&model]);
    packhouse_stage::unstage(&world.stage_root(), set).expect("because it was staged");
    let last = model.tensors.len() - 1;
    run.assert_right(&model, last, &model.read(last));
    assert_eq!(staged(&run.outcome()), 4);
    run.load.close();
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(staged(&hit), 0);
    assert_eq!(
        hit.report["tally"]["first_stage_refusal"],
        serde_json::Value::Null
    );
}
