//! The lab on hosts that are not its author's: a stderr that is full, a home that can't be
//! written, a disk that keeps nothing, process files of another namespace, a second lab.
//!
//! A newcomer's first full disk was told as "nothing was appended" of an entry that was there, and
//! a second review was entered; whose words no stream took ended by a panic; and who removed a lab
//! to begin anew registered a packet that could never be rehearsed.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A lab on a disk, with its example lane open.
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
        lab.begin("lab");
        lab
    }

    /// Another lab of the same user.
    fn begin(&self, name: &str) {
        let words = ["init", name, "--name", "a lab", "--execute"];
        told(self.command("", &words), 0);
        let words = ["lane", "open", "example", "--reason", "first", "--execute"];
        told(self.command(name, &words), 0);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, lab: &str, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(&["lab"]);
        command.args(words).current_dir(self.path(lab));
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    fn ends(&self, words: &[&str], code: i32) -> String {
        told(self.command("lab", words), code)
    }

    fn json(&self, words: &[&str]) -> Value {
        let mut command = self.command("lab", words);
        let output = command.arg("--json").output().expect("because it starts");
        serde_json::from_slice(&output.stdout).expect("because one document was asked for")
    }
}

fn told(mut command: Command, code: i32) -> String {
    let output = command.output().expect("because it can be started");
    let said = both(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    said
}

fn both(output: &Output) -> String {
    let (said, more) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(said).into_owned() + &String::from_utf8_lossy(more)
}

/// Each text is there.
fn holds(said: &str, texts: &[&str]) {
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in {said}");
    }
}

#[test]
fn words_that_stderr_does_not_take_are_lost_and_the_exit_code_is_not() {
    let sandbox = Sandbox::new();
    let full = || OpenOptions::new().write(true).open("/dev/full");
    let ends = |words: &[&str], out: Option<File>| {
        let mut command = sandbox.command(words);
        if let Some(out) = out {
            command.stdout(out);
        }
        let status = command.stderr(full().expect("because Linux has it"));
        status.status().expect("because it can be started").code()
    };
    assert_eq!(ends(&["lab", "nonsense"], None), Some(2));
    assert_eq!(ends(&["lab", "state", "--lab", "/proc"], None), Some(3));
    let out = full().expect("because Linux has it");
    assert_eq!(ends(&["plans"], Some(out)), Some(3));

    // Help that stdout does not take is not lost without a word.
    let mut help = sandbox.command(&["lab", "--help"]);
    help.stdout(full().expect("because Linux has it"));
    holds(&told(help, 3), &["cannot write the answer: stdout"]);
}

/// A torn append is cut off, and the command goes on, though nobody can be told.
#[test]
fn a_stderr_that_is_full_keeps_nothing_from_being_entered() {
    let lab = Lab::new();
    let ledger = lab.path("lab/ledger.jsonl");
    let mut text = std::fs::read(&ledger).expect("because there is one");
    text.extend(b"{\"torn");
    std::fs::write(&ledger, text).expect("because it is ours");
    let full = OpenOptions::new().write(true).open("/dev/full");
    let mut command = lab.command("lab", &["register", "example", "--execute"]);
    command.stderr(full.expect("because Linux has it"));
    command.stdout(Stdio::null());
    let status = command.status().expect("because it can be started");
    assert_eq!(status.code(), Some(0));
    holds(
        &lab.ends(&["experiment", "ls"], 0),
        &["example     registered"],
    );
}

