//! Each way to tamper with evidence is found, for its own reason. What is changed within the bag
//! is closed again, so that no manifest gives it away.

use crate::sample::{self, FIXTURE, Sample, bytes, close, line, put, sha256};
use packhouse_bagcheck::{Entry, check};
use serde_json::{Value, json};

/// Judges tampered evidence and demands a code, in a report that is not valid.
fn rejects(sample: &Sample, what: &str, codes: &[&str]) {
    let report = check(&sample.tree, Some(&sample.ledger), None);
    let is_found = codes.iter().any(|code| report.has(code));
    assert!(!report.is_valid(), "{what}: nothing was found");
    let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(is_found, "{what}: none of {codes:?} in {found:#?}");
}

/// Changes a record of the bag and closes the bag again.
fn edit(sample: &Sample, path: &str, change: impl FnOnce(&mut Value)) -> Sample {
    let mut copy = sample.clone();
    let mut value = parse(&bytes(&copy.tree, path));
    change(&mut value);
    put(&mut copy.tree, path, line(&value));
    reclose(&mut copy, path);
    copy
}

/// Changes the lines of a file of the bag.
fn edit_lines(sample: &Sample, path: &str, change: impl FnOnce(&mut Vec<Value>)) -> Sample {
    let mut copy = sample.clone();
    let all = bytes(&copy.tree, path);
    let mut lines: Vec<Value> = all
        .split_inclusive(|byte| *byte == b'\n')
        .map(parse)
        .collect();
    change(&mut lines);
    let all: Vec<u8> = lines.iter().flat_map(line).collect();
    put(&mut copy.tree, path, all);
    reclose(&mut copy, path);
    copy
}

fn reclose(sample: &mut Sample, path: &str) {
    if path.starts_with("bag/") {
        close(&mut sample.tree);
    }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("because the sample is JSON")
}

/// Replaces a file of the bag, or removes it.
fn replace(sample: &Sample, path: &str, with: Option<&[u8]>) -> Sample {
    let mut copy = sample.clone();
    match with {
        Some(bytes) => put(&mut copy.tree, path, bytes),
        None => drop(copy.tree.remove(path)),
    }
    reclose(&mut copy, path);
    copy
}

const CONTROL: &str = "bag/data/legs/00/exchange.jsonl";
const CANDIDATE: &str = "bag/data/legs/01/exchange.jsonl";
const TIMED: &str = "bag/data/legs/02/exchange.jsonl";
const RUN: &str = "bag/data/run.json";
const LEG: &str = "bag/data/legs/01/leg.json";
const ANALYSIS: &str = "analysis-1/analysis.json";

