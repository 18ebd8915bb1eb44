//! Tampered copies of runs that failed or broke off: each is rejected by both judges, for its own
//! reason. Nobody has more to wish for than whoever lost.

use crate::killed::two;
use crate::maker::{self, Script, timed};
use crate::played::{Manner, PREREG, Played, Programs, RECIPES};
use packhouse_bag::Contents;
use packhouse_bagcheck::{Entry, Tree, check};
use packhouse_base::digest::Digest;
use packhouse_component::message::Answer;
use packhouse_lab::analysis::{Analysis, Verdict};
use packhouse_lab::campaign::{Frozen, run};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_lab::tamper::{Judge, Outcome, OwnJudge, tampers};
use packhouse_lab::verify::Evidence;
use packhouse_ledger::act::Nonce;
use packhouse_sim::{Crash, Fault as SimFault};
use std::collections::{BTreeMap, BTreeSet};

/// The second implementation.
struct Second;

impl Judge for Second {
    fn name(&self) -> &'static str {
        "bagcheck"
    }

    fn codes(&self, evidence: &Evidence) -> BTreeSet<String> {
        let files = evidence.files.files().iter();
        let mut tree: Tree = files
            .map(|(path, bytes)| (path.clone(), Entry::File(bytes.clone())))
            .collect();
        let links = evidence.links.iter();
        tree.extend(links.map(|path| (path.clone(), Entry::Link(String::new()))));
        let report = check(&tree, evidence.ledger.as_deref(), None);
        let findings = report.findings.into_iter();
        findings.map(|finding| finding.code.to_string()).collect()
    }
}

/// The sealed evidence of a played lab.
fn of(played: &Played, packet: Digest) -> Evidence {
    let home = format!("/home/user/lab/evidence/{packet}");
    let ledger = played.sim.read("/home/user/lab/ledger.jsonl");
    Evidence {
        files: Contents::read(&played.dir(&home)).expect("because it is sealed"),
        ledger: ledger.map(Into::into),
        ..Evidence::default()
    }
}

/// What a candidate of some manner leaves sealed.
fn left_by(seed: u64, manner: Manner, document: &str) -> Evidence {
    let (played, packet) = Played::armed_as(seed, document);
    played.programs.manner.set(manner);
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is armed");
        run(campaign, writer, &frozen).expect("because it is sealed");
    });
    of(&played, packet)
}

/// What is sealed of a run that was killed right behind its marker.
fn killed_at_its_marker() -> Evidence {
    let (played, packet) = Played::armed(96);
    for at in 0.. {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let again = Played::on(sim.clone(), played.programs.again());
        again.act(|campaign, writer| {
            let frozen = Frozen::load(campaign, writer.ledger(), packet);
            let _ = frozen.map(|frozen| run(campaign, writer, &frozen));
        });
        let left = Played::on(sim.crash(Crash::Kept, at), Programs::default());
        let found = left.act(|campaign, writer| recover(campaign, writer, packet));
        if let Recovered::Sealed(_) = found.expect("because it can be finished") {
            return of(&left, packet);
        }
    }
    unreachable!("because a run takes its marker");
}

/// What is sealed of a run of which nobody can see whether it began: it has no marker.
fn without_a_marker() -> Evidence {
    let (played, packet) = Played::armed(97);
    played.act(|campaign, writer| {
        let nonce = Nonce {
            packet,
            nonce: Digest::of(b"nonce"),
            markers: None,
        };
        played.enter(writer, nonce);
        recover(campaign, writer, packet).expect("because it can be finished");
    });
    of(&played, packet)
}

/// A run whose first answer of the candidate is wrong, where the control was asked the same.
fn wrong() -> Script {
    Script {
        answer: |case, answer, outputs| {
            if case.index == 0 && case.cycles.is_none() {
                flip(answer, outputs);
            }
        },
        ..timed()
    }
}

/// Makes one bit of an answer another one, with the right digest of it.
fn flip(answer: &mut Answer, outputs: &mut BTreeMap<String, Vec<u8>>) {
    outputs.values_mut().next().expect("because there is one")[0] ^= 1;
    let boundaries = answer.boundaries.iter_mut();
    let mut boundaries = boundaries.filter(|boundary| outputs_first(outputs, &boundary.file));
    let boundary = boundaries.next().expect("because it is one of them");
    boundary.sha256 = Digest::of(&outputs[&boundary.file]);
}

fn outputs_first(outputs: &BTreeMap<String, Vec<u8>>, file: &str) -> bool {
    outputs.keys().next().is_some_and(|first| first == file)
}

fn verdict(evidence: &Evidence) -> Verdict {
    let bytes = evidence.files.get("analysis-1/analysis.json");
    let analysis = Analysis::parse(bytes.expect("because it is there"));
    analysis.expect("because it is one").verdict
}

