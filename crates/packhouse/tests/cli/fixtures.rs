//! `fixture ls`, `prepare`, `verify` and `run` from outside, and the example kernel.

use crate::sandbox::{Sandbox, repository};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const ID: &str = "mrow-identity-v1-v1";
const MMVQ: &str = "mmvq-q4_0-q8_1-v1";
/// Fixtures that are made quickly.
const SOME: [&str; 5] = [
    "mrow-q4_0-joint-n-v1-v1",
    "mrow-q4_0-reordered-v1-v1",
    ID,
    "mul-q2_k-ggml-cpu-repack-v1",
    "mul-mxfp4-ggml-cpu-repack-v1",
];

fn run(sandbox: &Sandbox, words: &[&str], code: i32) -> String {
    let output = sandbox
        .command(words)
        .output()
        .expect("because the command was built");
    told(&output, words, code)
}

fn told(output: &Output, words: &[&str], code: i32) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("because it is text");
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{error}");
    said + &error
}

fn unit(sandbox: &Sandbox, id: &str) -> PathBuf {
    sandbox.path("home/.cache/packhouse/fixtures/v1").join(id)
}

/// Changes a published file, which nobody may write.
fn change(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("because it was published");
    edit(&mut bytes);
    let writable = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, writable(0o644)).expect("because it is ours");
    std::fs::write(path, bytes).expect("because it is ours");
    std::fs::set_permissions(path, writable(0o444)).expect("because it is ours");
}

#[test]
fn a_fixture_is_made_found_damaged_and_made_again() {
    let sandbox = Sandbox::new();
    let said = run(&sandbox, &["fixture", "verify", ID], 1);
    let expected = format!("not published: {ID}\n\nhint: packhouse fixture prepare {ID}\n");
    assert_eq!(said, expected);
    assert!(
        !sandbox.path("home/.cache").exists(),
        "looking made a folder"
    );
    let made = run(&sandbox, &["fixture", "prepare", ID], 0);
    assert!(made.starts_with(&format!("made: {ID}, ")), "{made}");
    let reused = run(&sandbox, &["fixture", "prepare", ID], 0);
    assert_eq!(reused, made.replace("made: ", "reused: "));
    let intact = run(&sandbox, &["fixture", "verify", ID], 0);
    assert!(
        intact.starts_with(&format!("intact: {ID}, sha256 ")),
        "{intact}"
    );
    let sums = Command::new("sha256sum")
        .args([
            "--quiet",
            "-c",
            "tagmanifest-sha256.txt",
            "manifest-sha256.txt",
        ])
        .current_dir(unit(&sandbox, ID))
        .output()
        .expect("because coreutils has it");
    told(&sums, &["sha256sum"], 0);

    let record = unit(&sandbox, ID).join("fixture.json");
    let mode = std::fs::metadata(&record)
        .expect("because it was published")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o444);
    change(&record, |bytes| bytes[100] ^= 2);
    let damaged = run(&sandbox, &["fixture", "verify"], 1);
    let line = format!("damaged: {ID}: fixture.json: byte 100 is 0x");
    assert!(damaged.contains(&line), "{damaged}");
    let json = run(&sandbox, &["fixture", "ls", ID, "--json"], 0);
    let json: Value = serde_json::from_str(&json).expect("because it is one document");
    assert_eq!(json["fixtures"][0]["state"], "damaged");
    assert_eq!(json["fixtures"][0]["damages"]["own_lists_agree"], false);
    let again = run(&sandbox, &["fixture", "prepare", ID], 0);
    assert!(again.starts_with(&format!("made again: {ID}, ")), "{again}");
    assert!(again.contains(&line), "{again}");
    run(&sandbox, &["fixture", "verify", ID], 0);
    let aside = unit(&sandbox, &format!("damaged-{ID}"));
    assert!(
        aside.join("fixture.json").is_file(),
        "what was damaged is gone"
    );
}

