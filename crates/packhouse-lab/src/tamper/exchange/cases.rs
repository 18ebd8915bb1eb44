//! Cases that are missing, invented, doubled or out of order, and gates that are declared.

use super::{At, Turn, is_faulty, lay};
use crate::tamper::Tamper;
use crate::tamper::edit::{Change, bytes};
use crate::tamper::records::has_passed;
use crate::verify::Evidence;
use serde_json::{Value, json};

/// Cases that are missing, invented, doubled or out of order, and sessions that are not whole.
pub(super) fn cases(lines: &[At], turns: &[Turn]) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let Some(turn) = turns.iter().find(|turn| turn.is("answer")) else {
        return tampers;
    };
    let (path, at) = (&turn.case.path, turn.case.number);
    let mut push = |what: &str, codes: &[&'static str], changes: Vec<Change>| {
        tampers.push(Tamper::within(
            format!("exchange.jsonl: {what}"),
            codes,
            changes,
        ));
    };
    push(
        "a case removed",
        &["rows.missing"],
        vec![Change::lines(path, at, 3, Vec::new())],
    );
    let doubled = vec![Change::lines(path, at, 0, turn.lines())];
    push("a case doubled", &["rows.doubled"], doubled);
    let foreign = |field: &str, value: Value| {
        let mut case = turn.case.value.clone();
        case["message"][field] = value;
        let mut lines = turn.lines();
        lines[0] = bytes(&case);
        vec![Change::lines(path, at + 3, 0, lines)]
    };
    push(
        "an arm invented",
        &["rows.extra"],
        foreign("arm", json!("tampered")),
    );
    push(
        "a repeat invented",
        &["rows.extra"],
        foreign("repeat", json!(777_777)),
    );
    push(
        "a width invented",
        &["rows.extra"],
        foreign("width", json!(777)),
    );
    let next = turns
        .iter()
        .find(|next| next.is_of(turn) && next.case.number == at + 3 && next.key() != turn.key());
    if let Some(next) = next {
        let swapped = [next.lines(), turn.lines()].concat();
        push(
            "two cases swapped",
            &["rows.order"],
            vec![Change::lines(path, at, 6, swapped)],
        );
        let inputs = next.case.message()["inputs"].clone();
        let changes = vec![
            turn.case
                .edited(|line| line["message"]["inputs"] = inputs.clone()),
        ];
        push("the inputs of another case", &["case.inputs"], changes);
    }
    tampers.extend(sessions(lines, turn));
    tampers
}

/// A hello that does not offer what was asked, or that is of no form.
pub(super) fn offers(lines: &[At], turns: &[Turn]) -> Vec<Tamper> {
    let Some(turn) = turns.iter().find(|turn| turn.is("answer")) else {
        return Vec::new();
    };
    let case = &turn.case;
    let is_hello = |line: &&At| {
        line.path == case.path
            && line.value["treatment"] == case.value["treatment"]
            && line.value["from"] == "component"
            && line.message()["type"] == "hello"
    };
    let Some(hello) = lines.iter().find(is_hello) else {
        return Vec::new();
    };
    let fixture = &case.message()["fixture"];
    let kernel = |line: &mut Value, field: &str, value: Value| {
        let kernels = line["message"]["kernels"].as_array_mut();
        let mut kernels = kernels.into_iter().flatten();
        if let Some(kernel) = kernels.find(|kernel| kernel["fixture"] == *fixture) {
            kernel[field] = value;
        }
    };
    let other = json!(["cuda:GPU-00000000-0000-0000-0000-000000000000"]);
    vec![
        hello.tamper("hello: no kernel", &["case.fixture"], |line| {
            line["message"]["kernels"] = json!([]);
        }),
        hello.tamper("hello: another fixture", &["case.fixture"], |line| {
            kernel(line, "fixture", json!("tampered"));
        }),
        hello.tamper("hello: no arm", &["case.arm"], |line| {
            kernel(line, "arms", json!([]));
        }),
        hello.tamper("hello: another width", &["case.width"], |line| {
            kernel(line, "widths", json!([999_999]));
        }),
        hello.tamper("hello: width 0", &["leg.message"], |line| {
            kernel(line, "widths", json!([0]));
        }),
        hello.tamper("hello: another device", &["case.device"], |line| {
            line["message"]["devices"] = other.clone();
        }),
        hello.tamper("hello: a device by its ordinal", &["leg.message"], |line| {
            line["message"]["devices"] = json!(["cpu", "cuda:0"]);
        }),
    ]
}

