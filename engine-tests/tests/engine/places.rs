//! Stores that cannot be written, cannot hold everything, or cannot even be named.

use super::{FEW_TOKENS, assert_converged, assert_says, filled, finish, stock_answer};
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, report, store_files};
use std::fs;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Starts the engine after `setup` ran in a mount namespace of its own, so nothing outside sees it.
fn start_with_mounts(sandbox: &Sandbox, setup: &str, cap: Option<u64>) -> Server {
    let (engine, reports) = sandbox.engine("llama-server", Mode::Packs);
    let mut command = Command::new("unshare");
    // Root needs no user namespace; anyone else becomes root of one.
    command.arg(if rustix::process::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    });
    command
        .args(["sh", "-ec", &format!("{setup}\nexec \"$@\""), "sh"])
        .arg(engine.get_program());
    for (name, value) in engine.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("MOUNT", sandbox.store());
    if let Some(bytes) = cap {
        command.env("PACKHOUSE_MAX_BYTES", bytes.to_string());
    }
    let server = Server::spawn(sandbox, command, reports, &Model::SmolLm2.path(), &[]);
    server.wait_ready();
    server
}

fn make_store_folder(sandbox: &Sandbox) {
    fs::create_dir(sandbox.store()).expect("the sandbox is writable");
    store_files::chmod(&sandbox.store(), 0o700);
}

#[test]
fn a_full_disk_ends_the_fill_and_nothing_else() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    make_store_folder(&sandbox);
    let tmpfs = "mount -t tmpfs -o size=16m,mode=0700 tmpfs \"$MOUNT\"";
    // The cap is larger than the disk, so the disk is what fills up.
    let served = finish(start_with_mounts(&sandbox, tmpfs, Some(1 << 40)));
    assert_eq!(served.answer, stock);
    assert!(served.load.packed.tensors > 0, "{:?}", served.load);
    assert_says(&served.log, &["then stopped: "]);
    // With a disk that has room the store fills and then serves.
    super::serve(&sandbox, &model, &[]).load.assert_miss();
    assert_converged(&sandbox, &model, &stock);
}

#[test]
fn the_cap_in_force_bounds_the_store() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let (mut command, reports) = sandbox.engine("llama-server", Mode::Packs);
    command.env("PACKHOUSE_MAX_BYTES", (16 * MIB).to_string());
    let server = Server::spawn(&sandbox, command, reports, &model, &[]);
    server.wait_ready();
    let served = finish(server);
    assert_eq!(served.answer, stock);
    served.load.assert_miss();
    assert_says(&served.log, &["then stopped: "]);
    let used = store_files::bytes(&sandbox.store());
    assert!(used <= 16 * MIB, "{used} bytes under a cap of {}", 16 * MIB);
    // Without the cap the rest is filled, then everything hits.
    let rest = super::serve(&sandbox, &model, &[]);
    assert_eq!(rest.answer, stock);
    assert_converged(&sandbox, &model, &stock);
}

const READ_ONLY: &str = "mount --bind \"$MOUNT\" \"$MOUNT\" && mount -o remount,bind,ro \"$MOUNT\"";

#[test]
fn an_empty_read_only_store_costs_one_line() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    make_store_folder(&sandbox);
    let served = finish(start_with_mounts(&sandbox, READ_ONLY, None));
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.mapped.tensors, 0, "{:?}", served.load);
    assert_says(
        &served.log,
        &["read-only", "readonly", "permission", "cannot"],
    );
    super::serve(&sandbox, &model, &[]);
    assert_converged(&sandbox, &model, &stock);
}

#[test]
fn a_filled_read_only_store_serves() {
    let (sandbox, stock) = filled();
    let served = finish(start_with_mounts(&sandbox, READ_ONLY, None));
    assert_eq!(served.answer, stock);
    served.load.assert_hit();
}

#[test]
fn a_filled_store_serves_when_writing_was_forbidden() {
    let (sandbox, stock) = filled();
    let before = store_files::bytes(&sandbox.store());
    store_files::flip_byte(&store_files::objects(&sandbox.store())[0]);
    let (mut command, reports) = sandbox.engine("llama-server", Mode::Packs);
    command.env("PACKHOUSE_READONLY", "1");
    let server = Server::spawn(&sandbox, command, reports, &Model::SmolLm2.path(), &[]);
    server.wait_ready();
    let served = finish(server);
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.packed.tensors, 1, "{:?}", served.load);
    assert_eq!(
        store_files::bytes(&sandbox.store()),
        before,
        "nothing may be written"
    );
}

/// Starts the engine with `home` for every folder of the user, or with none named at all.
fn answer_without_a_place(home: Option<&Path>) {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let (mut command, reports) = sandbox.engine("llama-server", Mode::Packs);
    for name in [
        "HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "PACKHOUSE_STORE",
        "PACKHOUSE_STAGE",
    ] {
        command.env_remove(name);
    }
    if let Some(home) = home {
        command.env("HOME", home);
    }
    let server = Server::spawn(&sandbox, command, reports, &model, &[]);
    server.wait_ready();
    assert_eq!(server.complete(PROMPTS[0], FEW_TOKENS), stock);
    let log = server.stop();
    assert!(
        !report::lines(&log).is_empty(),
        "the plug-in says why it cannot help: {log}"
    );
}

#[test]
fn no_home_folder_is_named_in_one_line() {
    answer_without_a_place(None);
}

#[test]
fn a_home_that_cannot_be_made_is_named_in_one_line() {
    answer_without_a_place(Some(Path::new("/proc/nowhere")));
}
