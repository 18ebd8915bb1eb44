//! A page with something of everything on it, for tests. Every text of a document is `text`'s to
//! choose.

use packhouse_ledger::Verdict;
use packhouse_ledger::page::{
    Basis, Doubt, Evidence, Found, Gate, Lane, LaneState, LaneText, Live, Mark, MarkKind, Note,
    Observation, Packet, PacketState, Page, Plan, Program, Ran, Record, Rehearsals, Review, Row,
    Saving, Sealed, Timing, TimingRule, Topic,
};

/// 2026-11-30 07:10:11 UTC.
pub(crate) const NOW_NS: i64 = 1_796_022_611_000_000_000;
pub(crate) const GPU: &str = "GPU-5e3f2a91-6d0c-4b7e-9f1a-2c3d4e5f6a7b";

pub(crate) fn hex(n: u8) -> String {
    format!("{n:02x}").repeat(32)
}

/// A lab of four lanes and seven packets, with plain texts.
pub(crate) fn plain() -> Page {
    page(&|text| text.to_owned())
}

/// The same with every text of a document, name or program replaced.
pub(crate) fn page(text: &dyn Fn(&str) -> String) -> Page {
    let mut page = Page {
        lab: text("kernels"),
        lab_id: hex(0xaa),
        entry_count: 34,
        head: hex(0xbb),
        last_at_ns: NOW_NS,
        lanes: lanes(text),
        records: vec![record(text)],
        packets: packets(text),
        notes: vec![Note {
            entry: 33,
            at_ns: NOW_NS,
            lane: Some(text("q4-0-cpu")),
            text: text("the host got a new kernel"),
        }],
        doubts: vec![Doubt {
            what: text("clock went back"),
            text: text("entry 25 is dated 3 min 2 s before entry 24"),
            entry: Some(25),
        }],
        marks: Vec::new(),
        live: Some(live(text)),
    };
    page.marks = marks(&page, text);
    page
}

fn lanes(text: &dyn Fn(&str) -> String) -> Vec<Lane> {
    let lane = |name: &str, state, reason: &str, until: Option<&str>| Lane {
        lane: text(name),
        state,
        reason: text(reason),
        until: until.map(str::to_owned),
        since_ns: NOW_NS - 86_400_000_000_000,
        entry: 1,
        text: Some(LaneText {
            title: text("Q4_0 weights in n16 order on CPUs"),
            model: text("SmolLM2 135M Q4_0"),
            quantisation: text("Q4_0"),
            runtime: text("packhouse fixture serve"),
            hardware: text("x86-64 with AVX2"),
            promise: text("bit-equal to the scalar kernel"),
            teacher: text("none"),
            record_key: text(&format!("{name}/kernel")),
        }),
    };
    let blocked = "waits for the driver that fixes sub-group loads";
    vec![
        lane("q4-0-cpu", LaneState::Open, "first lane", None),
        lane(
            "xe2-verify",
            LaneState::Blocked,
            blocked,
            Some("2026-12-15"),
        ),
        lane(
            "h200-kv",
            LaneState::Paused,
            "the card is lent",
            Some("2026-12-04"),
        ),
        lane("old", LaneState::Closed, "the promise changed", None),
    ]
}

fn record(text: &dyn Fn(&str) -> String) -> Record {
    Record {
        key: text("q4-0-cpu/kernel"),
        claim: text("bit-equal at widths 1 to 8, and 160 us less a cycle"),
        widths: vec![1, 2, 4, 8],
        packet: hex(2),
        seal_number: 1,
        entry: 32,
        at_ns: NOW_NS,
        superseded_by: None,
        disputed_by: Some(31),
        corrections: vec![text("the median is of 24 blocks")],
    }
}

/// A packet without seals.
fn packet(
    text: &dyn Fn(&str) -> String,
    n: u8,
    names: (&str, &str),
    state: PacketState,
    reason: &str,
) -> Packet {
    Packet {
        packet: hex(n),
        experiment: text(names.0),
        lane: text(names.1),
        treatment: text("AVX2 instead of scalar code"),
        state,
        reason: match reason.is_empty() {
            true => String::new(),
            false => text(reason),
        },
        entry: 9,
        since_ns: NOW_NS,
        rehearsals: Rehearsals {
            green_count: 1,
            count: 2,
            tampers: 214,
            detectable_ns: vec![(text(GPU), 12_500)],
            red_ns: vec![(text(GPU), 12_500)],
        },
        reviews: vec![Review {
            reviewer: text("ada"),
            approves: true,
            note: text("bounds are those of the fixture"),
        }],
        plan: Found::Here(plan(text)),
        released: Vec::new(),
        seals: Vec::new(),
        ran: Some(ran(text)),
    }
}

