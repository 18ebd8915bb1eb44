//! A lab's documents by the real command: what is written, what is only said, and what is refused
//! before anything is frozen, with real programs and real work trees.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder, and a user's home beside it.
struct Desk {
    sandbox: Sandbox,
}

impl Desk {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        Self { sandbox }
    }

    /// A lab whose example lane is open.
    fn open() -> Self {
        let desk = Self::new();
        desk.ends(&["init", "lab", "--execute"], 0);
        let open = [
            "lane",
            "open",
            "example",
            "--reason",
            "to begin",
            "--execute",
        ];
        desk.ends(&open, 0);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path("lab").join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(&["lab"]);
        command.args(words);
        if self.sandbox.path("lab/ledger.jsonl").exists() {
            command.current_dir(self.sandbox.path("lab"));
        }
        command
    }

    /// Runs a command; what it says on both streams.
    fn ends(&self, words: &[&str], code: i32) -> String {
        said(self.command(words), code)
    }

    /// Replaces one text of the example's preregistration.
    fn edit(&self, good: &str, bad: &str) {
        let path = self.path("experiments/example/prereg.toml");
        let text = std::fs::read_to_string(&path).expect("because it is there");
        assert_eq!(text.matches(good).count(), 1, "{good}");
        std::fs::write(&path, text.replace(good, bad)).expect("because it can be edited");
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("because it is below")).expect("because new");
        std::fs::write(path, text).expect("because it can be written");
    }

    fn git(&self, folder: &str, words: &[&str]) {
        let mut command = Command::new("git");
        command.args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "protocol.file.allow=always",
        ]);
        command.args(words).current_dir(self.path(folder));
        command.env("HOME", self.sandbox.path("home"));
        let output = command.output().expect("because git is there");
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A work tree below the lab, which the example freezes.
    fn source(&self) {
        self.write("source/a.py", "VALUE = 1\n");
        self.git("source", &["init", "-q", "-b", "main"]);
        self.git("source", &["add", "."]);
        self.git("source", &["commit", "-q", "-m", "begin"]);
        self.edit("[matrix]\n", "[[commit]]\npath = \"source\"\n\n[matrix]\n");
    }
}

fn said(mut command: Command, code: i32) -> String {
    let output = command.output().expect("because it can be started");
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    said
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("because it is there").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("because it can be read");
            found.insert(path, bytes);
        }
    }
    found
}

