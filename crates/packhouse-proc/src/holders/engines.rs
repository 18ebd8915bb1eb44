//! Which processes look like engines: by program, by words, by the libraries that they map.
//!
//! Invariants:
//! - a name makes a process suspect, never innocent, and never leaves one out;
//! - libraries that desktop programs load too (Vulkan, OpenCL) make nobody an engine: what such a
//!   process holds shows by its open nodes.
//!
//! Never: reads anything.

use crate::masks::Runtimes;
use crate::procfs::MappedFile;
use std::ffi::OsString;
use std::path::Path;

/// What a process looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// No engine.
    Other,
    /// It maps a library that computes on cores.
    ByCoreLibrary,
    /// It maps a runtime that computes on cards.
    ByCardLibrary,
    /// Its program or words are an engine's.
    ByName,
}

impl Kind {
    /// Whether it may compute on cards or cores.
    pub(super) fn is_engine(self) -> bool {
        self != Self::Other
    }

    /// Whether it may compute on cards.
    pub(super) fn is_for_cards(self) -> bool {
        match self {
            Self::Other | Self::ByCoreLibrary => false,
            Self::ByCardLibrary | Self::ByName => true,
        }
    }
}

/// Says what a process looks like. What could not be read is given as empty.
pub(super) fn kind(
    name: &str,
    program: Option<&Path>,
    command: &[OsString],
    libraries: &[MappedFile],
) -> Kind {
    let program = program
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy());
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into())
        .collect();
    let named = program
        .iter()
        .map(AsRef::as_ref)
        .chain([name])
        .any(is_engine)
        || engine_word(&words);
    if named {
        return Kind::ByName;
    }
    let maps = |list: &[&str]| libraries.iter().any(|file| is_library(&file.path, list));
    if maps(&CARD_LIBRARIES) {
        Kind::ByCardLibrary
    } else if maps(&CORE_LIBRARIES) {
        Kind::ByCoreLibrary
    } else {
        Kind::Other
    }
}

/// The runtimes among mapped files, as far as masks differ by them.
pub(super) fn runtimes(libraries: &[MappedFile]) -> Runtimes {
    let maps = |name| libraries.iter().any(|file| is_library(&file.path, &[name]));
    Runtimes {
        sycl: maps("libsycl"),
        vulkan: maps("libvulkan"),
    }
}

/// Whether mapped files are those of a program that asks NVIDIA's cards how they are and has no
/// memory on them: CUDA maps a card's memory, NVML maps none, and opens the same device files.
pub(super) fn asks_only(files: &[MappedFile]) -> bool {
    let is_memory = |file: &MappedFile| {
        let name = file.path.to_string_lossy();
        let number = name.strip_prefix("/dev/nvidia");
        let is_card =
            number.is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
        is_card || name == "/dev/nvidia-uvm"
    };
    let has_nvml = files
        .iter()
        .any(|file| is_library(&file.path, &["libnvidia-ml"]));
    has_nvml && !files.iter().any(is_memory)
}

/// Whether a process only watches cards, as far as its name goes.
pub(super) fn is_watcher(name: &str) -> bool {
    // The kernel keeps 15 bytes of a name.
    WATCHERS.iter().any(|known| {
        let kept = known.get(..NAME_BYTES_MAX).unwrap_or(known);
        name == kept
    })
}

/// Whether the words of a command start an engine: the first word, or what an interpreter is told
/// to run.
fn engine_word(words: &[String]) -> bool {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let Some(first) = words.first() else {
        return false;
    };
    // A process may write its title over its words, as one text with blanks.
    let first = base(first.split(' ').next().unwrap_or(first));
    if is_engine(&first) {
        return true;
    }
    let is_interpreter = INTERPRETERS.iter().any(|known| {
        first.strip_prefix(known).is_some_and(|rest| {
            rest.bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    });
    if !is_interpreter {
        return false;
    }
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => return rest.next().is_some_and(|module| is_engine(module)),
            // A program in words, or what a shell starts as a process of its own.
            "-c" => return false,
            "-X" | "-W" => {
                rest.next();
            }
            option if option.starts_with('-') => {}
            script => return is_engine(&base(script)),
        }
    }
    false
}

fn is_engine(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ENGINES.iter().any(|engine| {
        name.strip_prefix(engine).is_some_and(|rest| {
            // `llama-server`, `vllm.entrypoints` and `VLLM::EngineCore`, not `llama_notes`.
            engine.ends_with('-') || rest.is_empty() || rest.starts_with(['.', '-', ':'])
        })
    })
}

/// Whether a file is one of the libraries, whatever its version.
fn is_library(path: &Path, list: &[&str]) -> bool {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else {
        return false;
    };
    list.iter().any(|library| {
        name.strip_prefix(library)
            .is_some_and(|rest| rest.starts_with(['.', '-']))
    })
}