/// Pointers to every field of a value, in objects in lists too.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                out.push(at.clone());
                pointers(value, &at, out);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate().take(1) {
                pointers(value, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// The object that a pointer's field is in, and the field's name.
fn parent<'v>(value: &'v mut Value, pointer: &str) -> Option<(&'v mut Value, String)> {
    let (at, name) = pointer.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    Some((value.pointer_mut(at)?, name))
}

/// Removes every field of a record in turn, then makes it another type.
fn every_field(value: &Value, judge: &mut dyn FnMut(&str, &Value)) {
    let mut all = Vec::new();
    pointers(value, "", &mut all);
    for pointer in all {
        let mut without = value.clone();
        let (object, name) = parent(&mut without, &pointer).expect("because it was listed");
        object
            .as_object_mut()
            .expect("because it has fields")
            .remove(&name);
        judge(&format!("without {pointer}"), &without);
        let mut other = value.clone();
        let field = other.pointer_mut(&pointer).expect("because it was listed");
        *field = if field.is_array() {
            json!({})
        } else {
            json!([])
        };
        judge(&format!("another type of {pointer}"), &other);
    }
    let mut extra = value.clone();
    extra["unknown"] = json!(1);
    judge("an unknown field", &extra);
}

#[test]
fn every_field_of_every_record_is_demanded_and_no_other_is_taken() {
    let sample = sample::run();
    let marker = "bag/data/marker.json";
    let packet = "bag/data/packet.json";
    for path in [packet, marker, RUN, LEG, ANALYSIS, "seal-1.json"] {
        let value = parse(&bytes(&sample.tree, path));
        every_field(&value, &mut |what, value| {
            let tampered = replace(&sample, path, Some(&line(value)));
            rejects(&tampered, &format!("{path} {what}"), &RECORD);
        });
    }
}

/// Codes of a record that is not of its form; a list of arguments may also be another one than was
/// frozen.
const RECORD: [&str; 4] = [
    "record.missing-field",
    "record.unknown-field",
    "record.type",
    "packet.prereg",
];

#[test]
fn every_field_of_every_line_is_demanded_and_no_other_is_taken() {
    let sample = sample::run();
    // Hello of both, a case, its answer, what was seen; further on a refusal; at last bye and the
    // end.
    for (path, numbers) in [
        (CANDIDATE, &[0, 1, 2, 3, 4, 15, 17, 18][..]),
        (TIMED, &[11, 12]),
    ] {
        let all = bytes(&sample.tree, path);
        let lines: Vec<Value> = all
            .split_inclusive(|byte| *byte == b'\n')
            .map(parse)
            .collect();
        for number in numbers {
            every_field(&lines[*number], &mut |what, value| {
                // What the case's maps name is not a field of the format: another role is another
                // case.
                let tampered = edit_lines(&sample, path, |lines| lines[*number] = value.clone());
                let codes = match what {
                    // Nothing was timed in this leg: only another bag shows it.
                    "without /message/times" => vec!["analysis.bag"],
                    // No gate asks the control for its counters.
                    _ if what.contains("/counters/") => {
                        vec!["witness", "record.type", "analysis.bag"]
                    }
                    _ => [&RECORD[..], &CONTENT].concat(),
                };
                rejects(&tampered, &format!("{path}:{} {what}", number + 1), &codes);
            });
        }
    }
}

/// Codes of a line whose maps have lost an entry, or that lost what makes it an answer with time.
const CONTENT: [&str; 11] = [
    "witness",
    "denial",
    "leg.message",
    "case.inputs",
    "case.parameters",
    "case.poison",
    "answer.input-missing",
    "answer.file-absent",
    "answer.input-changed",
    "answer.not-timed",
    "poison",
];

#[test]
fn every_byte_of_authority_and_ledger_counts() {
    let sample = sample::run();
    let path = "bag/data/authority.jsonl";
    let all = bytes(&sample.tree, path);
    let count = all.iter().filter(|byte| **byte == b'\n').count();
    for number in 0..count {
        let without = edit_lines(&sample, path, |lines| drop(lines.remove(number)));
        let codes = ["authority.chain", "authority.state", "authority.nonce"];
        rejects(
            &without,
            &format!("authority without line {number}"),
            &codes,
        );
        let mut other = sample.clone();
        other.ledger = edited(&sample.ledger, number, |entry| entry["at_ns"] = json!(6));
        let codes = ["ledger.previous", "ledger.authority"];
        rejects(
            &other,
            &format!("the ledger with another line {number}"),
            &codes,
        );
        let twice = edit_lines(&sample, path, |lines| {
            lines.insert(number, lines[number].clone())
        });
        rejects(&twice, "a line twice", &["authority.chain"]);
    }
    let mut cut = sample.clone();
    let lines = sample.ledger.split_inclusive(|byte| *byte == b'\n');
    cut.ledger = lines.take(count).collect::<Vec<_>>().concat();
    rejects(&cut, "a ledger from before the end", &["ledger.sealed"]);
}

fn edited(ledger: &[u8], number: usize, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut lines: Vec<Value> = ledger
        .split_inclusive(|byte| *byte == b'\n')
        .map(parse)
        .collect();
    change(&mut lines[number]);
    lines.iter().flat_map(line).collect()
}

#[test]
fn records_that_contradict_each_other_are_found() {
    let sample = sample::run();
    let other = json!(sha256("other"));
    let run: [(&str, Value, &str); 8] = [
        ("/packet", other.clone(), "packet.digest"),
        ("/nonce", other.clone(), "authority.nonce"),
        ("/status", json!("stopped"), "run.status"),
        ("/stage", json!("leg"), "run.status"),
        ("/ended/steady_ns", json!(1), "run.clock"),
        ("/clock/forward_ns", json!(4), "run.clock"),
        ("/legs/1/device", json!("cuda:0"), "run.legs"),
        ("/legs/1/status", json!("broken"), "run.status"),
    ];
    for (pointer, value, code) in run {
        let tampered = edit(&sample, RUN, |run| {
            *run.pointer_mut(pointer).expect("because it is there") = value;
        });
        rejects(&tampered, pointer, &[code]);
    }
    let leg: [(&str, Value, &str); 7] = [
        ("/number", json!(7), "leg.number"),
        ("/kind", json!("timing"), "leg.number"),
        ("/status", json!("failed"), "run.legs"),
        ("/ended/steady_ns", json!(999), "run.clock"),
        ("/programs/0/treatment", json!("control"), "leg.program"),
        ("/programs/0/exit", json!("code 1"), "leg.end"),
        ("/programs/0/objects/0/sha256", other.clone(), "identity"),
    ];
    for (pointer, value, code) in leg {
        let tampered = edit(&sample, LEG, |leg| {
            *leg.pointer_mut(pointer).expect("because it is there") = value;
        });
        rejects(&tampered, pointer, &[code]);
    }
    for (pointer, code) in [
        ("/packet", "marker.packet"),
        ("/nonce", "marker.nonce"),
        ("/ledger", "marker.ledger"),
        ("/lab", "marker.ledger"),
    ] {
        let tampered = edit(&sample, "bag/data/marker.json", |marker| {
            *marker.pointer_mut(pointer).expect("because it is there") = other.clone();
        });
        rejects(&tampered, pointer, &[code]);
        rejects(&tampered, pointer, &["authority.nonce"]);
    }
}

#[test]
fn files_that_are_missing_added_or_others_are_found() {
    let sample = sample::run();
    let fixture = format!("bag/data/fixtures/{FIXTURE}");
    let drawn = format!("bag/data/drawn/{FIXTURE}-1");
    let output = sample
        .tree
        .keys()
        .find(|path| path.starts_with("bag/data/outputs/"));
    let output = output.expect("because there are outputs").clone();
    let changed = bytes(&sample.tree, "bag/data/prereg.toml");
    let changed = String::from_utf8(changed).expect("because it is text");
    let looser = changed.replace("minimum_wins = 2", "minimum_wins = 1");
    let cases: [(&str, Option<&[u8]>, &str); 16] = [
        ("bag/data/lane.toml", None, "record.missing"),
        ("bag/data/prereg.toml", None, "record.missing"),
        ("bag/data/packet.json", None, "record.missing"),
        ("bag/data/run.json", None, "record.missing"),
        ("bag/data/authority.jsonl", None, "record.missing"),
        ("bag/data/marker.json", None, "marker.missing"),
        (LEG, None, "record.missing"),
        (CANDIDATE, None, "rows.missing"),
        (
            "bag/data/prereg.toml",
            Some(looser.as_bytes()),
            "packet.prereg",
        ),
        ("bag/data/lane.toml", Some(b"x = 1\n"), "packet.lane"),
        ("bag/data/notes.txt", Some(b"x"), "record.unexpected"),
        ("bag/data/legs/01/candidate.stderr", Some(b"x"), "leg.end"),
        (&output, Some(b"other bytes"), "output.digest"),
        (&output, None, "output.missing"),
        ("analysis-1/analysis.json", None, "analysis.missing"),
        ("seal-1.json", None, "seal.missing"),
    ];
    for (path, with, code) in cases {
        rejects(&replace(&sample, path, with), path, &[code]);
    }
    let unused = format!("bag/data/outputs/{}", sha256("x"));
    rejects(
        &replace(&sample, &unused, Some(b"x")),
        "an output",
        &["output.unused"],
    );
    for (folder, code) in [(&fixture, "fixture.missing"), (&drawn, "fixture.missing")] {
        let mut copy = sample.clone();
        copy.tree
            .retain(|path, _| !path.starts_with(&format!("{folder}/")));
        close(&mut copy.tree);
        rejects(&copy, folder, &[code]);
    }
    let mut copy = sample.clone();
    for (name, bytes) in sample::fixture(5) {
        put(&mut copy.tree, format!("{fixture}/{name}"), &bytes);
        put(
            &mut copy.tree,
            format!("bag/data/drawn/{FIXTURE}-9/{name}"),
            &bytes,
        );
    }
    close(&mut copy.tree);
    rejects(&copy, "another fixture", &["packet.fixture"]);
    rejects(&copy, "another fixture", &["fixture.unused"]);
    let bytes = Some(&b"other"[..]);
    let tampered = replace(&sample, &format!("{drawn}/data/in-1"), bytes);
    rejects(&tampered, "a drawn tensor", &["fixture.digest"]);
}

#[test]
fn cases_are_those_that_the_preregistration_and_the_nonce_give() {
    let sample = sample::run();
    let fields: [(&str, Value, &str); 9] = [
        ("/message/index", json!(5), "case.index"),
        ("/message/layout", json!("x"), "case.layout"),
        ("/message/device", json!("xpu:1"), "case.device"),
        ("/message/parameters/k", json!(3), "case.parameters"),
        ("/message/inputs/x/file", json!("y.bin"), "case.inputs"),
        (
            "/message/boundaries/0/stride",
            json!([1, 1]),
            "case.boundaries",
        ),
        ("/message/poison", json!(1), "case.poison"),
        ("/message/repeat", json!(3), "rows.extra"),
        ("/message/width", json!(5), "rows.missing"),
    ];
    for (pointer, value, code) in fields {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            *lines[2].pointer_mut(pointer).expect("because it is there") = value;
        });
        rejects(&tampered, pointer, &[code]);
    }
    let tampered = edit_lines(&sample, TIMED, |lines| {
        let timed = lines
            .iter_mut()
            .find(|line| line["message"]["cycles"] == json!(4));
        timed.expect("because it is timed")["message"]["cycles"] = json!(5);
    });
    rejects(&tampered, "cycles", &["case.cycles"]);
    for line in [0, 1] {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            lines[line]["message"]["challenge"] = json!(sha256("x"));
        });
        rejects(&tampered, "challenge", &["case.challenge"]);
    }
    // A case is three lines: the case, its answer, what was seen.
    type Change = fn(&mut Vec<Value>);
    let changes: [(&str, Change, &str); 7] = [
        ("missing", |lines| drop(lines.drain(2..5)), "rows.missing"),
        (
            "doubled",
            |lines| (0..3).for_each(|i| lines.insert(5 + i, lines[2 + i].clone())),
            "rows.doubled",
        ),
        ("swapped", |lines| lines[2..8].rotate_left(3), "rows.order"),
        ("no answer", |lines| drop(lines.remove(3)), "leg.order"),
        (
            "time goes back",
            |lines| lines[4]["at_ns"] = json!(1),
            "leg.order",
        ),
        ("no end", |lines| drop(lines.pop()), "leg.end"),
        (
            "broke off",
            |lines| lines.last_mut().expect("because there are lines")["end"] = json!("died"),
            "leg.end",
        ),
    ];
    for (what, change, code) in changes {
        rejects(&edit_lines(&sample, CANDIDATE, change), what, &[code]);
    }
    let turned = edit_lines(&sample, TIMED, |lines| lines[4..10].rotate_left(3));
    rejects(&turned, "the candidate first", &["rows.order"]);
}

