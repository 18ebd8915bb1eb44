//! The ledger of a lab from outside: lanes, notes, corrections, and what is said when the file was
//! cut, rewritten, torn, locked, or written by many at once.

use crate::sandbox::Sandbox;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{
    Armed, Closed, Consumed, Name, Nonce, Record, Registered, Rehearsed, Review, Reviewed, Sealed,
    Verdict,
};
use packhouse_ledger::{Act, Writer};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, Fs as _, LockKind};
use packhouse_sys::real::RealFs;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A lab with an open lane, `example`, and a home that has seen it.
struct World {
    sandbox: Sandbox,
    lab: PathBuf,
    /// A home on a disk: a `/tmp` may be in RAM, where no marker is taken.
    home: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let lab = sandbox.path("lab");
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let home = home.expect("because cargo made that folder");
        let world = Self { sandbox, lab, home };
        std::fs::create_dir(&world.lab).expect("because the sandbox is ours");
        world.done(&["init", "--execute"]);
        world.done(&["lane", "open", "example", "--reason", "first", "--execute"]);
        world
    }

    fn ledger(&self) -> PathBuf {
        self.lab.join("ledger.jsonl")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.ledger()).expect("because a lab has one")
    }

    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.ledger(), bytes).expect("because it is ours");
    }

    /// Appends an act that no command would.
    fn append(&self, act: impl Into<Act>) {
        let mut writer =
            Writer::open(&self.folder(), None, &RealClock).expect("because it is free");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.expect("because Linux has one");
        writer
            .append(act, RealClock.wall_ns(), boot.trim())
            .expect("because it contradicts nothing");
    }

    /// Enters a green rehearsal of `example` by this program on this boot, and an approval.
    fn rehearsed(&self) {
        let list = self.json(&["ledger", "ls"], 0);
        let packet = list["entries"][2]["body"]["packet"].as_str();
        let packet = packet.and_then(|packet| Digest::parse(packet).ok());
        let packet = packet.expect("because it is registered");
        let program = std::fs::read(env!("CARGO_BIN_EXE_packhouse"));
        let program = Digest::of(&program.expect("because cargo built it"));
        self.append(green(packet, program));
        let (reviewer, verdict) = ("ada".to_owned(), Review::Approve);
        self.append(Reviewed {
            packet,
            reviewer,
            verdict,
            note: String::new(),
            rehearsal: 3,
        });
    }

    fn folder(&self) -> Dir {
        let mut dir = RealFs.root().expect("because there is a root");
        for part in self.lab.iter().skip(1) {
            dir = dir.open_dir(part).expect("because the lab is there");
        }
        dir
    }

    fn lab_command(&self, words: &[&str]) -> Command {
        let words: Vec<&str> = ["lab"].iter().chain(words).copied().collect();
        self.settled(self.sandbox.command(&words))
    }

    fn settled(&self, mut command: Command) -> Command {
        command.current_dir(&self.lab).env("HOME", self.home.path());
        command
    }

    /// What this user has seen of ledgers is gone.
    fn forget(&self) {
        std::fs::remove_dir_all(self.home.path().join(".local/state/packhouse/lab/heads"))
            .expect("because the head was noted there");
    }

    fn run(&self, mut command: Command) -> Output {
        command.output().expect("because the command was built")
    }

    /// Runs a command that must end with this code; what it said on both streams.
    fn ends(&self, words: &[&str], exit: i32) -> String {
        said(&self.run(self.lab_command(words)), exit)
    }

    fn done(&self, words: &[&str]) -> String {
        self.ends(words, 0)
    }

    /// Runs a command that is refused in these words, and writes nothing.
    fn refuses(&self, words: &[&str], exit: i32, expected: &str) {
        let before = self.bytes();
        let text = self.ends(words, exit);
        assert!(
            text.starts_with("error: ") && text.contains(expected),
            "{text}"
        );
        assert_eq!(self.bytes(), before);
    }

    fn json(&self, words: &[&str], exit: i32) -> Value {
        let words: Vec<&str> = words.iter().chain(&["--json"]).copied().collect();
        serde_json::from_str(&self.ends(&words, exit)).expect("because it is one document")
    }
}

fn said(output: &Output, exit: i32) -> String {
    let text = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream));
    assert_eq!(output.status.code(), Some(exit), "{}", text.concat());
    text.concat()
}

