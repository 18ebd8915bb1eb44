//! Random formulas against exact arithmetic, random plans on random models against plain loops, and
//! plans that come back from their own text.

use crate::plan_oracle::{Mutant, examine, render, small_model};
use crate::plan_world::{Made, container, select};
use packhouse_prepare::plan::slot::{Formula, Variable};
use packhouse_prepare::plan::{Plan, SelectionError, builtin, limits};
use proptest::prelude::*;

/// A formula in the making.
#[derive(Clone, Debug)]
enum Tree {
    Number(i64),
    Layer,
    Index,
    Both(Box<Tree>, char, Box<Tree>),
}

impl Tree {
    /// Its text with all parentheses that are needed, and some that are not.
    fn text(&self, blank: &str) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Layer => "layer".into(),
            Self::Index => "index".into(),
            Self::Both(left, operator, right) => {
                let (left, right) = (left.text(blank), right.text(blank));
                format!("({left}{blank}{operator}{blank}{right})")
            }
        }
    }

    /// Exact arithmetic; `None` when a value leaves 64 bits on the way.
    fn value(&self, layer: u64, index: u64) -> Option<i128> {
        let value = match self {
            Self::Number(number) => i128::from(*number),
            Self::Layer => i128::from(layer),
            Self::Index => i128::from(index),
            Self::Both(left, operator, right) => {
                let (left, right) = (left.value(layer, index)?, right.value(layer, index)?);
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    _ => left * right,
                }
            }
        };
        let fits = (i128::from(i64::MIN)..=i128::from(i64::MAX)).contains(&value);
        fits.then_some(value)
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let edge = prop_oneof![Just(0), Just(1), Just(i64::MAX), 0..300i64, 0..i64::MAX];
    let leaf = prop_oneof![
        edge.prop_map(Tree::Number),
        Just(Tree::Layer),
        Just(Tree::Index)
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let operator = prop_oneof![Just('+'), Just('-'), Just('*')];
        (inner.clone(), operator, inner)
            .prop_map(|(left, sign, right)| Tree::Both(left.into(), sign, right.into()))
    })
}

proptest! {
    #[test]
    fn formulas_are_exact_or_refused(
        tree in tree(),
        layer in prop_oneof![0..100u64, any::<u64>()],
        index in 0..10_000u64,
        blank in " {0,2}",
    ) {
        let text = tree.text(&blank);
        prop_assume!(text.len() <= limits::FORMULA_BYTES_MAX);
        let formula = Formula::parse(&text).expect("because the text is a formula");
        let slot = formula.slot(&|variable| match variable {
            Variable::Index => index,
            Variable::Capture(_) => layer,
        });
        let wanted = tree.value(layer, index).and_then(|value| u64::try_from(value).ok());
        prop_assert_eq!(slot.ok(), wanted.filter(|slot| *slot <= limits::SLOT_MAX));
    }

    #[test]
    fn precedence_is_arithmetic(
        a in 0..99i64,
        b in 0..99i64,
        c in 0..99i64,
        d in 0..99i64,
    ) {
        let text = format!("{a}+{b}*{c}+({d}+1)*2-1");
        let formula = Formula::parse(&text).expect("because the text is a formula");
        let slot = formula.slot(&|_| 0).expect("because the result is small");
        prop_assert_eq!(i64::try_from(slot), Ok(a + b * c + (d + 1) * 2 - 1));
    }

    #[test]
    fn any_text_is_a_formula_or_an_error(text in "[0-9a-z$()+* \\-\u{e4}_]{0,40}") {
        if let Ok(formula) = Formula::parse(&text) {
            prop_assert_eq!(formula.text(), text.as_str());
            let again = Formula::parse(formula.text()).expect("because it was one");
            prop_assert_eq!(formula, again);
        }
    }

    #[test]
    fn plans_on_models_agree_with_plain_loops(case in case()) {
        case.compare();
    }
}

/// One rule of a random plan.
#[derive(Clone, Debug)]
struct RuleCase {
    part: char,
    range: Option<(u64, u64)>,
    ty: Option<&'static str>,
    slot: (u64, u64),
    refuse: bool,
    expect: bool,
    count: Option<u64>,
    /// The layer and part of the tensor that it makes way for.
    unless: Option<(u64, char)>,
}

