//! A good answer has no fault; each single edit of it, of its files or inputs has its own.

use crate::samples::{INPUT, answer, elements, introduction, order, seen};
use packhouse_base::digest::Digest;
use packhouse_component::Dtype;
use packhouse_component::Fault;
use packhouse_component::check::{Checked, Place, Seen, SeenFile, check};
use packhouse_component::message::{Answer, Capture, CaseOrder, Reply, Timed, Witness};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn checked(answer: Answer, seen: Seen) -> Result<Checked, Vec<String>> {
    check(&order(), &introduction(), answer, seen)
        .map_err(|faults| faults.iter().map(Fault::to_string).collect())
}

/// The faults of an answer and files that were edited.
fn faults(edit: impl FnOnce(&mut Answer, &mut Seen)) -> Vec<String> {
    let (mut answer, mut seen) = (answer(), seen());
    edit(&mut answer, &mut seen);
    checked(answer, seen).expect_err("because it was edited")
}

#[test]
fn a_good_answer_is_verified_from_its_files_and_the_rest_is_attested() {
    let checked = checked(answer(), seen()).expect("because it is good");
    let names: Vec<&str> = checked
        .verified()
        .iter()
        .map(|verified| verified.boundary())
        .collect();
    assert_eq!(names, ["k", "v", "rotated-k", "output"]);
    for verified in checked.verified() {
        let bytes = elements(verified.boundary(), verified.form().bytes);
        assert_eq!(
            (verified.bytes(), verified.sha256()),
            (&bytes[..], Digest::of(&bytes))
        );
    }
    let attested = checked.attested();
    let place = Place {
        device: "cuda:GPU-5f".to_owned(),
        start: 0x1030,
        end: 0x1060,
    };
    assert_eq!(attested.boundaries["v"], place);
    assert_eq!(attested.inputs["weights"].start, 0x3000);
    assert_eq!(attested.witnesses[0].counters["rows"], 3);
    assert_eq!(attested.capture, Capture::Idle);
    assert_eq!(attested.warnings.len(), 1);
}

#[test]
fn the_answer_as_a_whole_is_compared_with_its_case() {
    assert_eq!(
        faults(|answer, _| answer.index = 6),
        ["answers case 6, asked was case 7"]
    );
    assert_eq!(
        faults(|answer, _| answer.witnesses.clear()),
        ["no witness of execution"]
    );
    assert_eq!(
        faults(|answer, _| answer.capture = Capture::Unknown),
        ["capture state unknown, though the program said that it tells it"]
    );
    let mut silent = introduction();
    silent.says_capture = false;
    for capture in [Capture::Idle, Capture::Capturing] {
        let mut answer = answer();
        answer.capture = capture;
        let faults = check(&order(), &silent, answer, seen());
        assert_eq!(faults, Err(vec![Fault::CaptureNotOffered]));
    }
    let mut unknown = answer();
    unknown.capture = Capture::Unknown;
    assert!(check(&order(), &silent, unknown, seen()).is_ok());
}

#[test]
fn the_set_of_boundaries_is_complete_and_has_nothing_else() {
    let missing = faults(|answer, _| drop(answer.boundaries.pop()));
    assert_eq!(
        missing,
        [
            "boundary output: missing",
            "output case-7-output.bin: nobody asked for it"
        ]
    );
    let missing = faults(|answer, seen| {
        answer.boundaries.pop();
        seen.outputs.remove("case-7-output.bin");
    });
    assert_eq!(missing, ["boundary output: missing"]);
    let twice = faults(|answer, _| answer.boundaries.push(answer.boundaries[1].clone()));
    assert_eq!(twice, ["boundary v: recorded twice"]);
    let invented = faults(|answer, _| {
        let mut record = answer.boundaries[3].clone();
        record.name = "logits".to_owned();
        answer.boundaries.push(record);
    });
    assert_eq!(invented, ["boundary logits: not one of the case's"]);
    // In another order they are the same set, and come out in the case's order.
    let mut reversed = answer();
    reversed.boundaries.reverse();
    let checked = checked(reversed, seen()).expect("because the order is free");
    assert_eq!(checked.verified()[0].boundary(), "k");
}

