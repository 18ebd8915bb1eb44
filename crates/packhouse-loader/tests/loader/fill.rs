//! A fill that can't store everything stops with one line, and a later start goes on.

use crate::fake::PLAIN;
use crate::world::{SMALL, World};
use packhouse_loader::{Level, Settings};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_cap_that_is_too_small_stops_the_fill_with_one_line_and_a_larger_one_goes_on() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let small = Settings {
        bytes_max: Some(5000),
        ..world.settings.clone()
    };
    for _ in 0..2 {
        let outcome = world.session_with(PLAIN, small.clone()).load(0, &[&model]);
        outcome.assert_fill("stopped");
        assert!(
            outcome.line.contains("(cap 4.8 KiB, held 0 B, "),
            "{}",
            outcome.line
        );
        let told = "stored 0 of 4 packs (0 B), then stopped: 11.1 KiB wanted, the store's cap of \
                    4.8 KiB leaves 4.8 KiB; the engine goes on";
        assert_eq!(outcome.lines[1..], [(Level::Warn, told.to_owned())]);
    }
    world.load(PLAIN, &[&model]).assert_fill("done");
    // A cap that the store already passes is no reason not to map what is there.
    let hit = world.session_with(PLAIN, small).load(0, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.warnings(), [""; 0]);
}

#[test]
fn a_cap_counts_what_the_store_holds() {
    let world = World::new();
    let (model, other) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 2),
    );
    world.fill(PLAIN, &[&model]);
    let small = Settings {
        bytes_max: Some(20_000),
        ..world.settings.clone()
    };
    let outcome = world.session_with(PLAIN, small).load(0, &[&other]);
    outcome.assert_fill("stopped");
    assert_eq!(outcome.warnings().len(), 1);
    world.load(PLAIN, &[&other]).assert_fill("done");
    world.load(PLAIN, &[&other]).assert_all_mapped(&[&other]);
}

/// Needs root, for the mount; elsewhere the caps above stand for it.
#[test]
fn a_disk_that_is_nearly_full_is_left_as_it_is() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let Some(mount) = Tmpfs::mount(&world.root(), "size=8m") else {
        return;
    };
    let outcome = world.load(PLAIN, &[&model]);
    outcome.assert_fill("stopped");
    let told = outcome.warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(" free beyond reservations and keeps 10.00 GiB"),
        "{told:?}"
    );
    drop(mount);
    world.load(PLAIN, &[&model]).assert_fill("done");
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// The disk has bytes and no inodes: the fill fails in its middle with ENOSPC. What it stored
/// stays, and with room the next start stores only the rest.
#[test]
fn a_disk_that_fills_up_in_the_middle_keeps_what_was_stored() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    // 13 for the empty store, 4 for each pack: folder and file of the object and of the record.
    let Some(mount) = Tmpfs::mount(&world.root(), "size=11g,nr_inodes=24") else {
        return;
    };
    let outcome = world.load(PLAIN, &[&model]);
    outcome.assert_fill("stopped");
    let stored = outcome.report["fill"]["stored"]["tensors"].as_u64();
    assert!(matches!(stored, Some(1..=3)), "{outcome:#?}");
    let told = outcome.warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("; the engine goes on"), "{told:?}");
    assert!(told[0].contains("space"), "{told:?}");
    mount.remount("size=11g,nr_inodes=1000");
    let next = world.load(PLAIN, &[&model]);
    next.assert_fill("done");
    assert_eq!(next.counts()[0], stored.unwrap_or(0));
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// A tmpfs, unmounted when dropped.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    /// `None` where this process may not mount.
    pub(crate) fn mount(path: &Path, options: &str) -> Option<Self> {
        Self::mount_as("tmpfs", path, &format!("mode=0755,{options}"))
    }

    pub(crate) fn mount_as(kind: &str, path: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).expect("because the folder is ours");
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", options, "none"]).arg(path);
        let mounted = command.output().is_ok_and(|output| output.status.success());
        let may = rustix::process::geteuid().is_root();
        assert!(mounted || !may, "root could not mount a {kind}");
        mounted.then(|| Self(path.to_owned()))
    }

    pub(crate) fn remount(&self, options: &str) {
        let mut command = Command::new("mount");
        command
            .arg("-o")
            .arg(format!("remount,{options}"))
            .arg(&self.0);
        let output = command.output().expect("because mount was there before");
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a store that is still open must not keep the folder from being removed.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
