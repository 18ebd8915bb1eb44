//! The systemd back end: a transient user unit whose main process is a worker's keeper.
//!
//! Invariants:
//! - the unit runs the same keeper on the same run folder as the plain back end does, so records,
//!   signals and proofs are the same; systemd adds a control group that nothing forks out of;
//! - the unit's name holds the run id, so no two runs, fleets or state folders share one;
//! - the text that is rendered and linted and the words that start the unit come from one list;
//! - words go through systemd's own quoting: no path is expanded, split or cut.
//!
//! Never: decides that a worker is alive or gone, as the records and the kernel do; stops a unit;
//! guesses at what a tool printed.

use packhouse_base::Blame;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The name of one run's unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitName(String);

impl UnitName {
    /// Names the unit of a worker's run, by its run id. Fleet and worker are named as in the fleet
    /// file.
    pub fn new(fleet: &str, worker: &str, run: &impl std::fmt::Display) -> Self {
        Self(format!("packhouse-{fleet}-{worker}-{run}.service"))
    }

    /// The name, with its `.service`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for UnitName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A unit that keeps one run of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: UnitName,
    description: String,
    /// The keeper's command: this program, `keep`, the run folder.
    words: Vec<String>,
    stop_timeout_s: u64,
}

impl Unit {
    /// Describes the unit of a run. `stop_timeout_s` is how long a worker's whole escalation may
    /// take; systemd kills what is left after it. Errors where a path is no text.
    pub fn new(
        fleet: &str,
        worker: &str,
        run: &impl std::fmt::Display,
        keeper: &KeeperCommand<'_>,
        stop_timeout_s: u64,
    ) -> Result<Self, SystemdError> {
        let words = [
            text_of(keeper.program)?,
            "keep".to_owned(),
            text_of(keeper.folder)?,
        ];
        Ok(Self {
            name: UnitName::new(fleet, worker, run),
            description: format!("packhouse worker {worker} of fleet {fleet}"),
            words: words.to_vec(),
            stop_timeout_s,
        })
    }

    /// Its name.
    pub fn name(&self) -> &UnitName {
        &self.name
    }

    /// The unit as a file that systemd reads and `systemd-analyze verify` lints.
    pub fn text(&self) -> String {
        let mut text = format!(
            "[Unit]\nDescription={}\n\n[Service]\n",
            self.description.replace('%', "%%")
        );
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        writeln!(text, "ExecStart={}", words.join(" ")).expect("because a String takes all");
        for (key, value) in self.properties() {
            writeln!(text, "{key}={value}").expect("because a String takes all");
        }
        text
    }

    /// The words after `systemd-run` that start it.
    pub fn start_words(&self) -> Vec<OsString> {
        let mut words = vec![
            "--user".to_owned(),
            "--quiet".to_owned(),
            // A failed unit is forgotten as a finished one is: the run's records say what happened.
            "--collect".to_owned(),
            format!("--unit={}", self.name),
            format!("--description={}", self.description),
        ];
        for (key, value) in self.properties() {
            words.push(format!("--property={key}={value}"));
        }
        words.push("--".to_owned());
        let (program, rest) = self.words.split_first().expect("because there are three");
        words.push(program.clone());
        // systemd replaces variables in all words but the first, and knows no specifiers here.
        words.extend(rest.iter().map(|word| word.replace('$', "$$")));
        words.into_iter().map(OsString::from).collect()
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let stop = format!("{}s", self.stop_timeout_s);
        vec![
            ("Type", "exec".to_owned()),
            ("Slice", SLICE.to_owned()),
            // TERM to the keeper, which ends its worker in order; KILL to the group if it does not.
            ("KillMode", "mixed".to_owned()),
            ("KillSignal", "SIGTERM".to_owned()),
            ("TimeoutStopSec", stop),
            ("Restart", "no".to_owned()),
            // The keeper records what the out-of-memory killer did to its worker.
            ("OOMPolicy", "continue".to_owned()),
            ("Delegate", "no".to_owned()),
            ("StandardInput", "null".to_owned()),
        ]
    }
}

/// What a unit runs.
#[derive(Clone, Copy, Debug)]
pub struct KeeperCommand<'a> {
    /// The program that knows `keep`: this one.
    pub program: &'a Path,
    /// The run's folder.
    pub folder: &'a Path,
}

/// Whether there is a user manager to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerState {
    /// It answers.
    Answers {
        /// What it says its version is.
        version: String,
    },
    /// Nothing answers.
    Silent {
        /// What was tried and said.
        why: String,
    },
}

/// What the manager says of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// `ActiveState`, as `active`, `failed`, `inactive`.
    pub active: String,
    /// `SubState`, as `running`, `dead`.
    pub sub: String,
    /// `Result`, as `success`, `exit-code`, `oom-kill`.
    pub result: String,
    /// The main process, which is the keeper.
    pub main_pid: Option<u32>,
    /// The control group's path below the hierarchy's root.
    pub cgroup: Option<PathBuf>,
    /// The manager's own id of this run.
    pub invocation: Option<String>,
}

/// The user manager, as its tools reach it.
#[derive(Clone, Debug)]
pub struct Manager {
    systemctl: PathBuf,
    systemd_run: PathBuf,
}

impl Default for Manager {
    fn default() -> Self {
        Self::new(Path::new("systemctl"), Path::new("systemd-run"))
    }
}

