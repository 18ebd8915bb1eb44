//! What is made of evidence: right evidence has no finding, and each gate fails for its own reason.
//!
//! Some tests tell how another lab lost or kept results that it should not have: rules that were
//! written from belief and not from the declared layout, one analyzer per experiment, and guards
//! that looked at pointers only.

use crate::maker::{RECIPES, Script, analyzer, evidence, shared, timed};
use packhouse_base::digest::Digest;
use packhouse_component::message::{Answer, Capture};
use packhouse_lab::analysis::{Analysis, Kind, Status, Verdict, analyse};
use packhouse_lab::recipes::Recipes;
use packhouse_lab::schedule::PlannedCase;
use packhouse_lab::verify::{Evidence, findings};
use std::collections::BTreeMap;

type Outputs = BTreeMap<String, Vec<u8>>;

/// The stored analysis.
fn stored(evidence: &Evidence) -> Analysis {
    let bytes = evidence
        .files
        .get("analysis-1/analysis.json")
        .expect("because it is there");
    Analysis::parse(bytes).expect("because it is one")
}

/// The gates that did not pass, and the codes of their failures.
fn failed(analysis: &Analysis) -> Vec<(String, Vec<String>)> {
    let failed = analysis
        .gates
        .iter()
        .filter(|gate| gate.passed != Some(true));
    let code = |failure: &String| failure.split(':').next().unwrap_or_default().to_owned();
    let failed = failed.map(|gate| {
        let mut codes: Vec<String> = gate.failures.iter().map(code).collect();
        codes.dedup();
        (gate.gate.clone(), codes)
    });
    failed.collect()
}

/// What fails in evidence whose candidate answers otherwise.
fn failed_with(
    script: Script,
    answer: fn(&PlannedCase, &mut Answer, &mut Outputs),
) -> Vec<(String, Vec<String>)> {
    let evidence = evidence(&Script { answer, ..script });
    let analysis = stored(&evidence);
    assert_eq!(analysis.verdict, Verdict::Fail, "{:#?}", analysis.gates);
    // A failure that is told is no fault of the evidence.
    assert_eq!(findings(&evidence, &RECIPES), []);
    failed_beside_legs(&analysis)
}

/// All legs that are made here are complete, which a wrong answer belies.
fn failed_beside_legs(analysis: &Analysis) -> Vec<(String, Vec<String>)> {
    let mut failed = failed(analysis);
    failed.retain(|(_, codes)| codes != &["run.legs"]);
    failed
}

fn only(gate: &str, code: &str) -> Vec<(String, Vec<String>)> {
    vec![(gate.to_owned(), vec![code.to_owned()])]
}

#[test]
fn right_evidence_passes_and_has_no_finding() {
    for script in [timed(), shared()] {
        let evidence = evidence(&script);
        let analysis = stored(&evidence);
        assert_eq!(failed(&analysis), []);
        assert_eq!(analysis.verdict, Verdict::Pass);
        assert_eq!(findings(&evidence, &RECIPES), []);
        assert!(!analysis.rows.is_empty() && analysis.rows.iter().all(|row| row.equal));
    }
}

#[test]
fn the_same_bag_and_analyzer_give_the_same_bytes() {
    let evidence = evidence(&timed());
    let bag = evidence.files.below("bag");
    let again = analyse(&bag, analyzer(), &Recipes::default());
    assert_eq!(
        again.render(),
        evidence
            .files
            .get("analysis-1/analysis.json")
            .expect("there")
    );
    let other = analyse(&bag, Digest::of(b"another analyzer"), &RECIPES);
    assert_ne!(other.render(), again.render());
    assert_eq!(Analysis::parse(&again.render()), Ok(again));
}

