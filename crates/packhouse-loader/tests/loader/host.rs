//! Hosts that give less: no state, no home, no writable root, file systems that are not mapped.

use crate::fake::PLAIN;
use crate::fill::Tmpfs;
use crate::world::{Model, SMALL, World, edit_file};
use packhouse_loader::Settings;
use packhouse_sys::map::{Backing, Region};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::Arc;

#[test]
fn without_a_home_the_engine_packs_and_the_line_says_so() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    for (root, state) in [
        (None, world.settings.state.clone()),
        (world.settings.root.clone(), None),
    ] {
        let settings = Settings {
            root,
            state,
            ..world.settings.clone()
        };
        let outcome = world.session_with(PLAIN, settings).load(0, &[&model]);
        assert_eq!(outcome.counts(), [0, 0, 4, 4]);
        assert_eq!(outcome.reason("refused", "store"), 4);
        let line = "0 tensors mapped, 4 packed (11.1 KiB), 4 refused (store 4); no store: no home ";
        assert!(outcome.line.starts_with(line), "{}", outcome.line);
        assert_eq!(outcome.lines.len(), 1);
        outcome.assert_fill("none");
        assert_eq!(outcome.number("source_bytes_read"), 0);
    }
}

#[test]
fn a_state_that_is_gone_costs_hashing_once() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    fs::remove_dir_all(world.path("state")).expect("because it is there");
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.reason("verified", "reverified"), 4);
    assert_eq!(hit.number("source_bytes_hashed"), model.bytes());
    let next = world.load(PLAIN, &[&model]);
    next.assert_all_mapped(&[&model]);
    assert_eq!(next.reason("verified", "receipt"), 4);
    assert_eq!(next.number("source_bytes_hashed"), 0);
}

#[test]
fn a_state_that_can_not_be_had_costs_hashing_each_time_and_the_line_says_why() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    // A folder that others may enter is not private; a file is no folder.
    let open = world.path("open");
    fs::create_dir(&open).expect("because the folder is ours");
    world.load(PLAIN, &[&model]).assert_fill("done");
    let id = world.store().id().to_string();
    fs::create_dir(open.join(&id)).expect("because the folder is ours");
    let mode = Permissions::from_mode(0o755);
    fs::set_permissions(open.join(&id), mode).expect("because it is ours");
    let file = world.path("file");
    fs::write(&file, b"").expect("because the folder is ours");
    for (state, why) in [
        (open, "mode 0755 lets others in"),
        (file, "is a regular file"),
    ] {
        let settings = Settings {
            state: Some(state),
            ..world.settings.clone()
        };
        for _ in 0..2 {
            let hit = world
                .session_with(PLAIN, settings.clone())
                .load(0, &[&model]);
            assert_eq!(hit.counts(), [4, 0, 0, 0]);
            assert_eq!(hit.reason("verified", "reverified"), 4);
            assert!(hit.line.contains("; no private state: "), "{}", hit.line);
            assert!(hit.line.contains(why), "{}", hit.line);
        }
        // What is not there yet can't be stored without the locks in the state.
        let other = world.model("b.gguf", SMALL, 2);
        let miss = world.session_with(PLAIN, settings).load(0, &[&other]);
        assert_eq!(miss.counts(), [0, 0, 4, 0]);
        miss.assert_fill("stopped");
        assert_eq!(miss.warnings().len(), 1, "{miss:#?}");
    }
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

#[test]
fn a_read_only_store_hits_and_stores_nothing() {
    let world = World::new();
    let (model, other) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 2),
    );
    world.fill(PLAIN, &[&model]);
    let settings = Settings {
        read_only: true,
        ..world.settings.clone()
    };
    let load = |model: &Model| {
        world
            .session_with(PLAIN, settings.clone())
            .load(0, &[model])
    };
    let hit = load(&model);
    assert_eq!(hit.counts(), [4, 0, 0, 0]);
    assert_eq!(hit.number("source_bytes_hashed"), 0);
    let miss = load(&other);
    assert_eq!(miss.counts(), [0, 0, 4, 0]);
    assert!(!miss.line.contains("writing"), "{}", miss.line);
    assert_eq!(miss.report["fill"]["stored"]["tensors"], 0);
    world.load(PLAIN, &[&other]).assert_fill("done");
    world.load(PLAIN, &[&other]).assert_all_mapped(&[&other]);
}

