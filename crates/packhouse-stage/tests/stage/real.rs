//! Stages on the real tmpfs, with the real clock for file times.

use crate::fixture::{COPIED_BYTES, DEEP, PAYLOADS, QUIET, options, publish_set};
use packhouse_base::digest::SetKey;
use packhouse_stage::{Depth, StageOutcome, StageRoot, open, stage, validate};
use packhouse_store::root::{Owners, Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::FsKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The real clock; what it sleeps passes at once.
#[derive(Default)]
pub(crate) struct Hurried {
    added_ns: AtomicI64,
}

impl Clock for Hurried {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() + self.added_ns.load(Ordering::Relaxed)
    }

    fn steady_ns(&self) -> u64 {
        RealClock.steady_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let duration_ns = i64::try_from(duration_ns).expect("because waits are short");
        self.added_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }
}

pub(crate) fn open_root(path: &Path) -> StageRoot {
    let owners = Owners::new(RealFs.effective_uid(), &[]);
    StageRoot::make(
        Arc::new(RealFs),
        Arc::new(Hurried::default()),
        path,
        &owners,
    )
    .expect("because the folder is this user's")
}

pub(crate) fn open_store(folder: &Path) -> Store {
    let mut config = StoreConfig::new(folder.join("root"), folder.join("state"));
    config.min_free_bytes = 0;
    Store::open(Arc::new(RealFs), Arc::new(RealClock), config)
        .expect("because the folder is this user's")
}

/// A folder in RAM, or in the usual place where there is none.
pub(crate) fn folder_in_ram() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("because a temporary folder can be made")
}

#[test]
fn a_copy_on_tmpfs_is_believed_by_its_receipt_until_it_changes() {
    let store_folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let stage_folder = folder_in_ram();
    let store = open_store(store_folder.path());
    let set: SetKey = publish_set(&store, &PAYLOADS).key();
    let root = open_root(&stage_folder.path().join("stage"));
    let outcome = || {
        let staged = stage(&store, &root, set, &options(), QUIET);
        staged.expect("because nothing is in the way").outcome
    };
    let bytes = COPIED_BYTES;
    assert_eq!(outcome(), StageOutcome::Copied { bytes });
    assert_eq!(outcome(), StageOutcome::Reused);
    let staged = open(&root, set).expect("because it was staged");
    let entry = staged.find_slot(1).expect("because it is filled");
    let object = staged.object(entry).expect("because nobody touched it");
    let file_system = object.file().fs_stat().expect("because it is open");
    if stage_folder.path().starts_with("/dev/shm") {
        assert_eq!(file_system.kind, FsKind::Tmpfs);
    }
    let path = object.file().path().to_owned();
    let mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .expect("because it is ours");
    };
    let times = std::fs::metadata(&path).and_then(|metadata| metadata.modified());
    let times = times.expect("because it has times");
    mode(0o644);
    std::fs::write(&path, b"THE SECOND").expect("because it is ours");
    let file = std::fs::File::options().write(true).open(&path);
    file.and_then(|file| file.set_modified(times))
        .expect("because it is ours");
    mode(0o444);
    let found = validate(&root, set, Depth::Shallow, &|_| ());
    let reasons: Vec<_> = found
        .bad_tensors()
        .filter_map(|bad| Some(bad.problem.as_ref()?.to_string()))
        .collect();
    assert_eq!(reasons.len(), 1);
    assert!(
        reasons[0].ends_with("is not what was hashed: ctime differs"),
        "{}",
        reasons[0]
    );
    assert!(matches!(outcome(), StageOutcome::Replaced { .. }));
    assert!(validate(&root, set, DEEP, &|_| ()).is_good());
    // The replaced one was open all the time, and is readable still.
    assert_eq!(object.file().read_small(100), Ok(b"THE SECOND".to_vec()));
}
