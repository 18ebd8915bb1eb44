//! Runs of a lab by the real command and real programs: killed at the calls that make a step
//! durable, told to end, lied to, copied.
//!
//! A reference lab consumed one packet twice from two folders, saw a campaign that ended by a
//! closed terminal, and could not say of another whether its candidate had been asked anything.

use crate::sandbox::Sandbox;
use crate::stop_at::{self, Plan, Role};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::Rehearsed;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Writer};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::real::RealFs;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A lab with one experiment, and a home on a disk: a `/tmp` may be in RAM, where no marker is.
pub(crate) struct World {
    sandbox: Sandbox,
    disk: tempfile::TempDir,
}

impl World {
    /// A lab whose packet is armed, by a rehearsal that is only in the ledger: rehearsals have
    /// tests of their own.
    fn armed(candidate: &str, edits: &[(&str, &str)]) -> Self {
        Self::armed_with(candidate, edits, &|_| ())
    }

    /// The same with files of the lab, which are placed before it is registered.
    pub(crate) fn armed_with(
        candidate: &str,
        edits: &[(&str, &str)],
        place: &dyn Fn(&Path),
    ) -> Self {
        let world = Self::registered(candidate, edits, place);
        world.rehearsed();
        let review = [
            "review",
            "example",
            "--reviewer",
            "a",
            "--verdict",
            "approve",
        ];
        world.done(&[&review[..], &["--note", "seen", "--execute"]].concat());
        world.done(&["arm", "example", "--execute"]);
        world
    }

