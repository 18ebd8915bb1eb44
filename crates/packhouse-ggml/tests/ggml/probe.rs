//! Hosts that are not layout 3: each is refused with one line, none of its slots is called, and it
//! goes on. And hosts that differ in what does not matter: they are served.

use crate::host::{Answer, Host};
use std::collections::BTreeSet;

/// Fails unless the plug-in stayed out, said so once, touched nothing, and left a host that works.
fn assert_refused(answer: &Answer, what: &str) {
    let told = |name| answer.value(name);
    assert!(answer.is_ok, "{what}: the host died: {answer:#?}");
    assert_eq!(told("served"), "0", "{what}: {answer:#?}");
    assert_eq!(
        told("direct"),
        "0",
        "{what}: a slot was called: {answer:#?}"
    );
    assert_eq!(told("stray"), "0", "{what}: a slot was called: {answer:#?}");
    assert_eq!(told("goes_on"), "1", "{what}: {answer:#?}");
    assert_eq!(answer.lines.len(), 1, "{what}: {answer:#?}");
    let line = &answer.lines[0];
    assert!(line.starts_with("packhouse: off: ggml "), "{what}: {line}");
    assert!(
        line.ends_with("; the engine runs as without us"),
        "{what}: {line}"
    );
}

/// As `assert_refused`, and the line names the version and the reason.
fn assert_refused_for(answer: &Answer, what: &str, reason: &str) {
    assert_refused(answer, what);
    let line = &answer.lines[0];
    assert!(line.contains("ggml 0.26.0-mock: "), "{what}: {line}");
    assert!(line.contains(reason), "{what}: {line}");
}

fn assert_served(host: &Host, what: &str) {
    let answer = host.run(&["load"]);
    assert!(answer.is_ok, "{what}: {answer:#?}");
    assert_eq!(answer.value("served"), "1", "{what}: {answer:#?}");
    assert!(answer.lines.is_empty(), "{what}: {answer:#?}");
    let answer = host.run(&["select"]);
    assert_eq!(answer.value("mul_mat"), "1", "{what}: {answer:#?}");
    assert_eq!(answer.value("get_rows"), "0", "{what}: {answer:#?}");
    let answer = host.run_scenario(&["by-hand"]);
    // The counter that refused hosts rely on does count: the engine's packer is called directly.
    let calls: usize = answer
        .value("direct_after")
        .parse()
        .expect("because it is a number");
    assert!(calls > 0, "{what}: {answer:#?}");
}

#[test]
fn layout_3_is_served_with_both_scopes_and_with_either_length_of_names() {
    for names in ["NAME_BYTES=64", "NAME_BYTES=128", "NAME_BYTES=48"] {
        assert_served(&Host::new(&[names]), names);
        assert_served(&Host::new(&[names]).global(), names);
    }
}

#[test]
fn op_numbers_are_found_wherever_they_are() {
    for shift in ["1", "7", "40"] {
        assert_served(&Host::new(&[]).set("MOCK_OPS_SHIFT", shift), shift);
    }
    // MUL_MAT is out of reach of the search.
    let answer = Host::new(&[]).set("MOCK_OPS_SHIFT", "100").run(&["load"]);
    assert_refused_for(&answer, "ops", "the number of known op names is 1");
}

/// Every table, one slot inserted at every place and each two neighbours swapped. What is harmless
/// is written out: words that the plug-in leaves empty and the host reads of no table of ours.
#[test]
fn a_host_with_a_slot_inserted_or_two_swapped_is_refused() {
    let tables = [
        ("buft", 10, "insert 9"),
        ("buffer", 15, ""),
        ("device", 17, "insert 16, swap 13"),
        ("backend", 19, "insert 18, swap 3, swap 4, swap 5, swap 6"),
        ("reg", 6, "insert 5"),
    ];
    let mut refused = 0;
    for (table, words, harmless) in tables {
        let harmless: BTreeSet<&str> = harmless.split(", ").collect();
        let inserts = (0..words).map(|at| format!("insert {at}"));
        let swaps = (0..words - 1).map(|at| format!("swap {at}"));
        for change in inserts.chain(swaps) {
            let mutant = format!("{table} {change}");
            let host = Host::new(&[]).set("MOCK_MUTANT", &mutant);
            if harmless.contains(change.as_str()) {
                assert_served(&host, &mutant);
            } else {
                assert_refused_for(&host.run(&["load"]), &mutant, "");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 120);
}

#[test]
fn a_host_whose_tensors_or_properties_are_laid_out_differently_is_refused() {
    for mutant in 1..=11 {
        let definition = format!("TENSOR_MUTANT={mutant}");
        let answer = Host::new(&[&definition]).run(&["load"]);
        assert_refused_for(&answer, &definition, "layout 3 has ");
    }
    for extra in [8, 1024] {
        let definition = format!("PROPS_EXTRA={extra}");
        let answer = Host::new(&[&definition]).run(&["load"]);
        let reason = format!(
            "the size of device properties is {}, layout 3 has 56",
            56 + extra
        );
        assert_refused_for(&answer, &definition, &reason);
    }
}

#[test]
fn another_api_number_is_refused() {
    for number in ["0", "2", "4"] {
        let answer = Host::new(&[]).set("MOCK_API", number).run(&["load"]);
        let reason = format!("backend API {number}, this build knows API 3");
        assert_refused_for(&answer, number, &reason);
    }
}

#[test]
fn a_host_without_a_cpu_device_or_its_repacking_is_refused() {
    let answer = Host::new(&[]).set("MOCK_NO_CPU", "").run(&["load"]);
    assert_refused_for(&answer, "no CPU", "no CPU device is registered");
    let answer = Host::new(&[]).set("MOCK_NO_REPACK", "").run(&["load"]);
    assert_refused_for(&answer, "no CPU_REPACK", "no CPU_REPACK buffer type");
}

/// Two copies may differ in everything: which of them the host uses can't be known.
#[test]
fn two_copies_of_the_library_are_refused() {
    for host in [Host::new(&[]).twice(), Host::new(&[]).twice().global()] {
        let answer = host.run(&["load"]);
        assert_refused(&answer, "two copies");
        let line = &answer.lines[0];
        assert!(line.contains("two loaded libraries have ggml_"), "{line}");
        assert!(line.contains("libmock.so and "), "{line}");
        assert!(line.contains("libmock-copy.so"), "{line}");
    }
}

/// Each function that the sources name, taken away by changing its name in the library's string
/// table.
#[test]
fn a_host_that_lacks_a_function_is_refused() {
    let sources = [
        include_str!("../../src/abi/probe.rs"),
        include_str!("../../src/host.rs"),
    ];
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = sources.iter().flat_map(|text| text.split(|c| !is_word(c)));
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with("ggml_")).collect();
    let mut absent = 0;
    for name in names {
        let mut is_there = false;
        let host = Host::new(&[]).edit(|bytes| {
            let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
            let at = bytes.windows(wanted.len()).position(|part| part == wanted);
            if let Some(at) = at {
                bytes[at + 1] = b'#';
                is_there = true;
            }
        });
        if is_there {
            let answer = host.run(&["load"]);
            assert_refused(&answer, name);
            let line = &answer.lines[0];
            let is_named = line.contains(&format!("no loaded library has {name};"));
            // The one that is looked up in the registry and not in the library.
            assert!(is_named || line.contains("no CPU_REPACK"), "{name}: {line}");
            absent += 1;
        }
    }
    assert!(
        absent >= 60,
        "only {absent} functions were found in the mock"
    );
}
