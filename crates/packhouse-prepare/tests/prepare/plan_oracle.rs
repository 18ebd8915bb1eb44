//! What must hold of any bytes given to the plan parser, for the tests and the fuzz target: a plan
//! written out again is the same plan, and what it selects of a small model is what its rules say:
//! which tensor goes to which rule and slot is judged again, field by field.

use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Tensor, Value};
use packhouse_container::{Container, TensorDirectory};
use packhouse_layout::stock_x86::{self, Features};
use packhouse_pack::{IsaLevel, Packers};
use packhouse_prepare::plan::slot::Variable;
use packhouse_prepare::plan::{
    Chooser, Chosen, DimRule, Otherwise, Plan, Rule, SelectContext, SelectionError, limits,
};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// A renderer that is wrong on purpose, for the canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Writes the capitals D to L of a summary small.
    LowersSummary,
}

/// Examines bytes and says whether they are a plan. Panics when a plan does not come back from its
/// own text, when a refusal has no place, or when a selection breaks its plan.
pub(crate) fn examine(bytes: &[u8], mutant: Option<Mutant>) -> bool {
    let plan = match Plan::parse(bytes, "origin") {
        Ok(plan) => plan,
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1);
            assert!(error.line <= bytes.iter().filter(|byte| **byte == b'\n').count() + 1);
            assert!(error.to_string().starts_with("origin:"));
            return false;
        }
    };
    let text = render(&plan, mutant);
    if text.len() <= limits::PLAN_BYTES_MAX {
        let again = Plan::parse(text.as_bytes(), "origin");
        let again = again.unwrap_or_else(|error| panic!("round trip: {error}\n{text}"));
        assert!(is_same(&plan, &again), "round trip: another plan\n{text}");
    }
    select(&plan);
    true
}

/// The plan in one spelling: every field in order, and nothing that is absent.
pub(crate) fn render(plan: &Plan, mutant: Option<Mutant>) -> String {
    let mut text = String::new();
    writeln!(text, "name = {}", quoted(plan.name())).unwrap();
    writeln!(text, "version = {}", plan.version()).unwrap();
    writeln!(text, "summary = {}", quoted(&summary(plan, mutant))).unwrap();
    if !plan.architectures().is_empty() {
        let names = plan.architectures().iter().map(|name| quoted(name));
        writeln!(text, "architectures = [{}]", joined(names)).unwrap();
    }
    for rule in plan.rules() {
        render_rule(&mut text, rule);
    }
    let invariants = plan.invariants();
    text += "[invariants]\n";
    if let Some(slots) = invariants.slots {
        writeln!(text, "slots = [{}, {}]", slots.first, slots.last).unwrap();
    }
    if let Some(count) = invariants.count {
        writeln!(text, "count = {count}").unwrap();
    }
    text
}

fn summary(plan: &Plan, mutant: Option<Mutant>) -> String {
    let letters = plan.summary().chars();
    let written = |letter: char| match mutant {
        Some(Mutant::LowersSummary) if ('D'..='L').contains(&letter) => letter.to_ascii_lowercase(),
        Some(Mutant::LowersSummary) | None => letter,
    };
    letters.map(written).collect()
}

fn render_rule(text: &mut String, rule: &Rule) {
    writeln!(text, "[[rule]]\nid = {}", quoted(rule.id())).unwrap();
    writeln!(text, "tensor = {}", quoted(rule.pattern().text())).unwrap();
    if let Some(unless) = rule.unless() {
        writeln!(text, "unless = {}", quoted(unless.text())).unwrap();
    }
    if !rule.ranges().is_empty() {
        let ranges = rule.ranges().iter().map(|(capture, range)| {
            let key = quoted(&capture.to_string());
            format!("{key} = [{}, {}]", range.first, range.last)
        });
        writeln!(text, "ranges = {{ {} }}", joined(ranges)).unwrap();
    }
    if !rule.types().is_empty() {
        let types = rule.types().iter().map(|ty| quoted(ty.name()));
        writeln!(text, "types = [{}]", joined(types)).unwrap();
    }
    if !rule.dims().is_empty() {
        let dims = rule.dims().iter().map(|dim| render_dim(*dim));
        writeln!(text, "dims = [{}]", joined(dims)).unwrap();
    }
    if let Some(chooser) = rule.chosen_by() {
        writeln!(text, "chosen_by = {}", quoted(chooser.word())).unwrap();
    }
    writeln!(text, "layout = {}", quoted(rule.layout().id())).unwrap();
    if !rule.parameters().is_empty() {
        let parameters = rule.parameters().iter();
        let parameters = parameters.map(|(name, value)| format!("{name} = {value}"));
        writeln!(text, "parameters = {{ {} }}", joined(parameters)).unwrap();
    }
    writeln!(text, "slot = {}", quoted(rule.slot().text())).unwrap();
    writeln!(text, "otherwise = {}", quoted(rule.otherwise().word())).unwrap();
    if let Some(template) = rule.template() {
        writeln!(text, "expect = {}", quoted(template.text())).unwrap();
    }
    if let Some(count) = rule.count() {
        writeln!(text, "count = {count}").unwrap();
    }
}

