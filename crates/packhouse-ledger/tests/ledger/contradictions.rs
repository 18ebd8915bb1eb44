//! Each contradiction, with its reason and its words: refused by reader, writer and bagcheck.

use crate::story::*;
use packhouse_ledger::act::{Act, Review, Verdict};

/// Asserts that an act is refused by this code and these words.
fn refused(story: &Story, act: impl Into<Act>, code: &str, words: &str) {
    let fault = story.refusal(act).expect("because it contradicts");
    assert_eq!((fault.code(), fault.to_string().as_str()), (code, words));
}

#[test]
fn a_ledger_begins_with_its_genesis_and_has_one() {
    let words = "the first entry, and no other, is `genesis`; this one is `lane`";
    refused(&Story::unbegun(), open("cpu"), "ledger.genesis", words);
    let words = "the first entry, and no other, is `genesis`; this one is `genesis`";
    refused(&Story::begun(), genesis(), "ledger.genesis", words);
}

#[test]
fn a_packet_and_an_experiment_are_registered_once() {
    let story = Story::to("registered");
    let words = format!("packet {} was registered by entry 2", digest(1));
    refused(&story, registered(1, "two"), "ledger.packet-exists", &words);
    let words = format!("experiment one was registered as packet {}", digest(1));
    refused(
        &story,
        registered(2, "one"),
        "ledger.experiment-exists",
        &words,
    );
    let mut unknown_lane = registered(2, "two");
    unknown_lane.lane = name("gpu");
    refused(
        &story,
        unknown_lane,
        "ledger.lane-unknown",
        "lane gpu was never opened",
    );
    let words = format!("packet {} was never registered", digest(7));
    for act in [
        green(7).into(),
        nonce(7, 7).into(),
        Act::from(record(7, None)),
    ] {
        refused(&story, act, "ledger.packet-unknown", &words);
    }
}

#[test]
fn a_review_and_an_arming_are_of_the_newest_rehearsal() {
    let mut story = Story::to("rehearsed");
    story.tell(green(1));
    let words = "entry 3 is not the packet's newest rehearsal, which is entry 4";
    let old = reviewed(1, "ada", Review::Approve, 3);
    refused(&story, old, "ledger.rehearsal", words);
    refused(&story, armed(1, 3, vec![]), "ledger.rehearsal", words);
    let words = "entry 9 is not the packet's newest rehearsal, which is entry 4";
    refused(&story, armed(1, 9, vec![]), "ledger.rehearsal", words);
    assert_eq!(story.refusal(armed(1, 4, vec![])), None);
}

#[test]
fn no_review_of_a_rehearsal_that_is_not_green() {
    let mut story = Story::to("armed");
    story.tell(red(1));
    let words = format!(
        "packet {} is registered: `reviewed` needs it rehearsed (its newest rehearsal green), \
         reviewed or armed",
        digest(1)
    );
    refused(
        &story,
        reviewed(1, "ada", Review::Approve, 3),
        "ledger.state",
        &words,
    );
    let words = format!(
        "packet {} is registered: `armed` needs it rehearsed or reviewed",
        digest(1)
    );
    refused(&story, armed(1, 3, vec![4]), "ledger.state", &words);
}

#[test]
fn a_standing_rejection_blocks_arming_until_its_reviewer_says_otherwise() {
    let mut story = Story::to("rehearsed");
    let ada = story.tell(reviewed(1, "ada", Review::Approve, 3));
    let bob = story.tell(reviewed(1, "bob", Review::Reject, 3));
    let words = "\"bob\" rejected the packet in entry 5, and said nothing else since";
    refused(&story, armed(1, 3, vec![ada]), "ledger.rejected", words);
    // Another rehearsal does not make a rejection go away.
    story.tell(green(1));
    refused(&story, armed(1, 6, vec![ada]), "ledger.rejected", words);
    let bob_again = story.tell(reviewed(1, "bob", Review::Approve, 6));
    let words = "entry 5 is not an approval of this packet that stands";
    refused(&story, armed(1, 6, vec![ada, bob]), "ledger.review", words);
    assert_eq!(story.refusal(armed(1, 6, vec![ada, bob_again])), None);
    story.tell(armed(1, 6, vec![ada, bob_again]));
    // A rejection after arming disarms.
    story.tell(reviewed(1, "ada", Review::Reject, 6));
    let words = format!("packet {} is reviewed: `nonce` needs it armed", digest(1));
    refused(&story, nonce(1, 1), "ledger.state", &words);
    let words = "\"ada\" rejected the packet in entry 9, and said nothing else since";
    refused(
        &story,
        armed(1, 6, vec![bob_again]),
        "ledger.rejected",
        words,
    );
}

#[test]
fn an_arming_cites_approvals_of_its_own_packet() {
    let mut story = Story::to("reviewed");
    story.advance(2, "two", "rehearsed");
    for entry in [0, 3, 4, 99] {
        let words = format!("entry {entry} is not an approval of this packet that stands");
        refused(&story, armed(2, 6, vec![entry]), "ledger.review", &words);
    }
}

