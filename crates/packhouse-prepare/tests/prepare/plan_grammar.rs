//! What is a plan and what is none: every fault with its place and its words.

use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_prepare::plan::limits;
use packhouse_prepare::plan::slot::{Capture, Formula, FormulaError};
use packhouse_prepare::plan::{Chooser, DimRule, Otherwise, Plan, Range};

/// A plan that uses every field; a seed of the fuzz target too.
const WHOLE: &str = include_str!("../../../../fuzz/seeds/plan/every-field.toml");

fn refused(text: &str) -> String {
    let error = Plan::parse(text.as_bytes(), "p.toml").expect_err("because the text is no plan");
    assert_eq!(error.blame(), Blame::Source);
    error.to_string()
}

/// The error of the whole plan with one replacement.
fn edited(from: &str, to: &str) -> String {
    assert_eq!(WHOLE.matches(from).count(), 1, "{from}");
    refused(&WHOLE.replace(from, to))
}

#[test]
fn every_field_is_read() {
    let plan = Plan::parse(WHOLE.as_bytes(), "p.toml").expect("because it is a plan");
    assert_eq!((plan.name(), plan.version()), ("mine.v2_x-1", 3));
    assert_eq!((plan.summary(), plan.origin()), ("a plan", "p.toml"));
    assert_eq!(plan.architectures(), ["llama", "qwen35"]);
    assert_eq!(plan.digest(), Digest::of(WHOLE.as_bytes()));
    let invariants = plan.invariants();
    assert_eq!(
        invariants.slots,
        Some(Range {
            first: 0,
            last: 200
        })
    );
    assert_eq!(invariants.count, Some(201));
    let [gate, down, tied] = plan.rules() else {
        panic!("three rules");
    };
    assert_eq!((gate.id(), gate.layout().id()), ("gate", "ggml-cpu-repack"));
    let layer = Capture::Named("layer".into());
    assert_eq!(gate.ranges()[&layer], Range { first: 0, last: 3 });
    let types: Vec<&str> = gate.types().iter().map(|ty| ty.name()).collect();
    assert_eq!(types, ["Q4_0", "Q8_0"]);
    let dims: Vec<String> = gate.dims().iter().map(DimRule::to_string).collect();
    assert_eq!(dims, ["64", "8 to 800 in steps of 8", "any"]);
    assert_eq!(gate.chosen_by(), Some(Chooser::GgmlCpu));
    assert_eq!(gate.parameters()["unit_rows"], 8);
    assert_eq!(gate.slot().text(), "2 * (layer + 1) - index");
    assert_eq!(
        (gate.otherwise(), gate.count()),
        (Otherwise::Leave, Some(199))
    );
    assert_eq!((down.otherwise(), down.count()), (Otherwise::Refuse, None));
    assert_eq!((gate.unless(), down.unless()), (None, None));
    let unless = tied.unless().map(|unless| unless.text());
    assert_eq!(unless, Some("output\\.weight|head\\..*"));
    let expected: Vec<_> = down
        .expected()
        .iter()
        .map(|e| (e.name.as_str(), e.slot))
        .collect();
    let wanted = [
        ("blk.1.ffn_down.weight", Some(101)),
        ("blk.2.ffn_down.weight", Some(102)),
    ];
    assert_eq!(expected, wanted);
}