#[test]
fn four_makers_at_once_make_one_of_each_and_leave_nothing_else() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("fixtures");
    let start = || -> Child {
        let words = [["fixture", "prepare"].as_slice(), &SOME, &["--fixtures"]].concat();
        let mut command = sandbox.command(&words);
        command
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("because the command was built")
    };
    let makers: Vec<Child> = (0..4).map(|_| start()).collect();
    let outputs = makers.into_iter().map(|maker| {
        let output = maker.wait_with_output().expect("because it is our child");
        told(&output, &["prepare"], 0)
    });
    let said: Vec<String> = outputs.collect();
    let made = said.iter().flat_map(|said| said.lines());
    let made: Vec<&str> = made.filter(|line| line.starts_with("made: ")).collect();
    let names = std::fs::read_dir(folder.join("v1")).expect("because it was made");
    let names: Vec<_> = names
        .map(|entry| entry.expect("because it is there").file_name())
        .collect();
    assert_eq!(
        names.len(),
        made.len() + 1,
        "the lock and {made:?}: {names:?}"
    );
    let words = [["fixture", "verify"].as_slice(), &SOME, &["--fixtures"]].concat();
    let output = sandbox.command(&words).arg(&folder).output();
    told(
        &output.expect("because the command was built"),
        &["verify"],
        0,
    );
}

/// A maker that is killed leaves whole fixtures and one temporary folder, which the next removes.
#[test]
fn a_killed_maker_leaves_nothing_that_the_next_does_not_mend() {
    let sandbox = Sandbox::new();
    let shelf = sandbox.path("home/.cache/packhouse/fixtures/v1");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&shelf).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.collect()
    };
    let is_temp = |name: &String| name.starts_with(".tmp-");
    let mut maker = sandbox.command(&[["fixture", "prepare"].as_slice(), &SOME].concat());
    let mut maker = maker
        .stdout(Stdio::null())
        .spawn()
        .expect("because the command was built");
    while !names().iter().any(is_temp) {
        if maker.try_wait().expect("because it is our child").is_some() {
            break;
        }
        std::thread::yield_now();
    }
    // It may have ended by itself: then there is nothing to mend.
    let _ = maker.kill();
    maker.wait().expect("because it is our child");
    let said = run(
        &sandbox,
        &[["fixture", "ls", "--json"].as_slice(), &SOME].concat(),
        0,
    );
    let said: Value = serde_json::from_str(&said).expect("because it is one document");
    for fixture in said["fixtures"].as_array().expect("because it is a list") {
        assert_ne!(fixture["state"], "damaged", "{fixture}");
    }
    for word in ["prepare", "verify"] {
        run(&sandbox, &[["fixture", word].as_slice(), &SOME].concat(), 0);
    }
    assert!(!names().iter().any(is_temp), "{:?}", names());
}

#[test]
fn strangers_are_named_and_a_store_beside_the_fixtures_minds_its_own() {
    let sandbox = Sandbox::new();
    drop(crate::store::open(&sandbox));
    run(&sandbox, &["fixture", "prepare", ID], 0);
    let stranger = unit(&sandbox, "q-v9");
    std::fs::create_dir(&stranger).expect("because it is ours");
    let said = run(&sandbox, &["fixture", "ls"], 0);
    let line = format!("no fixture of this version: {}\n", stranger.display());
    assert!(said.ends_with(&line), "{said}");
    let left = unit(&sandbox, ".tmp-0123456789abcdef");
    std::fs::create_dir(&left).expect("because it is ours");
    let left_line = format!("unfinished, or being made: {}\n", left.display());
    let said = run(&sandbox, &["fixture", "verify"], 1);
    assert!(said.contains(&format!("{left_line}{line}")), "{said}");
    run(&sandbox, &["fixture", "prepare", ID], 0);
    assert!(!left.exists(), "{}", left.display());
    for word in ["doctor", "gc", "ls", "du"] {
        let said = run(&sandbox, &[word], 0);
        assert!(!said.contains("q-v9"), "{word}: {said}");
    }
    run(&sandbox, &["fixture", "verify", ID], 0);
    assert!(stranger.is_dir());
}

#[test]
fn what_others_can_change_is_refused_or_made_again() {
    let sandbox = Sandbox::new();
    run(&sandbox, &["fixture", "prepare", ID], 0);
    let change = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("because it is ours");
    };
    change(&unit(&sandbox, ID).join("fixture.json"), 0o666);
    let said = run(&sandbox, &["fixture", "verify", ID], 1);
    let line =
        format!("damaged: {ID}: fixture.json has mode 0666: others than its owner can change it\n");
    assert!(said.starts_with(&format!("{line}\nhint: ")), "{said}");
    let said = run(&sandbox, &["fixture", "prepare", ID], 0);
    assert!(said.starts_with(&format!("made again: {ID}, ")), "{said}");
    let shelf = unit(&sandbox, "");
    change(&shelf, 0o777);
    for word in ["ls", "verify", "prepare"] {
        let output = sandbox.command(&["fixture", word, ID]).output();
        let output = output.expect("because the command was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{word}: {said}");
        let line = "/v1 has mode 0777: others than its owner can change it\n";
        assert!(said.contains(line), "{word}: {said}");
    }
}

