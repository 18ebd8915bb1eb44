//! What a stock engine packs of a model, beside what we say and pack without it: the same tensors,
//! the same keys, the same bytes, the same set.
//!
//! The engine fills a store through the plug-in. The other side has only the file: the rules of
//! `stock_x86`, the twins and the canonical keys. Equal sets are what lets a store that was filled
//! offline serve the first start.

use super::synthetic::Synthetic;
use engine_tests::{Mode, Model, Sandbox, Server, store_files};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::identity::{SetEntry, set_key};
use packhouse_container::{FileSource, ReadAt as _, TensorDirectory};
use packhouse_layout::stock_x86::{self, Features, Left};
use packhouse_layout::{Layout, ggml_cpu_plan};
use packhouse_pack::Packers;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// Pack keys with the digests of their objects, as text.
type Packs = BTreeMap<String, String>;

/// What we say of a model.
struct Foretold {
    packs: Packs,
    set: String,
    left: Vec<(String, Left)>,
}

pub(crate) fn directory(model: &Path) -> (File, TensorDirectory) {
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