#[test]
fn toml_faults_have_line_and_column() {
    let unknown = edited("version = 3", "version = 3\ncolour = \"red\"");
    assert!(
        unknown.starts_with("p.toml:3:1: unknown field `colour`, expected one of `name`"),
        "{unknown}"
    );
    let in_rule = edited("count = 199", "counts = 199");
    assert!(
        in_rule.starts_with("p.toml:17:1: unknown field `counts`, expected one of `id`"),
        "{in_rule}"
    );
    let in_dim = edited("max = 800", "most = 800");
    assert!(
        in_dim.starts_with("p.toml:11:") && in_dim.contains("unknown field `most`"),
        "{in_dim}"
    );
    let in_invariants = edited("count = 201", "total = 201");
    assert!(
        in_invariants.starts_with("p.toml:38:1: unknown field `total`"),
        "{in_invariants}"
    );
    let absent = edited("otherwise = \"leave\"\n", "");
    assert!(absent.contains("missing field `otherwise`"), "{absent}");
    let kind = edited("version = 3", "version = \"3\"");
    assert!(kind.starts_with("p.toml:2:11: invalid type"), "{kind}");
    let negative = edited("[0, 3]", "[-1, 3]");
    assert!(negative.starts_with("p.toml:9:"), "{negative}");
    let dim = edited("dims = [64,", "dims = [-64,");
    assert!(dim.starts_with("p.toml:11:9: invalid value"), "{dim}");
    let word = edited("\"refuse\"", "\"reject\"");
    assert!(
        word.starts_with("p.toml:25:13: unknown variant `reject`, expected `leave` or `refuse`"),
        "{word}"
    );
    let chooser = edited("chosen_by = \"ggml-cpu\"", "chosen_by = \"me\"");
    assert!(
        chooser.starts_with("p.toml:12:13: unknown variant `me`"),
        "{chooser}"
    );
    let doubled = edited("version = 3", "version = 3\nversion = 3");
    assert!(
        doubled.starts_with("p.toml:3:1: duplicate key"),
        "{doubled}"
    );
    let open = refused("name = \"x");
    assert!(open.starts_with("p.toml:1:"), "{open}");
}

#[test]
fn bytes_beyond_text_and_length_are_refused() {
    let error = Plan::parse(b"name = \"x\"\nz\xff", "p.toml").expect_err("because of byte 12");
    assert_eq!(error.to_string(), "p.toml:2:2: byte 12 is not UTF-8");
    let long = "#".repeat(limits::PLAN_BYTES_MAX + 1);
    assert_eq!(
        refused(&long),
        "p.toml:1:1: a plan of 65537 bytes, at most 65536 are read"
    );
    let nested = format!("name = {}", "[".repeat(10_000));
    assert!(refused(&nested).starts_with("p.toml:1:"));
}

#[test]
fn names_are_no_paths() {
    let said = |name: &str| edited("mine.v2_x-1", name);
    let rule =
        "a name has 1 to 64 of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit";
    for wrong in [
        "", "../x", ".x", "-x", "a/b", "A", "a b", "a\\u0000", "\\u00e4",
    ] {
        let said = said(wrong);
        assert!(
            said.starts_with("p.toml:1:8: plan ") && said.ends_with(rule),
            "{said}"
        );
    }
    assert!(said(&"a".repeat(65)).ends_with(rule));
    let rule_name = edited("id = \"down\"", "id = \"Down\"");
    assert_eq!(rule_name, format!("p.toml:20:6: rule \"Down\": {rule}"));
    let architecture = edited("\"llama\"", "\"LLaMA\"");
    assert_eq!(
        architecture,
        format!("p.toml:4:18: architecture \"LLaMA\": {rule}")
    );
}

#[test]
fn each_field_has_its_own_fault() {
    for (from, to, said) in FAULTS {
        assert_eq!(edited(from, to), format!("p.toml:{said}"));
    }
}