#[test]
fn without_execute_nothing_is_written_and_what_stays_is_named() {
    let world = World::new();
    let before = world.bytes();
    for words in [
        &[
            "lane",
            "pause",
            "example",
            "--reason",
            "x",
            "--until",
            "2199-12-24",
        ][..],
        &[
            "lane",
            "block",
            "example",
            "--reason",
            "x",
            "--until",
            "2199-12-24",
        ],
        &["lane", "close", "example", "--reason", "x"],
        &["ledger", "note", "a word", "--lane", "example"],
        &["ledger", "correct", "1", "a word"],
    ] {
        let text = world.done(words);
        assert!(text.starts_with("would: "), "{text}");
        assert!(text.contains("\nirreversible: "), "{text}");
        let (_, command) = text
            .split_once("do it: packhouse lab ")
            .expect("because it says how");
        assert!(command.trim_end().ends_with("--execute"), "{text}");
        assert_eq!(world.bytes(), before);
        // The command that it names does it.
        let mut shell = world.sandbox.shell(&format!("\"$0\" lab {command}"), &[]);
        shell.current_dir(&world.lab).env("HOME", world.home.path());
        let text = said(&world.run(shell), 0);
        assert!(text.starts_with("done: "), "{text}");
        assert!(world.bytes().starts_with(&before) && world.bytes() != before);
        world.put(&before);
        world.forget();
    }
}

#[test]
fn a_lane_is_opened_once_and_each_refusal_says_why() {
    let world = World::new();
    let refused = |words: &[&str], exit, expected| world.refuses(words, exit, expected);
    let act = |action: &'static str, lane: &'static str, more: &[&'static str]| {
        let words = ["lane", action, lane, "--reason", "it's over", "--execute"];
        [&words, more].concat()
    };
    refused(
        &act("open", "example", &[]),
        3,
        "lane example was opened by entry 1",
    );
    refused(&act("open", "none", &[]), 3, "lanes/none.toml: not there");
    refused(
        &act("open", "../lab", &[]),
        2,
        "not an id of a lane: ../lab",
    );
    refused(
        &act("resume", "example", &[]),
        3,
        "lane example is open: there is nothing to resume",
    );
    refused(&["lane", "pause", "example", "--reason", "x"], 2, "--until");
    refused(
        &["lane", "close", "example", "--reason", " "],
        2,
        "says nothing: --reason",
    );
}

#[test]
fn a_wait_has_a_day_to_come_and_a_closed_lane_stays_closed() {
    let world = World::new();
    let refused = |words: &[&str], exit, expected| world.refuses(words, exit, expected);
    let act = |action: &'static str, lane: &'static str, more: &[&'static str]| {
        let words = ["lane", action, lane, "--reason", "it's over", "--execute"];
        [&words, more].concat()
    };
    let until = ["--until", "2199-12-24"];
    refused(
        &act("pause", "none", &until),
        3,
        "lane none was never opened",
    );
    refused(
        &act("pause", "example", &["--until", "2026-02-30"]),
        2,
        "not a day as YYYY-MM-DD",
    );
    // A day that is over is nothing to wait for.
    let over = act("pause", "example", &["--until", "2020-01-01"]);
    refused(&over, 2, "a day that is over for --until: 2020-01-01");
    refused(
        &over,
        2,
        "hint: packhouse lab lane resume example --reason TEXT",
    );
    world.done(&act("pause", "example", &until));
    let list = world.json(&["lane", "ls"], 0);
    let lane = &list["lanes"][0];
    assert_eq!(
        (&lane["state"], &lane["until"]),
        (&"paused".into(), &"2199-12-24".into())
    );
    assert_eq!(lane["reason"], "it's over");
    world.done(&act("resume", "example", &[]));
    world.done(&act("close", "example", &[]));
    refused(
        &act("resume", "example", &[]),
        3,
        "lane example was closed by entry 4, for good",
    );
    let text = world.done(&["lane", "ls"]);
    assert!(text.contains("example  closed  -"), "{text}");
    world.done(&[
        "ledger",
        "note",
        "it was a good lane",
        "--lane",
        "example",
        "--execute",
    ]);
}