/// What only a report shows.
fn ran(text: &dyn Fn(&str) -> String) -> Ran {
    let program = |role, name: &str, n: u8| Program {
        role,
        name: text(name),
        sha256: hex(n),
        objects: 3,
        arguments: vec![text("serve")],
        variables: vec![text("KERNEL_THREADS")],
    };
    let unequal = "leg 2, candidate, case 3 (q4 plain width 4 repeat 1), output: row 3, column 17: \
                   expected 1e0 (0x3f800000), found 1.0000001e0 (0x3f800001), 1 ULP apart";
    Ran {
        programs: vec![
            program("control", "packhouse", 0xc1),
            program("candidate", "kernels/k.py", 0xc2),
        ],
        differences: Some(vec![text("program: packhouse -> kernels/k.py")]),
        facts: vec![
            ("widths", text("1, 4")),
            ("host", text("a CPU, Linux 6.18")),
        ],
        unequal: vec![text(unequal)],
    }
}

fn packets(text: &dyn Fn(&str) -> String) -> Vec<Packet> {
    let found = || Found::Here(evidence(text));
    let sealed = |number, verdict, reading| Sealed {
        number,
        verdict,
        entry: 20,
        at_ns: NOW_NS,
        seal: hex(8),
        bag: hex(9),
        why: match number {
            1 => String::new(),
            _ => text("a stricter reader"),
        },
        reading,
    };
    let failed = vec![sealed(1, Verdict::Fail, found())];
    let passed = vec![
        sealed(1, Verdict::Pass, found()),
        sealed(2, Verdict::Fail, Found::Absent),
    ];
    let aborted = Found::Refused(text("its digest is another"));
    let aborted = vec![sealed(1, Verdict::Abort, aborted)];
    let died = "leg: the program ended with signal 9";
    let silent = "hello: silence";
    let slip = "the width is another one";
    use PacketState::{
        Armed, Consumed, RehearsedRed, SealedAbort, SealedFail, SealedPass, Withdrawn,
    };
    [
        (("n16-1", "q4-0-cpu"), SealedFail, "", failed),
        (("n16-2", "q4-0-cpu"), SealedPass, "", passed),
        (("m6", "xe2-verify"), SealedAbort, died, aborted),
        (("n16-3", "q4-0-cpu"), Armed, "", Vec::new()),
        (("m7", "xe2-verify"), RehearsedRed, silent, Vec::new()),
        (("n16-4", "q4-0-cpu"), Consumed, "", Vec::new()),
        (("m8", "xe2-verify"), Withdrawn, slip, Vec::new()),
    ]
    .into_iter()
    .zip(1..)
    .map(|((names, state, reason, seals), n)| Packet {
        seals,
        ..packet(text, n, names, state, reason)
    })
    .collect()
}

fn plan(text: &dyn Fn(&str) -> String) -> Plan {
    Plan {
        reviewers: 1,
        question: text("Does the AVX2 kernel give the scalar kernel's bits at every width?"),
        authorises: text("serving layout n16 with AVX2 on this host"),
        does_not_authorise: text("any claim on tokens per second"),
        exclusions: vec![text("widths above 8")],
        timing: Some(TimingRule {
            minimum_wins: 18,
            minimum_median_saving_ns: 150_000,
        }),
    }
}

