//! Portfolios: whether small wins, each below every gate of its own, may be tried as one.
//!
//! - Everything is asked of every part, and every refusal is listed.
//! - The sum is of conservative lower bounds, in whole nanoseconds, and two parts never claim the
//!   same saving.
//! - Admission allows one load of the service, and nothing more: a trial. What was tried is not
//!   tried again without a part that saves something else.

mod trial;

pub use trial::{Arm, Leg, NoTrial, Trial};

use packhouse_base::Blame;

/// One part of a portfolio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The conservative lower bound of what it saves in each cycle, nanoseconds.
    pub lower_bound_ns: u64,
    /// What it saves: names of the work that it makes shorter. No two parts name the same.
    pub saves: Vec<String>,
    /// Boundaries that it changes.
    pub boundaries: Vec<Boundary>,
    /// Whether model, verification and speculation mean what they did.
    pub keeps_semantics: bool,
    /// Known regressions of the service.
    pub regressions: Vec<String>,
    /// Whether it may stall or reorder what the devices do together.
    pub risks_collectives: bool,
    /// Whether it builds and works with all other parts in one tree.
    pub is_source_compatible: bool,
    /// Whether it was frozen before any result of it was seen.
    pub is_frozen_first: bool,
}

/// A boundary that a part changes, and how it was shown to be exact with inputs that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Its name.
    pub name: String,
    /// Shown step by step.
    pub is_eager_shown: bool,
    /// Shown in replays of a recorded graph.
    pub is_replay_shown: bool,
}

/// Why a portfolio is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unadmitted {
    /// There is no part.
    #[error("there is no part")]
    Empty,
    /// A floor of nothing: everything would be admitted.
    #[error("the floor is 0 ns of a cycle, expected 1 or more")]
    NoFloor,
    /// A part, or what it names, has no name.
    #[error("part {index} has {what} without a name")]
    Nameless {
        /// The part, counted from 0.
        index: usize,
        /// `itself`, `a saving`, `a boundary` or `a regression`.
        what: &'static str,
    },
    /// The lower bounds are more than can be summed.
    #[error("the lower bounds come to more than 2^64 ns of a cycle")]
    TooMuch,
    /// Two parts have one name.
    #[error("two parts are called {part}")]
    Name {
        /// The name.
        part: String,
    },
    /// A part changes what is computed.
    #[error("{part} changes what the model, its verification or its speculation means")]
    Semantics {
        /// The part.
        part: String,
    },
    /// A part saves nothing that is named.
    #[error("{part} doesn't say what it saves")]
    Unclaimed {
        /// The part.
        part: String,
    },
    /// Two parts claim the same saving.
    #[error("{first} and {second} both claim {saving}")]
    Overlap {
        /// The part that is listed first.
        first: String,
        /// The other.
        second: String,
        /// What both claim.
        saving: String,
    },
    /// A boundary lacks its evidence.
    #[error("{part} has no {lacking} evidence with changing inputs at {boundary}")]
    Evidence {
        /// The part.
        part: String,
        /// The boundary.
        boundary: String,
        /// `eager` or `replay`.
        lacking: &'static str,
    },
    /// A part changes no boundary that is named, so nothing was shown of it.
    #[error("{part} names no boundary that it changes")]
    NoBoundary {
        /// The part.
        part: String,
    },
    /// A part is known to make the service worse.
    #[error("{part} has a known regression: {regression}")]
    Regression {
        /// The part.
        part: String,
        /// What gets worse.
        regression: String,
    },
    /// A part may disturb collectives.
    #[error("{part} risks what the devices do together")]
    Collectives {
        /// The part.
        part: String,
    },
    /// A part does not go together with the others.
    #[error("{part} is not source-compatible with the others")]
    Incompatible {
        /// The part.
        part: String,
    },
    /// A part was chosen or changed after its results.
    #[error("{part} was not frozen before its results")]
    Late {
        /// The part.
        part: String,
    },
    /// Nothing is in it that an earlier trial didn't have.
    #[error("every part saves what a portfolio of an earlier trial saved: {parts}")]
    Tried {
        /// The names of the parts of the earlier one.
        parts: String,
    },
    /// All parts together save too little.
    #[error("the lower bounds come to {sum_ns} ns of a cycle, at least {floor_ns} are needed")]
    BelowFloor {
        /// What they come to.
        sum_ns: u64,
        /// What is needed.
        floor_ns: u64,
    },
}

impl Unadmitted {
    /// Whose side it is on: whoever put the parts together.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty
            | Self::NoFloor
            | Self::Nameless { .. }
            | Self::TooMuch
            | Self::Name { .. }
            | Self::Semantics { .. }
            | Self::Unclaimed { .. }
            | Self::Overlap { .. }
            | Self::Evidence { .. }
            | Self::NoBoundary { .. }
            | Self::Regression { .. }
            | Self::Collectives { .. }
            | Self::Incompatible { .. }
            | Self::Late { .. }
            | Self::Tried { .. }
            | Self::BelowFloor { .. } => Blame::Caller,
        }
    }
}