/// A text of the whole plan, what takes its place, and what is said of that.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "version = 3",
        "version = 0",
        "2:11: version 0: versions begin at 1",
    ),
    (
        "\"a plan\"",
        "\"\"",
        "3:11: a summary is one line of 1 to 200 bytes without control characters",
    ),
    (
        "\"a plan\"",
        "\"a\\nplan\"",
        "3:11: a summary is one line of 1 to 200 bytes without control characters",
    ),
    (
        "[\"llama\", \"qwen35\"]",
        "[]",
        "4:17: architectures is an empty list; leave it out to allow all",
    ),
    (
        "\"llama\", \"qwen35\"",
        "\"llama\", \"llama\"",
        "4:27: architectures \"llama\" is there twice",
    ),
    (
        "id = \"down\"",
        "id = \"gate\"",
        "20:6: rule \"gate\" is there twice",
    ),
    (
        "[\"Q4_0\", \"Q8_0\"]",
        "[\"q4_0\"]",
        "10:10: types: \"q4_0\" is no tensor type; types are written like Q4_0",
    ),
    (
        "[\"Q4_0\", \"Q8_0\"]",
        "[\"Q4_0\", \"Q4_0\"]",
        "10:18: types \"Q4_0\" is there twice",
    ),
    (
        "dims = [64, { min = 8, max = 800, multiple = 8 }, {}]",
        "dims = []",
        "11:8: dims: 1 to 4, and the last of several is no exact 1 (trailing ones are dropped)",
    ),
    (
        "multiple = 8 }, {}]",
        "multiple = 8 }, 1]",
        "11:8: dims: 1 to 4, and the last of several is no exact 1 (trailing ones are dropped)",
    ),
    (
        "multiple = 8",
        "multiple = 0",
        "11:13: dims: nothing is a multiple of 0",
    ),
    (
        "min = 8",
        "min = 801",
        "11:13: dims: 801 to 800 is no range",
    ),
    ("[0, 3]", "[4, 3]", "9:20: ranges: 4 to 3 is no range"),
    (
        "{ layer = [0, 3] }",
        "{ Layer = [0, 3] }",
        "9:12: \"Layer\" is no capture: write a lower-case name, or $1 for the first group",
    ),
    (
        "{ layer = [0, 3] }",
        "{ expert = [0, 3] }",
        "9:12: ranges: the pattern has no capture expert",
    ),
    (
        "{ layer = [0, 3] }",
        "{ \"$3\" = [0, 3] }",
        "9:12: ranges: the pattern has no capture $3",
    ),
    (
        "\"ggml-cpu-repack\"",
        "\"q4_0\"",
        "13:10: layout: \"q4_0\" is unknown; known are ggml-cpu-repack, identity-v1, \
             int8-tile-b8-v1, int8-tile-rm-v1, q4_0-joint-n-v1, q4_0-reordered-v1, \
             q4_0-xe2-dpas-v2",
    ),
    (
        "{ unit_rows = 8 }",
        "{ tile = 32 }",
        "14:16: parameters: ggml-cpu-repack has no parameter \"tile\"; it has unit_rows",
    ),
    (
        "layout = \"identity-v1\"",
        "layout = \"identity-v1\"\nparameters = { x = 1 }",
        "24:16: parameters: identity-v1 has no parameter \"x\"; it has none",
    ),
    (
        "\"2 * (layer + 1) - index\"",
        "\"2 * (layer + 1\"",
        "15:8: slot: at byte 14: expected +, -, * or ), found \"\"",
    ),
    (
        "\"2 * (layer + 1) - index\"",
        "\"2 * expert\"",
        "15:8: slot: the pattern has no capture expert",
    ),
    (
        "slots = [0, 200]",
        "slots = [0, 4294967296]",
        "37:9: slots: at most 65536 slots, the highest 4294967295",
    ),
    (
        "slots = [0, 200]",
        "slots = [0, 65536]",
        "37:9: slots: at most 65536 slots, the highest 4294967295",
    ),
    (
        "slots = [0, 200]",
        "slots = [4294967290, 4294967296]",
        "37:9: slots: at most 65536 slots, the highest 4294967295",
    ),
    (
        "count = 201",
        "count = 200",
        "38:9: count: 200, and slots give 201",
    ),
];

