//! A simulated disk with the files of a model on it, and a stage root for their copies.

use packhouse_base::digest::Digest;
use packhouse_sim::{SimClock, SimFs};
use packhouse_stage::StageRoot;
use packhouse_stage::models::{
    self, AdmittedModel, FileDigests, ModelEvent, ModelFiles, ModelMiss, ModelOptions,
    ModelOutcome, ModelPrepareError, ModelQuery, ModelVerification, ModelWatcher, PreparedModel,
    SourceFile,
};
use packhouse_sys::fs::{Dir, DirAccess, File, Fs as _, FsErrorKind};
use packhouse_sys::memory::MemoryRoom;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use crate::fixture::{ROOT, STATE, try_root};

/// One file; the others are shards of another model.
pub(crate) const ONE: &str = "/home/user/models/one.gguf";
pub(crate) const SHARDS: [&str; 2] = [
    "/home/user/models/two-00001-of-00002.gguf",
    "/home/user/models/two-00002-of-00002.gguf",
];
pub(crate) const ONE_BYTES: &[u8] = b"the bytes of a model in one file";
pub(crate) const SHARD_BYTES: [&[u8]; 2] = [b"the first shard", b"and the second one"];

pub(crate) struct Models {
    pub(crate) sim: SimFs,
    /// What was told, in order; bytes that are done are left out.
    pub(crate) told: RefCell<Vec<ModelEvent>>,
}

impl Models {
    /// Files of two models, old enough to be believed; nothing is copied.
    pub(crate) fn new() -> Self {
        let sim = SimFs::new(3, Arc::new(SimClock::new()));
        sim.make_dirs("/home/user/models", 1000, 0o755);
        sim.replace(ONE, ONE_BYTES, 0o644);
        for (path, bytes) in SHARDS.iter().zip(SHARD_BYTES) {
            sim.replace(path, bytes, 0o644);
        }
        sim.clock().advance_ns(10_000_000_000);
        Self::on(sim)
    }

    /// The same on a disk after a crash.
    pub(crate) fn on(sim: SimFs) -> Self {
        let told = RefCell::default();
        Self { sim, told }
    }

    pub(crate) fn root(&self) -> StageRoot {
        try_root(&self.sim, ROOT).expect("because nobody is in the way")
    }

    pub(crate) fn digests(&self) -> FileDigests {
        FileDigests::make(
            Arc::new(self.sim.clone()),
            self.sim.clock(),
            Path::new(STATE),
        )
        .expect("because the state is this user's")
    }

    pub(crate) fn open(&self, path: &str) -> File {
        self.try_open(path).expect("because it is there")
    }

    fn try_open(&self, path: &str) -> Result<File, FsErrorKind> {
        let path = Path::new(path);
        let name = path.file_name().expect("because it is a file");
        let file = self.dir(path.parent().expect("because it is in a folder"));
        file.open_file(name).map_err(|error| error.kind)
    }

    fn dir(&self, path: &Path) -> Dir {
        let mut dir = self.sim.root().expect("because the disk is there");
        for name in path.iter().skip(1) {
            let inner = dir.open_dir_for(name, DirAccess::Lookup);
            dir = inner.expect("because it is there");
        }
        dir
    }

    /// Prepares with all that may be asked for.
    pub(crate) fn prepare_with(
        &self,
        paths: &[&str],
        digests: Option<&FileDigests>,
        expected: &[Digest],
        options: &ModelOptions,
    ) -> Result<PreparedModel, ModelPrepareError> {
        let files: Vec<File> = paths.iter().map(|path| self.open(path)).collect();
        let files = ModelFiles {
            path: Path::new(paths[0]),
            files: &files,
            expected,
        };
        let watcher = ModelWatcher {
            tell: &|event| match event {
                ModelEvent::Done { .. } => {}
                ModelEvent::Waits
                | ModelEvent::Hash { .. }
                | ModelEvent::Copy { .. }
                | ModelEvent::Settle { .. } => self.told.borrow_mut().push(event),
            },
            cancel: &|| false,
        };
        models::prepare(&self.root(), digests, files, options, watcher)
    }

    pub(crate) fn prepare(&self, paths: &[&str]) -> Result<PreparedModel, ModelPrepareError> {
        self.prepare_with(paths, None, &[], &options())
    }

    /// Prepares and expects it to work.
    pub(crate) fn outcome(&self, paths: &[&str]) -> ModelOutcome {
        let prepared = self.prepare(paths);
        prepared.expect("because nothing is in the way").outcome
    }

    /// Finds a copy as a worker's start does.
    pub(crate) fn find(
        &self,
        paths: &[&str],
        expected: Option<Digest>,
    ) -> Result<AdmittedModel, ModelMiss> {
        let look = |path: &&str| match self.try_open(path) {
            Ok(file) => SourceFile::Open(file),
            Err(FsErrorKind::NotFound) => SourceFile::Gone,
            Err(kind) => SourceFile::Unreadable {
                why: format!("{kind:?}"),
            },
        };
        let files: Vec<SourceFile> = paths.iter().map(look).collect();
        models::find(
            &self.root(),
            &ModelQuery {
                path: Path::new(paths[0]),
                files: &files,
                expected,
            },
        )
    }

    /// The reason why a copy is not found.
    pub(crate) fn miss(&self, paths: &[&str]) -> ModelMiss {
        self.find(paths, None)
            .expect_err("because something is wrong with it")
    }

    pub(crate) fn verify(&self, paths: &[&str]) -> ModelVerification {
        let record = self.find(paths, None).map(|model| model.key);
        let key = record.expect("because it is admitted");
        let found = models::verify(&self.root(), &[key], NonZeroUsize::MIN, &|_| ());
        found.expect("because it can be read").remove(0)
    }

    /// The path of the copy of a model of one file.
    pub(crate) fn copy(&self, generation: u64) -> String {
        let key = Digest::of(ONE_BYTES);
        format!("{ROOT}/models/{key}.{generation}/files/one.gguf")
    }

    /// Names in the stage root and in its folder of copies, without what is always there.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = |dir: Dir| dir.list().expect("because it can be listed");
        let root = self.dir(Path::new(ROOT));
        let mut names = list(root.reopen().expect("because it is there"));
        if let Ok(models) = root.open_dir("models") {
            names.extend(list(models));
        }
        let names = names.into_iter();
        let names = names.map(|name| name.into_string().expect("because names are ASCII"));
        names
            .filter(|name| !["locks", "models", "sources"].contains(&name.as_str()))
            .collect()
    }
}

pub(crate) fn options() -> ModelOptions {
    ModelOptions {
        min_free_bytes: 0,
        // One thread, so that operations are counted in one order.
        threads: NonZeroUsize::MIN,
        wait_ns: 0,
        memory: MemoryRoom::default,
    }
}
