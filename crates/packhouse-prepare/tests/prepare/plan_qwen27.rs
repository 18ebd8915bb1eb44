//! The 187 slots of `qwen27-xe2-m6`, and each way in which a model can miss them.

use crate::plan_world::{Made, container, select, sharded};
use packhouse_base::digest::Digest;
use packhouse_container::Container;
use packhouse_prepare::plan::builtin::find;
use packhouse_prepare::plan::{Plan, SelectionError};

/// The feed-forward matrices of the model with what lies beside them.
fn model(layers: u64) -> Vec<Made> {
    let mut tensors: Vec<Made> = vec![("token_embd.weight".into(), "Q4_1", vec![5120, 64])];
    for layer in 0..layers {
        let down = if layer < 8 { "Q4_1" } else { "Q4_0" };
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        tensors.push((name("attn_norm"), "F32", vec![5120]));
        tensors.push((name("ffn_down"), down, vec![17408, 5120]));
        tensors.push((name("ffn_gate"), "Q4_0", vec![5120, 17408]));
        tensors.push((name("ffn_up"), "Q4_0", vec![5120, 17408]));
    }
    tensors.push(("output.weight".into(), "Q6_K", vec![5120, 64]));
    tensors
}

fn plan() -> Plan {
    find("qwen27-xe2-m6")
        .expect("because it is built in")
        .plan()
}

fn lines(container: &Container) -> (String, Vec<String>) {
    let error = select(&plan(), container).expect_err("because the model does not fit");
    error.lines()
}

/// The lines of a model with one change.
fn broken(change: impl FnOnce(&mut Vec<Made>)) -> Vec<String> {
    let mut tensors = model(65);
    change(&mut tensors);
    let (headline, lines) = lines(&container(Some("qwen35"), &tensors));
    let noun = if lines.len() == 1 {
        "problem"
    } else {
        "problems"
    };
    let wanted = format!(
        "the model does not fit plan qwen27-xe2-m6: {} {noun}",
        lines.len()
    );
    assert_eq!(headline, wanted);
    lines
}

fn at(tensors: &[Made], name: &str) -> usize {
    let found = tensors.iter().position(|(tensor, ..)| tensor == name);
    found.expect("because the model has it")
}

#[test]
fn the_model_fills_slots_0_to_186_by_the_formulas() {
    let container = container(Some("qwen35"), &model(65));
    let selection = select(&plan(), &container).expect("because the model fits");
    let slots: Vec<u64> = selection.chosen.iter().map(|chosen| chosen.slot).collect();
    assert_eq!(slots, (0..187).collect::<Vec<u64>>());
    for layer in 0..65usize {
        let named = |slot: usize, part: &str| {
            let chosen = &selection.chosen[slot];
            assert_eq!(chosen.name, format!("blk.{layer}.{part}.weight"));
            let (shard, tensor) = container.tensor(&chosen.name).unwrap();
            assert_eq!((chosen.shard, chosen.offset), (shard, tensor.offset));
            assert_eq!(container.shards()[0].tensors()[chosen.tensor], *tensor);
            assert_eq!(chosen.admitted.layout().id(), "q4_0-xe2-dpas-v2");
            assert_eq!(chosen.admitted.source_bytes(), 50_135_040);
            assert_eq!(chosen.admitted.payload_bytes(), 50_135_040);
        };
        named(2 * layer, "ffn_gate");
        named(2 * layer + 1, "ffn_up");
        if layer >= 8 {
            named(130 + layer - 8, "ffn_down");
        }
    }
    let left = selection.left.iter().map(|left| left.name.as_str());
    let of_down = left.filter(|name| name.ends_with("ffn_down.weight"));
    let wanted: Vec<String> = (0..8).map(|l| format!("blk.{l}.ffn_down.weight")).collect();
    assert_eq!(of_down.collect::<Vec<_>>(), wanted);
    assert_eq!(selection.left.len() + 187, model(65).len());
    assert!(selection.left.iter().all(|left| left.misfit.is_none()));
}

#[test]
fn shards_make_no_difference_to_slots() {
    let whole = select(&plan(), &container(Some("qwen35"), &model(65))).unwrap();
    let parts = select(&plan(), &sharded("qwen35", &model(65), 100)).unwrap();
    assert_eq!(parts.chosen.len(), 187);
    for (a, b) in whole.chosen.iter().zip(&parts.chosen) {
        assert_eq!((a.slot, &a.name), (b.slot, &b.name));
    }
    assert!(parts.chosen.iter().any(|chosen| chosen.shard == 1));
}

#[test]
fn a_missing_gate_is_named_with_its_slot() {
    let said = broken(|tensors| {
        let gate = at(tensors, "blk.3.ffn_gate.weight");
        tensors.remove(gate);
    });
    assert_eq!(said, ["missing: slot 6 (blk.3.ffn_gate.weight)"]);
}

#[test]
fn a_misshapen_down_is_named_with_both_shapes() {
    let said = broken(|tensors| {
        let down = at(tensors, "blk.11.ffn_down.weight");
        tensors[down].2 = vec![17408, 5136];
    });
    let wanted = "misfit: slot 133 (blk.11.ffn_down.weight, rule down): dims [17408, 5136], where \
                  [17408, 5120] is wanted";
    assert_eq!(said, [wanted]);
}