#[test]
fn answers_are_judged_by_their_case_and_by_what_was_seen() {
    let sample = sample::run();
    let answer: [(&str, Value, &str); 22] = [
        ("/index", json!(1), "answer.index"),
        ("/capture", json!("unknown"), "answer.capture-not-said"),
        ("/capture", json!("capturing"), "capture"),
        ("/warnings", json!(["w"]), "warning"),
        (
            "/witnesses",
            json!([{"path": "poison", "counters": {"bytes": 16}}]),
            "answer.no-witness",
        ),
        ("/witnesses/1/counters/bytes", json!(15), "answer.poison"),
        ("/witnesses/0/counters/rows", json!(0), "witness"),
        ("/boundaries/1", Value::Null, "leg.message"),
        ("/boundaries/0/name", json!("third"), "answer.invented"),
        ("/boundaries/0/name", json!("second"), "answer.twice"),
        ("/boundaries/0/dtype", json!("i32"), "answer.dtype"),
        ("/boundaries/0/shape", json!([2, 1]), "answer.shape"),
        ("/boundaries/0/stride", json!([1, 1]), "answer.stride"),
        ("/boundaries/1/storage_offset", json!(3), "answer.offset"),
        ("/boundaries/0/bytes", json!(9), "answer.bytes"),
        ("/boundaries/0/device", json!("xpu:1"), "answer.device"),
        ("/boundaries/0/file", json!("a.bin"), "answer.file-name"),
        ("/boundaries/0/sha256", json!(sha256("x")), "answer.digest"),
        ("/boundaries/0/end", json!(1), "answer.interval"),
        (
            "/inputs/x/sha256",
            json!(sha256("x")),
            "answer.input-digest",
        ),
        (
            "/inputs/y",
            json!({"start": 1, "end": 2, "sha256": sha256("x")}),
            "answer.input-invented",
        ),
        (
            "/timed",
            json!({"cycles": 4, "elapsed_ns": 1}),
            "answer.timed-unasked",
        ),
    ];
    for (pointer, value, code) in answer {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            set(&mut lines[3]["message"], pointer, value)
        });
        rejects(&tampered, pointer, &[code]);
    }
}