#[test]
fn a_ledger_that_was_cut_rewritten_or_forked_is_refused_and_left_as_it_is() {
    let world = World::new();
    let short = world.bytes();
    world.done(&["ledger", "note", "one", "--execute"]);
    let whole = world.bytes();
    // The last entry edited: its own chain is whole, and only the memory knows better.
    let edited = String::from_utf8(whole.clone()).expect("because JSON is text");
    let edited = edited.replace("\"text\":\"one\"", "\"text\":\"two\"");
    let mut without_newline = whole.clone();
    without_newline.pop();
    for (name, bytes) in [
        ("cut", short.as_slice()),
        ("rewritten", edited.as_bytes()),
        ("its last newline gone", &without_newline),
    ] {
        world.put(bytes);
        for words in [
            &["ledger", "ls"][..],
            &["lane", "ls"],
            &["ledger", "note", "x", "--execute"],
        ] {
            let text = world.ends(words, 3);
            let expected = "cause: truncated, rewritten or forked: you have seen entry 2";
            assert!(text.contains(expected), "{name}: {text}");
            assert!(
                text.ends_with("hint: packhouse lab ledger verify\n"),
                "{text}"
            );
        }
        let report = world.json(&["ledger", "verify"], 1);
        assert_eq!(report["findings"][0]["code"], "ledger.head", "{name}");
        assert_eq!(world.bytes(), bytes, "{name}");
    }
    // An older entry edited: the chain itself tells.
    let text = String::from_utf8(whole.clone()).expect("because JSON is text");
    world.put(text.replace("first", "fjrst").as_bytes());
    let report = world.json(&["ledger", "verify"], 1);
    assert_eq!(report["findings"][0]["code"], "ledger.previous");
    assert_eq!(report["findings"][0]["path"], "ledger.jsonl:3");
    world.put(&whole);
    let report = world.json(&["ledger", "verify"], 0);
    assert_eq!(
        (&report["valid"], &report["checked"]["entries"]),
        (&true.into(), &3.into())
    );
}

#[test]
fn an_earlier_copy_must_be_a_prefix_and_it_is_said_how_it_is_not() {
    let world = World::new();
    let earlier = world.sandbox.path("earlier.jsonl");
    std::fs::write(&earlier, world.bytes()).expect("because the folder is ours");
    world.done(&["ledger", "note", "one", "--execute"]);
    let one = world.bytes();
    let file = earlier.to_str().expect("because it is plain text");
    let verify = ["ledger", "verify", "--previous", file];
    world.done(&verify);
    // Somebody else's home has not seen it, so only the copy can tell.
    std::fs::write(&earlier, &one).expect("because the folder is ours");
    let text = String::from_utf8(one).expect("because JSON is text");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    world.forget();
    world.put(lines[..2].concat().as_bytes());
    let report = world.json(&verify, 1);
    let words = &report["findings"][0]["words"];
    assert_eq!(
        words,
        "truncated: 2 entries, where the earlier ledger has 3"
    );
    world.forget();
    world.done(&["ledger", "note", "another", "--execute"]);
    let report = world.json(&verify, 1);
    let words = report["findings"][0]["words"]
        .as_str()
        .expect("because they are words");
    assert!(words.starts_with("forked at entry 2: "), "{words}");
    let text = world.ends(&["ledger", "verify", "--previous", "/nowhere/at/all"], 3);
    assert!(
        text.starts_with("error: cannot read: /nowhere/at/all\n"),
        "{text}"
    );
}

#[test]
fn a_torn_append_is_told_by_readers_and_cut_by_the_next_writer() {
    let world = World::new();
    let whole = world.bytes();
    world.put(&[whole.as_slice(), b"{\"at_ns\":17"].concat());
    let text = world.done(&["ledger", "ls"]);
    let words = "cut off 11 bytes of an append that was never reported";
    assert!(text.contains(words), "{text}");
    assert_eq!(world.json(&["ledger", "ls"], 0)["torn_bytes"], 11);
    let text = world.done(&["ledger", "verify"]);
    assert!(
        text.contains("note: the next command that appends will cut off 11 bytes"),
        "{text}"
    );
    let text = world.done(&["ledger", "note", "one", "--execute"]);
    assert!(text.contains(&format!("done: {words}")), "{text}");
    let after = world.bytes();
    assert!(after.starts_with(&whole) && after.ends_with(b"}\n"));
    assert_eq!(world.json(&["ledger", "ls"], 0)["torn_bytes"], 0);
}

