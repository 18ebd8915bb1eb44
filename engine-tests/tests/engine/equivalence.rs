//! `packhouse equivalence`: stored packs against what the engine's own libraries pack now.

use super::filled;
use engine_tests::mutant::engine_with_wrong_packer;
use engine_tests::{Mode, Model, Sandbox, places, store_files};
use std::path::Path;
use std::process::Output;

fn equivalence(sandbox: &Sandbox, engine: &Path) -> Output {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    command
        .arg("equivalence")
        .arg(Model::SmolLm2.path())
        .arg("--engine")
        .arg(engine);
    command.output().expect("packhouse can be started")
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(stdout),
        String::from_utf8_lossy(stderr)
    )
}

#[test]
fn every_stored_pack_is_what_the_engine_packs() {
    let (sandbox, _) = filled();
    let packs = store_files::packs(&sandbox.store()).len();
    let output = equivalence(&sandbox, &places::engine_bin());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let expected = format!("{packs} of {packs}");
    assert!(
        text(&output).contains(&expected),
        "expected {expected}: {}",
        text(&output)
    );
}

#[test]
fn an_engine_with_a_wrong_packer_is_caught() {
    let (sandbox, _) = filled();
    let mutant = engine_with_wrong_packer(sandbox.path());
    let output = equivalence(&sandbox, &mutant);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