#[test]
fn tensors_lie_where_nothing_else_lies() {
    let sample = sample::run();
    type Move<'a> = (&'a str, &'a [(&'a str, u64)], &'a str);
    let moves: [Move<'_>; 5] = [
        (
            "first",
            &[("boundaries/0/start", 4100), ("boundaries/0/end", 4108)],
            "answer.base",
        ),
        (
            "input",
            &[("inputs/x/start", 4110), ("inputs/x/end", 4118)],
            "answer.overlap",
        ),
        (
            "input at zero",
            &[("inputs/x/start", 0), ("inputs/x/end", 8)],
            "answer.interval",
        ),
        (
            "one byte in common",
            &[("inputs/x/start", 4089), ("inputs/x/end", 4097)],
            "answer.overlap",
        ),
        (
            "all",
            &[
                ("boundaries/0/start", 5096),
                ("boundaries/0/end", 5104),
                ("boundaries/1/start", 5104),
                ("boundaries/1/end", 5112),
            ],
            "pointers.moved",
        ),
    ];
    for (what, places, code) in moves {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            for (place, value) in places {
                set(&mut lines[3]["message"], &format!("/{place}"), json!(value));
            }
        });
        rejects(&tampered, what, &[code]);
    }
}

#[test]
fn what_was_seen_in_the_folders_is_what_the_case_asked_for() {
    let sample = sample::run();
    let seen: [(&str, Value, &str); 9] = [
        ("/index", json!(1), "leg.order"),
        (
            "/outputs/case-0-first.bin",
            json!({"refused": "no file"}),
            "answer.file-absent",
        ),
        (
            "/outputs/case-0-first.bin",
            json!({"refused": "a symlink"}),
            "answer.file-kind",
        ),
        (
            "/outputs/case-0-first.bin",
            json!({"refused": "99 bytes"}),
            "answer.file-length",
        ),
        (
            "/outputs/case-0-first.bin/bytes",
            json!(0),
            "answer.file-empty",
        ),
        (
            "/outputs/case-0-first.bin/bytes",
            json!(9),
            "answer.file-length",
        ),
        (
            "/outputs/x.bin",
            json!({"bytes": 0, "sha256": sha256("")}),
            "answer.file-extra",
        ),
        ("/inputs_extra", json!(["x"]), "answer.input-extra"),
        ("/inputs", json!({}), "answer.input-changed"),
    ];
    for (pointer, value, code) in seen {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            set(&mut lines[4]["seen"], pointer, value)
        });
        rejects(&tampered, pointer, &[code]);
    }
}

