//! Small stores, on the real file system and on the simulated one, with sets of known bytes.

use packhouse_base::digest::{Digest, Fingerprint, ObjectDigest, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_store::verify::Depth;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) const DEEP: Depth = Depth::Deep {
    threads: NonZeroUsize::MIN,
};

/// The real clocks, but waiting passes at once.
#[derive(Default)]
pub(crate) struct PatientClock {
    added_ns: AtomicI64,
}

impl Clock for PatientClock {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() + self.added_ns.load(Ordering::Relaxed)
    }

    fn steady_ns(&self) -> u64 {
        let added = self.added_ns.load(Ordering::Relaxed);
        RealClock.steady_ns() + u64::try_from(added).expect("because it grows")
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let added = i64::try_from(duration_ns).expect("because tests wait briefly");
        self.added_ns.fetch_add(added, Ordering::Relaxed);
    }
}

pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))
        .expect("because it is ours");
    folder
}

pub(crate) fn config(folder: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(folder.join("root"), folder.join("state"));
    config.min_free_bytes = 0;
    config
}

pub(crate) fn real(config: StoreConfig) -> Store {
    let clock = Arc::new(PatientClock::default());
    Store::open(Arc::new(RealFs), clock, config).expect("because the folder is this user's")
}

/// Publishes a payload under an identity with its pack, and answers its place in a set.
pub(crate) fn publish(
    store: &Store,
    (slot, tensor): (u64, &str),
    identity: PackIdentity,
    payload: &[u8],
) -> ManifestEntry {
    let length = payload.len() as u64;
    let room = store.reserve(length, 0).expect("because there is room");
    let object = store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because nothing is in the way");
    let record = PackRecord {
        identity,
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
        tensor: tensor.into(),
        pack: record.key(),
        object: ObjectDigest(Digest::of(payload)),
        length,
    }
}

fn plain(payload: &[u8]) -> PackIdentity {
    PackIdentity {
        layout: "identity-v1".into(),
        layout_version: 1,
        parameters: BTreeMap::new(),
        fingerprint: Fingerprint(Digest::of(b"golden")),
        type_id: 24,
        dims: vec![payload.len() as u64],
        source: TensorDigest(Digest::of(payload)),
    }
}

pub(crate) fn container(name: &str) -> ContainerRecord {
    let file = ContainerFile {
        name: name.into(),
        size: 10,
        digest: None,
    };
    ContainerRecord::new(vec![file], Admission::Skipped).expect("because the file is plain")
}

/// Publishes a set of these payloads with two container records.
pub(crate) fn set(store: &Store, payloads: &[&[u8]]) -> SetManifest {
    let entries = (0u64..)
        .zip(payloads)
        .map(|(slot, payload)| {
            let tensor = format!("blk.{slot}.weight");
            publish(store, (slot, &tensor), plain(payload), payload)
        })
        .collect();
    let manifest = SetManifest::new("identity".into(), Digest::of(b"plan"), entries)
        .expect("because the slots differ");
    store
        .publish_set(&manifest, &container("a.gguf"))
        .expect("because its packs are there");
    store
        .add_container_record(manifest.key(), &container("b.gguf"))
        .expect("because nothing is in the way");
    manifest
}
