//! The table of packet states, written out once more and tried in full: each state, each kind.

use crate::story::*;
use packhouse_ledger::act::{Act, LaneAction, Review, Verdict};

const STANDINGS: [&str; 11] = [
    "registered",
    "rehearsed",
    "reviewed",
    "armed",
    "withdrawn",
    "nonce",
    "consumed",
    "closed",
    "sealed-pass",
    "sealed-fail",
    "sealed-abort",
];

/// What each state admits, and the state after, from the table of the format.
fn admitted(standing: &str) -> Vec<(&'static str, &'static str)> {
    match standing {
        "registered" => vec![
            ("green", "rehearsed"),
            ("red", "registered"),
            ("withdrawn", "withdrawn"),
        ],
        "rehearsed" | "reviewed" => vec![
            ("green", "rehearsed"),
            ("red", "registered"),
            ("approve", "reviewed"),
            ("reject", "reviewed"),
            ("armed", "armed"),
            ("withdrawn", "withdrawn"),
        ],
        "armed" => vec![
            ("green", "rehearsed"),
            ("red", "registered"),
            ("approve", "armed"),
            ("reject", "reviewed"),
            ("nonce", "nonce"),
            ("withdrawn", "withdrawn"),
        ],
        "withdrawn" => Vec::new(),
        "nonce" => vec![("released", "armed"), ("consumed", "consumed")],
        "consumed" => vec![("closed", "closed")],
        "closed" => vec![
            ("pass", "sealed-pass"),
            ("fail", "sealed-fail"),
            ("abort", "sealed-abort"),
        ],
        "sealed-pass" => vec![("analysed", "sealed-pass"), ("record", "sealed-pass")],
        "sealed-fail" => vec![("analysed", "sealed-fail")],
        "sealed-abort" => vec![("analysed", "sealed-abort")],
        _ => panic!("no such state"),
    }
}

/// Every act on packet 1 that some state admits. Its rehearsal is entry 3, its review entry 4.
fn acts(standing: &str) -> Vec<(&'static str, Act)> {
    let reviews = if standing == "reviewed" {
        vec![4]
    } else {
        Vec::new()
    };
    vec![
        ("green", green(1).into()),
        ("red", red(1).into()),
        ("approve", reviewed(1, "bob", Review::Approve, 3).into()),
        ("reject", reviewed(1, "bob", Review::Reject, 3).into()),
        ("armed", armed(1, 3, reviews).into()),
        ("nonce", nonce(1, 9).into()),
        ("released", released(1, 1).into()),
        ("withdrawn", withdrawn(1).into()),
        ("consumed", consumed(1, 1).into()),
        ("closed", closed(1).into()),
        ("pass", sealed(1, Verdict::Pass).into()),
        ("fail", sealed(1, Verdict::Fail).into()),
        ("abort", sealed(1, Verdict::Abort).into()),
        ("analysed", analysed(1, 2, Verdict::Pass).into()),
        ("record", record(1, None).into()),
    ]
}

#[test]
fn every_state_admits_what_the_table_says_and_nothing_else() {
    for standing in STANDINGS {
        let story = Story::to(standing);
        let state = |story: &Story| story.ledger().state().packets()[&digest(1)].standing;
        assert_eq!(state(&story).as_str(), standing);
        let table = admitted(standing);
        for (name, act) in acts(standing) {
            let after = table.iter().find(|(admitted, _)| *admitted == name);
            let refusal = story.refusal(act.clone());
            let Some((_, after)) = after else {
                let fault = refusal.expect("because the table does not admit it");
                let expected = match (standing, name) {
                    ("nonce", "nonce") => "ledger.nonce-open",
                    ("sealed-fail" | "sealed-abort", "record") => "ledger.record-verdict",
                    _ => "ledger.state",
                };
                assert_eq!(fault.code(), expected, "{standing}: {name}: {fault}");
                let text = fault.to_string();
                assert!(text.contains(&digest(1).to_string()), "{text}");
                continue;
            };
            assert_eq!(refusal, None, "{standing}: {name}");
            let mut told = story.clone();
            told.tell(act);
            assert_eq!(state(&told).as_str(), *after, "{standing}: after {name}");
        }
    }
}

/// A registered packet with a slip was a waiting one for ever, and nothing said why.
#[test]
fn a_packet_is_withdrawn_before_it_is_run_and_each_refusal_says_when() {
    let story = Story::to("withdrawn");
    let ledger = story.ledger();
    let packet = &ledger.state().packets()[&digest(1)];
    let withdrawal = packet.withdrawn.as_ref().expect("because it is withdrawn");
    assert_eq!((withdrawal.entry, withdrawal.at_ns), (6, 1_006));
    assert_eq!(withdrawal.reason, "the width is another one");
    assert_eq!(packet.armed, None);
    for (name, act) in acts("withdrawn") {
        let fault = story.refusal(act).expect("because it is withdrawn");
        let words = "was withdrawn by entry 6 (1970-01-01 00:00:00 UTC): no `";
        assert!(fault.to_string().contains(words), "{name}: {fault}");
    }
    // A packet and its experiment stay registered, so neither comes back under its name.
    for (act, code) in [
        (registered(1, "two"), "ledger.packet-exists"),
        (registered(2, "one"), "ledger.experiment-exists"),
    ] {
        let fault = story.refusal(act).expect("because it is known");
        assert_eq!(fault.code(), code);
    }
    assert_eq!(story.refusal(registered(2, "two")), None);
    assert_eq!(story.refusal(corrected(6)), None);
    // An open nonce is a run of which nobody knows yet what became; its release is told first.
    let mut story = Story::to("nonce");
    let fault = story
        .refusal(withdrawn(1))
        .expect("because a nonce is open");
    let words = "is nonce: `withdrawn` needs it registered, rehearsed, reviewed or armed";
    assert!(fault.to_string().ends_with(words), "{fault}");
    story.tell(released(1, 1));
    assert_eq!(story.refusal(withdrawn(1)), None);
}