/// How programs that serve or run models are called, in small letters.
const ENGINES: [&str; 36] = [
    "aphrodite",
    "bitnet",
    "comfyui",
    "exllama",
    "exllamav2",
    "exllamav3",
    "ggml-rpc-server",
    "gpustack",
    "koboldcpp",
    "koboldcpp_cublas",
    "ktransformers",
    "llama",
    "llama-",
    "llama_cpp",
    "llamafile",
    "llamafiler",
    "lmdeploy",
    "local-ai",
    "localai",
    "mistralrs",
    "mistralrs-server",
    "mlc_llm",
    "ollama",
    "ollama_llama_server",
    "ovms",
    "ramalama",
    "rpc-server",
    "sd-server",
    "sglang",
    "tabbyapi",
    "text-embeddings-router",
    "text-generation-",
    "tritonserver",
    "trtllm-",
    "vllm",
    "whisper-server",
];

/// Programs that run what they are told to.
const INTERPRETERS: [&str; 7] = ["python", "python3", "pypy", "bash", "sh", "node", "ruby"];

/// Libraries through which a program computes on cards.
const CARD_LIBRARIES: [&str; 11] = [
    "libamdhip64",
    "libcuda",
    "libggml-cuda",
    "libggml-hip",
    "libggml-sycl",
    "libggml-vulkan",
    "libhsa-runtime64",
    "libopenvino_intel_gpu_plugin",
    "libsycl",
    "libze_intel_gpu",
    "libze_loader",
];

/// Libraries with which a program computes on cores.
const CORE_LIBRARIES: [&str; 7] = [
    "libctranslate2",
    "libggml",
    "libggml-cpu",
    "libllama",
    "libonnxruntime",
    "libopenvino",
    "libtorch_cpu",
];

/// Programs that keep cards open and compute nothing on them.
const WATCHERS: [&str; 12] = [
    "dcgm-exporter",
    "intel_gpu_top",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nvidia-smi",
    "nvitop",
    "nvtop",
    "rocm-smi",
    "systemd-logind",
    "xpu-smi",
];

/// TASK_COMM_LEN of the kernel, less the end mark.
const NAME_BYTES_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn by_words(words: &[&str]) -> Kind {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        kind("x", Some(Path::new("/usr/bin/x")), &words, &[])
    }

    fn by_library(path: &str) -> Kind {
        let file = MappedFile {
            path: path.into(),
            deleted: false,
            device: 1,
            inode: 1,
            start: 0,
            end: 1,
        };
        kind("x", None, &[], &[file])
    }

    #[test]
    fn words_start_an_engine_or_only_speak_of_one() {
        for words in [
            &["/opt/llama/llama-server", "--port", "1"][..],
            &["python3", "-m", "vllm.entrypoints.openai.api_server"],
            &["/usr/bin/python3.12", "-u", "-X", "dev", "/opt/bin/sglang"],
            &["python", "koboldcpp.py"],
            &["VLLM::EngineCore"],
            &["ollama runner --port 1"],
        ] {
            assert_eq!(by_words(words), Kind::ByName, "{words:?}");
        }
        for words in [
            &["vim", "llama-server.md"][..],
            &["python3", "-c", "vllm"],
            &["python3", "notes.py", "ollama"],
            &["python3", "-m", "http.server", "vllm"],
            &["pythonista", "ollama"],
            &["llama_notes"],
            &["python3"],
            &[],
        ] {
            assert_eq!(by_words(words), Kind::Other, "{words:?}");
        }
    }

    #[test]
    fn a_program_is_an_engine_under_any_words() {
        let kind = |name: &str, program: &str| kind(name, Some(Path::new(program)), &[], &[]);
        assert_eq!(kind("worker", "/opt/llama-server"), Kind::ByName);
        assert_eq!(kind("llama-server", "/opt/a"), Kind::ByName);
        assert_eq!(kind("text-generation", "/opt/a"), Kind::Other);
        assert_eq!(kind("a", "/opt/text-generation-launcher"), Kind::ByName);
        assert_eq!(kind("ovmserver", "/opt/ovmserver"), Kind::Other);
    }

    #[test]
    fn libraries_count_in_every_version_and_by_their_whole_name() {
        for path in [
            "/lib/libcuda.so.580.159.04",
            "/lib/libsycl.so.8",
            "/opt/libggml-cuda.so",
        ] {
            assert_eq!(by_library(path), Kind::ByCardLibrary, "{path}");
        }
        for path in [
            "/opt/libllama.so",
            "/opt/libtorch_cpu.so",
            "/opt/libggml-base.so",
        ] {
            assert_eq!(by_library(path), Kind::ByCoreLibrary, "{path}");
        }
        for path in [
            "/lib/libcudart.so.12",
            "/lib/libvulkan.so.1",
            "/lib/libc.so.6",
        ] {
            assert_eq!(by_library(path), Kind::Other, "{path}");
        }
    }

    #[test]
    fn a_name_that_the_kernel_cut_is_still_known() {
        assert!(is_watcher("nvidia-persiste"));
        assert!(is_watcher("nvtop"));
        assert!(
            !is_watcher("nvidia-persistenced"),
            "the kernel never shows it so"
        );
        assert!(!is_watcher("nvto"));
    }
}