#[test]
fn another_quantisation_is_named_with_both_types() {
    let said = broken(|tensors| {
        let up = at(tensors, "blk.64.ffn_up.weight");
        tensors[up].1 = "Q4_1";
    });
    let wanted =
        "misfit: slot 129 (blk.64.ffn_up.weight, rule up): type Q4_1, where Q4_0 is wanted";
    assert_eq!(said, [wanted]);
}

#[test]
fn each_kind_of_problem_is_in_the_one_error() {
    let said = broken(|tensors| {
        let up = at(tensors, "blk.0.ffn_up.weight");
        tensors[up].0 = "blk.00.ffn_up.weight".into();
        let down = at(tensors, "blk.8.ffn_down.weight");
        tensors[down].1 = "Q8_0";
    });
    let wanted = [
        "missing: slot 1 (blk.0.ffn_up.weight)",
        "misfit: slot 130 (blk.8.ffn_down.weight, rule down): type Q8_0, where Q4_0 is wanted",
    ];
    assert_eq!(said, wanted);
}

/// A runtime whose formula has no upper bound would put gate 65 into the slot of down 8 (130).
#[test]
fn a_deeper_model_is_refused_instead_of_colliding() {
    let (headline, said) = lines(&container(Some("qwen35"), &model(66)));
    assert_eq!(
        headline,
        "the model does not fit plan qwen27-xe2-m6: 3 problems"
    );
    let wanted = ["down", "gate", "up"].map(|part| {
        format!("misfit: blk.65.ffn_{part}.weight (rule {part}): layer 65 is outside 0 to 64")
    });
    assert_eq!(
        said,
        wanted.map(|line| match line.contains("down") {
            true => line.replace("0 to 64", "8 to 64"),
            false => line,
        })
    );
}

/// The same plan without its bounds shows the collision: the invariant catches it by itself.
#[test]
fn without_ranges_the_collision_is_a_doubled_slot() {
    let text = std::str::from_utf8(find("qwen27-xe2-m6").unwrap().bytes).unwrap();
    let kept = text.lines().filter(|line| {
        !line.starts_with("ranges") && !line.starts_with("expect") && !line.starts_with("slots")
    });
    let text = kept.collect::<Vec<_>>().join("\n");
    let plan = Plan::parse(text.as_bytes(), "test").expect("because it is still a plan");
    assert_ne!(
        plan.digest(),
        Digest::of(find("qwen27-xe2-m6").unwrap().bytes)
    );
    let error = select(&plan, &container(Some("qwen35"), &model(66)));
    let (_, said) = error
        .expect_err("because two tensors want slot 130")
        .lines();
    let wanted = [
        "doubled: slot 130 (blk.8.ffn_down.weight and blk.65.ffn_gate.weight)",
        "doubled: slot 131 (blk.9.ffn_down.weight and blk.65.ffn_up.weight)",
    ];
    assert_eq!(said, wanted);
}

#[test]
fn a_shallower_model_is_told_what_it_lacks_in_bounded_length() {
    let (headline, said) = lines(&container(Some("qwen35"), &model(24)));
    assert_eq!(
        headline,
        "the model does not fit plan qwen27-xe2-m6: 123 problems"
    );
    assert_eq!(said.len(), 9);
    assert_eq!(said[0], "missing: slot 48 (blk.24.ffn_gate.weight)");
    assert_eq!(said[8], "missing: and 115 more");
}

/// The built-in plan names no architecture: its names, shapes and slots say more. A plan that does
/// name one holds to it.
#[test]
fn a_model_of_another_architecture_is_refused_by_that_name() {
    let text = std::str::from_utf8(find("qwen27-xe2-m6").unwrap().bytes).unwrap();
    let named = text.replacen("\n\n", "\narchitectures = [\"qwen35\"]\n\n", 1);
    let named = Plan::parse(named.as_bytes(), "test").expect("because only a line was added");
    let refused = |name| {
        let error = select(&named, &container(name, &model(65)));
        let error = error.expect_err("because the architecture differs");
        assert!(matches!(error, SelectionError::Architecture { .. }));
        error.to_string()
    };
    assert_eq!(
        refused(Some("llama")),
        "plan qwen27-xe2-m6 is for qwen35 models, and this one is \"llama\""
    );
    assert_eq!(
        refused(None),
        "plan qwen27-xe2-m6 is for qwen35 models, and this one is of no named architecture"
    );
    let taken = select(&plan(), &container(Some("llama"), &model(65)));
    assert_eq!(taken.expect("because its names fit").chosen.len(), 187);
}

#[test]
fn a_model_without_any_of_the_names_is_told_so() {
    let tensors = [("enc.0.weight".to_owned(), "Q4_0", vec![64, 64])];
    let (headline, said) = lines(&container(Some("qwen35"), &tensors));
    assert_eq!(headline, "plan qwen27-xe2-m6 takes none of 1 tensors");
    assert_eq!(said, ["enc.0.weight: no rule names it"]);
}
