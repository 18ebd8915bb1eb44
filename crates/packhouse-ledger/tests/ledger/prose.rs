//! What went wrong where state was prose (evidence: a current-state file of 290 k characters that
//! named three records of one lane as the latest, and a page that miscounted consumed packets), and
//! where outcomes were words that scripts searched: what can't happen again.

use crate::story::*;
use packhouse_base::canonical;
use packhouse_ledger::act::{Act, Lane, LaneAction, Review, Verdict};
use packhouse_ledger::entry::{Entry, NO_ENTRY};
use packhouse_ledger::state::Standing;
use serde_json::{Value, json};

#[test]
fn three_values_cannot_be_the_current_record_of_one_key() {
    let mut story = Story::to("sealed-pass");
    let claims = ["102.97 tok/s", "92.16 tok/s", "94.92 tok/s"];
    let mut current = None;
    for claim in claims {
        let mut act = record(1, current);
        act.claim = claim.to_owned();
        if current.is_some() {
            // Without a word about the record before it, a second one is refused.
            let mut second = act.clone();
            second.supersedes = None;
            let fault = story
                .refusal(second)
                .expect("because there is a current record");
            assert_eq!(fault.code(), "ledger.record-current");
        }
        current = Some(story.tell(act));
    }
    let ledger = story.ledger();
    let records = ledger.state().records();
    assert_eq!(records.len(), 1);
    assert_eq!(
        records["cpu/decode"].record.claim, claims[2],
        "the newest, and no other"
    );
    assert_eq!(
        records["cpu/decode"].earlier.len(),
        2,
        "the others are history"
    );
}

#[test]
fn four_pieces_of_work_cannot_be_the_one_that_runs() {
    let mut story = Story::to("nonce");
    story.advance(2, "two", "consumed");
    story.advance(3, "three", "armed");
    story.advance(4, "four", "sealed-abort");
    let ledger = story.ledger();
    let packets = ledger.state().packets();
    let standings: Vec<_> = packets.values().map(|packet| packet.standing).collect();
    let expected = [
        Standing::Nonce,
        Standing::Consumed,
        Standing::Armed,
        Standing::SealedAbort,
    ];
    assert_eq!(standings, expected, "each has one state");
    let begun: Vec<_> = standings.iter().filter(|one| one.has_begun()).collect();
    assert_eq!(begun.len(), 2, "and what is under way is counted, not told");
}

#[test]
fn a_packet_stopped_before_consumption_is_not_counted_as_consumed() {
    let mut story = Story::to("nonce");
    story.tell(released(1, 1));
    let ledger = story.ledger();
    let packet = &ledger.state().packets()[&digest(1)];
    assert_eq!((packet.standing, packet.marker), (Standing::Armed, None));
    let consumed = ledger
        .entries()
        .iter()
        .filter(|one| one.act.kind() == "consumed")
        .count();
    assert_eq!(consumed, 0);
    let released = &ledger.entries()[7].act;
    let Act::Released(released) = released else {
        panic!("{released:?}")
    };
    assert_eq!(
        released.stage.as_str(),
        "marker",
        "it says where it stopped"
    );
}

#[test]
fn a_wait_without_a_date_is_not_a_wait() {
    for action in [LaneAction::Pause, LaneAction::Block] {
        let act = Lane {
            until: None,
            ..lane("cpu", action)
        };
        let fault = Story::begun()
            .refusal(act)
            .expect("because every wait is dated");
        assert_eq!(
            fault.to_string(),
            "field `until`: given with `pause` and `block`, and only there: waits are dated"
        );
    }
}

#[test]
fn an_outcome_is_one_of_three_words_and_no_script_searches_it() {
    let words: Vec<_> = Verdict::ALL
        .iter()
        .map(|verdict| verdict.as_str())
        .collect();
    assert_eq!(words, ["pass", "fail", "abort"]);
    for text in [
        "passed gates but rejected",
        "PASS",
        "pass (provisional)",
        "accepted",
    ] {
        let mut line = canonical::parse(&Entry::render(
            &sealed(1, Verdict::Pass).into(),
            0,
            NO_ENTRY,
            1,
            "b",
        ))
        .expect("because we rendered it");
        line["body"]["verdict"] = json!(text);
        let fault = Entry::parse(&canonical::render(&line)).expect_err("because it is none");
        assert_eq!(
            fault.to_string(),
            format!(
                "field `verdict` is {}, not one of pass, fail, abort",
                Value::from(text)
            )
        );
    }
}

#[test]
fn counts_of_campaigns_come_from_entries_and_miss_none() {
    let mut story = Story::begun();
    let ends = [
        "sealed-pass",
        "sealed-fail",
        "sealed-abort",
        "armed",
        "sealed-pass",
    ];
    for (n, end) in (1u8..).zip(ends) {
        story.advance(n, &format!("e{n}"), end);
    }
    let ledger = story.ledger();
    let entries = ledger.entries().iter();
    let sealed = entries
        .filter(|entry| matches!(entry.act, Act::Sealed(_)))
        .count();
    let packets = ledger.state().packets();
    let standing = |one: Standing| packets.values().filter(|p| p.standing == one).count();
    assert_eq!((sealed, packets.len()), (4, 5));
    assert_eq!(standing(Standing::SealedPass), 2);
    assert_eq!(standing(Standing::SealedFail), 1);
    assert_eq!(standing(Standing::SealedAbort), 1);
}

#[test]
fn a_count_of_approvals_says_which_rehearsal_they_looked_at() {
    let mut story = Story::begun();
    story.tell(registered(1, "one"));
    let fault = story.refusal(reviewed(1, "ada", Review::Approve, 2));
    let fault = fault.expect("because nothing was rehearsed");
    assert_eq!(fault.code(), "ledger.state");
    let rehearsal = story.tell(green(1));
    story.tell(reviewed(1, "ada", Review::Approve, rehearsal));
    let ledger = story.ledger();
    let packet = &ledger.state().packets()[&digest(1)];
    assert_eq!(packet.words["ada"].rehearsal, rehearsal);
    // Approving twice is one approval.
    story.tell(reviewed(1, "ada", Review::Approve, rehearsal));
    let ledger = story.ledger();
    assert_eq!(ledger.state().packets()[&digest(1)].approvals(), [5]);
}
