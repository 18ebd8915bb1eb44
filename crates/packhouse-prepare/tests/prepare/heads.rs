//! Which tensor is the head, what is none, and one read of its bytes.

use crate::prepare_world::open_file;
use packhouse_base::Blame;
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_prepare::head::{HeadBytes, HeadError, ModelHead, ReadError, ReadWatcher};
use packhouse_prepare::model::{Model, ModelError};
use packhouse_prepare::prepare::{Event, Progress, Quiet};
use packhouse_sim::{SimClock, SimFs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FOLDER: &str = "/home/user";
const MODEL: &str = "/home/user/model.gguf";

type Listed<'a> = (&'a str, &'a str, &'a [u64]);

/// A disk with a model of these tensors, the bytes of each counting up from its first letter.
fn disk(tensors: &[Listed<'_>]) -> SimFs {
    let clock = Arc::new(SimClock::new());
    let sim = SimFs::new(1, clock.clone());
    sim.make_dirs(FOLDER, 1000, 0o755);
    sim.replace(MODEL, &file(tensors, &[]), 0o644);
    clock.advance_ns(10_000_000_000);
    sim
}

fn file(tensors: &[Listed<'_>], split: &[(&str, Value)]) -> Vec<u8> {
    let entry = |(key, value): &(&str, Value)| Entry {
        key: (*key).into(),
        value: value.clone(),
    };
    let draft = Draft {
        metadata: split.iter().map(entry).collect(),
        tensors: tensors
            .iter()
            .map(|(name, ty, dims)| DraftTensor {
                name: (*name).into(),
                ggml_type: GgmlType::from_name(ty).expect("because tests name known types"),
                dims: dims.to_vec(),
            })
            .collect(),
    };
    let mut writer = draft.begin(Vec::new()).expect("because the draft is sound");
    for tensor in &draft.tensors {
        let bytes = tensor.ggml_type.tensor_bytes(&tensor.dims);
        let bytes = bytes.expect("because the dims fit the type");
        let first = u64::from(tensor.name.as_bytes()[0]);
        let content = (0..bytes).map(|at| ((at + first) % 113) as u8);
        writer
            .put(&content.collect::<Vec<u8>>())
            .expect("because memory takes it");
    }
    writer.finish().expect("because all bytes are there")
}

fn open(sim: &SimFs) -> Model {
    Model::open(vec![open_file(sim, MODEL)]).expect("because it is a model")
}

fn find(tensors: &[Listed<'_>], named: Option<&str>) -> Result<ModelHead, HeadError> {
    ModelHead::find(open(&disk(tensors)).container(), named)
}

fn said(tensors: &[Listed<'_>], named: Option<&str>) -> String {
    let error = find(tensors, named).expect_err("because it is no head");
    error.to_string()
}

/// Reads as `image prepare` does when nothing is in the way.
fn read(head: &ModelHead, model: &Model) -> Result<HeadBytes, ReadError> {
    let watcher = ReadWatcher {
        progress: &Quiet,
        cancel: &|| false,
    };
    head.read(model, u64::MAX, watcher)
}

#[test]
fn the_head_is_the_output_else_the_embedding_else_what_is_named() {
    let both: &[Listed<'_>] = &[
        ("token_embd.weight", "F32", &[32, 5]),
        ("output.weight", "Q4_0", &[64, 7]),
        ("blk.0.ffn_up.weight", "F16", &[32, 9]),
    ];
    let untied = find(both, None).expect("because it has one");
    assert_eq!(untied.name(), "output.weight");
    assert_eq!(untied.ggml_type().name(), "Q4_0");
    assert_eq!((untied.width(), untied.vocabulary()), (64, 7));
    assert_eq!(untied.bytes(), 64 / 32 * 18 * 7);
    assert!(!untied.is_tied());
    let tied = find(&both[..1], None).expect("because the embedding serves");
    assert_eq!(tied.name(), "token_embd.weight");
    assert!(tied.is_tied());
    let named = find(both, Some("blk.0.ffn_up.weight")).expect("because it is a matrix");
    assert_eq!((named.width(), named.vocabulary()), (32, 9));
    assert!(!named.is_tied());
}

#[test]
fn dims_of_one_behind_the_two_are_no_dims() {
    let head = find(&[("output.weight", "F32", &[32, 1, 1, 1])], None);
    let head = head.expect("because it is a matrix of one row");
    assert_eq!((head.width(), head.vocabulary()), (32, 1));
}

#[test]
fn what_is_no_head_is_named_with_what_is_wrong_with_it() {
    let norm: &[Listed<'_>] = &[("blk.0.attn_norm.weight", "F32", &[64])];
    assert_eq!(
        said(norm, None),
        "there is no tensor \"output.weight\" and no \"token_embd.weight\", so it has no head"
    );
    assert_eq!(
        said(norm, Some("lm_head.weight")),
        "there is no tensor \"lm_head.weight\""
    );
    assert_eq!(
        said(norm, Some("blk.0.attn_norm.weight")),
        "tensor \"blk.0.attn_norm.weight\" has the dims [64], expected two: a row's length, and \
         the rows"
    );
    assert_eq!(
        said(&[("output.weight", "Q8_0", &[32, 4, 3])], None),
        "tensor \"output.weight\" has the dims [32, 4, 3], expected two: a row's length, and the \
         rows"
    );
    assert_eq!(
        said(&[("output.weight", "F32", &[32, 0])], None),
        "tensor \"output.weight\" is empty: its dims are [32, 0]"
    );
    assert_eq!(
        said(&[("output.weight", "I8", &[32, 4])], None),
        "tensor \"output.weight\" has the type I8, which has no values to quantise"
    );
}

#[test]
fn a_head_that_another_tensor_scales_is_refused() {
    let scale: Listed<'_> = ("output.scale", "F32", &[1]);
    let scaled = "tensor \"output.weight\" is scaled by \"output.scale\", and engines differ in \
                  where they multiply: such a head is not tiled";
    assert_eq!(
        said(&[("output.weight", "Q8_0", &[32, 4]), scale], None),
        scaled
    );
    let tied: Listed<'_> = ("token_embd.weight", "Q8_0", &[32, 4]);
    // The same head by its name is the same head; beside an output it is none.
    for named in [None, Some("token_embd.weight")] {
        assert!(said(&[tied, scale], named).contains("scaled by \"output.scale\""));
    }
    let output: Listed<'_> = ("output.weight", "Q8_0", &[32, 4]);
    assert!(find(&[tied, output, scale], Some("token_embd.weight")).is_ok());
    let own: &[Listed<'_>] = &[("x.weight", "F32", &[32, 4]), ("x.scale", "F32", &[4])];
    assert!(said(own, Some("x.weight")).contains("scaled by \"x.scale\""));
    // What scales activations takes no part in a column.
    let input: Listed<'_> = ("output.input_scale", "F32", &[1]);
    assert!(find(&[("output.weight", "Q8_0", &[32, 4]), input], None).is_ok());
}

#[test]
fn blame_lies_with_the_file_or_with_who_named_a_tensor() {
    let none = HeadError::Absent;
    assert_eq!(none.blame(), Blame::Source);
    let named = find(&[("output.weight", "F32", &[32, 4])], Some("nothing"));
    let named = named.expect_err("because there is no such tensor");
    assert_eq!(named.blame(), Blame::Caller);
}

#[test]
fn each_row_of_each_shard_has_its_own_values() {
    let clock = Arc::new(SimClock::new());
    let sim = SimFs::new(1, clock.clone());
    sim.make_dirs(FOLDER, 1000, 0o755);
    let paths = [
        "/home/user/m-00001-of-00002.gguf",
        "/home/user/m-00002-of-00002.gguf",
    ];
    let tensors: [&[Listed<'_>]; 2] = [
        &[("token_embd.weight", "F32", &[32, 3])],
        &[("blk.0.x", "F32", &[5]), ("output.weight", "F32", &[3, 4])],
    ];
    for ((no, path), tensors) in (0u16..).zip(paths).zip(tensors) {
        let split = [
            ("split.no", Value::U16(no)),
            ("split.count", Value::U16(2)),
            ("split.tensors.count", Value::I32(3)),
        ];
        sim.replace(path, &file(tensors, &split), 0o644);
    }
    clock.advance_ns(10_000_000_000);
    let model = Model::open(paths.map(|path| open_file(&sim, path)).into());
    let model = model.expect("because the shards fit");
    let head = ModelHead::find(model.container(), None).expect("because it has one");
    let bytes = read(&head, &model).expect("because nothing is in the way");
    let content: Vec<u8> = (0..48u64).map(|at| ((at + 111) % 113) as u8).collect();
    assert_eq!(bytes.bytes(), content, "of the head and nothing else");
    for (row, source) in (0u64..).zip(content.chunks_exact(12)) {
        let mut column = [7.0; 5];
        bytes.fill(row, &mut column);
        let values = source.as_chunks::<4>().0.iter();
        let values: Vec<u32> = values.map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(
            column[..3].iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            values
        );
        assert_eq!(
            column[3..],
            [7.0, 7.0],
            "what lies behind a row is the caller's"
        );
    }
}

/// Edits the model when it hears of the first piece.
struct Editor<'a> {
    sim: &'a SimFs,
    heard_bytes: AtomicU64,
}

impl Progress for Editor<'_> {
    fn hear(&self, event: Event<'_>) {
        if let Event::Done { bytes } = event
            && self.heard_bytes.fetch_add(bytes, Ordering::Relaxed) == 0
        {
            self.sim.edit(MODEL, |content| {
                let last = content.last_mut().expect("because it has bytes");
                *last ^= 1;
            });
        }
    }
}

#[test]
fn a_model_that_changes_while_its_head_is_read_is_refused() {
    let sim = disk(&[("output.weight", "F32", &[64, 64])]);
    let model = open(&sim);
    let head = ModelHead::find(model.container(), None).expect("because it has one");
    let editor = Editor {
        sim: &sim,
        heard_bytes: AtomicU64::new(0),
    };
    let watcher = ReadWatcher {
        progress: &editor,
        cancel: &|| false,
    };
    let error = head.read(&model, u64::MAX, watcher).err();
    let error = error.expect("because it changed");
    assert!(
        matches!(error, ReadError::Model(ModelError::Changed { .. })),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("model.gguf changed while it was read"),
        "{error}"
    );
    assert_eq!(
        editor.heard_bytes.into_inner(),
        64 * 64 * 4,
        "each byte is read once"
    );
    // Nor is it read when it changed before.
    assert!(read(&head, &model).is_err());
    assert!(read(&head, &open(&sim)).is_ok());
}

#[test]
fn a_head_that_memory_does_not_hold_is_refused_with_both_figures() {
    let sim = disk(&[("output.weight", "F32", &[64, 64])]);
    let model = open(&sim);
    let head = ModelHead::find(model.container(), None).expect("because it has one");
    let watcher = ReadWatcher {
        progress: &Quiet,
        cancel: &|| false,
    };
    let error = head.read(&model, 16_383, watcher).err();
    let error = error.expect("because it does not fit");
    assert_eq!(
        error.to_string(),
        "the head takes 16384 bytes of memory, and 16383 are available"
    );
    assert_eq!(error.blame(), Blame::Host);
    assert!(head.read(&model, 16_384, watcher).is_ok());
}

#[test]
fn who_wants_no_more_is_heard_between_two_pieces() {
    let sim = disk(&[("output.weight", "F32", &[1024, 3000])]);
    let model = open(&sim);
    let head = ModelHead::find(model.container(), None).expect("because it has one");
    let asked = AtomicU64::new(0);
    let watcher = ReadWatcher {
        progress: &Quiet,
        cancel: &|| asked.fetch_add(1, Ordering::Relaxed) == 1,
    };
    let error = head.read(&model, u64::MAX, watcher).err();
    let error = error.expect("because it was stopped").to_string();
    assert_eq!(
        error,
        "stopped while the head was read, 8388608 of 12288000 bytes"
    );
}
