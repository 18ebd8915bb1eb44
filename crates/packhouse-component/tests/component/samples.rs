//! One good message of each kind, and a good answer with the files that belong to it.

use packhouse_base::digest::Digest;
use packhouse_component::check::{Seen, SeenFile};
use packhouse_component::message::{
    Answer, Capture, CaseOrder, Declined, Greeting, InputFile, InputRecord, Introduction, Offer,
    PROTOCOL, Reply, Request, TensorRecord, Wanted, Witness,
};
use packhouse_component::{Boundary, Dim, Dtype};
use std::collections::BTreeMap;

/// Keys and values in one storage, a rotated copy in the keys' place, and an output of its own.
pub(crate) fn boundaries() -> Vec<Boundary> {
    let half = [Dim::Fixed(2), Dim::Widths(1), Dim::Fixed(4)];
    vec![
        Boundary::new("k", Dtype::Bf16, half).within("packed", []),
        Boundary::new("v", Dtype::Bf16, half).within("packed", half),
        Boundary::new("rotated-k", Dtype::Bf16, half).within("packed", []),
        Boundary::new("output", Dtype::F32, [Dim::Widths(1), Dim::Fixed(5)]),
    ]
}

pub(crate) const INPUT: &[u8] = b"twelve bytes";

pub(crate) fn order() -> CaseOrder {
    let input = InputFile {
        file: format!("{}.bin", Digest::of(INPUT)),
        dtype: Dtype::U8,
        shape: vec![3, 4],
        bytes: INPUT.len() as u64,
        sha256: Digest::of(INPUT),
    };
    let wanted = |boundary: Boundary| Wanted {
        file: format!("case-7-{}.bin", boundary.name),
        form: boundary.form(3).expect("because it is small"),
        name: boundary.name,
        storage: boundary.storage,
    };
    CaseOrder {
        index: 7,
        fixture: "mmvq-q4_0-q8_1-v1".to_owned(),
        layout: None,
        device: "cuda:GPU-5f".to_owned(),
        arm: "plain".to_owned(),
        width: 3,
        repeat: 1,
        parameters: BTreeMap::from([("k".to_owned(), 32)]),
        inputs: BTreeMap::from([("weights".to_owned(), input)]),
        boundaries: boundaries().into_iter().map(wanted).collect(),
        poison: None,
        cycles: None,
    }
}

pub(crate) fn introduction() -> Introduction {
    Introduction {
        protocol: PROTOCOL.to_owned(),
        challenge: Digest::of(b"challenge"),
        name: "a kernel".to_owned(),
        version: "1.2 (f\u{fc}r x86)".to_owned(),
        kernels: vec![Offer {
            fixture: "mmvq-q4_0-q8_1-v1".to_owned(),
            arms: vec!["plain".to_owned()],
            widths: vec![1, 3],
        }],
        devices: vec![
            "cpu".to_owned(),
            "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555".to_owned(),
        ],
        says_capture: true,
        denies: Vec::new(),
        times: false,
        poisons: false,
    }
}

/// What the file of a boundary has.
pub(crate) fn elements(name: &str, bytes: u64) -> Vec<u8> {
    let first = name.as_bytes()[0];
    (0..bytes)
        .map(|index| first.wrapping_add(index as u8))
        .collect()
}

pub(crate) fn answer() -> Answer {
    let order = order();
    let record = |wanted: &Wanted| {
        let base = if wanted.storage == "packed" {
            0x1000
        } else {
            0x2000
        };
        let start = base + wanted.form.storage_offset * wanted.form.dtype.bytes();
        TensorRecord {
            name: wanted.name.clone(),
            dtype: wanted.form.dtype,
            shape: wanted.form.shape.clone(),
            stride: wanted.form.stride.clone(),
            storage_offset: wanted.form.storage_offset,
            bytes: wanted.form.bytes,
            device: order.device.clone(),
            start,
            end: start + wanted.form.bytes,
            file: wanted.file.clone(),
            sha256: Digest::of(&elements(&wanted.name, wanted.form.bytes)),
        }
    };
    let input = InputRecord {
        start: 0x3000,
        end: 0x3000 + INPUT.len() as u64,
        sha256: Digest::of(INPUT),
    };
    Answer {
        index: 7,
        boundaries: order.boundaries.iter().map(record).collect(),
        inputs: BTreeMap::from([("weights".to_owned(), input)]),
        witnesses: vec![Witness {
            path: "dpas".to_owned(),
            counters: BTreeMap::from([("rows".to_owned(), 3)]),
        }],
        capture: Capture::Idle,
        warnings: vec!["\u{1b}[2J \"x\"\n".to_owned()],
        timed: None,
    }
}

/// What belongs to the good answer.
pub(crate) fn seen() -> Seen {
    let order = order();
    let output = |wanted: &Wanted| {
        let bytes = elements(&wanted.name, wanted.form.bytes);
        (wanted.file.clone(), SeenFile::Bytes(bytes))
    };
    let input = |input: &InputFile| (input.file.clone(), Some(Digest::of(INPUT)));
    Seen {
        outputs: order.boundaries.iter().map(output).collect(),
        inputs: order.inputs.values().map(input).collect(),
        inputs_extra: Vec::new(),
        span_ns: 1000,
    }
}

pub(crate) fn requests() -> Vec<Request> {
    let greeting = Greeting {
        protocol: PROTOCOL.to_owned(),
        challenge: Digest::of(b"challenge"),
        inputs: "/tmp/x/inputs".to_owned(),
        outputs: "/tmp/x/outputs".to_owned(),
    };
    let mut with_layout = order();
    with_layout.layout = Some("q4_0-joint-n-v1".to_owned());
    vec![
        Request::Hello(greeting),
        Request::Case(order()),
        Request::Case(with_layout),
        Request::Bye,
    ]
}

pub(crate) fn replies() -> Vec<Reply> {
    vec![
        Reply::Hello(introduction()),
        Reply::Answer(answer()),
        Reply::Declined(Declined {
            index: 7,
            reason: "no such device".to_owned(),
        }),
    ]
}
