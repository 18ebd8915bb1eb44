//! Every way into a buffer: the bytes are always the host's own packer's. The scenarios are those
//! of `tests/host/entries.c`, which also runs against the real engine's libraries.

use crate::host::{Answer, Host};

fn run(words: &[&str]) -> Answer {
    let answer = Host::new(&[]).run_scenario(words);
    assert_no_complaint(&answer);
    answer
}

/// Nothing was refused, nothing failed.
fn assert_no_complaint(answer: &Answer) {
    for line in &answer.lines {
        let is_load = line.contains(" tensors mapped ") || line.contains(" tensors mapped, ");
        assert!(!is_load || line.contains(" 0 refused"), "{line}");
        for word in ["defect", "no memory", "differs", "not written", "stopped:"] {
            assert!(!line.contains(word), "{line}");
        }
    }
}

/// First and second set_tensor, partial writes, memset, clear, get_tensor, a null extra, a tensor
/// that is never set, sources that are no file: on a buffer that is fresh, just packed, or mapped
/// from the store.
#[test]
fn every_entry_leaves_the_bytes_of_the_hosts_own_packer() {
    let answer = run(&["entries"]);
    let mapped = answer
        .lines
        .iter()
        .filter(|line| line.contains(" 0 packed"));
    assert!(
        mapped.count() >= 8,
        "each operation met mapped tensors: {answer:#?}"
    );
}

#[test]
fn a_view_inside_a_parent_writes_what_it_writes_in_a_stock_buffer() {
    run(&["views"]);
}

#[test]
fn empty_and_untouched_buffers_come_and_go() {
    assert_eq!(run(&["nothing"]).lines, Vec::<String>::new());
}

/// A host that places tensors over older ones, over mapped files too, met EACCES and was aborted.
#[test]
fn tensors_may_be_placed_over_older_ones() {
    run(&["again"]);
}

/// What was placed over a tensor that waited to be stored was stored under that tensor's key, and
/// between the samples it went unnoticed.
#[test]
fn what_was_placed_over_a_waiting_tensor_is_not_stored_as_its_pack() {
    run(&["over-waiting"]);
}

#[test]
fn five_hundred_loads_and_unloads_during_fills() {
    let answer = run(&["cycles", "500"]);
    let stored = answer
        .lines
        .iter()
        .filter(|line| line.contains("packhouse: stored "));
    assert!(stored.count() >= 3, "fills went on meanwhile: {answer:#?}");
}

#[test]
fn several_buffers_from_several_threads() {
    run(&["threads", "12"]);
}

/// The background thread sleeps and wakes in code that the host has closed.
#[test]
fn a_host_may_unload_the_plug_in_after_a_load() {
    assert_no_complaint(&Host::new(&[]).run_scenario(&["unload"]));
}

/// Without a store, and with one that may not grow, the same bytes come from the host's packer
/// alone.
#[test]
fn no_store_and_a_full_store_change_no_byte() {
    let host = Host::new(&[]).set("PACKHOUSE_MAX_BYTES", "0");
    host.run_scenario(&["cycles", "30"]);
    let host = Host::new(&[]).set("PACKHOUSE_STORE", "/proc/no/such/place");
    host.run_scenario(&["cycles", "30"]);
    let host = Host::new(&[]).set("PACKHOUSE_READONLY", "1");
    host.run_scenario(&["cycles", "30"]);
}

#[test]
fn each_degree_of_trust_serves_the_same_bytes() {
    for trust in ["sample", "deep"] {
        let host = Host::new(&[]).set("PACKHOUSE_TRUST", trust);
        let answer = host.run_scenario(&["views"]);
        assert_no_complaint(&answer);
    }
}

/// A packer whose bytes depend on the whole tensor is run on whole tensors only.
#[test]
fn a_packer_that_packs_no_units_alone_packs_whole_tensors() {
    let host = Host::new(&[]).set("MOCK_PACKER", "whole");
    for words in [&["entries"][..], &["threads", "3"]] {
        assert_no_complaint(&host.run_scenario(words));
    }
}

/// What packs to other bytes each time is packed, and neither stored nor taken from the store.
#[test]
fn a_packer_that_is_not_deterministic_is_left_alone() {
    let host = Host::new(&[]).set("MOCK_PACKER", "random");
    let answer = host.run_scenario(&["by-hand"]);
    let told = answer
        .lines
        .iter()
        .any(|line| line.contains("is not deterministic"));
    assert!(told, "{answer:#?}");
    assert!(!answer.stderr.contains("packhouse: stored "), "{answer:#?}");
}

/// The canary of all scenarios: one wrong bit from the packer that the plug-in calls is seen.
#[test]
fn a_wrong_bit_is_seen() {
    for scenario in ["entries", "views", "by-hand", "again", "over-waiting"] {
        let answer = Host::new(&[]).set("MOCK_PACKER", "lies").run(&[scenario]);
        assert!(!answer.is_ok, "{scenario}: {answer:#?}");
        assert!(answer.stderr.contains(" differs at byte "), "{answer:#?}");
    }
}
