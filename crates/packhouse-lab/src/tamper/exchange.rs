//! What both sides said: every field of every kind of message, tensors that lie where they can't,
//! outputs that are others, and cases that are missing, invented, doubled or out of order.

use super::Tamper;
use super::edit::{Change, bytes, split, value};
use super::records::{Form, has_passed};
use crate::verify::Evidence;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// A line of an exchange.
#[derive(Clone)]
struct At {
    path: String,
    number: usize,
    value: Value,
}

/// A case, its answer and what was seen, in three lines that follow each other.
#[derive(Clone)]
struct Turn {
    case: At,
    reply: At,
    seen: At,
}

/// All of it.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let lines = lines(evidence);
    let mut tampers = forms(evidence, &lines);
    let turns = turns(&lines);
    let answered: Vec<&Turn> = turns.iter().filter(|turn| turn.is("answer")).collect();
    // The answer with the most boundaries has the most to be wrong.
    let richest = answered.iter().max_by_key(|turn| turn.boundaries().len());
    if let Some(turn) = richest {
        tampers.extend(answer(evidence, turn));
        tampers.extend(seen(turn));
        tampers.extend(outputs(evidence, turn));
    }
    tampers.extend(cases(&lines, &turns));
    tampers.extend(declared(evidence, &answered));
    tampers.extend(timed(evidence, &answered));
    tampers.extend(declined(&turns));
    tampers
}

impl At {
    fn edited(&self, edit: impl Fn(&mut Value)) -> Change {
        let mut value = self.value.clone();
        edit(&mut value);
        Change::line(&self.path, self.number, bytes(&value))
    }

