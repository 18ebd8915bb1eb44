//! What a command starts ends with it, however it ends.

use crate::sandbox::Sandbox;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is ended whatever happens.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until something is there.
fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Git that never answers, and starts a process of its own.
fn killed_by(signal: &str) {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("one/bin")).unwrap();
    fs::create_dir_all(sandbox.path("source/.git")).unwrap();
    fs::create_dir(sandbox.path("tools")).unwrap();
    fs::copy("/bin/true", sandbox.path("one/bin/true")).unwrap();
    let pids = sandbox.path("pids");
    let script = format!(
        "#!/bin/sh\nsleep 120 & echo $$ $! > {0}.new; mv {0}.new {0}; sleep 120\n",
        pids.display()
    );
    let git = sandbox.path("tools/git");
    fs::write(&git, script).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").expect("because tests have a PATH");
    let path = format!("{}:{path}", sandbox.path("tools").display());
    let mut command = sandbox.command(&["fingerprint", "one", "--source", "source"]);
    let command = command.env("PATH", path).stdout(Stdio::null());
    let mut child = Ending(command.spawn().expect("because it was built"));
    let pids = wait_for("git was started", || fs::read_to_string(&pids).ok());
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert!(
        pids.len() == 2 && pids.iter().all(|pid| lives(pid)),
        "{pids:?}"
    );
    let number = child.0.id().to_string();
    let sent = Command::new("kill").args([signal, &number]).status();
    assert!(sent.expect("because kill is among the basics").success());
    let status = child.0.wait().expect("because it is a child");
    assert_eq!(status.code(), None, "it died of the signal");
    for pid in pids {
        wait_for("whoever it started is gone", || (!lives(pid)).then_some(()));
    }
}

#[test]
fn a_killed_command_leaves_no_process_of_its_tools() {
    killed_by("-KILL");
}

#[test]
fn an_interrupted_command_leaves_no_process_of_its_tools() {
    killed_by("-INT");
}
