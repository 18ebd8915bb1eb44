//! Answers, what was seen, and outputs that are others.

use super::{Turn, double, is_told, last, lay, pop, remove};
use crate::analysis::Status;
use crate::evidence::RunRecord;
use crate::tamper::Tamper;
use crate::tamper::edit::Change;
use crate::verify::Evidence;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// What an answer can claim of its tensors and inputs.
pub(super) fn answer(turn: &Turn) -> Vec<Tamper> {
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
    tampers.extend(laid(turn));
    tampers.extend(poisoned(turn));
    tampers
}

/// Tensors that lie where they can't.
fn laid(turn: &Turn) -> Vec<Tamper> {
    let reply = &turn.reply;
    let mut tampers = vec![
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
    ];
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
    tampers
}

/// Storages that were not poisoned as they must be.
fn poisoned(turn: &Turn) -> Vec<Tamper> {
    let reply = &turn.reply;
    let mut tampers = Vec::new();
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
    tampers
}

/// What was seen in the folders.
pub(super) fn seen(turn: &Turn) -> Vec<Tamper> {
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
pub(super) fn outputs(evidence: &Evidence, turn: &Turn) -> Vec<Tamper> {
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
            "output: one that nobody made".to_owned(),
            &["output.unused"],
            vec![Change::put(
                &format!("bag/data/outputs/{}", Digest::of(b"tampered")),
                b"tampered".to_vec(),
            )],
        ),
    ];
    // A killed run may have lost its control's.
    let run = evidence
        .files
        .get("bag/data/run.json")
        .map(RunRecord::parse);
    if run.is_some_and(|run| run.is_ok_and(|run| run.status != Status::Aborted)) {
        tampers.push(Tamper::within(
            "output: removed".to_owned(),
            &["output.missing"],
            vec![Change::Remove(path.clone())],
        ));
    }
    let with_digests = [
        ("a bit flipped", "equality", flipped),
        ("all zeros", "equality", zeroed),
        ("a byte shorter", "answer.file-length", shorter),
    ];
    // Of an answer with a fault no boundary is compared.
    let is_compared = !is_told(evidence, turn);
    let is_asked = |(_, code, _): &(&str, &str, Vec<u8>)| is_compared || *code != "equality";
    for (what, code, bytes) in with_digests.into_iter().filter(is_asked) {
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