/// Sessions that are not whole, or not in time.
fn sessions(lines: &[At], turn: &Turn) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let (path, at) = (&turn.case.path, turn.case.number);
    let mut push = |what: &str, codes: &[&'static str], changes: Vec<Change>| {
        tampers.push(Tamper::within(
            format!("exchange.jsonl: {what}"),
            codes,
            changes,
        ));
    };
    push(
        "an answer removed",
        &["leg.order"],
        vec![Change::lines(path, at + 1, 1, Vec::new())],
    );
    push(
        "what was seen removed",
        &["leg.order"],
        vec![Change::lines(path, at + 2, 1, Vec::new())],
    );
    push(
        "the question removed",
        &["leg.order"],
        vec![Change::lines(path, at, 1, Vec::new())],
    );
    push(
        "an answer twice",
        &["leg.order"],
        vec![Change::lines(
            path,
            at + 1,
            0,
            vec![bytes(&turn.reply.value)],
        )],
    );
    push(
        "a time that goes back",
        &["leg.order"],
        vec![turn.seen.edited(|line| line["at_ns"] = json!(0))],
    );
    push(
        "a line that is none",
        &["record.not-canonical"],
        vec![Change::line(path, at, b"{ \"tampered\": 1 }\n".to_vec())],
    );
    let own: Vec<&At> = lines.iter().filter(|line| line.path == *path).collect();
    if let Some(hello) = own.first() {
        let changes = vec![Change::lines(path, hello.number, 1, Vec::new())];
        push("hello removed", &["leg.order"], changes);
    }
    if let Some(end) = own.last() {
        push(
            "the end removed",
            &["leg.end"],
            vec![Change::lines(path, end.number, 1, Vec::new())],
        );
    }
    let behind = own.iter().filter(|line| line.number > at);
    let later = behind.map(|line| a_year_later(line)).collect();
    push("an answer after a year", &["budget"], later);
    let all = own.iter().map(|line| a_year_later(line)).collect();
    push("every line a year later", &["run.clock"], all);
    tampers
}

fn a_year_later(line: &At) -> Change {
    line.edited(|line| {
        let at_ns = line["at_ns"].as_u64().unwrap_or_default();
        line["at_ns"] = json!(at_ns.saturating_add(YEAR_NS));
    })
}

/// Gates that a preregistration declares.
pub(super) fn declared(evidence: &Evidence, answered: &[&Turn]) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    // An answer that has a fault is asked nothing else; one that is not equal is.
    let is_asked =
        |turn: &&&Turn| turn.case.value["treatment"] == "candidate" && !is_faulty(evidence, turn);
    let candidates: Vec<&&Turn> = answered.iter().filter(is_asked).collect();
    let Some(turn) = candidates.first() else {
        return tampers;
    };
    if has_passed(evidence, "witness") {
        tampers.push(
            turn.reply
                .tamper("answer: a path that did not run", &["witness"], |line| {
                    for witness in line["message"]["witnesses"]
                        .as_array_mut()
                        .into_iter()
                        .flatten()
                    {
                        if witness["path"] != "poison" {
                            witness["path"] = json!("tampered");
                        }
                    }
                }),
        );
    }
    if has_passed(evidence, "capture-idle") {
        tampers.push(
            turn.reply
                .tamper("answer: while capturing", &["capture"], |line| {
                    line["message"]["capture"] = json!("capturing");
                }),
        );
    }
    if has_passed(evidence, "no-warnings") {
        let warned = turn
            .reply
            .tamper("answer: a warning", &["warning"], |line| {
                line["message"]["warnings"] = json!(["tampered"]);
            });
        tampers.push(warned);
    }
    tampers.extend(repeated(evidence, turn, &candidates));
    tampers
}

/// What is asked of two repeats of one case.
fn repeated(evidence: &Evidence, turn: &Turn, candidates: &[&&Turn]) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let again = candidates.iter().find(|other| {
        let [one, other_case] = [turn, **other].map(|turn| turn.case.message());
        let is_same = ["fixture", "arm", "width"]
            .iter()
            .all(|it| one[*it] == other_case[*it]);
        other.is_of(turn) && is_same && one["repeat"] != other_case["repeat"]
    });
    if let Some(again) = again.filter(|_| has_passed(evidence, "stable-pointers")) {
        tampers.push(
            again
                .reply
                .tamper("answer: a tensor moved", &["pointers.moved"], |line| {
                    for boundary in line["message"]["boundaries"]
                        .as_array_mut()
                        .into_iter()
                        .flatten()
                    {
                        let start = boundary["start"].as_u64().unwrap_or(0);
                        lay(boundary, start + (1 << 45));
                    }
                }),
        );
    }
    if let Some(again) = again.filter(|_| has_passed(evidence, "fresh-inputs")) {
        let (case, seen) = (
            turn.case.message()["inputs"].clone(),
            &turn.seen.value["seen"],
        );
        let (said, looked) = (
            turn.reply.message()["inputs"].clone(),
            seen["inputs"].clone(),
        );
        let changes = vec![
            again
                .case
                .edited(|line| line["message"]["inputs"] = case.clone()),
            again
                .reply
                .edited(|line| line["message"]["inputs"] = said.clone()),
            again
                .seen
                .edited(|line| line["seen"]["inputs"] = looked.clone()),
        ];
        let name = "inputs: those of an earlier case".to_owned();
        tampers.push(Tamper::within(name, &["inputs.stale"], changes));
    }
    tampers
}

const YEAR_NS: u64 = 31_536_000_000_000_000;
