//! What was asked, answered and seen.

use super::*;

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
            json!({"cycles": 4, "elapsed_ns": 1901}),
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
    // What is told of every answer of the candidate, and the controller's spans are as they were.
    let told = |elapsed_ns: u64| {
        edit_lines(&sample, TIMED, |lines| {
            let is_its = |line: &&mut Value| {
                line["treatment"] == "candidate" && line["message"].get("timed").is_some()
            };
            for line in lines.iter_mut().filter(is_its) {
                line["message"]["timed"]["elapsed_ns"] = json!(elapsed_ns);
            }
        })
    };
    // Six of 900 and six of 880 against twelve: 1440 ns by the spans, so 2880 may be claimed.
    rejects(&told(649), "no time", &["timing.unconfirmed"]);
    let half = told(650);
    let report = check(&half.tree, Some(&half.ledger), None);
    assert!(!report.has("timing.unconfirmed") && report.has("analysis.timing"));
    let without = timed(&|message| drop(message.as_object_mut().map(|map| map.remove("timed"))));
    rejects(&without, "no time", &["answer.not-timed"]);
    rejects(&without, "no time", &["timing.missing"]);
}
