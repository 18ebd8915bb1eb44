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
    let done =
        "cause: the command came to its end: what it did is done, and only its words are lost\n";
    assert!(said.contains(done), "{said}");
}

/// Names in a model are another's text: what a terminal would obey is spelled out, in tables and in
/// errors, and no line of ours is forged.
#[test]
fn names_can_not_move_the_cursor_or_forge_a_line() {
    let sandbox = Sandbox::new();
    let evil: &[u64] = &[32, 16];
    model::write(
        &sandbox.path("m.gguf"),
        &[
            ("a\u{1b}[31mred\nhint: rm -r ~", "Q4_0", evil),
            ("b\u{202e}\u{9b}2J", "F32", evil),
        ],
        &[],
    );
    let plan = |name: &str, otherwise: &str, expect: &str| {
        let text = format!(
            "name = \"{name}\"\nversion = 1\nsummary = \"s\"\n[[rule]]\nid = \"r\"\n\
             tensor = '.*'\nlayout = \"q4_0-reordered-v1\"\nslot = \"index\"\n\
             otherwise = \"{otherwise}\"\n{expect}"
        );
        std::fs::write(sandbox.path(&format!("{name}.toml")), text).unwrap();
    };
    plan("leave", "leave", "");
    plan("refuse", "refuse", "");
    plan("expect", "leave", "expect = \"x\\u001b]0;y\\u0007\"\n");
    let lines: [&[&str]; 5] = [
        &["inspect", "m.gguf", "--tensors"],
        &["inspect", "m.gguf", "--plan", "leave.toml", "--tensors"],
        &["inspect", "m.gguf", "--plan", "refuse.toml"],
        &["inspect", "m.gguf", "--plan", "expect.toml"],
        &["inspect", "m.gguf", "--plan", "no\u{1b}[31m.toml"],
    ];
    for words in lines {
        let output = sandbox.command(words).output().unwrap();
        for stream in [output.stdout, output.stderr] {
            let said = String::from_utf8(stream).unwrap();
            let obeyed = said
                .chars()
                .find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
            assert_eq!(obeyed, None, "{words:?}: {said}");
            assert!(!said.contains("\nhint: rm"), "{words:?}: {said}");
        }
    }
    let shown = sandbox.command(lines[0]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("a\\u{1b}[31mred\\u{a}hint: rm -r ~  Q4_0"),
        "{shown}"
    );
    assert!(shown.contains("b\\u{202e}\\u{9b}2J"), "{shown}");
}