#[test]
fn each_field_of_a_record_is_compared_with_the_derived_one() {
    let at = |index: usize, edit: &dyn Fn(&mut packhouse_component::message::TensorRecord)| {
        faults(|answer, _| edit(&mut answer.boundaries[index]))
    };
    let dtype = at(3, &|record| record.dtype = Dtype::I32);
    assert_eq!(dtype, ["boundary output: dtype i32, expected f32"]);
    let shape = at(3, &|record| record.shape = vec![5, 3]);
    assert_eq!(shape, ["boundary output: shape [5, 3], expected [3, 5]"]);
    let stride = at(3, &|record| record.stride = vec![1, 3]);
    assert_eq!(stride, ["boundary output: stride [1, 3], expected [5, 1]"]);
    let offset = at(1, &|record| record.storage_offset = 0);
    assert_eq!(offset, ["boundary v: storage offset 0, expected 24"]);
    let bytes = at(3, &|record| record.bytes = 61);
    assert_eq!(bytes, ["boundary output: 61 bytes, expected 60"]);
    let device = at(3, &|record| record.device = "cpu".to_owned());
    assert_eq!(
        device,
        ["boundary output: on device cpu, asked was cuda:GPU-5f"]
    );
    let file = at(3, &|record| record.file = "case-7-k.bin".to_owned());
    assert_eq!(
        file,
        ["boundary output: in file case-7-k.bin, asked was case-7-output.bin"]
    );
    let digest = at(3, &|record| record.sha256 = Digest::of(b""));
    let actual = Digest::of(&elements("output", 60));
    let claimed = Digest::of(b"");
    let expected = format!("boundary output: SHA-256 {claimed} claimed, its file has {actual}");
    assert_eq!(digest, [expected]);
}

#[test]
fn every_edit_of_an_answer_is_a_fault_or_attested() {
    // Made from the message itself, so that a field that nothing compares is found here.
    let good: Value = serde_json::from_slice(&Reply::Answer(answer()).render()).expect("JSON");
    let mut edits = 0;
    let mut walk = vec![String::new()];
    while let Some(at) = walk.pop() {
        let value = good.pointer(&at).expect("because it is there");
        match value {
            Value::Object(fields) => walk.extend(fields.keys().map(|name| format!("{at}/{name}"))),
            Value::Array(items) => {
                walk.extend((0..items.len()).map(|index| format!("{at}/{index}")))
            }
            _ => {}
        }
        let other = match value {
            Value::Number(number) => json!(number.as_u64().unwrap_or(0) + 1),
            Value::String(text) if text.len() == 64 => json!(Digest::of(b"other").to_string()),
            Value::String(text) if text == "idle" => json!("unknown"),
            Value::String(text) if Dtype::from_id(text).is_some() => json!("i8"),
            Value::String(text) => json!(format!("{text}x")),
            Value::Array(items) if !items.is_empty() => json!(items[1..]),
            _ => continue,
        };
        let mut edited = good.clone();
        *edited.pointer_mut(&at).expect("because it is there") = other;
        let Ok(Reply::Answer(answer)) = Reply::parse(edited.to_string().as_bytes()) else {
            continue;
        };
        edits += 1;
        let is_attested = at.starts_with("/warnings")
            || at.starts_with("/witnesses/0")
            // The witness's own list may be empty of counters, never of witnesses.
            || at.contains("/counters");
        assert_eq!(checked(answer, seen()).is_ok(), is_attested, "{at}");
    }
    assert!(edits > 60, "{edits}");
}