#[test]
fn every_kernel_of_ours_passes_every_fixture() {
    let sandbox = Sandbox::new();
    let json = run(&sandbox, &["fixture", "run", "--json"], 0);
    let json: Value = serde_json::from_str(&json).expect("because it is one document");
    let trials = json["trials"].as_array().expect("because it is a list");
    assert!(trials.len() > 80, "{}", trials.len());
    for trial in trials {
        let boundaries = trial["boundaries"]
            .as_array()
            .expect("because it is a list");
        assert!(!boundaries.is_empty() && trial["passed"] == true, "{trial}");
        for boundary in boundaries {
            let rows = boundary["rows"].as_array().expect("because it is a list");
            assert!(!rows.is_empty() && rows.iter().all(|row| row["passed"] == true));
        }
    }
    let layouts = [
        "--layout",
        "q4_0-xe2-dpas-v2",
        "--layout",
        "q4_0-joint-n-v1",
    ];
    let words = [["fixture", "run", "--width", "6"].as_slice(), &layouts].concat();
    let said = run(&sandbox, &words, 0);
    assert!(said.ends_with("passed: 4 cases\n"), "{said}");
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "").expect("because it is ours");
    std::fs::create_dir(sandbox.path("open")).expect("because it is ours");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(sandbox.path("open"), open).expect("because it is ours");
    sandbox.session(
        "fixture-refused",
        &[
            &["fixture"],
            &["fixture", "ls", "nope-v1"],
            &["fixture", "prepare", "../up"],
            &["fixture", "ls", "--fixtures", "file"],
            &["fixture", "prepare", "--fixtures", "open/inner"],
            &["fixture", "run", "--layout", "nope"],
            &[
                "fixture",
                "run",
                "--layout",
                "int8-tile-rm-v1",
                "--width",
                "7",
            ],
            &["fixture", "run", MMVQ, ID, "--layout", "q4_0-xe2-dpas-v2"],
            &["fixture", "run", MMVQ, "--width", "2"],
            &["fixture", "run", "--width", "many"],
            &["fixture", "run", "--promise", "perhaps"],
        ],
    );
    sandbox.session_with("fixture-folder", &[&["fixture", "ls"]], |command| {
        command.env("PACKHOUSE_FIXTURES", "relative");
    });
}

/// The example kernel, changed at one place, run on the smallest case.
fn example(sandbox: &Sandbox, change: Option<(&str, &str)>, words: &[&str], code: i32) -> String {
    let path = repository().join("examples/kernel.py");
    let mut text = std::fs::read_to_string(path).expect("because it is in the repository");
    if let Some((find, replace)) = change {
        assert_eq!(text.matches(find).count(), 1, "{find}");
        text = text.replace(find, replace);
    }
    std::fs::write(sandbox.path("kernel.py"), text).expect("because it is ours");
    let first = ["fixture", "run", MMVQ, "--width", "1"];
    let all = [&first, words, &["--", "python3", "kernel.py"]].concat();
    run(sandbox, &all, code)
}

#[test]
fn the_example_kernel_passes_and_a_wrong_one_does_not() {
    let sandbox = Sandbox::new();
    let said = example(&sandbox, None, &[], 0);
    assert!(said.contains("passed: 2 cases by kernel.py 1"), "{said}");
    let wrong = Some(("(q >> 4) - 8", "(q >> 4) - 7"));
    let said = example(&sandbox, wrong, &["--promise", "near"], 1);
    let line = "output row 0: 256 of 256 elements differ";
    assert!(said.contains(line), "{said}");
    // Sums in binary32: near, and not equal.
    let find = "total += (dw * dx) * sum(map(mul, w, x))";
    let replace = "total = struct.unpack(\"<f\", struct.pack(\"<f\", \
                   total + (dw * dx) * sum(map(mul, w, x))))[0]";
    let near = Some((find, replace));
    let said = example(&sandbox, near, &[], 1);
    assert!(said.contains("failed: 2 of 2 cases"), "{said}");
    let said = example(&sandbox, near, &["--promise", "near"], 0);
    assert!(said.contains("near, not bit-equal"), "{said}");
}
