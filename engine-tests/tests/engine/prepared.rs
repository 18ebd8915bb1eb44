//! `packhouse prepare` without an engine, then the engine's first start: everything is mapped,
//! nothing packed, and no second set comes into being.

use super::synthetic::Synthetic;
use super::{FEW_TOKENS, stock_answer};
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, places, store_files};
use std::fs;
use std::path::{Path, PathBuf};

fn prepare(sandbox: &Sandbox, model: &Path) {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    command
        .arg("prepare")
        .arg(model)
        .args(["--plan", "ggml-cpu"]);
    let output = command.output().expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// All that a start may not add to: packs, objects and sets.
fn contents(sandbox: &Sandbox) -> Vec<PathBuf> {
    let store = sandbox.store();
    let mut all = store_files::packs(&store);
    all.extend(store_files::objects(&store));
    let sets = fs::read_dir(store.join("v1/sets")).expect("a set was made");
    let sets: Vec<_> = sets.flatten().map(|entry| entry.path()).collect();
    assert_eq!(sets.len(), 1, "{sets:?}");
    all.extend(sets);
    all.sort();
    all
}

fn assert_first_start_hits(model: &Path) {
    let sandbox = Sandbox::new();
    let stock = stock_answer(&sandbox, model, &[]);
    prepare(&sandbox, model);
    let prepared = contents(&sandbox);
    for _ in 0..2 {
        let server = Server::start(&sandbox, Mode::Packs, model, &[]);
        assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
        let load = server.wait_filled();
        server.stop();
        load.assert_hit();
        assert_eq!(contents(&sandbox), prepared);
    }
}

#[test]
fn the_first_start_of_a_prepared_model_maps_everything() {
    assert_first_start_hits(&Model::SmolLm2.path());
}

#[test]
fn the_first_start_of_a_prepared_model_of_mixed_types_maps_everything() {
    assert_first_start_hits(&Model::Gemma3.path());
}

/// The weights are any bytes, so nothing is asked of the model; `choice` compares each byte.
fn assert_loading_hits(sandbox: &Sandbox, model: &Path) {
    prepare(sandbox, model);
    let prepared = contents(sandbox);
    let server = Server::start(sandbox, Mode::Packs, model, &["--no-warmup"]);
    let load = server.wait_filled();
    server.stop();
    load.assert_hit();
    assert_eq!(contents(sandbox), prepared);
}

#[test]
fn the_first_start_of_prepared_experts_maps_everything() {
    let sandbox = Sandbox::new();
    let experts = Synthetic {
        ffn: 512,
        experts: Some(3),
    };
    assert_loading_hits(&sandbox, &experts.write(&sandbox));
}

#[test]
fn the_first_start_of_prepared_shards_maps_everything() {
    let sandbox = Sandbox::new();
    let dense = Synthetic {
        ffn: 512,
        experts: None,
    };
    assert_loading_hits(&sandbox, &dense.write_shards(&sandbox));
}
