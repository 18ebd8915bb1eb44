//! A small model and a store, on the simulated disk; recipes that tests can make lie.

use packhouse_base::digest::{Digest, Fingerprint, SetKey, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_prepare::model::{Model, ModelError};
use packhouse_prepare::prepare::{
    Event, How, Item, Options, Order, PrepareError, Prepared, Progress, Quiet, Recipe, SourceHash,
    prepare,
};
use packhouse_sim::{SimClock, SimFs};
use packhouse_store::ledger::SourceRange;
use packhouse_store::record::SampleGeometry;
use packhouse_store::root::{Store, StoreConfig};
use packhouse_store::verify::{Depth, SetVerification};
use packhouse_sys::fs::{DirAccess, File, Fs as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const ROOT: &str = "/home/user/.cache/packhouse";
pub(crate) const STATE: &str = "/home/user/.local/state/packhouse";
pub(crate) const MODEL: &str = "/home/user/model.gguf";

/// What tests may do while a tensor is packed.
pub(crate) type Hook = Arc<dyn Fn(&str) + Send + Sync>;

/// A disk with a model, and how it is prepared.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) sim: SimFs,
    pub(crate) options: Options,
    pub(crate) hook: Option<Hook>,
    /// Added to each payload's first byte, when it is not always the same.
    pub(crate) drift: Option<Arc<AtomicU64>>,
    pub(crate) packer: &'static str,
}

/// A packer that turns the bytes around, so that a payload differs from its source.
struct Turned {
    tensor: String,
    dims: Vec<u64>,
    bytes: u64,
    hook: Option<Hook>,
    drift: Option<Arc<AtomicU64>>,
    packer: &'static str,
}

impl Recipe for Turned {
    fn identity(&self, source: TensorDigest) -> PackIdentity {
        PackIdentity {
            layout: "turned-v1".into(),
            layout_version: 1,
            parameters: [("unit_rows".to_owned(), 1)].into(),
            fingerprint: Fingerprint(Digest::of(self.packer.as_bytes())),
            type_id: 2,
            dims: self.dims.clone(),
            source,
        }
    }

    fn sample(&self) -> SampleGeometry {
        SampleGeometry {
            unit_rows: 1,
            row_bytes: self.bytes / self.dims[1],
            row_count: self.dims[1],
        }
    }

    fn payload_bytes(&self) -> u64 {
        self.bytes
    }

    fn pack(&self, source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len());
        for (from, to) in source.iter().rev().zip(target.iter_mut()) {
            *to = from ^ 0x5a;
        }
        if let Some(drift) = &self.drift {
            target[0] = drift.fetch_add(1, Ordering::Relaxed) as u8;
        }
        if let Some(hook) = &self.hook {
            hook(&self.tensor);
        }
    }
}

/// What a packer of `Turned` makes of bytes.
pub(crate) fn turned(source: &[u8]) -> Vec<u8> {
    source.iter().rev().map(|byte| byte ^ 0x5a).collect()
}

/// Tensors of a small model: five matrices to pack, two of them equal, and two others.
pub(crate) const TENSORS: [(&str, &str, [u64; 2]); 7] = [
    ("token_embd.weight", "F32", [32, 3]),
    ("blk.0.up.weight", "Q4_0", [64, 8]),
    ("blk.0.down.weight", "Q4_0", [32, 40]),
    ("blk.0.norm.weight", "F32", [64, 1]),
    ("blk.1.up.weight", "Q4_0", [64, 8]),
    ("blk.1.down.weight", "Q4_0", [32, 8]),
    ("blk.2.up.weight", "Q4_0", [64, 8]),
];

/// The bytes of a model; `salt` changes all of them but those of `blk.1.down.weight`.
pub(crate) fn model_bytes(salt: u8) -> Vec<u8> {
    part_bytes(&TENSORS, salt, &[])
}

/// The bytes of two shards of the same tensors.
pub(crate) fn shard_bytes(salt: u8, cut: usize) -> [Vec<u8>; 2] {
    let (first, second) = TENSORS.split_at(cut);
    [(0, first), (1, second)].map(|(no, tensors)| {
        let total = i32::try_from(TENSORS.len()).expect("because they are few");
        let split = [
            ("split.no", Value::U16(no)),
            ("split.count", Value::U16(2)),
            ("split.tensors.count", Value::I32(total)),
        ];
        part_bytes(tensors, salt, &split)
    })
}

fn part_bytes(tensors: &[(&str, &str, [u64; 2])], salt: u8, split: &[(&str, Value)]) -> Vec<u8> {
    let architecture = Entry {
        key: "general.architecture".into(),
        value: Value::String("llama".into()),
    };
    let draft = Draft {
        metadata: std::iter::once(architecture)
            .chain(split.iter().map(|(key, value)| Entry {
                key: (*key).into(),
                value: value.clone(),
            }))
            .collect(),
        tensors: tensors
            .iter()
            .map(|(name, ty, dims)| DraftTensor {
                name: (*name).into(),
                ggml_type: GgmlType::from_name(ty).expect("because it is a known type"),
                dims: dims.to_vec(),
            })
            .collect(),
    };
    let mut writer = draft.begin(Vec::new()).expect("because the draft is sound");
    for tensor in &draft.tensors {
        writer
            .put(&tensor_bytes(tensor, salt))
            .expect("because memory takes it");
    }
    writer.finish().expect("because all bytes are there")
}

