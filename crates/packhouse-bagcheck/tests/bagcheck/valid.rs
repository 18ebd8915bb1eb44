//! Evidence that holds is found to hold, with nothing said against it.

use crate::sample::{self, Sample, line, put, sha256};
use packhouse_bagcheck::{Report, Verdict, check};
use serde_json::{Value, json};

fn judged(sample: &Sample) -> Report {
    check(&sample.tree, Some(&sample.ledger), None)
}

#[test]
fn a_sealed_run_holds_with_its_ledger_and_without() {
    let sample = sample::run();
    for ledger in [None, Some(&*sample.ledger)] {
        let report = check(&sample.tree, ledger, None);
        assert_eq!(report.findings, [], "nothing is wrong");
        assert_eq!(report.failures, [], "nothing failed");
        assert_eq!(report.verdict, Some(Verdict::Pass));
        for (what, count) in [("legs", 3), ("cases", 37), ("rows", 72), ("gates", 17)] {
            assert_eq!(report.checked[what], count, "{what}");
        }
    }
}

#[test]
fn a_rehearsal_holds_without_marker_and_seal() {
    let report = judged(&sample::rehearsal());
    assert_eq!(report.findings, []);
    assert_eq!(report.verdict, Some(Verdict::Pass));
}

#[test]
fn a_bag_alone_holds() {
    let sample = sample::run();
    let bag = sample
        .tree
        .iter()
        .filter_map(|(path, entry)| Some((path.strip_prefix("bag/")?.to_owned(), entry.clone())));
    let report = check(&bag.collect(), None, None);
    assert_eq!(report.findings, []);
    assert_eq!(report.verdict, Some(Verdict::Pass));
}

#[test]
fn a_later_analysis_stands_and_an_earlier_one_may_have_been_wrong() {
    let mut sample = sample::run();
    let first = sample::bytes(&sample.tree, "analysis-1/analysis.json");
    let mut analysis: Value = serde_json::from_slice(&first).expect("because it is JSON");
    analysis["analyzer"] = json!(sha256("another analyzer"));
    put(
        &mut sample.tree,
        "analysis-2/analysis.json",
        line(&analysis),
    );
    sample::seal(&mut sample);
    assert_eq!(judged(&sample).findings, [], "two that agree");
    let mut wrong: Value = serde_json::from_slice(&first).expect("because it is JSON");
    wrong["verdict"] = json!("fail");
    let mut copy = sample::run();
    put(&mut copy.tree, "analysis-1/analysis.json", line(&wrong));
    let before = copy.ledger.iter().filter(|byte| **byte == b'\n').count() - 2;
    let kept = copy
        .ledger
        .split_inclusive(|byte| *byte == b'\n')
        .take(before);
    copy.ledger = kept.collect::<Vec<_>>().concat();
    sample::seal(&mut copy);
    assert!(judged(&copy).has("analysis.verdict"), "alone it is wrong");
    put(&mut copy.tree, "analysis-2/analysis.json", line(&analysis));
    sample::seal(&mut copy);
    let report = judged(&copy);
    assert_eq!(report.findings, []);
    let mut notes = report.notes.iter();
    assert!(
        notes.any(|note| note.starts_with("analysis-1/")),
        "{:?}",
        report.notes
    );
}