#[test]
fn a_folder_becomes_a_lab_once_and_keeps_what_was_there() {
    let desk = Desk::new();
    let planned = desk.ends(&["init", "lab"], 0);
    for line in [
        "would: ",
        "irreversible: the lab's name and id",
        "nothing was written; do it: ",
    ] {
        assert!(planned.contains(line), "{planned}");
    }
    assert!(!desk.sandbox.path("lab").exists(), "a plan makes nothing");
    desk.write("lanes/example.toml", "mine\n");
    let done = desk.ends(&["init", "lab", "--name", "My lab", "--execute"], 0);
    assert!(
        done.contains("lanes/example.toml: was there, and stays as it is"),
        "{done}"
    );
    assert!(
        done.contains("next: edit lanes/example.toml, then packhouse lab lane open"),
        "{done}"
    );
    assert_eq!(
        std::fs::read(desk.path("lanes/example.toml")).ok(),
        Some(b"mine\n".to_vec())
    );
    let ledger = std::fs::read_to_string(desk.path("ledger.jsonl")).expect("because it was made");
    assert!(ledger.contains("\"lab\":\"My lab\""), "{ledger}");
    let mode = std::fs::metadata(desk.path("experiments/example/prereg.toml"));
    let mode = mode.expect("because it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "it is there to be edited");
    let before = files(&desk.sandbox.path("lab"));
    for words in [&["init"][..], &["init", "--execute"]] {
        let refused = desk.ends(words, 3);
        assert!(refused.contains("error: a lab already: "), "{refused}");
    }
    assert_eq!(files(&desk.sandbox.path("lab")), before);
    std::fs::write(desk.sandbox.path("file"), "x").expect("because it can be written");
    let mut command = desk.sandbox.command(&["lab", "init", "file", "--execute"]);
    command.current_dir(desk.sandbox.path(""));
    let refused = said(command, 2);
    assert!(refused.contains("error: not a folder: "), "{refused}");
    let nowhere = said(desk.sandbox.command(&["lab", "state"]), 3);
    assert!(
        nowhere.starts_with("error: no lab here or above: "),
        "{nowhere}"
    );
}

#[test]
fn without_execute_nothing_is_written_and_what_becomes_irreversible_is_named() {
    let desk = Desk::open();
    let before = files(&desk.sandbox.path("lab"));
    for (words, irreversible) in [
        (
            &["lane", "new", "second"][..],
            "irreversible: nothing: the lane is not open",
        ),
        (
            &["register", "example"],
            "irreversible: the experiment's id is used up",
        ),
    ] {
        let planned = desk.ends(words, 0);
        assert!(planned.contains(irreversible), "{planned}");
        assert!(
            planned.contains("nothing was written; do it: packhouse lab "),
            "{planned}"
        );
        assert_eq!(files(&desk.sandbox.path("lab")), before, "{words:?}");
        // What is advised does it.
        let line = planned
            .lines()
            .find(|line| line.starts_with("nothing was written; do it: "));
        let line =
            line.and_then(|line| line.strip_prefix("nothing was written; do it: packhouse "));
        let advised: Vec<&str> = line.expect("because it was said").split(' ').collect();
        assert_eq!(advised.last(), Some(&"--execute"));
    }
    desk.ends(&["lane", "new", "second", "--execute"], 0);
    let refused = desk.ends(&["lane", "new", "second", "--execute"], 3);
    assert!(
        refused.contains("a lane's document is there already"),
        "{refused}"
    );
    let refused = desk.ends(&["lane", "new", "No/Id"], 2);
    assert!(
        refused.contains("error: no id of a lane: No/Id"),
        "{refused}"
    );
}

#[test]
fn an_experiment_is_registered_once_and_found_by_its_id_and_by_digits() {
    let desk = Desk::open();
    let refused = desk.ends(&["register", "nothing"], 3);
    assert!(
        refused.contains("cause: experiments/nothing/prereg.toml: not there"),
        "{refused}"
    );
    let refused = desk.ends(&["arm", "example"], 3);
    assert!(
        refused.contains("error: no such packet: example"),
        "{refused}"
    );
    let output = desk
        .command(&["register", "example", "--execute", "--json"])
        .output();
    let output = output.expect("because it can be started");
    let document: Value = serde_json::from_slice(&output.stdout).expect("because it is JSON");
    assert_eq!(document["executed"], true, "{document}");
    let packet = document["packet"]
        .as_str()
        .expect("because it is named")
        .to_owned();
    let refused = desk.ends(&["register", "example", "--execute"], 3);
    assert!(
        refused.contains(&format!("is registered as packet {packet}")),
        "{refused}"
    );
    for name in ["example", &packet[..8], &packet] {
        let refused = desk.ends(&["arm", name, "--execute"], 3);
        assert!(
            refused.contains("cause: it was never rehearsed"),
            "{refused}"
        );
        let review = [
            "review",
            name,
            "--reviewer",
            "ann",
            "--verdict",
            "approve",
            "--note",
            "ok",
        ];
        let refused = desk.ends(&review, 3);
        assert!(
            refused.contains("a review follows a green rehearsal"),
            "{refused}"
        );
    }
    let refused = desk.ends(&["arm", &packet[..7]], 2);
    assert!(refused.contains("error: no such packet: ") && refused.contains("there is example"));
    // What was registered may not change: the file is named, and both its digests.
    desk.edit("reviewers = 1", "reviewers = 2");
    let refused = desk.ends(&["arm", "example"], 3);
    assert!(
        refused.contains("cause: experiments/example/prereg.toml: frozen "),
        "{refused}"
    );
}

#[test]
fn documents_are_refused_with_their_field_and_the_value_that_they_have() {
    let desk = Desk::open();
    let cases = [
        (
            "devices = [\"cpu\"]",
            "devices = [\"cuda:0\"]",
            "matrix.devices[0]: expected cpu, or kind",
        ),
        ("devices = [\"cuda:0\"]", "devices = [\"cpu\"]", ""),
        (
            "widths = [1, 4]",
            "widths = [7]",
            "has no case of any width and arm of the matrix",
        ),
        ("widths = [7]", "widths = [1, 4]", ""),
        (
            "mrow-q4_0-joint-n-v1-v1\"]",
            "mrow\"]",
            "fixture mrow: no such fixture in this program",
        ),
        ("\"mrow\"]", "\"mrow-q4_0-joint-n-v1-v1\"]", ""),
        (
            "kind = \"no-warnings\"",
            "kind = \"no-errors\"",
            "gate[1].kind: expected fresh-inputs, ",
        ),
    ];
    for (good, bad, cause) in cases {
        desk.edit(good, bad);
        let code = if cause.is_empty() { 0 } else { 3 };
        let said = desk.ends(&["register", "example"], code);
        assert!(said.contains(cause), "{said}\nexpected {cause}");
        assert!(
            code == 0 || said.contains("error: not registered: example"),
            "{said}"
        );
        assert!(code == 0 || said.contains("\nhint: "), "{said}");
    }
}

/// A bytecode file that an interpreter wrote into the tree lost a reference lab a packet after its
/// first leg.
#[test]
fn a_work_tree_is_clean_only_where_git_says_so_of_every_file() {
    let desk = Desk::open();
    desk.source();
    desk.ends(&["register", "example"], 0);
    // A real interpreter's bytecode.
    let mut python = Command::new("python3");
    python
        .args(["-m", "compileall", "-q", "source"])
        .current_dir(desk.path(""));
    assert!(
        python
            .status()
            .expect("because there is a python3")
            .success()
    );
    let dirty = desk.ends(&["register", "example"], 3);
    assert!(
        dirty.contains("cause: source: differs from commit "),
        "{dirty}"
    );
    assert!(dirty.contains("__pycache__/a.cpython-"), "{dirty}");
    // Ignored files are none of the commit's.
    desk.write("source/.gitignore", "__pycache__/\n");
    desk.git("source", &["add", ".gitignore"]);
    desk.git("source", &["commit", "-q", "-m", "ignore"]);
    desk.ends(&["register", "example"], 0);
    // A file that the index is told not to look at.
    desk.git("source", &["update-index", "--assume-unchanged", "a.py"]);
    desk.write("source/a.py", "VALUE = 2\n");
    let dirty = desk.ends(&["register", "example"], 3);
    assert!(
        dirty.contains("differs from commit ") && dirty.contains(": a.py"),
        "{dirty}"
    );
    desk.git("source", &["update-index", "--no-assume-unchanged", "a.py"]);
    desk.git("source", &["commit", "-q", "-a", "-m", "two"]);
    desk.ends(&["register", "example"], 0);
}

#[test]
fn submodules_and_folders_that_git_does_not_look_after_are_not_clean() {
    let desk = Desk::open();
    desk.source();
    desk.write("other/b.py", "VALUE = 1\n");
    desk.git("other", &["init", "-q", "-b", "main"]);
    desk.git("other", &["add", "."]);
    desk.git("other", &["commit", "-q", "-m", "begin"]);
    desk.git(
        "source",
        &["submodule", "--quiet", "add", "../other", "sub"],
    );
    desk.git("source", &["commit", "-q", "-a", "-m", "with a submodule"]);
    desk.ends(&["register", "example"], 0);
    desk.write("source/sub/b.py", "VALUE = 2\n");
    let dirty = desk.ends(&["register", "example"], 3);
    assert!(
        dirty.contains("source: differs from commit ") && dirty.contains("sub"),
        "{dirty}"
    );
    // A submodule at another commit than the index has.
    desk.git("source/sub", &["commit", "-q", "-a", "-m", "two"]);
    let dirty = desk.ends(&["register", "example"], 3);
    assert!(
        dirty.contains("source: differs from commit ") && dirty.contains("sub"),
        "{dirty}"
    );

    let desk = Desk::open();
    desk.source();
    desk.write("source/.gitignore", "made/\n");
    desk.write("source/made/c.py", "VALUE = 1\n");
    desk.git("source", &["add", ".gitignore"]);
    desk.git("source", &["commit", "-q", "-m", "ignore"]);
    desk.edit(
        "path = \"source\"\n\n[matrix]",
        "path = \"source/made\"\n\n[matrix]",
    );
    let refused = desk.ends(&["register", "example"], 3);
    assert!(
        refused.contains("git ignores it, so no commit says what is in it"),
        "{refused}"
    );
    desk.edit("path = \"source/made\"", "path = \"lanes\"");
    let refused = desk.ends(&["register", "example"], 3);
    assert!(refused.contains("git failed: "), "{refused}");
}

#[test]
fn git_that_fails_is_never_a_clean_tree() {
    let desk = Desk::open();
    desk.source();
    desk.write("../tools/git", "#!/bin/sh\necho broken >&2\nexit 1\n");
    let tool = desk.path("../tools/git");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).expect("because ours");
    for path in ["tools", "nowhere"] {
        let mut command = desk.command(&["register", "example", "--execute"]);
        command.env("PATH", desk.sandbox.path(path));
        let refused = said(command, 3);
        assert!(
            refused.contains("error: not registered: example"),
            "{refused}"
        );
        assert!(refused.contains("git failed: "), "{refused}");
    }
    assert!(!desk.path("experiments/example/packet.json").exists());
    std::fs::write(desk.path("source/.git/index"), "no index").expect("because ours");
    let refused = desk.ends(&["register", "example"], 3);
    assert!(refused.contains("git failed: "), "{refused}");
}

