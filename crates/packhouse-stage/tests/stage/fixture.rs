//! A store with one set, and a stage root, on a simulated disk.

use packhouse_base::digest::{Digest, Fingerprint, ObjectDigest, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_sim::{SimClock, SimFs};
use packhouse_stage::{
    Depth, StageError, StageOptions, StageOutcome, StageRoot, StageRootError, StageValidation,
    Staged, Watcher, stage, validate,
};
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Owners, Store, StoreConfig};
use packhouse_sys::memory::MemoryRoom;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

pub(crate) const STORE: &str = "/home/user/store";
pub(crate) const STATE: &str = "/home/user/state";
/// Below a folder of root's that everybody may write to, as `/dev/shm` is.
pub(crate) const ROOT: &str = "/tmp/stage";
pub(crate) const DEEP: Depth = Depth::Deep {
    threads: NonZeroUsize::MIN,
};
/// Four slots; two of them share an object.
pub(crate) const PAYLOADS: [&[u8]; 4] = [b"one", b"the second", b"one", b"and the last of all"];
pub(crate) const COPIED_BYTES: u64 = 3 + 10 + 19;
pub(crate) const QUIET: Watcher<'static> = Watcher {
    tell: &|_| (),
    cancel: &|| false,
};

pub(crate) struct World {
    pub(crate) sim: SimFs,
    pub(crate) store: Store,
    pub(crate) set: SetKey,
}

impl World {
    /// A store with the set of `PAYLOADS`; nothing is staged.
    pub(crate) fn new() -> Self {
        Self::on(SimFs::new(3, Arc::new(SimClock::new())))
    }

    /// The same store on a disk after a crash.
    pub(crate) fn on(sim: SimFs) -> Self {
        let store = open_store(&sim, false);
        let set = publish_set(&store, &PAYLOADS).key();
        Self { sim, store, set }
    }

    pub(crate) fn root(&self) -> StageRoot {
        try_root(&self.sim, ROOT).expect("because nobody is in the way")
    }

    pub(crate) fn stage(&self) -> Result<Staged, StageError> {
        stage(&self.store, &self.root(), self.set, &options(), QUIET)
    }

    /// Stages and expects it to work.
    pub(crate) fn outcome(&self) -> StageOutcome {
        self.stage().expect("because nothing is in the way").outcome
    }

    pub(crate) fn validation(&self, depth: Depth) -> StageValidation {
        validate(&self.root(), self.set, depth, &|_| ())
    }

    /// A path in the stage of this generation.
    pub(crate) fn path(&self, generation: u64, name: &str) -> String {
        format!("{ROOT}/{}.{generation}/{name}", self.set)
    }

    /// The copy of a payload.
    pub(crate) fn copy(&self, generation: u64, payload: &[u8]) -> String {
        self.path(generation, &format!("objects/{}", digest(payload)))
    }

    /// Nothing is in the root but whole stages of these generations and the lock file.
    pub(crate) fn assert_only(&self, generations: &[u64], context: &str) {
        let names = self.names();
        let mut expected: Vec<String> = generations
            .iter()
            .map(|generation| format!("{}.{generation}", self.set))
            .collect();
        expected.push("locks".to_owned());
        assert_eq!(names, expected, "{context}");
    }

    pub(crate) fn names(&self) -> Vec<String> {
        use packhouse_sys::fs::Fs as _;
        let mut dir = self.sim.root().expect("because the disk is there");
        for name in Path::new(ROOT).iter().skip(1) {
            dir = dir.open_dir(name).expect("because it is there");
        }
        let names = dir.list().expect("because it can be listed");
        names
            .into_iter()
            .map(|name| name.into_string().expect("because names are ASCII"))
            .collect()
    }
}

pub(crate) fn options() -> StageOptions {
    StageOptions {
        min_free_bytes: 0,
        // One thread, so that operations are counted in one order.
        threads: NonZeroUsize::MIN,
        wait_ns: 0,
        memory: MemoryRoom::default,
    }
}

pub(crate) fn try_root(sim: &SimFs, path: &str) -> Result<StageRoot, StageRootError> {
    let owners = Owners::new(1000, &[]);
    StageRoot::make(Arc::new(sim.clone()), sim.clock(), Path::new(path), &owners)
}

pub(crate) fn open_store(sim: &SimFs, read_only: bool) -> Store {
    let mut config = StoreConfig::new(STORE, STATE);
    config.read_only = read_only;
    Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is sound")
}

pub(crate) fn digest(payload: &[u8]) -> ObjectDigest {
    ObjectDigest(Digest::of(payload))
}

/// Publishes payloads with their packs and the set of them.
pub(crate) fn publish_set(store: &Store, payloads: &[&[u8]]) -> SetManifest {
    let entries = (0u64..)
        .zip(payloads)
        .map(|(slot, payload)| publish(store, slot, payload))
        .collect();
    let manifest = SetManifest::new("plan".into(), Digest::of(b"plan"), entries)
        .expect("because the slots differ");
    store
        .publish_set(&manifest, &container())
        .expect("because its packs are there");
    manifest
}

fn publish(store: &Store, slot: u64, payload: &[u8]) -> ManifestEntry {
    let length = payload.len() as u64;
    let room = store.reserve(length, 0).expect("because there is room");
    let object = store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because nothing is in the way");
    let record = PackRecord {
        identity: PackIdentity {
            layout: "identity-v1".into(),
            layout_version: 1,
            parameters: BTreeMap::new(),
            fingerprint: Fingerprint(Digest::of(b"golden")),
            type_id: 24,
            dims: vec![length],
            source: TensorDigest(Digest::of(payload)),
        },
        object: object.digest(),
        length,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: length,
            row_count: 1,
        },
    };
    store
        .publish_pack(&record)
        .expect("because its object is there");
    ManifestEntry {
        slot,
        tensor: format!("blk.{slot}.weight"),
        pack: record.key(),
        object: record.object,
        length,
    }
}

fn container() -> ContainerRecord {
    let file = ContainerFile {
        name: "model.gguf".into(),
        size: 10,
        digest: None,
    };
    ContainerRecord::new(vec![file], Admission::Skipped).expect("because the file is plain")
}
