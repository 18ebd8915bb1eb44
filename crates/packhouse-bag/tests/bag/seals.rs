//! Seals: their bytes, and every way in which they could say something else.

use packhouse_bag::seal::{SEAL_BYTES_MAX, SealError, Statement, Verdict};
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

pub(crate) fn statement() -> Statement {
    Statement {
        packet: Digest::of(b"packet"),
        bag: Digest::of(b"bag"),
        analysis: Digest::of(b"analysis"),
        number: 1,
        verdict: Verdict::Pass,
        ledger_head: Digest::of(b"head"),
        analyzer: Digest::of(b"analyzer"),
        lab: Digest::of(b"lab"),
    }
}

#[test]
fn the_bytes_of_a_seal_are_those_of_the_format() {
    let of = |bytes: &[u8]| Digest::of(bytes).to_string();
    let expected = format!(
        "{{\"_type\":\"https://in-toto.io/Statement/v1\",\
         \"predicate\":{{\"analyzer\":\"{}\",\"lab\":\"{}\",\"ledger_head\":\"{}\",\
         \"number\":12,\"packet\":\"{packet}\",\"verdict\":\"fail\"}},\
         \"predicateType\":\"urn:packhouse:seal:v1\",\"subject\":[\
         {{\"digest\":{{\"sha256\":\"{packet}\"}},\"name\":\"packet.json\"}},\
         {{\"digest\":{{\"sha256\":\"{}\"}},\"name\":\"bag/tagmanifest-sha256.txt\"}},\
         {{\"digest\":{{\"sha256\":\"{}\"}},\"name\":\"analysis-12/analysis.json\"}}]}}\n",
        of(b"analyzer"),
        of(b"lab"),
        of(b"head"),
        of(b"bag"),
        of(b"analysis"),
        packet = of(b"packet"),
    );
    let mut seal = statement();
    (seal.number, seal.verdict) = (12, Verdict::Fail);
    assert_eq!(String::from_utf8_lossy(&seal.render()), expected);
    assert_eq!(Statement::parse(expected.as_bytes()), Ok(seal.clone()));
    assert_eq!(seal.digest(), Digest::of(expected.as_bytes()));
}

#[test]
fn each_verdict_and_number_round_trips() {
    for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Abort] {
        for number in [1, 2, 10, u64::MAX >> 1] {
            let mut seal = statement();
            (seal.number, seal.verdict) = (number, verdict);
            assert_eq!(Statement::parse(&seal.render()), Ok(seal));
        }
        assert_eq!(Verdict::parse(verdict.word()), Ok(verdict));
    }
}

/// Every place in a value: keys of objects and indices of lists.
fn places(value: &Value, from: &str) -> Vec<String> {
    let mut all = Vec::new();
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered
                .map(|(index, value)| (index.to_string(), value))
                .collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in below {
        let place = format!("{from}/{key}");
        all.extend(places(value, &place));
        all.push(place);
    }
    all
}

pub(crate) fn value() -> Value {
    serde_json::from_slice(&statement().render()).expect("because it is JSON")
}

fn refused(value: &Value, name: &str) -> SealError {
    Statement::parse(&canonical::render(value)).expect_err(name)
}