fn tensor_bytes(tensor: &DraftTensor, salt: u8) -> Vec<u8> {
    let length = tensor.ggml_type.tensor_bytes(&tensor.dims).unwrap_or(0);
    let salt = match tensor.name.as_str() {
        "blk.1.down.weight" => 77,
        // Two tensors with the same content.
        "blk.2.up.weight" => salt.wrapping_add(b'0'),
        name => salt.wrapping_add(name.as_bytes()[4]),
    };
    (0..length)
        .map(|index| (index % 251) as u8 ^ salt)
        .collect()
}

impl World {
    /// A disk with a model that is old enough to be trusted by its times.
    pub(crate) fn new() -> Self {
        let clock = Arc::new(SimClock::new());
        let sim = SimFs::new(1, clock.clone());
        sim.make_dirs("/home/user", 1000, 0o755);
        sim.replace(MODEL, &model_bytes(0), 0o644);
        clock.advance_ns(10_000_000_000);
        Self {
            sim,
            options: options(),
            hook: None,
            drift: None,
            packer: "turned",
        }
    }

    /// The same on another disk.
    pub(crate) fn on(&self, sim: SimFs) -> Self {
        Self {
            sim,
            ..self.clone()
        }
    }

    pub(crate) fn store(&self) -> Store {
        self.store_with(|_| {})
    }

    pub(crate) fn store_with(&self, change: impl FnOnce(&mut StoreConfig)) -> Store {
        self.try_store(change).expect("because the disk is sound")
    }

    pub(crate) fn try_store(
        &self,
        change: impl FnOnce(&mut StoreConfig),
    ) -> Result<Store, packhouse_store::root::OpenError> {
        let mut config = StoreConfig::new(ROOT, STATE);
        config.min_free_bytes = 0;
        change(&mut config);
        Store::open(Arc::new(self.sim.clone()), self.sim.clock(), config)
    }

    pub(crate) fn open_model(&self, paths: &[&str]) -> Result<Model, ModelError> {
        let files = paths.iter().map(|path| open_file(&self.sim, path));
        Model::open(files.collect())
    }

    /// An order of every Q4_0 tensor; the slot is its index in the directory.
    pub(crate) fn order(&self, model: &Model) -> Order {
        let tensors = model.container().tensors().enumerate();
        let items = tensors
            .filter(|(_, (_, tensor))| tensor.ggml_type.name() == "Q4_0")
            .map(|(slot, (shard, tensor))| Item {
                slot: slot as u64,
                tensor: tensor.name.clone(),
                shard,
                range: SourceRange {
                    offset: tensor.offset,
                    length: tensor.bytes,
                },
                recipe: Arc::new(Turned {
                    tensor: tensor.name.clone(),
                    dims: tensor.dims.clone(),
                    bytes: tensor.bytes,
                    hook: self.hook.clone(),
                    drift: self.drift.clone(),
                    packer: self.packer,
                }),
            })
            .collect();
        Order {
            plan: "turned".into(),
            plan_digest: Digest::of(b"turned"),
            items,
        }
    }

    /// Prepares the model in the store.
    pub(crate) fn prepare(&self) -> Result<Prepared, PrepareError> {
        self.prepare_in(&self.store(), &Quiet)
    }

    pub(crate) fn prepare_in(
        &self,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<Prepared, PrepareError> {
        let model = self.open_model(&[MODEL])?;
        let order = self.order(&model);
        prepare(store, &model, &order, &self.options, progress, &|| false)
    }

    /// Hashes all objects of a set.
    pub(crate) fn verify(&self, prepared: &Prepared) -> SetVerification {
        self.verify_key(prepared.set)
    }

    pub(crate) fn verify_key(&self, set: SetKey) -> SetVerification {
        let depth = Depth::Deep {
            threads: NonZeroUsize::MIN,
        };
        self.store().verify_set(set, depth, &|_| {})
    }
}

pub(crate) fn options() -> Options {
    Options {
        threads: NonZeroUsize::new(2).expect("because it is 2"),
        source_hash: SourceHash::Whole,
        expected: Vec::new(),
        lock_timeout_ns: 3_000_000_000,
        memory_bytes: 1 << 20,
        memory_max_bytes: 1 << 30,
        process_id: 7,
    }
}

pub(crate) fn open_file(sim: &SimFs, path: impl AsRef<Path>) -> File {
    let mut dir = sim.root().expect("because the disk has a root");
    let path = path.as_ref();
    let folders = path
        .parent()
        .expect("because tests name files")
        .components()
        .skip(1);
    for name in folders {
        dir = dir
            .open_dir_for(name, DirAccess::Lookup)
            .expect("because the folder is there");
    }
    let name = path.file_name().expect("because tests name files");
    dir.open_file(name).expect("because the file is there")
}

/// How many tensors came to be there in each way: reused, packed, healed.
pub(crate) fn counts(prepared: &Prepared) -> (usize, usize, usize) {
    let count = |wanted: fn(&How) -> bool| {
        let tensors = prepared.tensors.iter();
        tensors.filter(|tensor| wanted(&tensor.how)).count()
    };
    (
        count(|how| *how == How::Reused),
        count(|how| *how == How::Packed),
        count(|how| matches!(how, How::Healed { .. })),
    )
}

/// Remembers what it hears.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) heard: Mutex<Vec<String>>,
}

impl Progress for Listener {
    fn hear(&self, event: Event<'_>) {
        self.heard
            .lock()
            .expect("because nothing panics here")
            .push(format!("{event:?}"));
    }
}