#[test]
fn who_holds_the_lock_is_the_one_writer() {
    let world = World::new();
    let lock = world.folder().open_file_writable("ledger.lock");
    let lock = lock.expect("because a writer made it");
    assert_eq!(lock.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let before = world.bytes();
    let text = world.ends(&["ledger", "note", "one", "--execute"], 3);
    assert!(
        text.contains("another process writes this ledger"),
        "{text}"
    );
    assert_eq!(world.bytes(), before);
    world.done(&["ledger", "ls"]);
    drop(lock);
    world.done(&["ledger", "note", "one", "--execute"]);
}

/// A refusal for want of the lock took a second.
const AGAIN_WHILE_REFUSED: &str = "left=60; while \"$0\" \"$@\"; code=$?; \
    [ $code = 3 ] && [ $left != 0 ]; do left=$((left - 1)); done; exit $code";

/// Sixteen writers at once, half of them killed at some instant: every note that was reported is
/// there once, no other is there twice, and the ledger holds. The others try again as long as they
/// are refused: on a slow disk a lock is held for longer than one of them waits.
#[test]
fn many_writers_at_once_and_kills_lose_nothing_that_was_reported() {
    let world = World::new();
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let text = format!("note {n}");
            let words = ["lab", "ledger", "note", &text, "--execute"];
            let mut command = match n % 2 {
                0 => world.settled(world.sandbox.command(&words)),
                _ => world.settled(world.sandbox.shell(AGAIN_WHILE_REFUSED, &words)),
            };
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            (
                text,
                command.spawn().expect("because the command was built"),
            )
        })
        .collect();
    let mut reported = Vec::new();
    for (n, (text, mut writer)) in writers.into_iter().enumerate() {
        if n % 2 == 0 {
            // At whatever instant it is: some are done, some wait for the lock.
            let _ = writer.kill();
        }
        let output = writer.wait_with_output();
        let output = output.expect("because it is our child");
        let is_reported = output.status.success();
        assert!(n % 2 == 0 || is_reported, "{text}: {output:?}");
        if is_reported {
            reported.push(text);
        }
    }
    let list = world.json(&["ledger", "ls"], 0);
    let notes: Vec<&str> = list["entries"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .filter_map(|entry| entry["body"]["text"].as_str())
        .collect();
    for text in &reported {
        assert!(
            notes.contains(&text.as_str()),
            "{text} was reported, and is not there"
        );
    }
    let mut distinct = notes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        notes.len(),
        "a note is there twice: {notes:?}"
    );
    world.done(&["ledger", "verify"]);
}

