//! Processes that a test starts: each ends with the test, whatever happens.

use packhouse_proc::identity::ProcessKey;
use packhouse_proc::pidfd::{PidFd, Signal};
use packhouse_proc::procfs::{Process, Procfs};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that is killed and waited for at the end.
pub(crate) struct Started(pub(crate) Child);

/// Holds on processes that are no children, which are killed at the end.
#[derive(Default)]
pub(crate) struct Held(Vec<PidFd>);

impl Started {
    pub(crate) fn new(command: &mut Command) -> Self {
        Self(command.spawn().expect("because the program is there"))
    }

    /// Something that waits for a minute.
    pub(crate) fn waiting() -> Self {
        Self::new(Command::new("sleep").arg("60").stdin(Stdio::null()))
    }

    /// One that waits and obeys SIGINT, also where whoever runs the tests ignores it: shells make
    /// their background jobs inherit that.
    pub(crate) fn obeying() -> Self {
        let text = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); \
                    os.execvp('sleep', ['sleep', '60'])";
        Self::new(
            Command::new("python3")
                .args(["-c", text])
                .stdin(Stdio::null()),
        )
    }

    pub(crate) fn key(&self) -> ProcessKey {
        let key = procfs().key_of(self.0.id());
        key.expect("because it can be read")
            .expect("because it runs")
    }

    pub(crate) fn process(&self) -> Process {
        process(self.0.id())
    }

    /// Ends it and waits for it.
    pub(crate) fn end(mut self) {
        self.0.kill().expect("because it is our child");
        self.0.wait().expect("because it is our child");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Held {
    pub(crate) fn hold(&mut self, key: &ProcessKey) {
        let held = PidFd::open(&procfs(), key).expect("because it runs");
        self.0.push(held);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for held in &self.0 {
            // It may have ended before.
            let _ = held.send(Signal::Kill);
        }
    }
}

pub(crate) fn procfs() -> Procfs {
    Procfs::new(Path::new("/proc")).expect("because every Linux has it")
}

pub(crate) fn process(pid: u32) -> Process {
    let found = procfs().process(pid).expect("because it can be read");
    found.expect("because it runs")
}

/// How long anything may take on a busy machine before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again until the answer is the wanted one; fails with the last answer.
pub(crate) fn wait_for<T: PartialEq + std::fmt::Debug>(wanted: &T, mut ask: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let found = ask();
        if found == *wanted {
            return;
        }
        if begun.elapsed() > PATIENCE {
            assert_eq!(found, *wanted);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a child has become its program: until then it is a copy of this process.
pub(crate) fn wait_for_program(pid: u32, name: &str) {
    // Its words are there after its name and its code.
    let is_there = || process(pid).name == name && process(pid).command().is_ok();
    wait_for(&true, is_there);
}

/// Runs this very test once more, through a command that changes what it sees, and gives what it
/// printed after `SEEN: `. `None` where this user may not change that.
pub(crate) fn again_under(test: &str, role: &str, under: &[&str]) -> Option<String> {
    let (program, arguments) = under.split_first().expect("because there is a program");
    let tried = Command::new(program)
        .args(arguments)
        .arg("true")
        .output()
        .expect("because util-linux is everywhere");
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        eprintln!("NOT EXERCISED: {test}: {}: {}", under.join(" "), why.trim());
        return None;
    }
    let own = std::env::current_exe().expect("because this test runs");
    let output = Command::new(program)
        .args(arguments)
        .arg(own)
        .args([test, "--exact", "--nocapture"])
        .env(ROLE, role)
        .output()
        .expect("because it ran just now");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    // A test that was not found passes too.
    let seen = text.lines().find_map(|line| line.split_once("SEEN: "));
    let (_, seen) = seen.unwrap_or_else(|| panic!("nothing was seen: {text}\n{errors}"));
    Some(seen.to_owned())
}

/// What this run of a test is to see, when it was started by `again_under`.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

const ROLE: &str = "PACKHOUSE_TEST_ROLE";
