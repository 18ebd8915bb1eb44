//! Both judges, one bag: what the analyzer seals the second implementation must find too, under the
//! same code and path; else the evidence of an honest fail or abort is called broken.

use crate::maker::{RECIPES, Script, evidence, timed};
use packhouse_bagcheck::{Entry, Tree, check};
use packhouse_component::message::Answer;
use packhouse_lab::analysis::{Analysis, Verdict};
use packhouse_lab::schedule::PlannedCase;
use packhouse_lab::verify::{Evidence, findings};
use std::collections::BTreeMap;

/// What either judge finds wrong in evidence.
fn found(evidence: &Evidence) -> Vec<String> {
    let files = evidence.files.files().iter();
    let files =
        files.map(|(path, bytes)| (path.clone(), Entry::file(std::sync::Arc::clone(bytes))));
    let tree: Tree = files.collect();
    let report = check(&tree, evidence.ledger.as_deref(), None);
    let second = report.findings.iter();
    let second = second.map(|one| format!("second: {} {}: {}", one.code, one.path, one.words));
    let own = findings(evidence, &RECIPES).into_iter();
    own.map(|one| format!("own: {one}")).chain(second).collect()
}

fn stored(evidence: &Evidence) -> Analysis {
    let bytes = evidence.files.get("analysis-1/analysis.json");
    Analysis::parse(bytes.expect("because it is there")).expect("because it is one")
}

type Edit = fn(&PlannedCase, &mut Answer, &mut BTreeMap<String, Vec<u8>>);

/// An empty file, a boundary that is not there with its file, lengths that are not: a judge that
/// told one thing more than the other called the sealed fail broken.
#[test]
fn both_judges_tell_every_lie_of_an_answer_under_the_same_code_and_path() {
    let lies: [(&str, Edit); 12] = [
        ("answer.file-empty", |_, _, outputs| {
            each(outputs, Vec::clear)
        }),
        ("answer.file-length", |_, _, outputs| {
            each(outputs, |file| file.truncate(file.len() - 1))
        }),
        ("answer.file-length", |_, _, outputs| {
            each(outputs, |file| file.push(1))
        }),
        ("answer.digest", |_, _, outputs| {
            each(outputs, |file| file[0] ^= 1)
        }),
        ("answer.file-absent", |_, _, outputs| outputs.clear()),
        ("answer.missing", |_, answer, outputs| {
            let gone = answer.boundaries.pop();
            outputs.remove(&gone.expect("because it has one").file);
        }),
        ("answer.file-extra", |_, answer, _| {
            drop(answer.boundaries.pop())
        }),
        ("answer.twice", |_, answer, _| {
            let again = answer.boundaries[0].clone();
            answer.boundaries.push(again);
        }),
        ("answer.cycles", |_, answer, _| {
            if let Some(timed) = &mut answer.timed {
                timed.cycles += 1;
                timed.elapsed_ns = u64::MAX;
            }
        }),
        ("answer.no-witness", |_, answer, _| {
            answer.witnesses.retain(|one| one.path == "poison")
        }),
        ("answer.index", |_, answer, _| answer.index += 1),
        ("answer.overlap", |_, answer, _| {
            let input = answer
                .inputs
                .values()
                .next()
                .expect("because it has one")
                .start;
            let record = &mut answer.boundaries[0];
            (record.start, record.end) = (input, input + record.bytes);
        }),
    ];
    for (code, answer) in lies {
        let evidence = evidence(&Script { answer, ..timed() });
        assert_eq!(found(&evidence), Vec::<String>::new(), "{code}");
        let analysis = stored(&evidence);
        assert_eq!(analysis.verdict, Verdict::Fail, "{code}");
        let mut failures = analysis.gates.iter().flat_map(|gate| &gate.failures);
        assert!(
            failures.any(|failure| failure.starts_with(code)),
            "{code}: {:?}",
            analysis.gates
        );
    }
}

fn each(outputs: &mut BTreeMap<String, Vec<u8>>, edit: impl Fn(&mut Vec<u8>)) {
    outputs.values_mut().for_each(edit);
}
