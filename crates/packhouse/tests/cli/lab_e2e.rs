//! The whole component lane by the real command: from an empty folder to a sealed pass that both
//! judges accept, tampered copies that both reject, and no second run, from a copy neither.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A lab, in a folder that a marker may be near: a temporary folder may be in memory only.
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
        lab.ends(&["init", "lab", "--name", "a lab", "--execute"], 0);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("lab")
    }

    fn command(&self, lab: &Path, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(&["lab"]);
        command.args(words);
        if words.first() == Some(&"init") {
            command.current_dir(self.folder.path());
        } else {
            command.current_dir(lab);
        }
        // The state folder holds markers.
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Runs a command in the lab; what it says on both streams.
    fn ends(&self, words: &[&str], code: i32) -> String {
        self.ends_in(&self.root(), words, code)
    }

    fn ends_in(&self, lab: &Path, words: &[&str], code: i32) -> String {
        let output = self
            .command(lab, words)
            .output()
            .expect("because it can be started");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said += &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let output = self
            .command(&self.root(), &words)
            .output()
            .expect("because it can");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("because one document was asked for")
    }

    /// The folder of the only packet's evidence.
    fn evidence(&self) -> PathBuf {
        let all = std::fs::read_dir(self.root().join("evidence")).expect("because it was run");
        let mut all = all.map(|entry| entry.expect("because it is there").path());
        let one = all.next().expect("because there is one");
        assert_eq!(all.next(), None);
        one
    }

    /// From the lane to a packet that may be run.
    fn armed(&self) {
        let lane = [
            "lane",
            "open",
            "example",
            "--reason",
            "to begin",
            "--execute",
        ];
        self.ends(&lane, 0);
        self.ends(&["register", "example", "--execute"], 0);
        self.ends(&["rehearse", "example", "--execute"], 0);
        let review = [
            "review",
            "example",
            "--reviewer",
            "somebody",
            "--verdict",
            "approve",
            "--note",
            "read",
            "--execute",
        ];
        self.ends(&review, 0);
        self.ends(&["arm", "example", "--execute"], 0);
    }
}

#[test]
fn the_component_lane_from_an_empty_folder_to_a_sealed_pass_and_no_second_run() {
    let lab = Lab::new();
    lab.armed();
    let copy = lab.path("copy");
    copied(&lab.root(), &copy);
    lab.ends(&["run", "example", "--execute"], 0);

    let evidence = lab.evidence();
    let path = evidence.to_str().expect("because it is plain");
    let ledger = lab.root().join("ledger.jsonl");
    let ledger = ledger.to_str().expect("because it is plain");
    let verified = lab.json(&["verify", path, "--ledger", ledger], 0);
    assert_eq!(verified["verdict"], "pass", "{verified}");
    assert_eq!(verified["findings"], serde_json::json!([]));
    lab.ends(&["ledger", "verify"], 0);

    no_second_run(&lab, &copy);

    // The same program has nothing to add to its own analysis.
    let same = lab.json(&["analyse", "example", "--why", "to see", "--execute"], 0);
    assert_eq!(same["made_before"], 1, "{same}");
    assert!(!evidence.join("analysis-2").exists());

    let tampers = lab.json(&["verify", path, "--ledger", ledger, "--tampers"], 0);
    let codes: BTreeSet<&str> = tampers["codes"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(codes.len() >= 30, "{codes:?}");
    assert_eq!(tampers["tampers"], tampers["rejected"]);

    another_analyzer(&lab, path, ledger);
    damaged(&lab, &evidence);
}

/// Neither here nor where the folder was copied to, before or after.
fn no_second_run(lab: &Lab, copy: &Path) {
    let again = lab.ends(&["run", "example", "--execute"], 3);
    assert!(again.contains("sealed-pass"), "{again}");
    let refused = lab.ends_in(copy, &["run", "example", "--execute"], 3);
    assert!(
        refused.contains("truncated, rewritten or forked"),
        "{refused}"
    );
    // Whoever has forgotten the ledger's head still has the marker.
    let heads = lab.path("state/packhouse/lab/heads");
    std::fs::remove_dir_all(heads).expect("because it is there");
    let refused = lab.ends_in(copy, &["run", "example", "--execute"], 3);
    assert!(
        refused.contains("is consumed: its marker is here"),
        "{refused}"
    );
    let later = lab.path("later");
    copied(&lab.root(), &later);
    lab.ends_in(&later, &["run", "example", "--execute"], 3);
}

/// Another program, by its digest, analyses the same bag again: no device, no marker.
fn another_analyzer(lab: &Lab, path: &str, ledger: &str) {
    let other = lab.path("other");
    std::fs::copy(env!("CARGO_BIN_EXE_packhouse"), &other).expect("because there is room");
    let file = std::fs::OpenOptions::new().append(true).open(&other);
    let written = file
        .expect("because it is ours")
        .write_all(b"another analyzer");
    written.expect("because there is room");
    let words = [
        "analyse",
        "example",
        "--why",
        "an analyzer changed",
        "--json",
    ];
    let planned = document(lab.command(&lab.root(), &words).output());
    assert_eq!(planned["made_before"], 1, "{planned}");
    let mut command = Command::new(&other);
    let own = lab.command(&lab.root(), &words);
    command
        .args(own.get_args())
        .arg("--execute")
        .current_dir(lab.root())
        .env_clear();
    command.envs(
        own.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let again = document(command.output());
    assert_eq!(
        (&again["number"], &again["changed"]),
        (&2.into(), &false.into()),
        "{again}"
    );
    assert_eq!(again["verdict"], "pass");
    let verified = lab.json(&["verify", path, "--ledger", ledger], 0);
    assert_eq!(verified["findings"], serde_json::json!([]));
    lab.ends(&["ledger", "verify"], 0);
}

/// What was kept is changed on the disk, by one bit.
fn damaged(lab: &Lab, evidence: &Path) {
    let path = evidence.to_str().expect("because it is plain");
    let output = std::fs::read_dir(evidence.join("bag/data/outputs")).expect("because there are");
    let output = output
        .map(|entry| entry.expect("because it is there").path())
        .next();
    let output = output.expect("because there is one");
    let mut bytes = std::fs::read(&output).expect("because it is there");
    bytes[0] ^= 1;
    let mut permissions = std::fs::metadata(&output)
        .expect("because it is there")
        .permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&output, permissions).expect("because it is ours");
    std::fs::write(&output, bytes).expect("because it is ours");
    let damaged = lab.json(&["verify", path], 1);
    assert_eq!(damaged["findings"][0]["code"], "bag.digest", "{damaged}");
}

/// The one document of a command that ended well.
fn document(output: std::io::Result<Output>) -> Value {
    let output = output.expect("because it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).expect("because one document was asked for")
}

/// Copies a folder with everything in it.
fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(done.expect("because cp is there").success());
}
