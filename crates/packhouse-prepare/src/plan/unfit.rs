//! Why a model does not fit a plan: everything that stands against it, in one error of bounded
//! length.

use super::Range;
use super::limits::PROBLEMS_SHOWN_MAX;
use super::slot::{Capture, SlotError};
use packhouse_base::Blame;
use packhouse_base::shown::Shown;
use packhouse_layout::{Refusal, stock_x86};
use packhouse_pack::NoKernel;
use std::fmt;

/// Why a plan gives no selection of a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The plan is for models of another architecture.
    #[error(
        "plan {plan} is for {} models, and this one is {}",
        expected.join(" or "),
        found.as_deref().map_or("of no named architecture".to_owned(), |name| format!("{name:?}"))
    )]
    Architecture {
        /// The plan's name.
        plan: String,
        /// Architectures that it is for.
        expected: Vec<String>,
        /// The container's `general.architecture`.
        found: Option<String>,
    },
    /// No rule takes any tensor.
    #[error("plan {plan} takes none of {tensors} tensors: {}", reasons_told(reasons).join("; "))]
    Nothing {
        /// The plan's name.
        plan: String,
        /// Tensors in the container.
        tensors: u64,
        /// Why not, the reason of most tensors first; at most eight.
        reasons: Vec<Reason>,
    },
    /// The selection breaks an invariant of the plan.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// A reason for which tensors are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason in words.
    pub text: String,
    /// The first tensor in file order.
    pub first: String,
    /// Tensors of which it is the reason.
    pub tensors: u64,
}

/// What about a tensor doesn't fit a rule that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It has no bytes.
    #[error("it has no bytes")]
    Empty,
    /// A capture that is no number.
    #[error("{capture} is {text:?}, {}", no_number(text))]
    Capture {
        /// The capture.
        capture: Capture,
        /// Its text.
        text: String,
    },
    /// A capture outside its range.
    #[error("{capture} {value} is outside {} to {}", range.first, range.last)]
    Range {
        /// The capture.
        capture: Capture,
        /// Its number.
        value: u64,
        /// Where it must lie.
        range: Range,
    },
    /// Another type.
    #[error("type {found}, where {wanted} is wanted")]
    Type {
        /// The tensor's type.
        found: &'static str,
        /// Types that the rule takes.
        wanted: String,
    },
    /// Another shape.
    #[error("dims {found:?}, where {wanted} is wanted")]
    Dims {
        /// The tensor's dims without trailing ones.
        found: Vec<u64>,
        /// The rule's dims in words.
        wanted: String,
    },
    /// The host's ggml leaves it in file order.
    #[error(transparent)]
    Host(#[from] stock_x86::Left),
    /// The layout has no packing of it.
    #[error(transparent)]
    Layout(#[from] Refusal),
    /// No packer on this host makes the layout of such a tensor.
    #[error(transparent)]
    Packer(#[from] NoKernel),
}

/// One thing that stands against a selection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// A slot that nothing fills, or an expected tensor that isn't there.
    Missing {
        /// The slot.
        slot: Option<u64>,
        /// The tensor expected there, where the plan says so.
        tensor: Option<String>,
    },
    /// A slot that two tensors fill.
    Doubled {
        /// The slot.
        slot: u64,
        /// The first tensor in file order.
        first: String,
        /// A later one.
        second: String,
    },
    /// A slot that the set doesn't have.
    Outside {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// First slot of the set.
        first: u64,
        /// Last slot of the set.
        last: u64,
    },
    /// A tensor that a rule names and that doesn't fit it.
    Misfit {
        /// Its slot, where it would have one of the set's.
        slot: Option<u64>,
        /// The tensor.
        tensor: String,
        /// The rule's id.
        rule: String,
        /// What doesn't fit, in words.
        reason: String,
    },
    /// A tensor whose slot formula gives no slot.
    Slot {
        /// The tensor.
        tensor: String,
        /// The formula.
        formula: String,
        /// What is wrong, in words.
        reason: String,
    },
    /// A rule took another number of tensors than it must.
    Count {
        /// The rule's id.
        rule: String,
        /// What it must take.
        expected: u64,
        /// What it took.
        found: u64,
    },
    /// All rules together took another number of tensors than they must.
    Total {
        /// What they must take.
        expected: u64,
        /// What they took.
        found: u64,
    },
}

/// A model that breaks the invariants of a plan. Holds the first problems of each kind, by slot and
/// name, and counts the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    plan: String,
    shown: Vec<Problem>,
    /// By kind: problems that are there.
    counts: [u64; KINDS.len()],
}

