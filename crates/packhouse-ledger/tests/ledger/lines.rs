//! A line's fields, tampered with one by one from the schema: each kind, each field.

use crate::story::*;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Act, LaneAction, Stage, Verdict};
use packhouse_ledger::entry::{Entry, EntryFault, NO_ENTRY};
use serde_json::{Map, Value, json};

/// The optional fields of each kind, as the format has them, and what is said when one that is
/// there goes; all others are required.
fn optional(kind: &str) -> &'static [(&'static str, Option<&'static str>)] {
    match kind {
        "lane" => &[("document", RULE), ("until", RULE)],
        "rehearsed" => &[("detectable_ns", None), ("bag", RULE), ("analysis", RULE)],
        "nonce" => &[("markers", None)],
        "note" => &[("lane", None)],
        _ => &[],
    }
}

const RULE: Option<&str> = Some("ledger.value");

/// Fields that may be null.
fn nullable(kind: &str) -> &'static [&'static str] {
    match kind {
        "rehearsed" | "sealed" => &["stage"],
        "record" => &["supersedes"],
        _ => &[],
    }
}

fn line_of(act: &Act) -> Map<String, Value> {
    let line = Entry::render(act, 0, NO_ENTRY, 1, "boot-1");
    match canonical::parse(&line).expect("because we rendered it") {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

/// What is said of a line, by us; bagcheck must refuse it too, and for a fault of a field or line
/// by the same code.
fn fault(object: &Map<String, Value>) -> Option<&'static str> {
    let bytes = canonical::render(&Value::Object(object.clone()));
    let fault = Entry::parse(&bytes).err().map(|fault| fault.code());
    let oracle = packhouse_bagcheck::check_ledger(&bytes);
    let code = oracle.findings.first().map(|one| one.code);
    match fault {
        Some(_) => assert_eq!(code, fault, "{:?}", oracle.findings),
        // A line that is right by itself is no first line, unless it is a genesis.
        None => assert!(
            matches!(code, None | Some("ledger.genesis")),
            "{:?}",
            oracle.findings
        ),
    }
    fault
}

/// The same on a field of the body.
fn with(object: &Map<String, Value>, field: &str, value: Option<Value>) -> Map<String, Value> {
    let mut object = object.clone();
    let body = object.get_mut("body").and_then(Value::as_object_mut);
    let body = body.expect("because a line has a body");
    match value {
        Some(value) => body.insert(field.to_owned(), value),
        None => body.remove(field),
    };
    object
}

/// Values of another form than any of a field's.
fn wrong(value: &Value) -> Vec<Value> {
    let mut wrong = vec![json!([null]), json!({"": 0}), json!({"a": -1})];
    match value {
        Value::String(_) => wrong.extend([json!(0), json!(true)]),
        Value::Number(_) => wrong.extend([json!("0"), json!(-1), json!(1u64 << 63)]),
        Value::Bool(_) => wrong.extend([json!("true"), json!(1)]),
        Value::Array(_) => wrong.extend([json!([2, 1]), json!([1, 1]), json!(["1"]), json!([-1])]),
        Value::Object(_) => wrong.extend([json!([]), json!("{}")]),
        Value::Null => wrong.extend([json!(true), json!("null")]),
    }
    wrong
}

#[test]
fn every_field_of_every_kind_is_demanded_typed_and_closed() {
    let mut kinds = std::collections::BTreeSet::new();
    for act in one_of_each() {
        let object = line_of(&act);
        let kind = act.kind();
        kinds.insert(kind);
        assert_eq!(fault(&object), None, "{kind}");
        let unknown = with(&object, "extra", Some(json!(1)));
        assert_eq!(fault(&unknown), Some("ledger.unknown-field"), "{kind}");
        let body = object["body"].as_object().expect("because it is an object");
        for (field, value) in body {
            let removed = fault(&with(&object, field, None));
            let expected = match optional(kind).iter().find(|(one, _)| one == field) {
                Some((_, code)) => *code,
                None => Some("ledger.missing-field"),
            };
            assert_eq!(removed, expected, "{kind}.{field} removed");
            let null = fault(&with(&object, field, Some(Value::Null)));
            match (nullable(kind).contains(&field.as_str()), null) {
                (true, None | Some("ledger.value")) | (false, Some("ledger.type")) => {}
                (_, other) => panic!("{kind}.{field} null: {other:?}"),
            }
            for other in wrong(value) {
                let said = fault(&with(&object, field, Some(other.clone())));
                assert_eq!(said, Some("ledger.type"), "{kind}.{field} is {other}");
            }
        }
    }
    assert_eq!(kinds.len(), Act::KINDS.len(), "each kind is tried");
}

#[test]
fn every_field_of_a_line_is_demanded_typed_and_closed() {
    let object = line_of(&genesis().into());
    let fields: Vec<_> = object.keys().cloned().collect();
    let names = [
        "at_ns", "body", "boot", "index", "kind", "previous", "schema",
    ];
    assert_eq!(fields, names);
    for field in names {
        let mut removed = object.clone();
        removed.remove(field);
        assert_eq!(fault(&removed), Some("ledger.missing-field"), "{field}");
        for value in [json!(null), json!([1]), json!(true)] {
            let mut wrong = object.clone();
            wrong.insert(field.to_owned(), value);
            assert_eq!(fault(&wrong), Some("ledger.type"), "{field}");
        }
    }
    let changed = |field: &str, value: Value| {
        let mut object = object.clone();
        object.insert(field.to_owned(), value);
        fault(&object)
    };
    assert_eq!(changed("extra", json!(1)), Some("ledger.unknown-field"));
    assert_eq!(
        changed("schema", json!("packhouse/ledger/2")),
        Some("ledger.schema")
    );
    for kind in ["", "Genesis", "genesis ", "gen", "genesis2", "sealed-pass"] {
        assert_eq!(changed("kind", json!(kind)), Some("ledger.kind"), "{kind}");
    }
    assert_eq!(changed("at_ns", json!(i64::MIN)), None);
    assert_eq!(changed("at_ns", json!(1u64 << 63)), Some("ledger.type"));
    assert_eq!(changed("index", json!(-1)), Some("ledger.type"));
    assert_eq!(
        changed("previous", json!("0".repeat(63))),
        Some("ledger.type")
    );
    assert_eq!(
        changed("previous", json!("A".repeat(64))),
        Some("ledger.type")
    );
    assert_eq!(changed("boot", json!("")), None);
}

#[test]
fn forms_have_one_spelling() {
    let said =
        |act: Act, field: &str, value: Value| fault(&with(&line_of(&act), field, Some(value)));
    let lane = || Act::from(lane("cpu", LaneAction::Pause));
    for name in ["", "A", "a/b", "../a", "a b", ".a", &"a".repeat(65)] {
        assert_eq!(
            said(lane(), "lane", json!(name)),
            Some("ledger.type"),
            "{name}"
        );
    }
    for name in ["a", "0", "a-b_c.d", &"a".repeat(64)] {
        assert_eq!(said(lane(), "lane", json!(name)), None, "{name}");
    }
    for day in [
        "2026-02-29",
        "2100-02-29",
        "26-01-01",
        "2026-1-1",
        "0000-01-01",
        "2026-13-01",
    ] {
        assert_eq!(
            said(lane(), "until", json!(day)),
            Some("ledger.type"),
            "{day}"
        );
    }
    for day in ["2028-02-29", "2000-02-29", "0001-01-01", "9999-12-31"] {
        assert_eq!(said(lane(), "until", json!(day)), None, "{day}");
    }
    assert_eq!(said(lane(), "action", json!("stop")), Some("ledger.type"));
    assert_eq!(
        said(red(1).into(), "stage", json!("killed")),
        Some("ledger.type")
    );
    for stage in Stage::ALL {
        assert_eq!(said(red(1).into(), "stage", json!(stage.as_str())), None);
    }
    let sealed = || Act::from(sealed(1, Verdict::Abort));
    for verdict in ["passed", "PASS", "pass ", "passed gates but rejected", ""] {
        assert_eq!(
            said(sealed(), "verdict", json!(verdict)),
            Some("ledger.type"),
            "{verdict}"
        );
    }
}

#[test]
fn words_are_not_empty_and_reviewers_are_plain() {
    let said =
        |act: Act, field: &str, value: Value| fault(&with(&line_of(&act), field, Some(value)));
    let lane = || Act::from(lane("cpu", LaneAction::Pause));
    // Words are not empty; a text may be.
    assert_eq!(said(lane(), "reason", json!("")), Some("ledger.type"));
    assert_eq!(
        said(corrected(1).into(), "text", json!("")),
        Some("ledger.type")
    );
    let review = reviewed(1, "ada", packhouse_ledger::Review::Reject, 3);
    assert_eq!(
        said(review.clone().into(), "reviewer", json!("")),
        Some("ledger.type")
    );
    // Whoever looks like another reviewer would be counted beside them.
    for reviewer in [
        "Ada",
        "a da",
        "ada ",
        "ad\u{200b}a",
        "\u{ff41}da",
        "ad\u{e4}",
        "a\u{308}da",
    ] {
        let code = said(review.clone().into(), "reviewer", json!(reviewer));
        assert_eq!(code, Some("ledger.type"), "{reviewer:?}");
    }
    let plain = json!("ada+lab@example.org");
    assert_eq!(said(review.clone().into(), "reviewer", plain), None);
    assert_eq!(said(review.into(), "note", json!("")), None);
}

#[test]
fn fields_that_do_not_go_together_are_refused() {
    let said = |act: Act| fault(&line_of(&act));
    let mut paused = lane("cpu", LaneAction::Pause);
    paused.until = None;
    assert_eq!(said(paused.into()), RULE, "every wait is dated");
    let mut resumed = lane("cpu", LaneAction::Resume);
    resumed.until = lane("cpu", LaneAction::Pause).until;
    assert_eq!(said(resumed.into()), RULE);
    let mut opened = open("cpu");
    opened.document = None;
    assert_eq!(said(opened.into()), RULE);
    let mut closed = lane("cpu", LaneAction::Close);
    closed.document = Some(digest(1));
    assert_eq!(said(closed.into()), RULE);

    let mut rehearsal = green(1);
    rehearsal.rejected = 39;
    assert_eq!(
        said(rehearsal.clone().into()),
        Some("ledger.value"),
        "a tamper passed"
    );
    rehearsal.rejected = 41;
    assert_eq!(said(rehearsal.into()), Some("ledger.value"));
    let mut rehearsal = green(1);
    rehearsal.bag = None;
    assert_eq!(said(rehearsal.into()), RULE);
    let mut rehearsal = green(1);
    rehearsal.analysis = None;
    assert_eq!(said(rehearsal.into()), RULE);
    let mut rehearsal = green(1);
    rehearsal.stage = Some(Stage::Leg);
    assert_eq!(said(rehearsal.into()), Some("ledger.value"));
    let mut rehearsal = red(1);
    rehearsal.stage = None;
    assert_eq!(said(rehearsal.into()), Some("ledger.value"));
    let mut rehearsal = red(1);
    rehearsal.reason.clear();
    assert_eq!(said(rehearsal.into()), Some("ledger.value"));
    let mut rehearsal = red(1);
    rehearsal.rejected = 41;
    assert_eq!(said(rehearsal.into()), Some("ledger.value"));

    let mut seal = sealed(1, Verdict::Fail);
    seal.stage = Some(Stage::Leg);
    seal.reason = "why".to_owned();
    assert_eq!(said(seal.into()), Some("ledger.value"));
    let mut seal = sealed(1, Verdict::Abort);
    seal.stage = None;
    assert_eq!(said(seal.into()), Some("ledger.value"));
    let mut seal = sealed(1, Verdict::Pass);
    seal.number = 2;
    assert_eq!(said(seal.into()), Some("ledger.type"));
    assert_eq!(
        said(analysed(1, 1, Verdict::Pass).into()),
        Some("ledger.type")
    );
    for widths in [vec![], vec![0, 1]] {
        let mut act = record(1, None);
        act.widths = widths;
        assert_eq!(said(act.into()), Some("ledger.type"));
    }
}

#[test]
fn a_line_has_one_spelling() {
    let line = Entry::render(&genesis().into(), 0, NO_ENTRY, 1, "boot-1");
    let text = String::from_utf8(line).expect("because JSON is text");
    for wrong in [
        text.replace("\"at_ns\":1", "\"at_ns\": 1"),
        text.replace("\"at_ns\":1", "\"at_ns\":1.0"),
        text.replace("\"at_ns\":1", "\"at_ns\":1e0"),
        text.replace("\"at_ns\":1", "\"at_ns\":1,\"at_ns\":1"),
        text.replace("\"at_ns\":1,", "")
            .replace("}\n", ",\"at_ns\":1}\n"),
        text.replace("a lab", "\\u0061 lab"),
        text.replace('\n', "\r\n"),
        "[]\n".to_owned(),
        "1\n".to_owned(),
        "\n".to_owned(),
        "null\n".to_owned(),
    ] {
        let fault = Entry::parse(wrong.as_bytes()).expect_err("because it is another spelling");
        assert_eq!(fault.code(), "ledger.not-canonical", "{wrong}");
        let oracle = packhouse_bagcheck::check_ledger(wrong.as_bytes());
        assert!(
            oracle.has("ledger.not-canonical"),
            "{wrong}: {:?}",
            oracle.findings
        );
    }
    let mut bytes = text.into_bytes();
    bytes[10] = 0xff;
    let fault = Entry::parse(&bytes).expect_err("because it is not UTF-8");
    assert!(matches!(fault, EntryFault::NotCanonical(_)));
}

#[test]
fn messages_name_the_field_and_what_is_there() {
    let object = line_of(&registered(1, "one").into());
    let said = |field: &str, value: Option<Value>| {
        let line = canonical::render(&Value::Object(with(&object, field, value)));
        Entry::parse(&line)
            .expect_err("because it is wrong")
            .to_string()
    };
    assert_eq!(said("prereg", None), "field `prereg` is missing");
    assert_eq!(
        said("colour", Some(json!(1))),
        "field \"colour\" is not one of this kind"
    );
    let short = Digest::of(b"").to_string()[1..].to_owned();
    assert_eq!(
        said("prereg", Some(json!(short))),
        format!("field `prereg` is \"{short}\", not 64 lower-case hex digits")
    );
    let line = canonical::render(&json!(["a"]));
    let error = Entry::parse(&line).expect_err("because it is a list");
    assert_eq!(error.to_string(), "not a JSON object");
}