#[test]
fn notes_and_corrections_point_back_and_hostile_words_steer_no_terminal() {
    let world = World::new();
    let text = world.ends(&["ledger", "correct", "9", "x"], 3);
    assert!(
        text.contains("entry 9 is not there, so there is nothing to correct"),
        "{text}"
    );
    world.done(&["ledger", "note", "a\u{1b}[2Jb\u{202e}\nc | d", "--execute"]);
    world.done(&["ledger", "correct", "2", "it says nothing", "--execute"]);
    let text = world.ends(&["ledger", "correct", "3", "x", "--execute"], 3);
    assert!(text.contains("entry 3 is itself a correction"), "{text}");
    let text = world.done(&["ledger", "ls"]);
    assert!(
        text.contains("a\\u{1b}[2Jb\\u{202e}\\u{a}c | d (corrected by entry 3)"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 6, "no line of ours is forged: {text}");
    let text = world.ends(&["ledger", "note", "x", "--lane", "nope"], 3);
    assert!(text.contains("lane nope was never opened"), "{text}");
    assert!(text.contains("reason code ledger.lane-unknown"), "{text}");
}

#[test]
fn documents_that_changed_since_they_were_frozen_are_found() {
    let world = World::new();
    let lane = world.lab.join("lanes/example.toml");
    let bytes = std::fs::read(&lane).expect("because init wrote it");
    std::fs::write(&lane, [bytes.as_slice(), b"\n"].concat()).expect("because it is ours");
    let report = world.json(&["ledger", "verify"], 1);
    let found = &report["findings"][0];
    assert_eq!(
        (&found["code"], &found["path"]),
        (&"ledger.document".into(), &"lanes/example.toml".into())
    );
    std::fs::remove_file(&lane).expect("because it is ours");
    let report = world.json(&["ledger", "verify"], 1);
    assert_eq!(report["findings"][0]["words"], "not there");
    std::fs::write(&lane, bytes).expect("because it is ours");
    world.done(&["ledger", "verify"]);
}

#[test]
fn a_record_needs_a_packet_a_sealed_pass_and_its_evidence() {
    let world = World::new();
    let words = [
        "record", "example", "one", "--claim", "faster", "--width", "1",
    ];
    let text = world.ends(&words, 2);
    assert!(text.starts_with("error: no such packet: one\n"), "{text}");
    let digest = |n| Digest::from_bytes([n; 32]);
    let packet = digest(1);
    world.append(Registered {
        packet,
        experiment: Name::parse("one").expect("because it is a name"),
        lane: Name::parse("example").expect("because it is a name"),
        prereg: digest(2),
        treatment: "a faster kernel".to_owned(),
    });
    let text = world.ends(&words, 3);
    assert!(
        text.starts_with("error: no record without a sealed pass: one\n"),
        "{text}"
    );
    assert!(text.contains("cause: the packet is registered\n"), "{text}");
    world.append(green(packet, digest(5)));
    world.append(Armed {
        packet,
        rehearsal: 3,
        reviews: Vec::new(),
    });
    let nonce = digest(6);
    let markers = None;
    world.append(Nonce {
        packet,
        nonce,
        markers,
    });
    let note = &world.json(&["ledger", "verify"], 1)["notes"][0];
    assert_eq!(
        note,
        "one is nonce: a run is under way, or was killed (`lab seal`)"
    );
    let marker = digest(7);
    world.append(Consumed {
        packet,
        nonce,
        marker,
    });
    let bag = digest(8);
    world.append(Closed { packet, bag });
    world.append(Sealed {
        packet,
        verdict: Verdict::Pass,
        bag,
        analysis: digest(9),
        seal: digest(10),
        number: 1,
        stage: None,
        reason: String::new(),
    });
    let text = world.ends(&words, 3);
    assert!(text.starts_with("error: cannot read evidence: "), "{text}");
    // A sealed packet without its evidence is no valid lab.
    let report = world.json(&["ledger", "verify"], 1);
    let found = report["findings"].as_array().expect("because it is a list");
    let missing = found.iter().find(|one| one["code"] == "ledger.evidence");
    let missing = missing.expect("because the evidence is not there");
    assert_eq!(missing["path"], format!("evidence/{packet}"));
}

/// A green rehearsal of a packet.
fn green(packet: Digest, analyzer: Digest) -> Rehearsed {
    Rehearsed {
        packet,
        green: true,
        stage: None,
        reason: String::new(),
        bag: Some(Digest::from_bytes([3; 32])),
        analysis: Some(Digest::from_bytes([4; 32])),
        analyzer,
        tampers: 1,
        rejected: 1,
        elapsed_ns: 1,
        detectable_ns: None,
    }
}

/// The words of `lab record` of `example`.
fn record<'a>(key: &'a str, width: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = [
        "record", key, "example", "--claim", "all bits", "--width", width,
    ];
    [&words, more].concat()
}

/// From a lab that was just made to a record, by the real program and its own kernels. Rehearsals
/// have their own tests: this one's is an entry.
#[test]
fn a_sealed_pass_becomes_a_record_of_what_it_gated_and_of_nothing_else() {
    let world = World::new();
    world.done(&["register", "example", "--execute"]);
    world.rehearsed();
    world.done(&["arm", "example", "--execute"]);
    world.done(&["run", "example", "--execute"]);
    let report = world.json(&["ledger", "verify"], 0);
    assert_eq!(
        (&report["checked"]["bags"], &report["checked"]["seals"]),
        (&1.into(), &1.into())
    );
    let text = world.ends(&record("example", "9", &[]), 3);
    assert!(
        text.starts_with("error: a width that was not gated: 9\n"),
        "{text}"
    );
    assert!(
        text.contains("cause: packet example gated widths 1, 4\n"),
        "{text}"
    );
    let text = world.ends(&record("other", "1", &[]), 3);
    assert!(
        text.starts_with("error: not the key of the packet's lane: other\n"),
        "{text}"
    );
    let text = world.done(&record("example", "4", &["--width", "1", "--width", "4"]));
    assert!(
        text.starts_with("would: record example at widths 1, 4: all bits, by packet "),
        "{text}"
    );
    let done = world.json(&record("example", "4", &["--width", "1", "--execute"]), 0);
    assert_eq!(done["body"]["widths"], serde_json::json!([1, 4]));
    let entry = done["entry"].to_string();
    let text = world.ends(&record("example", "1", &["--execute"]), 3);
    assert!(
        text.contains(&format!("entry {entry} is the current record of example")),
        "{text}"
    );
    assert!(
        text.trim_end().ends_with(&format!("--supersedes {entry}")),
        "{text}"
    );
    let text = world.ends(
        &record("example", "1", &["--supersedes", "2", "--execute"]),
        3,
    );
    assert!(
        text.contains("the current record of \"example\" is entry"),
        "{text}"
    );
    no_record_of_evidence_that_does_not_hold(&world, &entry);
    evidence_is_named_by_its_packet(&world);
    a_record_by_hand_is_compared_with_what_was_sealed(&world, &done);
}