#[test]
fn a_script_is_frozen_with_its_interpreter_and_all_that_it_loads() {
    let desk = Desk::open();
    desk.write("bin/kernel", "#!/usr/bin/env python3\nprint('no kernel')\n");
    let candidate =
        "[program.candidate]\nprogram = \"packhouse\"\narguments = [\"fixture\", \"serve\"]";
    desk.edit(
        candidate,
        "[program.candidate]\nprogram = \"bin/kernel\"\narguments = []",
    );
    let refused = desk.ends(&["register", "example"], 3);
    assert!(
        refused.contains("no program bin/kernel: "),
        "not executable: {refused}"
    );
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(desk.path("bin/kernel"), mode).expect("because ours");
    desk.ends(&["register", "example", "--execute"], 0);
    let packet = std::fs::read(desk.path("experiments/example/packet.json"));
    let packet: Value = serde_json::from_slice(&packet.expect("because it was written"))
        .expect("because it is JSON");
    let program = &packet["programs"]["candidate"];
    assert_eq!(program["program"]["name"], "bin/kernel");
    let objects = program["objects"].as_array().expect("because it is a list");
    let has = |start: &str| {
        objects.iter().any(|object| {
            object["name"]
                .as_str()
                .is_some_and(|name| name.starts_with(start))
        })
    };
    assert!(
        has("env") && has("python3") && has("libc.so") && has("ld-"),
        "{objects:?}"
    );
    let text = packet.to_string();
    assert!(!text.contains("\"/"), "no absolute path: {text}");
    // Another byte of the script is another program.
    desk.write("bin/kernel", "#!/usr/bin/env python3\nprint('a kernel')\n");
    let refused = desk.ends(&["arm", "example"], 3);
    assert!(
        refused.contains("cause: program candidate: file bin/kernel: frozen "),
        "{refused}"
    );
}
