//! A model prepared under a built-in plan, as users do it, and then opened through C.

use crate::world::{Later, open_at, probe_at, program, run, set_mode};
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_layout::stock_x86::Features;
use packhouse_pack::Packers;
use packhouse_prepare::model::Model;
use packhouse_prepare::plan::{SelectContext, builtin};
use packhouse_prepare::prepare::{Options, Order, Quiet, SourceHash, prepare};
use packhouse_store::root::Store;
use packhouse_sys::fs::{File, Fs as _};
use packhouse_sys::real::RealFs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const TENSORS: [(&str, &str, [u64; 2]); 5] = [
    ("token_embd.weight", "F32", [64, 40]),
    ("blk.0.ffn_up.weight", "Q4_0", [64, 48]),
    ("blk.0.ffn_norm.weight", "F32", [64, 1]),
    ("blk.0.ffn_down.weight", "Q4_0", [96, 64]),
    ("output.weight", "Q8_0", [64, 40]),
];

/// Writes a model whose Q4_0 scales are finite; returns where each tensor lies in the file.
fn write_model(path: &Path) -> Vec<u64> {
    let tensor = |(name, ty, dims): &(&str, &str, [u64; 2])| DraftTensor {
        name: (*name).to_owned(),
        ggml_type: GgmlType::from_name(ty).expect("because it is a known type"),
        dims: dims.to_vec(),
    };
    let draft = Draft {
        metadata: vec![Entry {
            key: "general.architecture".to_owned(),
            value: Value::String("llama".to_owned()),
        }],
        tensors: TENSORS.iter().map(tensor).collect(),
    };
    let mut writer = draft.begin(Vec::new()).expect("because the draft is sound");
    for (salt, tensor) in draft.tensors.iter().enumerate() {
        let length = tensor
            .ggml_type
            .tensor_bytes(&tensor.dims)
            .expect("because it fits");
        let byte = |index: u64| match (tensor.ggml_type.name(), index % 18) {
            ("Q4_0", 1) => 0x2c,
            _ => u8::try_from((index * 7 + salt as u64 * 31) % 251).expect("because it is below"),
        };
        let bytes: Vec<u8> = (0..length).map(byte).collect();
        writer.put(&bytes).expect("because memory takes it");
    }
    let bytes = writer.finish().expect("because all bytes are there");
    std::fs::write(path, &bytes).expect("because the folder is ours");
    let source = std::fs::File::open(path).expect("because it is there");
    let source = packhouse_container::FileSource::new(&source).expect("because it is a file");
    let directory = packhouse_container::TensorDirectory::parse(&source).expect("because we wrote");
    let tensors = directory.tensors().iter();
    tensors.map(|tensor| tensor.offset).collect()
}

fn open_file(path: &Path) -> File {
    let mut folder = RealFs.root().expect("because there is a root");
    let parts: Vec<_> = path.iter().skip(1).collect();
    let (name, folders) = parts.split_last().expect("because it is a file");
    for part in folders {
        folder = folder.open_dir(part).expect("because it is a folder");
    }
    folder.open_file(name).expect("because it was written")
}

fn prepare_by(store: &Store, path: &Path, plan: &str) -> String {
    let model = Model::open(vec![open_file(path)]).expect("because it is a model");
    let plan = builtin::find(plan).expect("because it is built in").plan();
    let packers = Packers::detect();
    let context = SelectContext {
        features: Features::detect(),
        packers: &packers,
    };
    let selection = plan
        .select(model.container(), &context)
        .expect("because it fits");
    let order = Order::new(&plan, &selection, &packers).expect("because all are packed here");
    let options = Options {
        threads: NonZeroUsize::MIN,
        source_hash: SourceHash::Whole,
        expected: Vec::new(),
        lock_timeout_ns: 0,
        memory_bytes: 1 << 20,
        memory_max_bytes: 1 << 30,
        process_id: std::process::id(),
    };
    let prepared = prepare(store, &model, &order, &options, &Quiet, &|| false);
    prepared.expect("because there is room").set.to_string()
}

