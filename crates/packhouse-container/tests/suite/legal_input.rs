//! What real files have and a careless parser refuses: it must be accepted, with exact values.

use super::build::{Build, F32, Q4_0, STRING, U8, rich, shard};
use packhouse_base::encode::Sequence;
use packhouse_container::gguf::{Array, Split, Value};
use packhouse_container::{FileSource, Tensor, TensorDirectory};

fn parsed(file: &[u8]) -> TensorDirectory {
    TensorDirectory::parse(&file).expect("because the file is legal")
}

#[test]
fn every_value_type_keeps_its_type_and_bits() {
    let file = parsed(&rich());
    let value = |key| {
        file.metadata()
            .value(key)
            .expect("because the key is there")
    };
    assert_eq!(
        value("general.architecture"),
        &Value::String("llama".into())
    );
    assert_eq!(value("a.u8"), &Value::U8(7));
    assert_eq!(value("a.i8"), &Value::I8(-128));
    assert_eq!(value("a.u16"), &Value::U16(0x0201));
    assert_eq!(value("a.i16"), &Value::I16(-0x7dff));
    assert_eq!(value("a.i32"), &Value::I32(9));
    assert!(matches!(value("a.f32"), Value::F32(nan) if nan.to_bits() == 0x7fc0_0001));
    assert_eq!(value("a.bool"), &Value::Bool(true));
    assert_eq!(value("a.u64"), &Value::U64(1 << 40));
    assert_eq!(value("a.i64"), &Value::I64(-1));
    assert_eq!(value("a.f64"), &Value::F64(1.0));
    assert_eq!(
        value("flags"),
        &Value::Array(Array::Bool(vec![false, true, true]))
    );
    assert_eq!(value("none"), &Value::Array(Array::F64(Vec::new())));
    let Value::Array(Array::String(tokens)) = value("tokens") else {
        panic!("tokens are strings");
    };
    // A vocabulary has a token for byte 0, so a NUL is legal in an array's element.
    let expected = ["a", "", "\u{e9}\0", "<unk>"];
    assert_eq!(tokens.iter().collect::<Vec<_>>(), expected);
    assert_eq!(tokens.at(2), Some("\u{e9}\0"));
    assert_eq!((tokens.at(4), tokens.len()), (None, 4));
    assert_eq!(file.metadata().unsigned("a.i64"), None);
    assert_eq!(file.metadata().unsigned("a.i32"), Some(9));
}

#[test]
fn tensors_have_exact_ranges_with_padding_between() {
    let file = parsed(&rich());
    let start = file.data_offset();
    assert_eq!((start % 64, file.alignment(), file.version()), (0, 64, 3));
    let seen: Vec<_> = file
        .tensors()
        .iter()
        .map(|t| {
            (
                t.name.as_str(),
                t.dims.as_slice(),
                t.offset - start,
                t.bytes,
            )
        })
        .collect();
    let expected: [(&str, &[u64], u64, u64); 5] = [
        ("token_embd.weight", &[32, 3], 0, 54),
        ("norm", &[5], 64, 20),
        ("scalar", &[1], 128, 4),
        ("empty", &[64, 0, 2, 1], 192, 0),
        ("last", &[2, 1, 3], 192, 12),
    ];
    assert_eq!(seen, expected);
    assert_eq!(file.tensor("norm").map(|t| t.bytes), Some(20));
    assert_eq!(file.tensor("absent"), None);
}

#[test]
fn zero_sized_dimensions_are_legal() {
    for dims in [
        &[0][..],
        &[0, 5],
        &[32, 0],
        &[0, 0, 0, 0],
        &[0, 1 << 62, 1 << 62],
    ] {
        let file = Build::new(2, 0).tensor(b"z", dims, Q4_0, 0);
        let file = parsed(&file.tensor(b"t", &[8], F32, 0).data(32, 32).bytes);
        assert_eq!(file.tensors()[0].bytes, 0, "{dims:?}");
    }
}

#[test]
fn the_last_padding_may_be_there_in_whole_in_part_or_not() {
    for bytes in 28..=32 {
        let file = Build::new(1, 0).tensor(b"a", &[7], F32, 0).data(32, bytes);
        assert_eq!(parsed(&file.bytes).file_bytes(), 64 + bytes as u64);
    }
}

#[test]
fn a_file_of_only_metadata_is_legal() {
    let file = Build::new(0, 1).key(b"k", STRING).text(b"v");
    assert_eq!(parsed(&file.bytes).tensors(), &[] as &[Tensor]);
    assert_eq!(parsed(&file.data(32, 0).bytes).data_offset(), 64);
}

