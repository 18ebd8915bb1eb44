//! The loader over real folders, real GGUF files mapped by the test, and a fake engine.
//!
//! `fake` is the engine and the clock, `world` the folder with its store, models and loads. Every
//! load asserts the bytes of each region against the scalar pack of the file's bytes, read from the
//! file.

mod fake;
mod fill;
mod hits;
mod host;
mod lifetimes;
mod processes;
mod sets;
mod source;
mod tamper;
mod trust;
mod world;

/// Proves that every file of the suite is named above, as a forgotten one would silently not run.
#[test]
fn no_test_file_is_forgotten() {
    let this = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loader");
    for file in std::fs::read_dir(folder).expect("because the suite is there") {
        let name = file.expect("because it was listed").file_name();
        let name = name.to_str().expect("because our names are ASCII");
        let module = name.strip_suffix(".rs").expect("because all are Rust");
        assert!(
            module == "main" || this.contains(&format!("\nmod {module};\n")),
            "{name} is not run"
        );
    }
}
