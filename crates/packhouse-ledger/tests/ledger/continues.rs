//! A ledger goes on from its earlier self, or it is said how it does not.

use crate::story::*;
use packhouse_ledger::act::Act;
use packhouse_ledger::continues::Discontinuity;

/// Acts of which none cites another by its index.
fn acts() -> Vec<Act> {
    vec![
        genesis().into(),
        open("cpu").into(),
        registered(1, "one").into(),
        note(None).into(),
        registered(2, "two").into(),
        green(1).into(),
    ]
}

/// Acts and their times.
type Acts = Vec<(usize, Act)>;

/// Tells acts, each at its own place's time.
fn told(acts: &[(usize, Act)]) -> Story {
    let mut story = Story::unbegun();
    for (time, act) in acts {
        let at_ns = i64::try_from(*time).expect("because tests are short");
        story.tell_at(act.clone(), at_ns);
    }
    story
}

fn numbered() -> Acts {
    acts().into_iter().enumerate().collect()
}

#[test]
fn every_ledger_continues_each_of_its_prefixes_and_no_longer_one() {
    let story = told(&numbered());
    let ledger = story.ledger();
    for entry in ledger.entries() {
        let mut earlier = Story::unbegun();
        for before in &ledger.entries()[..=usize::try_from(entry.index).expect("because small")] {
            earlier.tell_at(before.act.clone(), before.at_ns);
        }
        assert_eq!(ledger.continues(&earlier.bytes), Ok(()));
        // A torn append of the earlier one was never reported.
        let torn = [earlier.bytes.as_slice(), b"{\"torn\""].concat();
        assert_eq!(ledger.continues(&torn), Ok(()));
        let back = earlier.ledger().continues(&story.bytes);
        let (count, all) = (entry.index + 1, ledger.entries().len() as u64);
        if count == all {
            assert_eq!(back, Ok(()));
            continue;
        }
        let error = back.expect_err("because entries are gone");
        assert_eq!(
            error.to_string(),
            format!("truncated: {count} entries, where the earlier ledger has {all}")
        );
    }
}

#[test]
fn an_edited_removed_or_inserted_entry_is_a_rewriting() {
    let before = told(&numbered());
    let rewritten = |change: &dyn Fn(&mut Acts)| {
        let mut acts = numbered();
        change(&mut acts);
        told(&acts).ledger().continues(&before.bytes)
    };
    let at = |index| Err(Discontinuity::Rewritten { index });
    let edited = rewritten(&|acts| {
        let mut registration = registered(1, "one");
        registration.treatment = "a slower kernel".to_owned();
        acts[2].1 = registration.into();
    });
    assert_eq!(edited, at(2));
    assert_eq!(
        edited.expect_err("because it was edited").to_string(),
        "rewritten at entry 2: later entries are chained anew"
    );
    let inserted = rewritten(&|acts| acts.insert(1, (1, note(None).into())));
    assert_eq!(inserted, at(1));
    assert_eq!(rewritten(&|acts| drop(acts.remove(3))), at(3));
    assert_eq!(rewritten(&|acts| acts[1].0 = 77), at(1), "another time");
    assert_eq!(rewritten(&|acts| acts.swap(3, 4)), at(3));
}

#[test]
fn two_ledgers_that_both_went_on_are_forked() {
    let base = told(&numbered());
    let (mut one, mut other) = (base.clone(), base.clone());
    one.tell(note(Some("cpu")));
    other.tell(corrected(0));
    other.tell(corrected(1));
    let index = base.count;
    for (now, before) in [(&one, &other), (&other, &one)] {
        let error = now.ledger().continues(&before.bytes);
        assert_eq!(error, Err(Discontinuity::Forked { index }));
    }
    assert_eq!(
        one.ledger()
            .continues(&other.bytes)
            .expect_err("because it forked")
            .to_string(),
        "forked at entry 6: both ledgers go on from there, each in its own way"
    );
    // Another lab altogether.
    let mut stranger = Story::unbegun();
    stranger.tell_at(genesis(), -9);
    let error = stranger.ledger().continues(&base.bytes);
    assert_eq!(error, Err(Discontinuity::Forked { index: 0 }));
    let error = base
        .ledger()
        .continues(b"{}\n")
        .expect_err("because that is no ledger");
    assert!(
        error
            .to_string()
            .starts_with("the earlier ledger: entry 0: "),
        "{error}"
    );
}

#[test]
fn a_change_in_the_last_entry_alone_is_a_fork() {
    let mut acts = numbered();
    let before = told(&acts);
    let last = acts.len() - 1;
    acts[last].1 = red(1).into();
    let error = told(&acts).ledger().continues(&before.bytes);
    assert_eq!(error, Err(Discontinuity::Forked { index: 5 }));
}