#[test]
fn each_state_of_an_output_file_has_its_fault() {
    let with = |file: Option<SeenFile>| {
        faults(|_, seen| {
            seen.outputs.remove("case-7-output.bin");
            seen.outputs
                .extend(file.map(|file| ("case-7-output.bin".to_owned(), file)));
        })
    };
    assert_eq!(with(None), ["output case-7-output.bin: absent"]);
    assert_eq!(
        with(Some(SeenFile::Bytes(vec![]))),
        ["output case-7-output.bin: 0 bytes"]
    );
    let short = with(Some(SeenFile::Bytes(vec![0; 59])));
    assert_eq!(short, ["output case-7-output.bin: 59 bytes, expected 60"]);
    let long = with(Some(SeenFile::TooLong { bytes: 1 << 40 }));
    assert_eq!(
        long,
        ["output case-7-output.bin: 1099511627776 bytes, expected 60"]
    );
    let link = with(Some(SeenFile::Other("a symlink")));
    assert_eq!(
        link,
        ["output case-7-output.bin: a symlink, expected a new file"]
    );
    let stale = with(Some(SeenFile::Bytes(vec![0; 60])));
    assert!(
        stale[0].starts_with("boundary output: SHA-256 "),
        "{stale:?}"
    );
    let extra = faults(|_, seen| {
        seen.outputs
            .insert("core".to_owned(), SeenFile::Bytes(vec![1]));
    });
    assert_eq!(extra, ["output core: nobody asked for it"]);
}

#[test]
fn inputs_are_the_same_in_memory_and_on_disk_after_the_run() {
    let file = format!("{}.bin", Digest::of(INPUT));
    let missing = faults(|answer, _| answer.inputs.clear());
    assert_eq!(missing, ["input weights: missing"]);
    let invented = faults(|answer, _| {
        let record = answer.inputs["weights"].clone();
        answer.inputs.insert("bias".to_owned(), record);
    });
    assert_eq!(invented, ["input bias: not one of the case's"]);
    let edited = faults(|answer, _| {
        let record = answer
            .inputs
            .get_mut("weights")
            .expect("because it is there");
        record.sha256 = Digest::of(b"x");
    });
    assert_eq!(edited.len(), 1);
    assert!(
        edited[0].starts_with("input weights: SHA-256 "),
        "{edited:?}"
    );
    for found in [Some(Some(Digest::of(b"x"))), Some(None), None] {
        let changed = faults(|_, seen| {
            seen.inputs.clear();
            seen.inputs
                .extend(found.map(|digest| (file.clone(), digest)));
        });
        assert_eq!(
            changed,
            [format!("input weights: its file {file} was changed")]
        );
    }
    let extra = faults(|_, seen| seen.inputs_extra.push("cache.bin".to_owned()));
    assert_eq!(
        extra,
        ["inputs' folder: cache.bin: the driver did not put it there"]
    );
}

#[test]
fn places_are_compared_as_intervals() {
    let place = |index: usize, start: u64, end: u64| {
        faults(|answer, _| {
            answer.boundaries[index].start = start;
            answer.boundaries[index].end = end;
        })
    };
    let no_place = |start: u64, end: u64| {
        vec![format!(
            "boundary output: at {start:#x} to {end:#x}, which is no place for 60 bytes"
        )]
    };
    for (start, end) in [
        (0, 60),
        (0x2000, 0x2000),
        (0x2000, 0x2000 + 59),
        (0x2000, 0x1000),
    ] {
        assert_eq!(place(3, start, end), no_place(start, end));
    }
    let end = u64::MAX - 59;
    assert_eq!(place(3, end, 0), no_place(end, 0));
    // The values can't begin before their own storage could.
    let before = place(1, 0x30, 0x60);
    assert_eq!(
        before,
        ["boundary v: at 0x30 to 0x60, which is no place for 48 bytes"]
    );
    // One byte of the keys, the middle of the input, and all of it.
    let edge = place(3, 0xfc5, 0x1001);
    let shared = "boundary output: share the bytes 0x1000 to 0x1001";
    assert_eq!(
        edge,
        ["k", "rotated-k"].map(|name| format!("boundary {name} and {shared}"))
    );
    assert!(checked_at(0xfc4).is_ok() && checked_at(0x1060).is_ok());
    assert_eq!(
        place(3, 0x2fff, 0x2fff + 60),
        ["boundary output and input weights: share the bytes 0x3000 to 0x300c"]
    );
    // One storage has one base.
    let base = place(1, 0x1040, 0x1070);
    assert_eq!(
        base,
        [
            "boundary k and boundary v: one storage, but bases 0x1000 and 0x1010",
            "boundary v and boundary rotated-k: one storage, but bases 0x1010 and 0x1000",
        ]
    );
    let input = faults(|answer, _| {
        let record = answer
            .inputs
            .get_mut("weights")
            .expect("because it is there");
        record.end += 1;
    });
    assert_eq!(
        input,
        ["input weights: at 0x3000 to 0x300d, which is no place for 12 bytes"]
    );
}

