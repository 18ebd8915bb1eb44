//! Both judges, one bag: what the analyzer seals the second implementation must find too, under the
//! same code and path; else the evidence of an honest fail or abort is called broken.

use crate::maker::{RECIPES, Script, evidence, timed};
use packhouse_bag::closed;
use packhouse_bagcheck::{Entry, Report, Tree, check};
use packhouse_component::message::Answer;
use packhouse_lab::analysis::{Analysis, Verdict};
use packhouse_lab::schedule::PlannedCase;
use packhouse_lab::verify::{Evidence, findings};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What the second implementation says.
fn second(evidence: &Evidence) -> Report {
    let files = evidence.files.files().iter();
    let files =
        files.map(|(path, bytes)| (path.clone(), Entry::file(std::sync::Arc::clone(bytes))));
    let tree: Tree = files.collect();
    check(&tree, evidence.ledger.as_deref(), None)
}

/// What either judge finds wrong in evidence.
fn found(evidence: &Evidence) -> Vec<String> {
    let report = second(evidence);
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

/// Changes some lines of a file of the bag, and closes the bag again.
fn forged(evidence: &Evidence, path: &str, edit: fn(&mut [Value])) -> Evidence {
    let mut copy = evidence.clone();
    let bytes = evidence.files.get(path).expect("because it is there");
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut lines: Vec<Value> = lines
        .map(|line| serde_json::from_slice(line).expect("because it is JSON"))
        .collect();
    edit(&mut lines);
    let lines = lines.iter().map(packhouse_base::canonical::render);
    copy.files
        .insert(path.to_owned(), lines.collect::<Vec<_>>().concat());
    let bag = copy.files.below("bag");
    let (info, _) = bag.info().expect("because it has one");
    for (path, bytes) in closed(&bag.payload(), &info).files() {
        copy.files.insert(format!("bag/{path}"), bytes.clone());
    }
    copy
}

/// Code and path of each thing that a bag is accused of.
type Accused = BTreeSet<(String, String)>;

fn of_the_bag<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Accused {
    all.filter(|(_, path)| path.starts_with("bag/data/"))
        .map(|(code, path)| (code.to_owned(), path.to_owned()))
        .collect()
}

const HELLO: &str = "bag/data/legs/00/exchange.jsonl:2";
const CASE: &str = "bag/data/legs/00/exchange.jsonl:3";
const ANSWER: &str = "bag/data/legs/00/exchange.jsonl:4";
const RUN: &str = "bag/data/run.json";
const LEG: &str = "bag/data/legs/00/leg.json";
type Forgery = (&'static str, &'static str, fn(&mut [Value]));

/// Where a forgery is found, and what it changes.
const FORGERIES: [Forgery; 25] = [
    ("case.fixture", CASE, |lines| {
        hello(lines)["kernels"] = json!([])
    }),
    ("case.arm", CASE, |lines| {
        hello(lines)["kernels"][0]["arms"] = json!([])
    }),
    ("case.width", CASE, |lines| {
        hello(lines)["kernels"][0]["widths"] = json!([999]);
    }),
    ("case.device", CASE, |lines| {
        hello(lines)["devices"] = json!([])
    }),
    ("leg.message", HELLO, |lines| {
        hello(lines)["kernels"][0]["widths"] = json!([1, 0]);
    }),
    ("leg.message", HELLO, |lines| {
        hello(lines)["kernels"][0]["widths"] = json!([1, 1]);
    }),
    ("leg.message", HELLO, |lines| {
        hello(lines)["kernels"][0]["arms"] = json!(["plain", "/etc/x Y"]);
    }),
    ("leg.message", HELLO, |lines| {
        hello(lines)["devices"] = json!(["cpu", "cuda:0"]);
    }),
    ("leg.message", HELLO, |lines| {
        hello(lines)["devices"] = json!(["cpu", "cpu"]);
    }),
    ("leg.message", HELLO, |lines| {
        let many: Vec<u64> = (1..=65).collect();
        hello(lines)["kernels"][0]["widths"] = json!(many);
    }),
    ("leg.message", ANSWER, |lines| {
        lines[3]["message"]["witnesses"][0]["counters"] = json!({"BAD NAME/": 1});
    }),
    ("leg.message", ANSWER, |lines| {
        lines[3]["message"]["warnings"] = json!(["w".repeat(1 << 20)]);
    }),
    ("run.status", RUN, |run| run[0]["removed"] = json!(["x"])),
    ("record.type", RUN, |run| {
        run[0]["removed"] = json!(["/etc/passwd"])
    }),
    ("record.type", RUN, |run| {
        run[0]["removed"] = json!(["x", "x"])
    }),
    ("record.type", RUN, |run| {
        run[0]["started"]["wall_ns"] = json!(1_u64 << 63);
    }),
    ("run.clock", RUN, |run| run[0]["boot"] = json!("another")),
    ("run.clock", LEG, |leg| {
        leg[0]["programs"][0]["elapsed_ns"] = json!(u64::MAX);
    }),
    ("record.type", LEG, |leg| {
        leg[0]["programs"][0]["pid"] = json!(0)
    }),
    ("record.type", LEG, |leg| leg[0]["started"] = Value::Null),
    ("record.type", "bag/data/marker.json", |marker| {
        marker[0]["file_system"] = json!("tmpfs");
    }),
    ("authority.state", "bag/data/authority.jsonl:5", |lines| {
        let packet = lines[3]["body"]["packet"].take();
        lines[3]["body"] = json!({"packet": packet, "reason": "a slip"});
        lines[3]["kind"] = json!("withdrawn");
    }),
    ("authority.state", "bag/data/authority.jsonl:4", |lines| {
        lines[3]["boot"] = json!("another");
    }),
    ("authority.state", "bag/data/authority.jsonl:4", |lines| {
        lines[3]["body"]["analyzer"] = json!("7".repeat(64));
    }),
    ("authority.state", "bag/data/authority.jsonl:4", |lines| {
        lines[3]["at_ns"] = json!(-4_000_000_000_000_000_000_i64);
    }),
];

/// One judge that says another path tells everything twice, and one that finds nothing is none.
#[test]
fn both_judges_find_each_forgery_under_the_same_code_and_path() {
    let evidence = evidence(&timed());
    for (number, (code, path, edit)) in FORGERIES.into_iter().enumerate() {
        let file = path.split(".jsonl:").next().unwrap_or(path);
        let file = match file.ends_with(".json") {
            true => file.to_owned(),
            false => format!("{file}.jsonl"),
        };
        let copy = forged(&evidence, &file, edit);
        let own = findings(&copy, &RECIPES);
        let own = of_the_bag(own.iter().map(|one| (one.code, one.path.as_str())));
        let report = second(&copy);
        let other = report.findings.iter();
        let other = of_the_bag(other.map(|one| (one.code, one.path.as_str())));
        let expected = (code.to_owned(), path.to_owned());
        assert!(
            own.contains(&expected),
            "{number} {expected:?}: own {own:?}"
        );
        assert!(
            other.contains(&expected),
            "{number} {expected:?}: {other:?}"
        );
        // What follows from a line or marker that is none each judge may tell in its own way.
        if code.starts_with("case.") || path == RUN || path == LEG {
            assert_eq!(own, other, "{number} {expected:?}");
        }
    }
}

/// The program's hello in the lines of a leg.
fn hello(lines: &mut [Value]) -> &mut Value {
    &mut lines[1]["message"]
}

/// A saving that is large enough in nanoseconds may be little of what a cycle takes.
#[test]
fn both_judges_hold_the_median_against_percent_of_the_control_too() {
    let with = |percent: u64| {
        let saving = "minimum_median_saving_ns = 500\n";
        let prereg = timed().prereg;
        assert_eq!(prereg.matches(saving).count(), 1);
        let more = format!("{saving}minimum_median_saving_percent = {percent}\n");
        let evidence = evidence(&Script {
            prereg: prereg.replace(saving, &more),
            ..timed()
        });
        assert_eq!(found(&evidence), [] as [String; 0]);
        let gate = stored(&evidence)
            .gate("timing")
            .expect("because it is")
            .clone();
        (gate.passed, gate.failures, gate.threshold, gate.measured)
    };
    // 8000 of 18000 nanoseconds: between 44 and 45 of 100.
    let (passed, failures, threshold, measured) = with(44);
    assert_eq!((passed, failures), (Some(true), Vec::new()));
    let words = "wins >= 5 of 6, median >= 500 ns and >= 44 % on every device";
    assert_eq!(threshold, words);
    assert_eq!(measured, "cpu: wins = 6 of 6, median = 1000 ns, 400/9 %");
    let (passed, failures, ..) = with(45);
    assert_eq!(passed, Some(false));
    assert_eq!(failures.len(), 1);
    assert!(failures[0].starts_with("timing.percent: "), "{failures:?}");
}

/// A packet was rehearsed until its noise looked small, and sealed a pass on the quietest of six.
#[test]
fn both_judges_refuse_a_run_whose_gate_a_rehearsal_showed_to_be_within_the_noise() {
    let told = |detectable_ns| {
        let evidence = evidence(&Script {
            detectable_ns: Some(detectable_ns),
            ..timed()
        });
        assert_eq!(found(&evidence), [] as [String; 0]);
        let analysis = stored(&evidence);
        let records = analysis.gate("records").expect("because it always is");
        (analysis.verdict, records.failures.clone())
    };
    assert_eq!(told(500), (Verdict::Pass, Vec::new()));
    let (verdict, failures) = told(501);
    assert_eq!(verdict, Verdict::Fail);
    let words = "told savings from 501 ns on, the gate asks for 500 ns";
    let path = "authority.jsonl:4";
    assert_eq!(failures, [format!("authority.state: {path}: {words}")]);
}
