//! All integration tests of the crate in one binary; `allocation.rs` is apart as it counts memory.

#![forbid(unsafe_code)]

mod suite {
    mod bad_input;
    mod build;
    mod differential;
    mod documented;
    mod legal_input;
    mod oracle;
    mod shards;
    mod synthetic;
    mod written;
}

/// Proves that every file of the suite is named above, as a forgotten one would silently not run.
#[test]
fn no_test_file_is_forgotten() {
    let this = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite");
    for file in std::fs::read_dir(folder).expect("because the suite is there") {
        let name = file.expect("because it was listed").file_name();
        let name = name.to_str().expect("because our names are ASCII");
        let module = name
            .strip_suffix(".rs")
            .expect("because all are Rust files");
        assert!(
            this.contains(&format!("    mod {module};\n")),
            "{name} is not run"
        );
    }
}
