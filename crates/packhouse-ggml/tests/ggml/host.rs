//! Compiles the C hosts and runs them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A host to be run: what it is made of and what surrounds it.
pub(crate) struct Host {
    libraries: Vec<PathBuf>,
    is_global: bool,
    variables: BTreeMap<String, OsString>,
    program: PathBuf,
    folder: TempDir,
}

/// What a host said.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether it ended with status 0.
    pub(crate) is_ok: bool,
    /// `name=value` lines of its standard output.
    pub(crate) values: BTreeMap<String, String>,
    /// The plug-in's lines.
    pub(crate) lines: Vec<String>,
    /// All of its standard error.
    pub(crate) stderr: String,
}

impl Host {
    /// A host on the mock compiled with these definitions, as in `NAME_BYTES=128`.
    pub(crate) fn new(definitions: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("host-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("because the build folder is writable");
        std::fs::create_dir(folder.path().join("reports")).expect("because it is writable");
        Self {
            libraries: vec![library(definitions)],
            is_global: false,
            variables: BTreeMap::new(),
            program: program(definitions),
            folder,
        }
    }

    /// Loads the mock with global scope.
    pub(crate) fn global(mut self) -> Self {
        self.is_global = true;
        self
    }

    /// Sets a variable of the host's environment.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Loads a changed copy of the mock in its place.
    pub(crate) fn edit(mut self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = std::fs::read(&self.libraries[0]).expect("because it was compiled");
        change(&mut bytes);
        self.libraries[0] = self.folder.path().join("libmock-edited.so");
        std::fs::write(&self.libraries[0], bytes).expect("because the folder is writable");
        self
    }

    /// Loads a second copy of the mock too.
    pub(crate) fn twice(mut self) -> Self {
        let copy = self.folder.path().join("libmock-copy.so");
        std::fs::copy(&self.libraries[0], &copy).expect("because the folder is writable");
        self.libraries.push(copy);
        self
    }

    /// Runs the host with a command of its own, see `tests/host/mock_host.c`.
    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        let mut libraries = OsString::new();
        for (index, library) in self.libraries.iter().enumerate() {
            libraries.push(if index > 0 { ":" } else { "" });
            libraries.push(library);
        }
        let folder = self.folder.path();
        let (out, err) = (folder.join("stdout"), folder.join("stderr"));
        let file = |path: &Path| std::fs::File::create(path).expect("because it is writable");
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let own = ["PACKHOUSE", "GGML_", "LLAMA_", "XDG_", "MOCK_"];
            if own.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .arg(libraries)
            .arg(if self.is_global { "global" } else { "local" })
            .arg(plugin())
            .args(words)
            .current_dir(folder)
            .env("HOME", folder)
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("PACKHOUSE_STORE", folder.join("store"))
            .env("PACKHOUSE_STAGE", folder.join("stage"))
            .env("PACKHOUSE_REPORT", folder.join("reports"))
            .envs(&self.variables)
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err));
        let is_ok = wait(&mut command);
        let read = |path| std::fs::read(path).expect("because it was just written");
        let stdout = String::from_utf8_lossy(&read(out)).into_owned();
        let stderr = String::from_utf8_lossy(&read(err)).into_owned();
        let values = stdout.lines().filter_map(|line| line.split_once('='));
        Answer {
            is_ok,
            values: values.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            lines: stderr
                .lines()
                .filter(|line| line.starts_with("packhouse: "))
                .map(str::to_owned)
                .collect(),
            stderr,
        }
    }

    /// Runs a scenario of `tests/host/entries.c` and fails unless every byte was right.
    pub(crate) fn run_scenario(&self, words: &[&str]) -> Answer {
        let answer = self.run(words);
        assert!(answer.is_ok, "{words:?}: {answer:#?}");
        answer
    }
}

impl Answer {
    /// The value of a name; empty when the host did not print it.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }
}

/// The plug-in under test: the one beside this test, or the one that `PACKHOUSE_TEST_PLUGIN` names.
pub(crate) fn plugin() -> PathBuf {
    if let Some(path) = std::env::var_os("PACKHOUSE_TEST_PLUGIN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("because Linux knows it");
    let folder = own.parent().expect("because it is in a folder");
    folder.join("libpackhouse_ggml.so")
}

/// Waits for a child, a minute or two at most; whether it ended with status 0.
fn wait(command: &mut Command) -> bool {
    let mut child = command.spawn().expect("because the host was compiled");
    let end = Instant::now() + LIFE_MAX;
    loop {
        match child.try_wait().expect("because it is our child") {
            Some(status) => return status.success(),
            None if Instant::now() > end => {
                child.kill().expect("because it is our child");
                child.wait().expect("because it is our child");
                return false;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn library(definitions: &[&str]) -> PathBuf {
    let fixed = ["-shared", "-fPIC", "-Wl,-Bsymbolic", "mock_ggml.c"];
    compile("libmock.so", definitions, &fixed)
}

fn program(definitions: &[&str]) -> PathBuf {
    let fixed = ["mock_host.c", "entries.c", "-ldl", "-lpthread"];
    compile("mock_host", definitions, &fixed)
}

/// Compiles C sources of `tests/host`, once for the same sources and words.
fn compile(name: &str, definitions: &[&str], words: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host");
    let extra = std::env::var("PACKHOUSE_TEST_CFLAGS").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (definitions, words, &extra).hash(&mut hasher);
    for file in [
        "mock_ggml.h",
        "entries.h",
        "mock_ggml.c",
        "mock_host.c",
        "entries.c",
    ] {
        let bytes = std::fs::read(sources.join(file)).expect("because it is in the repository");
        bytes.hash(&mut hasher);
    }
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts");
    let folder = parent.join(format!("{:016x}", hasher.finish()));
    let target = folder.join(name);
    if target.exists() {
        return target;
    }
    std::fs::create_dir_all(&folder).expect("because the build folder is writable");
    let own = tempfile::tempdir_in(&folder).expect("because the build folder is writable");
    let new = own.path().join(name);
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-O1",
            "-o",
        ])
        .arg(&new)
        .args(
            definitions
                .iter()
                .map(|definition| format!("-D{definition}")),
        )
        .args(extra.split_whitespace())
        .args(words)
        .current_dir(&sources)
        .output()
        .expect("because a C compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {definitions:?}: {said}");
    std::fs::rename(&new, &target).expect("because both are in one folder");
    target
}

const LIFE_MAX: Duration = Duration::from_secs(150);
