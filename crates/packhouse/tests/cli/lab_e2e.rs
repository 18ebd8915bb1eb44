//! The whole component lane by the real command: from an empty folder to a sealed pass that both
//! judges accept, tampered copies that both reject, and no second run, from a copy neither.

use crate::sandbox::Sandbox;
use packhouse_base::digest::Digest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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

    forged(&lab, &evidence);
    let tampers = lab.json(&["verify", path, "--ledger", ledger, "--tampers"], 0);
    let codes: BTreeSet<&str> = tampers["codes"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(codes.len() >= 30, "{codes:?}");
    assert_eq!(tampers["tampers"], tampers["rejected"]);

    // Without the ledger, what only it can tell is not tried.
    let words = ["verify", "example", "--no-ledger", "--tampers"];
    let fewer = lab.json(&words, 0);
    assert!(fewer["tampers"].as_u64() < tampers["tampers"].as_u64());

    another_analyzer(&lab, path, ledger);
    damaged(&lab, &evidence);
}

/// The default of a preregistration: no control, and our own kernels are rehearsed.
#[test]
fn an_experiment_without_a_control_goes_the_whole_way() {
    let lab = Lab::new();
    let path = lab.root().join("experiments/example/prereg.toml");
    let text = std::fs::read_to_string(&path).expect("because init wrote it");
    let table = "program = \"packhouse\"\narguments = [\"fixture\", \"serve\"]\nenvironment = {}\n";
    let text = text.replacen(&format!("[program.control]\n{table}"), "", 1);
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"control\"\n";
    let text = text.replacen(leg, "", 1);
    let is_left = |line: &str| line == "[program.control]" || line == "treatment = \"control\"";
    assert!(!text.lines().any(is_left), "{text}");
    std::fs::write(path, text).expect("because it is ours");
    lab.armed();
    lab.ends(&["run", "example", "--execute"], 0);
    let verified = lab.json(&["verify", "example"], 0);
    assert_eq!(verified["verdict"], "pass", "{verified}");
    lab.ends(&["ledger", "verify"], 0);
}

/// Neither here nor where the folder was copied to, before or after.
fn no_second_run(lab: &Lab, copy: &Path) {
    let again = lab.ends(&["run", "example", "--execute"], 3);
    assert!(again.contains("is sealed: pass"), "{again}");
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
    let whole = lab.json(&["ledger", "verify"], 0);
    assert_eq!(again["head"], whole["head"]);
    let entries = whole["checked"]["entries"].as_u64();
    assert_eq!(again["entry"].as_u64().map(|index| index + 1), entries);
}

/// A wrong candidate is made right: one bit of a tensor that a drawn fixture expects, and of the
/// output that is as it, with every digest made anew. The second implementation can't draw the
/// fixture again and says so; our analyzer can, and `verify` asks both.
fn forged(lab: &Lab, evidence: &Path) {
    let mut files = BTreeMap::new();
    read(evidence, evidence, &mut files);
    let is_expected = |path: &&String| path.contains("/drawn/") && path.contains("/data/expected-");
    let was_seen = |path: &&String| {
        files.contains_key(&format!("bag/data/outputs/{}", Digest::of(&files[*path])))
    };
    let path = files.keys().filter(is_expected).find(was_seen);
    let path = path.expect("because repeats are drawn").clone();
    let old = Digest::of(&files[&path]);
    let tensor = files.get_mut(&path).expect("because it was found");
    tensor[0] ^= 1;
    let new = Digest::of(tensor);
    let output = files.remove(&format!("bag/data/outputs/{old}"));
    let mut output = output.expect("because it was seen");
    output[0] ^= 1;
    files.insert(format!("bag/data/outputs/{new}"), output);
    replaced(&mut files, "exchange.jsonl", old, new);
    let at = path.find("/data/expected-").expect("because it was found");
    replaced(&mut files, "fixture.json", old, new);
    listed(&mut files, &path[..at]);
    let old_bag = Digest::of(&files["bag/tagmanifest-sha256.txt"]);
    listed(&mut files, "bag");
    let new_bag = Digest::of(&files["bag/tagmanifest-sha256.txt"]);
    let old_analysis = Digest::of(&files["analysis-1/analysis.json"]);
    replaced(&mut files, "analysis.json", old, new);
    replaced(&mut files, "analysis.json", old_bag, new_bag);
    replaced(&mut files, "seal-1.json", old_bag, new_bag);
    let new_analysis = Digest::of(&files["analysis-1/analysis.json"]);
    replaced(&mut files, "seal-1.json", old_analysis, new_analysis);
    let folder = lab.path("forged");
    for (path, bytes) in &files {
        let path = folder.join(path);
        let above = path.parent().expect("because it has one");
        std::fs::create_dir_all(above).expect("because there is room");
        std::fs::write(path, bytes).expect("because there is room");
    }
    let tree = packhouse_bagcheck::read(&folder).expect("because it was written");
    let report = packhouse_bagcheck::check(&tree, None, None);
    assert_eq!(report.findings, [], "it can't be told without the recipe");
    let path = folder.to_str().expect("because it is plain");
    let verified = lab.json(&["verify", path, "--no-ledger"], 1);
    let findings = verified["findings"]
        .as_array()
        .expect("because it is a list");
    let drawn = findings
        .iter()
        .any(|finding| finding["code"] == "fixture.drawn");
    assert!(drawn, "{verified}");
    let notes = verified["notes"].to_string();
    assert!(!notes.contains("drawn again"), "{notes}");
}

fn read(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("because it is a folder") {
        let path = entry.expect("because it is there").path();
        if path.is_dir() {
            read(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("because it is below");
            let name = name.to_str().expect("because it is plain").to_owned();
            files.insert(name, std::fs::read(&path).expect("because it is there"));
        }
    }
}

/// Replaces a digest in every file of that name.
fn replaced(files: &mut BTreeMap<String, Vec<u8>>, name: &str, old: Digest, new: Digest) {
    for (path, bytes) in files.iter_mut().filter(|(path, _)| path.ends_with(name)) {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("{path} is text"));
        *bytes = text.replace(&old.to_string(), &new.to_string()).into();
    }
}

/// Makes both lists of a bag anew, with the same tag files.
fn listed(files: &mut BTreeMap<String, Vec<u8>>, bag: &str) {
    let lines = |files: &BTreeMap<String, Vec<u8>>, wanted: &dyn Fn(&str) -> bool| {
        let own = files
            .iter()
            .filter_map(|(path, bytes)| Some((path.strip_prefix(bag)?.strip_prefix('/')?, bytes)));
        let own = own.filter(|(path, _)| wanted(path));
        let lines = own.map(|(path, bytes)| format!("{}  {path}\n", Digest::of(bytes)));
        lines.collect::<String>().into_bytes()
    };
    let manifest = lines(files, &|path| path.starts_with("data/"));
    files.insert(format!("{bag}/manifest-sha256.txt"), manifest);
    let tags = lines(files, &|path| {
        !path.contains('/') && path != "tagmanifest-sha256.txt"
    });
    files.insert(format!("{bag}/tagmanifest-sha256.txt"), tags);
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