/// Needs root, for the mount.
#[test]
fn a_root_on_a_read_only_mount_hits_and_stores_nothing() {
    let world = World::new();
    let (model, other) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 2),
    );
    let Some(mount) = Tmpfs::mount(&world.root(), "size=11g") else {
        return;
    };
    world.fill(PLAIN, &[&model]);
    mount.remount("ro");
    let hit = world.load(PLAIN, &[&model]);
    assert_eq!(hit.counts(), [4, 0, 0, 0], "{hit:#?}");
    assert_eq!(hit.number("source_bytes_hashed"), 0);
    let miss = world.load(PLAIN, &[&other]);
    assert_eq!(miss.counts(), [0, 0, 4, 0]);
    assert_eq!(miss.report["fill"]["stored"]["tensors"], 0);
    mount.remount("rw");
    world.load(PLAIN, &[&other]).assert_fill("done");
    world.load(PLAIN, &[&other]).assert_all_mapped(&[&other]);
}

#[test]
fn a_root_that_is_not_ours_alone_is_no_store() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let chmod = |mode| {
        let mode = Permissions::from_mode(mode);
        fs::set_permissions(world.root(), mode).expect("because it is ours");
    };
    chmod(0o777);
    let outcome = world.load(PLAIN, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 4, 4]);
    let why = "has mode 0777: others than its owner can change it";
    assert!(outcome.line.ends_with(why), "{}", outcome.line);
    chmod(0o755);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// ramfs stands for every file system that is not known to be safe to map. It says that it has no
/// room, so the store is filled elsewhere and copied there. Needs root, for the mount.
#[test]
fn objects_on_an_unknown_file_system_are_read_into_private_memory_and_hashed_each_time() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let root = world.path("far");
    let Some(_mount) = Tmpfs::mount_as("ramfs", &root, "mode=0755") else {
        return;
    };
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(world.root().join(".")).arg(&root);
    assert!(copy.status().expect("because cp is there").success());
    let settings = Settings {
        root: Some(root.clone()),
        ..world.settings.clone()
    };
    let load = || {
        let session = world.session_with(PLAIN, settings.clone());
        let mut run = session.begin(0, &[&model]);
        run.serve_all(&[&model]);
        let private = |region: &Arc<Region>| region.backing() == Backing::Private;
        assert!(
            run.regions.iter().all(private),
            "nothing is mapped from there"
        );
        run.outcome()
    };
    for _ in 0..2 {
        let outcome = load();
        assert_eq!(outcome.counts(), [0, 4, 0, 0]);
        assert_eq!(outcome.reason("verified", "reverified"), 4);
        let line = "0 tensors mapped, 4 copied (11.1 KiB), 0 packed, 0 refused; 13 samples in \
                    0 us; 4 verified anew (11.1 KiB)";
        assert_eq!(outcome.line, line);
    }
    let objects = root.join("v1/objects");
    let name = &crate::processes::names(&objects)[0];
    edit_file(&objects.join(&name[..2]).join(name), |file| {
        file.write_all_at(b"x", 1000)
            .expect("because it is writable");
    });
    let outcome = load();
    assert_eq!(outcome.counts(), [0, 3, 1, 1]);
    assert_eq!(outcome.reason("refused", "corrupt"), 1);
    outcome.assert_fill("stopped");
    assert!(
        outcome.warnings()[0].contains("the disk has 0 B free"),
        "{outcome:#?}"
    );
}

/// Stat proves nothing there: the source is hashed at each load, and a pack is stored only if it
/// hashes to the same after packing.
#[test]
fn a_source_on_an_unknown_file_system_is_hashed_at_each_load() {
    let world = World::new();
    let folder = world.path("models");
    let Some(_mount) = Tmpfs::mount_as("ramfs", &folder, "mode=0755") else {
        return;
    };
    let model = world.model("models/a.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let path = model.path.clone();
    let offset = model.tensors[1].offset;
    session.engine.before_pack(move |source| {
        if source.len() == 3264 {
            let file = fs::File::options()
                .write(true)
                .open(&path)
                .expect("because it is there");
            let edited = file.write_all_at(&[0x5a; 64], offset);
            edited.expect("because it is writable");
        }
    });
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 4, 0]);
    assert!(
        outcome.line.contains("changed while it was packed"),
        "{}",
        outcome.line
    );
    world.load(PLAIN, &[&model]).assert_fill("done");
    for _ in 0..2 {
        let hit = world.load(PLAIN, &[&model]);
        assert_eq!(hit.counts(), [4, 0, 0, 0]);
        assert_eq!(hit.number("source_bytes_hashed"), model.bytes());
    }
}