fn render_dim(dim: DimRule) -> String {
    match dim {
        DimRule::Exact(exact) => exact.to_string(),
        DimRule::Within { min, max, multiple } if max == u64::MAX => {
            format!("{{ min = {min}, multiple = {multiple} }}")
        }
        DimRule::Within { min, max, multiple } => {
            format!("{{ min = {min}, max = {max}, multiple = {multiple} }}")
        }
    }
}

/// All of a plan but its bytes' digest.
fn is_same(a: &Plan, b: &Plan) -> bool {
    (a.name(), a.version(), a.summary()) == (b.name(), b.version(), b.summary())
        && a.architectures() == b.architectures()
        && a.rules() == b.rules()
        && a.invariants() == b.invariants()
}

/// Selects of a small model and holds the answer to the plan.
fn select(plan: &Plan) {
    static MODEL: LazyLock<(Container, Packers)> = LazyLock::new(|| {
        let packers = Packers::at(IsaLevel::Scalar);
        (
            small_model(),
            packers.expect("because plain loops run everywhere"),
        )
    });
    let (container, packers) = &*MODEL;
    let features = Features {
        avx2: true,
        avx512: true,
    };
    let context = SelectContext { features, packers };
    let tensors = container.tensors().count();
    let selection = match plan.select(container, &context) {
        Ok(selection) => selection,
        Err(SelectionError::Unfit(unfit)) => {
            assert!(unfit.problem_count() > 0 && !unfit.shown().is_empty());
            assert!(unfit.to_string().len() < 100_000);
            return;
        }
        Err(SelectionError::Architecture { .. } | SelectionError::Nothing { .. }) => return,
    };
    let chosen = &selection.chosen;
    judge(plan, container, &context, chosen);
    assert!(!chosen.is_empty());
    assert_eq!(chosen.len() + selection.left.len(), tensors);
    assert!(chosen.windows(2).all(|pair| pair[0].slot < pair[1].slot));
    assert!(chosen.iter().all(|one| one.slot <= limits::SLOT_MAX));
    for one in chosen {
        let (shard, tensor) = container.tensor(&one.name).expect("because it was chosen");
        assert_eq!((one.shard, one.offset), (shard, tensor.offset));
        assert_eq!(one.admitted.source_bytes(), tensor.bytes);
    }
    let total = u64::try_from(chosen.len()).unwrap();
    assert!(plan.invariants().count.is_none_or(|count| count == total));
    if let Some(slots) = plan.invariants().slots {
        assert_eq!((chosen[0].slot, slots.value_count()), (slots.first, total));
        assert_eq!(chosen[chosen.len() - 1].slot, slots.last);
    }
    for (at, rule) in plan.rules().iter().enumerate() {
        let taken = chosen.iter().filter(|one| one.rule == at).count();
        assert!(
            rule.count()
                .is_none_or(|count| count == u64::try_from(taken).unwrap())
        );
        for expected in rule.expected() {
            let found = chosen.iter().find(|one| one.name == expected.name);
            let found = found.expect("because an expected tensor is chosen");
            assert!(expected.slot.is_none_or(|slot| slot == found.slot));
        }
    }
}

/// What a rule says of a tensor.
enum Verdict {
    /// It does not name it.
    Other,
    /// It names it, and something doesn't fit.
    Misfit,
    /// It takes it, into this slot.
    Takes(u64),
}