#[test]
fn a_rehearsal_passes_though_the_null_program_can_not_do_what_the_candidate_can() {
    let script = Script {
        kind: Kind::Rehearsal,
        timed_ns: [5_000, 5_000],
        answer: |_, answer, _| answer.capture = Capture::Capturing,
        ..timed()
    };
    let evidence = evidence(&script);
    let analysis = stored(&evidence);
    let timing = analysis
        .gate("timing")
        .expect("because there is a timing leg");
    assert_eq!((timing.passed, timing.decides), (Some(false), false));
    let capture = analysis
        .gate("capture-idle")
        .expect("because it is declared");
    assert_eq!((capture.passed, capture.decides), (Some(false), false));
    assert_eq!(analysis.verdict, Verdict::Pass, "{:#?}", analysis.gates);
    assert_eq!(findings(&evidence, &RECIPES), []);
    assert_eq!(analysis.says.len(), 6);
}

#[test]
fn a_rehearsal_does_not_pass_when_a_row_is_wrong() {
    let script = Script {
        kind: Kind::Rehearsal,
        ..timed()
    };
    let wrong = failed_with(script, |_, answer, outputs| flip(answer, outputs));
    assert_eq!(
        wrong[0],
        ("equality".to_owned(), vec!["equality".to_owned()])
    );
}

/// Another last bit of the first output, told by every digest.
fn flip(answer: &mut Answer, outputs: &mut Outputs) {
    let record = &mut answer.boundaries[0];
    let bytes = outputs.get_mut(&record.file).expect("because it was made");
    *bytes.last_mut().expect("because it has bytes") ^= 1;
    record.sha256 = Digest::of(bytes);
}

#[test]
fn one_wrong_bit_in_one_drawn_case_fails_and_is_told_in_its_row() {
    let script = Script {
        answer: |ask, answer, outputs| {
            if ask.repeat == 1 {
                flip(answer, outputs);
            }
        },
        ..timed()
    };
    let analysis = stored(&evidence(&script));
    assert_eq!(failed_beside_legs(&analysis), only("equality", "equality"));
    let wrong: Vec<_> = analysis.rows.iter().filter(|row| !row.equal).collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!((wrong[0].leg, wrong[0].index, wrong[0].repeat), (0, 1, 1));
}

#[test]
fn each_gate_of_a_preregistration_fails_for_its_own_reason() {
    type Case = (
        &'static str,
        &'static str,
        fn(&PlannedCase, &mut Answer, &mut Outputs),
    );
    let cases: [Case; 6] = [
        ("no-warnings", "warning", |_, answer, _| {
            answer.warnings.push("slow".to_owned())
        }),
        ("capture-idle", "capture", |_, answer, _| {
            answer.capture = Capture::Capturing
        }),
        ("witness", "witness", |_, answer, _| {
            answer.witnesses[0].path = "other".to_owned()
        }),
        ("stable-pointers", "pointers.moved", |ask, answer, _| {
            answer.boundaries[0].start += ask.repeat * 4096;
            answer.boundaries[0].end += ask.repeat * 4096;
        }),
        ("unchanged", "answer.input-digest", |_, answer, _| {
            for input in answer.inputs.values_mut() {
                input.sha256 = Digest::of(b"after the run");
            }
        }),
        ("answers", "answer.no-witness", |_, answer, _| {
            answer.witnesses.clear()
        }),
    ];
    for (gate, code, answer) in cases {
        let failed = failed_with(timed(), answer);
        let found = failed.iter().find(|(name, _)| name == gate);
        let (_, codes) = found.unwrap_or_else(|| panic!("{gate} did not fail: {failed:?}"));
        assert!(codes.contains(&code.to_owned()), "{gate}: {codes:?}");
    }
}

#[test]
fn a_gate_that_asks_of_answers_has_not_passed_where_there_is_none() {
    let script = Script {
        answer: |_, answer, _| answer.index += 1,
        ..shared()
    };
    let analysis = stored(&evidence(&script));
    for gate in ["witness", "no-warnings", "capture-idle", "stable-pointers"] {
        let gate = analysis.gate(gate).expect("because it is declared");
        assert_eq!(gate.passed, None, "{gate:?}");
    }
    assert_eq!(analysis.rows, []);
    assert_eq!(analysis.verdict, Verdict::Fail);
}

