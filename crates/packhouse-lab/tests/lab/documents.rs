//! Lanes, preregistrations and packets: what parses, and what each mistake is called.

use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_lab::prereg::{GateRule, Leg, Promise, Stop, Treatment};
use packhouse_lab::{DOCUMENT_BYTES_MAX, Lane, Packet, Prereg};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

pub(crate) const LANE: &str = r#"
schema = "packhouse/lane/1"
id = "fast"
title = "A lane"
model = "m"
quantisation = "Q4_0"
runtime = "r"
hardware = "h"
promise = "bit-equal"
teacher = "none"
record_key = "fast kernels"
"#;

/// A preregistration that has everything.
pub(crate) const PREREG: &str = r#"
schema = "packhouse/prereg/1"
id = "one"
lane = "fast"
kind = "component"
question = "q"
authorises = "a"
does_not_authorise = "d"
exclusions = ["x", "y"]
reviewers = 2
time_budget_s = 600
case_timeout_s = 60
rehearsal_max_age_s = 86400
stop = "first-failed-leg"
frozen = [{ path = "modules" }, { path = "models/m.bin" }]
commit = [{ path = "source" }]

[treatment]
difference = "another order of sums"

[program.control]
program = "packhouse"
arguments = ["fixture", "serve"]
environment = {}

[program.candidate]
program = "bin/candidate"
arguments = ["--data=${lab}/modules/a.py", "http://[::1]:80/"]
environment = { MODULES = "${lab}/modules" }

[matrix]
fixtures = ["mrow-identity-v1-v1", "mrow-q4_0-joint-n-v1-v1"]
devices = ["cpu", "cuda:GPU-00000000-1111-2222-3333-44444444444f"]
arms = ["plain"]
widths = [4, 1]
repeats = 2
promise = "bit-equal"

[[leg]]
kind = "exact"
treatment = "control"

[[leg]]
kind = "exact"
treatment = "candidate"

[[leg]]
kind = "timing"

[timing]
fixture = "mrow-identity-v1-v1"
arm = "plain"
width = 4
epochs = 1
blocks = 10
cycles = 100
minimum_wins = 9
minimum_median_saving_ns = 1000

[[rejection]]
name = "no-width-3"
fixture = "mrow-identity-v1-v1"
arm = "plain"
width = 3
reason = "no such width"

[[gate]]
kind = "fresh-inputs"

[[gate]]
kind = "witness"
path = "scalar"
counter = "rows"
minimum = 1

[[gate]]
kind = "denial"
denies = ["generation"]
"#;

fn prereg_of(text: &str) -> Result<Prereg, String> {
    Prereg::parse(text.as_bytes()).map_err(|error| error.to_string())
}

fn table_of(text: &str) -> Table {
    text.parse().expect("because it is TOML")
}

