//! What a person does wrong in a lab, and what they are told: the thing, the value and the next
//! act, with the exit code that the contract has for it.
//!
//! The first users of the lab lost three experiments to Python's bytecode, wrote words again that
//! a plan had left out of the command it gave, and looked for a damaged file by themselves.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lab on a disk: a temporary folder may be in memory only, where no marker is.
struct Lab {
    sandbox: Sandbox,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let lab = Self {
            sandbox: Sandbox::new(),
            folder: folder.expect("because tests have a folder of their own"),
        };
        lab.ends_in(&lab.path(""), &["init", "lab", "--execute"], 0);
        lab
    }

    /// The same with its example lane open.
    fn open() -> Self {
        let lab = Self::new();
        let words = ["lane", "open", "example", "--reason", "first", "--execute"];
        lab.ends(&words, 0);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(&["lab"]);
        command.args(words).current_dir(folder);
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Runs a command in the lab; what it says on both streams.
    fn ends(&self, words: &[&str], code: i32) -> String {
        self.ends_in(&self.path("lab"), words, code)
    }

    fn ends_in(&self, folder: &Path, words: &[&str], code: i32) -> String {
        said(self.command(folder, words), code)
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let mut command = self.command(&self.path("lab"), words);
        let output = command.arg("--json").output().expect("because it starts");
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        serde_json::from_slice(&output.stdout).expect("because one document was asked for")
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path("lab").join(name);
        std::fs::create_dir_all(path.parent().expect("because it is below")).expect("because ours");
        std::fs::write(&path, text).expect("because it is ours");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("because it is ours");
    }

    /// Replaces one text of an experiment's preregistration.
    fn edit(&self, id: &str, good: &str, bad: &str) {
        let path = self.path(&format!("lab/experiments/{id}/prereg.toml"));
        let text = std::fs::read_to_string(&path).expect("because it is there");
        assert_eq!(text.matches(good).count(), 1, "{good}");
        std::fs::write(&path, text.replace(good, bad)).expect("because it is ours");
    }

    /// From a registered packet to one that may be run.
    fn arm(&self, id: &str) {
        self.ends(&["rehearse", id, "--execute"], 0);
        let words = ["review", id, "--reviewer", "ann", "--verdict", "approve"];
        self.ends(&[&words[..], &["--note", "read", "--execute"]].concat(), 0);
        self.ends(&["arm", id, "--execute"], 0);
    }
}

fn said(mut command: Command, code: i32) -> String {
    let output = command.output().expect("because it can be started");
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    said
}

/// Each text is there.
fn holds(said: &str, texts: &[&str]) {
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in {said}");
    }
}

/// The command of a hint or of a plan's last line.
fn next<'s>(said: &'s str, word: &str) -> &'s str {
    let line = said.lines().find_map(|line| line.split_once(word));
    line.unwrap_or_else(|| panic!("no {word:?} in {said}")).1
}

#[test]
fn a_wrong_folder_is_told_with_the_lab_that_is_near() {
    // Not below this repository, which is a lab itself.
    let sandbox = Sandbox::new();
    let ends = |words: &[&str], code| {
        let mut command = sandbox.command(&["lab"]);
        command.args(words);
        said(command, code)
    };
    ends(&["init", "lab", "--execute"], 0);
    let near = sandbox.path("lab");
    let command = format!("hint: packhouse lab state --lab {}\n", near.display());
    // Beside it, as after `lab init lab`, and in a folder of it.
    let beside = ends(&["state"], 3);
    holds(&beside, &["error: no lab here or above: ", &command]);
    holds(
        &ends(&["state", "--lab", "lab/experiments"], 3),
        &[&command],
    );
    let state = ends(&["state", "--lab", "lab"], 0);
    holds(&state, &["lab lab: 1 entry up to "]);
    // A packet is looked for in a lab, and a key where it was given.
    let lost = ends(&["verify", "example"], 3);
    holds(
        &lost,
        &[
            "error: no such evidence: example\n",
            "verify example --lab DIR\n",
        ],
    );
    let unnamed = ends(&["init", "third", "--name", " "], 2);
    holds(
        &unnamed,
        &[
            "cause: --name: there must be a word\n",
            "third --name TEXT\n",
        ],
    );
    // Two are not guessed between.
    ends(&["init", "other", "--execute"], 0);
    let either = ends(&["state"], 3);
    holds(&either, &["hint: packhouse lab state --lab DIR\n"]);
    // What can't become a lab gets no hint to make it one.
    std::fs::write(sandbox.path("file"), "x").expect("because it is ours");
    for (name, cause) in [
        ("file", "it is no folder that can be read"),
        ("none", "it is not there"),
    ] {
        let refused = ends(&["state", "--lab", name], 3);
        holds(&refused, &[&format!("cause: {cause}\n"), "hint: ls -ld "]);
        assert!(!refused.contains("lab init"), "{refused}");
    }
}