/// Formulas that are none, and what is said of them.
const NO_FORMULAS: &[(&str, &str)] = &[
    (
        "",
        "at byte 0: expected a number, a capture, index or (, found \"\"",
    ),
    (
        "layer +",
        "at byte 7: expected a number, a capture, index or (, found \"\"",
    ),
    (
        "layer 2",
        "at byte 6: expected +, -, * or the end, found \"2\"",
    ),
    (
        "2layer",
        "at byte 1: expected +, -, * or the end, found \"layer\"",
    ),
    (
        "-layer",
        "at byte 0: expected a number, a capture, index or (, found \"-layer\"",
    ),
    (
        "layer / 2",
        "at byte 6: expected +, -, * or the end, found \"/ 2\"",
    ),
    ("(layer", "at byte 6: expected +, -, * or ), found \"\""),
    (
        "layer)",
        "at byte 5: expected +, -, * or the end, found \")\"",
    ),
    (
        "007",
        "at byte 0: expected a number without leading zeros, found \"007\"",
    ),
    (
        "$0",
        "at byte 0: expected a capture like layer or $1, found \"$0\"",
    ),
    (
        "$layer",
        "at byte 0: expected a capture like layer or $1, found \"$layer\"",
    ),
    (
        "Layer",
        "at byte 0: expected a number, a capture, index or (, found \"Layer\"",
    ),
    (
        "9223372036854775808",
        "at byte 0: the number is larger than 9223372036854775807",
    ),
];

#[test]
fn formulas_are_told_where_they_go_wrong() {
    for (formula, said) in NO_FORMULAS {
        let error = edited("\"100 + layer\"", &format!("\"{formula}\""));
        assert_eq!(error, format!("p.toml:24:8: slot: {said}"), "{formula}");
    }
    let deep = |depth| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Formula::parse(&deep(limits::FORMULA_DEPTH_MAX)).is_ok());
    let error = Formula::parse(&deep(limits::FORMULA_DEPTH_MAX + 1));
    assert_eq!(error, Err(FormulaError::TooDeep { offset: 16 }));
    let wide = vec!["(1)"; 60].join("+");
    let slot = Formula::parse(&wide).map(|formula| formula.slot(&|_| 0));
    assert_eq!(slot, Ok(Ok(60)));
    let error = Formula::parse(&"1".repeat(257));
    assert_eq!(error, Err(FormulaError::TooLong { bytes: 257 }));
}

#[test]
fn templates_run_through_all_combinations() {
    let text = WHOLE
        .replace("ffn_down\\.weight", "(?<part>[0-9])")
        .replace("{ layer = [1, 2] }", "{ part = [7, 9], layer = [9, 11] }")
        .replace("count = 199", "count = 192")
        .replace("\"100 + layer\"", "\"10 * layer + part\"")
        .replace("blk.{layer}.ffn_down.weight", "blk.{layer}.{part}");
    let plan = Plan::parse(text.as_bytes(), "p.toml").unwrap_or_else(|error| panic!("{error}"));
    let expected = plan.rules()[1].expected().iter();
    let names: Vec<String> = expected
        .map(|one| format!("{} {}", one.slot.unwrap_or_default(), one.name))
        .collect();
    let wanted = (9..=11).flat_map(|layer| {
        (7..=9).map(move |part| format!("{} blk.{layer}.{part}", 10 * layer + part))
    });
    assert_eq!(names, wanted.collect::<Vec<_>>());
}

#[test]
fn parameters_keep_their_bounds() {
    let said = edited("unit_rows = 8", "unit_rows = 0");
    assert!(
        said.starts_with(
            "p.toml:14:28: parameters: unit_rows of ggml-cpu-repack is 0, and must be "
        ),
        "{said}"
    );
}

