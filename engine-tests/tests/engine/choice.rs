//! What a stock engine packs of a model, beside what we say and pack without it: the same tensors,
//! the same keys, the same bytes, the same set.
//!
//! The engine fills a store through the plug-in. The other side has only the file: the rules of
//! `stock_x86`, the twins and the canonical keys. Equal sets are what lets a store that was filled
//! offline serve the first start.

use engine_tests::{Mode, Model, Sandbox, Server, store_files};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::{SetEntry, set_key};
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_container::synth::{Spec, WeightType};
use packhouse_container::{FileSource, ReadAt as _, TensorDirectory};
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::stock_x86::{self, Features, Left};
use packhouse_layout::{Layout, ggml_cpu_plan};
use packhouse_pack::Packers;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Pack keys with the digests of their objects, as text.
type Packs = BTreeMap<String, String>;

/// What we say of a model.
struct Foretold {
    packs: Packs,
    set: String,
    left: Vec<(String, Left)>,
}

fn directory(model: &Path) -> (File, TensorDirectory) {
    let file = File::open(model).expect("the model is readable");
    let source = FileSource::new(&file).expect("the model is a file");
    let directory = TensorDirectory::parse(&source).expect("the model is a GGUF file");
    (file, directory)
}

/// Chooses and packs every tensor of a model that we think the engine packs.
fn foretell(model: &Path) -> Foretold {
    let (file, directory) = directory(model);
    let source = FileSource::new(&file).expect("the model is a file");
    let architecture = directory.metadata().text("general.architecture");
    let has_output = directory.tensor("output.weight").is_some();
    let is_tied = stock_x86::is_tied(architecture, has_output);
    let packers = Packers::detect();
    let mut packs = Packs::new();
    let mut entries = Vec::new();
    let mut left = Vec::new();
    for (slot, tensor) in directory.tensors().iter().enumerate() {
        let (name, ty, dims) = (&tensor.name, tensor.ggml_type, &tensor.dims);
        let choice = stock_x86::choose(name, ty, dims, is_tied, Features::detect());
        if let Err(reason) = choice {
            left.push((name.clone(), reason));
            continue;
        }
        let admitted = Layout::GgmlCpuRepack.admit(ty, dims, &BTreeMap::new());
        let admitted = admitted.expect("because what is chosen is admitted");
        let mut bytes = vec![0; usize::try_from(tensor.bytes).expect("because it is small")];
        source
            .read_at(&mut bytes, tensor.offset)
            .expect("the model is whole");
        let mut payload = vec![0; bytes.len()];
        let kernel = packers.kernel(&admitted).expect("because it has a twin");
        kernel.pack(&bytes, &mut payload);
        let fingerprint = packers
            .fingerprint(&admitted)
            .expect("because it has a twin");
        let identity = admitted.identity(fingerprint, TensorDigest(Digest::of(&bytes)));
        packs.insert(identity.key().to_string(), Digest::of(&payload).to_string());
        entries.push(SetEntry {
            slot: slot as u64,
            tensor: name.clone(),
            pack: identity.key(),
        });
    }
    let plan = Digest::of(ggml_cpu_plan::BYTES);
    Foretold {
        packs,
        set: set_key(ggml_cpu_plan::NAME, &plan, &entries).to_string(),
        left,
    }
}

/// Lets the engine fill a store; returns the packs and the sets in it.
fn fill(sandbox: &Sandbox, model: &Path) -> (Packs, Vec<String>) {
    let server = Server::start(sandbox, Mode::Packs, model, &["--no-warmup"]);
    let load = server.wait_filled();
    server.stop();
    assert_eq!(load.refused_tensors(), 0, "{load:?}");
    let packs = store_files::packs(&sandbox.store());
    let packs = packs.iter().map(|path| (file_name(path), object(path)));
    let sets = fs::read_dir(sandbox.store().join("v1/sets")).expect("the fill wrote a set");
    let sets = sets.flatten().map(|entry| file_name(&entry.path()));
    (packs.collect(), sets.collect())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    name.expect("because the store's names are text").to_owned()
}

fn object(record: &Path) -> String {
    let text = fs::read(record).expect("the store is readable");
    let record: serde_json::Value = serde_json::from_slice(&text).expect("records are JSON");
    record["object"]
        .as_str()
        .expect("records name an object")
        .to_owned()
}

/// Compares both sides and returns what we left, for the test to look at.
fn assert_foretold(sandbox: &Sandbox, model: &Path) -> Vec<(String, Left)> {
    let foretold = foretell(model);
    assert!(!foretold.packs.is_empty(), "nothing would be packed");
    let (packs, sets) = fill(sandbox, model);
    assert_eq!(packs, foretold.packs, "packs");
    assert_eq!(sets, [foretold.set], "sets");
    foretold.left
}

#[test]
fn a_tied_model_of_one_type_is_packed_as_foretold() {
    assert_foretold(&Sandbox::new(), &Model::SmolLm2.path());
}

#[test]
fn a_model_of_mixed_types_is_packed_as_foretold() {
    assert_foretold(&Sandbox::new(), &Model::Gemma3.path());
}

