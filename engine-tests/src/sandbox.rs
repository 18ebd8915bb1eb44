//! One test's own world: home, cache, state, store, reports; and commands that live in it.

use crate::places;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Whether the engine gets the plug-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The engine as it is.
    Stock,
    /// The engine with `GGML_BACKEND_PATH` set to the plug-in.
    Packs,
}

/// A folder tree that is removed at the end of the test.
#[derive(Debug)]
pub struct Sandbox {
    root: TempDir,
    /// In RAM, where stages are.
    stage: TempDir,
    runs: Cell<usize>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// Makes an empty one under the build folder: on a real file system, unlike many `/tmp`.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = places::target().join("engine-tests");
        fs::create_dir_all(&parent).expect("the build folder is writable");
        let root = tempfile::Builder::new()
            .prefix("run-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .expect("the build folder is writable");
        for name in ["home", "cache", "state", "reports", "logs"] {
            fs::create_dir(root.path().join(name)).expect("the sandbox is writable");
        }
        let mut in_ram = tempfile::Builder::new();
        let in_ram = in_ram
            .prefix("packhouse-tests-")
            .permissions(fs::Permissions::from_mode(0o700));
        let stage = in_ram.tempdir_in("/dev/shm");
        let stage = stage.or_else(|_| in_ram.tempdir());
        Self {
            root,
            stage: stage.expect("some temporary folder is writable"),
            runs: Cell::new(0),
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Where its store lies; the store makes the folder itself.
    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    /// Its folder of stages; nothing is staged there at first.
    pub fn stage(&self) -> &Path {
        self.stage.path()
    }

    /// A copy of `model` that the test may change.
    pub fn copy_of(&self, model: &Path) -> PathBuf {
        let copy = self.path().join("model.gguf");
        fs::copy(model, &copy).expect("the sandbox has room for a model");
        copy
    }

    /// A command of the engine's folder in this world, and the folder for its report.
    pub fn engine(&self, program: &str, mode: Mode) -> (Command, PathBuf) {
        self.command(&places::engine_bin().join(program), mode)
    }

    /// Any command in this world, and the folder for its report.
    pub fn command(&self, program: &Path, mode: Mode) -> (Command, PathBuf) {
        let run = self.runs.get();
        self.runs.set(run + 1);
        let reports = self.path().join("reports").join(run.to_string());
        fs::create_dir(&reports).expect("the sandbox is writable");
        let mut command = Command::new(program);
        self.enter(&mut command);
        if mode == Mode::Packs {
            command
                .env("GGML_BACKEND_PATH", places::plugin())
                .env("PACKHOUSE_REPORT", &reports);
        }
        (command, reports)
    }

    fn enter(&self, command: &mut Command) {
        let own = ["PACKHOUSE", "GGML_", "LLAMA_", "XDG_", "LD_"];
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if own.iter().any(|prefix| name_text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .env("HOME", self.path().join("home"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("PACKHOUSE_STORE", self.store())
            .env("PACKHOUSE_STAGE", self.stage())
            // Spinning threads starve whoever shares the cores, the fill most of all.
            .env("OMP_WAIT_POLICY", "passive");
    }
}