impl Manager {
    /// Names the tools; a name without a slash is looked up on PATH.
    pub fn new(systemctl: &Path, systemd_run: &Path) -> Self {
        Self {
            systemctl: systemctl.to_owned(),
            systemd_run: systemd_run.to_owned(),
        }
    }

    /// Asks whether it is there. What can't be understood is silence with its reason.
    pub fn state(&self) -> ManagerState {
        let asked = ask(
            &self.systemctl,
            ["--user", "show", "--property=Version"].map(OsString::from),
        );
        let version = asked.and_then(|text| {
            let found = text.lines().find_map(|line| line.strip_prefix("Version="));
            match found.filter(|version| !version.is_empty()) {
                Some(version) => Ok(version.to_owned()),
                None => Err(self.not_understood(&text)),
            }
        });
        match version {
            Ok(version) => ManagerState::Answers { version },
            Err(error) => ManagerState::Silent {
                why: error.to_string(),
            },
        }
    }

    /// Starts the unit; returns once its program runs.
    ///
    /// # Errors
    /// The tool is missing, or the manager refused: its words are in the error.
    pub fn start(&self, unit: &Unit) -> Result<(), SystemdError> {
        ask(&self.systemd_run, unit.start_words()).map(|_| ())
    }

    /// What it says of a unit, or `None` for one that it does not know.
    ///
    /// # Errors
    /// The tool is missing, refused, or printed what can't be understood.
    pub fn show(&self, name: &UnitName) -> Result<Option<UnitState>, SystemdError> {
        let words = ["--user", "show", SHOWN, "--", name.as_str()];
        let text = ask(&self.systemctl, words.map(OsString::from))?;
        parse_shown(&text).ok_or_else(|| self.not_understood(&text))
    }

    fn not_understood(&self, text: &str) -> SystemdError {
        SystemdError::NotUnderstood {
            program: self.systemctl.clone(),
            said: shortened(text),
        }
    }
}

/// Why the user manager could not do it.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// systemd takes text only.
    #[error("a path that systemd cannot take, as it is no UTF-8: {}", .path.display())]
    NotText {
        /// The path.
        path: PathBuf,
    },
    /// The tool could not be run.
    #[error("cannot run {}: {source}", .program.display())]
    Missing {
        /// The tool.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The tool ran and failed.
    #[error("{} ended with {status}: {said}", .program.display())]
    Refused {
        /// The tool.
        program: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it wrote to stderr, shortened.
        said: String,
    },
    /// The tool printed something else than it should.
    #[error("{} printed what is not understood: {said}", .program.display())]
    NotUnderstood {
        /// The tool.
        program: PathBuf,
        /// What it printed, shortened.
        said: String,
    },
}

impl SystemdError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotText { .. } => Blame::Caller,
            Self::Missing { .. } | Self::Refused { .. } | Self::NotUnderstood { .. } => Blame::Host,
        }
    }
}

/// Runs a tool and returns its output, as long as it says that it succeeded.
fn ask(program: &Path, words: impl IntoIterator<Item = OsString>) -> Result<String, SystemdError> {
    let output = Command::new(program)
        .args(words)
        .env("LC_ALL", "C")
        .env("SYSTEMD_COLORS", "0")
        .env("SYSTEMD_PAGER", "")
        // A manager that hangs is a manager that does not answer.
        .env("SYSTEMD_BUS_TIMEOUT", "10s")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SystemdError::Missing {
            program: program.to_owned(),
            source,
        })?;
    if !output.status.success() {
        return Err(SystemdError::Refused {
            program: program.to_owned(),
            status: output.status,
            said: shortened(&String::from_utf8_lossy(&output.stderr)),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads `KEY=VALUE` lines. The outer `None` is what is not understood, the inner one a unit that
/// the manager does not know.
#[expect(
    clippy::option_option,
    reason = "the two kinds of absence are told apart above"
)]
fn parse_shown(text: &str) -> Option<Option<UnitState>> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let filled = |key: &str| value(key).filter(|value| !value.is_empty());
    if value("LoadState")? == "not-found" {
        return Some(None);
    }
    let main_pid: u32 = value("MainPID")?.parse().ok()?;
    Some(Some(UnitState {
        active: filled("ActiveState")?.to_owned(),
        sub: filled("SubState")?.to_owned(),
        result: filled("Result")?.to_owned(),
        main_pid: (main_pid != 0).then_some(main_pid),
        cgroup: filled("ControlGroup").map(PathBuf::from),
        invocation: filled("InvocationID").map(str::to_owned),
    }))
}

fn text_of(path: &Path) -> Result<String, SystemdError> {
    let text = OsStr::to_str(path.as_os_str());
    text.map(str::to_owned)
        .ok_or_else(|| SystemdError::NotText {
            path: path.to_owned(),
        })
}

/// Quotes a word for `ExecStart=`: systemd.service(5), "Command lines", and systemd.syntax(7).
fn quoted(word: &str) -> String {
    let mut quoted = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            c if c.is_ascii_control() => {
                write!(quoted, "\\x{:02x}", u32::from(c)).expect("because a String takes all");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The first words of what a tool printed, in one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SAID_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}

/// The slice of all workers of a user.
pub const SLICE: &str = "packhouse.slice";

const SHOWN: &str =
    "--property=LoadState,ActiveState,SubState,Result,MainPID,ControlGroup,InvocationID";
const SAID_CHARS: usize = 300;