impl SelectionError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Architecture { .. } | Self::Nothing { .. } | Self::Unfit(_) => Blame::Source,
        }
    }

    /// The error in lines, each short enough for a terminal: a headline, then its reasons.
    pub fn lines(&self) -> (String, Vec<String>) {
        match self {
            Self::Architecture { .. } => (self.to_string(), Vec::new()),
            Self::Nothing {
                plan,
                tensors,
                reasons,
            } => (
                format!("plan {plan} takes none of {tensors} tensors"),
                reasons_told(reasons),
            ),
            Self::Unfit(unfit) => (unfit.headline(), unfit.lines()),
        }
    }
}

/// Why a capture's text is no number that a range or formula takes.
fn no_number(text: &str) -> String {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits && !text.starts_with('0') {
        format!("more than {}", u64::MAX)
    } else {
        "no decimal number in its shortest form".to_owned()
    }
}

fn reasons_told(reasons: &[Reason]) -> Vec<String> {
    if reasons.is_empty() {
        return vec!["the model has none".to_owned()];
    }
    let told = reasons.iter().map(|reason| match reason {
        Reason {
            text,
            first,
            tensors: 1,
        } => format!("{}: {text}", Shown(first)),
        Reason {
            text,
            first,
            tensors,
        } => format!("{} and {} more: {text}", Shown(first), tensors - 1),
    });
    told.collect()
}

impl Unfit {
    pub(super) fn new(plan: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        let mut counts = [0; KINDS.len()];
        let mut shown = Vec::new();
        for problem in problems {
            let count: &mut u64 = &mut counts[problem.kind()];
            *count += 1;
            if *count <= PROBLEMS_SHOWN_MAX {
                shown.push(problem);
            }
        }
        Self {
            plan: plan.to_owned(),
            shown,
            counts,
        }
    }

    /// The plan's name.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// How many problems there are.
    pub fn problem_count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The first problems of each kind.
    pub fn shown(&self) -> &[Problem] {
        &self.shown
    }

    /// Plan and number of problems.
    pub fn headline(&self) -> String {
        let count = self.problem_count();
        let noun = if count == 1 { "problem" } else { "problems" };
        format!("the model does not fit plan {}: {count} {noun}", self.plan)
    }

    /// One line per problem shown, and one per kind of which there are more.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, word) in KINDS.iter().enumerate() {
            let of_kind = self.shown.iter().filter(|problem| problem.kind() == kind);
            lines.extend(of_kind.map(ToString::to_string));
            if self.counts[kind] > PROBLEMS_SHOWN_MAX {
                lines.push(format!(
                    "{word}: and {} more",
                    self.counts[kind] - PROBLEMS_SHOWN_MAX
                ));
            }
        }
        lines
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.headline(), self.lines().join("; "))
    }
}

impl std::error::Error for Unfit {}

impl Problem {
    /// Place in `KINDS`; the variants are in the same order.
    const fn kind(&self) -> usize {
        match self {
            Self::Missing { .. } => 0,
            Self::Doubled { .. } => 1,
            Self::Outside { .. } => 2,
            Self::Misfit { .. } => 3,
            Self::Slot { .. } => 4,
            Self::Count { .. } => 5,
            Self::Total { .. } => 6,
        }
    }

    pub(super) fn slot_error(tensor: &str, formula: &str, error: &SlotError) -> Self {
        Self::Slot {
            tensor: tensor.to_owned(),
            formula: formula.to_owned(),
            reason: error.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", KINDS[self.kind()])?;
        match self {
            Self::Missing {
                slot: Some(slot),
                tensor: Some(tensor),
            } => write!(f, "slot {slot} ({})", Shown(tensor)),
            Self::Missing {
                slot: Some(slot),
                tensor: None,
            } => write!(f, "slot {slot}"),
            Self::Missing { slot: None, tensor } => {
                Shown(tensor.as_deref().unwrap_or_default()).fmt(f)
            }
            Self::Doubled {
                slot,
                first,
                second,
            } => write!(f, "slot {slot} ({} and {})", Shown(first), Shown(second)),
            Self::Outside {
                slot,
                tensor,
                first,
                last,
            } => write!(
                f,
                "slot {slot} ({}); the slots are {first} to {last}",
                Shown(tensor)
            ),
            Self::Misfit {
                slot,
                tensor,
                rule,
                reason,
            } => match slot {
                Some(slot) => write!(f, "slot {slot} ({}, rule {rule}): {reason}", Shown(tensor)),
                None => write!(f, "{} (rule {rule}): {reason}", Shown(tensor)),
            },
            Self::Slot {
                tensor,
                formula,
                reason,
            } => write!(f, "{} with {formula:?}: {reason}", Shown(tensor)),
            Self::Count {
                rule,
                expected,
                found,
            } => write!(
                f,
                "rule {rule} takes {found} tensors, and must take {expected}"
            ),
            Self::Total { expected, found } => {
                write!(
                    f,
                    "the rules take {found} tensors, and must take {expected}"
                )
            }
        }
    }
}

/// The words for the kinds of problems, in the order of the variants.
const KINDS: [&str; 7] = [
    "missing", "doubled", "outside", "misfit", "no slot", "count", "total",
];
