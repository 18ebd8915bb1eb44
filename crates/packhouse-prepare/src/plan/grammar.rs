//! Bytes to a plan: TOML to raw fields, raw fields to checked rules, rules to a plan that does not
//! contradict itself.

use super::error::{Fault, PlanError};
use super::expect;
use super::feasible;
use super::limits::{
    NAME_BYTES_MAX, PATTERN_WORK_MAX, PLAN_BYTES_MAX, RULES_MAX, SLOT_MAX, SLOTS_MAX,
    SUMMARY_BYTES_MAX,
};
use super::pattern::{Pattern, Template};
use super::slot::{Capture, Formula, Variable};
use super::{Chooser, DimRule, Invariants, Otherwise, Plan, Range, Rule};
use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Layout;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    name: Spanned<String>,
    version: Spanned<u32>,
    summary: Spanned<String>,
    architectures: Option<Spanned<Vec<Spanned<String>>>>,
    rule: Spanned<Vec<RawRule>>,
    invariants: Option<RawInvariants>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    id: Spanned<String>,
    tensor: Spanned<String>,
    unless: Option<Spanned<String>>,
    ranges: Option<BTreeMap<Spanned<String>, Spanned<[u64; 2]>>>,
    types: Option<Spanned<Vec<Spanned<String>>>>,
    dims: Option<Spanned<Vec<Spanned<RawDim>>>>,
    chosen_by: Option<RawChooser>,
    layout: Spanned<String>,
    parameters: Option<BTreeMap<Spanned<String>, Spanned<u64>>>,
    slot: Spanned<String>,
    otherwise: RawOtherwise,
    expect: Option<Spanned<String>>,
    count: Option<Spanned<u64>>,
}

