//! `packhouse stage`, then a start that maps the copies in RAM and nothing of the store.

use super::serve;
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, places, procfs, store_files};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Runs a command of ours and answers what it said.
pub(crate) fn packhouse(sandbox: &Sandbox, words: &[&str]) -> String {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    let output = command.args(words).output();
    let output = output.expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}{complained}");
    said
}

/// The copies of the newest stage.
fn copies(sandbox: &Sandbox) -> Vec<PathBuf> {
    let stages = fs::read_dir(sandbox.stage()).expect("something was staged");
    let mut stages: Vec<_> = stages
        .flatten()
        .map(|entry| entry.path().join("objects"))
        .filter(|path| path.is_dir())
        .collect();
    stages.sort();
    let newest = stages.last().expect("something was staged");
    let copies = fs::read_dir(newest).expect("a stage has copies");
    copies.flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_staged_set_is_mapped_from_memory_and_a_damaged_copy_from_the_store() {
    let (sandbox, stock) = super::filled();
    let model = Model::SmolLm2.path();
    let stage = || packhouse(&sandbox, &["stage", "--min-free", "0"]);
    assert!(stage().contains(" copied and hashed in "));
    assert!(stage().contains(" staged already in "));
    packhouse(&sandbox, &["stage-validate", "--deep"]);

    let server = Server::start(&sandbox, Mode::Packs, &model, &[]);
    assert_eq!(server.complete(PROMPTS[0], super::FEW_TOKENS), stock);
    let of_stage = procfs::mapped_inodes(server.pid(), sandbox.stage());
    let of_store = procfs::mapped_inodes(server.pid(), &sandbox.store());
    let load = server.wait_filled();
    server.stop();
    load.assert_hit();
    assert_eq!(load.staged, load.mapped, "{load:?}");
    let mapped: BTreeSet<u64> = of_stage.into_keys().collect();
    let expected: BTreeSet<u64> = copies(&sandbox)
        .iter()
        .map(|path| store_files::inode(path))
        .collect();
    assert_eq!(mapped, expected, "every copy, and nothing else, is mapped");
    assert!(of_store.is_empty(), "something of the store is mapped");

    // One copy is edited with its times restored: the store serves it, with the same tokens.
    let edited = copies(&sandbox).remove(0);
    store_files::flip_byte(&edited);
    let served = serve(&sandbox, &model, &[]);
    served.load.assert_hit();
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.stage_refused.values().sum::<u64>(), 1);
    assert_eq!(served.load.staged.tensors, load.staged.tensors - 1);
    assert!(stage().contains(" copied anew and hashed in "));

    // Without the store's objects the stage is all there is, and enough.
    let hidden = sandbox.path().join("hidden");
    fs::rename(sandbox.store().join("v1/objects"), hidden).expect("the sandbox is writable");
    let served = serve(&sandbox, &model, &[]);
    served.load.assert_hit();
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.staged, served.load.mapped);
}
