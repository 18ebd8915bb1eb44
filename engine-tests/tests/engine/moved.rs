//! A set that was made elsewhere and came as a bundle: taken into a store, or unpacked by tar as a
//! read-only one, it is mapped at the engine's first start there.

use super::{FEW_TOKENS, stock_answer};
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, places};
use std::fs;
use std::path::Path;
use std::process::Command;

fn run(sandbox: &Sandbox, words: &[&str], path: &Path) {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    let output = command.args(words).arg(path).output();
    let output = output.expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
}

/// Prepares the model in a world of its own and writes a bundle into another one.
fn bundle_in(sandbox: &Sandbox, model: &Path) -> std::path::PathBuf {
    let origin = Sandbox::new();
    run(&origin, &["prepare", "--plan", "ggml-cpu"], model);
    let bundle = sandbox.path().join("set.tar");
    run(&origin, &["export", "--bundle"], &bundle);
    bundle
}

#[test]
fn an_imported_bundle_is_mapped_at_the_first_start() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let bundle = bundle_in(&sandbox, &model);
    run(&sandbox, &["import"], &bundle);
    for _ in 0..2 {
        let server = Server::start(&sandbox, Mode::Packs, &model, &[]);
        assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
        let load = server.wait_filled();
        server.stop();
        load.assert_hit();
    }
}

#[test]
fn a_bundle_unpacked_by_tar_serves_as_a_read_only_store() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let bundle = bundle_in(&sandbox, &model);
    fs::create_dir(sandbox.store()).expect("the sandbox is writable");
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(&bundle)
        .arg("-C")
        .arg(sandbox.store())
        .status();
    assert!(unpacked.expect("every system has tar").success());
    let (mut command, reports) = sandbox.engine("llama-server", Mode::Packs);
    command.env("PACKHOUSE_READONLY", "1");
    let server = Server::spawn(&sandbox, command, reports, &model, &[]);
    server.wait_ready();
    assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
    let load = server.wait_filled();
    server.stop();
    load.assert_hit();
}