    /// A lab whose packet is registered.
    pub(crate) fn registered(
        candidate: &str,
        edits: &[(&str, &str)],
        place: &dyn Fn(&Path),
    ) -> Self {
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let world = Self {
            sandbox: Sandbox::new(),
            disk: disk.expect("because cargo made that folder"),
        };
        std::fs::create_dir(world.lab()).expect("because the folder is ours");
        world.done(&["init", "--execute"]);
        let prereg = edits.iter().fold(PREREG.to_owned(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        let prereg = prereg.replace("CANDIDATE", candidate);
        let path = world.lab().join("experiments/example/prereg.toml");
        std::fs::write(path, prereg).expect("because it is ours");
        place(&world.lab());
        world.done(&["lane", "open", "example", "--reason", "first", "--execute"]);
        world.done(&["register", "example", "--execute"]);
        world
    }

    pub(crate) fn lab(&self) -> PathBuf {
        self.disk.path().join("lab")
    }

    fn words<'a>(&self, words: &[&'a str], lab: &'a str) -> Vec<&'a str> {
        [&["lab", "--lab", lab], words].concat()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let lab = self.lab();
        let lab = lab.to_str().expect("because it is plain text");
        self.settled(self.sandbox.command(&self.words(words, lab)))
    }

    fn settled(&self, mut command: Command) -> Command {
        command.env("HOME", self.disk.path());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("because it was built")
    }

    fn done(&self, words: &[&str]) {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }

    /// `lab run` as JSON.
    pub(crate) fn run(&self, exit: i32) -> Value {
        let output = self.output(&["run", "example", "--execute", "--json"]);
        assert_eq!(output.status.code(), Some(exit), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// As `run`, of a program that is waited for briefly: on a host with much to do its hello may
    /// be late, which releases the packet, to be run again.
    fn run_past_hello(&self) -> Value {
        for _ in 0..20 {
            let output = self.output(&["run", "example", "--execute", "--json"]);
            let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            let reason = document["reason"].as_str().unwrap_or_default();
            if document["stage"] != "hello" || !reason.contains("no answer in time") {
                assert_eq!(output.status.code(), Some(1), "{}", said(&output));
                return document;
            }
            assert_eq!(document["outcome"], "released", "{document}");
        }
        panic!("no hello came in time");
    }

    fn folder(&self) -> Dir {
        let root = RealFs.root().expect("because / is there");
        let names = self.lab();
        let names = names.iter().skip(1);
        names.fold(root, |dir, name| dir.open_dir(name).expect("because it is"))
    }

    fn ledger(&self) -> Ledger {
        Ledger::read(&self.folder(), None).expect("because no kill makes a bad ledger")
    }

    fn packet(&self) -> Digest {
        let ledger = self.ledger();
        let packets: Vec<Digest> = ledger.state().packets().keys().copied().collect();
        packets[0]
    }

    fn standing(&self) -> Standing {
        self.ledger().state().packets()[&self.packet()].standing
    }

    pub(crate) fn evidence(&self) -> PathBuf {
        self.lab().join(format!("evidence/{}", self.packet()))
    }

    /// Every exchange of the evidence.
    fn exchanges(&self) -> String {
        let legs = self.evidence().join("bag/data/legs");
        let legs = std::fs::read_dir(legs).into_iter().flatten().flatten();
        let read = legs.map(|leg| std::fs::read_to_string(leg.path().join("exchange.jsonl")));
        read.filter_map(Result::ok).collect()
    }

    /// The next `lab run` after a kill.
    fn finishes(&self, what: &str, was_marked: bool, was_closed: bool) {
        let answer = self.output(&["run", "example", "--execute", "--json"]);
        let document: Value = serde_json::from_slice(&answer.stdout).unwrap_or(Value::Null);
        if was_marked && !was_closed {
            assert_eq!(answer.status.code(), Some(1), "{what}: {}", said(&answer));
            assert_eq!(document["killed"], true, "{what}");
            assert_eq!(self.standing(), Standing::SealedAbort, "{what}");
            return;
        }
        if !was_marked && document["outcome"] == "released" {
            assert_eq!(answer.status.code(), Some(3), "{what}: {}", said(&answer));
            assert_eq!(document["reason"], "it ended before its marker", "{what}");
            self.run(0);
        }
        assert_eq!(self.standing(), Standing::SealedPass, "{what}");
    }

    /// How often a first case stands in the exchanges.
    fn first_cases(&self) -> usize {
        let lines = self.exchanges();
        let is_first =
            |line: &&str| line.contains("\"type\":\"case\"") && line.contains("\"index\":0,");
        lines.lines().filter(is_first).count()
    }

    fn rehearsed(&self) {
        let mut writer = Writer::open(&self.folder(), None, &RealClock).expect("because it's free");
        let packet = *writer
            .ledger()
            .state()
            .packets()
            .keys()
            .next()
            .expect("because one is");
        let program = std::fs::read(env!("CARGO_BIN_EXE_packhouse"));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let some = Some(Digest::from_bytes([1; 32]));
        let rehearsed = Rehearsed {
            packet,
            green: true,
            stage: None,
            reason: String::new(),
            bag: some,
            analysis: some,
            analyzer: Digest::of(&program.expect("because cargo built it")),
            tampers: 1,
            rejected: 1,
            elapsed_ns: 1,
            detectable_ns: None,
        };
        let boot = boot.expect("because Linux has one");
        let entered = writer.append(rehearsed, RealClock.wall_ns(), boot.trim());
        entered.expect("because it contradicts nothing");
    }

    /// What other commands come to while the packet is run.
    fn others_write_and_leave_the_packet_alone(&self) {
        self.done(&["ledger", "note", "written meanwhile", "--execute"]);
        let before = self.ledger();
        let refused: [&[&str]; 4] = [
            &["run", "example"],
            &["run", "example", "--execute"],
            &["seal", "example"],
            &["seal", "example", "--execute"],
        ];
        for words in refused {
            let output = self.output(words);
            assert_eq!(
                output.status.code(),
                Some(3),
                "{words:?}: {}",
                said(&output)
            );
            let said = said(&output);
            let expected = format!("another process executes the packet: {}", self.packet());
            assert!(said.contains(&expected), "{words:?}: {said}");
            // It is run, and sealing is not the next step.
            assert!(
                !said.contains("nothing will be run again"),
                "{words:?}: {said}"
            );
            assert!(said.contains("state --live"), "{words:?}: {said}");
        }
        assert_eq!(self.ledger(), before);
        let live = self.output(&["state", "--live"]);
        let words = said(&live);
        assert!(words.contains("a process executes it"), "{words}");
    }

    /// The second implementation finds nothing that does not hold.
    pub(crate) fn verified(&self) {
        let evidence = self.evidence();
        let ledger = self.lab().join("ledger.jsonl");
        let text = |path: &Path| path.to_str().expect("because it is plain text").to_owned();
        self.done(&["verify", &text(&evidence), "--ledger", &text(&ledger)]);
    }

    /// Of evidence that did not pass, each copy is rejected by both judges too: what it would be
    /// rather above all.
    fn rejects_copies(&self, verdict: &str) {
        let output = self.output(&["verify", "example", "--tampers"]);
        let words = said(&output);
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert!(!words.contains("NOT REJECTED"), "{words}");
        let wish = format!("{verdict} to pass: the whole analysis, and all that cites it agrees");
        assert!(words.contains(&wish), "{words}");
    }

    /// The whole state as it is, to be gone back to.
    fn saved(&self) -> tempfile::TempDir {
        let saved = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("because ours");
        copy(self.disk.path(), saved.path());
        saved
    }

    fn back_to(&self, saved: &Path) {
        for name in ["lab", ".local"] {
            let _ = std::fs::remove_dir_all(self.disk.path().join(name));
        }
        copy(saved, self.disk.path());
    }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to)
        .status();
    assert!(status.expect("because coreutils are there").success());
}

pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Kills the command before the calls that make each step durable, and runs it again: it is
/// released or sealed, never asked again.
#[test]
fn a_run_killed_at_any_step_is_released_or_sealed_by_the_next_one() {
    let world = World::armed(SERVE, &[("repeats = 1", "repeats = 2")]);
    let saved = world.saved();
    let lab = world.lab();
    let lab = lab.to_str().expect("because it is plain text").to_owned();
    let home = world
        .disk
        .path()
        .to_str()
        .expect("because it is plain text")
        .to_owned();
    let killed = |k| {
        let words = world.words(&["run", "example", "--execute"], &lab);
        let plan = Plan {
            role: Role::Command,
            k,
            attached: &[],
            all: false,
        };
        stop_at::run_in(&world.sandbox, &words, plan, &[("HOME", &home)])
    };
    let whole = killed(0);
    assert_eq!(
        world.standing(),
        Standing::SealedPass,
        "{}",
        said(&whole.output)
    );
    let steps = steps(&whole.calls);
    assert!(steps.len() >= 10, "{steps:?} of {:?}", whole.calls);
    for (what, k) in steps {
        world.back_to(saved.path());
        let stopped = killed(k);
        assert!(stopped.killed, "{what}: {}", said(&stopped.output));
        let marker = format!("{}.json", world.packet());
        let was_marked = world.disk.path().join(MARKERS).join(marker).exists();
        let was_closed = world.evidence().join("bag").exists();
        world.finishes(&what, was_marked, was_closed);
        let left = std::fs::read_dir(world.disk.path().join(EXCHANGE));
        let left = left.expect("because it was made").count();
        assert_eq!(left, 0, "{what}: files of programs");
        assert!(
            world.first_cases() <= 1,
            "{what}: the first case was asked again"
        );
        world.verified();
    }
}

/// The calls before which a kill leaves another state: a name or sync of ledger, marker, bag,
/// analysis and seal, each once per kind of call.
fn steps(calls: &[stop_at::Call]) -> Vec<(String, usize)> {
    let mut seen = std::collections::BTreeMap::new();
    for (index, call) in calls.iter().enumerate() {
        let places = [
            "ledger.jsonl",
            "markers",
            "bag.open/data/run.json",
            "data/fixtures/",
            "data/drawn/",
            "analysis-1",
            "seal-1",
        ];
        let place = places.iter().find(|place| call.detail.contains(**place));
        let is_bag = call.name.starts_with("rename") && call.detail.ends_with("bag.open");
        let is_asked = call.detail.contains("exchange.jsonl") && call.name.contains("sync");
        let what = match place {
            Some(place) => format!("{} {place}", call.name),
            None if is_bag => "rename bag".to_owned(),
            None if is_asked => "sync exchange".to_owned(),
            None => continue,
        };
        // The last of each: earlier ones are like it, or of another step that has its own.
        seen.insert(what, index + 1);
    }
    seen.into_iter().collect()
}

/// Wrong bytes under their right digest, another shape, an old digest, one byte that is two
/// tensors', a file too many, no witness; and what ends a session.
#[test]
fn what_a_lying_program_did_is_sealed_as_what_it_was() {
    let wrong = [
        "equality",
        "answer.shape",
        "answer.digest",
        "answer.overlap",
        "answer.file-extra",
        "answer.no-witness",
    ];
    let cases: [(&str, &str, &[&str]); 4] = [
        (
            "OneBit,Shape,StaleDigest,Alias,Extra,NoWitness",
            "fail",
            &wrong,
        ),
        (
            "Dies",
            "abort",
            &["candidate: in case 0: the program ended by signal 11"],
        ),
        (
            "Chatty",
            "abort",
            &["candidate: in case 0: frame of 1684107116 bytes"],
        ),
        (
            "Hangs",
            "abort",
            &["candidate: in case 0: no answer in time"],
        ),
    ];
    for (lie, verdict, reasons) in cases {
        let world = World::lying(lie);
        let document = match lie {
            "Hangs" => world.run_past_hello(),
            _ => world.run(1),
        };
        assert_eq!(document["verdict"], verdict, "{lie}: {document}");
        let analysis = world.evidence().join("analysis-1/analysis.json");
        let analysis = std::fs::read_to_string(analysis).expect("because it is sealed");
        for reason in reasons {
            let all = format!("{analysis}{document}");
            assert!(all.contains(reason), "{lie}: {reason}: {all}");
        }
        world.verified();
        // One of each verdict: what they come by makes no others.
        if !["Chatty", "Hangs"].contains(&lie) {
            world.rejects_copies(verdict);
        }
        world.run(3);
    }
}

/// Every lie that does not end its session, in turn. A judge that told one of them under another
/// code or path than the other made `lab verify` call the evidence of an honest fail broken.
#[test]
fn whatever_a_liar_does_both_judges_tell_it_alike() {
    let lies = [
        "OneBit,StaleDigest,Shape,Stride,Type,Offset,Bytes,Elsewhere,OtherFile,Missing,Invented",
        "Twice,Extra,Empty,Short,Long,Absent,Symlink,HardLink,Folder,Pipe,Alias,InPlace,Null,Deep",
        "EditInput,DropInput,ExtraInput,InputInMemory,InputUntold,NoWitness,Capturing,Index,\
         Declines,Replay,TellsApart,Warns,Base",
    ];
    let mut codes = std::collections::BTreeSet::new();
    for lies in lies {
        let world = World::lying(lies);
        let document = world.run(1);
        assert_eq!(document["verdict"], "fail", "{lies}: {document}");
        world.verified();
        let analysis = world.evidence().join("analysis-1/analysis.json");
        let analysis = std::fs::read(analysis).expect("because it is sealed");
        let analysis: Value = serde_json::from_slice(&analysis).expect("because it is JSON");
        let gates = analysis["gates"].as_array().into_iter().flatten();
        let failures = gates.flat_map(|gate| gate["failures"].as_array().into_iter().flatten());
        let code = |failure: &Value| {
            failure
                .as_str()
                .unwrap_or_default()
                .split(':')
                .next()
                .map(str::to_owned)
        };
        codes.extend(failures.filter_map(code));
    }
    assert!(codes.len() >= 26, "{codes:?}");
}

/// What an interpreter loads by itself has no place in a packet unless it is frozen: a library was
/// hashed, and an embedded search path loaded another copy.
#[test]
fn a_file_that_was_mapped_and_not_frozen_fails_the_run() {
    let world = World::lying("LoadsLater");
    let document = world.run(1);
    assert_eq!(document["verdict"], "fail", "{document}");
    let analysis = world.evidence().join("analysis-1/analysis.json");
    let analysis = std::fs::read(analysis).expect("because it is sealed");
    let analysis: Value = serde_json::from_slice(&analysis).expect("because it is JSON");
    let gates = analysis["gates"]
        .as_array()
        .expect("because it has gates")
        .iter();
    let failed: Vec<&Value> = gates.filter(|gate| gate["passed"] == false).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["gate"], "identities", "{failed:?}");
    world.verified();
}

/// The same at its start: the marker is not taken for a run that can't pass.
#[test]
fn a_file_that_is_mapped_at_hello_and_not_frozen_releases_its_packet() {
    let world = World::lying("Loads");
    let output = world.output(&["run", "example", "--execute"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let words = said(&output);
    assert!(words.contains("is mapped and not frozen"), "{words}");
    // What to copy and to add, to be pasted.
    let lines = "/lab/loaded\n[[frozen]]\npath = \"loaded\"\n";
    assert!(
        words.contains("mkdir -p ") && words.contains(lines),
        "{words}"
    );
    assert!(words.contains("identities"), "{words}");
    assert_eq!(world.standing(), Standing::Armed);
}

/// A script that becomes another file while it runs: what the packet says ran is not what ran.
#[test]
fn a_script_that_is_swapped_during_the_run_aborts_it_by_name() {
    let world = World::lying("Honest,Swaps");
    let document = world.run(1);
    assert_eq!(document["verdict"], "abort", "{document}");
    let all = document.to_string();
    assert!(all.contains("frozen file liar.py: frozen "), "{document}");
    world.verified();
}

#[test]
fn a_program_that_says_no_hello_releases_its_packet() {
    for (lie, why) in [("OldChallenge", "hello"), ("NoFixture", "discovery")] {
        let world = World::lying(lie);
        let released = world.run(3);
        assert_eq!(released["outcome"], "released", "{lie}: {released}");
        assert_eq!(released["stage"], why, "{lie}: {released}");
        assert_eq!(world.standing(), Standing::Armed, "{lie}");
        assert!(!world.evidence().join("bag.open").exists(), "{lie}");
    }
}

/// The marker was taken for the first leg; what the second one's program does can't release it.
#[test]
fn a_program_that_says_no_hello_in_a_later_leg_is_a_sealed_abort() {
    let control = SERVE.replace("candidate", "control") + "[matrix]";
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"control\"\n[[leg]]";
    let edits = [("[matrix]", control.as_str()), ("[[leg]]", leg)];
    let world = World::lying_as("OldChallenge", &edits);
    let document = world.run(1);
    assert_eq!(document["verdict"], "abort", "{document}");
    assert_eq!(document["stage"], "hello", "{document}");
    assert_eq!(world.standing(), Standing::SealedAbort);
    // No record of ours is one that both judges refuse, and agree on.
    let analysis = std::fs::read_to_string(world.evidence().join("analysis-1/analysis.json"));
    let analysis = analysis.expect("because it is sealed");
    assert!(!analysis.contains("\"record."), "{analysis}");
    world.verified();
}

/// SIGTERM makes an orderly abort; SIGHUP, a closed terminal, makes nothing. While programs are
/// asked others may write in the ledger, and nobody may touch the packet.
#[test]
fn a_signal_that_asks_for_the_end_is_an_abort_and_a_hangup_is_nothing() {
    let world = World::lying("Endless");
    let mut command = world.command(&["run", "example", "--execute", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("because it was built");
    let pid = child.id().to_string();
    let exchange = world
        .evidence()
        .join("bag.open/data/legs/00/exchange.jsonl");
    let is_asked = || {
        let lines = std::fs::read_to_string(&exchange).unwrap_or_default();
        lines.contains("\"type\":\"case\"")
    };
    let start_ns = RealClock.steady_ns();
    while !is_asked() {
        assert!(
            RealClock.steady_ns() - start_ns < 60_000_000_000,
            "nothing was asked"
        );
        RealClock.sleep_ns(5_000_000);
    }
    world.others_write_and_leave_the_packet_alone();
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("because kill is there").success(), "{signal}");
    }
    let output = child.wait_with_output().expect("because it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("because it is JSON");
    assert_eq!(document["verdict"], "abort", "{document}");
    let reason = document["reason"].as_str().expect("because it is an abort");
    assert!(reason.contains("told to end"), "{reason}");
    assert_eq!(world.standing(), Standing::SealedAbort);
    let ledger = world.ledger();
    let kinds = ledger.entries().iter().map(|entry| entry.act.kind());
    let kinds: Vec<&str> = kinds.collect();
    assert!(
        kinds.ends_with(&["consumed", "note", "closed", "sealed"]),
        "{kinds:?}"
    );
    world.verified();
}

#[test]
fn a_copy_of_the_lab_from_before_the_run_finds_the_packet_consumed() {
    let world = World::armed(SERVE, &[]);
    let saved = world.saved();
    world.run(0);
    // The lab as it was; the user's memory stays, without what it saw of the ledger's head.
    std::fs::remove_dir_all(world.lab()).expect("because it is ours");
    copy(&saved.path().join("lab"), &{
        std::fs::create_dir(world.lab()).expect("because it is gone");
        world.lab()
    });
    let output = world.output(&["run", "example", "--execute"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("truncated"), "{}", said(&output));
    let heads = world.disk.path().join(".local/state/packhouse/lab/heads");
    std::fs::remove_dir_all(heads).expect("because it is there");
    let output = world.output(&["run", "example", "--execute"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("consumed"), "{}", said(&output));
    assert_eq!(world.standing(), Standing::Armed);
}

impl World {
    /// A lab whose candidate stands between the controller and our own kernels, and lies.
    fn lying(lie: &str) -> Self {
        Self::lying_as(lie, &[])
    }

    /// The same with other edits of the preregistration too.
    fn lying_as(lie: &str, more: &[(&str, &str)]) -> Self {
        let liar = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/component_liar.py");
        // A program that hangs does so for as long as it may; that is not waited for here, but
        // where others act meanwhile, however long that takes them.
        let (lie, timeout) = match lie {
            "Hangs" => (lie, "case_timeout_s = 2"),
            "Endless" => ("Hangs", "case_timeout_s = 600"),
            _ => (lie, TIMEOUT),
        };
        let python = "[program.candidate]\nprogram = \"python3\"\n";
        let arguments =
            format!("arguments = [\"${{lab}}/liar.py\", \"{lie}\", \"${{lab}}/packhouse\"");
        let candidate =
            format!("{python}{arguments}, \"{FIXTURE}\"]\nenvironment = {{}}\n{FROZEN}");
        let count = lie.split(',').count();
        let edits = [
            (TIMEOUT, timeout),
            ("repeats = 1", &format!("repeats = {count}")),
        ];
        // A frozen file is a regular one; the program itself would take long to measure.
        let script = "#!/bin/sh\nexec \"${0%/*}/modules/inner\" \"$@\"\n";
        Self::armed_with(&candidate, &[&edits[..], more].concat(), &|lab| {
            std::fs::copy(&liar, lab.join("liar.py")).expect("because it is free");
            let path = lab.join("packhouse");
            std::fs::write(&path, script).expect("because it is free");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("because it is ours");
            mapped_modules(&lab.join("modules"));
        })
    }
}

/// Copies of all files that the liar's interpreter maps executable when its modules are loaded, and
/// of those of the program that it starts.
pub(crate) fn mapped_modules(to: &Path) {
    std::fs::create_dir(to).expect("because the lab is ours");
    let modules = "import hashlib, json, os, signal, struct, subprocess, sys, time";
    let script = format!("{modules}; print(open('/proc/self/maps').read())");
    let mut python = Command::new("python3");
    python.env_clear().env("LC_ALL", "C.UTF-8");
    python.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let maps = python.args(["-c", &script]).output();
    let maps = maps.expect("because there is Python").stdout;
    let maps = String::from_utf8(maps).expect("because it is text");
    let is_code = |line: &&str| {
        line.split(' ')
            .nth(1)
            .is_some_and(|mode| mode.contains('x'))
    };
    let code = maps.lines().filter(is_code);
    let paths = code.filter_map(|line| line.find('/').map(|at| &line[at..]));
    let packhouse = env!("CARGO_BIN_EXE_packhouse");
    let loaded = Command::new("ldd").arg(packhouse).output();
    let loaded = String::from_utf8(loaded.expect("because there is a loader").stdout);
    let loaded = loaded.expect("because it is text");
    let loaded = loaded
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let paths: std::collections::BTreeSet<&str> = paths.chain(loaded).collect();
    // A link to the program would be a change of it for tests that run now; its symbols would take
    // long to measure.
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(to.join("inner"));
    let stripped = strip.arg(packhouse).status();
    assert!(stripped.expect("because whoever links has it").success());
    for (number, path) in paths.into_iter().enumerate() {
        let copy = to.join(format!("{number}.so"));
        std::fs::copy(path, copy).expect("because it is loaded");
    }
}

/// A plan is what would be done, and what would be refused is refused.
#[test]
fn what_run_would_do_is_what_it_does() {
    let world = World::armed(SERVE, &[]);
    let planned = world.output(&["run", "example"]);
    assert_eq!(planned.status.code(), Some(0), "{}", said(&planned));
    let words = said(&planned);
    assert!(
        words.contains("run every leg of its preregistration, once"),
        "{words}"
    );
    let ledger = world.lab().join("ledger.jsonl");
    let mut bytes = std::fs::read(&ledger).expect("because it is there");
    bytes.extend_from_slice(b"{\"torn");
    std::fs::write(&ledger, bytes).expect("because it is ours");
    let ran = world.output(&["run", "example", "--execute"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let words = said(&ran);
    assert!(words.contains("cut off 6 bytes of an append"), "{words}");
    assert!(words.contains("run <= 600 s, case <= 60 s"), "{words}");
    for (command, expected) in [("run", "is sealed: pass"), ("seal", "is sealed-pass")] {
        let refused = world.output(&[command, "example"]);
        assert_eq!(refused.status.code(), Some(3), "{}", said(&refused));
        assert!(said(&refused).contains(expected), "{}", said(&refused));
    }
    let review = ["--reviewer", "a", "--verdict", "approve", "--note", "late"];
    for (words, cause) in [
        (
            vec!["rehearse", "example"],
            "is sealed-pass: `rehearsed` needs",
        ),
        (
            [&["review", "example"], &review[..]].concat(),
            "the packet is sealed-pass",
        ),
    ] {
        let refused = world.output(&words);
        assert_eq!(refused.status.code(), Some(3), "{}", said(&refused));
        assert!(said(&refused).contains(cause), "{}", said(&refused));
        assert!(
            said(&refused).contains("lab report example"),
            "{}",
            said(&refused)
        );
    }
}

/// No card has this UUID: the plan says that it is not here, and so does the rehearsal.
#[test]
fn a_rehearsal_that_is_not_green_says_so_before_and_what_is_next_after() {
    let card = "cuda:GPU-00000000-0000-0000-0000-000000000000";
    let devices = format!("devices = [\"{card}\"]");
    let world = World::registered(SERVE, &[("devices = [\"cpu\"]", &devices)], &|_| ());
    let why = format!("discovery: device {card}: ");
    let planned = world.output(&["rehearse", "example"]);
    assert_eq!(planned.status.code(), Some(1), "{}", said(&planned));
    assert!(said(&planned).contains(&why), "{}", said(&planned));
    let red = world.output(&["rehearse", "example", "--execute"]);
    assert_eq!(red.status.code(), Some(1), "{}", said(&red));
    for words in [
        &*why,
        "tampered copies: none were made",
        "next: packhouse lab rehearse example --execute",
        "another experiment",
    ] {
        assert!(said(&red).contains(words), "{words}: {}", said(&red));
    }
    let again = world.output(&["rehearse", "example", "--execute", "--json"]);
    let document: Value = serde_json::from_slice(&again.stdout).unwrap_or(Value::Null);
    assert_eq!(document["stage"], "discovery", "{}", said(&again));
    assert_eq!(document["entry"], world.ledger().entries().len() - 1);
    let armed = world.output(&["arm", "example"]);
    assert_eq!(armed.status.code(), Some(3), "{}", said(&armed));
    let hint = "hint: packhouse worker devices";
    assert!(said(&armed).contains(hint), "{}", said(&armed));
}

/// What can't be written before the marker was not done, and what can be is not lost.
#[test]
fn a_run_that_can_not_write_its_nonce_says_that_nothing_was_run() {
    let world = World::armed(SERVE, &[]);
    // It is the ledger that does not fit: what is made before it is shorter.
    for _ in 0..5 {
        world.done(&["ledger", "note", &"word ".repeat(160), "--execute"]);
    }
    let bytes = std::fs::metadata(world.lab().join("ledger.jsonl"));
    let limit = bytes.expect("because it is there").len() + 100;
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={limit}:"));
    let command = world.command(&["run", "example", "--execute"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.env_clear();
    for (name, value) in command.get_envs() {
        value.map(|value| limited.env(name, value));
    }
    let failed = limited.output().expect("because util-linux has it");
    let words = said(&failed);
    assert_eq!(failed.status.code(), Some(3), "{words}");
    assert!(
        words.contains("longer than a file may be here (ulimit -f)"),
        "{words}"
    );
    assert!(
        words.contains("no case was asked, and the packet is not consumed"),
        "{words}"
    );
    assert!(words.contains("hint: packhouse lab"), "{words}");
    assert!(words.contains("run example --execute"), "{words}");
    let document = world.run(0);
    assert_eq!(document["evidence"], format!("evidence/{}", world.packet()));
    assert_eq!(document["entry"], world.ledger().entries().len() - 1);
    let gates = document["gates"].as_array().expect("because it has them");
    assert!(gates.iter().all(|gate| gate["passed"] == true), "{gates:?}");
}

const EXCHANGE: &str = ".local/state/packhouse/lab/exchange";
const MARKERS: &str = ".local/state/packhouse/lab/markers";
pub(crate) const FIXTURE: &str = "mul-mxfp4-ggml-cpu-repack-v1";
pub(crate) const SERVE: &str = "[program.candidate]
program = \"packhouse\"
arguments = [\"fixture\", \"serve\", \"mul-mxfp4-ggml-cpu-repack-v1\"]
environment = {}
";
const FROZEN: &str = "[[frozen]]
path = \"liar.py\"
[[frozen]]
path = \"modules\"
[[frozen]]
path = \"packhouse\"
";
pub(crate) const TIMEOUT: &str = "case_timeout_s = 60";
const PREREG: &str = "schema = \"packhouse/prereg/1\"
id = \"example\"
lane = \"example\"
kind = \"component\"
question = \"Is it right?\"
authorises = \"nothing\"
does_not_authorise = \"anything\"
exclusions = []
reviewers = 1
time_budget_s = 600
case_timeout_s = 60
rehearsal_max_age_s = 86400
stop = \"never\"
[treatment]
difference = \"none\"
CANDIDATE
[matrix]
fixtures = [\"mul-mxfp4-ggml-cpu-repack-v1\"]
devices = [\"cpu\"]
arms = [\"plain\"]
widths = [1]
repeats = 1
promise = \"bit-equal\"
[[leg]]
kind = \"exact\"
treatment = \"candidate\"
";