#[test]
fn blocks_that_save_too_little_fail_by_wins_and_by_median_and_each_says_so() {
    let timing = |timed_ns| {
        let evidence = evidence(&Script {
            timed_ns,
            ..timed()
        });
        let analysis = stored(&evidence);
        let codes = failed(&analysis);
        let measured = analysis
            .gate("timing")
            .expect("because it is")
            .measured
            .clone();
        (codes, measured, analysis.timing[0].median.numerator.clone())
    };
    // Four cycles: 9000 against 5000 save 1000 ns per cycle.
    assert_eq!(timing([9_000, 5_000]).0, []);
    let (codes, measured, median) = timing([9_000, 7_004]);
    assert_eq!(codes, only("timing", "timing.median"));
    assert_eq!(measured, "cpu: wins = 6 of 6, median = 499 ns");
    assert_eq!(median, "499");
    let (codes, measured, _) = timing([5_000, 5_000]);
    let both = vec!["timing.wins".to_owned(), "timing.median".to_owned()];
    assert_eq!(codes, [("timing".to_owned(), both)]);
    assert_eq!(measured, "cpu: wins = 0 of 6, median = 0 ns");
}

/// A candidate that told one nanosecond for each case passed on its word.
#[test]
fn a_saving_that_the_controllers_own_spans_do_not_bear_out_fails() {
    let codes = |spent_ns| {
        let evidence = evidence(&Script {
            spent_ns,
            ..timed()
        });
        assert_eq!(findings(&evidence, &RECIPES), []);
        failed(&stored(&evidence))
    };
    // Twelve cases of either save 48000 ns by their word: half is enough, a nanosecond less not.
    assert_eq!(codes([7_000, 5_000]), []);
    assert_eq!(codes([6_999, 5_000]), only("timing", "timing.unconfirmed"));
    assert_eq!(codes([5_000, 9_000]), only("timing", "timing.unconfirmed"));
    // Nothing is claimed of a candidate that is slower, whatever the spans say.
    let slower = Script {
        timed_ns: [5_000, 9_000],
        spent_ns: [0, 90_000],
        ..timed()
    };
    let told = failed(&stored(&evidence(&slower)));
    assert!(
        !told[0].1.contains(&"timing.unconfirmed".to_owned()),
        "{told:?}"
    );
}

#[test]
fn an_aborted_run_is_an_abort_whatever_its_rows_say_and_a_torn_line_counts_for_nothing() {
    let whole = evidence(&timed());
    let path = "bag/data/run.json";
    let run = whole.files.get(path).expect("because it is there");
    let mut run = packhouse_lab::evidence::RunRecord::parse(run).expect("because it is one");
    run.status = Status::Aborted;
    run.stage = Some(packhouse_ledger::Stage::Leg);
    run.reason = Some("killed".to_owned());
    run.legs[1].status = packhouse_lab::evidence::LegStatus::Broken;
    let mut payload = whole.files.below("bag").payload();
    payload.insert("run.json", run.render());
    let path = "legs/01/exchange.jsonl";
    let exchange = payload.get(path).expect("because it is there").to_vec();
    payload.insert(path, &exchange[..exchange.len() - 7]);
    payload.remove("legs/01/leg.json");
    let info = packhouse_bag::BagInfo {
        software: "maker 1".to_owned(),
        packet: run.packet,
    };
    let analysis = analyse(
        &packhouse_bag::closed(&payload, &info),
        analyzer(),
        &RECIPES,
    );
    assert_eq!(analysis.verdict, Verdict::Abort);
    assert_eq!(analysis.status, Status::Aborted);
    let complete = analysis
        .gate("complete")
        .expect("because it is always there");
    assert_eq!((complete.passed, complete.failure_count), (None, 0));
    let records = analysis
        .gate("records")
        .expect("because it is always there");
    assert_eq!(records.failures, Vec::<String>::new());
    assert!(analysis.gates.iter().all(|gate| gate.passed != Some(true)));
}

#[test]
fn a_bag_of_nothing_is_analysed_and_is_no_pass() {
    let analysis = analyse(&packhouse_bag::Contents::default(), analyzer(), &RECIPES);
    assert_eq!(analysis.verdict, Verdict::Abort);
    let records = analysis
        .gate("records")
        .expect("because it is always there");
    assert!(records.failure_count >= 6, "{records:?}");
}