/// A random plan and a random model.
#[derive(Clone, Debug)]
struct Case {
    rules: Vec<RuleCase>,
    slots: Option<(u64, u64)>,
    count: Option<u64>,
    tensors: Vec<(u64, char, &'static str)>,
}

fn case() -> impl Strategy<Value = Case> {
    let part = prop_oneof![Just('a'), Just('b')];
    let ty = prop_oneof![4 => Just("Q4_0"), 1 => Just("Q8_0")];
    let range = proptest::option::of((0..2u64, 2..5u64));
    let rule = (
        part.clone(),
        range,
        proptest::option::of(ty.clone()),
        (1..3u64, 0..4u64),
        any::<bool>(),
        any::<bool>(),
        proptest::option::weighted(0.2, 0..6u64),
        proptest::option::weighted(0.3, (0..6u64, part)),
    );
    let rule = rule.prop_map(
        |(part, range, ty, slot, refuse, expect, count, unless)| RuleCase {
            part,
            range,
            ty,
            slot,
            refuse,
            expect: expect && unless.is_none() && range.is_some(),
            count: count.filter(|_| unless.is_none() && !(expect && range.is_some())),
            unless,
        },
    );
    let tensors = proptest::sample::subsequence(
        (0..6u64)
            .flat_map(|layer| ['a', 'b'].map(|part| (layer, part)))
            .collect::<Vec<_>>(),
        0..=12,
    );
    let tensors = (tensors, proptest::collection::vec(ty, 12));
    (
        proptest::collection::vec(rule, 1..3),
        proptest::option::of((0..2u64, 2..9u64)),
        proptest::option::weighted(0.2, 0..8u64),
        tensors,
    )
        .prop_map(|(rules, slots, count, (names, types))| Case {
            rules,
            slots,
            count: if slots.is_some() { None } else { count },
            tensors: names
                .into_iter()
                .zip(types)
                .map(|((l, p), ty)| (l, p, ty))
                .collect(),
        })
}

/// What plain loops make of a case.
#[derive(Default)]
struct Judged {
    /// Slot, place in the model, rule and name.
    chosen: Vec<(u64, usize, usize, String)>,
    problems: Vec<String>,
    /// Slots of which more is not said.
    covered: Vec<u64>,
    /// Tensors that are there and don't fit.
    accused: Vec<String>,
}

impl Case {
    fn plan(&self) -> Result<Plan, String> {
        let mut text = "name = \"x\"\nversion = 1\nsummary = \"s\"\n".to_owned();
        for (at, rule) in self.rules.iter().enumerate() {
            let part = rule.part;
            text += &format!("[[rule]]\nid = \"r{at}\"\n");
            text += &format!("tensor = 'blk\\.(?<layer>[0-9]+)\\.{part}'\n");
            if let Some((layer, part)) = rule.unless {
                text += &format!("unless = 'blk\\.{layer}\\.{part}'\n");
            }
            if let Some((first, last)) = rule.range {
                text += &format!("ranges = {{ layer = [{first}, {last}] }}\n");
            }
            if let Some(ty) = rule.ty {
                text += &format!("types = [\"{ty}\"]\n");
            }
            let (factor, offset) = rule.slot;
            text += "layout = \"identity-v1\"\n";
            text += &format!("slot = \"{factor} * layer + {offset}\"\n");
            let otherwise = if rule.refuse { "refuse" } else { "leave" };
            text += &format!("otherwise = \"{otherwise}\"\n");
            if rule.expect {
                text += &format!("expect = \"blk.{{layer}}.{part}\"\n");
            }
            if let Some(count) = rule.count {
                text += &format!("count = {count}\n");
            }
        }
        text += "[invariants]\n";
        if let Some((first, last)) = self.slots {
            text += &format!("slots = [{first}, {last}]\n");
        }
        if let Some(count) = self.count {
            text += &format!("count = {count}\n");
        }
        Plan::parse(text.as_bytes(), "case").map_err(|error| error.to_string())
    }

    /// Whether templates and counts contradict each other or the set's slots, which a parse must
    /// refuse.
    fn contradicts(&self) -> bool {
        let (mut slots, mut names) = (Vec::new(), Vec::new());
        for rule in self.rules.iter().filter(|rule| rule.expect) {
            let (first, last) = rule.range.expect("because templates have ranges");
            slots.extend((first..=last).map(|layer| rule.slot.0 * layer + rule.slot.1));
            names.extend((first..=last).map(|layer| (layer, rule.part)));
        }
        let outside = |slot: &u64| self.slots.is_some_and(|(a, b)| *slot < a || *slot > b);
        let doubled = (0..slots.len()).any(|at| slots[..at].contains(&slots[at]));
        let named_twice = (0..names.len()).any(|at| names[..at].contains(&names[at]));
        doubled || named_twice || slots.iter().any(outside) || self.counts_contradict()
    }

