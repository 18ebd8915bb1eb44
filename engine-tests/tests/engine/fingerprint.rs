//! `packhouse fingerprint` on the stock engine's build.

use engine_tests::{Mode, Sandbox, places};
use serde_json::Value;
use std::path::Path;

fn fingerprint(sandbox: &Sandbox, build: &Path) -> Value {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    command.arg("fingerprint").arg(build).arg("--json");
    let output = command.output().expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).expect("it is one document")
}

#[test]
fn the_stock_engine_is_one_build_and_its_kernels_are_a_part_of_it() {
    let sandbox = Sandbox::new();
    let bin = places::engine_bin();
    let seen = fingerprint(&sandbox, &bin);
    let facts = &seen["facts"];
    let program = &facts["programs"]["bin/test-backend-ops"];
    let base = &program["loads"]["libggml-base.so.0"];
    assert!(base.is_string(), "{program}");
    let libraries = facts["libraries"].as_object().expect("it is an object");
    // No program is linked with the library of the kernels: the engine loads it by name.
    assert!(
        libraries.contains_key("bin/libggml-cpu.so"),
        "{libraries:?}"
    );
    let is_base = |(name, library): (&String, &Value)| {
        name.starts_with("bin/libggml-base.so") && library["sha256"] == *base
    };
    assert!(libraries.iter().any(is_base), "{libraries:?}");
    let system = &facts["build_system"];
    assert_eq!(system["kind"], "cmake");
    assert!(
        system["compilers"]["CXX"]["version"].is_string(),
        "{system}"
    );
    // The engine's source is no repository, and none of ours, in whose ignored folder it lies.
    let folders = facts["source"]["folders"]
        .as_object()
        .expect("it is a tree");
    assert!(folders.contains_key("ggml/src"), "{folders:?}");
    let above = bin.parent().expect("it is in a folder");
    let again = fingerprint(&sandbox, above);
    assert_eq!(again["sha256"], seen["sha256"]);
}