fn set(value: &mut Value, pointer: &str, to: Value) {
    let (object, name) = parent(value, pointer).expect("because the place is there");
    match object {
        Value::Array(items) => items[name.parse::<usize>().expect("because it is an index")] = to,
        object => object[name] = to,
    }
}

#[test]
fn bytes_are_compared_and_what_only_the_program_knows_is_asked() {
    let sample = sample::run();
    // Other output bytes, with right digests everywhere: only the comparison finds them.
    let wrong = [9u8; 8];
    let digest = sha256(wrong);
    let mut forged = edit_lines(&sample, CANDIDATE, |lines| {
        lines[3]["message"]["boundaries"][0]["sha256"] = json!(digest);
        lines[4]["seen"]["outputs"]["case-0-first.bin"]["sha256"] = json!(digest);
    });
    put(
        &mut forged.tree,
        format!("bag/data/outputs/{digest}"),
        wrong,
    );
    close(&mut forged.tree);
    rejects(&forged, "other bytes", &["equality"]);
    rejects(&forged, "other bytes", &["analysis.row"]);
    let hello: [(&str, Option<Value>, &str); 4] = [
        ("denies", None, "denial"),
        ("denies", Some(json!(["network"])), "denial"),
        ("poisons", None, "poison"),
        (
            "says_capture",
            Some(json!(false)),
            "answer.capture-not-offered",
        ),
    ];
    for (field, value, code) in hello {
        let tampered = edit_lines(&sample, CANDIDATE, |lines| {
            let hello = lines[1]["message"]
                .as_object_mut()
                .expect("because it is an object");
            match value {
                Some(value) => drop(hello.insert(field.to_owned(), value)),
                None => drop(hello.remove(field)),
            }
        });
        rejects(&tampered, field, &[code]);
    }
    let reason = edit_lines(&sample, CANDIDATE, |lines| {
        let line = lines
            .iter_mut()
            .find(|line| line["message"]["type"] == json!("declined"));
        line.expect("because one was declined")["message"]["reason"] = json!("no such widths");
    });
    rejects(&reason, "another reason", &["rejection"]);
    let slow = edit_lines(&sample, CONTROL, |lines| {
        for line in &mut lines[3..] {
            line["at_ns"] = json!(line["at_ns"].as_u64().expect("because it is") + 60_000_000_001);
        }
    });
    rejects(&slow, "a slow case", &["budget"]);
    let stale = edit_lines(&sample, CONTROL, |lines| {
        let inputs = lines[2]["message"]["inputs"].clone();
        lines[5]["message"]["inputs"] = inputs;
    });
    rejects(&stale, "inputs of before", &["inputs.stale"]);
}

