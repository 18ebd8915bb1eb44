//! Why bytes are no plan: one place, one fault.

use super::DimRule;
use super::limits::{
    EXPECT_WORK_MAX, EXPECTED_MAX, NAME_BYTES_MAX, PATTERN_WORK_MAX, PLAN_BYTES_MAX, RULES_MAX,
    SLOT_MAX, SLOTS_MAX, SUMMARY_BYTES_MAX,
};
use super::pattern::{PatternError, TemplateError};
use super::slot::{Capture, FormulaError, SlotError};
use packhouse_base::Blame;
use packhouse_layout::Refusal;

/// Bytes that are no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{line}:{column}: {fault}")]
pub struct PlanError {
    /// Where the bytes come from: a path, or words like `built-in plan`.
    pub origin: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Longer than the limit.
    #[error("a plan of {bytes} bytes, at most {PLAN_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not UTF-8.
    #[error("byte {offset} is not UTF-8")]
    NotUtf8 {
        /// Offset of the first byte that is not.
        offset: usize,
    },
    /// No TOML, an unknown or absent field, or a value of another kind.
    #[error("{message}")]
    Toml {
        /// What the parser said.
        message: String,
    },
    /// A name beyond its grammar.
    #[error(
        "{what} {text:?}: a name has 1 to {NAME_BYTES_MAX} of a-z, 0-9, '.', '_' and '-', and \
         begins with a letter or digit"
    )]
    Name {
        /// Whose name.
        what: &'static str,
        /// The text given.
        text: String,
    },
    /// Version 0.
    #[error("version 0: versions begin at 1")]
    Version,
    /// A summary that does not fit one line.
    #[error("a summary is one line of 1 to {SUMMARY_BYTES_MAX} bytes without control characters")]
    Summary,
    /// A list without elements.
    #[error("{field} is an empty list; leave it out to allow all")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// One value twice.
    #[error("{what} {text:?} is there twice")]
    Doubled {
        /// What the value is.
        what: &'static str,
        /// The value.
        text: String,
    },
    /// More rules than the limit, or none.
    #[error("{count} rules, where 1 to {RULES_MAX} are read")]
    RuleCount {
        /// How many there are.
        count: usize,
    },
    /// No name pattern.
    #[error("{field}: {source}")]
    Pattern {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: PatternError,
    },
    /// An exception that covers all that the rule names.
    #[error("unless: it is the rule's own pattern, so that the rule names nothing in any model")]
    UnlessItself,
    /// A number of tensors beside an exception, which may leave none.
    #[error(
        "unless: a rule that may name nothing has no {field}; [invariants] can ask for a total"
    )]
    UnlessAnd {
        /// The field that asks for tensors.
        field: &'static str,
    },
    /// A key that is no capture.
    #[error("{text:?} is no capture: write a lower-case name, or $1 for the first group")]
    CaptureName {
        /// The text given.
        text: String,
    },
    /// A capture that the pattern doesn't have.
    #[error("{field}: the pattern has no capture {capture}")]
    NoCapture {
        /// The field that uses it.
        field: &'static str,
        /// The capture.
        capture: Capture,
    },
    /// A range whose end is before its beginning.
    #[error("{field}: {first} to {last} is no range")]
    Range {
        /// The field.
        field: &'static str,
        /// First value.
        first: u64,
        /// Last value.
        last: u64,
    },
    /// A type that ggml has not.
    #[error("types: {name:?} is no tensor type; types are written like Q4_0")]
    Type {
        /// The text given.
        name: String,
    },
    /// Too many dims, or dims that no tensor has.
    #[error("dims: 1 to 4, and the last of several is no exact 1 (trailing ones are dropped)")]
    Dims,
    /// A multiple of 0.
    #[error("dims: nothing is a multiple of 0")]
    Multiple,
    /// A layout that is not known.
    #[error("layout: {id:?} is unknown; known are {known}")]
    Layout {
        /// The text given.
        id: String,
        /// Ids of all layouts.
        known: String,
    },
    /// A parameter that the layout has not.
    #[error("parameters: {layout} has no parameter {name:?}; it has {known}")]
    Parameter {
        /// Layout id.
        layout: &'static str,
        /// The name given.
        name: String,
        /// Names that it has.
        known: String,
    },
    /// A parameter outside its bounds.
    #[error("parameters: {name} of {layout} is {value}, and must be {min} to {max}")]
    ParameterValue {
        /// Layout id.
        layout: &'static str,
        /// The parameter.
        name: String,
        /// The value given.
        value: u64,
        /// Lowest value.
        min: u64,
        /// Highest value.
        max: u64,
    },
    /// A dim that no tensor with bytes has.
    #[error("dims: no dim of a tensor with bytes is {dim}")]
    DimNever {
        /// The dim's rule.
        dim: DimRule,
    },
    /// Types, dims and parameters that the layout refuses of any tensor.
    #[error("no tensor fits the rule: {0}")]
    Never(Refusal),
    /// Expressions that take too long to match.
    #[error(
        "{field}: this expression and those before it take more than {PATTERN_WORK_MAX} steps for \
         one byte of a name"
    )]
    PatternWork {
        /// The field.
        field: &'static str,
    },
    /// Names that take too long to match.
    #[error("expect: matching all names takes more than {EXPECT_WORK_MAX} steps")]
    ExpectWork,
    /// A name that an earlier rule expects.
    #[error("expect: {name:?} is expected by rule {rule} too, and one rule takes a tensor")]
    ExpectedTwice {
        /// The name.
        name: String,
        /// The earlier rule.
        rule: String,
    },
    /// No slot formula.
    #[error("slot: {0}")]
    Formula(#[from] FormulaError),
    /// No template.
    #[error("expect: {0}")]
    Template(#[from] TemplateError),
    /// A template's capture without a range to run through.
    #[error("expect: {{{capture}}} needs its range in ranges")]
    Unbounded {
        /// The capture.
        capture: Capture,
    },
    /// More expected names than the limit.
    #[error("expect: all templates together give more than {EXPECTED_MAX} names")]
    TooManyExpected,
    /// A template gives a name that its own rule doesn't take.
    #[error("expect: the rule's own pattern and ranges don't take {name:?}")]
    ExpectedMisfit {
        /// The name.
        name: String,
    },
    /// An expected name without a slot.
    #[error("expect: {name:?} has no slot: {source}")]
    ExpectedSlot {
        /// The name.
        name: String,
        /// Why.
        source: SlotError,
    },
    /// Two expected names share a slot.
    #[error("expect: slot {slot} is that of {first:?} and of {second:?}")]
    ExpectedDoubled {
        /// The slot.
        slot: u64,
        /// One name.
        first: String,
        /// The other.
        second: String,
    },
    /// An expected name's slot is outside the set's.
    #[error("expect: {name:?} has slot {slot}, and the set's slots are {first} to {last}")]
    ExpectedOutside {
        /// The name.
        name: String,
        /// Its slot.
        slot: u64,
        /// First slot of the set.
        first: u64,
        /// Last slot of the set.
        last: u64,
    },
    /// A count beside a template that says it already.
    #[error("count: expect says it already: {expected}")]
    CountAndExpect {
        /// Names that the template gives.
        expected: usize,
    },
    /// A range of slots beyond the limits.
    #[error("slots: at most {SLOTS_MAX} slots, the highest {SLOT_MAX}")]
    Slots,
    /// A number of tensors that slots or rules rule out.
    #[error("{field}, and {others}")]
    CountContradicts {
        /// The field with its number.
        field: String,
        /// What says otherwise, and what it says.
        others: String,
    },
}

impl PlanError {
    /// Whose side the failure is on: a built-in plan that is refused is a defect of ours, which a
    /// test rules out.
    pub const fn blame(&self) -> Blame {
        Blame::Source
    }
}