#[test]
fn version_2_reads_like_version_3() {
    let file = Build::with_version(2, 1, 0).tensor(b"a", &[8], F32, 0);
    assert_eq!(parsed(&file.data(32, 32).bytes).version(), 2);
}

#[test]
fn all_alignments_up_to_the_limit_are_legal() {
    for bit in 0..=20 {
        let file = Build::new(1, 1)
            .alignment(1 << bit)
            .tensor(b"a", &[3], 24, 0);
        let file = parsed(&file.data(1 << bit, 3).bytes);
        assert_eq!(file.alignment(), 1 << bit);
        assert_eq!(file.tensors()[0].offset % (1 << bit), 0);
    }
}

#[test]
fn a_merged_file_keeps_a_split_count_of_0_and_is_one_file() {
    assert_eq!(parsed(&shard(0, 0, 2, &["a", "b"])).split(), None);
    let expected = Split {
        no: 1,
        count: 3,
        tensors_count: 9,
    };
    assert_eq!(parsed(&shard(1, 3, 9, &["a"])).split(), Some(expected));
}

#[test]
fn the_digest_is_that_of_the_sequence_in_the_specification() {
    let file = parsed(&rich());
    let mut sequence = Sequence::new("packhouse/tensor-directory/1");
    let start = file.data_offset();
    sequence.integer(5);
    for (name, kind, dims, offset, bytes) in [
        ("token_embd.weight", 2, &[32, 3][..], 0, 54),
        ("norm", 0, &[5], 64, 20),
        ("scalar", 0, &[1], 128, 4),
        ("empty", 2, &[64, 0, 2], 192, 0),
        ("last", 1, &[2, 1, 3], 192, 12),
    ] {
        sequence.text(name).integer(kind).integer(dims.len() as u64);
        for dim in dims {
            sequence.integer(*dim);
        }
        sequence.integer(start + offset).integer(bytes);
    }
    assert_eq!(file.digest(), sequence.finish());
    let vector = "c7d99bbaa03633df64d07f45330598e059ffc819ea9acc91487aa7cca9790987";
    assert_eq!(file.digest().to_string(), vector);
}

#[test]
fn each_field_of_a_tensor_takes_part_in_the_digest_and_metadata_does_not() {
    let file = |name: &[u8], dims: &[u64], kind, keys: Build| {
        parsed(&keys.tensor(name, dims, kind, 0).data(32, 32).bytes).digest()
    };
    let plain = || Build::new(1, 1).key(b"k", U8).raw(&[1]);
    let base = file(b"a", &[8], F32, plain());
    assert_eq!(
        base,
        file(b"a", &[8], F32, Build::new(1, 1).key(b"k", U8).raw(&[2]))
    );
    assert_eq!(base, file(b"a", &[8, 1, 1], F32, plain().raw(&[])));
    assert_ne!(base, file(b"b", &[8], F32, plain()));
    assert_ne!(base, file(b"a", &[4, 2], F32, plain()));
    assert_ne!(base, file(b"a", &[8], 26, plain()));
    // Moved by a longer directory.
    let longer = Build::new(1, 1).key(&[b'k'; 33], U8).raw(&[1]);
    assert_ne!(base, file(b"a", &[8], F32, longer));
}

/// A directory much longer than one read: values that cross the ends of reads stay whole.
#[test]
fn a_directory_of_many_reads_is_the_same_from_a_file_and_from_memory() {
    let mut file = Build::new(1, 3).array(b"tokens", STRING, 60_000);
    for index in 0..60_000u32 {
        file = file.text(format!("token {index}").as_bytes());
    }
    file = file.array(b"types", 5, 300_000);
    for index in 0..300_000 {
        file = file.u32(index);
    }
    file = file.key(b"text", STRING).text(&vec![b'x'; 700_000]);
    let file = file.tensor(b"a", &[8], F32, 0).data(32, 32).bytes;
    let from_memory = parsed(&file);
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/many_reads.gguf");
    std::fs::write(path, &file).expect("because the target folder is ours");
    let opened = std::fs::File::open(path).expect("because it was just written");
    let source = FileSource::new(&opened).expect("because it is a regular file");
    let from_file = TensorDirectory::parse(&source).expect("because the file is legal");
    assert_eq!(from_file, from_memory);
    let Some(Value::Array(Array::String(tokens))) = from_file.metadata().value("tokens") else {
        panic!("tokens are strings");
    };
    assert!(
        tokens
            .iter()
            .zip(0..)
            .all(|(token, index): (_, u32)| token == format!("token {index}"))
    );
    let types = (0..300_000).collect();
    assert_eq!(
        from_file.metadata().value("types"),
        Some(&Value::Array(Array::I32(types)))
    );
}
