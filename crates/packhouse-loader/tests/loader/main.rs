//! The loader over real folders, real GGUF files mapped by the test, and a fake engine.
//!
//! `fake` is the engine and the clock, `world` the folder with its store, models and loads. Every
//! load asserts the bytes of each region against the scalar pack of the file's bytes, read from the
//! file.
//!
//! Each of these mutants of `src/` was tried by hand and fails the tests named, among others:
//! - the sample is taken and not compared:
//!   `source::a_ledger_that_lies_is_caught_by_the_sample_and_corrected`,
//!   `trust::the_sample_finds_what_a_forged_receipt_hides_and_the_object_is_replaced`;
//! - a ledger is believed without asking the file's stat identity again:
//!   `source::a_file_edited_between_two_tensors_of_a_load_is_served_as_it_is`;
//! - a ledger of another stat identity is believed:
//!   `source::a_file_edited_in_place_is_packed_anew_even_with_its_mtime_restored`;
//! - receipts are ignored: `trust::each_trust_verifies_as_it_says`;
//! - receipts are believed whatever they say:
//!   `tamper::what_is_done_to_a_store_is_named_costs_no_byte_and_heals`;
//! - a refused tensor's region is not filled: 17 tests, by the bytes of the region;
//! - a pack is stored although its file changed:
//!   `source::a_file_edited_while_one_tensor_is_packed_stores_no_pack_of_other_bytes`;
//! - a pack is stored although its bytes changed where stat proves nothing:
//!   `host::a_source_on_an_unknown_file_system_is_hashed_at_each_load`;
//! - a writable mapping is taken for its file:
//!   `source::a_writable_mapping_is_memory_its_changes_count_and_its_pages_stay`;
//! - a record is enough where its object is in quarantine:
//!   `tamper::what_is_done_to_a_store_is_named_costs_no_byte_and_heals`;
//! - a sample that differed is not followed up:
//!   `trust::the_sample_finds_what_a_forged_receipt_hides_and_the_object_is_replaced`;
//! - a close waits for a fill that gets no time, or lets it speak afterwards:
//!   `lifetimes::close_returns_soon_and_no_engine_is_called_after_it`;
//! - a close leaves queued plans where they are:
//!   `lifetimes::a_load_that_is_closed_while_its_plan_is_queued_frees_its_regions_and_says_so`;
//! - a staged copy that a sample refused is followed up as the store's: it loses a right record:
//!   `stages::deep_finds_a_rotten_copy_whose_receipt_was_made_to_fit`;
//! - slots do not count the shards before:
//!   `sets::shards_count_in_their_order_whatever_the_order_of_loading`.

mod deferred;
mod fake;
mod fill;
mod hits;
mod host;
mod lifetimes;
mod processes;
mod sets;
mod source;
mod stages;
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
