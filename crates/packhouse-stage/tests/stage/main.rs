//! The integration tests of packhouse-stage: one binary, one module per subject.
//!
//! Each of these mutants of `src/` was tried by hand and fails the tests named, among others:
//! - a copy's digest is not compared with its object's name:
//!   `life::a_damaged_object_is_found_while_it_is_copied_and_nothing_is_published`;
//! - manifest and index are not compared with their digests, or the receipts' checksum is ignored:
//!   `tamper::edited_files_of_the_stage_are_refused_each_in_its_own_words`;
//! - receipts are not compared with the descriptors: `tamper`, nearly all;
//! - a second name is allowed: `tamper::a_second_name_is_refused`;
//! - nobody looks again once the lock is had:
//!   `processes::two_processes_that_stage_one_set_at_once_copy_it_once`;
//! - times are believed at once: `life::a_stager_tells_what_it_copies_and_waits_once`;
//! - identities are not asked again after the wait:
//!   `tamper::a_copy_that_changes_while_it_waits_to_be_believed_is_not_published`;
//! - the living look dead, or their room is not counted:
//!   `life::the_room_of_a_living_stager_keeps_another_out`;
//! - the root's mode is not asked: `roots::a_root_of_any_mode_but_0700_is_refused`;
//! - a stage's folder may have any mode:
//!   `tamper::files_and_folders_that_others_own_or_can_change_are_refused`;
//! - symlinks in the root's path are followed:
//!   `roots::a_symlink_in_any_component_is_refused_whoever_made_it`;
//! - gc judges stages of other stores: `life::gc_leaves_what_another_store_staged`;
//! - a stage of another manifest is reused:
//!   `life::another_manifest_in_the_store_replaces_the_stage`.

#![forbid(unsafe_code)]

mod crash;
mod docs;
mod fixture;
mod life;
mod models;
mod models_crash;
mod models_life;
mod models_real;
mod models_tamper;
mod processes;
mod real;
mod roots;
mod tamper;
mod turns;

/// Proves that every file of the suite is named above, as a forgotten one would silently not run.
#[test]
fn no_test_file_is_forgotten() {
    let this = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stage");
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