#[test]
fn one_nonce_is_open_at_a_time_and_none_is_used_twice() {
    let mut story = Story::to("nonce");
    let words = format!(
        "packet {} has an open nonce {}: a second one is for another run of it",
        digest(1),
        digest(1)
    );
    refused(&story, nonce(1, 2), "ledger.nonce-open", &words);
    let words = format!("nonce {}, but the open one is {}", digest(2), digest(1));
    refused(&story, consumed(1, 2), "ledger.nonce", &words);
    refused(&story, released(1, 2), "ledger.nonce", &words);
    story.tell(released(1, 1));
    let words = format!("nonce {} was used before", digest(1));
    refused(&story, nonce(1, 1), "ledger.nonce-reused", &words);
    assert_eq!(story.refusal(nonce(1, 2)), None);
    story.tell(nonce(1, 2));
    story.tell(consumed(1, 2));
    let words = format!("packet {} is consumed: `nonce` needs it armed", digest(1));
    refused(&story, nonce(1, 3), "ledger.state", &words);
    let words = format!(
        "packet {} is consumed: `released` needs it announced by a nonce",
        digest(1)
    );
    refused(&story, released(1, 2), "ledger.state", &words);
    // Nor for another packet.
    story.advance(4, "four", "armed");
    for used in [1, 2] {
        let words = format!("nonce {} was used before", digest(used));
        refused(&story, nonce(4, used), "ledger.nonce-reused", &words);
    }
}

#[test]
fn a_seal_is_of_the_closed_bag_and_analyses_are_numbered() {
    let mut story = Story::to("closed");
    let mut other = sealed(1, Verdict::Pass);
    other.bag = digest(9);
    let words = format!("bag {}, but the closed one is {}", digest(9), digest(0xc1));
    refused(&story, other, "ledger.bag", &words);
    story.tell(sealed(1, Verdict::Fail));
    let mut other = analysed(1, 2, Verdict::Pass);
    other.bag = digest(9);
    refused(&story, other, "ledger.bag", &words);
    let words = "analysis number 3, where 2 is next";
    refused(
        &story,
        analysed(1, 3, Verdict::Pass),
        "ledger.number",
        words,
    );
    story.tell(analysed(1, 2, Verdict::Pass));
    let words = "analysis number 2, where 3 is next";
    refused(
        &story,
        analysed(1, 2, Verdict::Pass),
        "ledger.number",
        words,
    );
    assert_eq!(story.refusal(analysed(1, 3, Verdict::Abort)), None);
    // The first verdict stays the packet's.
    let ledger = story.ledger();
    let packet = &ledger.state().packets()[&digest(1)];
    assert_eq!(packet.standing.as_str(), "sealed-fail");
    assert_eq!(packet.newest_verdict(), Some(Verdict::Pass));
    let words = format!(
        "packet {} is sealed-fail, and its newest analysis says pass: no record",
        digest(1)
    );
    refused(&story, record(1, None), "ledger.record-verdict", &words);
}

#[test]
fn a_key_has_one_current_record() {
    let mut story = Story::to("sealed-pass");
    let words = "the current record of \"cpu/decode\" is none, not entry 3";
    refused(&story, record(1, Some(3)), "ledger.record-current", words);
    let first = story.tell(record(1, None));
    story.advance(2, "two", "sealed-pass");
    let words = format!("the current record of \"cpu/decode\" is entry {first}, not none");
    refused(&story, record(2, None), "ledger.record-current", &words);
    let second = story.tell(record(2, Some(first)));
    let words =
        format!("the current record of \"cpu/decode\" is entry {second}, not entry {first}");
    refused(
        &story,
        record(1, Some(first)),
        "ledger.record-current",
        &words,
    );
    let ledger = story.ledger();
    let current = &ledger.state().records()["cpu/decode"];
    assert_eq!(
        (current.entry, current.earlier.as_slice()),
        (second, [first].as_slice())
    );
    let mut other_key = record(1, None);
    other_key.key = "cpu/prefill".to_owned();
    assert_eq!(story.refusal(other_key), None);
}

#[test]
fn a_record_cites_a_seal_of_its_packet_that_says_pass() {
    let mut story = Story::to("sealed-pass");
    let mut other = record(1, None);
    other.seal = digest(9);
    let words = format!(
        "seal {} is not one of packet {} with verdict pass",
        digest(9),
        digest(1)
    );
    refused(&story, other, "ledger.record-seal", &words);
    let first = story.tell(record(1, None));
    assert_eq!(
        story.ledger().state().records()["cpu/decode"].disputed,
        None
    );
    let later = story.tell(analysed(1, 2, Verdict::Fail));
    let disputed = story.ledger().state().records()["cpu/decode"].disputed;
    assert_eq!(
        disputed,
        Some(later),
        "shown beside the record, which stays"
    );
    let words = format!(
        "packet {} is sealed-pass, and its newest analysis says fail: no record",
        digest(1)
    );
    refused(
        &story,
        record(1, Some(first)),
        "ledger.record-verdict",
        &words,
    );
    story.tell(analysed(1, 3, Verdict::Pass));
    let mut by_failed = record(1, Some(first));
    by_failed.seal = digest(0xc5);
    assert_eq!(
        story.refusal(by_failed),
        None,
        "number 3 has that seal and says pass"
    );
}

#[test]
fn a_correction_points_back_at_an_entry_that_is_no_correction() {
    let mut story = Story::begun();
    let words = "entry 2 is not there, so there is nothing to correct";
    refused(&story, corrected(2), "ledger.correction", words);
    story.tell(corrected(1));
    story.tell(corrected(1));
    let words = "entry 2 is itself a correction: correct the entry that it corrects";
    refused(&story, corrected(2), "ledger.correction", words);
    assert_eq!(story.ledger().state().corrections()[&1], vec![2, 3]);
    refused(
        &story,
        note(Some("gpu")),
        "ledger.lane-unknown",
        "lane gpu was never opened",
    );
}
