//! A program's hello: of its form, and offering what was asked. What a controller never asks was
//! never measured, so a bag that says so is forged.

use super::*;

/// Judges tampered evidence and demands a code at a path, from the root of what was judged.
fn rejects_at(sample: &Sample, what: &str, code: &str, path: &str) {
    let report = check(&sample.tree, Some(&sample.ledger), None);
    let mut found = report.findings.iter();
    let is_it =
        |finding: &packhouse_bagcheck::Finding| finding.code == code && finding.path == path;
    assert!(
        found.any(is_it),
        "{what}: no {code} at {path} in {:#?}",
        report.findings
    );
}

fn with_hello(sample: &Sample, pointer: &str, value: Value) -> Sample {
    edit_lines(sample, CANDIDATE, |lines| {
        let place = lines[1]["message"].pointer_mut(pointer);
        *place.expect("because it is there") = value;
    })
}

#[test]
fn a_hello_of_another_form_is_no_message() {
    let sample = sample::run();
    let many = |count: u64| -> Value { (1..=count).collect::<Vec<u64>>().into() };
    let named = |count: u64| -> Value { (0..count).map(|i| json!(format!("a{i}"))).collect() };
    let device = |i: u64| json!(format!("cuda:00000000-0000-0000-0000-{i:012x}"));
    let kernel = |i: u64| json!({"fixture": format!("f{i}"), "arms": [], "widths": []});
    let forms: [(&str, Value); 18] = [
        ("/kernels/0/widths", json!([1, 1, 2])),
        ("/kernels/0/widths", json!([0, 1, 2])),
        ("/kernels/0/widths", many(65)),
        ("/kernels/0/arms", json!(["plain", "plain"])),
        ("/kernels/0/arms", json!(["plain", "/etc/x Y"])),
        ("/kernels/0/arms", json!(["plain", ""])),
        ("/kernels/0/arms", named(65)),
        ("/kernels", (0..257).map(kernel).collect()),
        ("/devices", json!(["cpu", "cpu"])),
        ("/devices", json!(["cpu", "cuda:0"])),
        ("/devices", json!(["cpu", "/dev/nvidia0"])),
        ("/devices", json!(["cpu", ""])),
        ("/devices", json!(["cpu", "a\u{0}\n"])),
        ("/devices", (0..65).map(device).collect()),
        ("/denies", json!(["network", "network"])),
        ("/denies", json!([])),
        ("/name", json!("")),
        ("/version", json!("v".repeat(129))),
    ];
    for (pointer, value) in forms {
        let tampered = with_hello(&sample, pointer, value);
        let path = "bag/data/legs/01/exchange.jsonl:2";
        rejects_at(&tampered, pointer, "leg.message", path);
    }
    let tampered = edit_lines(&sample, CANDIDATE, |lines| {
        lines[3]["message"]["witnesses"][0]["counters"]["BAD NAME/"] = json!(1);
    });
    let path = "bag/data/legs/01/exchange.jsonl:4";
    rejects_at(&tampered, "a counter", "leg.message", path);
    // Canonical JSON is never longer than what was sent, and no more can be sent.
    for (bytes, is_message) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            let length = lines[3]["message"].to_string().len();
            let warning = "w".repeat(bytes - length - 2);
            lines[3]["message"]["warnings"] = json!([warning]);
        });
        let report = check(&tampered.tree, Some(&tampered.ledger), None);
        assert_eq!(!report.has("leg.message"), is_message, "{bytes}");
        assert!(!report.is_valid(), "a warning that was not sealed");
    }
}

#[test]
fn what_a_hello_does_not_offer_was_not_asked() {
    let sample = sample::run();
    let card = "cuda:GPU-11111111-2222-3333-4444-555555555555";
    let offers: [(&str, Value, &str); 9] = [
        ("/kernels", json!([]), "case.fixture"),
        ("/kernels/0/fixture", json!("other-v1"), "case.fixture"),
        ("/kernels/0/arms", json!([]), "case.arm"),
        ("/kernels/0/arms", json!(["bias"]), "case.arm"),
        ("/kernels/0/widths", json!([]), "case.width"),
        ("/kernels/0/widths", json!([999]), "case.width"),
        ("/kernels/0/widths", json!([2]), "case.width"),
        ("/devices", json!([]), "case.device"),
        ("/devices", json!([card]), "case.device"),
    ];
    for (pointer, value, code) in offers {
        let tampered = with_hello(&sample, pointer, value);
        let path = "bag/data/legs/01/exchange.jsonl:3";
        rejects_at(&tampered, pointer, code, path);
    }
    // Width 3 is the rejection's: nobody offers it, and it is asked.
    let report = check(&sample.tree, Some(&sample.ledger), None);
    assert!(report.is_valid(), "{:?}", report.findings);
}