#[derive(Clone, Copy, Deserialize)]
enum RawChooser {
    #[serde(rename = "ggml-cpu")]
    GgmlCpu,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawOtherwise {
    Leave,
    Refuse,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInvariants {
    slots: Option<Spanned<[u64; 2]>>,
    count: Option<Spanned<u64>>,
}

/// `5120`, or `{ min = 1, max = 9, multiple = 3 }` with each part optional.
enum RawDim {
    Exact(u64),
    Within(RawWithin),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWithin {
    min: Option<u64>,
    max: Option<u64>,
    multiple: Option<u64>,
}

/// A fault and the bytes that have it.
pub(super) type Faulty<T> = Result<T, (Fault, ops::Range<usize>)>;

pub(super) fn parse(bytes: &[u8], origin: &str) -> Result<Plan, PlanError> {
    let error = |fault, line, column| PlanError {
        origin: origin.to_owned(),
        line,
        column,
        fault,
    };
    if bytes.len() > PLAN_BYTES_MAX {
        let fault = Fault::TooLong { bytes: bytes.len() };
        return Err(error(fault, 1, 1));
    }
    let text = std::str::from_utf8(bytes).map_err(|wrong| {
        let offset = wrong.valid_up_to();
        let before = String::from_utf8_lossy(&bytes[..offset]);
        let (line, column) = position(&before, before.len());
        error(Fault::NotUtf8 { offset }, line, column)
    })?;
    let raw: RawPlan = toml::from_str(text).map_err(|wrong| {
        let start = wrong.span().map_or(0, |span| span.start);
        let (line, column) = position(text, start);
        let message = wrong.message().replace('\n', " ");
        error(Fault::Toml { message }, line, column)
    })?;
    plan(raw, Digest::of(bytes), origin).map_err(|(fault, span)| {
        let (line, column) = position(text, span.start);
        error(fault, line, column)
    })
}

fn plan(raw: RawPlan, digest: Digest, origin: &str) -> Faulty<Plan> {
    let name = name("plan", &raw.name)?;
    if *raw.version.get_ref() == 0 {
        return Err((Fault::Version, raw.version.span()));
    }
    let summary = raw.summary.get_ref();
    let is_line = (1..=SUMMARY_BYTES_MAX).contains(&summary.len());
    if !is_line || summary.chars().any(char::is_control) {
        return Err((Fault::Summary, raw.summary.span()));
    }
    let architectures = words("architectures", raw.architectures.as_ref(), |text, span| {
        name_of("architecture", text, span)
    })?;
    let rule_count = raw.rule.get_ref().len();
    if rule_count == 0 || rule_count > RULES_MAX {
        return Err((Fault::RuleCount { count: rule_count }, raw.rule.span()));
    }
    let invariants = invariants(raw.invariants.as_ref())?;
    let mut rules: Vec<Rule> = Vec::with_capacity(rule_count);
    let mut work = PATTERN_WORK_MAX;
    for raw_rule in raw.rule.get_ref() {
        let rule = rule(raw_rule)?;
        for (pattern, field, span) in raw_rule.patterns(&rule) {
            work = work
                .checked_sub(pattern.work())
                .ok_or((Fault::PatternWork { field }, span))?;
        }
        feasible::refuse_never(&rule).map_err(|fault| (fault, raw_rule.kind_span()))?;
        if rules.iter().any(|earlier| earlier.id == rule.id) {
            let text = rule.id;
            let fault = Fault::Doubled { what: "rule", text };
            return Err((fault, raw_rule.id.span()));
        }
        rules.push(rule);
    }
    let spans: Vec<_> = raw
        .rule
        .get_ref()
        .iter()
        .map(RawRule::expect_span)
        .collect();
    expect::fill(&mut rules, &spans, invariants.slots)?;
    let plan = Plan {
        name,
        version: *raw.version.get_ref(),
        summary: summary.clone(),
        architectures,
        rules,
        invariants,
        digest,
        origin: origin.to_owned(),
    };
    refuse_counts(&plan, &raw)?;
    Ok(plan)
}

fn rule(raw: &RawRule) -> Faulty<Rule> {
    let pattern = pattern("tensor", &raw.tensor)?;
    let unless = unless(raw)?;
    let mut ranges = BTreeMap::new();
    for (key, value) in raw.ranges.iter().flatten() {
        let text = key.get_ref();
        let capture = Capture::parse(text)
            .ok_or_else(|| (Fault::CaptureName { text: text.clone() }, key.span()))?;
        has_capture("ranges", &pattern, &capture, key.span())?;
        ranges.insert(capture, range("ranges", value)?);
    }
    let layout = layout(&raw.layout)?;
    let slot = Formula::parse(raw.slot.get_ref());
    let slot = slot.map_err(|error| (error.into(), raw.slot.span()))?;
    for variable in slot.variables() {
        match variable {
            Variable::Index => {}
            Variable::Capture(capture) => {
                has_capture("slot", &pattern, capture, raw.slot.span())?;
            }
        }
    }
    let template = match &raw.expect {
        None => None,
        Some(text) => {
            let template = Template::parse(text.get_ref());
            Some(template.map_err(|error| (error.into(), text.span()))?)
        }
    };
    Ok(Rule {
        id: name("rule", &raw.id)?,
        pattern,
        unless,
        ranges,
        types: words("types", raw.types.as_ref(), ggml_type)?,
        dims: dims(raw.dims.as_ref())?,
        chosen_by: raw.chosen_by.map(|chooser| match chooser {
            RawChooser::GgmlCpu => Chooser::GgmlCpu,
        }),
        layout,
        parameters: parameters(layout, raw.parameters.as_ref())?,
        slot,
        otherwise: match raw.otherwise {
            RawOtherwise::Leave => Otherwise::Leave,
            RawOtherwise::Refuse => Otherwise::Refuse,
        },
        template,
        expected: Vec::new(),
        count: raw.count.as_ref().map(|count| *count.get_ref()),
    })
}

fn pattern(field: &'static str, raw: &Spanned<String>) -> Faulty<Pattern> {
    let pattern = Pattern::parse(raw.get_ref());
    pattern.map_err(|source| (Fault::Pattern { field, source }, raw.span()))
}

/// The exception of a rule, beside which nothing says how many tensors there must be.
fn unless(raw: &RawRule) -> Faulty<Option<Pattern>> {
    let Some(given) = &raw.unless else {
        return Ok(None);
    };
    if given.get_ref() == raw.tensor.get_ref() {
        return Err((Fault::UnlessItself, given.span()));
    }
    let expect = raw.expect.as_ref().map(|_| "expect");
    if let Some(field) = expect.or(raw.count.as_ref().map(|_| "count")) {
        return Err((Fault::UnlessAnd { field }, given.span()));
    }
    pattern("unless", given).map(Some)
}

fn invariants(raw: Option<&RawInvariants>) -> Faulty<Invariants> {
    let Some(raw) = raw else {
        return Ok(Invariants::default());
    };
    let slots = match &raw.slots {
        None => None,
        Some(value) => {
            let range = range("slots", value)?;
            if range.last > SLOT_MAX || range.value_count() > SLOTS_MAX {
                return Err((Fault::Slots, value.span()));
            }
            Some(range)
        }
    };
    Ok(Invariants {
        slots,
        count: raw.count.as_ref().map(|count| *count.get_ref()),
    })
}

/// Counts that say again, or say otherwise, what slots and templates say.
fn refuse_counts(plan: &Plan, raw: &RawPlan) -> Faulty<()> {
    for (rule, raw_rule) in plan.rules.iter().zip(raw.rule.get_ref()) {
        if let (Some(count), Some(_)) = (&raw_rule.count, &rule.template) {
            let expected = rule.expected.len();
            return Err((Fault::CountAndExpect { expected }, count.span()));
        }
    }
    let Some(raw) = &raw.invariants else {
        return Ok(());
    };
    let slots = plan.invariants.slots.map(|slots| slots.value_count());
    let counts: Vec<Option<u64>> = plan.rules.iter().map(Rule::tensor_count).collect();
    let given = counts.iter().flatten();
    let given = given.fold(0u64, |sum, count| sum.saturating_add(*count));
    let is_exact = counts.iter().all(Option::is_some);
    let refuse = |field: String, total: u64, span: ops::Range<usize>| {
        let others = match (is_exact, slots) {
            (_, Some(slots)) if slots != total => format!("slots give {slots}"),
            (true, _) if given != total => format!("the rules give {given}"),
            (false, _) if given > total => format!("the rules give at least {given}"),
            _ => return Ok(()),
        };
        Err((Fault::CountContradicts { field, others }, span))
    };
    if let Some(count) = &raw.count {
        let total = *count.get_ref();
        refuse(format!("count: {total}"), total, count.span())?;
    }
    match (&raw.slots, slots) {
        (Some(raw), Some(total)) => refuse(format!("slots: {total} of them"), total, raw.span()),
        (Some(_) | None, _) => Ok(()),
    }
}

fn name(what: &'static str, text: &Spanned<String>) -> Faulty<String> {
    name_of(what, text.get_ref(), text.span())
}

fn name_of(what: &'static str, text: &str, span: ops::Range<usize>) -> Faulty<String> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        let text = text.chars().take(NAME_BYTES_MAX).collect();
        Err((Fault::Name { what, text }, span))
    }
}

/// Whether a text may name a plan: no path, no hidden file, no option.
pub(super) fn is_name(text: &str) -> bool {
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
    };
    begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(allowed)
}

fn ggml_type(text: &str, span: ops::Range<usize>) -> Faulty<GgmlType> {
    GgmlType::from_name(text).ok_or_else(|| {
        let name = text.chars().take(NAME_BYTES_MAX).collect();
        (Fault::Type { name }, span)
    })
}

/// A list of different words; absent is an empty list, and an empty list is refused.
fn words<T: PartialEq>(
    field: &'static str,
    raw: Option<&Spanned<Vec<Spanned<String>>>>,
    parse: impl Fn(&str, ops::Range<usize>) -> Faulty<T>,
) -> Faulty<Vec<T>> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    if raw.get_ref().is_empty() {
        return Err((Fault::Empty { field }, raw.span()));
    }
    let mut parsed = Vec::new();
    for word in raw.get_ref() {
        let value = parse(word.get_ref(), word.span())?;
        if parsed.contains(&value) {
            let text = word.get_ref().clone();
            return Err((Fault::Doubled { what: field, text }, word.span()));
        }
        parsed.push(value);
    }
    Ok(parsed)
}