/// Another lab's third packet passed on its hardware and was rejected by its own analyzer, which
/// believed that every tensor begins at offset 0.
#[test]
fn a_view_at_its_declared_offset_is_right_and_at_offset_zero_it_is_not() {
    let evidence = evidence(&shared());
    let exchange = evidence
        .files
        .get("bag/data/legs/00/exchange.jsonl")
        .expect("there");
    let text = String::from_utf8_lossy(exchange);
    assert!(
        text.contains("\"storage_offset\":128"),
        "the values lie behind the keys"
    );
    assert_eq!(stored(&evidence).verdict, Verdict::Pass);
    let failed = failed_with(shared(), |_, answer, _| {
        for record in &mut answer.boundaries {
            record.storage_offset = 0;
        }
    });
    assert!(
        failed.contains(&("answers".to_owned(), vec!["answer.offset".to_owned()])),
        "{failed:?}"
    );
}

/// Analyzers were copied and edited for each experiment, and the strongest checks were in one copy.
#[test]
fn every_experiment_gets_every_check_and_brings_only_numbers() {
    let always = [
        "records",
        "complete",
        "answers",
        "equality",
        "identities",
        "unchanged",
        "disjoint",
        "rejections",
        "budget",
    ];
    for script in [timed(), shared()] {
        let analysis = stored(&evidence(&script));
        let names: Vec<&str> = analysis
            .gates
            .iter()
            .map(|gate| gate.gate.as_str())
            .collect();
        assert_eq!(names[..always.len()], always);
    }
    let stricter = Script {
        prereg: timed()
            .prereg
            .replace("saving_ns = 500", "saving_ns = 1001"),
        ..timed()
    };
    let analysis = stored(&evidence(&stricter));
    assert_eq!(failed(&analysis), only("timing", "timing.median"));
}

/// Guards compared base pointers only, so that a partial overlap and a view into another tensor
/// passed.
#[test]
fn a_partial_overlap_and_a_view_into_another_tensor_are_collisions() {
    type Lay = fn(&PlannedCase, &mut Answer, &mut Outputs);
    let lays: [Lay; 2] = [
        |_, answer, _| {
            let end = answer
                .inputs
                .values()
                .next()
                .expect("because there is one")
                .end;
            lay(answer, end - 1);
        },
        |_, answer, _| {
            let start = answer
                .inputs
                .values()
                .next()
                .expect("because there is one")
                .start;
            lay(answer, start + 16);
        },
    ];
    for answer in lays {
        let failed = failed_with(timed(), answer);
        let collision = ("disjoint".to_owned(), vec!["answer.overlap".to_owned()]);
        assert!(failed.contains(&collision), "{failed:?}");
    }
}

fn lay(answer: &mut Answer, start: u64) {
    let record = &mut answer.boundaries[0];
    record.start = start;
    record.end = start + record.bytes;
}

/// Buffers were not poisoned between rows, so what an earlier row left could pass for this one's.
#[test]
fn outputs_whose_storage_was_not_poisoned_do_not_pass() {
    let script = Script {
        poisons: false,
        ..shared()
    };
    let analysis = stored(&evidence(&script));
    assert_eq!(failed(&analysis), only("poisoned", "poison"));
    let failed = failed_with(shared(), |_, answer, _| {
        for witness in answer
            .witnesses
            .iter_mut()
            .filter(|witness| witness.path == "poison")
        {
            witness.counters.insert("bytes".to_owned(), 1);
        }
    });
    assert!(
        failed.contains(&("answers".to_owned(), vec!["answer.poison".to_owned()])),
        "{failed:?}"
    );
}

/// Several invariants were asserted and left no trace.
#[test]
fn every_gate_is_recorded_with_what_it_demands_and_what_was_found() {
    for script in [timed(), shared()] {
        let analysis = stored(&evidence(&script));
        for gate in &analysis.gates {
            assert!(
                !gate.threshold.is_empty() && !gate.measured.is_empty(),
                "{gate:?}"
            );
        }
        let complete = analysis
            .gate("complete")
            .expect("because it is always there");
        assert_eq!(complete.threshold, complete.measured);
    }
}
