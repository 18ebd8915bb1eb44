//! `lab state` and `lab report`: what they show, write, compare and observe.

use crate::sandbox::Sandbox;
use packhouse_base::digest::Digest;
use packhouse_lab::packet::{FixtureRef, FrozenProgram, LaneRef, Object, Packet, Programs};
use packhouse_lab::prereg::Kind;
use packhouse_ledger::act::{
    Act, Genesis, Lane, LaneAction, Name, Note, Registered, Rehearsed, Stage,
};
use packhouse_ledger::entry::{Entry, NO_ENTRY};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A lab made of files, with one open lane and one registered packet.
struct Lab {
    sandbox: Sandbox,
    folder: PathBuf,
    lines: Vec<u8>,
    count: u64,
    previous: Digest,
    packet: Digest,
}

impl Lab {
    /// With a candidate of this name and content.
    fn of(program: &str, content: Digest) -> Self {
        Self::with(packet(program, content))
    }

    fn with(packet: Packet) -> Self {
        let sandbox = Sandbox::new();
        let folder = sandbox.path("lab");
        for folder in ["lanes", "experiments/one"] {
            std::fs::create_dir_all(sandbox.path("lab").join(folder)).unwrap();
        }
        let mut lab = Self {
            sandbox,
            folder,
            lines: Vec::new(),
            count: 0,
            previous: NO_ENTRY,
            packet: NO_ENTRY,
        };
        std::fs::write(lab.folder.join("lanes/cpu.toml"), LANE).unwrap();
        std::fs::write(lab.folder.join("experiments/one/prereg.toml"), PREREG).unwrap();
        lab.packet = packet.digest();
        let path = lab.folder.join("experiments/one/packet.json");
        std::fs::write(path, packet.render()).unwrap();
        lab.begin();
        lab
    }

    fn new() -> Self {
        Self::of("kernel", Digest::of(b"no such program"))
    }

    fn begin(&mut self) {
        self.tell(Genesis {
            lab: "tests <b>of</b> pages".to_owned(),
            id: Digest::of(b"a lab of tests"),
        });
        self.tell(Lane {
            lane: name("cpu"),
            action: LaneAction::Open,
            reason: "first | lane".to_owned(),
            document: Some(Digest::of(LANE.as_bytes())),
            until: None,
        });
        self.tell(Registered {
            packet: self.packet,
            experiment: name("one"),
            lane: name("cpu"),
            prereg: Digest::of(PREREG.as_bytes()),
            treatment: "none".to_owned(),
        });
    }

    /// Adds an entry, as a writer would.
    fn tell(&mut self, act: impl Into<Act>) {
        let at_ns = 1_796_022_611_000_000_000 + i64::try_from(self.count).unwrap();
        let line = Entry::render(&act.into(), self.count, self.previous, at_ns, "boot");
        self.previous = Digest::of(&line[..line.len() - 1]);
        self.lines.extend_from_slice(&line);
        self.count += 1;
        std::fs::write(self.folder.join("ledger.jsonl"), &self.lines).unwrap();
    }

