//! Experiments before they are packets: a second one begins from the first by one command, is seen
//! before it is registered, and what its packet froze is measured while it waits.

use crate::sandbox::Sandbox;
use serde_json::Value;

struct Desk(Sandbox);

impl Desk {
    /// A lab whose example lane is open.
    fn open() -> Self {
        let desk = Self(Sandbox::new());
        let lab = desk.0.path("lab");
        let lab = lab.to_str().expect("because it is ASCII");
        desk.said(&["init", lab, "--execute"], 0);
        desk.said(
            &[
                "lane",
                "open",
                "example",
                "--reason",
                "to begin",
                "--execute",
            ],
            0,
        );
        desk
    }

    /// Runs a command of the lab; what it says on both streams.
    fn said(&self, words: &[&str], code: i32) -> String {
        let mut command = self.0.command(&["lab"]);
        let lab = self.0.path("lab");
        if lab.join("ledger.jsonl").exists() {
            command.arg("--lab").arg(lab);
        }
        let output = command.args(words).output().expect("because it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = self.said(&[words, &["--json"]].concat(), 0);
        serde_json::from_str(&said).expect("because it is JSON")
    }

    /// Replaces one text of a file of the lab.
    fn edit(&self, name: &str, good: &str, bad: &str) {
        let path = self.0.path("lab").join(name);
        let text = std::fs::read_to_string(&path).expect("because it is there");
        assert!(text.contains(good), "{good}");
        std::fs::write(&path, text.replacen(good, bad, 1)).expect("because it is ours");
    }
}

/// Nothing is wrong with the words where a lane must be opened first: so does `register` end.
#[test]
fn an_experiment_without_an_open_lane_is_no_misuse() {
    let desk = Desk::open();
    let close = ["lane", "close", "example", "--reason", "over", "--execute"];
    desk.said(&close, 0);
    let refused = desk.said(&["experiment", "new", "second"], 3);
    assert!(
        refused.contains("no lane is open for the experiment"),
        "{refused}"
    );
    assert!(
        refused.contains("hint: packhouse lab lane open ID"),
        "{refused}"
    );
    let closed = ["experiment", "new", "second", "--lane", "example"];
    let refused = desk.said(&closed, 3);
    assert!(refused.contains("lane is closed: example"), "{refused}");
}

#[test]
fn an_experiment_is_drafted_from_another_and_seen_before_it_is_registered() {
    let desk = Desk::open();
    desk.edit(
        "experiments/example/prereg.toml",
        "exclusions = [",
        "exclusions = [\"mine\", ",
    );
    let new = ["experiment", "new", "second", "--from", "example"];
    let planned = desk.said(&new, 0);
    assert!(
        planned.contains("experiment new second --from example --execute"),
        "{planned}"
    );
    assert!(!desk.0.path("lab/experiments/second").exists());
    desk.said(&[&new[..], &["--execute"]].concat(), 0);
    let path = desk.0.path("lab/experiments/second/prereg.toml");
    let text = std::fs::read_to_string(path).expect("because it was written");
    for line in [
        "id = \"second\"\n",
        "lane = \"example\"\n",
        "exclusions = [\"mine\", ",
    ] {
        assert!(text.contains(line), "{text}");
    }
    // Never over another, and only from what is there and into a lane that is.
    desk.said(&[&new[..], &["--execute"]].concat(), 3);
    let refused = desk.said(&["experiment", "new", "third", "--from", "exmple"], 2);
    assert!(refused.contains("did you mean example?"), "{refused}");
    let refused = desk.said(&["experiment", "new", "third", "--lane", "exmple"], 2);
    assert!(refused.contains("did you mean example?"), "{refused}");
    desk.said(&["experiment", "new", "deadbeef"], 2);
    desk.edit("experiments/second/prereg.toml", "question =", "questoin =");
    let listed = desk.json(&["experiment", "ls"]);
    let states: Vec<_> = listed["experiments"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .map(|one| (one["experiment"].as_str(), one["state"].as_str()))
        .collect();
    assert_eq!(
        states,
        [
            (Some("example"), Some("drafted")),
            (Some("second"), Some("drafted"))
        ]
    );
    let next = listed["experiments"][1]["next"]
        .as_str()
        .expect("because it has one");
    assert!(
        next.contains("questoin is no field, did you mean question?"),
        "{next}"
    );
    let refused = desk.said(&["rehearse", "example"], 3);
    assert!(refused.contains("drafted, and not registered"), "{refused}");
    let misspelt = desk.said(&["register", "exmple"], 3);
    assert!(misspelt.contains("did you mean example?"), "{misspelt}");
    assert!(refused.contains("lab register example"), "{refused}");
}

#[test]
fn what_a_waiting_packet_froze_is_measured_and_its_report_is_data() {
    let desk = Desk::open();
    let candidate = "[program.candidate]\nprogram = \"packhouse\"\n\
                     arguments = [\"fixture\", \"serve\"]\nenvironment = {}";
    let other = candidate.replace("environment = {}", "environment = { A = \"b\" }");
    let prereg = "experiments/example/prereg.toml";
    desk.edit(prereg, candidate, &other);
    let frozen = "[[frozen]]\npath = \"experiments/example/notes\"\n\n[matrix]";
    desk.edit(prereg, "[matrix]", frozen);
    let notes = desk.0.path("lab/experiments/example/notes");
    std::fs::write(&notes, "one").expect("because it is ours");
    desk.edit(prereg, "repeats = 2", "repeats = 1");
    let registered = desk.said(&["register", "example", "--execute"], 0);
    assert!(
        registered.contains("no case is drawn (repeats = 1)"),
        "{registered}"
    );
    // "None: control and candidate are the same program", says the author.
    assert!(
        registered.contains("None: control and candidate are"),
        "{registered}"
    );
    assert!(
        registered.contains("differ in 1, as computed"),
        "{registered}"
    );
    assert!(
        registered.contains("variable A: not set -> \"b\""),
        "{registered}"
    );
    let document = desk.json(&["report", "example"]);
    let report = &document["report"];
    assert_eq!(report["differs"][0], "variable A: not set -> \"b\"");
    assert_eq!(report["programs"][1]["variables"][0], "A");
    assert_eq!(report["plan"]["reviewers"], 1);
    assert!(report["analyses"].as_array().is_some_and(Vec::is_empty));
    let page = document["page"].as_str().expect("because it is text");
    assert!(
        page.contains("What is to run") && page.contains("Differs, as computed"),
        "{page}"
    );
    assert_eq!(
        desk.json(&["ledger", "verify"])["changed"],
        Value::Array(Vec::new())
    );
    std::fs::write(&notes, "two").expect("because it is ours");
    let verified = desk.said(&["ledger", "verify"], 0);
    assert!(verified.contains("example: changed: frozen file experiments/example/notes"));
    let live = desk.json(&["state", "--live"]);
    let all = live["observed"]["observations"]
        .as_array()
        .expect("because it is a list");
    let seen = all
        .iter()
        .find(|one| one["topic"] == "frozen")
        .expect("because it waits");
    assert_eq!(
        (seen["subject"].as_str(), seen["known"].as_bool()),
        (Some("example"), Some(true))
    );
    assert!(
        seen["seen"]
            .as_str()
            .is_some_and(|text| text.contains("notes: frozen ")),
        "{seen}"
    );
}