/// TOML of a table, every table in it inline.
fn rendered(table: &Table) -> String {
    fn value(of: &Value) -> String {
        match of {
            Value::String(text) => json!(text).to_string(),
            Value::Integer(integer) => integer.to_string(),
            Value::Float(float) => format!("{float:?}"),
            Value::Boolean(boolean) => boolean.to_string(),
            Value::Datetime(datetime) => datetime.to_string(),
            Value::Array(items) => {
                format!(
                    "[{}]",
                    items.iter().map(value).collect::<Vec<_>>().join(", ")
                )
            }
            Value::Table(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(key, of)| format!("{} = {}", json!(key), value(of)));
                format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
    let lines = table
        .iter()
        .map(|(key, of)| format!("{} = {}\n", json!(key), value(of)));
    lines.collect()
}

/// Every value of a document by its path, tables and lists among them.
fn paths(prefix: &[String], value: &Value, found: &mut Vec<Vec<String>>) {
    let below = |step: String| [prefix, &[step]].concat();
    match value {
        Value::Table(fields) => {
            for (key, value) in fields {
                found.push(below(key.clone()));
                paths(&below(key.clone()), value, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                found.push(below(index.to_string()));
                paths(&below(index.to_string()), value, found);
            }
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => {}
    }
}

fn at<'v>(value: &'v mut Value, path: &[String]) -> &'v mut Value {
    path.iter().fold(value, |value, step| match value {
        Value::Table(fields) => fields.get_mut(step).expect("because the path is of it"),
        Value::Array(items) => {
            let index: usize = step.parse().expect("because the path is of it");
            &mut items[index]
        }
        _ => panic!("{path:?} leads into {value:?}"),
    })
}

/// A path as messages have it.
fn shown(path: &[String]) -> String {
    path.iter().fold(String::new(), |shown, step| {
        if step.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("{shown}[{step}]")
        } else if shown.is_empty() {
            step.clone()
        } else {
            format!("{shown}.{step}")
        }
    })
}

#[test]
fn a_lane_and_a_preregistration_are_read_as_they_are_written() {
    let lane = Lane::parse(LANE.as_bytes()).expect("because it is one");
    assert_eq!(
        (lane.id.as_str(), lane.record_key.as_str()),
        ("fast", "fast kernels")
    );
    let prereg = prereg_of(PREREG).expect("because it is one");
    assert_eq!((prereg.id.as_str(), prereg.lane.as_str()), ("one", "fast"));
    assert_eq!((prereg.reviewers, prereg.stop), (2, Stop::FirstFailedLeg));
    assert_eq!(prereg.matrix.widths, [4, 1], "in the order of the document");
    assert_eq!(prereg.matrix.promise, Promise::BitEqual);
    let treatments = [Treatment::Control, Treatment::Candidate];
    let mut legs = treatments
        .map(|treatment| Leg::Exact { treatment })
        .to_vec();
    legs.push(Leg::Timing);
    assert_eq!(prereg.legs, legs);
    assert_eq!(prereg.candidate.program, "bin/candidate");
    assert_eq!(prereg.candidate.environment["MODULES"], "${lab}/modules");
    assert_eq!(prereg.frozen, ["modules", "models/m.bin"]);
    assert_eq!(prereg.commits, ["source"]);
    let denies = vec!["generation".to_owned()];
    assert_eq!(prereg.gates[0], GateRule::FreshInputs);
    assert_eq!(prereg.gates[2], GateRule::Denial { denies });
    assert_eq!(
        prereg.fixtures(),
        ["mrow-identity-v1-v1", "mrow-q4_0-joint-n-v1-v1"]
    );
    // Our own rendering of it is the same document: what the next tests change is all of it.
    assert_eq!(prereg_of(&rendered(&table_of(PREREG))), Ok(prereg));
}

#[test]
fn every_field_is_needed_none_is_made_up_and_each_has_its_type() {
    type Parse = fn(&[u8]) -> Result<(), String>;
    let documents: [(&str, Parse); 2] = [
        (LANE, |bytes| {
            Lane::parse(bytes)
                .map(drop)
                .map_err(|error| error.to_string())
        }),
        (PREREG, |bytes| {
            Prereg::parse(bytes)
                .map(drop)
                .map_err(|error| error.to_string())
        }),
    ];
    let mut tried = 0;
    for (text, parse) in documents {
        let whole = Value::Table(table_of(text));
        let mut all = vec![Vec::new()];
        paths(&[], &whole, &mut all);
        let parse = |value: &Value| match value {
            Value::Table(table) => parse(rendered(table).as_bytes()),
            _ => panic!("a document is a table"),
        };
        for path in &all {
            // A field that is none.
            let mut changed = whole.clone();
            if let Value::Table(fields) = at(&mut changed, path) {
                let free = path.last().is_some_and(|last| last == "environment");
                fields.insert("mystery".to_owned(), Value::Integer(1));
                let said = parse(&changed).expect_err("because nobody knows it");
                let field = shown(&[path.as_slice(), &["mystery".to_owned()]].concat());
                let expected = match free {
                    true => format!("{field}: expected a text"),
                    false => format!("{field}: unknown field"),
                };
                assert!(said.starts_with(&expected), "{said}, expected {expected}");
                tried += 1;
            }
            let Some((last, above)) = path.split_last() else {
                continue;
            };
            // No field.
            let mut changed = whole.clone();
            if let Value::Table(fields) = at(&mut changed, above) {
                fields.remove(last);
                let said = parse(&changed);
                if !OPTIONAL.contains(&shown(path).as_str()) {
                    let said = said.expect_err("because it is needed");
                    assert_eq!(said, format!("{}: absent", shown(path)));
                }
                tried += 1;
            }
            tried += misspelt(&whole, path, &parse);
            tried += other_types(&whole, path, &parse);
        }
    }
    assert!(tried > 500, "{tried}");
}

/// Gives a field a name with a letter more: it is told by that name and by the one that was meant,
/// and not as absent alone; how many.
fn misspelt(
    whole: &Value,
    path: &[String],
    parse: &impl Fn(&Value) -> Result<(), String>,
) -> usize {
    let Some((last, above)) = path.split_last() else {
        return 0;
    };
    let is_free = above.last().is_some_and(|name| name == "environment");
    let mut changed = whole.clone();
    let Value::Table(fields) = at(&mut changed, above) else {
        return 0;
    };
    let Some(value) = fields.remove(last).filter(|_| !is_free) else {
        return 0;
    };
    fields.insert(format!("{last}x"), value);
    let said = parse(&changed).expect_err("because no field has that name");
    let field = shown(path);
    let expected = match OPTIONAL.contains(&field.as_str()) {
        // What then is absent may be noticed first.
        true => [format!("{field}x"), String::new()],
        false => [
            format!("{field}: absent; {field}x is no field"),
            format!("mean {last}?"),
        ],
    };
    let is_absent = ["leg: ", "leg[", "timing: "]
        .iter()
        .any(|rule| said.starts_with(rule));
    let is_told = expected.iter().all(|words| said.contains(words.as_str()));
    assert!(is_told || is_absent, "{said}, expected {expected:?}");
    1
}

/// Gives a field values of other types, one after the other; how many.
fn other_types(
    whole: &Value,
    path: &[String],
    parse: &impl Fn(&Value) -> Result<(), String>,
) -> usize {
    let mut tried = 0;
    for wrong in ["text\n", "2020-01-01", "1.5", "[[1]]", "true", "-1"] {
        let wrong = table_of(&match wrong {
            "text\n" => "wrong = \"\\n\"".to_owned(),
            wrong => format!("wrong = {wrong}"),
        });
        let mut changed = whole.clone();
        *at(&mut changed, path) = wrong["wrong"].clone();
        let said = parse(&changed).expect_err("because it is of another type");
        let field = shown(path);
        let at_it = [format!("{field}: "), format!("{field}[0]: ")];
        assert!(
            at_it.iter().any(|at| said.starts_with(at)),
            "{said} at {field}"
        );
        tried += 1;
    }
    tried
}

/// What a newcomer typed.
const MISSPELT: [(&str, &str, &str); 4] = [
    (
        "question =",
        "questoin =",
        "question: absent; questoin is no field, did you mean question?",
    ),
    (
        "widths =",
        "width =",
        "matrix.widths: absent; matrix.width is no field, did you mean widths?",
    ),
    (
        "[program.control]",
        "[program.contrl]",
        "program.contrl: unknown field, did you mean control?",
    ),
    (
        "[[rejection]]",
        "[[rejections]]",
        "rejections: unknown field, did you mean rejection?",
    ),
];

/// Fields that may be absent, whatever then follows from it. `environment`'s variables are free.
const OPTIONAL: [&str; 8] = [
    "leg",
    "frozen",
    "commit",
    "timing",
    "rejection",
    "gate",
    "program.control",
    "program.candidate.environment.MODULES",
];

#[test]
fn what_contradicts_itself_is_refused_by_its_field() {
    for (good, bad, said) in CONTRADICTIONS {
        assert_eq!(PREREG.matches(good).count(), 1, "{good}");
        let error = prereg_of(&PREREG.replace(good, bad)).expect_err(said);
        assert!(error.starts_with(said), "{error}\nexpected {said}");
    }
    let without = PREREG.replacen("[program.control]\nprogram", "[other]\nprogram", 1);
    let error = prereg_of(&without).expect_err("because another table is there");
    assert_eq!(error, "other: unknown field");
    for (good, bad, said) in MISSPELT {
        let error = prereg_of(&PREREG.replacen(good, bad, 1)).expect_err(said);
        assert_eq!(error, said);
    }
    let mut table = table_of(PREREG);
    table["program"]
        .as_table_mut()
        .expect("because it is one")
        .remove("control");
    let error = prereg_of(&rendered(&table)).expect_err("because legs need it");
    assert_eq!(error, "leg[0]: there is no program.control");
}

const TIMING_LEG: &str = "[[leg]]\nkind = \"timing\"\n";
const TWO_TIMING_LEGS: &str = "[[leg]]\nkind = \"timing\"\n[[leg]]\nkind = \"timing\"\n";

/// What to replace in the preregistration, by what, and what is said of it then.
const CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "id = \"one\"",
        "id = \"deadbeef\"",
        "id: expected an id that is not only 8",
    ),
    (
        "case_timeout_s = 60",
        "case_timeout_s = 601",
        "case_timeout_s: 601 s are more than",
    ),
    (
        "reviewers = 2",
        "reviewers = 0",
        "reviewers: expected an integer from 1 to 16, found 0",
    ),
    (
        "widths = [4, 1]",
        "widths = [4, 4]",
        "matrix.widths: 4 twice",
    ),
    (
        "widths = [4, 1]",
        "widths = []",
        "matrix.widths: there must be one at least",
    ),
    (
        "arms = [\"plain\"]",
        "arms = []",
        "matrix.arms: there must be one at least",
    ),
    (
        "repeats = 2",
        "repeats = 1001",
        "matrix.repeats: expected an integer from 1 to 1000",
    ),
    (
        "path = \"modules\"",
        "path = \"models\"",
        "frozen[1].path: models/m.bin is in models",
    ),
    (
        "path = \"modules\"",
        "path = \"models/m.bin\"",
        "frozen: models/m.bin twice",
    ),
    (
        "path = \"modules\"",
        "path = \"evidence/x\"",
        "frozen[0].path: the lab itself writes ev",
    ),
    (
        "path = \"modules\"",
        "path = \"experiments/one\"",
        "frozen[0].path: the lab itself",
    ),
    (
        "path = \"modules\"",
        "path = \"../modules\"",
        "frozen[0].path: expected a path below",
    ),
    (
        "path = \"source\"",
        "path = \"/source\"",
        "commit[0].path: expected a path below",
    ),
    (
        "treatment = \"candidate\"",
        "treatment = \"control\"",
        "leg: there must be an exact leg",
    ),
    (TIMING_LEG, "", "timing: there is no timing leg"),
    (
        TIMING_LEG,
        TWO_TIMING_LEGS,
        "leg: there can be one timing leg only",
    ),
    (
        "blocks = 10",
        "blocks = 5",
        "timing.blocks: expected an integer from 6 to 1000, found 5",
    ),
    (
        "blocks = 10",
        "blocks = 1001",
        "timing.blocks: expected an integer from 6 to 1000, found 1001",
    ),
    (
        "minimum_wins = 9",
        "minimum_wins = 11",
        "timing.minimum_wins: 11 wins of 10 blocks",
    ),
    (
        "width = 4\nepochs",
        "width = 8\nepochs",
        "timing.width: is none of the matrix",
    ),
    (
        "width = 3",
        "width = 4",
        "rejection[0]: is a cell of the matrix",
    ),
    (
        "denies = [\"generation\"]",
        "denies = []",
        "gate[2].denies: there must be one",
    ),
    (
        "kind = \"fresh-inputs\"",
        "kind = \"witness\"\npath = \"scalar\"\ncounter = \"rows\"\nminimum = 2",
        "gate: witness scalar rows twice",
    ),
    (
        "kind = \"component\"",
        "kind = \"endpoint\"",
        "kind: expected \"component\", found \"e",
    ),
    (
        "program = \"bin/candidate\"",
        "program = \"/bin/sh\"",
        "program.candidate.program: exp",
    ),
    (
        "--data=${lab}/modules/a.py",
        "--data=/models",
        "program.candidate.arguments[0]: expected a te",
    ),
    (
        "MODULES = \"${lab}/modules\"",
        "MODULES = \"/usr/lib:/lib\"",
        "program.candidate.environment.MODULES: expected a te",
    ),
    (
        "MODULES =",
        "\"NO=NAME\" =",
        "program.candidate.environment: expected names of variabl",
    ),
    (
        "packhouse/prereg/1",
        "packhouse/prereg/2",
        "schema: expected packhouse/prereg/1, found",
    ),
    (
        "question = \"q\"",
        "question = \"q\"\nid = \"two\"",
        "not TOML: line 7: duplicate key",
    ),
    ("question = \"q\"", "question = ", "not TOML: line 6: "),
    (
        "question = \"q\"",
        "question = \"  \"",
        "question: expected a text that is not empty",
    ),
];