#[test]
fn patterns_are_whole_and_bounded() {
    let pattern = r"'blk\.(?<layer>[0-9]+)\.ffn_down\.weight'";
    let said = |with: &str| edited(pattern, &format!("'{with}'"));
    for wrong in ["(", "a)|(b", "[a", "(?<layer>a)(?<layer>b)", "(?=a)"] {
        let said = said(wrong);
        assert!(
            said.starts_with("p.toml:21:10: tensor: no regular expression that is read: "),
            "{wrong}: {said}"
        );
    }
    assert_eq!(
        said(""),
        "p.toml:21:10: tensor: 0 bytes, where 1 to 512 are read"
    );
    let long = said(&"a".repeat(513));
    assert_eq!(
        long,
        "p.toml:21:10: tensor: 513 bytes, where 1 to 512 are read"
    );
    let large = said("(a{1000}){1000}");
    assert!(
        large.contains("no regular expression that is read"),
        "{large}"
    );
    // About 100 KB compiled: more than is allowed here, less than the crate would take.
    let middling = said("(a{1000}){4}");
    assert!(middling.contains("size limit"), "{middling}");
    let deep = said(&format!("{}a{}", "(".repeat(40), ")".repeat(40)));
    assert!(
        deep.contains("no regular expression that is read"),
        "{deep}"
    );
    assert_eq!(
        said("(?<index>a)"),
        "p.toml:21:10: tensor: a capture may not be named index: that is the tensor's place in its \
         container"
    );
}

#[test]
fn expectations_that_contradict_are_refused() {
    let template = "\"blk.{layer}.ffn_down.weight\"";
    let cases = [
        (template, "\"\"", "expect: 0 bytes, where 1 to 512 are read"),
        (
            template,
            "\"blk.{layer.x\"",
            "expect: at byte 4: braces hold one capture, like {layer}",
        ),
        (
            template,
            "\"blk.layer}.x\"",
            "expect: at byte 9: braces hold one capture, like {layer}",
        ),
        (
            template,
            "\"blk.{a b}.x\"",
            "expect: at byte 4: braces hold one capture, like {layer}",
        ),
        (
            template,
            "\"blk.{expert}.x\"",
            "expect: {expert} needs its range in ranges",
        ),
        (
            template,
            "\"blk.{layer}.ffn_up.weight\"",
            "expect: the rule's own pattern and ranges don't take \"blk.1.ffn_up.weight\"",
        ),
        (
            template,
            "\"blk.1.ffn_down.weight\"\ncount = 2",
            "count: expect says it already: 1",
        ),
        (
            "\"100 + layer\"",
            "\"100\"",
            "expect: slot 100 is that of \"blk.1.ffn_down.weight\" and of \
             \"blk.2.ffn_down.weight\"",
        ),
        (
            "\"100 + layer\"",
            "\"199 + layer\"",
            "expect: \"blk.2.ffn_down.weight\" has slot 201, and the set's slots are 0 to 200",
        ),
        (
            "\"100 + layer\"",
            "\"layer - 2\"",
            "expect: \"blk.1.ffn_down.weight\" has no slot: the result is -1, and no slot is \
             negative",
        ),
        (
            "[1, 2]",
            "[0, 4096]",
            "expect: all templates together give more than 4096 names",
        ),
    ];
    for (from, to, said) in cases {
        let error = edited(from, to);
        assert!(error.ends_with(said), "{error}");
        assert!(error.starts_with("p.toml:2"), "{error}");
    }
}

#[test]
fn rules_are_counted() {
    let head = "name = \"x\"\nversion = 1\nsummary = \"s\"\n";
    assert_eq!(
        refused(&format!("{head}rule = []\n")),
        "p.toml:4:8: 0 rules, where 1 to 64 are read"
    );
    let rule = |at| {
        format!(
            "[[rule]]\nid = \"r{at}\"\ntensor = 'x'\nlayout = \"identity-v1\"\nslot = \"index\"\n\
             otherwise = \"leave\"\n"
        )
    };
    let many = |count: usize| format!("{head}{}", (0..count).map(rule).collect::<String>());
    assert!(Plan::parse(many(64).as_bytes(), "p").is_ok());
    assert!(refused(&many(65)).ends_with("65 rules, where 1 to 64 are read"));
}
