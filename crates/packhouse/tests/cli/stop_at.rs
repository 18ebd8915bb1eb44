//! The command, killed just before any of its state-changing system calls: `stop_at.c`, built and
//! run, and a test that it kills where it says.

use crate::model;
use crate::sandbox::Sandbox;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Whose calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The command that the user runs.
    Command,
    /// The keeper of a worker.
    Keep,
    /// The process that becomes the engine.
    Gate,
}

/// How a watched command is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    /// Whose calls count.
    pub(crate) role: Role,
    /// The call that is not made any more, from 1; 0 kills nobody.
    pub(crate) k: usize,
    /// Processes that run already and are watched too.
    pub(crate) attached: &'a [u32],
    /// Whether every process of the program is killed at that call.
    pub(crate) all: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Whether there were so many calls that one was stopped.
    pub(crate) killed: bool,
    /// The counted calls, the last of them the one that was not made, where one was killed.
    pub(crate) calls: Vec<Call>,
    /// What the command itself came to; code 137 where it was killed.
    pub(crate) output: Output,
}

/// One counted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The process.
    pub(crate) pid: u32,
    /// The system call.
    pub(crate) name: String,
    /// The file that it is about, if any.
    pub(crate) detail: String,
}

/// Runs the command in the sandbox and kills as planned.
pub(crate) fn run(sandbox: &Sandbox, words: &[&str], plan: Plan<'_>) -> Stopped {
    run_in(sandbox, words, plan, &[])
}

/// As `run`, with variables beside the sandbox's own.
pub(crate) fn run_in(
    sandbox: &Sandbox,
    words: &[&str],
    plan: Plan<'_>,
    variables: &[(&str, &str)],
) -> Stopped {
    let log = tempfile::NamedTempFile::new_in(sandbox.path("")).expect("because it is writable");
    let plain = sandbox.command(words);
    let mut command = Command::new(built("stop_at"));
    for pid in plan.attached {
        command.args(["--attach", &pid.to_string()]);
    }
    if plan.all {
        command.arg("--all");
    }
    command
        .arg(plan.role.word())
        .arg(plan.k.to_string())
        .arg(log.path())
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().expect("because it is the sandbox"))
        .env_clear()
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        command.env(name, value.expect("because the sandbox only sets"));
    }
    command.envs(variables.iter().copied());
    let output = command.output().expect("because it was built");
    let text = std::fs::read_to_string(log.path()).expect("because it is text");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(125), "{said}");
    read(&text, output)
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Keep => "keep",
            Self::Gate => "gate",
        }
    }
}

fn read(text: &str, output: Output) -> Stopped {
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.pop().expect("because it says how it ended");
    let (end, count) = last.split_once(' ').expect("because of its format");
    assert_eq!(count, lines.len().to_string(), "{text}");
    let calls = lines.iter().map(|line| {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        Call {
            pid: words[1].parse().expect("because it is a number"),
            name: words[3].to_owned(),
            detail: words[4].to_owned(),
        }
    });
    Stopped {
        killed: end == "killed",
        calls: calls.collect(),
        output,
    }
}

/// A program of these tests in C, built once for all of them.
pub(crate) fn built(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/{name}.c"));
    let mut hasher = DefaultHasher::new();
    std::fs::read(&source)
        .expect("because it is checked in")
        .hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    let target = folder.join(format!("{name}-{:016x}", hasher.finish()));
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
        .args([&new, &source])
        .output()
        .expect("because a C compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    std::fs::rename(&new, &target).expect("because both are in one folder");
    target
}

/// `pin` links a name at its end: killed at each call, the name is there exactly when the call that
/// makes it was made, and the calls before the stopped one are those of the whole run.
#[test]
fn a_command_is_killed_at_each_of_its_calls() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    model::write(&path, &[("blk.0.ffn_up.weight", "Q4_0", &[256, 64])], &[]);
    let done = |words: &[&str]| {
        let output = sandbox
            .command(words)
            .output()
            .expect("because it is built");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("because it is text")
    };
    done(&["prepare", "model.gguf", "--plan", "xe2-q4_0"]);
    let sets: serde_json::Value = serde_json::from_str(&done(&["ls", "--json"])).unwrap();
    let set = sets["sets"][0]["set"]
        .as_str()
        .expect("because a set has a key");
    let pin = |k| {
        let plan = Plan {
            role: Role::Command,
            k,
            attached: &[],
            all: false,
        };
        run(&sandbox, &["pin", set, "--name", "mine"], plan)
    };
    let pinned = || sandbox.path("home/.cache/packhouse/v1/pins/mine").exists();
    let whole = pin(0);
    assert!(
        !whole.killed && whole.output.status.success() && pinned(),
        "{whole:?}"
    );
    let names = |stopped: &Stopped| -> Vec<String> {
        stopped.calls.iter().map(|call| call.name.clone()).collect()
    };
    let link = names(&whole).iter().position(|name| name == "linkat");
    let link = link.expect("because a pin is linked");
    for k in 1..=whole.calls.len() {
        done(&["unpin", "mine"]);
        let stopped = pin(k);
        assert!(stopped.killed, "{k}: {stopped:?}");
        assert_eq!(stopped.output.status.code(), Some(137), "{k}: {stopped:?}");
        assert_eq!(names(&stopped), names(&whole)[..k], "{k}");
        assert_eq!(pinned(), k > link + 1, "{k} of {:?}", whole.calls);
        if !pinned() {
            assert!(pin(0).output.status.success(), "after a kill at {k}");
        }
    }
    let beyond = pin(whole.calls.len() + 1);
    assert!(
        !beyond.killed && beyond.output.status.success(),
        "{beyond:?}"
    );
}
