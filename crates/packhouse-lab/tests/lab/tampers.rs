//! Every tampered copy of right evidence is rejected for its own reason.

use crate::maker::{RECIPES, Script, evidence, shared, timed};
use packhouse_lab::analysis::Kind;
use packhouse_lab::tamper::{Judge, Outcome, OwnJudge, run_unless, tampers};
use packhouse_lab::verify::Evidence;
use std::collections::BTreeSet;

fn missed(outcomes: &[Outcome]) -> Vec<String> {
    let missed = outcomes.iter().filter(|outcome| !outcome.is_rejected());
    missed.map(ToString::to_string).collect()
}

/// What is done to evidence, and by which codes it is known.
type Known = BTreeSet<(String, Vec<&'static str>)>;

fn known(script: &Script) -> Known {
    let all = tampers(&evidence(script)).into_iter();
    all.map(|tamper| (tamper.name, tamper.expected)).collect()
}

/// Judges what is not done to other evidence in just this way.
fn judged_but(script: &Script, others: &Known) -> Vec<Outcome> {
    let evidence = evidence(script);
    let own = OwnJudge(&RECIPES);
    let mut outcomes = Vec::new();
    for tamper in tampers(&evidence) {
        if others.contains(&(tamper.name.clone(), tamper.expected.clone())) {
            continue;
        }
        outcomes.push(Outcome {
            found: vec![(own.name(), own.codes(&tamper.apply(&evidence)))],
            name: tamper.name,
            expected: tamper.expected,
        });
    }
    outcomes
}

#[test]
fn every_tampered_copy_of_a_run_is_rejected_for_its_own_reason() {
    let own = OwnJudge(&RECIPES);
    let judges: [&dyn Judge; 1] = [&own];
    let outcomes = run_unless(&evidence(&timed()), &judges, || false, &|_, _| ());
    let outcomes = outcomes.expect("because it is not told to end");
    let missed = missed(&outcomes);
    assert!(
        missed.is_empty(),
        "{} of {}:\n{}",
        missed.len(),
        outcomes.len(),
        missed.join("\n")
    );
    let codes: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.expected[0]).collect();
    assert!(codes.len() >= 80, "{}: {codes:?}", codes.len());
}

#[test]
fn what_only_shared_storages_and_rehearsals_can_have_is_rejected_too() {
    let others = known(&timed());
    let rehearsal = Script {
        kind: Kind::Rehearsal,
        ..timed()
    };
    for script in [shared(), rehearsal] {
        let outcomes = judged_but(&script, &others);
        assert!(!outcomes.is_empty());
        let missed = missed(&outcomes);
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }
}

#[test]
fn a_judge_that_finds_another_reason_has_not_rejected() {
    struct Blind;
    impl Judge for Blind {
        fn name(&self) -> &'static str {
            "blind"
        }
        fn codes(&self, _: &Evidence) -> BTreeSet<String> {
            BTreeSet::from(["seal.subject".to_owned()])
        }
    }
    let own = OwnJudge(&RECIPES);
    let evidence = evidence(&timed());
    let tamper = tampers(&evidence)
        .into_iter()
        .next()
        .expect("because there are many");
    let copy = tamper.apply(&evidence);
    let judges: [&dyn Judge; 2] = [&own, &Blind];
    let outcome = Outcome {
        found: judges
            .iter()
            .map(|judge| (judge.name(), judge.codes(&copy)))
            .collect(),
        name: tamper.name,
        expected: tamper.expected,
    };
    assert!(!outcome.is_rejected());
    assert!(
        outcome.to_string().ends_with("; blind found seal.subject"),
        "{outcome}"
    );
}

#[test]
fn no_tampering_is_twice_the_same() {
    let evidence = evidence(&timed());
    let names: Vec<String> = tampers(&evidence)
        .into_iter()
        .map(|tamper| tamper.name)
        .collect();
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
}
