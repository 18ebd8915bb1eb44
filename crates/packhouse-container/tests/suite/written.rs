//! What the writer writes, the parser reads, value by value and byte by byte.

use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{
    Array, Draft, DraftTensor, Entry, TensorDirectory, Value, WriteError,
};

fn tensor(name: &str, kind: &str, dims: &[u64]) -> DraftTensor {
    DraftTensor {
        name: name.into(),
        ggml_type: GgmlType::from_name(kind).expect("because the type is current"),
        dims: dims.to_vec(),
    }
}

fn draft() -> Draft {
    let values = [
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::F32(0.5),
        Value::Bool(true),
        Value::String("text \u{e9}".into()),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(-0.25),
        Value::Array(Array::U8(vec![1, 2])),
        Value::Array(Array::I8(vec![-1])),
        Value::Array(Array::U16(vec![3, 4])),
        Value::Array(Array::I16(vec![-3])),
        Value::Array(Array::U32(vec![5])),
        Value::Array(Array::I32(vec![-5, 6])),
        Value::Array(Array::F32(vec![1.5])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::String(["a", "", "b"].into_iter().collect())),
        Value::Array(Array::U64(vec![])),
        Value::Array(Array::I64(vec![-7])),
        Value::Array(Array::F64(vec![2.5])),
    ];
    let entries = values
        .into_iter()
        .zip(0..)
        .map(|(value, index): (_, u32)| Entry {
            key: format!("k{index}"),
            value,
        });
    Draft {
        metadata: entries.collect(),
        tensors: vec![
            tensor("first empty", "F32", &[0]),
            tensor("a", "Q4_0", &[32, 3]),
            tensor("empty", "F32", &[4, 0]),
            tensor("b", "F16", &[3]),
            tensor("last empty", "I8", &[0, 2]),
        ],
    }
}

#[test]
fn a_written_file_reads_as_drafted() {
    let draft = draft();
    let mut writer = draft.begin(Vec::new()).expect("because memory takes all");
    // The pieces need not be tensors.
    for piece in [&[1; 50][..], &[], &[1; 4], &[2; 6]] {
        writer.put(piece).expect("because it fits");
    }
    let file = writer.finish().expect("because all bytes were given");
    assert_eq!(draft.file_bytes().ok(), Some(file.len() as u64));
    let read = TensorDirectory::parse(&file.as_slice()).expect("because it was written");
    assert_eq!(read.metadata().entries(), draft.metadata);
    for (read, drafted) in read.tensors().iter().zip(&draft.tensors) {
        assert_eq!((&read.name, &read.dims), (&drafted.name, &drafted.dims));
        assert_eq!(read.ggml_type, drafted.ggml_type);
    }
    let bytes = |name| {
        let tensor = read.tensor(name).expect("because it was written");
        let start = usize::try_from(tensor.offset).expect("because it is small");
        &file[start..][..usize::try_from(tensor.bytes).expect("because it is small")]
    };
    assert_eq!(bytes("a"), [1; 54]);
    assert_eq!(bytes("b"), [2; 6]);
}

#[test]
fn too_few_and_too_many_bytes_are_refused() {
    let draft = draft();
    let mut writer = draft.begin(Vec::new()).expect("because memory takes all");
    let refused = writer.put(&[0; 55]);
    assert!(matches!(
        refused,
        Err(WriteError::TooManyBytes { left: 54, .. })
    ));
    writer.put(&[0; 53]).expect("because it fits");
    let refused = writer.finish().map(drop);
    assert!(matches!(refused, Err(WriteError::TooFewBytes { tensor, left: 1 }) if tensor == "a"));
}

#[test]
fn drafts_without_a_size_or_an_alignment_are_refused() {
    let begin = |draft: &Draft| draft.begin(Vec::new()).map(drop);
    for dims in [&[33][..], &[], &[1 << 63, 32]] {
        let draft = Draft {
            tensors: vec![tensor("a", "Q4_0", dims)],
            ..Draft::default()
        };
        assert!(
            matches!(begin(&draft), Err(WriteError::Size { .. })),
            "{dims:?}"
        );
    }
    for value in [
        Value::U32(24),
        Value::U32(0),
        Value::U32(1 << 21),
        Value::U64(32),
    ] {
        let key = "general.alignment".into();
        let draft = Draft {
            metadata: vec![Entry { key, value }],
            ..Draft::default()
        };
        assert!(matches!(begin(&draft), Err(WriteError::Alignment { .. })));
    }
}

/// A target that is full: the error is the host's, and nothing is reported as written.
#[test]
fn a_target_that_refuses_is_reported() {
    let mut room = [0; 10];
    let refused = draft().begin(&mut room[..]).map(drop);
    let error = refused.expect_err("because ten bytes are too few");
    assert_eq!(error.blame(), packhouse_base::Blame::Host);
}
