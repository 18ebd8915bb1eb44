//! Random acts and random damage: what reads is what bagcheck reads, and what reads renders again.

use crate::story::*;
use packhouse_ledger::act::{Act, LaneAction, Review, Verdict};
use packhouse_ledger::entry::Entry;
use packhouse_ledger::{Ledger, LedgerError};
use proptest::prelude::*;

/// An act on one of two packets of one of two lanes, most of them about to contradict something.
fn act() -> impl Strategy<Value = Act> {
    let small = 0u64..14;
    let cited = small.clone();
    prop_oneof![
        (0..5usize, any::<bool>()).prop_map(|(action, first)| {
            lane(if first { "cpu" } else { "gpu" }, LaneAction::ALL[action]).into()
        }),
        (1u8..3, 1u8..3).prop_map(|(n, e)| registered(n, &format!("e{e}")).into()),
        (1u8..3, any::<bool>()).prop_map(|(n, is_green)| {
            if is_green {
                green(n).into()
            } else {
                red(n).into()
            }
        }),
        (1u8..3, any::<bool>(), any::<bool>(), cited.clone()).prop_map(|(n, ada, yes, at)| {
            let verdict = if yes { Review::Approve } else { Review::Reject };
            reviewed(n, if ada { "ada" } else { "bob" }, verdict, at).into()
        }),
        (
            1u8..3,
            cited.clone(),
            prop::collection::btree_set(small, 0..2)
        )
            .prop_map(|(n, at, reviews)| armed(n, at, reviews.into_iter().collect()).into()),
        (1u8..3, 1u8..4).prop_map(|(n, value)| nonce(n, value).into()),
        (1u8..3, 1u8..4).prop_map(|(n, value)| released(n, value).into()),
        (1u8..3, 1u8..4).prop_map(|(n, value)| consumed(n, value).into()),
        (1u8..3).prop_map(|n| withdrawn(n).into()),
        (1u8..3).prop_map(|n| closed(n).into()),
        (1u8..3, 0..3usize).prop_map(|(n, verdict)| sealed(n, Verdict::ALL[verdict]).into()),
        (1u8..3, 2u64..4, 0..3usize).prop_map(|(n, number, verdict)| analysed(
            n,
            number,
            Verdict::ALL[verdict]
        )
        .into()),
        (1u8..3, prop::option::of(cited.clone())).prop_map(|(n, at)| record(n, at).into()),
        cited.prop_map(|entry| corrected(entry).into()),
        any::<bool>().prop_map(|lane| note(lane.then_some("gpu")).into()),
    ]
}

/// Follows a story: acts that are refused are left out, by a judge that is asked of each.
fn followed(start: &str, acts: &[Act]) -> Story {
    let mut story = Story::to(start);
    for act in acts {
        // `refusal` compares reader, writer and bagcheck, and the code that each gives.
        if story.refusal(act.clone()).is_none() {
            story.tell(act.clone());
        }
    }
    story
}

const STARTS: [&str; 5] = ["registered", "armed", "consumed", "closed", "sealed-pass"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_acts_is_judged_by_all_alike(
        start in 0..STARTS.len(),
        acts in prop::collection::vec(act(), 0..24),
    ) {
        let story = followed(STARTS[start], &acts);
        let ledger = story.ledger();
        let mut rendered = Vec::new();
        for entry in ledger.entries() {
            let (at_ns, boot) = (entry.at_ns, entry.boot.as_str());
            let line = Entry::render(&entry.act, entry.index, entry.previous, at_ns, boot);
            prop_assert_eq!(ledger.line(entry.index), Some(line.as_slice()));
            rendered.extend(line);
        }
        prop_assert_eq!(rendered, ledger.bytes());
        invariants(&ledger)?;
    }

    #[test]
    fn any_damage_is_refused_by_both_readers_or_by_neither(
        cut in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..3),
        drop in 0usize..40,
    ) {
        let bytes = Story::to("sealed-pass").bytes;
        let at = cut.index(bytes.len());
        let end = (at + drop).min(bytes.len());
        let damaged = [&bytes[..at], with.as_slice(), &bytes[end..]].concat();
        let ours = match Ledger::parse(&damaged) {
            Ok(_) => None,
            Err(LedgerError::Entry { fault, .. }) => Some(fault.code()),
            Err(error) => error.code(),
        };
        let oracle = packhouse_bagcheck::check_ledger(&damaged);
        let theirs = oracle.findings.first().map(|one| one.code);
        prop_assert_eq!(ours.is_some(), theirs.is_some(), "{:?} {:?}", ours, theirs);
    }
}

/// What holds of every ledger that is read, counted from its entries by other means than `state`.
fn invariants(ledger: &Ledger) -> Result<(), TestCaseError> {
    let acts = || ledger.entries().iter().map(|entry| &entry.act);
    for (packet, state) in ledger.state().packets() {
        let of = |kind: &str| {
            let own = acts().filter(|act| act.packet() == Some(*packet));
            own.filter(|act| act.kind() == kind).count()
        };
        prop_assert_eq!(of("registered"), 1);
        prop_assert!(of("consumed") <= 1, "a packet is consumed twice");
        prop_assert!(of("closed") <= of("consumed"));
        prop_assert!(of("withdrawn") + of("consumed") <= 1, "withdrawn and run");
        let mut own = acts().rev().filter(|act| act.packet() == Some(*packet));
        let last = own.next().map(Act::kind);
        prop_assert_eq!(of("withdrawn") == 1, last == Some("withdrawn"));
        prop_assert_eq!(of("withdrawn") == 1, state.withdrawn.is_some());
        prop_assert!(of("sealed") <= of("closed"));
        let open = of("nonce") - of("released") - of("consumed");
        prop_assert!(open <= 1, "two open nonces");
        prop_assert_eq!(open == 1, state.standing.as_str() == "nonce");
        prop_assert_eq!(of("sealed") == 1, state.standing.is_sealed());
        let all = acts().filter(|act| act.packet() == Some(*packet)).count();
        prop_assert_eq!(state.entries.len(), all);
    }
    for (key, current) in ledger.state().records() {
        let of_key = acts().filter(|act| matches!(act, Act::Record(r) if r.key == *key));
        prop_assert_eq!(of_key.count(), current.earlier.len() + 1);
    }
    Ok(())
}