fn checked_at(start: u64) -> Result<Checked, Vec<String>> {
    let mut answer = answer();
    answer.boundaries[3].start = start;
    answer.boundaries[3].end = start + 60;
    checked(answer, seen())
}

#[test]
fn all_faults_are_told_at_once() {
    let found = faults(|answer, seen| {
        answer.index = 0;
        answer.witnesses.clear();
        answer.boundaries[0].shape = vec![1];
        answer.boundaries[3].start = 0;
        seen.outputs
            .insert("x".to_owned(), SeenFile::Other("a folder"));
    });
    assert_eq!(found.len(), 5, "{found:?}");
}

/// A case that is timed and poisoned, and its good answer.
fn timed() -> (CaseOrder, Answer, Seen) {
    let order = CaseOrder {
        poison: Some(165),
        cycles: Some(8),
        ..order()
    };
    let mut answer = answer();
    let bytes = order.storage_bytes();
    answer.witnesses.push(poisoned(bytes));
    answer.timed = Some(Timed {
        cycles: 8,
        elapsed_ns: 1000,
    });
    (order, answer, seen())
}

fn poisoned(bytes: u64) -> Witness {
    Witness {
        path: "poison".to_owned(),
        counters: BTreeMap::from([("bytes".to_owned(), bytes)]),
    }
}

#[test]
fn a_time_is_that_of_the_cycles_that_were_asked_for_and_no_longer_than_the_wait() {
    let (order, good, seen) = timed();
    let checked = check(&order, &introduction(), good.clone(), seen.clone());
    let checked = checked.expect("because it is good");
    assert_eq!(checked.attested().timed, good.timed);
    let faults = |order: &CaseOrder, timed| {
        let answer = Answer {
            timed,
            ..good.clone()
        };
        check(order, &introduction(), answer, seen.clone()).expect_err("because it is wrong")
    };
    let timed = |cycles, elapsed_ns| Some(Timed { cycles, elapsed_ns });
    assert_eq!(faults(&order, None), [Fault::NotTimed]);
    let (expected, actual) = (8, 7);
    assert_eq!(
        faults(&order, timed(7, 1000)),
        [Fault::Cycles { expected, actual }]
    );
    let (elapsed_ns, span_ns) = (1001, 1000);
    let longer = Fault::TimedLonger {
        elapsed_ns,
        span_ns,
    };
    assert_eq!(faults(&order, timed(8, 1001)), [longer]);
    let untimed = CaseOrder {
        cycles: None,
        ..order.clone()
    };
    assert_eq!(faults(&untimed, timed(8, 1)), [Fault::TimedUnasked]);
}

#[test]
fn poison_counts_every_byte_of_every_storage_and_is_no_witness_of_execution() {
    let (order, good, seen) = timed();
    let expected = order.storage_bytes();
    let faults = |witnesses: Vec<Witness>| {
        let answer = Answer {
            witnesses,
            ..good.clone()
        };
        check(&order, &introduction(), answer, seen.clone()).expect_err("because it is wrong")
    };
    let ran = good.witnesses[0].clone();
    let short = vec![ran.clone(), poisoned(expected - 1)];
    let actual = Some(expected - 1);
    assert_eq!(faults(short), [Fault::Poison { expected, actual }]);
    let actual = None;
    assert_eq!(faults(vec![ran]), [Fault::Poison { expected, actual }]);
    assert_eq!(faults(vec![poisoned(expected)]), [Fault::NoWitness]);
}

#[test]
fn words_of_an_entry_that_was_not_read_are_read_back() {
    let kinds = [
        "a symlink",
        "a folder",
        "no regular file",
        "a file that is being written",
    ];
    for words in kinds {
        assert_eq!(SeenFile::refused(words), Some(SeenFile::Other(words)));
    }
    let long = SeenFile::TooLong { bytes: 4097 };
    assert_eq!(SeenFile::refused("4097 bytes"), Some(long));
    for words in ["", "a pipe", "04097 bytes", "-1 bytes", " bytes", "4097"] {
        assert_eq!(SeenFile::refused(words), None, "{words}");
    }
}
