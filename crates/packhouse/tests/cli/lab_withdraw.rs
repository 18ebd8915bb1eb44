//! Withdrawals by the real command: a packet that nobody will run is closed, with its reason, and
//! one that was run can't be made undone by it.
//!
//! An experiment that was registered with a slip waited for ever: its next act was a rehearsal, and
//! what it froze was measured at each look at the ledger.

use crate::sandbox::Sandbox;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Closed, Consumed, Nonce, Rehearsed, Released, Sealed, Stage, Verdict};
use packhouse_ledger::{Act, Writer};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::real::RealFs;
use serde_json::Value;

struct World(Sandbox);

impl World {
    /// A lab with a registered packet, which froze a file of the lab.
    fn registered(edits: &[(&str, &str)]) -> Self {
        let world = Self(Sandbox::new());
        std::fs::create_dir(world.0.path("lab")).expect("because the sandbox is ours");
        world.said(&["init", "--execute"], 0);
        let path = world.0.path("lab/experiments/example/prereg.toml");
        let text = std::fs::read_to_string(&path).expect("because it is to edit");
        let text = edits.iter().fold(text, |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replacen(old, new, 1)
        });
        let text = text + "\n[[frozen]]\npath = \"model.bin\"\n";
        std::fs::write(path, text).expect("because it is ours");
        world.model("as it was");
        world.said(
            &["lane", "open", "example", "--reason", "first", "--execute"],
            0,
        );
        world.said(&["register", "example", "--execute"], 0);
        world
    }

    fn model(&self, text: &str) {
        std::fs::write(self.0.path("lab/model.bin"), text).expect("because it is ours");
    }

    /// Runs a command of the lab; what it says on both streams.
    fn said(&self, words: &[&str], code: i32) -> String {
        let mut command = self.0.command(&["lab"]);
        let output = command.arg("--lab").arg(self.0.path("lab")).args(words);
        let output = output.output().expect("because it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = self.said(&[words, &["--json"]].concat(), 0);
        serde_json::from_str(&said).expect("because it is one document")
    }

    /// A refusal that writes nothing; what it says.
    fn refused(&self, words: &[&str], code: i32, expected: &[&str]) {
        let before = self.bytes();
        let said = self.said(words, code);
        assert!(said.starts_with("error: "), "{words:?}: {said}");
        for text in expected {
            assert!(said.contains(text), "{words:?}, {text}: {said}");
        }
        assert_eq!(self.bytes(), before, "{words:?}");
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.0.path("lab/ledger.jsonl")).expect("because a lab has one")
    }

    fn folder(&self) -> Dir {
        let root = RealFs.root().expect("because there is one");
        let lab = self.0.path("lab");
        let mut parts = lab.iter().skip(1);
        parts
            .try_fold(root, |dir, part| dir.open_dir(part))
            .expect("because the lab is there")
    }

    fn writer(&self) -> Writer {
        Writer::open(&self.folder(), None, &RealClock).expect("because it is free")
    }

    fn append(&self, act: impl Into<Act>) {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.expect("because Linux has one");
        let mut writer = self.writer();
        let entered = writer.append(act, RealClock.wall_ns(), boot.trim());
        entered.expect("because it contradicts nothing");
    }

    fn packet(&self) -> Digest {
        self.packet_of(&self.writer())
    }

    fn packet_of(&self, writer: &Writer) -> Digest {
        let packets = writer.ledger().state().packets();
        *packets.keys().next().expect("because one is registered")
    }
}