#[test]
fn no_act_but_words_reaches_a_closed_lane_or_its_packets() {
    for standing in STANDINGS {
        let mut story = Story::to(standing);
        let close = story.refusal(lane("cpu", LaneAction::Close));
        if ["nonce", "consumed", "closed"].contains(&standing) {
            let fault = close.expect("because the packet's execution has begun");
            assert_eq!(fault.code(), "ledger.lane-busy");
            let packet = digest(1);
            assert_eq!(
                fault.to_string(),
                format!("lane cpu can't be closed: packet {packet} is in state {standing}")
            );
            continue;
        }
        assert_eq!(close, None);
        let since = story.tell(lane("cpu", LaneAction::Close));
        for (name, act) in acts(standing) {
            let fault = story.refusal(act).expect("because the lane is closed");
            assert_eq!(fault.code(), "ledger.lane-closed", "{standing}: {name}");
            let text = format!("lane cpu was closed by entry {since}, for good");
            assert_eq!(fault.to_string(), text);
        }
        for action in LaneAction::ALL {
            let fault = story
                .refusal(lane("cpu", *action))
                .expect("because it is closed");
            let expected = match action {
                LaneAction::Open => "ledger.lane-exists",
                _ => "ledger.lane-closed",
            };
            assert_eq!(fault.code(), expected, "{action}");
        }
        let fault = story
            .refusal(registered(2, "two"))
            .expect("because it is closed");
        assert_eq!(fault.code(), "ledger.lane-closed");
        assert_eq!(story.refusal(note(Some("cpu"))), None);
        assert_eq!(story.refusal(corrected(2)), None);
    }
}

#[test]
fn nothing_new_begins_in_a_lane_that_waits_and_what_began_is_finished() {
    for action in [LaneAction::Pause, LaneAction::Block] {
        for standing in STANDINGS {
            let mut story = Story::to(standing);
            story.tell(lane("cpu", action));
            let waits = if action == LaneAction::Pause {
                "paused"
            } else {
                "blocked"
            };
            for (name, act) in acts(standing) {
                let fault = story.refusal(act);
                let code = fault.as_ref().map(|fault| fault.code());
                if ["armed", "nonce"].contains(&name) {
                    assert_eq!(code, Some("ledger.lane-waiting"), "{standing}: {name}");
                    let text = fault.expect("because it has a code").to_string();
                    assert_eq!(
                        text,
                        format!("lane cpu is {waits} until 2026-12-24: because")
                    );
                } else {
                    let admitted = admitted(standing).iter().any(|(one, _)| *one == name);
                    assert_eq!(code.is_none(), admitted, "{standing}: {name}");
                }
            }
            let fault = story
                .refusal(registered(2, "two"))
                .expect("because it waits");
            assert_eq!(fault.code(), "ledger.lane-waiting");
            story.tell(lane("cpu", LaneAction::Resume));
            assert_eq!(story.refusal(registered(2, "two")), None);
        }
    }
}

#[test]
fn lanes_go_from_phase_to_phase_and_only_an_open_one_has_nothing_to_resume() {
    use LaneAction::{Block, Close, Open, Pause, Resume};
    let phase = |story: &Story| story.ledger().state().lanes()[&name("cpu")].phase.as_str();
    let mut story = Story::begun();
    assert_eq!(phase(&story), "open");
    let fault = story
        .refusal(lane("cpu", Resume))
        .expect("because it is open");
    assert_eq!(fault.code(), "ledger.lane-state");
    assert_eq!(
        fault.to_string(),
        "lane cpu is open: there is nothing to resume"
    );
    for (action, after) in [
        (Pause, "paused"),
        (Pause, "paused"),
        (Block, "blocked"),
        (Pause, "paused"),
        (Resume, "open"),
        (Block, "blocked"),
        (Resume, "open"),
        (Close, "closed"),
    ] {
        assert_eq!(story.refusal(lane("cpu", action)), None);
        story.tell(lane("cpu", action));
        assert_eq!(phase(&story), after);
    }
    let unknown = story
        .refusal(lane("gpu", Pause))
        .expect("because it is not there");
    assert_eq!(unknown.code(), "ledger.lane-unknown");
    assert_eq!(unknown.to_string(), "lane gpu was never opened");
    assert_eq!(story.refusal(lane("gpu", Open)), None);
}