#[test]
fn a_model_prepared_under_a_plan_serves_through_c_and_its_rows_are_the_files() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("because it is ours");
    set_mode(folder.path(), 0o700);
    let folder_path = folder.path().canonicalize().expect("because it is there");
    let model = folder_path.join("model.gguf");
    let offsets = write_model(&model);
    let store = open_at(&folder_path, Arc::new(Later));
    let xe2 = prepare_by(&store, &model, "xe2-q4_0");
    let identity = prepare_by(&store, &model, "identity");
    assert_ne!(xe2, identity);
    let (root, state) = (folder_path.join("store"), folder_path.join("state"));
    for (at, row) in [(1, 0), (1, 47), (3, 17), (3, 63)] {
        let (name, _, [columns, rows]) = TENSORS[at];
        let mut command = Command::new(program("dot", &["dot.c"]));
        command.arg(&root).arg(&state).args([&xe2, name]);
        command.args([columns, rows, row].map(|number| number.to_string()));
        command.arg(&model).arg(offsets[at].to_string());
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(said.ends_with(": equal\n"), "{said}");
    }
    let places = [root, state, "-".into()];
    let words = [
        "open", "info", "at", "0", "map", "view", "at", "1", "map", "view",
    ];
    let lines = probe_at(&places, &xe2, (2, 1), &words);
    let receipts = lines
        .iter()
        .filter(|line| line.contains(" held=1 proof=2 "));
    assert_eq!(
        receipts.count(),
        2,
        "prepare's receipts are believed: {lines:#?}"
    );
    let lines = probe_at(&places, &identity, (2, 1), &words);
    assert!(
        lines.iter().any(|line| line.contains("plan=identity ")),
        "{lines:#?}"
    );
}

/// A head in tiles has samples of another layout than its own, a column each: they are equal, or
/// the row is named without an inverse, whether the payload is mapped or read to be proved.
#[test]
fn the_columns_of_a_head_are_compared_one_by_one() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("because it is ours");
    set_mode(folder.path(), 0o700);
    let folder = folder.path().canonicalize().expect("because it is there");
    let model = folder.join("model.gguf");
    let offsets = write_model(&model);
    let store = open_at(&folder, Arc::new(Later));
    let head = prepare_by(&store, &model, "npu-head");
    let bytes = std::fs::read(&model).expect("because it was written");
    let start = usize::try_from(offsets[4]).expect("because it is small");
    let row_bytes = 2 * 34;
    let mut live = bytes[start..start + 40 * row_bytes].to_vec();
    std::fs::write(folder.join("live"), &live).expect("because the folder is ours");
    // The first quant of row 37.
    live[37 * row_bytes + 2] ^= 0x40;
    std::fs::write(folder.join("other"), &live).expect("because the folder is ours");
    let places = [folder.join("store"), folder.join("state"), "-".into()];
    // By receipts, and by samples alone.
    for trust in [(2, 0), (1, 0)] {
        let sampled = |file: &str| {
            let file = folder.join(file).display().to_string();
            let all = "18446744073709551615";
            let words = ["open", "at", "0", "sample", &file, all, "0", "map"];
            probe_at(&places, &head, trust, &words)
        };
        let lines = sampled("live");
        let entry = " layout=int8-tile-b8-v1/1 type=8 dims=64,40 kd=64 kpad=64 nd=128 t=40 ";
        assert!(lines.iter().any(|line| line.contains(entry)), "{lines:#?}");
        let equal = lines
            .iter()
            .any(|line| line.starts_with("compared=40 of=40"));
        assert!(
            equal && lines.contains(&"map PACKHOUSE_OK ".to_owned()),
            "{lines:#?}"
        );
        let lines = sampled("other");
        let refused = lines.iter().find(|line| line.starts_with("sample "));
        let refused = refused.expect("because it was asked");
        let said = "group 37 (rows 37 to 37), first in row 37: payload byte 261 is ";
        assert!(refused.contains("PACKHOUSE_SAMPLE_DIFFERS"), "{refused}");
        assert!(refused.contains(said), "{refused}");
        assert!(
            !lines.contains(&"map PACKHOUSE_OK ".to_owned()),
            "{lines:#?}"
        );
    }
}