fn some(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

/// A rehearsal, green or not, with what its timing could have told.
fn rehearsed(packet: Digest, green: bool, told_ns: Option<u64>) -> Rehearsed {
    Rehearsed {
        packet,
        green,
        stage: (!green).then_some(Stage::Rehearsal),
        reason: if green { "" } else { "it is loud" }.to_owned(),
        bag: Some(some(1)),
        analysis: Some(some(2)),
        analyzer: some(3),
        tampers: 1,
        rejected: u64::from(green),
        elapsed_ns: 1,
        detectable_ns: told_ns.map(|ns| [("cpu".to_owned(), ns)].into()),
    }
}

const WITHDRAW: [&str; 4] = ["withdraw", "example", "--reason", "the width isn't 4"];

#[test]
fn a_withdrawn_packet_is_closed_with_its_reason_and_no_act_follows() {
    let world = World::registered(&[]);
    let before = world.bytes();
    let planned = world.said(&WITHDRAW, 0);
    for text in [
        "would: withdraw packet ",
        " of example: the width isn't 4",
        "irreversible: the packet can never be rehearsed",
        "withdraw example --reason 'the width isn'\\''t 4' --execute",
    ] {
        assert!(planned.contains(text), "{text}: {planned}");
    }
    assert_eq!(world.bytes(), before);
    let waiting = world.said(&["ledger", "verify"], 0);
    assert!(waiting.contains("waiting packets 1"), "{waiting}");
    let done = world.json(&[&WITHDRAW[..], &["--execute"]].concat());
    assert_eq!(
        (&done["executed"], &done["entry"]),
        (&true.into(), &3.into())
    );
    assert_eq!(done["reason"], "the width isn't 4");
    assert_eq!(done["standing"], "registered");
    let reviewer = ["--reviewer", "ann", "--verdict", "approve", "--note", "n"];
    let record = ["record", "key", "example", "--claim", "c", "--width", "1"];
    for words in [
        &["rehearse", "example"][..],
        &["rehearse", "example", "--execute"],
        &[&["review", "example"], &reviewer[..]].concat(),
        &["arm", "example"],
        &["run", "example"],
        &["run", "example", "--execute"],
        &["seal", "example"],
        &["analyse", "example", "--why", "w"],
        &record,
    ] {
        let told = "by entry 3, 20";
        let another = "experiment new NEW-ID --from example";
        let expected = [
            "the packet was withdrawn",
            told,
            "the width isn't 4",
            another,
        ];
        world.refused(words, 3, &expected);
    }
    let again = ["it was withdrawn by entry 3 (20", "lab report example"];
    world.refused(&WITHDRAW, 3, &again);
    let known = ["is registered as packet", "it was withdrawn by entry 3, 20"];
    world.refused(&["register", "example"], 3, &known);
    shown(&world);
    evidence_of_a_run_contradicts(&world);
    what_it_froze_may_change(&world);
}

/// A ledger that was cut before a run and withdraws its packet has a chain that holds: the evidence
/// that is left tells.
fn evidence_of_a_run_contradicts(world: &World) {
    let folder = world.0.path(&format!("lab/evidence/{}", world.packet()));
    std::fs::create_dir_all(&folder).expect("because it is ours");
    world.said(&["ledger", "verify"], 0);
    std::fs::create_dir(folder.join("bag")).expect("because it is ours");
    let found = world.said(&["ledger", "verify"], 1);
    let told = "is of a run, and the ledger says that the packet was withdrawn before one";
    assert!(
        found.contains("ledger.evidence") && found.contains(told),
        "{found}"
    );
    std::fs::remove_dir(folder.join("bag")).expect("because it is ours");
}

/// What it froze is nobody's to keep as it was; another experiment goes on from its document.
fn what_it_froze_may_change(world: &World) {
    world.model("another");
    let verified = world.json(&["ledger", "verify"]);
    assert_eq!(verified["changed"], Value::Array(Vec::new()));
    assert_eq!(verified["checked"]["waiting packets"], Value::Null);
    world.said(
        &[
            "experiment",
            "new",
            "second",
            "--from",
            "example",
            "--execute",
        ],
        0,
    );
    world.said(&["register", "second", "--execute"], 0);
    world.model("a third one");
    let verified = world.json(&["ledger", "verify"]);
    assert_eq!(verified["changed"][0]["experiment"], "second", "{verified}");
    // Nor in a lane that is closed, where nothing follows either.
    let close = ["lane", "close", "example", "--reason", "over", "--execute"];
    world.said(&close, 0);
    let verified = world.json(&["ledger", "verify"]);
    assert_eq!(verified["changed"], Value::Array(Vec::new()));
    assert_eq!(verified["checked"]["waiting packets"], Value::Null);
}

/// Each list and page has the reason, and no next act.
fn shown(world: &World) {
    let state = world.json(&["state"]);
    let packet = &state["packets"][0];
    assert_eq!(packet["state"], "withdrawn");
    assert_eq!(packet["reason"], "the width isn't 4");
    assert_eq!(
        (&packet["next_act"], &packet["entry"]),
        (&Value::Null, &3.into())
    );
    assert_eq!(state["lanes"][0]["next_act"], "register an experiment");
    let report = world.said(&["report", "example"], 0);
    assert!(
        report.contains("- **State**: withdrawn: the width isn't 4"),
        "{report}"
    );
    assert!(report.contains("## What was to run"), "{report}");
    let experiments = world.json(&["experiment", "ls"]);
    assert_eq!(experiments["experiments"][0]["state"], "withdrawn");
    assert_eq!(experiments["experiments"][0]["reason"], "the width isn't 4");
    let listed = world.said(&["ledger", "ls"], 0);
    assert!(
        listed.contains("withdrawn   example  the width isn't 4"),
        "{listed}"
    );
    let live = world.said(&["state", "--live"], 0);
    assert!(live.contains("no packet waits to be run"), "{live}");
}

#[test]
fn a_reason_is_a_line_of_words() {
    let world = World::registered(&[]);
    let why = |reason| ["withdraw", "example", "--reason", reason];
    for reason in ["", "  ", "\n"] {
        world.refused(&why(reason), 2, &["there must be a reason"]);
    }
    for reason in [
        "a\tb",
        "a\nb",
        "a\u{1b}[2Jb",
        "a\u{9b}b",
        "\u{200b}",
        "a\u{202e}b",
    ] {
        world.refused(&why(reason), 2, &["which a terminal does not draw"]);
    }
    world.refused(
        &["withdraw", "exmple", "--reason", "x"],
        2,
        &["did you mean example?"],
    );
    assert!(world.said(&["withdraw", "example"], 2).contains("--reason"));
}

#[test]
fn a_packet_that_a_process_holds_is_not_withdrawn() {
    let world = World::registered(&[]);
    let execute = [&WITHDRAW[..], &["--execute"]].concat();
    let mut writer = world.writer();
    let held = writer.hold_packet(world.packet_of(&writer), &RealClock);
    let held = held.expect("because nobody has it");
    writer.rest();
    for words in [&WITHDRAW[..], &execute] {
        let expected = ["another process executes the packet", "state --live"];
        world.refused(words, 3, &expected);
    }
    drop(held);
    world.said(&execute, 0);
}

#[test]
fn what_was_announced_or_run_is_not_withdrawn() {
    let world = World::registered(&[]);
    let packet = world.packet();
    let execute = [&WITHDRAW[..], &["--execute"]].concat();
    world.append(rehearsed(packet, true, None));
    world.append(packhouse_ledger::act::Armed {
        packet,
        rehearsal: 3,
        reviews: Vec::new(),
    });
    let nonce = |value| Nonce {
        packet,
        nonce: some(value),
        markers: None,
    };
    world.append(nonce(4));
    let announced = ["a run of it was announced (nonce 0404", "lab seal example"];
    world.refused(&WITHDRAW, 3, &announced);
    world.append(Released {
        packet,
        nonce: some(4),
        stage: Stage::Marker,
        reason: "it ended before its marker".to_owned(),
    });
    let planned = world.said(&WITHDRAW, 0);
    assert!(planned.contains("armed until now"), "{planned}");
    // A copy of the lab was run: what it left is no ledger's to forget.
    let evidence = format!("lab/evidence/{packet}/bag");
    std::fs::create_dir_all(world.0.path(&evidence)).expect("because it is ours");
    world.refused(&execute, 3, &["/bag is there: evidence of a run", "ls -l "]);
    let found = world.said(&["ledger", "verify"], 1);
    let told = "is of a run, and the ledger says that the packet was not run";
    assert!(found.contains(told), "{found}");
    std::fs::remove_dir(world.0.path(&evidence)).expect("because it is empty");
    world.append(nonce(5));
    world.append(Consumed {
        packet,
        nonce: some(5),
        marker: some(6),
    });
    world.refused(
        &execute,
        3,
        &["it is consumed: what was run", "lab seal example"],
    );
    world.append(Closed {
        packet,
        bag: some(7),
    });
    world.append(Sealed {
        packet,
        verdict: Verdict::Fail,
        bag: some(7),
        analysis: some(8),
        seal: some(9),
        number: 1,
        stage: None,
        reason: String::new(),
    });
    world.refused(
        &execute,
        3,
        &["it is sealed-fail: what was run", "lab report example"],
    );
}

/// What the run left that has its marker may be here: no contradiction.
#[test]
fn evidence_beside_a_spent_packet_is_another_run_s() {
    let world = World::registered(&[]);
    let packet = world.packet();
    world.append(rehearsed(packet, true, None));
    world.append(packhouse_ledger::act::Armed {
        packet,
        rehearsal: 3,
        reviews: Vec::new(),
    });
    world.append(Nonce {
        packet,
        nonce: some(4),
        markers: None,
    });
    world.append(Released {
        packet,
        nonce: some(4),
        stage: Stage::Marker,
        reason: format!("{}, in another copy", packhouse_ledger::act::SPENT),
    });
    let evidence = format!("lab/evidence/{packet}/bag");
    std::fs::create_dir_all(world.0.path(&evidence)).expect("because it is ours");
    world.said(&["ledger", "verify"], 0);
}

/// An open bag is neither good nor bad evidence: it is not there yet, or for `lab seal`. Where the
/// ledger says that it was closed it can't be open.
#[test]
fn an_open_bag_is_judged_only_where_the_ledger_says_that_it_was_closed() {
    let world = World::registered(&[]);
    let packet = world.packet();
    let folder = world.0.path(&format!("lab/evidence/{packet}"));
    let data = folder.join("bag.open/data");
    std::fs::create_dir_all(&data).expect("because it is ours");
    let frozen = world.0.path("lab/experiments/example/packet.json");
    std::fs::copy(frozen, data.join("packet.json")).expect("because it is registered");
    let lab = world.0.path("lab").display().to_string();
    let evidence = folder.display().to_string();
    let open = format!("{evidence}/bag.open");
    let untold = |words: &[&str], next: &str| {
        let said = world.said(&[&["verify"], words].concat(), 3);
        let first = format!("error: not verified: an open bag: {open}\n");
        assert!(said.starts_with(&first), "{said}");
        assert!(
            said.ends_with(&format!("\n\nhint: packhouse lab {next} --lab {lab}\n")),
            "{said}"
        );
    };
    untold(&[&evidence], "state --live");
    world.append(rehearsed(packet, true, None));
    world.append(packhouse_ledger::act::Armed {
        packet,
        rehearsal: 3,
        reviews: Vec::new(),
    });
    world.append(Nonce {
        packet,
        nonce: some(4),
        markers: None,
    });
    untold(&[&evidence], "seal example");
    untold(&[&open], "seal example");
    untold(&["example", "--tampers"], "seal example");
    untold(&[&evidence, "--no-ledger"], "state --live");
    world.append(Consumed {
        packet,
        nonce: some(4),
        marker: some(6),
    });
    untold(&["example"], "seal example");
    world.append(Closed {
        packet,
        bag: some(7),
    });
    let judged = world.said(&["verify", &evidence], 1);
    assert!(judged.contains("NOT valid: "), "{judged}");

    // What was made of a closed bag is judged without it.
    let without = ["verify", &evidence, "--no-ledger"];
    std::fs::create_dir(folder.join("analysis-1")).expect("because it is ours");
    std::fs::write(folder.join("analysis-1/analysis.json"), "{}").expect("because it is ours");
    let judged = world.said(&without, 1);
    assert!(judged.contains("NOT valid: "), "{judged}");
}

/// The list of experiments and the state have one word and one next act for a packet.
fn listed_alike(world: &World) {
    let state = &world.json(&["state"])["packets"][0];
    let listed = &world.json(&["experiment", "ls"])["experiments"][0];
    assert_eq!(listed["state"], state["state"]);
    let act = state["next_act"].as_str().expect("because one can follow");
    let next = listed["next"].as_str().expect("because one can follow");
    let command = next.split(" --lab ").next().unwrap_or_default();
    assert_eq!(command, act, "{next}");
    assert_eq!(next != act, act.starts_with("packhouse lab "), "{next}");
}

/// A rehearsal was named as what is next, and each was red before a program was started.
#[test]
fn a_packet_within_its_noise_is_said_to_be_given_up() {
    const LEG: &str = "# A timing leg needs the table [timing]";
    const TIMING: &str = "[[leg]]\nkind = \"timing\"\n[timing]\n\
                          fixture = \"mrow-q4_0-joint-n-v1-v1\"\narm = \"plain\"\nwidth = 4\n\
                          epochs = 1\nblocks = 10\ncycles = 100\nminimum_wins = 9\n\
                          minimum_median_saving_ns = 1000\n# ";
    let world = World::registered(&[(LEG, TIMING)]);
    let state = world.json(&["state"]);
    assert_eq!(
        state["packets"][0]["next_act"],
        "packhouse lab rehearse example"
    );
    listed_alike(&world);
    world.append(rehearsed(world.packet(), false, Some(407_359)));
    listed_alike(&world);
    let state = world.json(&["state"]);
    let next = state["packets"][0]["next_act"].as_str().unwrap_or_default();
    for text in [
        "1000.000 ns",
        "407.359 us on cpu",
        "packhouse lab withdraw example",
    ] {
        assert!(next.contains(text), "{text}: {next}");
    }
    assert!(!next.contains("rehearse example"), "{next}");
    let planned = world.said(&["rehearse", "example"], 1);
    assert!(
        planned.contains("gain nothing: its gate stays within"),
        "{planned}"
    );
    let red = world.said(&["rehearse", "example", "--execute"], 1);
    assert!(
        red.contains("next: its gate stays within the noise"),
        "{red}"
    );
    assert!(red.contains("lab withdraw example --reason TEXT"), "{red}");
    assert!(!red.contains("lab rehearse example --execute"), "{red}");
    world.said(&[&WITHDRAW[..], &["--execute"]].concat(), 0);
}
