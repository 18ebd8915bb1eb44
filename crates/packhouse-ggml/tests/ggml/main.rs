//! The plug-in in a host process of its own, on a ggml of our own: see `tests/host/mock_ggml.h`.
//!
//! The hosts are C programs that the C compiler of the machine builds here, load the plug-in as
//! ggml does, and print `name=value` lines. So nothing of the plug-in runs in the test's own
//! process, and a host that dies fails its test and no other. `scripts/asan.sh` runs the same tests
//! with everything instrumented.

mod entries;
mod host;
mod probe;
mod sanitizer;
mod selection;

use std::path::Path;

#[test]
fn every_file_of_these_tests_is_a_module() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ggml");
    let main = std::fs::read_to_string(folder.join("main.rs")).expect("because this is it");
    for entry in std::fs::read_dir(folder).expect("because it is there") {
        let name = entry.expect("because it is readable").file_name();
        let name = name.to_string_lossy();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || main.contains(&format!("\nmod {module};\n")),
            "{name} is not compiled"
        );
    }
}
