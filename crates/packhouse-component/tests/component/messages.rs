//! Every message is read back as it was written, and each edit of any field of it is refused: the
//! edits are made from the messages themselves, so that a new field is edited too.

use crate::samples::{answer, introduction, order, replies, requests};
use packhouse_component::message::{Reply, Request, Timed};
use serde_json::{Value, json};

type Parse = fn(&[u8]) -> Result<(), String>;

fn as_request(bytes: &[u8]) -> Result<(), String> {
    Request::parse(bytes)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn as_reply(bytes: &[u8]) -> Result<(), String> {
    Reply::parse(bytes)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Every message as a value, with its reader.
fn all() -> Vec<(Value, Parse)> {
    let value = |bytes: Vec<u8>| serde_json::from_slice(&bytes).expect("because it is JSON");
    let requests = requests()
        .into_iter()
        .map(|request| (value(request.render()), as_request as Parse));
    let replies = replies()
        .into_iter()
        .map(|reply| (value(reply.render()), as_reply as Parse));
    requests.chain(replies).collect()
}

/// The pointers of every value in a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                places(inner, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                places(inner, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Objects whose keys are names of the message's own choice, not fields.
const MAPS: [&str; 3] = ["parameters", "inputs", "counters"];

fn is_map(value: &Value, at: &str) -> bool {
    let last = at.rsplit('/').next().unwrap_or("");
    value.pointer(at).is_some_and(Value::is_object) && MAPS.contains(&last)
}

#[test]
fn every_message_is_read_back_as_it_was_written() {
    for request in requests() {
        assert_eq!(Request::parse(&request.render()), Ok(request));
    }
    for reply in replies() {
        assert_eq!(Reply::parse(&reply.render()), Ok(reply));
    }
}

#[test]
fn a_field_that_is_absent_or_unknown_is_refused_by_its_path() {
    let mut edits = 0;
    for (message, parse) in all() {
        let mut found = Vec::new();
        places(&message, "", &mut found);
        for at in found
            .iter()
            .filter(|at| message.pointer(at).is_some_and(Value::is_object))
        {
            if is_map(&message, at) {
                continue;
            }
            let mut more = message.clone();
            more.pointer_mut(at).expect("because it is there")["zz"] = json!(1);
            let error = parse(more.to_string().as_bytes()).expect_err("because zz is unknown");
            assert!(error.ends_with("zz: unknown field"), "{at}: {error}");
            let names = message
                .pointer(at)
                .and_then(Value::as_object)
                .map(|fields| fields.keys());
            for name in names.into_iter().flatten() {
                let mut less = message.clone();
                let fields = less.pointer_mut(at).and_then(Value::as_object_mut);
                fields.expect("because it is an object").remove(name);
                let error = parse(less.to_string().as_bytes()).expect_err("because it is absent");
                assert!(
                    error.ends_with(&format!("{name}: absent")),
                    "{at}/{name}: {error}"
                );
                edits += 1;
            }
        }
    }
    assert!(edits > 100, "{edits}");
}

/// The other side's names and values are told, and not at whatever length it likes.
#[test]
fn a_refusal_repeats_no_more_than_eighty_characters() {
    let long = "z".repeat(100_000);
    for (message, parse) in all() {
        let mut more = message.clone();
        more[&long] = json!(1);
        let text = message.to_string();
        let twice = format!("{},\"{long}\":1,\"{long}\":1}}", &text[..text.len() - 1]);
        for bytes in [more.to_string(), twice] {
            let error = parse(bytes.as_bytes()).expect_err("because of the name");
            assert!(error.contains(&long[..80]), "{} bytes", error.len());
            assert!(error.len() < 200, "{} bytes", error.len());
        }
    }
}

#[test]
fn a_value_of_another_type_is_refused_by_its_path() {
    for (message, parse) in all() {
        let mut found = Vec::new();
        places(&message, "", &mut found);
        for at in found {
            let value = message.pointer(&at).expect("because it is there");
            let others = [
                json!(-1),
                json!(""),
                json!([true]),
                json!({"A": 1}),
                json!(true),
            ];
            for other in others {
                let is_same = match (value, &other) {
                    (Value::Bool(_), Value::Bool(_)) => true,
                    // A reason and warnings are any text.
                    (Value::String(_), Value::String(_)) => {
                        at == "/reason" || at.starts_with("/warnings") || at == "/protocol"
                    }
                    _ => false,
                };
                if is_same {
                    continue;
                }
                let mut edited = message.clone();
                *edited.pointer_mut(&at).expect("because it is there") = other.clone();
                let error =
                    parse(edited.to_string().as_bytes()).expect_err(&format!("{at} {other}"));
                assert!(
                    error.contains("expected") || error.ends_with("absent"),
                    "{at} {other}: {error}"
                );
            }
        }
    }
}

#[test]
fn what_stands_there_twice_is_refused() {
    let places = [
        (1, "/boundaries", "boundaries: k twice"),
        (4, "/kernels", "kernels: mmvq-q4_0-q8_1-v1 twice"),
        (4, "/kernels/0/arms", "kernels[0].arms: plain twice"),
        (4, "/kernels/0/widths", "kernels[0].widths: 1 twice"),
        (4, "/devices", "devices: cpu twice"),
    ];
    for (index, at, expected) in places {
        let (mut message, parse) = all().swap_remove(index);
        let list = message.pointer_mut(at).and_then(Value::as_array_mut);
        let list = list.expect("because it is a list");
        list.push(list[0].clone());
        assert_eq!(
            parse(message.to_string().as_bytes()),
            Err(expected.to_owned())
        );
    }
}

/// An ordinal is another device after a reboot, and nobody can ask for no row at all.
#[test]
fn a_hello_names_devices_that_last_and_widths_that_can_be_asked() {
    let (message, parse) = all().swap_remove(4);
    let with = |at: &str, value: Value| {
        let mut edited = message.clone();
        *edited.pointer_mut(at).expect("because it is there") = value;
        parse(edited.to_string().as_bytes())
    };
    for device in [
        "cuda:0",
        "0",
        "gpu1",
        "cuda:GPU-5f",
        "/dev/nvidia0",
        "",
        "CPU",
    ] {
        let expected = "devices[0]: expected cpu or kind:UUID, no ordinal, found";
        let error = with("/devices", json!([device])).expect_err(device);
        assert!(error.starts_with(expected), "{error}");
    }
    let card = json!(["cpu", "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555"]);
    assert_eq!(with("/devices", card), Ok(()));
    assert_eq!(
        with("/kernels/0/widths", json!([1, 0])),
        Err("kernels[0].widths: expected integers of 1 or more, found 0".to_owned())
    );
}

/// Every case is asked on each device: a program that offers any number would never be done.
#[test]
fn a_hello_that_offers_more_than_can_be_asked_is_refused() {
    let places = [
        ("/kernels", 256, "kernels: 257 entries, at most 256"),
        (
            "/kernels/0/arms",
            64,
            "kernels[0].arms: 65 entries, at most 64",
        ),
        (
            "/kernels/0/widths",
            64,
            "kernels[0].widths: 65 entries, at most 64",
        ),
        ("/devices", 64, "devices: 65 entries, at most 64"),
    ];
    for (at, max, expected) in places {
        let (message, parse) = all().swap_remove(4);
        let with = |count: u64| {
            let entry = |index: u64| match at {
                "/kernels" => json!({"fixture": format!("f-{index}"), "arms": [], "widths": []}),
                "/kernels/0/widths" => json!(index + 1),
                "/devices" => json!(format!("cuda:00000000-0000-0000-0000-{index:012x}")),
                _ => json!(format!("n-{index}")),
            };
            let mut edited = message.clone();
            let list = (0..count).map(entry).collect::<Vec<Value>>();
            *edited.pointer_mut(at).expect("because it is there") = json!(list);
            parse(edited.to_string().as_bytes())
        };
        assert_eq!(with(max), Ok(()), "{at}");
        assert_eq!(with(max + 1), Err(expected.to_owned()));
    }
}

#[test]
fn names_and_paths_that_could_lead_elsewhere_are_refused() {
    let edits = [
        (
            0,
            "/inputs",
            "inputs: expected an absolute path, found \"../x\"",
        ),
        (
            1,
            "/inputs/weights/file",
            "inputs.weights.file: expected a plain name, found \"../x\"",
        ),
        (
            1,
            "/boundaries/0/file",
            "boundaries[0].file: expected a plain name, found \"../x\"",
        ),
        (
            5,
            "/boundaries/3/file",
            "boundaries[3].file: expected a plain name, found \"../x\"",
        ),
        (
            5,
            "/boundaries/0/dtype",
            "boundaries[0].dtype: expected u8, i8, i32, f16, bf16 or f32, found \"../x\"",
        ),
        (
            5,
            "/capture",
            "capture: expected unknown, idle or capturing, found \"../x\"",
        ),
        (
            5,
            "/boundaries/0/sha256",
            "boundaries[0].sha256: expected 64 lower-case hex digits, found \"../x\"",
        ),
    ];
    for (index, at, expected) in edits {
        let (mut message, parse) = all().swap_remove(index);
        *message.pointer_mut(at).expect("because it is there") = json!("../x");
        assert_eq!(
            parse(message.to_string().as_bytes()),
            Err(expected.to_owned())
        );
    }
    let error = as_reply(br#"{"type":"answer","inputs":{"../x":{}},"index":1,"boundaries":[]}"#);
    assert_eq!(
        error,
        Err("inputs: expected plain names, found \"../x\"".to_owned())
    );
    let error = as_reply(br#"{"type":"bye"}"#);
    let expected = "type: expected hello, answer or declined, found \"bye\"";
    assert_eq!(error, Err(expected.to_owned()));
    assert_eq!(
        as_reply(b"[]"),
        Err("message: expected an object, found []".to_owned())
    );
}

#[test]
fn what_need_not_be_said_is_said_in_one_way() {
    let mut hello = introduction();
    hello.denies = vec!["network".to_owned(), "generation".to_owned()];
    (hello.times, hello.poisons) = (true, true);
    let hello = Reply::Hello(hello);
    assert_eq!(Reply::parse(&hello.render()), Ok(hello.clone()));
    let mut case = order();
    (case.poison, case.cycles) = (Some(255), Some(1));
    let case = Request::Case(case);
    assert_eq!(Request::parse(&case.render()), Ok(case.clone()));
    let mut answer = answer();
    answer.timed = Some(Timed {
        cycles: 1,
        elapsed_ns: 0,
    });
    let answer = Reply::Answer(answer);
    assert_eq!(Reply::parse(&answer.render()), Ok(answer.clone()));
    let refused = |rendered: Vec<u8>, field: &str, value: Value| {
        let mut message: Value = serde_json::from_slice(&rendered).expect("because it is JSON");
        message[field] = value;
        let bytes = message.to_string().into_bytes();
        let (request, reply) = (Request::parse(&bytes), Reply::parse(&bytes));
        let error = request
            .err()
            .zip(reply.err())
            .expect("because neither reads it");
        format!("{} / {}", error.0, error.1)
    };
    let says = |text: String, part: &str| assert!(text.contains(part), "{text}: {part}");
    let hello = hello.render();
    let absent = "expected true, or no such field, found";
    says(refused(hello.clone(), "times", json!(false)), absent);
    says(refused(hello.clone(), "poisons", json!(null)), absent);
    let empty = "denies: expected one or more, or no such field, found []";
    says(refused(hello.clone(), "denies", json!([])), empty);
    says(
        refused(hello, "denies", json!(["a", "a"])),
        "denies: a twice",
    );
    let case = case.render();
    let byte = "poison: expected an integer of 0 to 255, found 256";
    says(refused(case.clone(), "poison", json!(256)), byte);
    let cycles = "cycles: expected an integer of 1 or more, found 0";
    says(refused(case.clone(), "cycles", json!(0)), cycles);
    says(
        refused(case, "cycles", json!(null)),
        "cycles: expected an integer",
    );
    let answer = answer.render();
    let zero = json!({ "cycles": 0, "elapsed_ns": 1 });
    says(
        refused(answer.clone(), "timed", zero),
        "timed.cycles: expected an integer of 1 or more",
    );
    let more = json!({ "cycles": 1, "elapsed_ns": 1, "start": 1 });
    says(refused(answer, "timed", more), "timed.start: unknown field");
}