/// Offers each tensor to the rules in their order and holds what was chosen to the first that takes
/// it. A tensor that a rule refuses leaves no selection.
fn judge(plan: &Plan, container: &Container, context: &SelectContext<'_>, chosen: &[Chosen]) {
    for (index, (_, tensor)) in container.tensors().enumerate() {
        let mut taken = None;
        for (at, rule) in plan.rules().iter().enumerate() {
            let is_there = |(_, other): (usize, &Tensor)| {
                let unless = rule.unless();
                unless.is_some_and(|unless| unless.matched(&other.name).is_some())
            };
            if container.tensors().any(is_there) {
                continue;
            }
            match verdict(rule, tensor, index as u64, context) {
                Verdict::Other => {}
                Verdict::Misfit => {
                    assert_eq!(
                        rule.otherwise(),
                        Otherwise::Leave,
                        "{} is refused",
                        tensor.name
                    );
                }
                Verdict::Takes(slot) => {
                    taken = Some((at, slot));
                    break;
                }
            }
        }
        let found = chosen.iter().find(|one| one.name == tensor.name);
        let found = found.map(|one| (one.rule, one.slot));
        assert_eq!(found, taken, "rule and slot of {}", tensor.name);
    }
}

fn verdict(rule: &Rule, tensor: &Tensor, index: u64, context: &SelectContext<'_>) -> Verdict {
    let Some(matched) = rule.pattern().matched(&tensor.name) else {
        return Verdict::Other;
    };
    let in_range = rule.ranges().iter().all(|(capture, range)| {
        let number = matched.number(capture);
        number.is_ok_and(|number| range.first <= number && number <= range.last)
    });
    let are_numbers = rule
        .slot()
        .variables()
        .into_iter()
        .all(|variable| match variable {
            Variable::Index => true,
            Variable::Capture(capture) => matched.number(capture).is_ok(),
        });
    let (ty, dims) = (tensor.ggml_type, &tensor.dims);
    let of_type = rule.types().is_empty() || rule.types().contains(&ty);
    let ones = dims.iter().rev().take_while(|dim| **dim == 1).count();
    let shape = &dims[..(dims.len() - ones).max(1)];
    let fits = |(dim, want): (&u64, &DimRule)| match *want {
        DimRule::Exact(exact) => *dim == exact,
        DimRule::Within { min, max, multiple } => (min..=max).contains(dim) && dim % multiple == 0,
    };
    let of_shape = rule.dims().is_empty()
        || shape.len() == rule.dims().len() && shape.iter().zip(rule.dims()).all(fits);
    let by_host = match rule.chosen_by() {
        None => true,
        // The small model has no `output.weight`.
        Some(Chooser::GgmlCpu) => {
            stock_x86::choose(&tensor.name, ty, dims, true, context.features).is_ok()
        }
    };
    let admitted = rule.layout().admit(ty, dims, rule.parameters());
    let is_packed = admitted.is_ok_and(|admitted| context.packers.kernel(&admitted).is_ok());
    if !(in_range && are_numbers && of_type && of_shape && by_host && is_packed) {
        return Verdict::Misfit;
    }
    let slot = rule.slot().slot(&|variable| match variable {
        Variable::Index => index,
        Variable::Capture(capture) => matched.number(capture).expect("because it was asked"),
    });
    Verdict::Takes(slot.expect("because a selection has a slot for each tensor"))
}

/// Two layers and their surroundings, of no bytes to speak of.
pub(crate) fn small_model() -> Container {
    let mut tensors = Vec::new();
    let mut add = |name: &str, ty: &str, dims: &[u64]| {
        tensors.push(DraftTensor {
            name: name.into(),
            ggml_type: GgmlType::from_name(ty).expect("because the names are known"),
            dims: dims.to_vec(),
        });
    };
    add("token_embd.weight", "Q4_0", &[32, 16]);
    for layer in 0..2 {
        for (part, ty) in [
            ("ffn_gate", "Q4_0"),
            ("ffn_up", "Q4_0"),
            ("ffn_down", "Q8_0"),
        ] {
            add(&format!("blk.{layer}.{part}.weight"), ty, &[32, 16]);
        }
        add(&format!("blk.{layer}.norm.weight"), "F32", &[8]);
    }
    let draft = Draft {
        metadata: vec![Entry {
            key: "general.architecture".into(),
            value: Value::String("llama".into()),
        }],
        tensors,
    };
    let mut file = Vec::new();
    draft.begin(&mut file).expect("because the draft is sound");
    let bytes = draft.file_bytes().expect("because it is small");
    file.resize(usize::try_from(bytes).unwrap(), 0);
    let directory = TensorDirectory::parse(&file.as_slice());
    Container::new(vec![directory.expect("because the writer is ours")]).unwrap()
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => write!(quoted, "\\u{:04x}", u32::from(c)).unwrap(),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
