//! Head-tile images from outside.

#![forbid(unsafe_code)]

mod collect;
mod disk;
mod folder;
mod header_bytes;
mod mutants_gaps;
mod owners;
mod owners_announce;
mod publish_crash;
mod publish_refused;
mod race;
mod race_processes;
mod records;
mod room;
mod room_fair;
mod serve_heads;
mod serve_life;
mod serve_modes;
mod serve_refusals;
mod serve_target;
mod serve_watched;
mod serve_world;
mod serve_writes;
mod shim;
mod upkeep_crash;

/// Proves that every file of the suite is named above, as a forgotten one would silently not run.
#[test]
fn no_test_file_is_forgotten() {
    let this = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/image");
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