#[test]
fn timed_answers_are_bounded_and_counted_on_every_device() {
    let sample = sample::run();
    let timed = |change: &dyn Fn(&mut Value)| {
        edit_lines(&sample, TIMED, |lines| {
            let line = lines
                .iter_mut()
                .find(|line| line["message"].get("timed").is_some());
            change(&mut line.expect("because one is timed")["message"]);
        })
    };
    for (change, code) in [
        (json!({"cycles": 5, "elapsed_ns": 900}), "answer.cycles"),
        (
            json!({"cycles": 4, "elapsed_ns": 1001}),
            "answer.timed-longer",
        ),
        (json!({"cycles": 4, "elapsed_ns": 0}), "timing.span"),
        (json!({"cycles": 4, "elapsed_ns": 500}), "timing.wins"),
        (json!({"cycles": 4, "elapsed_ns": 700}), "analysis.timing"),
        (json!({"cycles": 4, "elapsed_ns": 500}), "timing.median"),
    ] {
        rejects(
            &timed(&|message| message["timed"] = change.clone()),
            code,
            &[code],
        );
    }
    let without = timed(&|message| drop(message.as_object_mut().map(|map| map.remove("timed"))));
    rejects(&without, "no time", &["answer.not-timed"]);
    rejects(&without, "no time", &["timing.missing"]);
}

