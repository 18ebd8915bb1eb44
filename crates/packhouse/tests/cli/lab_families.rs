//! Whoever a program of a lab leaves behind is gone before the next leg begins, however its own
//! leg ended.
//!
//! A daemon with a session and environment of its own outlived its leg, could be stopped while it
//! was looked for, and could watch or answer in a later one.

use crate::lab_runs::{FIXTURE, SERVE, TIMEOUT, World, mapped_modules, said};
use packhouse_sys::clock::{Clock as _, RealClock};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that leaves processes behind, and then becomes the liar. Each of them has the path of
/// this script in its command line, by which it is found.
const LEAVER: &str = r#"
import os, signal, sys, time
MARK, LIES, LIAR, PACKHOUSE, FIXTURE = sys.argv

def others():
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/cmdline' % pid) as file:
                if MARK in file.read() and int(pid) not in (os.getpid(), os.getppid()):
                    yield pid
        except OSError:
            pass

def daemon(act):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            os.write(w, b'x')
            act()
        os._exit(0)
    os.read(r, 1)

def sleeps():
    os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)', MARK], {})

def stops():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)

def hops():
    # The program holds the other end: when it is gone, this is one process after the other.
    os.close(HELD[1])
    os.read(HELD[0], 1)
    for _ in range(10000):
        time.sleep(0.002)
        if os.fork() != 0:
            os._exit(0)

with open(MARK + '.log', 'a') as file:
    file.write('leg, and before it %d\n' % len(list(others())))
HELD = os.pipe()
os.set_inheritable(HELD[1], True)
for act in (sleeps, stops, hops):
    daemon(act)
os.execv(sys.executable, [sys.executable, LIAR, LIES, PACKHOUSE, FIXTURE])
"#;

/// A lab whose candidate leaves processes behind.
struct Leaving {
    world: World,
}

impl Leaving {
    fn new(lies: &str, edits: &[(&str, &str)], is_armed: bool) -> Self {
        let files = "\"${lab}/liar.py\", \"${lab}/packhouse\"";
        let candidate = format!(
            "[program.candidate]\nprogram = \"python3\"\narguments = [\"${{lab}}/leaver.py\", \
             \"{lies}\", {files}, \"{FIXTURE}\"]\nenvironment = {{}}\n{}",
            ["leaver.py", "liar.py", "modules", "packhouse"]
                .map(|path| format!("[[frozen]]\npath = \"{path}\"\n"))
                .concat()
        );
        let world = match is_armed {
            true => World::armed_with(&candidate, edits, &place),
            false => World::registered(&candidate, edits, &place),
        };
        Self { world }
    }

    fn mark(&self) -> PathBuf {
        self.world.lab().join("leaver.py")
    }

    /// What the program said at each start of it.
    fn starts(&self) -> Vec<String> {
        let said = self.world.lab().join("leaver.py.log");
        let said = std::fs::read_to_string(said).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }

    /// Nobody is there: asked again after a while, as one that forks could come back.
    fn is_over(&self, what: &str) {
        for _ in 0..2 {
            assert_eq!(self.living(), Vec::<String>::new(), "{what}");
            RealClock.sleep_ns(50_000_000);
        }
    }

    fn living(&self) -> Vec<String> {
        let mark = self.mark();
        let mark = mark.to_str().expect("because it is plain text");
        let all = std::fs::read_dir("/proc").expect("because /proc is there");
        let living = all.flatten().filter(|process| {
            let line = std::fs::read(process.path().join("cmdline"));
            String::from_utf8_lossy(&line.unwrap_or_default()).contains(mark)
        });
        let pids = living.map(|process| process.file_name().to_string_lossy().into_owned());
        pids.filter(|pid| pid.parse::<u32>().is_ok()).collect()
    }

    fn log(&self, leg: &str) -> String {
        let path = format!("bag/data/legs/{leg}/candidate.stderr");
        std::fs::read_to_string(self.world.evidence().join(path)).unwrap_or_default()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // Whom a test that fails leaves would be met by others; one that forks again and again
        // dies with its group alone, and is gone when it is looked at.
        let mut looks = 0;
        while looks < 3 {
            let living = self.living();
            looks = if living.is_empty() { looks + 1 } else { 0 };
            for pid in living {
                let group = group_of(&pid).map(|group| format!("-{group}"));
                let whom = group.unwrap_or(pid);
                let _ = Command::new("kill").args(["-KILL", "--", &whom]).status();
            }
        }
    }
}

/// The process group of one that is there, or has just ended.
fn group_of(pid: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields
        .split(' ')
        .nth(2)?
        .parse()
        .ok()
        .filter(|group| *group > 1)
}

fn place(lab: &Path) {
    let liar = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/component_liar.py");
    std::fs::copy(liar, lab.join("liar.py")).expect("because it is free");
    std::fs::write(lab.join("leaver.py"), LEAVER).expect("because it is free");
    let script = "#!/bin/sh\nexec \"${0%/*}/modules/inner\" \"$@\"\n";
    let path = lab.join("packhouse");
    std::fs::write(&path, script).expect("because it is free");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("because it is ours");
    mapped_modules(&lab.join("modules"));
}

const TWICE: (&str, &str) = (
    "[[leg]]",
    "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n[[leg]]",
);

#[test]
fn a_daemon_a_stopped_one_and_one_that_forks_are_gone_before_the_next_leg_begins() {
    let leaving = Leaving::new("Honest", &[TWICE], true);
    let document = leaving.world.run(0);
    leaving.is_over("after the run");
    assert_eq!(document["verdict"], "pass", "{document}");
    assert_eq!(leaving.starts(), ["leg, and before it 0"; 2]);
    for leg in ["00", "01"] {
        let log = leaving.log(leg);
        assert!(
            log.starts_with("packhouse: process ")
                && log.ends_with(" outlived it, and was ended\n")
                && log.matches(" (python3)").count() >= 2,
            "{log}"
        );
    }
    leaving.world.verified();
}

/// Its program was killed when its time was over, died, or said no hello.
#[test]
fn they_are_gone_when_their_leg_is_cut_short() {
    // It bounds the hello too, of a Python program.
    let short = [(TIMEOUT, "case_timeout_s = 8")];
    let none = &short[..0];
    for (lie, edits, exit) in [
        ("Hangs", &short[..], 1),
        ("Dies", none, 1),
        ("OldChallenge", none, 3),
    ] {
        let leaving = Leaving::new(lie, edits, true);
        let document = leaving.world.run(exit);
        leaving.is_over(lie);
        assert_eq!(leaving.starts().len(), 1, "{lie}: {document}");
        if exit == 1 {
            assert_eq!(document["verdict"], "abort", "{lie}: {document}");
            assert!(leaving.log("00").contains("outlived it"), "{lie}");
            leaving.world.verified();
        }
    }
}

/// A rehearsal starts the candidate to its hello and bye alone.
#[test]
fn a_rehearsal_leaves_nobody_of_the_candidate_that_it_greeted() {
    let control = format!("{}[matrix]", SERVE.replace("candidate", "control"));
    let leaving = Leaving::new("Honest", &[("[matrix]", &control)], false);
    let words = ["rehearse", "example", "--execute", "--json"];
    let output = leaving.world.output(&words);
    leaving.is_over("after the rehearsal");
    assert_eq!(
        leaving.starts(),
        ["leg, and before it 0"],
        "{}",
        said(&output)
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    assert_eq!(document["green"], true, "{}", said(&output));
}
