//! `plans`, `layouts` and `inspect --plan`: what is there, what would be packed, and why not.

use crate::model;
use crate::sandbox::Sandbox;
use packhouse_layout::Layout;
use packhouse_pack::Packers;
use packhouse_prepare::plan::builtin;
use serde_json::Value;
use std::collections::BTreeMap;

/// A model of which no stock CPU build packs anything, so that what fits is the same everywhere.
const TENSORS: [(&str, &str, &[u64]); 7] = [
    ("token_embd.weight", "Q8_0", &[64, 32]),
    ("blk.0.attn_norm.weight", "F32", &[64]),
    ("blk.0.ffn_gate.weight", "Q4_0", &[64, 12]),
    ("blk.0.ffn_up.weight", "Q4_0", &[64, 12]),
    ("blk.0.ffn_down.weight", "Q8_0", &[64, 16]),
    ("blk.1.ffn_up.weight", "Q4_0", &[64, 12]),
    ("output_norm.weight", "F32", &[64]),
];

const MINE: &str = r#"name = "mine"
version = 2
summary = "up matrices, in tiles of four rows"

[[rule]]
id = "up"
tensor = 'blk\.(?<layer>[0-9]+)\.ffn_up\.weight'
ranges = { layer = [0, 1] }
layout = "q4_0-joint-n-v1"
parameters = { n_tile = 4 }
slot = "layer"
otherwise = "refuse"
expect = "blk.{layer}.ffn_up.weight"

[[rule]]
id = "norm"
tensor = '.*norm\.weight'
layout = "identity-v1"
slot = "100 + index"
otherwise = "leave"
"#;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    model::write(&sandbox.path("m.gguf"), &TENSORS, &[]);
    std::fs::create_dir_all(sandbox.path("home/.config/packhouse/plans")).unwrap();
    sandbox
}

fn write(sandbox: &Sandbox, name: &str, text: &str) {
    std::fs::write(sandbox.path(name), text).unwrap();
}

fn json(sandbox: &Sandbox, words: &[&str]) -> Value {
    let output = sandbox.command(words).output().unwrap();
    serde_json::from_slice(&output.stdout).expect("because --json prints one document")
}

#[test]
fn plans_are_listed_and_printed() {
    let sandbox = sandbox();
    let folder = "home/.config/packhouse/plans";
    write(&sandbox, &format!("{folder}/mine.toml"), MINE);
    write(&sandbox, &format!("{folder}/notes.txt"), "no plan");
    write(&sandbox, &format!("{folder}/cut.toml"), &MINE[..100]);
    write(&sandbox, &format!("{folder}/other.toml"), MINE);
    let taken = MINE.replace("\"mine\"", "\"identity\"");
    write(&sandbox, &format!("{folder}/identity2.toml"), &taken);
    sandbox.session(
        "plans",
        &[&["plans"], &["plans", "mine"], &["plans", "xe2-q4_0"]],
    );
    let listed = json(&sandbox, &["plans", "--json"]);
    assert_eq!(listed["plans"].as_array().map(Vec::len), Some(6));
    assert_eq!(listed["broken"].as_array().map(Vec::len), Some(3));
    for entry in builtin() {
        let one = json(&sandbox, &["plans", entry.name, "--json"]);
        assert_eq!(one["toml"].as_str().map(str::as_bytes), Some(entry.bytes));
        assert_eq!(
            one["digest"].as_str(),
            Some(entry.plan().digest().to_string().as_str())
        );
    }
}

#[test]
fn a_plan_that_is_none_is_refused_by_name_and_place() {
    let sandbox = sandbox();
    let folder = "home/.config/packhouse/plans";
    write(&sandbox, &format!("{folder}/cut.toml"), &MINE[..100]);
    write(&sandbox, &format!("{folder}/other.toml"), MINE);
    write(&sandbox, &format!("{folder}/xe2-q4_0.toml"), MINE);
    let taken = MINE.replace("\"mine\"", "\"ggml-cpu\"");
    write(&sandbox, "taken.toml", &taken);
    write(&sandbox, "large.toml", &"#".repeat(70_000));
    write(
        &sandbox,
        "typo.toml",
        &MINE.replace("slot = \"layer\"", "slots = \"layer\""),
    );
    write(
        &sandbox,
        "formula.toml",
        &MINE.replace("\"100 + index\"", "\"100 + index / 2\""),
    );
    let plan = |text| ["inspect", "m.gguf", "--plan", text];
    sandbox.session(
        "plans-refused",
        &[
            &plan("nope"),
            &plan("../../etc/passwd"),
            &plan("Mine"),
            &plan("-x"),
            &plan("cut"),
            &plan("other"),
            &plan("xe2-q4_0"),
            &plan("missing.toml"),
            &plan("./home"),
            &plan("taken.toml"),
            &plan("large.toml"),
            &plan("typo.toml"),
            &plan("./formula.toml"),
            &["plans", "nope"],
        ],
    );
}

