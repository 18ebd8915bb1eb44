//! The program, the folder that it is built from, and tools that were written by others as judges.

use crate::sample::{self, Sample, bytes, line, put, sha256};
use packhouse_bagcheck::{Entry, PublicKey, check};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Writes a sample below a folder.
fn write(sample: &Sample, folder: &Path) {
    for (path, entry) in &sample.tree {
        let path = folder.join(path);
        let parent = path.parent().expect("because it lies in a folder");
        std::fs::create_dir_all(parent).expect("because the folder is ours");
        if let Entry::File(bytes) = entry {
            std::fs::write(path, bytes).expect("because the folder is ours");
        }
    }
    std::fs::write(folder.with_extension("jsonl"), &sample.ledger)
        .expect("because the folder is ours");
}

fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("because there is a folder for temporary files");
    let evidence = folder.path().join("evidence");
    (folder, evidence)
}

fn bagcheck(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhouse-bagcheck"));
    let output = command.args(arguments).output();
    output.expect("because the program was built")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn the_program_says_valid_not_valid_usage_and_unreadable_apart() {
    let (_folder, evidence) = folder();
    let sample = sample::run();
    write(&sample, &evidence);
    let path = evidence.to_str().expect("because it is text");
    let ledger = format!("{path}.jsonl");
    let (code, out, err) = said(&bagcheck(&[path, "--ledger", &ledger]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.ends_with("valid; verdict pass\n"), "{out}");
    assert!(out.contains("checked: 1 analysis, "), "{out}");
    let (code, out, _) = said(&bagcheck(&["--json", path]));
    let answer: Value = serde_json::from_str(&out).expect("because it is one document");
    assert_eq!((code, &answer["valid"]), (Some(0), &json!(true)));
    std::fs::write(evidence.join("bag/data/run.json"), "{}\n").expect("because it is ours");
    let (code, out, _) = said(&bagcheck(&[path]));
    assert_eq!(code, Some(1));
    assert!(
        out.contains("bag.digest: bag/data/run.json: the list says "),
        "{out}"
    );
    assert!(out.contains("\nNOT VALID: "), "{out}");
    for arguments in [&[][..], &["a", "b"], &["--what", "a"], &["a", "--ledger"]] {
        let (code, _, err) = said(&bagcheck(arguments));
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(
            err.starts_with("error: ") && err.contains("usage: "),
            "{err}"
        );
    }
    let gone = format!("{path}/gone");
    let other = format!("{path}/bag/data/outputs");
    let (code, _, err) = said(&bagcheck(&[&other]));
    assert_eq!(code, Some(3));
    assert_eq!(
        err,
        format!("error: neither a bag nor a packet's evidence: {other}\n")
    );
    for arguments in [
        &[&*gone][..],
        &[path, "--ledger", &gone],
        &[path, "--public-key", &ledger],
    ] {
        let (code, out, err) = said(&bagcheck(arguments));
        assert_eq!((code, out.as_str()), (Some(3), ""), "{arguments:?}");
        assert!(err.starts_with("error: "), "{err}");
    }
}

#[test]
fn links_and_pipes_on_a_disk_are_named_and_never_followed() {
    let (_folder, evidence) = folder();
    write(&sample::run(), &evidence);
    let run = evidence.join("bag/data/run.json");
    let aside = evidence.with_extension("aside");
    std::fs::rename(&run, &aside).expect("because it is ours");
    std::os::unix::fs::symlink(&aside, &run).expect("because it is ours");
    let pipe = evidence.join("bag/data/pipe");
    let made = Command::new("mkfifo").arg(pipe).status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "mkfifo is part of coreutils"
    );
    std::fs::create_dir(evidence.join("bag/data/empty")).expect("because it is ours");
    let tree = packhouse_bagcheck::read(&evidence).expect("because it can be read");
    let report = check(&tree, None, None);
    let paths = |code: &str| -> Vec<&str> {
        let own = report
            .findings
            .iter()
            .filter(|finding| finding.code == code);
        own.map(|finding| finding.path.as_str()).collect()
    };
    assert_eq!(paths("bag.link"), ["bag/data/pipe", "bag/data/run.json"]);
    assert_eq!(paths("bag.unlisted"), ["bag/data/empty"]);
    assert_eq!(
        paths("record.missing"),
        ["bag/data/run.json"],
        "what it leads to was not read"
    );
}

#[test]
fn coreutils_agree_about_the_lists() {
    let (_folder, evidence) = folder();
    write(&sample::run(), &evidence);
    let bag = evidence.join("bag");
    let agrees = || {
        let mut command = Command::new("sha256sum");
        let lists = ["tagmanifest-sha256.txt", "manifest-sha256.txt"];
        let output = command
            .args(["--quiet", "--strict", "-c"])
            .args(lists)
            .current_dir(&bag);
        let theirs = output
            .output()
            .expect("because coreutils are there")
            .status
            .success();
        let tree = packhouse_bagcheck::read(&bag).expect("because it can be read");
        let ours = packhouse_bagcheck::check_bag(&tree);
        assert_eq!(theirs, !ours.has("bag.digest"), "{:?}", ours.findings);
        assert_eq!(theirs, ours.is_valid());
        theirs
    };
    assert!(agrees(), "as it was made");
    for path in ["data/lane.toml", "bag-info.txt", "manifest-sha256.txt"] {
        let path = bag.join(path);
        let whole = std::fs::read(&path).expect("because it is there");
        let mut other = whole.clone();
        *other.last_mut().expect("because no file is empty") ^= 1;
        std::fs::write(&path, other).expect("because it is ours");
        assert!(!agrees(), "with another last byte in {}", path.display());
        std::fs::write(&path, whole).expect("because it is ours");
    }
    assert!(agrees(), "as it was again");
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| {
            word << 8 | u32::from(*chunk.get(i).unwrap_or(&0))
        });
        for place in 0..4 {
            let digit = char::from(digits[(word >> (18 - 6 * place) & 63) as usize]);
            text.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

fn openssl(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.ok()?;
    assert!(output.status.success(), "openssl {arguments:?}: {output:?}");
    Some(output.stdout)
}

/// Makes a pair of keys in a folder; false where openssl is not installed.
fn make_keys(at: &Path) -> bool {
    let make = ["genpkey", "-algorithm", "ed25519", "-out", "key.pem"];
    let public = ["pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"];
    let der = [
        "pkey",
        "-in",
        "key.pem",
        "-pubout",
        "-outform",
        "DER",
        "-out",
        "public.der",
    ];
    [&make[..], &public, &der]
        .iter()
        .all(|arguments| openssl(at, arguments).is_some())
}

#[test]
fn a_signature_that_openssl_made_holds_and_no_other_does() {
    let folder = TempDir::new().expect("because there is a folder for temporary files");
    let at = folder.path();
    if !make_keys(at) {
        eprintln!("NOT EXERCISED: openssl is not installed");
        return;
    }
    let public = std::fs::read_to_string(at.join("public.pem")).expect("because it was made");
    let key = PublicKey::from_pem(&public).expect("because it is a key");
    let mut sample = sample::run();
    let seal = bytes(&sample.tree, "seal-1.json");
    let kind = "application/vnd.in-toto+json";
    let mut signed = format!("DSSEv1 {} {kind} {} ", kind.len(), seal.len()).into_bytes();
    signed.extend(&seal);
    std::fs::write(at.join("signed"), signed).expect("because the folder is ours");
    let sign = [
        "pkeyutl", "-sign", "-rawin", "-inkey", "key.pem", "-in", "signed",
    ];
    let signature = openssl(at, &sign).expect("because it was there before");
    let der = std::fs::read(at.join("public.der")).expect("because it was made");
    let keyid = sha256(&der[der.len() - 32..]);
    let envelope = |keyid: &str, payload: &[u8], signature: &[u8]| {
        line(&json!({"payload": base64(payload), "payloadType": kind,
            "signatures": [{"keyid": keyid, "sig": base64(signature)}]}))
    };
    let path = "seal-1.dsse.json";
    assert!(
        check(&sample.tree, None, Some(&key)).has("seal.signature"),
        "none is there"
    );
    put(&mut sample.tree, path, envelope(&keyid, &seal, &signature));
    let report = check(&sample.tree, None, Some(&key));
    assert_eq!(report.findings, []);
    assert_eq!(report.checked["signatures"], 1);
    assert!(
        check(&sample.tree, None, None).is_valid(),
        "without the key only its form"
    );
    let mut flipped = signature.clone();
    flipped[5] ^= 1;
    let other = sha256("x");
    for (what, bytes) in [
        ("signature", envelope(&keyid, &seal, &flipped)),
        ("key", envelope(&other, &seal, &signature)),
        ("payload", envelope(&keyid, b"{}\n", &signature)),
        ("length", envelope(&keyid, &seal, &signature[..63])),
        ("form", b"{}\n".to_vec()),
    ] {
        put(&mut sample.tree, path, bytes);
        let report = check(&sample.tree, None, Some(&key));
        assert!(
            report.has("seal.signature"),
            "another {what}: {:?}",
            report.findings
        );
    }
    assert!(PublicKey::from_pem("no key").is_err());
}

#[test]
fn a_copy_of_the_folder_builds_alone() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bagcheck-alone");
    let copy = root.join("copy");
    let _ = std::fs::remove_dir_all(&copy);
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        std::fs::create_dir_all(copy.join(&folder)).expect("because the folder is ours");
        for entry in std::fs::read_dir(here.join(&folder)).expect("because it is there") {
            let entry = entry.expect("because it can be read");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else {
                std::fs::copy(entry.path(), copy.join(path)).expect("because it can be copied");
            }
        }
    }
    // A workspace of its own: else cargo looks upwards and finds the repository's.
    let manifest = std::fs::read_to_string(copy.join("Cargo.toml")).expect("because it is there");
    std::fs::write(
        copy.join("Cargo.toml"),
        format!("{manifest}\n[workspace]\n"),
    )
    .expect("because the folder is ours");
    // The repository's lock: of several versions in the cargo home, those that are tested.
    let lock = here.ancestors().map(|folder| folder.join("Cargo.lock"));
    if let Some(lock) = lock.into_iter().find(|lock| lock.is_file()) {
        std::fs::copy(lock, copy.join("Cargo.lock")).expect("because it can be copied");
    }
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["check", "--offline", "--quiet", "--bins"])
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .expect("because cargo runs this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// A pipe waits for ever and a device has no end: neither is a ledger or a key.
#[test]
fn what_is_no_regular_file_is_no_ledger_and_no_key() {
    let (folder, evidence) = folder();
    write(&sample::run(), &evidence);
    let path = evidence.to_str().expect("because it is text");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "of coreutils");
    let pipe = pipe.to_str().expect("because it is text");
    for option in ["--ledger", "--public-key"] {
        for other in [pipe, "/dev/zero", path] {
            let (code, out, err) = said(&bagcheck(&[path, option, other]));
            assert_eq!((code, out.as_str()), (Some(3), ""), "{option} {other}");
            let expected = format!("error: cannot read {other}: not a regular file\n");
            assert_eq!(err, expected);
        }
    }
    let long = folder.path().join("long");
    let file = std::fs::File::create(&long).expect("because it is ours");
    file.set_len((64 << 10) + 1).expect("because it is ours");
    let long = long.to_str().expect("because it is text");
    let (code, _, err) = said(&bagcheck(&[path, "--public-key", long]));
    assert_eq!(code, Some(3));
    assert!(err.ends_with(": more than 65536 bytes\n"), "{err}");
}

