//! Split models: only complete, ordered shards of one model make a container.

use super::build::{Build, F32, I32, U16, rich, shard};
use packhouse_container::gguf::TensorDirectory;
use packhouse_container::{Container, ContainerError};

fn join(files: &[Vec<u8>]) -> Result<Container, ContainerError> {
    let parse = |file: &Vec<u8>| TensorDirectory::parse(&file.as_slice());
    let shards = files
        .iter()
        .map(|file| parse(file).expect("because each shard is legal"));
    Container::new(shards.collect())
}

fn three() -> [Vec<u8>; 3] {
    [
        shard(0, 3, 4, &["a", "b"]),
        shard(1, 3, 4, &["c"]),
        shard(2, 3, 4, &["d"]),
    ]
}

#[test]
fn complete_shards_in_order_are_one_model() {
    let container = join(&three()).expect("because they fit");
    let names: Vec<_> = container
        .tensors()
        .map(|(s, t)| (s, t.name.as_str()))
        .collect();
    assert_eq!(names, [(0, "a"), (0, "b"), (1, "c"), (2, "d")]);
    assert_eq!(container.tensor("d").map(|(shard, _)| shard), Some(2));
    assert_eq!(container.tensor("e"), None);
    assert_eq!(container.shards().len(), 3);
}

#[test]
fn one_file_is_a_container_and_so_is_a_first_shard_without_tensors() {
    assert!(join(&[rich()]).is_ok());
    assert!(join(&[shard(0, 1, 1, &["a"])]).is_ok());
    assert!(join(&[shard(0, 2, 1, &[]), shard(1, 2, 1, &["a"])]).is_ok());
}

#[test]
fn class_10_no_files() {
    assert_eq!(join(&[]), Err(ContainerError::Empty));
}

#[test]
fn class_10_missing_shard() {
    let [a, b, c] = three();
    let missing = |no| Err(ContainerError::ShardMissing { no, count: 3 });
    assert_eq!(join(&[a.clone(), b.clone()]), missing(2));
    assert_eq!(join(&[a.clone(), c.clone()]), missing(1));
    assert_eq!(join(&[b, c]), missing(0));
    assert_eq!(join(&[a]), missing(1));
}

#[test]
fn class_10_doubled_shard() {
    let [a, b, c] = three();
    let doubled = ContainerError::ShardDoubled {
        no: 1,
        first: 1,
        second: 2,
    };
    assert_eq!(join(&[a, b.clone(), b, c]), Err(doubled));
}

#[test]
fn class_10_reordered_shards() {
    let [a, b, c] = three();
    let moved = |position, found| Err(ContainerError::ShardMoved { position, found });
    assert_eq!(join(&[a.clone(), c.clone(), b.clone()]), moved(1, 2));
    assert_eq!(join(&[c, b, a]), moved(0, 2));
}

#[test]
fn class_10_mixed_shards() {
    let [a, b, c] = three();
    let other_count = shard(1, 2, 4, &["x"]);
    let counts = ContainerError::CountDiffers {
        position: 1,
        found: 2,
        expected: 3,
    };
    assert_eq!(join(&[a.clone(), other_count, c.clone()]), Err(counts));
    let other_total = shard(1, 3, 5, &["x"]);
    let totals = ContainerError::TensorsCountDiffers {
        position: 1,
        found: 5,
        expected: 4,
    };
    assert_eq!(join(&[a.clone(), other_total, c.clone()]), Err(totals));
    let other_tensor = shard(1, 3, 4, &["b"]);
    let doubled = ContainerError::TensorDoubled {
        tensor: "b".into(),
        first: 0,
        second: 1,
    };
    assert_eq!(join(&[a.clone(), other_tensor, c.clone()]), Err(doubled));
    let whole = join(&[a, rich(), c]);
    assert_eq!(whole, Err(ContainerError::NotSplit { position: 1 }));
    let after = join(&[rich(), b]);
    assert_eq!(after, Err(ContainerError::NotSplit { position: 0 }));
}

/// A shard of another model can agree in all numbers; where it repeats a key, the value tells.
#[test]
fn class_10_mixed_shards_told_by_metadata() {
    let named = |no: u16, name: &[u8], tensor: &[u8]| {
        Build::new(1, 4)
            .key(b"split.no", U16)
            .raw(&no.to_le_bytes())
            .key(b"split.count", U16)
            .raw(&[2, 0])
            .key(b"split.tensors.count", I32)
            .u32(2)
            .key(b"general.name", 8)
            .text(name)
            .tensor(tensor, &[8], F32, 0)
            .data(32, 32)
            .bytes
    };
    assert!(join(&[named(0, b"m", b"a"), named(1, b"m", b"b")]).is_ok());
    let differs = ContainerError::MetadataDiffers {
        position: 1,
        key: "general.name".into(),
    };
    assert_eq!(
        join(&[named(0, b"m", b"a"), named(1, b"n", b"b")]),
        Err(differs)
    );
}

#[test]
fn class_10_fewer_or_more_tensors_than_declared() {
    let [a, b, _] = three();
    let total = |found| Err(ContainerError::TensorTotal { found, expected: 4 });
    assert_eq!(join(&[a.clone(), b.clone(), shard(2, 3, 4, &[])]), total(3));
    assert_eq!(join(&[a, b, shard(2, 3, 4, &["d", "e"])]), total(5));
}