/// Gates that passed, failed and were not judged; rows of two devices; two timings.
pub(crate) fn evidence(text: &dyn Fn(&str) -> String) -> Evidence {
    let gate = |name: &str, basis, decides, passed, measured: &str| Gate {
        gate: text(name),
        basis,
        passed,
        decides,
        threshold: text("every boundary bit-equal"),
        measured: text(measured),
        failures: match passed {
            Some(false) => vec![text("leg 1, width 8, repeat 2: element 17 is 0x3f800001")],
            Some(true) | None => Vec::new(),
        },
        failure_count: if passed == Some(false) { 3 } else { 0 },
    };
    Evidence {
        gates: vec![
            gate("complete", Basis::Verified, true, Some(true), "288 rows"),
            gate("equality", Basis::Verified, true, Some(false), "284 of 288"),
            gate("witness", Basis::Attested, true, Some(true), "1 to 4 calls"),
            gate("timing", Basis::Mixed, true, None, "-"),
            gate("stalls", Basis::Mixed, false, Some(true), "0"),
        ],
        rows: rows(text),
        timing: vec![timing(&text("cpu"), 0), timing(&text(GPU), 500_000)],
        says: vec![text("when the preregistration was made")],
    }
}

fn rows(text: &dyn Fn(&str) -> String) -> Vec<Row> {
    let mut rows = Vec::new();
    let fixtures = ["q4_0-n16-edges", "q4_0-n16-random-with-a-rather-long-name"];
    let legs = [
        (0, "control", "cpu"),
        (1, "candidate", "cpu"),
        (2, "candidate", GPU),
    ];
    for (leg, treatment, device) in legs {
        for (fixture, arm) in fixtures
            .iter()
            .flat_map(|one| [(one, "plain"), (one, "fused")])
        {
            for (width, repeat) in [1, 2, 4, 8].iter().flat_map(|w| [(w, 0), (w, 1), (w, 2)]) {
                for boundary in ["product", "sums"] {
                    rows.push(Row {
                        leg,
                        device: text(device),
                        treatment: text(treatment),
                        index: rows.len() as u64 / 2,
                        fixture: text(fixture),
                        arm: text(arm),
                        width: *width,
                        repeat,
                        boundary: text(boundary),
                        equal: (leg, *width, repeat, boundary) != (2, 8, 2, "sums"),
                    });
                }
            }
        }
    }
    rows
}

fn timing(device: &str, less: i128) -> Timing {
    let saving = |numerator| Saving {
        numerator,
        denominator: 2,
    };
    let savings = (0..24).map(|block| saving(320_000 + (block * 7_919 % 23 - 5) * 9_000 - less));
    let savings: Vec<Saving> = savings.collect();
    Timing {
        leg: 3,
        device: device.to_owned(),
        wins: savings.iter().filter(|saving| saving.numerator > 0).count() as u64,
        savings,
        median: saving(374_000 - less),
        hodges_lehmann: saving(371_000 - less),
        sign_test_p: "0.000035".to_owned(),
        bootstrap_lower_95: saving(300_000 - less),
    }
}

fn marks(page: &Page, text: &dyn Fn(&str) -> String) -> Vec<Mark> {
    let kinds = [
        MarkKind::Act,
        MarkKind::Fail,
        MarkKind::Pass,
        MarkKind::Act,
        MarkKind::Consumed,
        MarkKind::Abort,
        MarkKind::Record,
        MarkKind::Note,
    ];
    let mark = |place: usize| {
        let packet = &page.packets[place / 8 % page.packets.len()];
        let of_lab = place.is_multiple_of(17);
        Mark {
            index: place as u64,
            at_ns: NOW_NS - 86_400_000_000_000 * (34 - place as i64),
            kind: kinds[place % kinds.len()],
            lane: (!of_lab).then(|| packet.lane.clone()),
            experiment: (!of_lab).then(|| packet.experiment.clone()),
            words: text("rehearsal green, 214 tamper cases rejected"),
            went_back: place == 25,
        }
    };
    (0..34).map(mark).collect()
}

fn live(text: &dyn Fn(&str) -> String) -> Live {
    let one = |topic, subject: &str, seen: &str, known| Observation {
        topic,
        subject: text(subject),
        seen: text(seen),
        how: text("content of /proc/4711/exe"),
        at_ns: NOW_NS,
        known,
    };
    let runs = "runs the program frozen for n16-4 (candidate)";
    Live {
        at_ns: NOW_NS,
        observations: vec![
            one(Topic::Processes, "process 4711, serve", runs, true),
            one(Topic::Devices, GPU, "12 MiB of 139.00 GiB in use", true),
            one(Topic::Git, "commit", "git failed", false),
        ],
    }
}