    fn counts_contradict(&self) -> bool {
        let total = self.slots.map(|(first, last)| last - first + 1);
        let Some(total) = total.or(self.count) else {
            return false;
        };
        let counts = self.rules.iter().map(|rule| match rule.range {
            Some((first, last)) if rule.expect => Some(last - first + 1),
            _ => rule.count,
        });
        let counts: Vec<Option<u64>> = counts.collect();
        let given: u64 = counts.iter().flatten().sum();
        given > total || given < total && counts.iter().all(Option::is_some)
    }

    fn compare(&self) {
        let plan = match self.plan() {
            Ok(plan) => plan,
            Err(error) => {
                assert!(self.contradicts(), "{error}");
                return;
            }
        };
        assert!(!self.contradicts());
        let made: Vec<Made> = self
            .tensors
            .iter()
            .map(|(layer, part, ty)| (format!("blk.{layer}.{part}"), *ty, vec![32, 2]))
            .collect();
        let (chosen, problems) = self.judge();
        match select(&plan, &container(None, &made)) {
            Ok(selection) => {
                assert!(problems.is_empty(), "{problems:?}");
                let found = selection
                    .chosen
                    .iter()
                    .map(|one| (one.slot, one.name.clone()));
                assert_eq!(found.collect::<Vec<_>>(), chosen);
                assert_eq!(selection.left.len() + chosen.len(), made.len());
            }
            Err(SelectionError::Nothing { tensors, .. }) => {
                assert!(chosen.is_empty() && usize::try_from(tensors) == Ok(made.len()));
            }
            Err(SelectionError::Unfit(unfit)) => {
                let counted = u64::try_from(problems.len()).unwrap();
                assert_eq!(unfit.problem_count(), counted, "{unfit} {problems:?}");
                for shown in unfit.shown() {
                    assert!(
                        problems.contains(&shown.to_string()),
                        "{shown} {problems:?}"
                    );
                }
                let kinds = ["missing", "doubled", "outside", "misfit", "count", "total"];
                let shown = kinds.map(|kind| {
                    let of_kind = problems.iter().filter(|line| line.starts_with(kind));
                    of_kind.count().min(8)
                });
                assert_eq!(unfit.shown().len(), shown.iter().sum::<usize>());
            }
            Err(SelectionError::Architecture { .. }) => panic!("the plan names none"),
        }
    }

    /// What is chosen, by slot, and every problem, by plain loops over everything.
    fn judge(&self) -> (Vec<(u64, String)>, Vec<String>) {
        let mut judged = Judged::default();
        self.judge_tensors(&mut judged);
        self.judge_slots(&mut judged);
        self.judge_counts(&mut judged);
        let chosen = judged.chosen.into_iter();
        let chosen = chosen.map(|(slot, _, _, name)| (slot, name));
        (chosen.collect(), judged.problems)
    }

    fn judge_tensors(&self, judged: &mut Judged) {
        let Judged {
            chosen,
            problems,
            covered,
            accused,
        } = judged;
        for (place, (layer, part, ty)) in self.tensors.iter().enumerate() {
            let name = format!("blk.{layer}.{part}");
            for (at, rule) in self.rules.iter().enumerate() {
                let makes_way = |(layer, part): (u64, char)| {
                    let mut names = self.tensors.iter().map(|(l, p, _)| (*l, *p));
                    names.any(|name| name == (layer, part))
                };
                if rule.part != *part || rule.unless.is_some_and(makes_way) {
                    continue;
                }
                let slot = rule.slot.0 * layer + rule.slot.1;
                let in_range = rule.range.is_none_or(|(a, b)| a <= *layer && *layer <= b);
                let of_type = rule.ty.is_none_or(|wanted| wanted == *ty);
                if in_range && of_type {
                    chosen.push((slot, place, at, name.clone()));
                    break;
                }
                if !rule.refuse {
                    continue;
                }
                accused.push(name.clone());
                if let (false, Some((a, b))) = (in_range, rule.range) {
                    let why = format!("layer {layer} is outside {a} to {b}");
                    problems.push(format!("misfit: {name} (rule r{at}): {why}"));
                } else {
                    covered.push(slot);
                    let why = format!("type {ty}, where {} is wanted", rule.ty.unwrap_or_default());
                    problems.push(format!("misfit: slot {slot} ({name}, rule r{at}): {why}"));
                }
                break;
            }
        }
        chosen.sort();
        for pair in chosen.windows(2) {
            if pair[0].0 == pair[1].0 {
                let (slot, first, second) = (pair[0].0, &pair[0].3, &pair[1].3);
                problems.push(format!("doubled: slot {slot} ({first} and {second})"));
            }
        }
    }

