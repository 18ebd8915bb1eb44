//! Stage roots that are not ours: each is refused by name, and nothing is made in them.

use crate::fixture::{ROOT, try_root};
use packhouse_sim::{SimClock, SimFs};
use packhouse_stage::StageRoot;
use packhouse_store::root::Owners;
use packhouse_sys::stat::FsKind;
use std::path::Path;
use std::sync::Arc;

fn disk() -> SimFs {
    SimFs::new(9, Arc::new(SimClock::new()))
}

fn refusal(sim: &SimFs, path: &str) -> String {
    let before = sim.operation_count();
    let error = try_root(sim, path).err().expect("because it is not ours");
    assert_eq!(sim.operation_count(), before, "a refusal changes nothing");
    error.to_string()
}

#[test]
fn a_root_is_made_private_and_opened_again() {
    let sim = disk();
    let owners = Owners::new(1000, &[]);
    let open = || StageRoot::open(Arc::new(sim.clone()), sim.clock(), Path::new(ROOT), &owners);
    let missing = open().err().expect("because nobody made it");
    assert!(missing.is_missing(), "{missing}");
    assert!(try_root(&sim, ROOT).is_ok());
    assert!(open().is_ok());
}

#[test]
fn a_root_that_somebody_else_made_first_is_refused() {
    let sim = disk();
    sim.make_dirs(ROOT, 1001, 0o700);
    assert_eq!(
        refusal(&sim, ROOT),
        "stage root: /tmp/stage belongs to uid 1001; trusted are [0, 1000]"
    );
    // Root's is trusted as an ancestor, not as a stage root.
    sim.set_owner(ROOT, 0);
    assert_eq!(
        refusal(&sim, ROOT),
        "stage root: /tmp/stage belongs to uid 0, expected 1000"
    );
}

#[test]
fn a_root_of_any_mode_but_0700_is_refused() {
    let sim = disk();
    for (mode, text) in [
        (0o770, "has mode 0770: others than its owner can change it"),
        (0o777, "has mode 0777: others than its owner can change it"),
        (0o750, "has mode 0750, expected 0700"),
        (0o755, "has mode 0755, expected 0700"),
        (0o711, "has mode 0711, expected 0700"),
        (0o500, "has mode 0500, expected 0700"),
        (0o1700, "has mode 1700, expected 0700"),
    ] {
        sim.make_dirs(ROOT, 1000, mode);
        assert_eq!(
            refusal(&sim, ROOT),
            format!("stage root: /tmp/stage {text}")
        );
    }
}

#[test]
fn a_symlink_in_any_component_is_refused_whoever_made_it() {
    for uid in [0, 1000, 1001] {
        let sim = disk();
        sim.make_dirs("/home/user/real", 1000, 0o700);
        sim.make_dirs("/home/user/real/stage", 1000, 0o700);
        sim.symlink("/tmp/stage", "/home/user/real/stage", uid);
        sim.symlink("/tmp/link", "/home/user/real", uid);
        assert_eq!(
            refusal(&sim, "/tmp/stage"),
            "stage root: /tmp/stage is a symlink where a folder is expected"
        );
        assert_eq!(
            refusal(&sim, "/tmp/link/stage"),
            "stage root: /tmp/link is a symlink where a folder is expected"
        );
    }
}

#[test]
fn a_file_in_the_root_s_place_is_refused() {
    let sim = disk();
    sim.replace("/tmp/stage", b"", 0o700);
    assert_eq!(
        refusal(&sim, ROOT),
        "stage root: /tmp/stage is a regular file where a folder is expected"
    );
}

#[test]
fn an_ancestor_that_others_can_change_is_refused() {
    let sim = disk();
    sim.make_dirs("/home/user/open", 1000, 0o757);
    assert_eq!(
        refusal(&sim, "/home/user/open/stage"),
        "stage root: /home/user/open has mode 0757: others than its owner can change it"
    );
    sim.make_dirs("/home/other", 1001, 0o755);
    assert_eq!(
        refusal(&sim, "/home/other/stage"),
        "stage root: /home/other belongs to uid 1001; trusted are [0, 1000]"
    );
    assert_eq!(
        refusal(&sim, "stage"),
        "stage root: stage is not an absolute path"
    );
}

#[test]
fn a_root_on_a_file_system_whose_stat_proves_nothing_is_refused() {
    let sim = disk();
    sim.make_dirs(ROOT, 1000, 0o700);
    sim.set_kind(FsKind::Nfs);
    assert_eq!(
        refusal(&sim, ROOT),
        "stage root: /tmp/stage is on nfs, whose stat proves nothing"
    );
}