    /// Runs a command of the lab: exit code, stdout, stderr.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let folder = self.folder.to_str().unwrap();
        let words = [&["lab", "--lab", folder], words].concat();
        let output = self.sandbox.command(&words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let exit = output.status.code().unwrap();
        (exit, text(output.stdout), text(output.stderr))
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// What `--live` observed of a topic: what was seen, and whether it was.
    fn observed(&self, topic: &str) -> Vec<(String, bool)> {
        let (exit, stdout, stderr) = self.run(&["state", "--live", "--json"]);
        assert_eq!((exit, stderr.as_str()), (0, ""), "{stdout}");
        let document: Value = serde_json::from_str(&stdout).unwrap();
        let all = document["observed"]["observations"].as_array().unwrap();
        let of_topic = all.iter().filter(|one| one["topic"] == topic);
        let seen = of_topic.map(|one| {
            let how = one["how"].as_str().unwrap();
            assert!(
                !how.is_empty() && one["at_ns"].as_i64().unwrap() > 0,
                "{one}"
            );
            let (subject, seen) = (one["subject"].as_str(), one["seen"].as_str());
            let text = format!("{}: {}", subject.unwrap(), seen.unwrap());
            (text, one["known"].as_bool().unwrap())
        });
        seen.collect()
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn packet(program: &str, content: Digest) -> Packet {
    let frozen = |name: &str, sha256| FrozenProgram {
        program: Object {
            name: name.to_owned(),
            sha256,
        },
        objects: Vec::new(),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
    };
    Packet {
        experiment: "one".to_owned(),
        kind: Kind::Component,
        lane: LaneRef {
            id: "cpu".to_owned(),
            sha256: Digest::of(LANE.as_bytes()),
        },
        prereg: Digest::of(PREREG.as_bytes()),
        programs: Programs {
            control: None,
            candidate: frozen(program, content),
            null: Some(frozen("packhouse", Digest::of(b"another packhouse"))),
        },
        frozen: Vec::new(),
        commits: Vec::new(),
        fixtures: vec![FixtureRef {
            id: "mrow-q4_0-joint-n-v1-v1".to_owned(),
            sha256: Digest::of(b"a fixture"),
        }],
        analyzer: Digest::of(b"an analyzer"),
        checker: "bagcheck 1".to_owned(),
    }
}

/// A packet whose candidate is a script, by the last word of the command line of `listening`.
fn packet_of_script(script: &str, interpreter: &str, content: Digest) -> Packet {
    let mut packet = packet(script, Digest::of(b"a script"));
    packet.programs.candidate.objects.push(Object {
        name: interpreter.to_owned(),
        sha256: content,
    });
    packet
}

#[test]
fn the_state_is_shown_in_each_form_and_written_only_when_asked() {
    let lab = Lab::new();
    let (exit, text, _) = lab.run(&["state"]);
    assert_eq!(exit, 0);
    for said in [
        "lab tests <b>of</b> pages: 3 entries",
        "first | lane",
        "lab rehearse one",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let (exit, json, _) = lab.run(&["state", "--json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(exit, 0);
    assert_eq!(
        document["packets"][0]["next_act"],
        "packhouse lab rehearse one"
    );
    assert_eq!(document["observed"], Value::Null, "nothing was looked at");
    let (exit, md, _) = lab.run(&["state", "--md", "-"]);
    assert_eq!(exit, 0);
    assert!(
        md.starts_with("# State of tests \\<b\\>of\\</b\\> pages\n"),
        "{md}"
    );
    let (exit, html, _) = lab.run(&["state", "--html", "-"]);
    assert_eq!(exit, 0);
    assert!(html.contains("tests &lt;b&gt;of&lt;/b&gt; pages") && !html.contains("<b>of"));
    assert!(!lab.folder.join("state.md").exists() && !lab.folder.join("state.html").exists());
    let (exit, said, _) = lab.run(&["state", "--execute"]);
    assert_eq!((exit, said.lines().count()), (0, 2), "{said}");
    assert_eq!((lab.file("state.md"), lab.file("state.html")), (md, html));
}

#[test]
fn a_kept_page_that_is_not_the_ledgers_is_found() {
    let mut lab = Lab::new();
    let differs = |lab: &Lab, said: &str| {
        let (exit, text, stderr) = lab.run(&["state", "--check"]);
        assert_eq!((exit, stderr.as_str()), (1, ""), "{text}");
        assert!(text.contains(said), "{said}: {text}");
        assert!(text.contains("state --execute"), "{text}");
    };
    let same = |lab: &Lab| {
        lab.run(&["state", "--execute"]);
        let (exit, text, stderr) = lab.run(&["state", "--check"]);
        assert_eq!(exit, 0, "{text}{stderr}");
    };
    differs(&lab, "state.md: differs: it is not there");
    same(&lab);
    let page = lab.file("state.html");
    for other in ["first, and best lane", "first | lone"] {
        let edited = page.replace("first | lane", other);
        std::fs::write(lab.folder.join("state.html"), edited).unwrap();
        differs(&lab, "state.html: differs: ");
    }
    std::fs::write(lab.folder.join("state.html"), &page[..page.len() - 1]).unwrap();
    differs(&lab, "state.html: differs: first in line ");
    std::fs::write(lab.folder.join("state.html"), page + "more\n").unwrap();
    differs(&lab, "state.html: differs: ");
    same(&lab);
    lab.tell(Note {
        lane: None,
        text: "a word".to_owned(),
    });
    differs(&lab, "state.md: differs: first in line 3");
    same(&lab);
    let edited = LANE.replace("Kernels", "Other kernels");
    std::fs::write(lab.folder.join("lanes/cpu.toml"), edited).unwrap();
    differs(&lab, "state.md: differs: ");
    let (_, text, _) = lab.run(&["state"]);
    let named = format!("and the ledger names {}", Digest::of(LANE.as_bytes()));
    assert!(
        text.contains("lanes/cpu.toml has digest") && text.contains(&named),
        "{text}"
    );
    assert!(!text.contains("Other kernels"), "{text}");
}

#[test]
fn a_page_is_written_to_a_new_file_alone_and_leads_back_to_the_lab() {
    let lab = Lab::new();
    let pages = lab.sandbox.path("pages");
    std::fs::create_dir(&pages).unwrap();
    let page = pages.join("page.html");
    let word = page.to_str().unwrap();
    for command in [&["state"][..], &["report", "one"]] {
        let (exit, said, stderr) = lab.run(&[command, &["--html", word]].concat());
        assert_eq!(exit, 0, "{said}{stderr}");
        let html = std::fs::read_to_string(&page).unwrap();
        let links = html.split("href=\"").skip(1);
        let links: Vec<&str> = links.filter_map(|rest| rest.split('"').next()).collect();
        let mut followed = 0;
        for link in links.iter().filter(|link| !link.starts_with('#')) {
            assert!(pages.join(link).exists(), "{link}");
            followed += 1;
        }
        assert!(followed >= 3, "{links:?}");
        let (exit, _, stderr) = lab.run(&[command, &["--html", word]].concat());
        assert_eq!(exit, 3, "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
        assert_eq!(
            std::fs::read_to_string(&page).unwrap(),
            html,
            "it is as it was"
        );
        std::fs::remove_file(&page).unwrap();
    }
    let (exit, _, stderr) = lab.run(&["state", "--md", "/no/such/folder/page.md"]);
    assert_eq!(exit, 3);
    assert!(
        stderr.contains("/no/such/folder") && stderr.contains("hint: "),
        "{stderr}"
    );
    let (exit, _, stderr) = lab.run(&["state", "--md", "x", "--html", "y"]);
    assert_eq!(exit, 2, "{stderr}");
}

#[test]
fn a_packet_is_named_by_its_experiment_or_its_digest() {
    let mut lab = Lab::new();
    lab.tell(Rehearsed {
        packet: lab.packet,
        green: false,
        stage: Some(Stage::Hello),
        reason: "it said <nothing>".to_owned(),
        bag: None,
        analysis: None,
        analyzer: Digest::of(b"an analyzer"),
        tampers: 0,
        rejected: 0,
        elapsed_ns: 1,
        detectable_ns: None,
    });
    let digest = lab.packet.to_string();
    let (exit, by_name, _) = lab.run(&["report", "one"]);
    assert_eq!(exit, 0);
    for said in [
        "Does it work?",
        "rehearsed, red: hello: it said \\<nothing\\>",
        &digest,
    ] {
        assert!(by_name.contains(said), "{said}: {by_name}");
    }
    for word in [&digest, &digest[..8]] {
        assert_eq!(
            lab.run(&["report", word]),
            (0, by_name.clone(), String::new())
        );
    }
    for word in ["two", &digest[..7]] {
        let (exit, stdout, stderr) = lab.run(&["report", word]);
        assert_eq!((exit, stdout.as_str()), (2, ""), "{stderr}");
        assert!(
            stderr.contains(&format!("no such packet: {word}\n")),
            "{stderr}"
        );
    }
}

#[test]
fn a_ledger_that_is_refused_has_no_page() {
    let lab = Lab::new();
    lab.run(&["state", "--execute"]);
    let text = String::from_utf8(lab.lines.clone()).unwrap();
    std::fs::write(lab.folder.join("ledger.jsonl"), text.replace("one", "two")).unwrap();
    for words in [&["state"][..], &["state", "--check"], &["report", "one"]] {
        let (exit, stdout, stderr) = lab.run(words);
        assert_eq!((exit, stdout.as_str()), (3, ""), "{stderr}");
        assert!(
            stderr.starts_with("error: the ledger is refused: "),
            "{stderr}"
        );
    }
    let cut = lab.lines.len() / 2;
    std::fs::write(lab.folder.join("ledger.jsonl"), &lab.lines[..cut]).unwrap();
    let (exit, _, stderr) = lab.run(&["state", "--check"]);
    assert_eq!(exit, 3);
    assert!(
        stderr.contains("truncated, rewritten or forked"),
        "{stderr}"
    );
}

/// A process that a test started, ended with it.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that listens on a port of its own choice, which it prints.
fn listening(program: &Path) -> (Ours, String) {
    let code = "import socket\ns = socket.create_server(('127.0.0.1', 0))\n\
                print(s.getsockname()[1], flush=True)\ns.accept()";
    let mut command = Command::new(program);
    command.args(["-c", code, SCRIPT]).stdout(Stdio::piped());
    let mut ours = Ours(command.spawn().expect("because there is a python"));
    let stdout = ours.0.stdout.take().expect("because it is piped");
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    read.expect("because it prints its port");
    (ours, line.trim().to_owned())
}

/// The file of this host's python, behind links and shims.
fn python() -> PathBuf {
    let code = "import os; print(os.path.realpath('/proc/self/exe'))";
    let output = Command::new("python3").args(["-c", code]).output();
    let output = output.expect("because there is a python");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// What runs is shown with its port; the same recipe without a process is not; nor is a program
/// of the same name and other bytes taken for it.
#[test]
fn a_frozen_program_runs_only_where_a_process_has_its_bytes() {
    let python = python();
    let file = python.file_name().and_then(|name| name.to_str()).unwrap();
    let content = Digest::of(&std::fs::read(&python).unwrap());
    let lab = Lab::of(file, content);
    let (ours, port) = listening(&python);
    let process = format!("process {}, ", ours.0.id());
    let of = |seen: Vec<(String, bool)>| {
        let own = seen.into_iter().filter(|(text, _)| text.contains(&process));
        own.collect::<Vec<_>>()
    };
    let runs = of(lab.observed("processes"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    let (text, known) = &runs[0];
    assert!(
        *known && text.contains("runs the program frozen for one (candidate): "),
        "{text}"
    );
    let ports = of(lab.observed("ports"));
    assert_eq!(ports.len(), 1, "{ports:?}");
    assert!(
        ports[0].0.starts_with(&format!("127.0.0.1:{port}: ")),
        "{ports:?}"
    );

    // A script runs where its interpreter has the frozen bytes, and is told its name.
    let script = Lab::with(packet_of_script(SCRIPT, file, content));
    let runs = of(script.observed("processes"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(
        runs[0]
            .0
            .contains("runs the interpreter frozen for one (candidate)"),
        "{runs:?}"
    );
    let script = Lab::with(packet_of_script(SCRIPT, file, Digest::of(b"other bytes")));
    assert_eq!(of(script.observed("processes")), Vec::new());

    let other = Lab::of(file, Digest::of(b"other bytes"));
    let other = of(other.observed("processes"));
    assert_eq!(other.len(), 1, "{other:?}");
    assert!(other[0].0.contains("and is another file"), "{other:?}");

    drop(ours);
    assert_eq!(of(lab.observed("processes")), Vec::new());
    assert_eq!(of(lab.observed("ports")), Vec::new());
}

/// What can't be told is told as that: a folder without Git is no clean tree, and a packet that is
/// not the ledger's freezes nothing.
#[test]
fn what_cannot_be_observed_is_said_to_be_unknown() {
    let lab = Lab::new();
    let git = lab.observed("git");
    assert_eq!(git.len(), 1, "{git:?}");
    assert!(!git[0].1 && git[0].0.starts_with("commit: "), "{git:?}");
    let processes = lab.observed("processes");
    let none = processes
        .iter()
        .find(|(text, _)| text.starts_with("none: "));
    let none = &none.unwrap_or_else(|| panic!("{processes:?}")).0;
    assert!(
        none.contains("no process seen runs a program that a packet"),
        "{none}"
    );
    assert!(!lab.observed("devices").is_empty());
    std::fs::write(lab.folder.join("experiments/one/packet.json"), "{}\n").unwrap();
    let unknown = lab.observed("processes");
    let unknown = unknown.iter().find(|(text, _)| text.starts_with("one: "));
    let (text, known) = unknown.expect("because it is said");
    assert!(!known && text.contains("not the ledger's"), "{text}");
}

/// What `listening` has as its last argument.
const SCRIPT: &str = "kernel-of-tests.py";

const LANE: &str = "schema = \"packhouse/lane/1\"\nid = \"cpu\"\ntitle = \"Kernels | on CPUs\"\n\
    model = \"none\"\nquantisation = \"Q4_0\"\nruntime = \"serve\"\nhardware = \"any\"\n\
    promise = \"bit-equal\"\nteacher = \"none\"\nrecord_key = \"cpu\"\n";

const PREREG: &str = "schema = \"packhouse/prereg/1\"\nid = \"one\"\nlane = \"cpu\"\n\
    kind = \"component\"\nquestion = \"Does it work?\"\nauthorises = \"nothing\"\n\
    does_not_authorise = \"everything\"\nexclusions = []\nreviewers = 1\ntime_budget_s = 60\n\
    case_timeout_s = 60\nrehearsal_max_age_s = 600\nstop = \"never\"\n\
    [treatment]\ndifference = \"none\"\n\
    [program.candidate]\nprogram = \"kernel\"\narguments = []\nenvironment = {}\n\
    [matrix]\nfixtures = [\"mrow-q4_0-joint-n-v1-v1\"]\ndevices = [\"cpu\"]\narms = [\"plain\"]\n\
    widths = [1]\nrepeats = 1\npromise = \"bit-equal\"\n\
    [[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