/// A model of the llama architecture that is never run, so its weights are any bytes.
pub(crate) struct Synthetic {
    pub(crate) ffn: u32,
    pub(crate) experts: Option<u64>,
}

/// Types with a packed order and without, dealt out in turn.
const TYPES: [&str; 9] = [
    "Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4", "Q6_K", "Q8_0", "Q5_K", "F16",
];

impl Synthetic {
    fn draft(&self) -> Draft {
        let (_, tokenizer) = directory(&Model::SmolLm2.path());
        let spec = Spec {
            layers: 4,
            width: 256,
            heads: 4,
            kv_heads: 2,
            ffn: self.ffn,
            context: 512,
            weights: WeightType::F32,
            separate_output: true,
        };
        let mut draft = spec
            .draft(tokenizer.metadata())
            .expect("because the shape fits");
        if let Some(count) = self.experts {
            let count_32 = u32::try_from(count).expect("because it is small");
            for (key, value) in [("count", count_32), ("used_count", 1)] {
                draft.metadata.push(Entry {
                    key: format!("llama.expert_{key}"),
                    value: Value::U32(value),
                });
            }
            draft.tensors = draft
                .tensors
                .into_iter()
                .flat_map(|t| experts(t, count))
                .collect();
        }
        let mut turn = 0;
        for tensor in draft
            .tensors
            .iter_mut()
            .filter(|tensor| tensor.dims.len() > 1)
        {
            tensor.ggml_type = (turn..)
                .map(|at| ty(TYPES[at % TYPES.len()]))
                .find(|ty| {
                    turn += 1;
                    tensor.dims[0].is_multiple_of(ty.block_elements())
                })
                .expect("because F16 takes any row");
        }
        draft
    }

    /// Writes the model into the sandbox.
    pub(crate) fn write(&self, sandbox: &Sandbox) -> PathBuf {
        let path = sandbox.path().join("synthetic.gguf");
        let file = File::create_new(&path).expect("the sandbox is writable");
        let draft = self.draft();
        let mut writer = draft.begin(file).expect("because the directory is sound");
        for (seed, tensor) in draft.tensors.iter().enumerate() {
            let bytes = tensor
                .ggml_type
                .tensor_bytes(&tensor.dims)
                .expect("because rows are whole");
            let mut bytes = vec![0; usize::try_from(bytes).expect("because it is small")];
            SplitMix64::new(seed as u64).fill(&mut bytes);
            writer.put(&bytes).expect("the sandbox has room");
        }
        writer.finish().expect("because every tensor was written");
        path
    }
}

fn ty(name: &str) -> GgmlType {
    GgmlType::from_name(name).expect("because the test names known types")
}

/// A feed-forward matrix becomes a stack of them, and the first brings the router along.
fn experts(tensor: DraftTensor, count: u64) -> Vec<DraftTensor> {
    let Some(stem) = tensor.name.strip_suffix(".weight").filter(|stem| {
        ["ffn_gate", "ffn_up", "ffn_down"]
            .iter()
            .any(|part| stem.ends_with(part))
    }) else {
        return vec![tensor];
    };
    let mut dims = tensor.dims.clone();
    dims.push(count);
    let stack = DraftTensor {
        name: format!("{stem}_exps.weight"),
        ggml_type: tensor.ggml_type,
        dims,
    };
    let router = stem.strip_suffix("ffn_gate").map(|block| DraftTensor {
        name: format!("{block}ffn_gate_inp.weight"),
        ggml_type: tensor.ggml_type,
        dims: vec![tensor.dims[0], count],
    });
    [Some(stack), router].into_iter().flatten().collect()
}

fn reasons(left: &[(String, Left)]) -> Vec<&Left> {
    left.iter().map(|(_, reason)| reason).collect()
}

#[test]
fn rows_that_do_not_divide_and_lookups_are_left_as_foretold() {
    let sandbox = Sandbox::new();
    let model = Synthetic {
        ffn: 516,
        experts: None,
    }
    .write(&sandbox);
    let left = assert_foretold(&sandbox, &model);
    let reasons = reasons(&left);
    assert!(reasons.contains(&&Left::Lookup), "{left:?}");
    assert!(reasons.contains(&&Left::Rows { rows: 516 }), "{left:?}");
}

#[test]
fn stacks_of_experts_are_packed_as_foretold() {
    let sandbox = Sandbox::new();
    let model = Synthetic {
        ffn: 512,
        experts: Some(3),
    }
    .write(&sandbox);
    let left = assert_foretold(&sandbox, &model);
    let stacks = left.iter().filter(|(name, _)| name.contains("_exps"));
    let by_type = |(_, reason): &(String, Left)| matches!(reason, Left::Type { .. });
    assert!(stacks.clone().all(by_type), "{left:?}");
    assert!(stacks.count() < 12, "no stack was packed: {left:?}");
}

#[test]
fn a_stack_of_one_expert_is_left_as_foretold() {
    let sandbox = Sandbox::new();
    let model = Synthetic {
        ffn: 512,
        experts: Some(1),
    }
    .write(&sandbox);
    let left = assert_foretold(&sandbox, &model);
    assert!(
        reasons(&left).contains(&&Left::Dims { count: 2 }),
        "{left:?}"
    );
}
