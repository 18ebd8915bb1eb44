//! What both sides said: every field of every kind of message, tensors that lie where they can't,
//! outputs that are others, and cases that are missing, invented, doubled or out of order.

mod answers;
mod cases;
mod changed;

use super::Tamper;
use super::edit::{Change, bytes, split, value};
use super::records::{Form, failures, has_passed};
use crate::verify::Evidence;
use answers::{answer, outputs, seen};
use cases::{cases, declared, offers};
use changed::{FREE, changed_of};
use serde_json::{Value, json};

/// A line of an exchange.
#[derive(Clone)]
pub(super) struct At {
    pub(super) path: String,
    pub(super) number: usize,
    pub(super) value: Value,
}

/// A case, its answer and what was seen, in three lines that follow each other.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) case: At,
    pub(super) reply: At,
    pub(super) seen: At,
}

/// All of it.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let lines = lines(evidence);
    let mut tampers = forms(evidence, &lines);
    let turns = turns(&lines);
    let answered: Vec<&Turn> = turns.iter().filter(|turn| turn.is("answer")).collect();
    // The answer with the most boundaries has the most to be wrong; of one that is wrong already
    // much is told that would be new of others.
    let richest = answered
        .iter()
        .max_by_key(|turn| (!is_told(evidence, turn), turn.boundaries().len()));
    if let Some(turn) = richest {
        tampers.extend(answer(turn));
        tampers.extend(seen(turn));
        tampers.extend(outputs(evidence, turn));
    }
    tampers.extend(cases(&lines, &turns));
    tampers.extend(offers(&lines, &turns));
    tampers.extend(declared(evidence, &answered));
    tampers.extend(timed(evidence, &answered));
    tampers.extend(declined(&turns));
    tampers
}

impl At {
    pub(super) fn edited(&self, edit: impl Fn(&mut Value)) -> Change {
        let mut value = self.value.clone();
        edit(&mut value);
        Change::line(&self.path, self.number, bytes(&value))
    }

    pub(super) fn message(&self) -> &Value {
        &self.value["message"]
    }

    fn tamper(&self, what: &str, codes: &[&'static str], edit: impl Fn(&mut Value)) -> Tamper {
        Tamper::within(what.to_owned(), codes, vec![self.edited(edit)])
    }
}

impl Turn {
    fn is(&self, kind: &str) -> bool {
        self.reply.message()["type"] == kind
    }

