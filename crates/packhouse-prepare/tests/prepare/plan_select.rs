//! Plans for any model: what they take, what they leave and why.

use crate::plan_world::{Made, container, select, select_with, sharded};
use packhouse_base::Blame;
use packhouse_container::Container;
use packhouse_prepare::plan::builtin::find;
use packhouse_prepare::plan::{Left, Plan, SelectionError};
use packhouse_store::manifest::{ManifestEntry, SetManifest};

fn made(tensors: &[(&str, &'static str, &[u64])]) -> Vec<Made> {
    let made = tensors.iter();
    made.map(|(name, ty, dims)| ((*name).into(), *ty, dims.to_vec()))
        .collect()
}

fn tensors() -> Vec<Made> {
    made(&[
        ("token_embd.weight", "Q4_0", &[64, 32]),
        ("blk.0.norm.weight", "F32", &[64]),
        ("blk.0.ffn_up.weight", "Q4_0", &[64, 32]),
        ("blk.0.ffn_gate.weight", "Q4_0", &[64, 12]),
        ("blk.0.ffn_down.weight", "Q6_K", &[256, 16]),
        ("blk.0.ffn_up_exps.weight", "Q4_0", &[64, 16, 2]),
        ("empty.weight", "Q4_0", &[64, 0]),
    ])
}

fn built_in(name: &str) -> Plan {
    find(name).expect("because it is built in").plan()
}

/// A plan of one or more rules, each given as its fields but layout and id.
fn plan(rules: &[&str], invariants: &str) -> Plan {
    let mut text = "name = \"x\"\nversion = 1\nsummary = \"s\"\n".to_owned();
    for (at, rule) in rules.iter().enumerate() {
        text += &format!("[[rule]]\nid = \"r{at}\"\nlayout = \"identity-v1\"\n{rule}\n");
    }
    text += &format!("[invariants]\n{invariants}\n");
    Plan::parse(text.as_bytes(), "x").unwrap_or_else(|error| panic!("{error}"))
}

/// Slots with names of what is chosen, and names with reasons of what is left.
fn told(plan: &Plan, container: &Container, is_new: bool) -> (Vec<String>, Vec<String>) {
    let selection = select_with(plan, container, is_new).expect("because it fits");
    let chosen = selection.chosen.iter();
    let left = |left: &Left| match &left.misfit {
        None => format!("{}: no rule", left.name),
        Some((rule, misfit)) => format!("{} ({rule}): {misfit}", left.name),
    };
    (
        chosen
            .map(|one| format!("{} {}", one.slot, one.name))
            .collect(),
        selection.left.iter().map(left).collect(),
    )
}

fn broken(plan: &Plan, tensors: &[Made]) -> Vec<String> {
    let error = select(plan, &container(None, tensors)).expect_err("because it does not fit");
    assert_eq!(error.blame(), Blame::Source);
    let (headline, lines) = error.lines();
    assert!(
        headline.starts_with("the model does not fit plan x: "),
        "{headline}"
    );
    assert!(error.to_string().starts_with(&headline));
    lines
}

#[test]
fn xe2_takes_each_q4_0_matrix_at_its_index() {
    let (chosen, left) = told(&built_in("xe2-q4_0"), &container(None, &tensors()), true);
    assert_eq!(chosen, ["0 token_embd.weight", "2 blk.0.ffn_up.weight"]);
    let wanted = [
        "blk.0.norm.weight (0): type F32, where Q4_0 is wanted",
        "blk.0.ffn_gate.weight (0): 12 rows are no multiple of 16",
        "blk.0.ffn_down.weight (0): type Q6_K, where Q4_0 is wanted",
        "blk.0.ffn_up_exps.weight (0): q4_0-xe2-dpas-v2 is an order of one matrix, and dims \
         [64, 16, 2] are a stack of them",
        "empty.weight (0): it has no bytes",
    ];
    assert_eq!(left, wanted);
}

#[test]
fn npu_head_takes_the_output_or_else_the_tied_embedding() {
    let plan = built_in("npu-head");
    let embedding = ("token_embd.weight", "Q4_0", &[64, 32][..]);
    let output = ("output.weight", "Q6_K", &[256, 32][..]);
    let (other, long) = (
        ("a.weight", "F32", &[64][..]),
        ("output.weight.a", "F32", &[64][..]),
    );
    for (tensors, taken) in [
        (vec![embedding, other], "0 token_embd.weight"),
        (vec![embedding, long], "0 token_embd.weight"),
        (vec![other, embedding, output], "0 output.weight"),
        (vec![output, embedding], "0 output.weight"),
        (vec![other, output], "0 output.weight"),
    ] {
        let tensors = made(&tensors);
        let (chosen, left) = told(&plan, &container(None, &tensors), true);
        assert_eq!(chosen, [taken]);
        // The embedding that makes way is one that no rule names.
        assert!(
            left.iter().all(|left| left.ends_with(": no rule")),
            "{left:?}"
        );
        // The other shard's tensors count.
        for cut in 1..tensors.len() {
            let sharded = sharded("llama", &tensors, cut);
            assert_eq!(told(&plan, &sharded, true).0, [taken]);
        }
    }
    // What scales the head would be lost; what scales an embedding that is no head is not.
    let scale = |name| (name, "F32", &[1][..]);
    for (tensors, named) in [
        (vec![embedding, output, scale("output.scale")], false),
        (vec![embedding, scale("output.scale")], false),
        (vec![embedding, scale("token_embd.scale")], false),
        (vec![embedding, output, scale("token_embd.scale")], true),
    ] {
        let selected = select(&plan, &container(None, &made(&tensors)));
        assert_eq!(selected.is_ok(), named, "{tensors:?}");
    }
    let none = select(&plan, &container(None, &made(&[other])));
    let none = none.expect_err("because there is no head").to_string();
    let expected = "plan npu-head takes none of 1 tensors: a.weight: no rule names it";
    assert_eq!(none, expected);
    for (head, reason) in [
        (
            ("output.weight", "I8", &[64, 32][..]),
            "type I8 has no packing in int8-tile-b8-v1",
        ),
        (
            ("output.weight", "F16", &[64, 32, 2][..]),
            "int8-tile-b8-v1 is an order of one matrix",
        ),
        (("output.weight", "F16", &[64, 0][..]), "it has no bytes"),
    ] {
        let refused = select(&plan, &container(None, &made(&[embedding, head])));
        let refused = refused.expect_err("because the head is none").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

/// What makes way is every rule of its own: one that is idle leaves the tensor to the next.
#[test]
fn a_rule_makes_way_for_whole_names_only() {
    let rules = [
        "tensor = '.*'\nunless = 'b.*'\nslot = \"index\"\notherwise = \"leave\"",
        "tensor = 'a'\nslot = \"100\"\notherwise = \"leave\"",
    ];
    let plan = plan(&rules, "");
    let of = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name, "F32", &[1][..])).collect();
        told(&plan, &container(None, &made(&names)), true)
    };
    assert_eq!(of(&["a", "ab"]).0, ["0 a", "1 ab"]);
    let (chosen, left) = of(&["a", "ab", "b"]);
    assert_eq!(chosen, ["100 a"]);
    assert_eq!(left, ["ab: no rule", "b: no rule"]);
}

#[test]
fn identity_takes_all_that_has_bytes() {
    let (chosen, left) = told(&built_in("identity"), &container(None, &tensors()), true);
    assert_eq!(chosen.len(), 6);
    assert_eq!(left, ["empty.weight (0): it has no bytes"]);
    let odd = made(&[
        ("line\nbreak", "F32", &[1]),
        ("\u{e9}", "F16", &[3, 5, 7, 2]),
    ]);
    assert_eq!(
        told(&built_in("identity"), &container(None, &odd), true)
            .0
            .len(),
        2
    );
}

#[test]
fn ggml_cpu_takes_what_a_stock_build_here_repacks() {
    let plan = built_in("ggml-cpu");
    let (chosen, left) = told(&plan, &container(Some("llama"), &tensors()), true);
    let wanted = [
        "0 token_embd.weight",
        "2 blk.0.ffn_up.weight",
        "5 blk.0.ffn_up_exps.weight",
    ];
    assert_eq!(chosen, wanted);
    assert_eq!(left.len(), 4);
    assert!(
        left[0].ends_with("(0): type F32 has no packed order on x86-64"),
        "{}",
        left[0]
    );
    assert!(
        left[1].ends_with("(0): 12 rows are no multiple of 8"),
        "{}",
        left[1]
    );
    let mut untied = tensors();
    untied.push(("output.weight".into(), "Q4_0", vec![64, 32]));
    let (chosen, left) = told(&plan, &container(Some("llama"), &untied), true);
    assert_eq!(chosen[0], "2 blk.0.ffn_up.weight");
    assert!(
        left[0].starts_with("token_embd.weight (0): rows are looked up in it"),
        "{}",
        left[0]
    );
    let none = select_with(&plan, &container(Some("llama"), &tensors()), false);
    let said = none.expect_err("because the CPU lacks AVX2").to_string();
    let wanted = "plan ggml-cpu takes none of 7 tensors: token_embd.weight and 2 more: packing \
                  Q4_0 needs AVX2, which this CPU lacks; ";
    assert!(said.starts_with(wanted), "{said}");
}

/// What the plug-in writes has the directory's index as slot, shards in order: so has this.
#[test]
fn slots_count_through_the_shards() {
    let whole = told(
        &built_in("ggml-cpu"),
        &container(Some("llama"), &tensors()),
        true,
    );
    let parts = told(
        &built_in("ggml-cpu"),
        &sharded("llama", &tensors(), 1),
        true,
    );
    assert_eq!(whole, parts);
}

#[test]
fn the_first_rule_that_fits_takes_a_tensor() {
    let rules = [
        "tensor = 'blk.*'\ntypes = [\"Q6_K\"]\nslot = \"10 + index\"\notherwise = \"leave\"",
        "tensor = 'blk.*weight'\nslot = \"20 + index\"\notherwise = \"leave\"",
        "tensor = '.*'\ntypes = [\"Q6_K\", \"F16\"]\nslot = \"30\"\notherwise = \"leave\"",
    ];
    let (chosen, left) = told(&plan(&rules, ""), &container(None, &tensors()), true);
    let wanted = [
        "14 blk.0.ffn_down.weight",
        "21 blk.0.norm.weight",
        "22 blk.0.ffn_up.weight",
        "23 blk.0.ffn_gate.weight",
        "25 blk.0.ffn_up_exps.weight",
    ];
    assert_eq!(chosen, wanted);
    let wanted = [
        "token_embd.weight (2): type Q4_0, where Q6_K or F16 is wanted",
        "empty.weight (2): type Q4_0, where Q6_K or F16 is wanted",
    ];
    assert_eq!(left, wanted);
}

/// What a user wanted of a tensor is in the first rule that names it.
#[test]
fn the_first_misfit_is_the_reason() {
    let rules = [
        "tensor = 'token.*'\ntypes = [\"F16\"]\nslot = \"0\"\notherwise = \"leave\"",
        "tensor = '.*'\ntypes = [\"Q6_K\"]\nslot = \"index\"\notherwise = \"leave\"",
    ];
    let (_, left) = told(&plan(&rules, ""), &container(None, &tensors()), true);
    assert_eq!(
        left[0],
        "token_embd.weight (0): type Q4_0, where F16 is wanted"
    );
    assert_eq!(
        left[1],
        "blk.0.norm.weight (1): type F32, where Q6_K is wanted"
    );
}

#[test]
fn what_no_packer_here_makes_is_left() {
    let text = "name = \"x\"\nversion = 1\nsummary = \"s\"\n[[rule]]\nid = \"r\"\ntensor = '.*'\n\
                layout = \"ggml-cpu-repack\"\nslot = \"index\"\notherwise = \"leave\"\n";
    let plan = Plan::parse(text.as_bytes(), "x").expect("because it is a plan");
    let made = made(&[("a", "Q4_0", &[64, 16]), ("b", "Q8_0", &[64, 16])]);
    let (chosen, left) = told(&plan, &container(None, &made), true);
    assert_eq!(chosen, ["0 a"]);
    let wanted =
        "b (0): no packer of ggml-cpu-repack for type Q8_0 with unit_rows 16: an engine makes it";
    assert_eq!(left, [wanted]);
}

#[test]
fn problems_of_a_kind_are_told_by_slot() {
    let rule = "tensor = '([0-9]+)\\..*'\ntypes = [\"F16\"]\nslot = \"$1\"\notherwise = \"refuse\"";
    let many = ["20.a", "3.a", "100.a"].map(|name| (name, "F32", [1].as_slice()));
    let said = broken(&plan(&[rule], ""), &made(&many));
    let slots: Vec<&str> = said
        .iter()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert_eq!(slots, ["3", "20", "100"]);
}

#[test]
fn patterns_match_whole_names_only() {
    let rule = "tensor = 'blk\\.0\\.(ffn_up|norm)'\nslot = \"index\"\notherwise = \"leave\"";
    let error = select(&plan(&[rule], ""), &container(None, &tensors()));
    let said = error.expect_err("because names go on").to_string();
    assert_eq!(
        said,
        "plan x takes none of 7 tensors: token_embd.weight and 6 more: no rule names it"
    );
}

#[test]
fn dims_are_bounded_without_their_trailing_ones() {
    let rule = |dims: &str| {
        format!("tensor = '.*'\ndims = {dims}\nslot = \"index\"\notherwise = \"leave\"")
    };
    let taken = |dims: &str| {
        let plan = plan(&[&rule(dims)], "");
        let made = made(&[
            ("a", "F32", &[64, 8]),
            ("b", "F32", &[64, 12]),
            ("c", "F32", &[64, 8, 1, 1]),
            ("d", "F32", &[64, 8, 3]),
            ("e", "F32", &[64, 1]),
        ]);
        match select(&plan, &container(None, &made)) {
            Ok(selection) => selection
                .chosen
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            Err(SelectionError::Nothing { reasons, .. }) => reasons[0].text.clone(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(taken("[64, 8]"), "ac");
    assert_eq!(taken("[64]"), "e");
    assert_eq!(taken("[{}, {}]"), "abc");
    assert_eq!(taken("[{}, { multiple = 8 }, {}]"), "d");
    assert_eq!(taken("[64, { min = 9 }]"), "b");
    assert_eq!(taken("[64, { max = 8 }]"), "ac");
    assert_eq!(taken("[64, { min = 12, max = 12 }]"), "b");
    assert_eq!(
        taken("[{ min = 65 }, { min = 9, max = 20, multiple = 3 }]"),
        "dims [64, 8], where [65 or more, 9 to 20 in steps of 3] is wanted"
    );
}

#[test]
fn captures_are_shortest_decimals() {
    let rule = "tensor = '(?<layer>[^.]*)\\.(x)?(.*)'\nslot = \"layer\"\notherwise = \"refuse\"";
    let refused = |name: &str| broken(&plan(&[rule], ""), &made(&[(name, "F32", &[1])]));
    for text in ["007", "+1", "", "-1", "1e3"] {
        let wanted = format!(
            "misfit: {text}.w (rule r0): layer is {text:?}, no decimal number in its shortest form"
        );
        assert_eq!(refused(&format!("{text}.w")), [wanted]);
    }
    let numbered = "tensor = '(?<layer>[^.]*)\\.(x)?(.*)'\nslot = \"$2\"\notherwise = \"refuse\"";
    let said = broken(&plan(&[numbered], ""), &made(&[("0.w", "F32", &[1])]));
    let wanted = "misfit: 0.w (rule r0): $2 is \"\", no decimal number in its shortest form";
    assert_eq!(said, [wanted]);
}

#[test]
fn formulas_without_a_slot_name_tensor_and_formula() {
    let rule = |slot: &str| {
        format!("tensor = '(?<n>[0-9]+)\\.w'\nslot = \"{slot}\"\notherwise = \"refuse\"")
    };
    let said =
        |slot: &str, name: &str| broken(&plan(&[&rule(slot)], ""), &made(&[(name, "F32", &[1])]));
    let cases = [
        ("n - 8", "3.w", "the result is -5, and no slot is negative"),
        (
            "n * n",
            "9223372036854775807.w",
            "9223372036854775807 * 9223372036854775807 passes 64 bits",
        ),
        (
            "0 - n - n",
            "9223372036854775807.w",
            "-9223372036854775807 - 9223372036854775807 passes 64 bits",
        ),
        (
            "n + 1",
            "9223372036854775807.w",
            "9223372036854775807 + 1 passes 64 bits",
        ),
        (
            "n",
            "9223372036854775808.w",
            "n is 9223372036854775808, more than 9223372036854775807",
        ),
        (
            "n + 1",
            "4294967295.w",
            "the result is 4294967296, and the highest slot is 4294967295",
        ),
    ];
    for (slot, name, why) in cases {
        let wanted = format!("no slot: {name} with {slot:?}: {why}");
        assert_eq!(said(slot, name), [wanted]);
    }
}

#[test]
fn counts_slots_and_doubles_are_told_by_kind() {
    let rule = "tensor = '([0-9]+)\\..*'\nslot = \"$1\"\notherwise = \"refuse\"\ncount = 2";
    let none = "tensor = 'none'\nslot = \"0\"\notherwise = \"leave\"";
    let made = made(&[
        ("4.a", "F32", &[1]),
        ("0.a", "F32", &[1]),
        ("4.b", "F32", &[1]),
        ("9.a", "F32", &[1]),
    ]);
    let said = broken(&plan(&[rule, none], "slots = [0, 5]"), &made);
    let wanted = [
        "missing: slot 1",
        "missing: slot 2",
        "missing: slot 3",
        "missing: slot 5",
        "doubled: slot 4 (4.a and 4.b)",
        "outside: slot 9 (9.a); the slots are 0 to 5",
        "count: rule r0 takes 4 tensors, and must take 2",
    ];
    assert_eq!(said, wanted);
    let said = broken(&plan(&[rule, none], "count = 3"), &made);
    let wanted = [
        "doubled: slot 4 (4.a and 4.b)",
        "count: rule r0 takes 4 tensors, and must take 2",
        "total: the rules take 4 tensors, and must take 3",
    ];
    assert_eq!(said, wanted);
}

#[test]
fn an_error_stays_short_whatever_the_model() {
    let rule = "tensor = '.*'\ntypes = [\"F16\"]\nslot = \"index\"\notherwise = \"refuse\"";
    let many: Vec<Made> = (0..20_000)
        .map(|at| (format!("{at}{}", "\u{7}".repeat(57)), "F32", vec![1]))
        .collect();
    let plan = plan(&[rule], "slots = [0, 65535]");
    let error = select(&plan, &container(None, &many)).expect_err("because nothing fits");
    let text = error.to_string();
    assert!(text.starts_with("the model does not fit plan x: 65536 problems: missing: slot 20000"));
    assert!(text.contains("missing: and 45528 more; misfit: slot 0 ("));
    assert!(text.ends_with("misfit: and 19992 more"));
    assert!(text.len() < 4000, "{}", text.len());
}

/// A selection's slots are what a set's manifest takes: in order, each once.
#[test]
fn a_selection_makes_a_manifest() {
    let plan = built_in("identity");
    let selection = select(&plan, &container(None, &tensors())).expect("because it fits");
    let digest = plan.digest();
    let entries = selection.chosen.iter().map(|one| ManifestEntry {
        slot: one.slot,
        tensor: one.name.clone(),
        pack: packhouse_base::digest::PackKey(digest),
        object: packhouse_base::digest::ObjectDigest(digest),
        length: one.admitted.payload_bytes(),
    });
    let manifest = SetManifest::new(plan.name().into(), digest, entries.collect());
    assert_eq!(manifest.expect("because slots rise").entries().len(), 6);
}

#[test]
fn a_capture_that_is_no_number_says_why() {
    let plan = plan(
        &["tensor = 'b\\.(?<n>.*)'\nslot = \"n\"\notherwise = \"refuse\""],
        "",
    );
    let said = |number: &str| {
        let tensors = made(&[(&format!("b.{number}"), "F32", &[4])]);
        let error = select(&plan, &container(None, &tensors)).expect_err("because of the number");
        error.to_string()
    };
    for (number, why) in [
        ("18446744073709551616", "more than 18446744073709551615"),
        ("007", "no decimal number in its shortest form"),
        ("", "no decimal number in its shortest form"),
        ("x", "no decimal number in its shortest form"),
    ] {
        let told = said(number);
        assert!(told.ends_with(&format!("n is {number:?}, {why}")), "{told}");
    }
    let told = said("18446744073709551615");
    assert!(
        told.ends_with("n is 18446744073709551615, more than 9223372036854775807"),
        "{told}"
    );
}

/// `expect` says how many tensors a rule takes, and not only which are among them.
#[test]
fn a_rule_takes_no_others_than_those_it_expects() {
    let rule = "tensor = '[ab]'\nslot = \"index\"\notherwise = \"leave\"\nexpect = \"a\"";
    let both = made(&[("a", "F32", &[4]), ("b", "F32", &[4])]);
    let said = broken(&plan(&[rule], ""), &both);
    assert_eq!(said, ["count: rule r0 takes 2 tensors, and must take 1"]);
    let said = broken(&plan(&[rule], ""), &both[1..]);
    assert_eq!(said, ["missing: a"]);
    select(&plan(&[rule], ""), &container(None, &both[..1])).expect("because it fits");
}
