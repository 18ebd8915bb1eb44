//! The engine's own switches, and ours, keep their meaning.

use super::{FEW_TOKENS, assert_converged, filled, finish, serve, stock_answer};
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, report, store_files};
use std::path::PathBuf;

fn start_with(sandbox: &Sandbox, name: &str, value: &str) -> Server {
    let (mut command, reports) = sandbox.engine("llama-server", Mode::Packs);
    command.env(name, value);
    let server = Server::spawn(sandbox, command, reports, &Model::SmolLm2.path(), &[]);
    server.wait_ready();
    server
}

fn assert_stays_out(sandbox: &Sandbox, server: Server) {
    server.complete(PROMPTS[0], FEW_TOKENS);
    let pid = server.pid();
    let mapped = engine_tests::procfs::mapped_inodes(pid, &sandbox.store());
    assert!(mapped.is_empty(), "packs were mapped: {mapped:?}");
    server.stop();
}

#[test]
fn without_repacking_nothing_is_packed_mapped_or_stored() {
    let (sandbox, repacked) = filled();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &["--no-repack"]);
    let server = Server::start(&sandbox, Mode::Packs, &model, &["--no-repack"]);
    assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
    assert_stays_out(&sandbox, server);
    // The same switch by its variable.
    assert_stays_out(&sandbox, start_with(&sandbox, "LLAMA_ARG_REPACK", "0"));
    assert_converged(&sandbox, &model, &repacked);
}

#[test]
fn packhouse_0_is_as_if_it_were_not_there() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let server = start_with(&sandbox, "PACKHOUSE", "0");
    assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
    let log = server.stop();
    assert!(report::load_lines(&log).is_empty(), "{log}");
    assert_eq!(
        store_files::objects(&sandbox.store()),
        Vec::<PathBuf>::new()
    );
}

/// A model that is read instead of mapped is recognised by its bytes, and its packs are the same.
#[test]
fn a_model_that_is_read_instead_of_mapped_hits_too() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let read = ["--load-mode", "none"];
    let stock = stock_answer(&sandbox, &model, &read);
    let miss = serve(&sandbox, &model, &read);
    miss.load.assert_miss();
    assert_eq!(miss.answer, stock);
    let hit = serve(&sandbox, &model, &read);
    hit.load.assert_hit();
    assert_eq!(hit.answer, stock);
    let objects = store_files::objects(&sandbox.store()).len();
    serve(&sandbox, &model, &[]);
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(
        store_files::objects(&sandbox.store()).len(),
        objects,
        "the packs are the same"
    );
}

#[test]
fn a_locked_model_works() {
    let (sandbox, stock) = filled();
    let server = Server::start(
        &sandbox,
        Mode::Packs,
        &Model::SmolLm2.path(),
        &["--load-mode", "mmap+mlock"],
    );
    assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
    server.load().assert_hit();
    server.stop();
}

#[test]
fn packhouse_run_is_the_whole_setup() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    for expect_hit in [false, true] {
        let (mut command, reports) =
            sandbox.command(&engine_tests::places::packhouse(), Mode::Stock);
        command.arg("run").arg("--report").arg(&reports).arg("--");
        command.arg(engine_tests::places::engine_bin().join("llama-server"));
        let server = Server::spawn(&sandbox, command, reports, &model, &[]);
        server.wait_ready();
        let served = finish(server);
        assert_eq!(served.answer, stock);
        if expect_hit {
            served.load.assert_hit()
        } else {
            served.load.assert_miss()
        }
    }
}
