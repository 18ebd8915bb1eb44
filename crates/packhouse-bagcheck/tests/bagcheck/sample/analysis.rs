//! The analysis that the bag must have, its figures worked out by hand.

use super::*;

/// Writes the analysis that the bag must have, its figures worked out by hand.
pub(super) fn analyse(tree: &mut Tree, kind: &str) {
    let gates = gates(kind);
    let ns = |text: &str| json!({"numerator": text, "denominator": 1});
    let savings = ["40", "20", "40", "20", "40", "20"].map(ns);
    let says = says(kind);
    let analysis = json!({"schema": "packhouse/analysis/1",
        "bag": sha256(bytes(tree, "bag/tagmanifest-sha256.txt")),
        "packet": sha256(bytes(tree, "bag/data/packet.json")), "analyzer": sha256("analyzer"),
        "kind": kind, "status": "complete", "verdict": "pass", "gates": gates,
        "rows": rows(), "says": says,
        "timing": [{"leg": 2, "device": "cpu", "blocks": 6, "wins": 6,
            "savings": savings,
            "median": ns("30"), "sign_test_p": SIGN_TEST_P,
            "hodges_lehmann": ns("30"), "bootstrap_lower_95": ns("20")}]});
    put(tree, "analysis-1/analysis.json", line(&analysis));
}

fn gates(kind: &str) -> Value {
    let gate = |name: &str, basis: &str, threshold: &str, measured: &str| {
        let of_candidate = [
            "rejections",
            "stable-pointers",
            "poisoned",
            "no-warnings",
            "capture-idle",
            "witness",
            "denial",
            "timing",
        ];
        let decides = kind == "run" || !of_candidate.contains(&name);
        json!({"gate": name, "basis": basis, "decides": decides, "passed": true,
            "threshold": threshold, "measured": measured, "failures": [], "failure_count": 0})
    };
    let none = |name: &str, basis: &str, what: &str| {
        gate(name, basis, &format!("{what} = 0"), &format!("{what} = 0"))
    };
    json!([
        none("records", "verified", "faults"),
        gate("complete", "verified", "cases = 37", "cases = 37"),
        none("answers", "mixed", "faults"),
        gate(
            "equality",
            "verified",
            "unequal rows = 0",
            "unequal rows = 0 of 72"
        ),
        none("identities", "verified", "strangers"),
        none("unchanged", "mixed", "changed"),
        none("disjoint", "attested", "collisions"),
        none("rejections", "mixed", "wrong"),
        gate(
            "budget",
            "verified",
            "run <= 600000000000 ns, case <= 60000000000 ns",
            "run = 4999950 ns, case = 1900 ns"
        ),
        none("fresh-inputs", "verified", "stale"),
        none("stable-pointers", "attested", "moved"),
        none("poisoned", "attested", "unpoisoned"),
        none("no-warnings", "attested", "warnings"),
        none("capture-idle", "attested", "not idle"),
        gate("witness", "attested", "kernel.rows >= 1", "kernel.rows = 1"),
        gate(
            "denial",
            "attested",
            "denies network, generation",
            "denies network, generation"
        ),
        gate(
            "timing",
            "mixed",
            "wins >= 6 of 6, median >= 25 ns on every device",
            "cpu: wins = 6 of 6, median = 30 ns"
        ),
    ])
}

fn says(kind: &str) -> Vec<&'static str> {
    let drawn = match kind {
        "run" => {
            "drawn inputs follow from the marker's salt by the fixture's recipe, which a reader \
             without the recipes can't repeat"
        }
        _ => {
            "drawn inputs follow from the nonce by the fixture's recipe, which a reader without \
             the recipes can't repeat"
        }
    };
    let mut says = vec![
        "when the preregistration was written: the ledger's chain and its copies elsewhere say \
         that",
        "that no other run was made: the marker and the ledger's nonce say that, on the hosts that \
         share them",
        "addresses, witnesses, capture state, warnings, denials, poison and timed nanoseconds are \
         attested by the program",
        drawn,
        "mapped files are those of a program and of what it had started when it was looked at: \
         what came and went between, code without a file and who computes elsewhere are not seen",
    ];
    if kind == "rehearsal" {
        says.push("this was a rehearsal: a null program played the candidate");
    }
    says
}

/// Six wins of six: `docs/format/statistics.md`, section 3.1.
const SIGN_TEST_P: &str = "0.03125";

fn rows() -> Value {
    let mut rows = Vec::new();
    let exact = [(0, 1, 0), (1, 1, 1), (2, 2, 0), (3, 2, 1)];
    let blocks = (0..12).map(|turn| (1 + turn, 2, 1_000_000 + turn / 2));
    let timed: Vec<(u64, u64, u64)> = [(0, 2, 0)]
        .into_iter()
        .chain(blocks)
        .chain([(13, 2, 0)])
        .collect();
    for (leg, who, cases) in [
        (0, "control", &exact[..]),
        (1, "candidate", &exact),
        (2, "control", &timed),
        (2, "candidate", &timed),
    ] {
        for (index, width, repeat) in cases {
            let seed = if *repeat == 0 { 7 } else { *repeat };
            let [_, first, second] = tensors(seed, *width);
            for (boundary, bytes) in [("first", first), ("second", second)] {
                rows.push(
                    json!({"leg": leg, "device": "cpu", "treatment": who, "arm": "plain",
                    "fixture": FIXTURE, "index": index, "width": width, "repeat": repeat,
                    "boundary": boundary, "sha256": sha256(bytes), "equal": true}),
                );
            }
        }
    }
    json!(rows)
}