#[test]
fn what_a_plan_packs_of_a_model_is_shown() {
    let sandbox = sandbox();
    write(&sandbox, "mine.toml", MINE);
    let plan = |text| ["inspect", "m.gguf", "--plan", text];
    sandbox.session(
        "inspect-plan",
        &[
            &plan("identity"),
            &plan("./mine.toml"),
            &["inspect", "m.gguf", "--plan", "mine.toml", "--tensors"],
        ],
    );
    let told = json(
        &sandbox,
        &["inspect", "m.gguf", "--plan", "mine.toml", "--json"],
    );
    assert_eq!(
        (&told["fits"], &told["packed_count"]),
        (&true.into(), &4.into())
    );
    let of = |name: &str| {
        let tensors = told["tensors"].as_array().expect("because there are some");
        let found = tensors.iter().find(|tensor| tensor["name"] == name);
        found.expect("because the model has it").clone()
    };
    let up = of("blk.1.ffn_up.weight");
    assert_eq!(
        (&up["slot"], &up["parameters"]["n_tile"]),
        (&1.into(), &4.into())
    );
    assert_eq!((&up["rule"], &up["bytes"]), (&"up".into(), &432.into()));
    let gate = of("blk.0.ffn_gate.weight");
    assert_eq!(gate["left_because"], "no rule names it");
}

#[test]
fn a_model_that_does_not_fit_is_a_negative_answer() {
    let sandbox = sandbox();
    let deeper = MINE
        .replace("[0, 1]", "[1, 20]")
        .replace("\"leave\"", "\"refuse\"");
    write(&sandbox, "deeper.toml", &deeper);
    let plan = |text| ["inspect", "m.gguf", "--plan", text];
    sandbox.session(
        "inspect-unfit",
        &[
            &plan("qwen27-xe2-m6"),
            &plan("xe2-q4_0"),
            &plan("deeper.toml"),
            &["inspect", "m.gguf", "--plan", "qwen27-xe2-m6", "--json"],
        ],
    );
}

/// What is packed here depends on the CPU, so the answer is held to the kernel table.
#[test]
fn layouts_say_what_packs_them_here() {
    let sandbox = sandbox();
    let output = sandbox.command(&["layouts"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    let told = json(&sandbox, &["layouts", "--json"]);
    let packers = Packers::detect();
    assert_eq!(told["level"], packers.level().name());
    let layouts = told["layouts"].as_array().expect("because there are some");
    assert_eq!(layouts.len(), Layout::ALL.len());
    for (layout, document) in Layout::ALL.into_iter().zip(layouts) {
        assert_eq!(document["id"], layout.id());
        let head = format!(
            "{} version {}: {}\n",
            layout.id(),
            layout.version(),
            layout.summary()
        );
        assert!(text.contains(&head), "{text}");
    }
    let xe2 = layouts
        .iter()
        .find(|one| one["id"] == Layout::Q4_0Xe2DpasV2.id());
    let xe2 = &xe2.expect("because it is one of them")["forms"][0];
    let q4_0 = packhouse_base::ggml_type::GgmlType::from_name("Q4_0").unwrap();
    let admitted = Layout::Q4_0Xe2DpasV2
        .admit(q4_0, &[64, 16], &BTreeMap::new())
        .unwrap();
    let fingerprint = packers.fingerprint(&admitted).unwrap().to_string();
    assert_eq!(xe2["fingerprint"], fingerprint.as_str());
    assert_eq!(
        xe2["packed_by"],
        packers.kernel(&admitted).unwrap().level().name()
    );
    assert!(text.contains(&fingerprint[..12]), "{text}");
    tiles_have_one_form_per_type(layouts, &packers);
    let repack = layouts[0]["forms"].as_array().unwrap();
    let q5_k = repack.iter().find(|form| form["type"] == "Q5_K").unwrap();
    assert_eq!(q5_k["packed_by"], Value::Null);
    assert!(text.contains("  by an engine only: "), "{text}");
    let inverses = text
        .lines()
        .filter_map(|line| line.strip_prefix("  inverse  "));
    let inverses: Vec<&str> = inverses.collect();
    assert_eq!(
        inverses,
        [
            "yes, where packed here",
            "yes",
            "no",
            "no",
            "yes",
            "yes",
            "yes"
        ]
    );
}

/// Whatever their sizes, and with one fingerprint for all of them.
fn tiles_have_one_form_per_type(layouts: &[Value], packers: &Packers) {
    let q4_0 = packhouse_base::ggml_type::GgmlType::from_name("Q4_0").unwrap();
    let tiles = layouts
        .iter()
        .find(|one| one["id"] == Layout::Int8TileRm.id());
    let tiles = tiles.expect("because it is one of them");
    let forms = tiles["forms"].as_array().unwrap();
    let of_type: Vec<_> = forms.iter().filter(|form| form["type"] == "Q4_0").collect();
    assert_eq!(
        (of_type.len(), &of_type[0]["parameters"]),
        (1, &Value::Null)
    );
    let admitted = Layout::Int8TileRm.admit(q4_0, &[96, 7], &BTreeMap::from([("t".into(), 3)]));
    let fingerprint = packers.fingerprint(&admitted.unwrap()).unwrap().to_string();
    assert_eq!(of_type[0]["fingerprint"], fingerprint.as_str());
    assert!(!forms.iter().any(|form| form["type"] == "I8"));
}
