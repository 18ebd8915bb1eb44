//! Where the engine, the models and the products lie. Absence panics with the command that helps.

use std::env;
use std::path::{Path, PathBuf};

/// A model that `scripts/engine.sh` fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// SmolLM2-135M-Instruct, Q4_0 made from the package's Q4_1.
    SmolLm2,
    /// Gemma 3 270M, Q4_K_M.
    Gemma3,
}

impl Model {
    /// Its GGUF file.
    pub fn path(self) -> PathBuf {
        let name = match self {
            Model::SmolLm2 => "SmolLM2-135M-Instruct.Q4_0.gguf",
            Model::Gemma3 => "gemma-3-270m-q4_k_m.gguf",
        };
        let folder =
            env::var_os("PACKHOUSE_MODELS").map_or_else(|| target().join("models"), PathBuf::from);
        existing(folder.join(name), "bash scripts/engine.sh")
    }
}

/// The stock engine's programs and libraries.
pub fn engine_bin() -> PathBuf {
    let folder =
        env::var_os("PACKHOUSE_ENGINES").map_or_else(|| target().join("engines"), PathBuf::from);
    existing(folder.join("b11434/bin"), "bash scripts/engine.sh")
}

/// The plug-in. `PACKHOUSE_TEST_PLUGIN` names another one, e.g. one that must fail the tests.
pub fn plugin() -> PathBuf {
    if let Some(path) = env::var_os("PACKHOUSE_TEST_PLUGIN") {
        return PathBuf::from(path);
    }
    let release = target().join("release");
    let names = [
        "libggml_packhouse.so",
        "libpackhouse_ggml.so",
        "libggml-packhouse.so",
    ];
    let newest = names
        .iter()
        .map(|name| release.join(name))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    let Some((_, path)) = newest else {
        panic!(
            "no plug-in in {}: cargo build --release -p packhouse-ggml",
            release.display()
        )
    };
    path
}

/// The users' binary.
pub fn packhouse() -> PathBuf {
    existing(
        target().join("release/packhouse"),
        "cargo build --release -p packhouse",
    )
}

/// The build folder, which holds what must not lie in git.
pub fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("../target"), PathBuf::from)
        .canonicalize()
        .expect("the build folder exists, because this test was built into it")
}

fn existing(path: PathBuf, hint: &str) -> PathBuf {
    assert!(path.exists(), "{} is missing: {hint}", path.display());
    path.canonicalize().expect("it exists")
}