#[test]
fn a_name_that_is_nearly_right_is_told_and_what_stands_in_the_way_is_no_usage() {
    let lab = Lab::new();
    // The command is right, and the lab is not there yet: not executed, and not usage.
    let early = lab.ends(&["register", "example"], 3);
    holds(
        &early,
        &[
            "cause: lane example is not open\n",
            "hint: packhouse lab lane open example ",
        ],
    );
    let words = ["lane", "open", "example", "--reason", "first", "--execute"];
    lab.ends(&words, 0);
    let drafted = lab.ends(&["rehearse", "example"], 3);
    holds(
        &drafted,
        &[
            "example is drafted, and not registered\n",
            "hint: packhouse lab register ",
        ],
    );

    let meant = "cause: did you mean example?\n";
    holds(
        &lab.ends(&["lane", "open", "exmaple", "--reason", "x"], 3),
        &[meant],
    );
    let closed = lab.ends(&["lane", "close", "exmaple", "--reason", "x"], 3);
    holds(
        &closed,
        &[
            "the ledger does not take this: lane exmaple\n",
            meant,
            "hint: packhouse lab lane ls\n",
        ],
    );
    lab.edit("example", "lane = \"example\"", "lane = \"exampel\"");
    let named = lab.ends(&["register", "example"], 3);
    let names = "cause: experiments/example/prereg.toml names lane exampel\n";
    holds(&named, &[names, meant, "prereg.toml\n"]);

    let blank = [
        "review",
        "example",
        "--reviewer",
        "a",
        "--verdict",
        "reject",
        "--note",
        " ",
    ];
    lab.edit("example", "lane = \"exampel\"", "lane = \"example\"");
    lab.ends(&["register", "example", "--execute"], 0);
    lab.ends(&["rehearse", "example", "--execute"], 0);
    let refused = lab.ends(&blank, 2);
    let again = "hint: packhouse lab review example --reviewer NAME --verdict reject --note TEXT\n";
    holds(&refused, &["error: not reviewed: example\n", again]);
    let few = lab.ends(&["arm", "example"], 3);
    holds(
        &few,
        &["cause: reviewers who must approve: 1; who did: 0\n"],
    );

    // What keeps the ledger from being written is looked at where it is.
    let lock = lab.path("lab/ledger.lock");
    std::fs::remove_file(&lock).expect("because a writer made it");
    std::fs::create_dir(&lock).expect("because it is ours");
    let kept = lab.ends(&["ledger", "note", "x", "--execute"], 3);
    assert_eq!(next(&kept, "hint: "), format!("ls -ld {}", lock.display()));
}

/// An experiment whose candidate is a script with a module beside it, in a frozen folder.
fn scripted(lab: &Lab, id: &str, script: &str, environment: &str) {
    if id != "example" {
        lab.ends(&["experiment", "new", id, "--execute"], 0);
    }
    lab.write("kernels/kernel", script, 0o755);
    lab.write("kernels/module.py", "VALUE = 1\n", 0o644);
    let own = "[program.candidate]\nprogram = \"packhouse\"\narguments = [\"fixture\", \"serve\"]\n\
               environment = {}\n";
    let other = format!(
        "[program.candidate]\nprogram = \"kernels/kernel\"\narguments = []\n\
         environment = {environment}\n\n[[frozen]]\npath = \"kernels\"\n"
    );
    lab.edit(id, own, &other);
}

