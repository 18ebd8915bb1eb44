//! The real libraries and tools of this host.
//!
//! Invariants:
//! - a tool runs with an environment of our making: masks of ours would hide cards from it and
//!   renumber the others;
//! - a tool has a bound on its time and on its words, and is ended and waited for at the bound;
//! - its words are read whole before anybody waits for it, so that no other process can have its
//!   pid while it speaks.

use crate::devices::files;
use crate::devices::nvml;
use crate::devices::tools::{Question, RawReport, ToolAnswer, Tools};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Asks the libraries and tools that are installed.
#[derive(Clone, Debug)]
pub struct HostTools {
    folders: Vec<PathBuf>,
    timeout: Duration,
}

impl HostTools {
    /// Looks for tools in these folders, usually those of `PATH`; relative ones are passed over.
    /// `timeout_ns` bounds each question.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>, timeout_ns: u64) -> Self {
        Self {
            folders: folders
                .into_iter()
                .filter(|folder| folder.is_absolute())
                .collect(),
            timeout: Duration::from_nanos(timeout_ns),
        }
    }

    fn run(&self, question: &Question, name: &str, arguments: &[&str]) -> ToolAnswer {
        let found = self
            .folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| files::is_program(path));
        match found {
            Some(program) => run(question, &program, arguments, self.timeout),
            None => ToolAnswer::Absent,
        }
    }
}

impl Tools for HostTools {
    fn ask(&self, question: &Question) -> ToolAnswer {
        let run = |name, arguments: &[&str]| self.run(question, name, arguments);
        match question {
            Question::Nvml => {
                let folders: Vec<PathBuf> = NVML_FOLDERS.iter().map(PathBuf::from).collect();
                nvml::ask(&folders, self.timeout)
            }
            Question::NvidiaSmi => run("nvidia-smi", &["-q", "-x"]),
            Question::XpuSmiCards => run("xpu-smi", &["discovery", "-j"]),
            Question::XpuSmiCard { pci } => run("xpu-smi", &["discovery", "-d", pci, "-j"]),
            Question::XpuSmiCounters { pci } => run("xpu-smi", &["stats", "-d", pci, "-j"]),
            Question::XpuSmiProcesses => run("xpu-smi", &["ps", "-j"]),
        }
    }
}

/// Time for one question, where nothing else is asked for: `nvidia-smi` wakes sleeping cards.
pub const QUESTION_NS: u64 = 20_000_000_000;

/// Folders of NVIDIA's library that loaders are not always told of, for us and for its tool.
const NVML_FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

fn run(question: &Question, program: &Path, arguments: &[&str], timeout: Duration) -> ToolAnswer {
    let failed = |why: String, raw| ToolAnswer::Failed { why, raw };
    let name = program.display();
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT)
        .env("LD_LIBRARY_PATH", NVML_FOLDERS.join(":"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return failed(format!("cannot start {name}: {error}"), None),
    };
    let observer = child.id();
    let words = words(&mut child, timeout);
    if words.is_none() {
        // It may have ended since.
        let _ = child.kill();
    }
    let status = ended(child);
    let Some(words) = words else {
        return failed(
            format!("{name} gave no answer within {} s", timeout.as_secs()),
            None,
        );
    };
    let raw = RawReport {
        source: question.source(),
        version: None,
        text: String::from_utf8_lossy(&words.output).into_owned(),
        observer: Some(observer),
    };
    match judge(status, &words) {
        Ok(()) => ToolAnswer::Said(raw),
        Err(why) => failed(format!("{name}: {why}"), Some(raw)),
    }
}

/// What a tool printed.
struct Words {
    output: Vec<u8>,
    errors: Vec<u8>,
}

/// Reads both streams to their ends. `None`: they did not end in time.
fn words(child: &mut Child, timeout: Duration) -> Option<Words> {
    let output = reader(child.stdout.take()?);
    let errors = reader(child.stderr.take()?);
    Some(Words {
        output: output.recv_timeout(timeout).ok()?,
        errors: errors.recv_timeout(timeout).ok()?,
    })
}

fn reader(stream: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A stream that fails is cut off, which its parser notices.
        let _ = stream.take(WORDS_BYTES_MAX).read_to_end(&mut bytes);
        // Nobody listens once the time is over.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for a tool's end, with a bound: one that a broken driver holds can't even be killed.
fn ended(mut child: Child) -> io::Result<ExitStatus> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens once the time is over.
        let _ = sender.send(child.wait());
    });
    receiver
        .recv_timeout(END)
        .unwrap_or_else(|_| Err(io::Error::other("it does not end, not even when killed")))
}

/// Time for a tool to end once it has said everything or was killed.
const END: Duration = Duration::from_secs(5);

fn judge(status: io::Result<ExitStatus>, words: &Words) -> Result<(), String> {
    let length = u64::try_from(words.output.len()).unwrap_or(u64::MAX);
    if length >= WORDS_BYTES_MAX {
        return Err(format!("more than {WORDS_BYTES_MAX} bytes of output"));
    }
    let status = status.map_err(|error| format!("its end is not known: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&words.errors);
    let last = errors.lines().last().unwrap_or_default();
    Err(format!("{status} {last}").trim_end().to_owned())
}

/// All that a tool is told. Level Zero's management interface starts only where it is asked for.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LC_ALL", "C"),
    ("ZES_ENABLE_SYSMAN", "1"),
];

/// Words of a tool that are read at most.
const WORDS_BYTES_MAX: u64 = 8 << 20;