/// What a page says to type works where it is typed, with the ledger and without.
fn evidence_is_named_by_its_packet(world: &World) {
    let list = world.json(&["ledger"], 0);
    let packet = list["entries"][2]["body"]["packet"].as_str();
    let packet = packet.expect("because it is registered");
    let folder = format!("evidence/{packet}");
    for name in ["example", &packet[..12], &folder, packet] {
        let report = world.json(&["verify", name], 0);
        assert_eq!(report["verdict"], "pass", "{name}");
        let notes = report["notes"].to_string();
        assert!(!notes.contains("no ledger"), "{notes}");
        let report = world.json(&["verify", name, "--no-ledger"], 0);
        let notes = report["notes"].to_string();
        assert!(notes.contains("no ledger: what only it"), "{notes}");
    }
    let text = world.ends(&["verify", "another"], 2);
    assert!(
        text.starts_with("error: no evidence and no packet: another\n"),
        "{text}"
    );
}

/// An entry that no command makes: more widths than were asked, and another lane's key.
fn a_record_by_hand_is_compared_with_what_was_sealed(world: &World, done: &Value) {
    let digest = |field: &str| {
        let text = done["body"][field].as_str();
        let text = text.expect("because a record has it");
        Digest::parse(text).expect("because it is a digest")
    };
    for (key, widths, supersedes, code) in [
        (
            "example",
            vec![1, 4, 512],
            done["entry"].as_u64(),
            "ledger.record-width",
        ),
        ("another", vec![1], None, "ledger.record-key"),
    ] {
        let before = world.bytes();
        world.append(Record {
            key: key.to_owned(),
            packet: digest("packet"),
            seal: digest("seal"),
            claim: "all bits".to_owned(),
            widths,
            supersedes,
        });
        let report = world.json(&["ledger", "verify"], 1);
        let found = report["findings"].as_array().expect("because it is a list");
        let codes: Vec<&Value> = found.iter().map(|one| &one["code"]).collect();
        assert_eq!(codes, [code], "{report}");
        world.put(&before);
        world.forget();
    }
}

fn no_record_of_evidence_that_does_not_hold(world: &World, entry: &str) {
    let before = world.bytes();
    let evidence = world.lab.join("evidence");
    let packet = std::fs::read_dir(&evidence).expect("because a run left evidence");
    let packet = packet
        .flatten()
        .next()
        .expect("because there is one packet")
        .path();
    let seal = packet.join("seal-1.json");
    let sealed = std::fs::read(&seal).expect("because it is sealed");
    std::fs::remove_file(&seal).expect("because it is ours");
    let text = world.ends(&record("example", "1", &["--supersedes", entry]), 3);
    assert!(
        text.starts_with("error: evidence that does not hold: "),
        "{text}"
    );
    let report = world.json(&["ledger", "verify"], 1);
    let found = report["findings"].as_array().expect("because it is a list");
    let codes: Vec<_> = found.iter().map(|one| one["code"].clone()).collect();
    assert!(codes.contains(&"ledger.evidence".into()), "{codes:?}");
    std::fs::write(&seal, sealed).expect("because it is ours");
    world.done(&["ledger", "verify"]);
    assert_eq!(world.bytes(), before);
}

