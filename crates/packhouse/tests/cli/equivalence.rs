//! `equivalence` where nothing can be compared; what it says of a real engine is in `engine-tests`.

use crate::model;
use crate::sandbox::Sandbox;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn what_stands_in_the_way_of_a_comparison_is_named() {
    let sandbox = Sandbox::new();
    model::write(
        &sandbox.path("m.gguf"),
        &[("output.weight", "F32", &[8, 8])],
        &[],
    );
    std::fs::create_dir(sandbox.path("engine")).unwrap();
    sandbox.session_with(
        "equivalence-refused",
        &[
            &["equivalence"],
            &["equivalence", "m.gguf"],
            &["equivalence", "missing.gguf", "--engine", "engine"],
            &["equivalence", "m.gguf", "--engine", "engine"],
        ],
        |command| {
            command.env("PATH", "/nowhere");
        },
    );
}

#[test]
fn the_engine_of_a_comparison_is_the_one_that_a_shell_would_start() {
    let sandbox = Sandbox::new();
    model::write(
        &sandbox.path("m.gguf"),
        &[("output.weight", "F32", &[8, 8])],
        &[],
    );
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    std::fs::create_dir(sandbox.path("real")).unwrap();
    std::fs::write(sandbox.path("real/llama-server"), "").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("real/llama-server"), mode).unwrap();
    std::os::unix::fs::symlink("../real/llama-server", sandbox.path("bin/llama-server")).unwrap();
    std::fs::create_dir_all(sandbox.path("home/.cache/packhouse")).unwrap();
    drop(crate::store::open(&sandbox));
    let mut command = sandbox.command(&["equivalence", "m.gguf"]);
    let output = command.env("PATH", sandbox.path("bin")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(sandbox.path("real").to_str().unwrap()),
        "{said}"
    );
}