    fn message(&self) -> &Value {
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

    fn boundaries(&self) -> &[Value] {
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

fn lines(evidence: &Evidence) -> Vec<At> {
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
fn turns(lines: &[At]) -> Vec<Turn> {
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

/// Objects that may have any name, and fields that need not be there.
const FREE: &[&str] = &[
    "message.parameters",
    "message.inputs",
    "message.witnesses[].counters",
    "message.denies",
    "message.times",
    "message.poisons",
    "message.poison",
    "message.cycles",
    "message.timed",
    "seen.outputs",
    "seen.inputs",
];

/// What another value at a place of a kind of line is found by.
fn changed_of(kind: &str) -> fn(&str) -> &'static [&'static str] {
    match kind {
        "hello of the controller" => |place| match place {
            "message.challenge" => &["case.challenge"],
            "message.inputs" | "message.outputs" => &["record.type", "leg.message"],
            place => of_line(place),
        },
        "hello of the component" => |place| match place {
            "message.challenge" => &["case.challenge"],
            "message.says_capture" => &["answer.capture-not-said", "answer.capture-not-offered"],
            "message.times" | "message.poisons" => &["leg.message"],
            "message.denies" => &["leg.message"],
            "message.name" | "message.version" | "message.devices" | "message.kernels" => &[],
            place if place.starts_with("message.kernels") => &[],
            place => of_line(place),
        },
        "case" | "timed case" => |place| match place {
            "message.index" => &["case.index"],
            "message.layout" => &["case.layout"],
            "message.device" => &["case.device"],
            "message.poison" => &["case.poison"],
            "message.cycles" => &["case.cycles"],
            "message.fixture" | "message.arm" | "message.width" => &["rows.extra"],
            "message.repeat" => &["rows.extra", "rows.doubled", "rows.order"],
            place if place.starts_with("message.parameters") => &["case.parameters"],
            place if place.starts_with("message.inputs") => &["case.inputs"],
            place if place.starts_with("message.boundaries") => &["case.boundaries"],
            place => of_line(place),
        },
        "answer" | "timed answer" => |place| match place {
            "message.index" => &["answer.index"],
            "message.boundaries[].name" => &["answer.invented"],
            "message.boundaries[].dtype" => &["answer.dtype"],
            "message.boundaries[].shape" => &["answer.shape"],
            "message.boundaries[].stride" => &["answer.stride"],
            "message.boundaries[].storage_offset" => &["answer.offset"],
            "message.boundaries[].bytes" => &["answer.bytes"],
            "message.boundaries[].device" => &["answer.device"],
            "message.boundaries[].file" => &["answer.file-name"],
            "message.boundaries[].sha256" => &["answer.digest"],
            "message.boundaries[].start" | "message.boundaries[].end" => &["answer.interval"],
            "message.capture" => &["capture", "answer.capture-not-offered"],
            "message.warnings" => &["warning"],
            "message.timed.cycles" => &["answer.cycles"],
            place if place.starts_with("message.inputs") => {
                if place.ends_with(".sha256") {
                    &["answer.input-digest"]
                } else {
                    &["answer.interval"]
                }
            }
            place if place.starts_with("message.witnesses") => &[],
            "message.timed.elapsed_ns" => &[],
            place => of_line(place),
        },
        "declined" => |place| match place {
            "message.index" => &["answer.index"],
            "message.reason" => &["rejection", "analysis.bag"],
            place => of_line(place),
        },
        "seen" => |place| match place {
            "seen.index" => &["leg.order"],
            "seen.inputs_extra" => &["answer.input-extra"],
            place if place.starts_with("seen.outputs") => {
                if place.ends_with(".bytes") {
                    &["output.digest"]
                } else {
                    &["output.missing", "answer.file-absent", "answer.file-extra"]
                }
            }
            place if place.starts_with("seen.inputs") => &["answer.input-changed"],
            place => of_line(place),
        },
        "end" => |place| match place {
            "end" => &["leg.end"],
            place => of_line(place),
        },
        _ => of_line,
    }
}

fn of_line(place: &str) -> &'static [&'static str] {
    match place {
        "treatment" => &["leg.order", "leg.program", "leg.end"],
        "from" => &[
            "record.type",
            "record.missing-field",
            "record.unknown-field",
            "leg.message",
        ],
        "message.type" | "message.protocol" => &["leg.message"],
        _ => &[],
    }
}

/// What an answer can claim of its tensors and inputs.
fn answer(evidence: &Evidence, turn: &Turn) -> Vec<Tamper> {
    let reply = &turn.reply;
    let mut tampers = vec![
        reply.tamper("answer: a boundary removed", &["answer.missing"], |line| {
            pop(&mut line["message"]["boundaries"]);
        }),
        reply.tamper("answer: a boundary doubled", &["answer.twice"], |line| {
            double(&mut line["message"]["boundaries"]);
        }),
        reply.tamper(
            "answer: a boundary invented",
            &["answer.invented"],
            |line| {
                double(&mut line["message"]["boundaries"]);
                last(&mut line["message"]["boundaries"])["name"] = json!("tampered");
            },
        ),
        reply.tamper("answer: no witness", &["answer.no-witness"], |line| {
            line["message"]["witnesses"] = json!([]);
        }),
        reply.tamper("answer: at address 0", &["answer.interval"], |line| {
            let boundary = &mut line["message"]["boundaries"][0];
            boundary["end"] = boundary["bytes"].clone();
            boundary["start"] = json!(0);
        }),
        reply.tamper(
            "answer: an input invented",
            &["answer.input-invented"],
            |line| {
                let inputs = &mut line["message"]["inputs"];
                let first = inputs
                    .as_object()
                    .and_then(|inputs| inputs.values().next().cloned());
                inputs["tampered"] = first.unwrap_or_default();
            },
        ),
        reply.tamper(
            "answer: an input removed",
            &["answer.input-missing"],
            |line| {
                if let Some(inputs) = line["message"]["inputs"].as_object_mut() {
                    let first = inputs.keys().next().cloned().unwrap_or_default();
                    inputs.remove(&first);
                }
            },
        ),
        reply.tamper(
            "answer: on an input's first byte",
            &["answer.overlap"],
            |line| {
                let inputs = line["message"]["inputs"].as_object();
                let start = inputs.and_then(|inputs| inputs.values().next()?["start"].as_u64());
                lay(&mut line["message"]["boundaries"][0], start.unwrap_or(1));
            },
        ),
        reply.tamper(
            "answer: on an input's last byte",
            &["answer.overlap"],
            |line| {
                let inputs = line["message"]["inputs"].as_object();
                let end = inputs.and_then(|inputs| inputs.values().next()?["end"].as_u64());
                lay(&mut line["message"]["boundaries"][0], end.unwrap_or(2) - 1);
            },
        ),
        reply.tamper(
            "answer: it says what it can't know",
            &["answer.timed-unasked"],
            |line| {
                line["message"]["timed"] = json!({ "cycles": 1, "elapsed_ns": 1 });
            },
        ),
    ];
    if turn.reply.message().get("timed").is_some() {
        tampers.pop();
    }
    if turn.boundaries().len() > 1 {
        let collide = &["answer.overlap", "answer.base"];
        tampers.push(
            reply.tamper("answer: one boundary on another", collide, |line| {
                let start = line["message"]["boundaries"][0]["start"].as_u64();
                lay(&mut line["message"]["boundaries"][1], start.unwrap_or(1));
            }),
        );
        tampers.push(
            reply.tamper("answer: one byte of another", collide, |line| {
                let end = line["message"]["boundaries"][0]["end"].as_u64();
                lay(&mut line["message"]["boundaries"][1], end.unwrap_or(2) - 1);
            }),
        );
    }
    if turn.case.message().get("poison").is_some() {
        tampers.push(
            reply.tamper("answer: fewer bytes poisoned", &["answer.poison"], |line| {
                for witness in line["message"]["witnesses"]
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                {
                    if witness["path"] == "poison" {
                        witness["counters"]["bytes"] = json!(0);
                    }
                }
            }),
        );
        tampers.push(
            turn.case
                .tamper("case: not poisoned", &["case.poison"], |line| {
                    remove(&mut line["message"], "poison");
                }),
        );
        tampers.push(
            turn.case
                .tamper("case: another poison", &["case.poison"], |line| {
                    line["message"]["poison"] = json!(0);
                }),
        );
    }
    if has_passed(evidence, "no-warnings") {
        tampers.push(reply.tamper("answer: a warning", &["warning"], |line| {
            line["message"]["warnings"] = json!(["tampered"]);
        }));
    }
    tampers
}

/// What was seen in the folders.
fn seen(turn: &Turn) -> Vec<Tamper> {
    let seen = &turn.seen;
    let first = |line: &mut Value, field: &str| {
        let names = line["seen"][field]
            .as_object()
            .and_then(|all| all.keys().next().cloned());
        names.unwrap_or_default()
    };
    vec![
        seen.tamper("seen: an output absent", &["answer.file-absent"], |line| {
            let name = first(line, "outputs");
            remove(&mut line["seen"]["outputs"], &name);
        }),
        seen.tamper("seen: an output more", &["answer.file-extra"], |line| {
            let name = first(line, "outputs");
            line["seen"]["outputs"]["tampered"] = line["seen"]["outputs"][&name].clone();
        }),
        seen.tamper("seen: an output is a link", &["answer.file-kind"], |line| {
            let name = first(line, "outputs");
            line["seen"]["outputs"][&name] = json!({ "refused": "a symlink" });
        }),
        seen.tamper(
            "seen: an output too long",
            &["answer.file-length"],
            |line| {
                let name = first(line, "outputs");
                line["seen"]["outputs"][&name] = json!({ "refused": "99999999 bytes" });
            },
        ),
        seen.tamper("seen: an empty output", &["answer.file-empty"], |line| {
            let name = first(line, "outputs");
            let empty = Digest::of(b"").to_string();
            line["seen"]["outputs"][&name] = json!({ "bytes": 0, "sha256": empty });
        }),
        seen.tamper(
            "seen: an input can't be read",
            &["answer.input-changed"],
            |line| {
                let name = first(line, "inputs");
                line["seen"]["inputs"][&name] = Value::Null;
            },
        ),
        seen.tamper(
            "seen: an input not looked at",
            &["answer.input-changed"],
            |line| {
                let name = first(line, "inputs");
                remove(&mut line["seen"]["inputs"], &name);
            },
        ),
        seen.tamper("seen: an input of no case", &["leg.order"], |line| {
            let name = format!("{}.bin", Digest::of(b"tampered"));
            line["seen"]["inputs"][&name] = Value::Null;
        }),
        seen.tamper("seen: an input more", &["answer.input-extra"], |line| {
            line["seen"]["inputs_extra"] = json!(["tampered"]);
        }),
        seen.tamper("seen: of another case", &["leg.order"], |line| {
            line["seen"]["index"] = json!(999_999);
        }),
    ]
}

/// Output bytes that are others, without and with every digest that names them.
fn outputs(evidence: &Evidence, turn: &Turn) -> Vec<Tamper> {
    let Some(boundary) = turn.boundaries().first() else {
        return Vec::new();
    };
    let sha256 = boundary["sha256"].as_str().unwrap_or_default();
    let file = boundary["file"].as_str().unwrap_or_default().to_owned();
    let path = format!("bag/data/outputs/{sha256}");
    let Some(original) = evidence.files.get(&path) else {
        return Vec::new();
    };
    let mut flipped = original.to_vec();
    if let Some(byte) = flipped.last_mut() {
        *byte ^= 0x40;
    }
    let zeroed = vec![0; original.len()];
    let mut shorter = original.to_vec();
    shorter.pop();
    let mut tampers = vec![
        Tamper::within(
            "output: a bit flipped".to_owned(),
            &["output.digest"],
            vec![Change::put(&path, flipped.clone())],
        ),
        Tamper::within(
            "output: removed".to_owned(),
            &["output.missing"],
            vec![Change::Remove(path.clone())],
        ),
        Tamper::within(
            "output: one that nobody made".to_owned(),
            &["output.unused"],
            vec![Change::put(
                &format!("bag/data/outputs/{}", Digest::of(b"tampered")),
                b"tampered".to_vec(),
            )],
        ),
    ];
    let with_digests = [
        ("a bit flipped", "equality", flipped),
        ("all zeros", "equality", zeroed),
        ("a byte shorter", "answer.file-length", shorter),
    ];
    for (what, code, bytes) in with_digests {
        let actual = Digest::of(&bytes).to_string();
        let length = bytes.len();
        let changes = vec![
            Change::put(&format!("bag/data/outputs/{actual}"), bytes),
            turn.reply.edited(|line| {
                line["message"]["boundaries"][0]["sha256"] = json!(actual);
            }),
            turn.seen.edited(|line| {
                let seen = json!({ "bytes": length, "sha256": actual });
                line["seen"]["outputs"][&file] = seen;
            }),
        ];
        let name = format!("output: {what}, with every digest");
        tampers.push(Tamper::within(name, &[code], changes));
    }
    tampers
}

/// Cases that are missing, invented, doubled or out of order, and sessions that are not whole.
fn cases(lines: &[At], turns: &[Turn]) -> Vec<Tamper> {
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
    // Everything from one answer on comes a year later.
    let later = own.iter().filter(|line| line.number > at).map(|line| {
        line.edited(|line| {
            let at_ns = line["at_ns"].as_u64().unwrap_or_default();
            line["at_ns"] = json!(at_ns.saturating_add(YEAR_NS));
        })
    });
    push("an answer after a year", &["budget"], later.collect());
    tampers
}

/// Gates that a preregistration declares.
fn declared(evidence: &Evidence, answered: &[&Turn]) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let of_candidate = |turn: &&&Turn| turn.case.value["treatment"] == "candidate";
    let candidates: Vec<&&Turn> = answered.iter().filter(of_candidate).collect();
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
    let again = candidates.iter().find(|other| {
        let [one, other_case] = [turn, other].map(|turn| turn.case.message());
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
    }
    tampers
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

const YEAR_NS: u64 = 31_536_000_000_000_000;