    fn judge_slots(&self, judged: &mut Judged) {
        let Judged {
            chosen,
            problems,
            covered,
            accused,
        } = judged;
        for (at, rule) in self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.expect)
        {
            let (first, last) = rule.range.expect("because templates have ranges");
            for layer in first..=last {
                let name = format!("blk.{layer}.{}", rule.part);
                let is_there = chosen.iter().any(|one| one.2 == at && one.3 == name);
                if !is_there && !accused.contains(&name) {
                    let slot = rule.slot.0 * layer + rule.slot.1;
                    covered.push(slot);
                    problems.push(format!("missing: slot {slot} ({name})"));
                }
            }
        }
        if let Some((first, last)) = self.slots {
            for slot in first..=last {
                if !covered.contains(&slot) && chosen.iter().all(|one| one.0 != slot) {
                    problems.push(format!("missing: slot {slot}"));
                }
            }
            for (slot, _, _, name) in chosen.iter() {
                if *slot < first || *slot > last {
                    let slots = format!("the slots are {first} to {last}");
                    problems.push(format!("outside: slot {slot} ({name}); {slots}"));
                }
            }
        }
    }

    fn judge_counts(&self, judged: &mut Judged) {
        let Judged {
            chosen, problems, ..
        } = judged;
        for (at, rule) in self.rules.iter().enumerate() {
            let found = chosen.iter().filter(|one| one.2 == at).count() as u64;
            if let Some(count) = rule.count.filter(|count| *count != found) {
                let must = format!("takes {found} tensors, and must take {count}");
                problems.push(format!("count: rule r{at} {must}"));
            }
        }
        let found = chosen.len() as u64;
        if let Some(count) = self.count.filter(|count| *count != found) {
            let must = format!("take {found} tensors, and must take {count}");
            problems.push(format!("total: the rules {must}"));
        }
    }
}

#[test]
fn plans_come_back_from_their_own_text() {
    for entry in builtin() {
        assert!(examine(entry.bytes, None), "{}", entry.name);
        let text = render(&entry.plan(), None);
        let again = Plan::parse(text.as_bytes(), "again").expect("because it was a plan");
        assert_eq!(render(&again, None), text);
    }
    assert!(!examine(b"", None));
}

/// Plans that take something of the oracle's small model, by each of the fields that it judges.
#[test]
fn selections_of_a_small_model_are_what_the_rules_say() {
    let up =
        "tensor = 'blk\\.(?<layer>[0-9])\\.ffn_(gate|up)\\.weight'\nslot = \"3 * layer + index\"\n";
    let all = "tensor = '.*'\nslot = \"index + 40\"\notherwise = \"leave\"\n";
    for (first, second) in [
        ("ranges = { layer = [1, 1] }\notherwise = \"leave\"\n", ""),
        ("types = [\"Q4_0\"]\notherwise = \"refuse\"\n", ""),
        (
            "dims = [{}, { max = 16 }]\notherwise = \"refuse\"\n",
            "dims = [8]\n",
        ),
        (
            "dims = [{}, { min = 17 }]\notherwise = \"leave\"\n",
            "dims = [32, 16]\n",
        ),
        (
            "chosen_by = \"ggml-cpu\"\notherwise = \"leave\"\n",
            "types = [\"F32\", \"Q8_0\"]\n",
        ),
    ] {
        let head = "name = \"x\"\nversion = 1\nsummary = \"s\"\n";
        let rule = |id| format!("[[rule]]\nid = \"{id}\"\nlayout = \"identity-v1\"\n");
        let text = format!("{head}{}{up}{first}{}{all}{second}", rule("a"), rule("b"));
        assert!(examine(text.as_bytes(), None), "{text}");
        let selected = select(&Plan::parse(text.as_bytes(), "x").unwrap(), &small_model());
        selected.unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

#[test]
#[should_panic(expected = "round trip: another plan")]
fn a_renderer_that_is_wrong_is_caught() {
    let text = "name = \"x\"\nversion = 1\nsummary = \"His\"\n[[rule]]\nid = \"r\"\ntensor = 'x'\n\
                dims = [{ multiple = 9 }]\nlayout = \"identity-v1\"\nslot = \"index\"\n\
                otherwise = \"leave\"\n";
    assert!(examine(text.as_bytes(), None));
    examine(text.as_bytes(), Some(Mutant::LowersSummary));
}