#[test]
fn an_analysis_says_what_the_bag_gives_and_nothing_else() {
    let sample = sample::run();
    let changes: [(&str, Value, &str); 19] = [
        ("/bag", json!(sha256("x")), "analysis.bag"),
        ("/packet", json!(sha256("x")), "analysis.packet"),
        ("/kind", json!("rehearsal"), "analysis.verdict"),
        ("/status", json!("stopped"), "analysis.verdict"),
        ("/verdict", json!("fail"), "analysis.verdict"),
        ("/says/0", json!("x"), "analysis.verdict"),
        ("/gates/0/passed", json!(false), "analysis.gate"),
        ("/gates/3/decides", json!(false), "analysis.gate"),
        ("/gates/3/basis", json!("attested"), "analysis.gate"),
        (
            "/gates/3/measured",
            json!("unequal rows = 0 of 41"),
            "analysis.gate",
        ),
        ("/gates/16/threshold", json!("wins >= 1"), "analysis.gate"),
        (
            "/gates/14/measured",
            json!("kernel.rows = 2"),
            "analysis.gate",
        ),
        ("/gates/0/failure_count", json!(1), "analysis.gate"),
        (
            "/gates/0/failures",
            json!(["equality: x: y"]),
            "analysis.gate",
        ),
        ("/rows/39/sha256", json!(sha256("x")), "analysis.row"),
        ("/rows/0/equal", json!(false), "analysis.row"),
        ("/timing/0/wins", json!(1), "analysis.timing"),
        (
            "/timing/0/bootstrap_lower_95/numerator",
            json!("21"),
            "analysis.timing",
        ),
        ("/timing", json!([]), "analysis.timing"),
    ];
    for (pointer, value, code) in changes {
        let tampered = edit(&sample, ANALYSIS, |analysis| set(analysis, pointer, value));
        rejects(&tampered, pointer, &[code]);
        rejects(&tampered, pointer, &["seal.subject"]);
        rejects(&tampered, pointer, &["ledger.sealed"]);
    }
    let dropped = edit(&sample, ANALYSIS, |analysis| {
        analysis["gates"]
            .as_array_mut()
            .expect("because it is a list")
            .remove(3);
    });
    rejects(&dropped, "without a gate", &["analysis.gate"]);
    let mut second = sample.clone();
    put(
        &mut second.tree,
        "analysis-2/analysis.json",
        bytes(&sample.tree, ANALYSIS),
    );
    rejects(&second, "the same analyzer again", &["analysis.number"]);
    let mut third = sample.clone();
    put(
        &mut third.tree,
        "analysis-3/analysis.json",
        bytes(&sample.tree, ANALYSIS),
    );
    rejects(&third, "a gap", &["analysis.number"]);
}