/// What CI asks of the ledger in Git.
#[test]
fn git_s_ledger_of_a_commit_must_be_a_prefix() {
    let world = World::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ledger.sh");
    std::fs::create_dir(world.lab.join("scripts")).expect("because the lab is ours");
    let copy = world.lab.join("scripts/ledger.sh");
    std::fs::copy(&script, copy).expect("because the repository has it");
    let shell = |line: &str, exit: i32| {
        let mut command = world.sandbox.shell(line, &[]);
        command.current_dir(&world.lab);
        said(&world.run(command), exit)
    };
    let git = "git -c user.name=n -c user.email=e@example.org -c commit.gpgsign=false";
    shell(
        &format!("{git} init -q . && {git} commit -q --allow-empty -m empty"),
        0,
    );
    let text = shell("scripts/ledger.sh HEAD", 0);
    assert!(text.contains("nothing to continue"), "{text}");
    shell(
        &format!("git add ledger.jsonl && {git} commit -q -m one"),
        0,
    );
    shell("scripts/ledger.sh HEAD", 0);
    let short = world.bytes();
    world.done(&["ledger", "note", "one", "--execute"]);
    let text = shell("scripts/ledger.sh HEAD", 0);
    assert!(
        text.contains(&format!("{} bytes of {}", short.len(), world.bytes().len())),
        "{text}"
    );
    let whole = world.bytes();
    world.put(&whole[..short.len() - 1]);
    let text = shell("scripts/ledger.sh HEAD", 1);
    assert!(text.starts_with("error: truncated since commit "), "{text}");
    // A copy elsewhere asks the repository of the ledger, and not its own.
    let elsewhere = format!("'{}' HEAD ledger.jsonl", script.display());
    let text = shell(&elsewhere, 1);
    assert!(text.starts_with("error: truncated since commit "), "{text}");
    let mut edited = whole.clone();
    let at = short.len() - 5;
    edited[at] ^= 1;
    world.put(&edited);
    let text = shell("scripts/ledger.sh HEAD", 1);
    assert!(
        text.contains("rewritten or forked") && text.contains("from entry 1 on"),
        "{text}"
    );
    std::fs::remove_file(world.ledger()).expect("because it is ours");
    let text = shell("scripts/ledger.sh HEAD", 1);
    assert!(text.contains("is gone"), "{text}");
    let text = shell("scripts/ledger.sh nothing", 3);
    assert!(text.contains("no such commit: nothing"), "{text}");
    for usage in ["scripts/ledger.sh", "scripts/ledger.sh -x.jsonl"] {
        let text = shell(usage, 2);
        assert!(text.contains("usage: "), "{text}");
    }
}

/// A ledger that is gone, or was cut, in the newest commit is held against the parent's, which a
/// shallow clone has to fetch. A check of the tree alone was green.
#[test]
fn a_commit_without_its_ledger_is_held_against_its_parents() {
    let world = World::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ledger.sh");
    std::fs::create_dir(world.lab.join("scripts")).expect("because the lab is ours");
    let copy = world.lab.join("scripts/ledger.sh");
    std::fs::copy(&script, copy).expect("because the repository has it");
    let shell = |line: &str, exit: i32| {
        let mut command = world.sandbox.shell(line, &[]);
        command.current_dir(&world.lab);
        said(&world.run(command), exit)
    };
    let git = "git -c user.name=n -c user.email=e@example.org -c commit.gpgsign=false";
    let begin = format!("{git} init -q . && git add ledger.jsonl && {git} commit -q -m one");
    shell(&begin, 0);
    let text = shell("scripts/ledger.sh --all", 0);
    assert!(text.contains("continues that of commit"), "{text}");
    let whole = world.bytes();
    std::fs::remove_file(world.ledger()).expect("because it is ours");
    shell(&format!("{git} commit -q -a -m gone"), 0);
    let text = shell("scripts/ledger.sh --all", 1);
    assert!(text.contains("is gone"), "{text}");
    world.put(&whole[..whole.len() - 1]);
    shell(
        &format!("git add ledger.jsonl && {git} commit -q --amend -m cut"),
        0,
    );
    let clone = "git clone -q --depth 1 \"file://$PWD\" clone && cp -r scripts clone";
    let text = shell(
        &format!("{clone} && cd clone && scripts/ledger.sh --all"),
        1,
    );
    assert!(text.contains("error: truncated since commit "), "{text}");
    let alone = format!(
        "{} && cd other && git remote set-url origin file:///nowhere",
        clone
            .replace(" clone", " other")
            .replace("git other", "git clone")
    );
    let text = shell(&format!("{alone} && scripts/ledger.sh --all"), 0);
    assert!(text.contains("NOT EXERCISED: the ledger of "), "{text}");
}
