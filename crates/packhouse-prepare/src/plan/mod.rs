//! Plans: rules that choose tensors, layouts and slots for a model, and what must hold of the
//! whole.
//!
//! - `grammar`: bytes to a plan, each refusal with line and column (`error`);
//! - `feasible`: whether any tensor can fit a rule;
//! - `pattern`, `slot`: the two small languages in it, names and slot formulas;
//! - `select`: a plan on a container to a selection, or all that stands against it (`unfit`);
//! - `builtin`: the plans that come with Packhouse; `limits`: what bounds all of it.
//!
//! Invariants:
//! - a plan is its bytes: their SHA-256 is the plan's digest and part of every set key;
//! - what can be said of a plan without a model is said when it is parsed: unknown fields,
//!   captures, layouts and parameters, expectations that contradict each other, rules that no
//!   tensor can fit;
//! - what parsing and selecting take is bounded by what is counted before any name is matched;
//! - a selection that is handed out satisfies every invariant of its plan.
//!
//! Never: reads a file, follows a path in a plan, or takes a default that the plan does not show.
//! Format: `docs/format/plans.md`.

pub mod builtin;
mod error;
mod expect;
mod feasible;
mod grammar;
pub mod limits;
pub mod pattern;
mod select;
pub mod slot;
mod unfit;

pub use builtin::{BuiltinPlan, builtin};
pub use error::{Fault, PlanError};
pub use select::{Chosen, Left, SelectContext, Selection};
pub use unfit::{Misfit, Problem, Reason, SelectionError, Unfit};

use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Layout;
use pattern::{Pattern, Template};
use slot::{Capture, Formula};
use std::collections::BTreeMap;
use std::fmt;

/// A plan. Only a parse makes one, so all that its grammar says of it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    name: String,
    version: u32,
    summary: String,
    architectures: Vec<String>,
    rules: Vec<Rule>,
    invariants: Invariants,
    digest: Digest,
    origin: String,
}

/// One rule: which tensors, packed how, into which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    id: String,
    pattern: Pattern,
    unless: Option<Pattern>,
    ranges: BTreeMap<Capture, Range>,
    types: Vec<GgmlType>,
    dims: Vec<DimRule>,
    chosen_by: Option<Chooser>,
    layout: Layout,
    parameters: BTreeMap<String, u64>,
    slot: Formula,
    otherwise: Otherwise,
    template: Option<Template>,
    expected: Vec<Expected>,
    count: Option<u64>,
}

/// What must hold of a whole selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invariants {
    /// The slots filled are exactly these.
    pub slots: Option<Range>,
    /// This many tensors are chosen.
    pub count: Option<u64>,
}

/// First and last value of a range, both in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First value.
    pub first: u64,
    /// Last value.
    pub last: u64,
}

/// What one dim must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimRule {
    /// Exactly this.
    Exact(u64),
    /// Within bounds and a multiple.
    Within {
        /// Lowest value.
        min: u64,
        /// Highest value.
        max: u64,
        /// What it is a multiple of.
        multiple: u64,
    },
}

/// Who decides beside the rule which tensors are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// A stock ggml CPU build on this host: what it would repack, and nothing else.
    GgmlCpu,
}

/// What becomes of a tensor that a rule names and that doesn't fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It is left to the next rule, in the end to no rule.
    Leave,
    /// The model does not fit the plan.
    Refuse,
}

/// A tensor that a rule expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its name.
    pub name: String,
    /// Its slot; `None` where the slot depends on the container.
    pub slot: Option<u64>,
}

impl Plan {
    /// Parses a plan. `origin` says in errors where the bytes come from. Errors with line and
    /// column on anything that is not exactly the grammar.
    pub fn parse(bytes: &[u8], origin: &str) -> Result<Self, PlanError> {
        grammar::parse(bytes, origin)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, from 1.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What it is for, in one line.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The values of `general.architecture` that it is for; empty for all.
    pub fn architectures(&self) -> &[String] {
        &self.architectures
    }

    /// The rules, in the order in which a tensor is offered to them.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What must hold of a whole selection.
    pub fn invariants(&self) -> Invariants {
        self.invariants
    }

    /// SHA-256 of the plan's bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Where the bytes come from.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl Rule {
    /// Its name within the plan.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which names it takes.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Which names, where a model has one, leave it nothing to name.
    pub fn unless(&self) -> Option<&Pattern> {
        self.unless.as_ref()
    }

    /// Where captures must lie.
    pub fn ranges(&self) -> &BTreeMap<Capture, Range> {
        &self.ranges
    }

    /// Which types it takes; empty for all.
    pub fn types(&self) -> &[GgmlType] {
        &self.types
    }

    /// What the dims must be; empty for any.
    pub fn dims(&self) -> &[DimRule] {
        &self.dims
    }

    /// Who decides beside it.
    pub fn chosen_by(&self) -> Option<Chooser> {
        self.chosen_by
    }

    /// The layout that its tensors are packed into.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Parameters for the layout, as far as the plan gives them.
    pub fn parameters(&self) -> &BTreeMap<String, u64> {
        &self.parameters
    }

    /// The slot formula.
    pub fn slot(&self) -> &Formula {
        &self.slot
    }

    /// What becomes of a tensor that it names and that doesn't fit.
    pub fn otherwise(&self) -> Otherwise {
        self.otherwise
    }

    /// The template of the names that must be there.
    pub fn template(&self) -> Option<&Template> {
        self.template.as_ref()
    }

    /// The tensors that must be there.
    pub fn expected(&self) -> &[Expected] {
        &self.expected
    }

    /// How many tensors it must take, where it says so in as many words.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// How many tensors it must take: its count, or as many as it expects by name.
    pub(super) fn tensor_count(&self) -> Option<u64> {
        match self.template {
            Some(_) => Some(self.expected.len() as u64),
            None => self.count,
        }
    }
}

impl Range {
    /// Whether a value lies in the range.
    pub const fn has(&self, value: u64) -> bool {
        self.first <= value && value <= self.last
    }

    /// How many values are in it; `u64::MAX` where that is one too many for 64 bits.
    pub const fn value_count(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

impl DimRule {
    /// Whether a dim is what the rule wants.
    pub const fn has(&self, dim: u64) -> bool {
        match *self {
            Self::Exact(exact) => dim == exact,
            Self::Within { min, max, multiple } => {
                min <= dim && dim <= max && dim.is_multiple_of(multiple)
            }
        }
    }
}

impl fmt::Display for DimRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max, multiple) = match *self {
            Self::Exact(exact) => return exact.fmt(f),
            Self::Within { min, max, multiple } => (min, max, multiple),
        };
        match (min, max) {
            (1, u64::MAX) => f.write_str("any")?,
            (min, u64::MAX) => write!(f, "{min} or more")?,
            (min, max) => write!(f, "{min} to {max}")?,
        }
        if multiple == 1 {
            Ok(())
        } else {
            write!(f, " in steps of {multiple}")
        }
    }
}

impl Chooser {
    /// The word in a plan.
    pub const fn word(self) -> &'static str {
        match self {
            Self::GgmlCpu => "ggml-cpu",
        }
    }
}

impl Otherwise {
    /// The word in a plan.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Refuse => "refuse",
        }
    }
}