#[test]
fn bytecode_that_would_spoil_a_frozen_folder_is_told_before_and_after() {
    let lab = Lab::open();
    let script = "#!/usr/bin/env python3\nimport module\n";
    scripted(&lab, "example", script, "{}");
    let kernel = lab.path("lab/kernels/kernel");
    let mode = |mode| std::fs::set_permissions(&kernel, std::fs::Permissions::from_mode(mode));
    mode(0o644).expect("because it is ours");
    let refused = lab.ends(&["register", "example"], 3);
    assert_eq!(
        next(&refused, "hint: "),
        format!("chmod +x {}", kernel.display())
    );
    mode(0o755).expect("because it is ours");
    let planned = lab.ends(&["register", "example", "--execute"], 0);
    let before = "candidate is run by Python, which writes __pycache__ into a frozen folder";
    holds(
        &planned,
        &[
            before,
            "PYTHONDONTWRITEBYTECODE = \"1\" in its environment prevents it",
        ],
    );
    // A rehearsal starts it, and the folder is another one.
    lab.write("kernels/__pycache__/module.pyc", "x", 0o644);
    let folder = "Python wrote kernels/__pycache__: remove it; ";
    let armed = lab.ends(&["arm", "example"], 3);
    holds(&armed, &[&format!("cause: {folder}")]);
    let red = lab.ends(&["rehearse", "example", "--execute"], 1);
    holds(&red, &["rehearsal of ", folder]);
    std::fs::remove_dir_all(lab.path("lab/kernels/__pycache__")).expect("because it is ours");
    for (id, environment, arguments) in [
        (
            "told",
            "{ PYTHONDONTWRITEBYTECODE = \"1\" }",
            "arguments = []",
        ),
        ("option", "{}", "arguments = [\"-B\"]"),
    ] {
        scripted(&lab, id, script, environment);
        if id == "option" {
            lab.edit(id, "arguments = []", arguments);
        }
        let planned = lab.ends(&["register", id], 0);
        assert!(!planned.contains("__pycache__"), "{planned}");
        holds(&planned, &["candidate is a script: "]);
    }
}

/// The plan of an act is a command that does that very act.
#[test]
fn a_command_that_is_given_again_keeps_what_was_said() {
    let lab = Lab::open();
    lab.ends(&["register", "example", "--execute"], 0);
    lab.arm("example");
    holds(
        &lab.ends(&["ledger"], 0),
        &["by rehearsal 3 and 1 approval\n"],
    );
    let key = lab.path("a key.pem");
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&key)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("SKIP: openssl makes no key here");
        return;
    }
    let key = key.to_str().expect("because it is plain");
    let planned = lab.ends(&["run", "example", "--key", key], 0);
    let signed = format!("run example --key '{key}' --execute");
    assert_eq!(next(&planned, "do it: "), format!("packhouse lab {signed}"));
    damaged_id(&lab);
    lab.ends(&["run", "example", "--execute", "--key", key], 0);
    records(&lab);

    // Another program, by its digest, may analyse again.
    let other = lab.path("other");
    std::fs::copy(env!("CARGO_BIN_EXE_packhouse"), &other).expect("because there is room");
    let file = std::fs::OpenOptions::new().append(true).open(&other);
    let written = file.expect("because it is ours").write_all(b"another");
    written.expect("because there is room");
    let words = ["analyse", "example", "--why", "it's newer", "--key", key];
    let again = |more: &[&str]| {
        let own = lab.command(&lab.path("lab"), &[&words[..], more].concat());
        let mut command = Command::new(&other);
        command
            .args(own.get_args())
            .current_dir(lab.path("lab"))
            .env_clear();
        let variables = own.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        said(command, 0)
    };
    let planned = again(&[]);
    let command =
        format!("packhouse lab analyse example --why 'it'\\''s newer' --key '{key}' --execute");
    assert_eq!(next(&planned, "do it: "), command);
    let done = again(&["--execute"]);
    assert_eq!(next(&done, "next: "), "packhouse lab report example");
}