/// Leave to load a service once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The sum of the lower bounds, nanoseconds of a cycle.
    pub sum_ns: u64,
}

/// Admits parts whose lower bounds come to `floor_ns` of a cycle or more, or lists every reason why
/// not.
pub fn admit(parts: &[Part], floor_ns: u64) -> Result<Admitted, Vec<Unadmitted>> {
    let mut refusals = Vec::new();
    if parts.is_empty() {
        refusals.push(Unadmitted::Empty);
    }
    if floor_ns == 0 {
        refusals.push(Unadmitted::NoFloor);
    }
    for (index, part) in parts.iter().enumerate() {
        let nameless = nameless(part).into_iter();
        refusals.extend(nameless.map(|what| Unadmitted::Nameless { index, what }));
        alone(part, &mut refusals);
        for earlier in &parts[..index] {
            together(earlier, part, &mut refusals);
        }
    }
    let mut bounds = parts.iter().map(|part| part.lower_bound_ns);
    match bounds.try_fold(0, u64::checked_add) {
        None => refusals.push(Unadmitted::TooMuch),
        Some(sum_ns) if sum_ns < floor_ns => {
            refusals.push(Unadmitted::BelowFloor { sum_ns, floor_ns });
        }
        Some(sum_ns) if refusals.is_empty() => return Ok(Admitted { sum_ns }),
        Some(_) => {}
    }
    Err(refusals)
}

/// Refuses parts that were tried: beside each earlier portfolio there is a part of which nothing
/// was saved there.
pub fn untried(parts: &[Part], earlier: &[Vec<Part>]) -> Result<(), Unadmitted> {
    for tried in earlier {
        let saved = |saving: &String| tried.iter().any(|part| part.saves.contains(saving));
        let is_new = |part: &Part| !part.saves.is_empty() && !part.saves.iter().any(saved);
        if !parts.iter().any(is_new) {
            let names: Vec<&str> = tried.iter().map(|part| part.name.as_str()).collect();
            let parts = names.join(", ");
            return Err(Unadmitted::Tried { parts });
        }
    }
    Ok(())
}

/// What of a part has no name.
fn nameless(part: &Part) -> Vec<&'static str> {
    let is_blank = |name: &str| name.trim().is_empty();
    let any = |names: &[String]| names.iter().any(|name| is_blank(name));
    let blank = [
        ("itself", is_blank(&part.name)),
        ("a saving", any(&part.saves)),
        (
            "a boundary",
            part.boundaries.iter().any(|one| is_blank(&one.name)),
        ),
        ("a regression", any(&part.regressions)),
    ];
    let blank = blank.into_iter().filter(|(_, is_blank)| *is_blank);
    blank.map(|(what, _)| what).collect()
}

fn alone(part: &Part, refusals: &mut Vec<Unadmitted>) {
    let name = || part.name.clone();
    if !part.keeps_semantics {
        refusals.push(Unadmitted::Semantics { part: name() });
    }
    if part.saves.is_empty() {
        refusals.push(Unadmitted::Unclaimed { part: name() });
    }
    if part.boundaries.is_empty() {
        refusals.push(Unadmitted::NoBoundary { part: name() });
    }
    for boundary in &part.boundaries {
        let shown = [
            ("eager", boundary.is_eager_shown),
            ("replay", boundary.is_replay_shown),
        ];
        for (lacking, _) in shown.into_iter().filter(|(_, is_shown)| !is_shown) {
            let (part, boundary) = (name(), boundary.name.clone());
            refusals.push(Unadmitted::Evidence {
                part,
                boundary,
                lacking,
            });
        }
    }
    for regression in part.regressions.iter().cloned() {
        refusals.push(Unadmitted::Regression {
            part: name(),
            regression,
        });
    }
    if part.risks_collectives {
        refusals.push(Unadmitted::Collectives { part: name() });
    }
    if !part.is_source_compatible {
        refusals.push(Unadmitted::Incompatible { part: name() });
    }
    if !part.is_frozen_first {
        refusals.push(Unadmitted::Late { part: name() });
    }
}

fn together(first: &Part, second: &Part, refusals: &mut Vec<Unadmitted>) {
    if first.name == second.name {
        refusals.push(Unadmitted::Name {
            part: first.name.clone(),
        });
    }
    for saving in second
        .saves
        .iter()
        .filter(|saving| first.saves.contains(saving))
    {
        refusals.push(Unadmitted::Overlap {
            first: first.name.clone(),
            second: second.name.clone(),
            saving: saving.clone(),
        });
    }
}