/// What is entered is done, though this user's memory of the ledger's head can't be written.
#[test]
fn an_entry_is_told_as_made_where_its_head_can_not_be_noted() {
    let lab = Lab::new();
    // Whoever runs this: a folder that is not empty is in the way of the memory's new file.
    let heads = lab.path("state/packhouse/lab/heads");
    let memory = std::fs::read_dir(&heads).expect("because the lab was opened");
    let mut names = memory.map(|entry| entry.expect("because it is there").path());
    let known = names.next().expect("because a head was noted");
    let new = known.with_extension("new");
    std::fs::create_dir_all(new.join("full")).expect("because it is ours");

    let said = lab.ends(&["register", "example", "--execute"], 0);
    let head = "the entry is in the ledger, but its head was not noted";
    let warning = format!("warning: {head}");
    holds(
        &said,
        &["ledger.jsonl: entry 2", &warning, "next: ", "hint: "],
    );
    for text in ["nothing was appended", "error: "] {
        assert!(!said.contains(text), "{said}");
    }
    // Nothing else is done until it can be, and what is in the way is named.
    let behind = lab.ends(&["ledger", "note", "seen", "--execute"], 3);
    let listed = format!("hint: ls -ld {}", new.display());
    holds(&behind, &["nothing was appended", &listed]);
    holds(&lab.ends(&["ledger", "ls"], 3), &[&listed]);

    // Nothing is lost by an older memory.
    std::fs::remove_dir_all(&new).expect("because it is ours");
    lab.ends(&["ledger", "verify"], 0);
    std::fs::create_dir_all(new.join("full")).expect("because it is ours");
    let noted = lab.json(&["ledger", "note", "seen", "--execute"]);
    assert_eq!(noted["entry"], 3, "{noted}");
    let warning = noted["warning"].as_str().expect("because it is told");
    // Programs are told why, too.
    holds(warning, &["warning: ", head, "\ncause: ", &listed]);
}

#[test]
fn documents_that_can_not_be_written_are_told_with_what_is_in_the_way() {
    let lab = Lab::new();
    let folder = lab.path("third");
    std::fs::create_dir(&folder).expect("because it is ours");
    std::fs::write(folder.join("lanes"), "a file").expect("because it is ours");
    let said = told(lab.command("", &["init", "third", "--execute"]), 3);
    let listed = format!("hint: ls -ld {}", folder.join("lanes").display());
    holds(&said, &["cannot write the lab's documents: ", &listed]);
}

/// What is of no packet is nobody's to enter; whoever runs this: nobody can follow a circle.
#[test]
fn what_lies_beside_evidence_and_can_not_be_entered_is_passed_over() {
    let lab = Lab::new();
    let entered = lab.json(&["register", "example", "--execute"]);
    let packet = entered["packet"].as_str();
    let evidence = lab.path("lab/evidence");
    std::fs::create_dir_all(&evidence).expect("because it is ours");
    let circle = evidence.join("circle");
    std::os::unix::fs::symlink(&circle, &circle).expect("because it is ours");
    lab.ends(&["ledger", "verify"], 0);

    // Of a packet's own nobody could tell that it has no evidence.
    let own = evidence.join(packet.expect("because it is registered"));
    std::os::unix::fs::symlink(&circle, &own).expect("because it is ours");
    let said = lab.ends(&["ledger", "verify"], 3);
    holds(&said, &["cannot read evidence: ", "hint: ls -ld "]);
}

/// Whoever runs this: nobody can make a folder below `/proc`.
#[test]
fn a_home_that_can_not_be_written_is_told_with_what_to_set() {
    let lab = Lab::new();
    for words in [
        &["ledger", "verify"][..],
        &["register", "example"],
        &["state"],
    ] {
        let mut command = lab.command("lab", words);
        command.env_remove("XDG_STATE_HOME").env("HOME", "/proc");
        let path = "/proc/.local/state/packhouse";
        let said = told(command, 3);
        holds(&said, &["folder of private state: ", path]);
        holds(
            &said,
            &["below XDG_STATE_HOME", "hint: export XDG_STATE_HOME=DIR"],
        );
    }
}

