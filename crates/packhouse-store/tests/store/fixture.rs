//! A store in a temporary folder of the real file system, with a clock that tests can move.

use packhouse_base::digest::{Digest, Fingerprint, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::pack::PublishPackError;
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

const LOCK_PAUSE_NS: u64 = 50_000_000;

/// The real wall clock, moved by what tests add.
#[derive(Default)]
pub(crate) struct MovedClock {
    added_ns: AtomicI64,
}

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: Arc<MovedClock>,
    folder: tempfile::TempDir,
}

impl MovedClock {
    pub(crate) fn add_ns(&self, ns: i64) {
        self.added_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Clock for MovedClock {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() + self.added_ns.load(Ordering::Relaxed)
    }

    fn steady_ns(&self) -> u64 {
        let added = u64::try_from(self.added_ns.load(Ordering::Relaxed)).expect("because it grows");
        RealClock.steady_ns() + added
    }

    /// Sleeps as long as a wait for a lock pauses, so that others get on; the rest passes at once.
    fn sleep_ns(&self, duration_ns: u64) {
        let slept_ns = duration_ns.min(LOCK_PAUSE_NS);
        RealClock.sleep_ns(slept_ns);
        self.add_ns(i64::try_from(duration_ns - slept_ns).expect("because tests wait briefly"));
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("because a temporary folder can be made");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))
            .expect("because it is ours");
        let clock = Arc::new(MovedClock::default());
        let store = open(folder.path(), clock.clone(), false);
        Self {
            store,
            clock,
            folder,
        }
    }

    /// Opens the same store again, as another process would.
    pub(crate) fn reopen(&self) -> Store {
        open(self.folder.path(), self.clock.clone(), false)
    }

    pub(crate) fn reopen_read_only(&self) -> Store {
        open(self.folder.path(), self.clock.clone(), true)
    }

    /// A path below `<root>/v1`.
    pub(crate) fn v1(&self, path: &str) -> PathBuf {
        self.folder.path().join("root/v1").join(path)
    }

    /// A path below the private state of the store.
    pub(crate) fn state(&self, path: &str) -> PathBuf {
        let state = self.folder.path().join("state");
        state.join(self.store.id().to_string()).join(path)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Publishes a payload with its pack and returns its place in a set.
    pub(crate) fn tensor(&self, slot: u64, tensor: &str, payload: &[u8]) -> ManifestEntry {
        self.try_tensor(slot, tensor, payload)
            .expect("because nothing is in the way")
    }

    /// The same, where another process may be in the way.
    pub(crate) fn try_tensor(
        &self,
        slot: u64,
        tensor: &str,
        payload: &[u8],
    ) -> Result<ManifestEntry, PublishPackError> {
        let length = u64::try_from(payload.len()).expect("because tests are small");
        let room = self
            .store
            .reserve(length, 0)
            .expect("because there is room");
        let object = self
            .store
            .publish(&room, payload, PublishOptions::default(), &|| false)?;
        let record = PackRecord {
            identity: identity(payload),
            object: object.digest(),
            length,
            sample: SampleGeometry {
                unit_rows: 1,
                row_bytes: length,
                row_count: 1,
            },
        };
        self.store.publish_pack(&record)?;
        Ok(ManifestEntry {
            slot,
            tensor: tensor.into(),
            pack: record.key(),
            object: record.object,
            length,
        })
    }

    /// Publishes a set of these payloads, slot by slot.
    pub(crate) fn set(&self, plan: &str, payloads: &[&[u8]]) -> SetManifest {
        let entries = (0u64..)
            .zip(payloads)
            .map(|(slot, payload)| self.tensor(slot, &format!("blk.{slot}.weight"), payload))
            .collect();
        let manifest = manifest(plan, entries);
        self.store
            .publish_set(&manifest, &container("model.gguf"))
            .expect("because its packs are there");
        manifest
    }

    pub(crate) fn key_of(&self, plan: &str, payloads: &[&[u8]]) -> SetKey {
        self.set(plan, payloads).key()
    }
}

pub(crate) fn identity(payload: &[u8]) -> PackIdentity {
    PackIdentity {
        layout: "identity-v1".into(),
        layout_version: 1,
        parameters: BTreeMap::new(),
        fingerprint: Fingerprint(Digest::of(b"golden")),
        type_id: 24,
        dims: vec![u64::try_from(payload.len()).expect("because tests are small")],
        source: TensorDigest(Digest::of(payload)),
    }
}

pub(crate) fn manifest(plan: &str, entries: Vec<ManifestEntry>) -> SetManifest {
    SetManifest::new(plan.into(), Digest::of(plan.as_bytes()), entries)
        .expect("because the slots differ")
}

pub(crate) fn container(name: &str) -> ContainerRecord {
    let file = ContainerFile {
        name: name.into(),
        size: 10,
        digest: None,
    };
    ContainerRecord::new(vec![file], Admission::Skipped).expect("because the file is plain")
}

fn open(folder: &Path, clock: Arc<MovedClock>, read_only: bool) -> Store {
    let mut config = StoreConfig::new(folder.join("root"), folder.join("state"));
    config.min_free_bytes = 0;
    config.read_only = read_only;
    Store::open(Arc::new(RealFs), clock, config).expect("because the folder is this user's")
}