fn dims(raw: Option<&Spanned<Vec<Spanned<RawDim>>>>) -> Faulty<Vec<DimRule>> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let list = raw.get_ref();
    if list.is_empty() || list.len() > 4 {
        return Err((Fault::Dims, raw.span()));
    }
    let mut rules = Vec::new();
    for dim in list {
        let rule = match dim.get_ref() {
            RawDim::Exact(exact) => DimRule::Exact(*exact),
            RawDim::Within(within) => {
                let (min, max) = (within.min.unwrap_or(1), within.max.unwrap_or(u64::MAX));
                if min > max {
                    let (field, first, last) = ("dims", min, max);
                    return Err((Fault::Range { field, first, last }, dim.span()));
                }
                let multiple = within.multiple.unwrap_or(1);
                if multiple == 0 {
                    return Err((Fault::Multiple, dim.span()));
                }
                DimRule::Within { min, max, multiple }
            }
        };
        if feasible::least(rule).is_none() {
            return Err((Fault::DimNever { dim: rule }, dim.span()));
        }
        rules.push(rule);
    }
    if rules.len() > 1 && rules.last().is_some_and(feasible::is_one) {
        return Err((Fault::Dims, raw.span()));
    }
    Ok(rules)
}

fn range(field: &'static str, raw: &Spanned<[u64; 2]>) -> Faulty<Range> {
    let [first, last] = *raw.get_ref();
    if first > last {
        return Err((Fault::Range { field, first, last }, raw.span()));
    }
    Ok(Range { first, last })
}