/// The id of a folder of markers that says nothing: what it costs, and what to do.
fn damaged_id(lab: &Lab) {
    let markers = lab.path("state/packhouse/lab/markers");
    std::fs::create_dir_all(&markers).expect("because it is ours");
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&markers, mode).expect("because it is ours");
    std::fs::write(markers.join("id.json"), "{}").expect("because it is ours");
    let refused = lab.ends(&["run", "example", "--execute"], 3);
    holds(
        &refused,
        &[
            "error: the packet was not executed: example\n",
            "id.json: holds no id of a folder of markers",
            "cause: put the file back from a copy",
        ],
    );
    let command = next(&refused, "hint: ").to_owned();
    assert!(
        command.starts_with("mv ") && command.ends_with("lab/id.json.damaged"),
        "{command}"
    );
    said(lab.sandbox.shell(&command, &[]), 0);
}

/// Each refusal of a record has a next act, and so has a record.
fn records(lab: &Lab) {
    let record = |key, width, more: &[&'static str], code| {
        let words = [
            "record", key, "example", "--claim", "all bits", "--width", width,
        ];
        lab.ends(&[&words[..], more].concat(), code)
    };
    let other = record("other", "4", &[], 3);
    let right = "packhouse lab record example example --claim 'all bits' --width 4";
    assert_eq!(next(&other, "hint: "), right);
    let never = record("example", "3", &[], 3);
    assert_eq!(next(&never, "hint: "), "packhouse lab report example");
    let done = record("example", "4", &["--execute"], 0);
    assert_eq!(next(&done, "next: "), "packhouse lab state --execute");
    let verified = lab.ends(&["verify", "example"], 0);
    holds(&verified, &["checked: 1 analysis, ", " 1 seal\n"]);
    let twice = lab.ends(&["run", "example", "--execute"], 3);
    holds(&twice, &["error: the packet was run, once: example\n"]);
}

/// Figures of a run that broke off stand beside a word that is true of them.
#[test]
fn a_gate_of_a_run_that_broke_off_is_said_to_be_not_judged() {
    let lab = Lab::open();
    // It says hello as our own kernels do, and dies at the first case.
    lab.edit(
        "example",
        "[program.candidate]\nprogram = \"packhouse\"",
        "[program.candidate]\nprogram = \"bin/dies\"",
    );
    lab.edit(
        "example",
        "arguments = [\"fixture\", \"serve\"]\nenvironment = {}\n\n# More",
        "arguments = []\nenvironment = { PYTHONDONTWRITEBYTECODE = \"1\" }\n\n# More",
    );
    lab.write("bin/dies", DIES, 0o755);
    lab.ends(&["register", "example", "--execute"], 0);
    lab.arm("example");
    let broken = lab.ends(&["run", "example", "--execute"], 1);
    holds(
        &broken,
        &[
            "\nnot judged   complete          cases = 4  [cases = 8]\n",
            "sealed, abort\n",
        ],
    );
    assert!(!broken.contains("not reached"), "{broken}");
    let gates = &lab.json(&["report", "example"], 0)["report"]["analyses"][0]["gates"];
    assert_eq!(gates[0]["passed"], Value::Null, "{gates}");
}

const DIES: &str = r#"#!/usr/bin/env python3
import re, struct, sys
def hear():
    size = struct.unpack("<I", sys.stdin.buffer.read(4))[0]
    return sys.stdin.buffer.read(size).decode()
challenge = re.search('"challenge": *"([0-9a-f]{64})"', hear()).group(1)
body = ('{"type":"hello","protocol":"packhouse/component/1","challenge":"' + challenge + '",'
    '"name":"dies","version":"1","kernels":[{"fixture":"mrow-q4_0-joint-n-v1-v1",'
    '"arms":["plain"],"widths":[1,4]}],"devices":["cpu"],"says_capture":false}').encode()
sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
sys.stdout.buffer.flush()
if '"case"' in hear():
    sys.exit("the device is gone")
"#;