#[test]
fn what_is_no_text_or_too_long_is_refused_before_it_is_read() {
    let error = Prereg::parse(b"schema = 1\n\xff").expect_err("because it is no text");
    assert_eq!(error.to_string(), "line 2: not UTF-8");
    let long = vec![b'#'; DOCUMENT_BYTES_MAX + 1];
    let error = Lane::parse(&long).expect_err("because it is too long");
    assert_eq!(
        error.to_string(),
        "document of 1048577 bytes, at most 1048576 are read"
    );
}

/// A packet that has everything.
fn packet() -> Json {
    let digest = |text: &str| Digest::of(text.as_bytes()).to_string();
    let object = |name: &str| json!({"name": name, "sha256": digest(name)});
    let program = |name: &str| {
        json!({
            "arguments": ["a"],
            "environment": {"A": "b"},
            "objects": [object("libc.so.6"), object("libm.so.6")],
            "program": object(name),
        })
    };
    json!({
        "analyzer": digest("analyzer"),
        "checker": "checker 1",
        "commits": [{"commit": "0".repeat(40), "path": "source"}],
        "experiment": "one",
        "fixtures": [{"id": "a", "sha256": digest("a")}, {"id": "b", "sha256": digest("b")}],
        "frozen": [{"path": "m/a", "sha256": digest("m/a")}],
        "kind": "component",
        "lane": {"id": "fast", "sha256": digest("lane")},
        "prereg": digest("prereg"),
        "programs": {"candidate": program("bin/c"), "control": program("packhouse")},
        "schema": "packhouse/packet/1",
    })
}