fn layout(raw: &Spanned<String>) -> Faulty<Layout> {
    Layout::from_id(raw.get_ref()).ok_or_else(|| {
        let id = raw.get_ref().chars().take(NAME_BYTES_MAX).collect();
        let known = listed(Layout::ALL.iter().map(|layout| layout.id()));
        (Fault::Layout { id, known }, raw.span())
    })
}

fn parameters(
    layout: Layout,
    raw: Option<&BTreeMap<Spanned<String>, Spanned<u64>>>,
) -> Faulty<BTreeMap<String, u64>> {
    let mut parsed = BTreeMap::new();
    for (key, value) in raw.into_iter().flatten() {
        let known = layout.parameters();
        let name = key.get_ref();
        let Some(parameter) = known.iter().find(|known| known.name == name) else {
            let fault = Fault::Parameter {
                layout: layout.id(),
                name: name.chars().take(NAME_BYTES_MAX).collect(),
                known: listed(known.iter().map(|known| known.name)),
            };
            return Err((fault, key.span()));
        };
        let (min, max) = (parameter.min, parameter.max);
        if !(min..=max).contains(value.get_ref()) {
            let fault = Fault::ParameterValue {
                layout: layout.id(),
                name: name.clone(),
                value: *value.get_ref(),
                min,
                max,
            };
            return Err((fault, value.span()));
        }
        parsed.insert(name.clone(), *value.get_ref());
    }
    Ok(parsed)
}

fn has_capture(
    field: &'static str,
    pattern: &Pattern,
    capture: &Capture,
    span: ops::Range<usize>,
) -> Faulty<()> {
    if pattern.has(capture) {
        return Ok(());
    }
    let capture = capture.clone();
    Err((Fault::NoCapture { field, capture }, span))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Line and column of a byte, both from 1; columns count characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

impl RawRule {
    /// The expressions of the rule that it became, each with its field and where that stands.
    fn patterns<'r>(
        &self,
        rule: &'r Rule,
    ) -> impl Iterator<Item = (&'r Pattern, &'static str, ops::Range<usize>)> {
        let unless = rule.unless.as_ref().zip(self.unless.as_ref());
        let unless = unless.map(|(pattern, raw)| (pattern, "unless", raw.span()));
        std::iter::once((&rule.pattern, "tensor", self.tensor.span())).chain(unless)
    }

    /// Where the rule says what tensors it takes: its types, or else its dims, or else its layout.
    fn kind_span(&self) -> ops::Range<usize> {
        let types = self.types.as_ref().map(Spanned::span);
        let dims = self.dims.as_ref().map(Spanned::span);
        types.or(dims).unwrap_or_else(|| self.layout.span())
    }

    /// Where the rule's template stands, or else its id.
    fn expect_span(&self) -> ops::Range<usize> {
        self.expect.as_ref().unwrap_or(&self.id).span()
    }
}

impl<'de> Deserialize<'de> for RawDim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimVisitor;

        impl<'de> Visitor<'de> for DimVisitor {
            type Value = RawDim;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a table of min, max and multiple")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RawDim, E> {
                let unsigned = u64::try_from(value);
                let unexpected = de::Unexpected::Signed(value);
                unsigned
                    .map(RawDim::Exact)
                    .map_err(|_| E::invalid_value(unexpected, &"a number that is not negative"))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawDim, E> {
                Ok(RawDim::Exact(value))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawDim, A::Error> {
                RawWithin::deserialize(MapAccessDeserializer::new(map)).map(RawDim::Within)
            }
        }

        deserializer.deserialize_any(DimVisitor)
    }
}