/// What is done, and by which codes it is known.
type Known = BTreeSet<(String, Vec<&'static str>)>;

fn known(evidence: &Evidence) -> Known {
    let all = tampers(evidence).into_iter();
    all.map(|tamper| (tamper.name, tamper.expected)).collect()
}

/// Tampers in every way but those that are known, and demands that both judges reject each copy.
/// Returns what was done.
fn rejected(evidence: &Evidence, others: &Known) -> BTreeSet<String> {
    let own = OwnJudge(&RECIPES);
    let judges: [&dyn Judge; 2] = [&own, &Second];
    for judge in judges {
        assert_eq!(judge.codes(evidence), BTreeSet::new(), "{}", judge.name());
    }
    let (mut names, mut missed) = (BTreeSet::new(), Vec::new());
    for tamper in tampers(evidence) {
        if others.contains(&(tamper.name.clone(), tamper.expected.clone())) {
            continue;
        }
        let copy = tamper.apply(evidence);
        let found = judges
            .iter()
            .map(|judge| (judge.name(), judge.codes(&copy)));
        let outcome = Outcome {
            found: found.collect(),
            name: tamper.name.clone(),
            expected: tamper.expected,
        };
        if !outcome.is_rejected() {
            missed.push(outcome.to_string());
        }
        assert!(names.insert(tamper.name), "no tampering is twice the same");
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    names
}

/// Demands that something was done in each of some ways.
fn demand(names: &BTreeSet<String>, wanted: &[&str]) {
    for wanted in wanted {
        assert!(names.contains(*wanted), "{wanted}: {names:#?}");
    }
}

const SEALED: &str = ", and what seals it agrees";
const ENTERED: &str = ", and all that cites it agrees";

/// Demands each of some ways alone, with the seals made again, and with the ledger.
fn demand_all(names: &BTreeSet<String>, wanted: &[&str]) {
    for wanted in wanted {
        for how in ["", SEALED, ENTERED] {
            demand(names, &[&format!("{wanted}{how}")]);
        }
    }
}

#[test]
fn every_tampered_copy_of_a_fail_is_rejected_by_both_for_its_own_reason() {
    let evidence = left_by(98, Manner::WrongBit, PREREG);
    assert_eq!(verdict(&evidence), Verdict::Fail);
    let names = rejected(&evidence, &Known::new());
    demand_all(
        &names,
        &[
            "fail to pass: the analysis",
            "fail to pass: the whole analysis",
            "fail to abort: the analysis",
            "fail to abort: the run's record",
            "fail to abort: the run's record and the analysis",
            "a failed row: left out",
            "a failed row: called equal",
            "a failed leg: complete",
            "a failed case: not asked",
            "a failed case: not asked, and no row of it",
            "a failed output: the right bytes under its name",
            "a failed output: the right bytes, with every digest",
            "failed gate equality: removed",
            "failed gate equality: passed",
            "failed gate equality: another number",
        ],
    );
    demand(
        &names,
        &[
            "fail to pass: the seal",
            "fail to pass: the ledger",
            "fail to abort: the seal",
            "fail to abort: the ledger",
            "sealed: another reason",
            "to released: the ledger",
            "to released: the ledger and its lines in the bag",
            "to released: the ledger, its lines in the bag, and no marker",
            "the analysis: another number, and its seal",
            "a later analysis: pass, and all that cites it agrees",
            // Complete in itself: with the ledger made again too, nothing is left that could tell.
            "a failed output: the right bytes, with every digest and its row",
            &format!("a failed output: the right bytes, with every digest and its row{SEALED}"),
        ],
    );
    let whole = format!("a failed output: the right bytes, with every digest and its row{ENTERED}");
    assert!(!names.contains(&whole));
}

const ABORTED: [&str; 5] = [
    "abort to pass: the analysis",
    "abort to pass: the whole analysis",
    "abort to fail: the analysis",
    "abort to complete: the run's record and the analysis",
    "abort to stopped: the run's record and the analysis",
];

const TOLD: [&str; 12] = [
    "abort to pass: the seal",
    "abort to pass: the ledger",
    "abort to fail: the seal",
    "abort to fail: the ledger",
    "sealed: another stage",
    "sealed: another reason",
    "run.json: another stage",
    "run.json: another stage, and digests that agree",
    "run.json: another reason",
    "run.json: another reason, and digests that agree",
    "to released: the ledger",
    "to a rehearsal: the run's record and the analysis, no marker and no seal",
];

#[test]
fn every_tampered_copy_of_a_run_that_broke_off_is_rejected_by_both_for_its_own_reason() {
    let evidence = left_by(99, Manner::Dies, PREREG);
    assert_eq!(verdict(&evidence), Verdict::Abort);
    let names = rejected(&evidence, &Known::new());
    demand_all(&names, &ABORTED);
    demand(&names, &TOLD);
}

#[test]
fn every_tampered_copy_of_a_run_that_broke_off_before_any_row_is_rejected_by_both() {
    for evidence in [killed_at_its_marker(), without_a_marker()] {
        assert_eq!(verdict(&evidence), Verdict::Abort);
        assert!(
            evidence
                .files
                .paths()
                .all(|path| !path.contains("/outputs/"))
        );
        let names = rejected(&evidence, &Known::new());
        demand_all(&names, &ABORTED);
        demand(&names, &TOLD);
    }
}

#[test]
fn what_only_other_losses_can_have_is_rejected_by_both_too() {
    let others = known(&left_by(98, Manner::WrongBit, PREREG));
    let others: Known = others
        .union(&known(&maker::evidence(&timed())))
        .cloned()
        .collect();
    let slower = [5_000, 9_000];
    let cases = [
        (Verdict::Fail, left_by(100, Manner::Loads, PREREG)),
        (Verdict::Fail, left_by(101, Manner::Slow, PREREG)),
        (Verdict::Abort, left_by(102, Manner::Swaps, PREREG)),
        (Verdict::Fail, maker::evidence(&wrong())),
        (
            Verdict::Fail,
            maker::evidence(&Script {
                timed_ns: slower,
                ..timed()
            }),
        ),
        (
            Verdict::Fail,
            maker::evidence(&Script {
                detectable_ns: Some(501),
                ..timed()
            }),
        ),
    ];
    let mut names = BTreeSet::new();
    for (expected, evidence) in &cases {
        assert_eq!(verdict(evidence), *expected);
        names.extend(rejected(evidence, &others));
    }
    demand_all(
        &names,
        &[
            "failed gate identities: passed",
            "failed gate budget: another number",
            "failed gate timing: another number",
            "failed gate records: another number",
            "failed gate records: removed",
        ],
    );
    // Every case was answered: only the seal and the ledger can tell.
    demand(&names, &[&format!("{}{SEALED}", ABORTED[3])]);
}

/// Gates ask of the candidate: where all of its answers are wrong, a warning was put into one of
/// the control, which no gate asks, and the copy of honest evidence was said to be accepted.
#[test]
fn where_every_answer_is_wrong_a_warning_is_still_the_candidates() {
    let evidence = maker::evidence(&Script {
        answer: |_, answer, outputs| flip(answer, outputs),
        ..timed()
    });
    assert_eq!(verdict(&evidence), Verdict::Fail);
    let mut others = known(&evidence);
    others.retain(|(name, _)| name != "answer: a warning");
    let names = rejected(&evidence, &others);
    assert_eq!(names, ["answer: a warning".to_owned()].into());
}

/// Without a ledger its words are not tried, and what is left is rejected.
#[test]
fn without_a_ledger_the_rest_is_tried() {
    let mut evidence = left_by(103, Manner::Dies, PREREG);
    let others = known(&evidence);
    evidence.ledger = None;
    let names = rejected(&evidence, &others);
    let all = known(&evidence);
    assert!(all.len() < others.len(), "{names:?}");
    assert!(all.iter().all(|(name, _)| !name.ends_with(ENTERED)));
}

/// A leg whose time was over before its first case has a hello that no answer belies.
#[test]
fn a_hello_that_no_answer_belies_is_known_by_the_bag() {
    let evidence = left_by(111, Manner::Slow, &two());
    let own = OwnJudge(&RECIPES);
    let judges: [&dyn Judge; 2] = [&own, &Second];
    let mut count = 0;
    let all = tampers(&evidence).into_iter();
    for tamper in all.filter(|tamper| tamper.name.contains("says_capture changed")) {
        let copy = tamper.apply(&evidence);
        let found = judges.iter().map(|one| (one.name(), one.codes(&copy)));
        let outcome = Outcome {
            found: found.collect(),
            name: tamper.name.clone(),
            expected: tamper.expected,
        };
        assert!(outcome.is_rejected(), "{outcome}");
        count += 1;
    }
    assert!(count > 0);
}

/// Found beside the digest of the bag, which alone need not tell it.
#[test]
fn what_an_abort_does_not_excuse_is_found_by_both() {
    let cases = [
        (Manner::Dies, "programs[].treatment changed", "leg.program"),
        (Manner::Swaps, ".bin.sha256 changed", "answer.digest"),
        (Manner::Swaps, "leg.json removed", "record.missing"),
        (Manner::Swaps, "exchange.jsonl removed", "record.missing"),
    ];
    for (manner, what, code) in cases {
        let evidence = left_by(104, manner, PREREG);
        assert_eq!(verdict(&evidence), Verdict::Abort);
        let mut tampers = tampers(&evidence).into_iter();
        let tamper = tampers.find(|tamper| tamper.name.ends_with(what));
        let copy = tamper.expect("because it is made").apply(&evidence);
        let own = OwnJudge(&RECIPES);
        let judges: [&dyn Judge; 2] = [&own, &Second];
        for judge in judges {
            let codes = judge.codes(&copy);
            assert!(codes.contains(code), "{what}: {}: {codes:?}", judge.name());
        }
    }
}