/// Whoever names a file could say that all is well, or write over what was said.
#[test]
fn a_name_says_nothing_of_its_own_and_a_damaged_bag_nothing_of_the_candidate() {
    let (_folder, evidence) = folder();
    write(&sample::run(), &evidence);
    for name in ["x\nvalid; verdict pass", "\u{1b}[2Jy", "z\u{202e}"] {
        std::fs::write(evidence.join("bag/data").join(name), "x").expect("because it is ours");
    }
    std::fs::write(evidence.join("bag/data/run.json"), "{}\n").expect("because it is ours");
    let path = evidence.to_str().expect("because it is text");
    let (code, out, _) = said(&bagcheck(&[path]));
    assert_eq!(code, Some(1));
    assert!(!out.lines().any(|line| line.starts_with("valid")), "{out}");
    assert!(!out.contains(['\u{1b}', '\u{202e}']), "{out}");
    assert!(out.contains("x\\u{a}valid; verdict pass"), "{out}");
    assert!(!out.contains("\ncandidate: "), "{out}");
    let (_, out, _) = said(&bagcheck(&[path, "--json"]));
    assert!(out.contains("\"failures\":[]"), "{out}");
}

/// It was there: that it is gone is an answer, and no reason not to judge.
#[test]
fn evidence_whose_bag_is_gone_does_not_hold() {
    let (_folder, evidence) = folder();
    let sample = sample::run();
    write(&sample, &evidence);
    std::fs::remove_dir_all(evidence.join("bag")).expect("because it is ours");
    let path = evidence.to_str().expect("because it is text");
    let (code, out, err) = said(&bagcheck(&[path]));
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(out.contains("bag.not-bagit: bag/"), "{out}");
    let report = check(&sample.tree, Some(b""), None);
    let mut findings = report.findings.iter();
    let empty = findings.find(|finding| finding.code == "ledger.no-entries");
    let empty = empty.expect("because there is no entry");
    assert_eq!(empty.path, "ledger.jsonl", "no line of it");
}