#[test]
fn a_memory_that_keeps_no_marker_is_told_with_what_to_set() {
    let lab = Lab::new();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        println!("NOT EXERCISED: there is no /dev/shm");
        return;
    };
    lab.ends(&["register", "example", "--execute"], 0);
    let mut command = lab.command("lab", &["rehearse", "example", "--execute"]);
    command.env("XDG_STATE_HOME", memory.path());
    let output = command.output().expect("because it can be started");
    let said = both(&output);
    if !said.contains("is on tmpfs") {
        println!("NOT EXERCISED: /dev/shm is no tmpfs: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    holds(&said, &["on a disk", "hint: export XDG_STATE_HOME=DIR"]);
}

/// The packet of a lab that is begun anew is the one that was run in the lab before.
#[test]
fn a_packet_that_this_user_ran_is_not_registered_in_a_second_lab() {
    let lab = Lab::new();
    let plan = lab.json(&["register", "example"]);
    let packet = plan["packet"].as_str().expect("because it is planned");
    let markers = lab.path("state/packhouse/lab/markers");
    let made = DirBuilder::new().mode(0o700).create(&markers);
    made.expect("because it is ours");
    let marker = markers.join(format!("{packet}.json"));
    std::fs::write(&marker, "whatever has its name").expect("because it is ours");

    lab.begin("second");
    let path = marker.to_str().expect("because it is plain");
    for words in [
        &["register", "example"][..],
        &["register", "example", "--execute"],
    ] {
        let said = told(lab.command("second", words), 3);
        holds(&said, &["not registered: example", packet, path]);
        let next = "hint: packhouse lab experiment new NEW-ID --from example";
        holds(&said, &["a packet is run once", next]);
    }
    assert!(!lab.path("second/experiments/example/packet.json").exists());

    // What is told to do helps.
    let words = [
        "experiment",
        "new",
        "again",
        "--from",
        "example",
        "--execute",
    ];
    told(lab.command("second", &words), 0);
    let mut command = lab.command("second", &["register", "again", "--execute"]);
    command.arg("--json");
    // Programs learn the entry of each act, as they do of a run.
    holds(&told(command, 0), &["\"entry\": 2,", "\"head\": \""]);
}

/// The numbers of its process files are others' there: a program could be taken for any of them.
#[test]
fn process_files_of_another_namespace_are_named_where_nothing_can_be_told() {
    let lab = Lab::new();
    lab.ends(&["register", "example", "--execute"], 0);
    let own = lab.command("lab", &["rehearse", "example", "--execute"]);
    let inside = |flags: &[&str], inner: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(flags).args(["--pid", "--fork"]).args(inner);
        command.current_dir(lab.path("lab")).env_clear();
        let variables = own.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        command.output()
    };
    let can = |output: std::io::Result<Output>| output.is_ok_and(|one| one.status.success());
    // Others' folders above the state folder would have no known owner in a namespace of users.
    if !can(inside(&[], &["true"])) {
        println!("NOT EXERCISED: no namespace of processes can be made here");
        return;
    }
    let program = own.get_program().to_str().expect("because it is plain");
    let words = ["lab", "rehearse", "example", "--execute"];
    let output = inside(&[], &[&[program][..], &words].concat());
    let output = output.expect("because it was started before");
    let said = both(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    holds(
        &said,
        &["identities: ", "/proc is of another process namespace"],
    );
}

/// Becomes a program with so many open files at most, and without those of who runs this.
const LIMITED: &str = "exec python3 -c 'import os, resource, sys
os.closerange(3, 65536)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])'";

/// What is registered did not change: there is nothing to put back.
#[test]
fn a_loader_that_can_not_be_started_is_not_told_as_a_change() {
    let lab = Lab::new();
    // Each folder above private state is held while it is opened: few, wherever this tree lies.
    let state = tempfile::tempdir_in("/tmp").expect("because there is one");
    let mut said = String::new();
    // How many files are open until a loader is asked is no promise.
    for limit in 6..32 {
        let line = format!("{LIMITED} {limit} \"$0\" \"$@\"");
        let mut command = lab.sandbox.shell(&line, &["lab", "register", "example"]);
        command.current_dir(lab.path("lab"));
        command.env("XDG_STATE_HOME", state.path());
        said = both(&command.output().expect("because it can be started"));
        if said.contains(" can't be asked: ") {
            break;
        }
    }
    holds(&said, &["would not be loaded", "hint: ulimit -a"]);
}

/// A folder that was removed under who works in it is no mistake of the command line.
#[test]
fn a_folder_that_is_gone_or_can_not_be_entered_is_told_as_that() {
    let lab = Lab::new();
    let line = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
    let mut command = lab.sandbox.shell(line, &["lab", "state"]);
    command.env("XDG_STATE_HOME", lab.path("state"));
    let said = told(command, 3);
    holds(
        &said,
        &["started in is gone", "hint: packhouse lab state --lab DIR"],
    );

    // Whoever runs this: nobody can follow it.
    let circle = lab.path("circle");
    std::os::unix::fs::symlink(&circle, &circle).expect("because it is ours");
    let said = told(lab.command("", &["init", "circle"]), 3);
    holds(
        &said,
        &["cannot use the folder: ", "symbolic links", "hint: ls -ld "],
    );
    let file = told(lab.command("lab", &["init", "ledger.jsonl"]), 2);
    holds(&file, &["not a folder: "]);
}
