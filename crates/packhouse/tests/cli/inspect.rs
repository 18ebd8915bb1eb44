//! `inspect` on good and bad containers.

use crate::model;
use crate::sandbox::Sandbox;
use packhouse_container::gguf::Value;

const TENSORS: [(&str, &str, &[u64]); 6] = [
    ("token_embd.weight", "Q8_0", &[64, 32]),
    ("blk.0.attn_norm.weight", "F32", &[64]),
    ("blk.0.attn_q.weight", "Q5_K", &[256, 64]),
    ("blk.0.ffn_up.weight", "Q6_K", &[256, 24]),
    ("output_norm.weight", "F32", &[64]),
    ("output.weight", "F16", &[64, 32]),
];

#[test]
fn a_container_is_shown_by_type_and_by_tensor() {
    let sandbox = Sandbox::new();
    model::write(&sandbox.path("m.gguf"), &TENSORS, &[]);
    sandbox.session(
        "inspect",
        &[
            &["inspect", "m.gguf"],
            &["inspect", "m.gguf", "--tensors"],
            &["inspect", "m.gguf", "--json"],
        ],
    );
}

#[test]
fn a_container_that_is_none_is_refused_with_its_reason() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("text.gguf"), "not a model, but long enough").unwrap();
    std::fs::write(sandbox.path("empty.gguf"), "").unwrap();
    model::write(&sandbox.path("cut.gguf"), &TENSORS, &[]);
    let bytes = std::fs::read(sandbox.path("cut.gguf")).unwrap();
    std::fs::write(sandbox.path("cut.gguf"), &bytes[..bytes.len() - 4096]).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(sandbox.path("pipe.gguf"))
        .status();
    assert!(made.expect("because mkfifo is in coreutils").success());
    sandbox.session(
        "inspect-refused",
        &[
            &["inspect"],
            &["inspect", "missing.gguf"],
            &["inspect", "home"],
            &["inspect", "pipe.gguf"],
            &["inspect", "empty.gguf"],
            &["inspect", "text.gguf"],
            &["inspect", "cut.gguf", "--json"],
        ],
    );
}

#[test]
fn shards_are_found_and_a_missing_one_is_named() {
    let sandbox = Sandbox::new();
    let shard = |no: u16| {
        let split = [
            ("split.no", Value::U16(no)),
            ("split.count", Value::U16(2)),
            ("split.tensors.count", Value::I32(6)),
        ];
        let at = usize::from(no) * 3;
        let path = sandbox.path(&format!("m-0000{}-of-00002.gguf", no + 1));
        model::write(&path, &TENSORS[at..at + 3], &split);
    };
    shard(0);
    let first = "m-00001-of-00002.gguf";
    let missing = sandbox.command(&["inspect", first]).output().unwrap();
    assert_eq!(missing.status.code(), Some(3));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(
        said.starts_with("error: cannot open the model: m-00002-of-00002.gguf\n"),
        "{said}"
    );
    shard(1);
    sandbox.session("inspect-shards", &[&["inspect", first]]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_is_packed_depends_on_this_cpu() {
    let sandbox = Sandbox::new();
    model::write(
        &sandbox.path("m.gguf"),
        &[("blk.0.attn_q.weight", "Q4_0", &[64, 32])],
        &[],
    );
    let output = sandbox.command(&["inspect", "m.gguf"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let packed = u8::from(std::arch::is_x86_feature_detected!("avx2"));
    assert!(
        said.contains(&format!("packs {packed} of 1 tensors")),
        "{said}"
    );
}

/// A table piped into `head` ends when the reader went away: that is no failure.
#[test]
fn a_reader_that_went_away_is_no_failure() {
    let sandbox = Sandbox::new();
    model::write(&sandbox.path("m.gguf"), &TENSORS, &[]);
    let mut child = sandbox
        .command(&["inspect", "m.gguf", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_stdout_that_is_full_is_a_failure() {
    let sandbox = Sandbox::new();
    model::write(&sandbox.path("m.gguf"), &TENSORS, &[]);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = sandbox
        .command(&["inspect", "m.gguf"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("error: cannot write the answer: stdout\ncause: No space"),
        "{said}"
    );
}