    pub(super) fn boundaries(&self) -> &[Value] {
        self.reply.message()["boundaries"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    fn key(&self) -> Value {
        let case = self.case.message();
        let is_timed = case.get("cycles").is_some();
        json!([
            case["fixture"],
            case["arm"],
            case["width"],
            case["repeat"],
            is_timed
        ])
    }

    fn is_of(&self, other: &Self) -> bool {
        let treatment = |turn: &Self| turn.case.value["treatment"].clone();
        self.case.path == other.case.path && treatment(self) == treatment(other)
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        [&self.case, &self.reply, &self.seen]
            .map(|line| bytes(&line.value))
            .to_vec()
    }
}

/// The lines of all exchanges.
pub(super) fn lines(evidence: &Evidence) -> Vec<At> {
    let mut lines = Vec::new();
    for path in evidence
        .files
        .paths()
        .filter(|path| path.ends_with("/exchange.jsonl"))
    {
        let all = split(evidence.files.get(path).unwrap_or_default());
        for (number, line) in all.iter().enumerate() {
            if let Some(value) = value(line) {
                lines.push(At {
                    path: path.to_owned(),
                    number,
                    value,
                });
            }
        }
    }
    lines
}

/// The turns whose three lines follow each other, which they do.
pub(super) fn turns(lines: &[At]) -> Vec<Turn> {
    let triples = lines.windows(3).filter_map(|lines| {
        let [case, reply, seen] = lines else {
            return None;
        };
        let is_turn = case.message()["type"] == "case" && seen.value.get("seen").is_some();
        is_turn.then(|| Turn {
            case: case.clone(),
            reply: reply.clone(),
            seen: seen.clone(),
        })
    });
    triples.collect()
}

/// Whether the newest analysis tells a failure of an answer.
fn is_told(evidence: &Evidence, turn: &Turn) -> bool {
    has_failure(evidence, turn, "")
}

/// Whether that is a fault, so that gates ask nothing more of it.
fn is_faulty(evidence: &Evidence, turn: &Turn) -> bool {
    has_failure(evidence, turn, "answer.")
}

fn has_failure(evidence: &Evidence, turn: &Turn, codes: &str) -> bool {
    let path = turn.reply.path.trim_start_matches("bag/data/");
    let at = format!(": {path}:{}: ", turn.reply.number + 1);
    failures(evidence)
        .iter()
        .any(|failure| failure.starts_with(codes) && failure.contains(&at))
}

/// Every field of the first line of each kind.
fn forms(evidence: &Evidence, lines: &[At]) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for line in lines {
        let kind = kind(&line.value);
        // The candidate's lines first: more gates ask of them.
        let is_better = line.value["treatment"] == "candidate" || !has_candidate(lines, &kind);
        if kinds.contains(&kind) || !is_better {
            continue;
        }
        let form = Form {
            missing: &["record.missing-field", "leg.message"],
            unknown: &["record.unknown-field", "leg.message"],
            other_type: &["record.type", "leg.message"],
            free: FREE,
            ..Form::record(format!("exchange.jsonl ({kind})"), changed_of(&kind))
        };
        let place = |bytes| Change::line(&line.path, line.number, bytes);
        let mut all = form.tampers(&line.value, true, &place);
        // Of what is timed, only what it has more than what is not.
        all.retain(|tamper| !kind.starts_with("timed ") || is_of_time(&tamper.name));
        all.retain(|tamper| is_seen(evidence, &tamper.expected));
        tampers.extend(all);
        kinds.push(kind);
    }
    tampers
}

fn is_of_time(name: &str) -> bool {
    name.contains("message.timed") || name.contains("message.cycles")
}

fn has_candidate(lines: &[At], of: &str) -> bool {
    let mut lines = lines.iter();
    lines.any(|line| line.value["treatment"] == "candidate" && kind(&line.value) == of)
}

/// Whether a gate's failure would be a new one.
fn is_seen(evidence: &Evidence, expected: &[&'static str]) -> bool {
    let gates = [
        ("capture", "capture-idle"),
        ("denial", "denial"),
        ("warning", "no-warnings"),
    ];
    gates
        .iter()
        .all(|(code, gate)| !expected.contains(code) || has_passed(evidence, gate))
}

fn kind(line: &Value) -> String {
    if line.get("seen").is_some() {
        return "seen".to_owned();
    }
    if line.get("end").is_some() {
        return "end".to_owned();
    }
    let message = &line["message"];
    let word = message["type"].as_str().unwrap_or("none");
    let from = line["from"].as_str().unwrap_or("nobody");
    match word {
        "hello" => format!("hello of the {from}"),
        "case" if message.get("cycles").is_some() => "timed case".to_owned(),
        "answer" if message.get("timed").is_some() => "timed answer".to_owned(),
        word => word.to_owned(),
    }
}

/// Times of timed cases.
fn timed(evidence: &Evidence, answered: &[&Turn]) -> Vec<Tamper> {
    let is_timed = |turn: &&&Turn| turn.reply.message().get("timed").is_some();
    let timed: Vec<&&Turn> = answered.iter().filter(is_timed).collect();
    let mut tampers = Vec::new();
    let Some(turn) = timed.first() else {
        return tampers;
    };
    tampers.push(turn.reply.tamper(
        "timed: longer than it took",
        &["answer.timed-longer"],
        |line| {
            line["message"]["timed"]["elapsed_ns"] = json!(u64::MAX);
        },
    ));
    tampers.push(
        turn.reply
            .tamper("timed: no time", &["answer.not-timed"], |line| {
                remove(&mut line["message"], "timed");
            }),
    );
    tampers.push(
        turn.reply
            .tamper("timed: another time", &["analysis.timing"], |line| {
                let elapsed_ns = line["message"]["timed"]["elapsed_ns"].as_u64().unwrap_or(2);
                line["message"]["timed"]["elapsed_ns"] = json!(elapsed_ns - 1);
            }),
    );
    if has_passed(evidence, "timing") {
        let of_control = timed
            .iter()
            .filter(|turn| turn.case.value["treatment"] == "control");
        let changes = of_control.map(|turn| {
            turn.reply
                .edited(|line| line["message"]["timed"]["elapsed_ns"] = json!(1))
        });
        let name = "timed: the control needs no time".to_owned();
        let codes = &["timing.wins", "timing.median"];
        tampers.push(Tamper::within(name, codes, changes.collect()));
        tampers.extend(unconfirmed(&timed));
    }
    tampers
}

/// A candidate that tells no time at all, where that claims more than the spans bear out.
fn unconfirmed(timed: &[&&Turn]) -> Option<Tamper> {
    let (mut claimed_ns, mut spent_ns) = (0_i128, 0_i128);
    let mut changes = Vec::new();
    for turn in timed {
        let ns = |value: &Value| i128::from(value.as_u64().unwrap_or(0));
        let (case, reply) = (&turn.case.value, &turn.reply.value);
        let span_ns = ns(&reply["at_ns"]) - ns(&case["at_ns"]);
        if case["treatment"] == "control" {
            claimed_ns += ns(&reply["message"]["timed"]["elapsed_ns"]);
            spent_ns += span_ns;
        } else {
            claimed_ns -= 1;
            spent_ns -= span_ns;
            let told = |line: &mut Value| line["message"]["timed"]["elapsed_ns"] = json!(1);
            changes.push(turn.reply.edited(told));
        }
    }
    let name = "timed: the candidate needs no time".to_owned();
    let is_noticed = claimed_ns > 0 && 2 * spent_ns < claimed_ns;
    is_noticed.then(|| Tamper::within(name, &["timing.unconfirmed"], changes))
}

/// Cases that were declined.
fn declined(turns: &[Turn]) -> Vec<Tamper> {
    let Some(turn) = turns.iter().find(|turn| turn.is("declined")) else {
        return Vec::new();
    };
    vec![
        turn.reply
            .tamper("declined: another case", &["answer.index"], |line| {
                line["message"]["index"] = json!(999_999);
            }),
        turn.seen.tamper(
            "declined: and an input more",
            &["answer.input-extra"],
            |line| {
                line["seen"]["inputs_extra"] = json!(["tampered"]);
            },
        ),
        Tamper::within(
            "declined: not asked".to_owned(),
            &["rows.missing"],
            vec![Change::lines(
                &turn.case.path,
                turn.case.number,
                3,
                Vec::new(),
            )],
        ),
    ]
}

/// Puts a tensor at another address.
fn lay(tensor: &mut Value, start: u64) {
    let bytes = tensor["bytes"].as_u64().unwrap_or_default();
    tensor["start"] = json!(start);
    tensor["end"] = json!(start.saturating_add(bytes));
}

fn pop(list: &mut Value) {
    if let Some(items) = list.as_array_mut() {
        items.pop();
    }
}

fn double(list: &mut Value) {
    if let Some(items) = list.as_array_mut() {
        items.extend(items.last().cloned());
    }
}

fn last(list: &mut Value) -> &mut Value {
    let end = list.as_array().map_or(0, Vec::len);
    &mut list[end.saturating_sub(1)]
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