#[test]
fn a_packet_has_one_spelling_and_its_digest_is_that_of_its_bytes() {
    let bytes = canonical::render(&packet());
    let parsed = Packet::parse(&bytes).expect("because it is one");
    assert_eq!(parsed.render(), bytes);
    assert_eq!(parsed.digest(), Digest::of(&bytes));
    assert_eq!(parsed.programs.rehearsed().program.name, "packhouse");
    let mut without = packet();
    let programs = without["programs"]
        .as_object_mut()
        .expect("because it is one");
    let control = programs.remove("control").expect("because it is there");
    programs.insert("null".to_owned(), control);
    let parsed = Packet::parse(&canonical::render(&without)).expect("because it is one too");
    assert_eq!(parsed.render(), canonical::render(&without));
    assert!(parsed.programs.control.is_none() && parsed.programs.null.is_some());
}

/// Every value of a JSON document, by its pointer.
fn pointers(value: &Json, at: &str, found: &mut Vec<String>) {
    let mut below = |step: String, value: &Json| {
        found.push(format!("{at}/{step}"));
        pointers(value, &format!("{at}/{step}"), found);
    };
    match value {
        Json::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| below(key.clone(), value)),
        Json::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, value)| below(at.to_string(), value));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

#[test]
fn a_packet_that_differs_in_any_field_is_refused_or_another_packet() {
    let whole = packet();
    let mut found = vec![String::new()];
    pointers(&whole, "", &mut found);
    let digest = Packet::parse(&canonical::render(&whole))
        .expect("because it is one")
        .digest();
    let refuse = |value: &Json, why: &str| {
        let parsed = Packet::parse(&canonical::render(value));
        match parsed {
            Ok(other) => assert_ne!(other.digest(), digest, "{why}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    };
    for pointer in &found {
        for wrong in [
            json!(null),
            json!(1),
            json!([]),
            json!({}),
            json!("x"),
            json!(true),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(pointer).expect("because it is there") = wrong;
            refuse(&changed, pointer);
        }
        let mut changed = whole.clone();
        if let Some(Json::Object(fields)) = changed.pointer_mut(pointer) {
            fields.insert("mystery".to_owned(), json!("x"));
            let parsed = Packet::parse(&canonical::render(&changed));
            let is_free = pointer.ends_with("/environment");
            assert_eq!(parsed.is_ok(), is_free, "{pointer}");
        }
    }
    let unordered = [
        ("/fixtures", "b and a"),
        ("/programs/control/objects", "libm.so.6"),
    ];
    for (pointer, said) in unordered {
        let mut changed = whole.clone();
        let list = changed.pointer_mut(pointer).and_then(Json::as_array_mut);
        let list = list.expect("because it is a list");
        list.reverse();
        let error = Packet::parse(&canonical::render(&changed))
            .expect_err(pointer)
            .to_string();
        assert!(
            error.contains(said) && error.contains("not in ascending order"),
            "{error}"
        );
    }
    let spaced = String::from_utf8(canonical::render(&whole)).expect("because it is text");
    let error = Packet::parse(spaced.replace(",", ", ").as_bytes()).expect_err("because of blanks");
    assert!(
        error
            .to_string()
            .starts_with("not canonical JSON: not canonical: byte "),
        "{error}"
    );
}