#[test]
fn a_seal_is_of_what_lies_there_and_has_its_place_in_the_ledger() {
    let sample = sample::run();
    let changes: [(&str, Value, &str); 12] = [
        ("/_type", json!("x"), "seal.type"),
        ("/predicateType", json!("x"), "seal.type"),
        (
            "/subject/0/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        (
            "/subject/1/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        (
            "/subject/2/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        ("/subject/1/name", json!("bag"), "seal.subject"),
        ("/predicate/packet", json!(sha256("x")), "seal.subject"),
        ("/predicate/number", json!(2), "seal.head"),
        ("/predicate/verdict", json!("fail"), "seal.verdict"),
        ("/predicate/ledger_head", json!(sha256("x")), "seal.head"),
        ("/predicate/analyzer", json!(sha256("x")), "seal.head"),
        ("/predicate/lab", json!(sha256("x")), "seal.head"),
    ];
    for (pointer, value, code) in changes {
        let tampered = edit(&sample, "seal-1.json", |seal| set(seal, pointer, value));
        rejects(&tampered, pointer, &[code]);
    }
    let swapped = edit(&sample, "seal-1.json", |seal| {
        seal["subject"]
            .as_array_mut()
            .expect("because it is a list")
            .swap(0, 1);
    });
    rejects(&swapped, "subjects swapped", &["seal.subject"]);
}

#[test]
fn the_bag_is_what_its_lists_say_and_nothing_is_followed() {
    let sample = sample::run();
    let plain = |path: &str, entry: Entry| {
        let mut copy = sample.clone();
        copy.tree.insert(path.to_owned(), entry);
        copy
    };
    let file = |bytes: &[u8]| Entry::file(bytes.to_vec());
    for (path, entry, code) in [
        (RUN, file(b"{}\n"), "bag.digest"),
        (RUN, file(b""), "bag.empty-file"),
        ("bag/data/x", file(b"x"), "bag.unlisted"),
        ("bag/notes.txt", file(b"x"), "bag.unlisted"),
        ("notes.txt", file(b"x"), "bag.unlisted"),
        ("bag.open/data/x", file(b"x"), "bag.unlisted"),
        (".part-seal-1.json", file(b"x"), "bag.path"),
        ("bag/data/X", file(b"x"), "bag.path"),
        ("bag/data/empty", Entry::EmptyFolder, "bag.unlisted"),
        (RUN, Entry::Link("/etc/passwd".to_owned()), "bag.link"),
        ("seal-1.json", Entry::Link("x".to_owned()), "bag.link"),
        (
            "bag/data/pipe",
            Entry::Other("a pipe".to_owned()),
            "bag.link",
        ),
        (
            "bag/bagit.txt",
            file(b"BagIt-Version: 0.97\n"),
            "bag.not-bagit",
        ),
        (
            "bag/bag-info.txt",
            file(b"Payload-Oxum: 1.1\n"),
            "bag.not-bagit",
        ),
        ("bag/manifest-sha256.txt", file(b"x\n"), "bag.not-bagit"),
    ] {
        rejects(&plain(path, entry), path, &[code]);
    }
    let mut gone = sample.clone();
    gone.tree.remove(RUN);
    rejects(&gone, "a listed file", &["bag.listed-missing"]);
    let mut oxum = sample.clone();
    let info = String::from_utf8(bytes(&sample.tree, "bag/bag-info.txt"));
    let info = info.expect("because it is text");
    let wrong = info.replacen("Payload-Oxum: ", "Payload-Oxum: 1", 1);
    put(&mut oxum.tree, "bag/bag-info.txt", wrong);
    sample::tags(&mut oxum.tree);
    rejects(&oxum, "another count", &["bag.oxum"]);
    let mut named = sample.clone();
    let packet = sha256(bytes(&sample.tree, "bag/data/packet.json"));
    let other = info.replace(&packet, &sha256("x"));
    put(&mut named.tree, "bag/bag-info.txt", other);
    sample::tags(&mut named.tree);
    rejects(&named, "another packet", &["packet.digest"]);
}

#[test]
fn a_rehearsal_has_no_marker_and_its_ledger_cites_it() {
    let sample = sample::rehearsal();
    let run = sample::run();
    let marker = bytes(&run.tree, "bag/data/marker.json");
    let tampered = replace(&sample, "bag/data/marker.json", Some(&marker));
    rejects(&tampered, "a marker", &["marker.unexpected"]);
    let mut sealed = sample.clone();
    put(
        &mut sealed.tree,
        "seal-1.json",
        bytes(&run.tree, "seal-1.json"),
    );
    rejects(&sealed, "a seal", &["bag.unlisted"]);
    let mut foreign = sample.clone();
    let last = sample.ledger.iter().filter(|byte| **byte == b'\n').count() - 1;
    let digest = json!(sha256("x"));
    foreign.ledger = edited(&sample.ledger, last, |entry| {
        entry["body"]["analysis"] = digest
    });
    rejects(
        &foreign,
        "a ledger with another analysis",
        &["ledger.sealed"],
    );
    let called = edit(&sample, RUN, |run| run["kind"] = json!("run"));
    rejects(
        &called,
        "a rehearsal that calls itself a run",
        &["marker.missing", "authority.state"],
    );
}

#[test]
fn a_rejection_cannot_be_left_out_of_the_lines_that_gave_the_right() {
    let sample = sample::run();
    // Somebody approves a second time, in the ledger alone: the bag's lines were chosen.
    let mut chosen = sample.clone();
    let lines = sample.ledger.split_inclusive(|byte| *byte == b'\n');
    let mut entries: Vec<Value> = lines.map(parse).collect();
    let mut word = entries[4].clone();
    word["body"]["reviewer"] = json!("another");
    entries.insert(5, word);
    entries[6]["body"]["reviews"] = json!([4]);
    chosen.ledger = Vec::new();
    for entry in &entries {
        let kind = entry["kind"].as_str().expect("because it has one");
        sample::enter(&mut chosen.ledger, kind, entry["body"].clone());
    }
    let lines = chosen.ledger.split_inclusive(|byte| *byte == b'\n').take(9);
    let kept = lines
        .enumerate()
        .filter(|(index, _)| *index != 5)
        .map(|(_, line)| line);
    let kept = kept.collect::<Vec<_>>().concat();
    put(&mut chosen.tree, "bag/data/authority.jsonl", kept);
    close(&mut chosen.tree);
    let report = check(&chosen.tree, Some(&chosen.ledger), None);
    let mut words = report
        .findings
        .iter()
        .filter(|one| one.code == "ledger.authority");
    assert!(
        words.any(|one| one.words == "entry 5 of the ledger was left out"),
        "{report:#?}"
    );
}

#[test]
fn a_leg_after_one_that_failed_is_against_the_stop_rule() {
    let sample = sample::run();
    let run = edit(&sample, RUN, |run| {
        run["legs"][0]["status"] = json!("failed")
    });
    let path = "bag/data/legs/00/leg.json";
    let both = edit(&run, path, |leg| leg["status"] = json!("failed"));
    rejects(&both, "two more legs", &["run.status"]);
}
