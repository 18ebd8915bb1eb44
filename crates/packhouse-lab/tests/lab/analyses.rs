//! What is made of evidence: right evidence has no finding, and each gate fails for its own reason.

use crate::maker::{RECIPES, Script, analyzer, evidence, shared, timed};
use packhouse_lab::analysis::{Analysis, Kind, Verdict, analyse};
use packhouse_lab::verify::{Evidence, findings};

/// The stored analysis.
pub(crate) fn stored(evidence: &Evidence) -> Analysis {
    let bytes = evidence
        .files
        .get("analysis-1/analysis.json")
        .expect("because it is there");
    Analysis::parse(bytes).expect("because it is one")
}

fn analysis(script: &Script) -> Analysis {
    stored(&evidence(script))
}

#[test]
fn right_evidence_passes_and_has_no_finding() {
    for script in [timed(), shared()] {
        let evidence = evidence(&script);
        let analysis = stored(&evidence);
        let failed: Vec<_> = analysis
            .gates
            .iter()
            .filter(|it| it.passed != Some(true))
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert_eq!(analysis.verdict, Verdict::Pass);
        assert_eq!(findings(&evidence, &RECIPES), []);
    }
}

#[test]
fn the_same_bag_and_analyzer_give_the_same_bytes() {
    let evidence = evidence(&timed());
    let bag = evidence.files.below("bag");
    let fresh = packhouse_lab::recipes::Recipes::default();
    let again = analyse(&bag, analyzer(), &fresh);
    assert_eq!(
        again.render(),
        evidence
            .files
            .get("analysis-1/analysis.json")
            .expect("there")
    );
    assert_eq!(Analysis::parse(&again.render()), Ok(again));
}

#[test]
fn a_rehearsal_passes_though_the_null_program_can_not_do_what_the_candidate_can() {
    let script = Script {
        kind: Kind::Rehearsal,
        timed_ns: [5_000, 5_000],
        ..timed()
    };
    let evidence = evidence(&script);
    let analysis = stored(&evidence);
    let timing = analysis
        .gate("timing")
        .expect("because there is a timing leg");
    assert_eq!((timing.passed, timing.decides), (Some(false), false));
    assert_eq!(analysis.verdict, Verdict::Pass, "{:#?}", analysis.gates);
    assert_eq!(findings(&evidence, &RECIPES), []);
    assert_eq!(analysis.says.len(), 5);
}
