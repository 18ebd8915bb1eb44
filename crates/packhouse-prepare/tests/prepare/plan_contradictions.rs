//! Plans that no model can fit, and plans that would make their reader work: refused when they are
//! parsed, with the place and what is in the way.

use packhouse_prepare::plan::pattern::Pattern;
use packhouse_prepare::plan::{Plan, limits};

fn refused(text: &str) -> String {
    let error = Plan::parse(text.as_bytes(), "p").expect_err("because the text is no plan");
    error.to_string()
}

fn accepted(text: &str) -> Plan {
    Plan::parse(text.as_bytes(), "p").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A plan of rules given as their fields but the id.
fn of_rules(rules: &[&str], invariants: &str) -> String {
    let mut text = "name = \"x\"\nversion = 1\nsummary = \"s\"\n".to_owned();
    for (at, rule) in rules.iter().enumerate() {
        text += &format!("[[rule]]\nid = \"r{at}\"\notherwise = \"leave\"\n{rule}\n");
    }
    text + "[invariants]\n" + invariants + "\n"
}

const ONE: &str = "tensor = 'a'\nlayout = \"identity-v1\"\nslot = \"0\"\nexpect = \"a\"";
const THREE: &str = "tensor = 'b'\nlayout = \"identity-v1\"\nslot = \"1\"\ncount = 3";
const ANY: &str = "tensor = 'c'\nlayout = \"identity-v1\"\nslot = \"2\"\n";

#[test]
fn a_name_is_expected_by_one_rule() {
    let again = ONE.replace("\"0\"", "\"1\"");
    let by_index = ONE.replace("\"0\"", "\"index\"");
    for rules in [[ONE, &again], [&by_index, &by_index], [ONE, &by_index]] {
        assert_eq!(
            refused(&of_rules(&rules, "")),
            "p:17:10: expect: \"a\" is expected by rule r0 too, and one rule takes a tensor"
        );
    }
}

#[test]
fn counts_that_contradict_each_other_are_refused() {
    let cases: [(&[&str], &str, &str); 6] = [
        (
            &[ONE],
            "count = 5",
            "p:12:9: count: 5, and the rules give 1",
        ),
        (
            &[THREE],
            "count = 2",
            "p:12:9: count: 2, and the rules give 3",
        ),
        (
            &[THREE],
            "slots = [0, 0]",
            "p:12:9: slots: 1 of them, and the rules give 3",
        ),
        (
            &[ONE],
            "slots = [0, 1]",
            "p:12:9: slots: 2 of them, and the rules give 1",
        ),
        (
            &[ONE, THREE],
            "count = 3",
            "p:19:9: count: 3, and the rules give 4",
        ),
        (
            &[THREE, ANY],
            "count = 2",
            "p:19:9: count: 2, and the rules give at least 3",
        ),
    ];
    for (rules, invariants, said) in cases {
        assert_eq!(refused(&of_rules(rules, invariants)), said);
    }
    let right: [(&[&str], &str); 5] = [
        (&[ONE], "count = 1"),
        (&[ONE, THREE], "count = 4"),
        (&[THREE, ANY], "count = 3"),
        (&[THREE, ANY], "slots = [0, 7]"),
        (&[ONE, ANY], "slots = [0, 0]\ncount = 1"),
    ];
    for (rules, invariants) in right {
        accepted(&of_rules(rules, invariants));
    }
}

const STACKS: &str = "dims = [64, 16, {}]";

/// Layout, more fields of a rule, and what is said of them.
const NEVER: &[(&str, &str, &str)] = &[
    (
        "q4_0-xe2-dpas-v2",
        "types = [\"F32\"]",
        "10:9: no tensor fits the rule: type F32 has no packing in q4_0-xe2-dpas-v2",
    ),
    (
        "q4_0-xe2-dpas-v2",
        "dims = [{}, 8]",
        "10:8: no tensor fits the rule: 8 rows are no multiple of 16",
    ),
    (
        "q4_0-xe2-dpas-v2",
        "types = [\"Q4_0\"]\ndims = [48, 16]",
        "10:9: no tensor fits the rule: row of 48 elements is no whole number of 32-element blocks",
    ),
    (
        "q4_0-joint-n-v1",
        STACKS,
        "10:8: no tensor fits the rule: q4_0-joint-n-v1 is an order of one matrix, and dims \
         [64, 16, 3] are a stack of them",
    ),
    (
        "ggml-cpu-repack",
        "parameters = { unit_rows = 8 }\ndims = [{}, { multiple = 16 }]",
        "11:8: no tensor fits the rule: ggml-cpu-repack takes unit_rows from 16 to 16 here, not 8",
    ),
    (
        "identity-v1",
        "dims = [{ min = 9, max = 10, multiple = 100 }, 3]",
        "10:9: dims: no dim of a tensor with bytes is 9 to 10 in steps of 100",
    ),
    (
        "identity-v1",
        "dims = [7, 0]",
        "10:12: dims: no dim of a tensor with bytes is 0",
    ),
    (
        "identity-v1",
        "dims = [7, { min = 0, max = 0 }]",
        "10:12: dims: no dim of a tensor with bytes is 0 to 0",
    ),
    (
        "identity-v1",
        "dims = [7, { max = 1 }]",
        "10:8: dims: 1 to 4, and the last of several is no exact 1 (trailing ones are dropped)",
    ),
];

fn of_layout(layout: &str, more: &str) -> String {
    let rule = format!("tensor = '.*'\nslot = \"index\"\nlayout = \"{layout}\"\n{more}");
    of_rules(&[&rule], "")
}

#[test]
fn rules_that_no_tensor_can_fit_are_refused() {
    for (layout, more, said) in NEVER {
        let error = refused(&of_layout(layout, more));
        assert_eq!(error, format!("p:{said}"), "{more}");
    }
}

#[test]
fn rules_that_some_tensor_can_fit_are_plans() {
    for (layout, more) in [
        ("ggml-cpu-repack", STACKS),
        (
            "ggml-cpu-repack",
            "parameters = { unit_rows = 8 }\ndims = [64, { multiple = 8 }]",
        ),
        (
            "ggml-cpu-repack",
            "parameters = { unit_rows = 8 }\ndims = [64, { min = 16 }]",
        ),
        ("ggml-cpu-repack", "parameters = { unit_rows = 4 }"),
        (
            "q4_0-xe2-dpas-v2",
            "dims = [{ multiple = 3 }, { min = 17, multiple = 5 }]",
        ),
        ("q4_0-joint-n-v1", "parameters = { n_tile = 17 }"),
        ("identity-v1", "dims = [1]"),
        ("identity-v1", "dims = [3, { max = 1 }, 2]"),
        ("identity-v1", "dims = [{}, {}, {}, {}]"),
        ("q4_0-reordered-v1", "types = [\"F32\", \"Q4_0\"]"),
    ] {
        accepted(&of_layout(layout, more));
    }
}

/// Takes tens of thousands of steps per byte of a name, were it matched.
const HEAVY: &str = "tensor = '(?:a?a?a?a?a?a?a?a?a?a?){30}(?<n>[0-9]+)'\n\
                     ranges = { n = [0, 4095] }\nlayout = \"identity-v1\"\nslot = \"n\"\n";

/// What matching would take is counted before any name is matched.
#[test]
fn a_plan_can_not_make_its_reader_work() {
    let template = format!("{HEAVY}expect = \"{}{{n}}\"", "a".repeat(330));
    let said = refused(&of_rules(&[&template], ""));
    let begins = "p:11:10: expect: matching all names takes more than ";
    assert!(said.starts_with(begins), "{said}");
    let said = refused(&of_rules(&[HEAVY; 64], ""));
    let all = "tensor: this expression and those before it take more than ";
    assert!(said.contains(all) && !said.starts_with("p:7:"), "{said}");
    accepted(&of_rules(&[HEAVY], ""));
    // What a rule makes way for is matched with every name too.
    let pattern = "(?:a?a?a?a?a?a?a?a?a?a?){30}";
    let makes_way = format!("{ANY}unless = '{pattern}'");
    let said = refused(&of_rules(&[makes_way.as_str(); 64], ""));
    let all = "unless: this expression and those before it take more than ";
    assert!(said.contains(all) && !said.starts_with("p:8:"), "{said}");
    accepted(&of_rules(&[&makes_way], ""));
}

/// A rule that may name nothing says of no tensor that it must be there.
#[test]
fn a_rule_that_makes_way_asks_for_no_tensors() {
    let cases = [
        (
            ANY,
            "unless = 'c'",
            "it is the rule's own pattern, so that the rule names nothing in any model",
        ),
        (
            ONE,
            "unless = 'b'",
            "a rule that may name nothing has no expect; [invariants] can ask for a total",
        ),
        (
            THREE,
            "unless = 'c'",
            "a rule that may name nothing has no count; [invariants] can ask for a total",
        ),
        (ANY, "unless = ''", "0 bytes, where 1 to 512 are read"),
        (
            ANY,
            "unless = '('",
            "no regular expression that is read: found open group without",
        ),
        (
            ANY,
            "unless = '(?<index>b)'",
            "a capture may not be named index: that is the tensor's place in its container",
        ),
    ];
    for (rule, unless, said) in cases {
        let text = of_rules(&[&format!("{}\n{unless}", rule.trim_end())], "");
        let line = text
            .lines()
            .position(|line| line == unless)
            .map_or(0, |at| at + 1);
        let expected = format!("p:{line}:10: unless: {said}");
        let found = refused(&text);
        assert!(found.starts_with(&expected), "{found}, expected {expected}");
    }
    let total = "slots = [2, 2]\ncount = 1";
    accepted(&of_rules(&[&format!("{ANY}unless = 'b'"), ANY], total));
}

/// As many names as a plan may have, and as many rules, of expressions as plans have them.
#[test]
fn large_plans_are_within_the_limits() {
    let wide = "tensor = 'blk\\.(?<layer>0|[1-9][0-9]*)\\.ffn_gate_exps\\.weight'\n\
                ranges = { layer = [0, 4095] }\nlayout = \"identity-v1\"\nslot = \"layer\"\n\
                expect = \"blk.{layer}.ffn_gate_exps.weight\"";
    let plan = accepted(&of_rules(&[wide], ""));
    assert_eq!(plan.rules()[0].expected().len(), 4096);
    let many = "tensor = 'blk\\.(?<l>[0-9]+)\\.(?:ffn_up|ffn_down|ffn_gate)\\.weight'\n\
                layout = \"identity-v1\"\nslot = \"index\"";
    accepted(&of_rules(&[many; limits::RULES_MAX], ""));
}

#[test]
fn groups_nest_as_deep_as_the_limit_says() {
    let depth = usize::try_from(limits::PATTERN_DEPTH_MAX).unwrap();
    let nested = |depth, open: &str| {
        let pattern = format!("{}a{}", open.repeat(depth), ")".repeat(depth));
        Pattern::parse(&pattern).is_ok()
    };
    // A group alone is one level; a group with something before it is two.
    for (open, levels) in [("(", 1), ("(?:", 1), ("(b", 2)] {
        assert!(nested(depth / levels, open), "{open}");
        assert!(!nested(depth / levels + 1, open), "{open}");
    }
}

#[test]
fn a_comment_in_an_expression_ends_with_the_expression() {
    for (pattern, is_named) in [
        (r"(?x)output.* # all of it", [true, false]),
        (r"(?x)output.weight # with )", [true, false]),
        (r"(?x) output \.weight | \# # two", [true, true]),
        (r"output\.weight|#", [true, true]),
        (r"output\.weight(?x)", [true, false]),
        ("# output.weight", [false, false]),
    ] {
        let parsed = Pattern::parse(pattern);
        let parsed = parsed.unwrap_or_else(|error| panic!("{pattern}: {error}"));
        let names = ["output.weight", "#"].map(|name| parsed.matched(name).is_some());
        assert_eq!(names, is_named, "{pattern}");
        let with_line = parsed.matched("output.weight\n").is_some();
        assert_eq!(with_line, pattern.contains(".*"), "{pattern}");
    }
}