#[test]
fn each_field_that_is_gone_is_named_and_each_that_is_added_is_refused() {
    let all = places(&value(), "");
    let mut counts = (0, 0);
    for place in &all {
        let (above, key) = place
            .rsplit_once('/')
            .expect("because places begin with it");
        let mut gone = value();
        let mut added = value();
        let parent = gone.pointer_mut(above).expect("because it is a place");
        match parent {
            Value::Object(fields) => {
                fields.remove(key);
                let error = refused(&gone, place);
                assert_eq!(error.code(), "record.missing-field", "{place}: {error}");
                assert!(error.to_string().ends_with(key), "{place}: {error}");
                counts.0 += 1;
            }
            Value::Array(items) => {
                items.remove(key.parse().expect("because it is an index"));
                assert_eq!(refused(&gone, place).code(), "seal.subject", "{place}");
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => unreachable!(),
        }
        if let Some(Value::Object(fields)) = added.pointer_mut(place) {
            fields.insert("zz".to_owned(), json!(1));
            let error = refused(&added, place);
            assert_eq!(error.code(), "record.unknown-field", "{place}: {error}");
            counts.1 += 1;
        }
    }
    assert_eq!(counts, (19, 7));
    let mut added = value();
    added["zz"] = json!(1);
    let error = refused(&added, "the record itself");
    assert_eq!(error.to_string(), "seal: unknown field zz");
}

#[test]
fn each_field_of_another_kind_is_named() {
    for place in places(&value(), "") {
        for other in [
            json!(null),
            json!(true),
            json!([1]),
            json!({"zz": 1}),
            json!(-1),
        ] {
            let mut changed = value();
            let field = changed.pointer_mut(&place).expect("because it is a place");
            if field.is_object() && other.is_object() {
                continue;
            }
            *field = other;
            let code = refused(&changed, &place).code();
            // A list of one thing has a first subject that is no object.
            assert_eq!(code, "record.type", "{place}");
        }
    }
}

/// Changes of a seal: the place, what stands there then, and the code.
#[rustfmt::skip]
pub(crate) fn other_statements() -> Vec<(&'static str, Value, &'static str)> {
    let zero = json!("0".repeat(64));
    vec![
        ("/_type", json!("https://in-toto.io/Statement/v0.1"), "seal.type"),
        ("/_type", json!(""), "seal.type"),
        ("/predicateType", json!("urn:packhouse:seal:v2"), "seal.type"),
        ("/predicate/verdict", json!("passed"), "seal.verdict"),
        ("/predicate/verdict", json!("Pass"), "seal.verdict"),
        ("/predicate/verdict", json!(""), "seal.verdict"),
        ("/predicate/number", json!(0), "record.type"),
        ("/predicate/number", json!("1"), "record.type"),
        ("/predicate/number", json!(u64::MAX), "record.type"),
        ("/predicate/number", json!(2), "seal.subject"),
        ("/predicate/packet", zero.clone(), "seal.subject"),
        ("/subject/0/digest/sha256", zero.clone(), "seal.subject"),
        ("/subject/0/name", json!("packet.jsom"), "seal.subject"),
        ("/subject/1/name", json!("tagmanifest-sha256.txt"), "seal.subject"),
        ("/subject/2/name", json!("analysis-2/analysis.json"), "seal.subject"),
        ("/predicate/analyzer", json!("0".repeat(63)), "record.type"),
        ("/predicate/lab", json!("0".repeat(65)), "record.type"),
        ("/predicate/ledger_head", json!("A".repeat(64)), "record.type"),
        ("/subject/1/digest/sha256", json!("g".repeat(64)), "record.type"),
        ("/subject/2/digest/sha256", json!(""), "record.type"),
    ]
}

#[test]
fn what_says_something_else_is_refused_by_its_own_code() {
    let zero = json!("0".repeat(64));
    for (place, other, code) in other_statements() {
        let mut changed = value();
        *changed.pointer_mut(place).expect("because it is a place") = other.clone();
        let error = refused(&changed, place);
        assert_eq!(error.code(), code, "{place} {other}: {error}");
    }
    // Digests that the seal alone can't know are another statement, not a fault of form.
    for place in [
        "/subject/1/digest/sha256",
        "/subject/2/digest/sha256",
        "/predicate/analyzer",
        "/predicate/lab",
        "/predicate/ledger_head",
    ] {
        let mut changed = value();
        *changed.pointer_mut(place).expect("because it is a place") = zero.clone();
        let read = Statement::parse(&canonical::render(&changed)).expect("because it is a digest");
        assert_ne!(read, statement(), "{place}");
    }
}

#[test]
fn subjects_in_another_order_doubled_or_more_are_refused() {
    let subjects = value()["subject"].clone();
    let of = |order: &[usize]| {
        let mut changed = value();
        changed["subject"] = order.iter().map(|index| subjects[*index].clone()).collect();
        changed
    };
    let orders: [&[usize]; 7] = [
        &[],
        &[0, 1],
        &[1, 0, 2],
        &[0, 2, 1],
        &[0, 0, 2],
        &[0, 1, 2, 2],
        &[0, 1, 2, 0],
    ];
    for order in orders {
        let error = refused(&of(order), "another order");
        assert_eq!(error.code(), "seal.subject", "{order:?}: {error}");
    }
    let error = refused(&of(&[0, 1, 2, 0]), "more");
    assert_eq!(
        error.to_string(),
        "seal: subject 3 is another subject, not the end"
    );
    assert!(Statement::parse(&canonical::render(&of(&[0, 1, 2]))).is_ok());
}

#[test]
fn texts_of_others_are_cut_and_steer_no_terminal() {
    let long = format!("\u{1b}[2J{}", "x".repeat(9000));
    for place in [
        "/_type",
        "/predicateType",
        "/predicate/verdict",
        "/subject/1/name",
    ] {
        let mut changed = value();
        *changed.pointer_mut(place).expect("because it is a place") = json!(long);
        let words = refused(&changed, place).to_string();
        assert!(
            words.len() < 250 && words.contains("\\u{1b}[2Jxxx"),
            "{words}"
        );
    }
    let mut added = value();
    added[&long] = json!(1);
    let words = refused(&added, "the record itself").to_string();
    assert!(
        words.len() < 250 && words.contains("\\u{1b}[2Jxxx"),
        "{words}"
    );
}

#[test]
fn another_spelling_and_too_many_bytes_are_refused() {
    let bytes = statement().render();
    let text = String::from_utf8(bytes.clone()).expect("because it is ASCII");
    let spellings = [
        text.trim_end().to_owned(),
        format!("{text}\n"),
        format!(" {text}"),
        text.replace("\"number\":1", "\"number\":1.0"),
        text.replace("\"number\":1", "\"number\":1e0"),
        text.replace("\"number\":1", "\"number\":1,\"number\":1"),
        text.replace("pass", "\\u0070ass"),
        text.replace(':', ": "),
        String::new(),
        "[]".to_owned(),
    ];
    for spelling in spellings {
        let error = Statement::parse(spelling.as_bytes()).expect_err(&spelling);
        assert_eq!(error.code(), "record.not-canonical", "{error}: {spelling}");
    }
    let long = vec![b' '; SEAL_BYTES_MAX + 1];
    let error = Statement::parse(&long).expect_err("because it is too long");
    assert_eq!(
        error.to_string(),
        "seal: 65537 bytes, at most 65536 are read"
    );
    assert_eq!(error.code(), "record.type");
    let error = Statement::parse(b"[]\n").expect_err("because it is a list");
    assert_eq!(error.to_string(), "seal: field (all): not an object");
}

#[test]
fn no_changed_byte_passes_as_the_same_seal() {
    let bytes = statement().render();
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[index] ^= 1 << bit;
            assert_ne!(
                Statement::parse(&changed).ok(),
                Some(statement()),
                "byte {index}"
            );
        }
    }
}
