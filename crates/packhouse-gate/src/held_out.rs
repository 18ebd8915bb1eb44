//! Held-out packs: whether a speculation is better on prompts that nobody saw before it was frozen.
//!
//! - Every pack, every repetition and every category decides by itself; none makes up for another.
//! - What was not measured is a failure, never a pass: categories are declared, and so are the
//!   least numbers of packs and of complete repetitions of each.
//! - Speed is the last question: a pack is what was declared, and all arms answer alike, first.

mod pack;
mod parity;

pub use pack::{Composition, Mispacked, Short};
pub use parity::{Arms, Capture, Equal, Hard, Shown, Unequal};

use packhouse_base::Blame;
use std::collections::{BTreeMap, BTreeSet};

/// What a promotion asks for. Every number is declared before the packs are revealed.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// Packs that must be measured, at least.
    pub packs: u64,
    /// Complete repetitions of each pack, at least.
    pub repetitions: u64,
    /// Percent by which a pack's wall rate must be above the control's.
    pub wall_percent: f64,
    /// Percent by which the median decode rate must be.
    pub decode_percent: f64,
    /// Percent by which mixed prompts must be.
    pub mixed_percent: f64,
    /// Percent that the 10th percentile of a category may lose.
    pub category_loss_percent: f64,
    /// Every category, those of long contexts too.
    pub categories: BTreeSet<String>,
}

/// What one repetition of one pack shows against the control of the same build.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// The pack.
    pub pack: String,
    /// The repetition of it, counted from 0.
    pub number: u64,
    /// That its arms answered alike: without it there is no speed to speak of.
    pub equal: Equal,
    /// `100 (B / A - 1)` of the pack's wall rates.
    pub wall_percent: f64,
    /// `100 (B / A - 1)` of the median decode rates.
    pub decode_percent: f64,
    /// `100 (B / A - 1)` of the mixed prompts' median decode rates.
    pub mixed_percent: f64,
    /// The 95 % lower bound of the paired differences.
    pub lower_95: f64,
    /// Category to `100 (B / A - 1)` of the 10th percentiles.
    pub p10_percent: BTreeMap<String, f64>,
}

/// Why a candidate is not promoted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unpromoted {
    /// What a promotion asks for was not declared, or can't be: nothing is promoted by it.
    #[error("{field} is {value}, expected {expected}")]
    Undeclared {
        /// Which of its numbers.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it can be.
        expected: &'static str,
    },
    /// There are too few packs.
    #[error("{packs} packs were measured, at least {least} are needed")]
    Packs {
        /// Packs that were measured.
        packs: u64,
        /// Packs that are needed.
        least: u64,
    },
    /// A pack was not repeated often enough.
    #[error("pack {pack} has {repetitions} repetitions, at least {least} are needed")]
    Repetitions {
        /// The pack.
        pack: String,
        /// Its repetitions.
        repetitions: u64,
        /// What is needed.
        least: u64,
    },
    /// A repetition is there twice.
    #[error("pack {pack} has repetition {number} twice")]
    Twice {
        /// The pack.
        pack: String,
        /// The repetition.
        number: u64,
    },
    /// A gain is too small, or no number.
    #[error(
        "pack {pack}, repetition {number}: {figure} is {value} %, at least {least} % is needed"
    )]
    Gain {
        /// The pack.
        pack: String,
        /// The repetition.
        number: u64,
        /// Which gain.
        figure: &'static str,
        /// Its value.
        value: f64,
        /// What is needed.
        least: f64,
    },
    /// The lower bound is not above zero, or no number.
    #[error("pack {pack}, repetition {number}: the lower bound is {lower}, not above 0")]
    Bound {
        /// The pack.
        pack: String,
        /// The repetition.
        number: u64,
        /// The bound.
        lower: f64,
    },
    /// A category lost too much, or its figure is no number.
    #[error("pack {pack}, repetition {number}: {category} is {value} % at its 10th percentile")]
    Loss {
        /// The pack.
        pack: String,
        /// The repetition.
        number: u64,
        /// The category.
        category: String,
        /// Its change.
        value: f64,
    },
    /// A category was not measured, or is not a declared one.
    #[error("pack {pack}, repetition {number}: {category} is {fault}")]
    Category {
        /// The pack.
        pack: String,
        /// The repetition.
        number: u64,
        /// The category.
        category: String,
        /// `not measured` or `not declared`.
        fault: &'static str,
    },
}

impl Unpromoted {
    /// Whose side it is on: the candidate's, or whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Undeclared { .. }
            | Self::Packs { .. }
            | Self::Repetitions { .. }
            | Self::Twice { .. }
            | Self::Gain { .. }
            | Self::Bound { .. }
            | Self::Loss { .. }
            | Self::Category { .. } => Blame::Caller,
        }
    }
}

impl Promotion {
    /// Judges all repetitions of all packs; lists every reason against a promotion.
    pub fn judge(&self, repetitions: &[Repetition]) -> Result<(), Vec<Unpromoted>> {
        let mut reasons = self.undeclared();
        let mut packs: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for one in repetitions {
            if !packs.entry(&one.pack).or_default().insert(one.number) {
                let (pack, number) = (one.pack.clone(), one.number);
                reasons.push(Unpromoted::Twice { pack, number });
            }
        }
        let (count, least) = (packs.len() as u64, self.packs);
        if count < least {
            let packs = count;
            reasons.push(Unpromoted::Packs { packs, least });
        }
        let least = self.repetitions;
        for (pack, numbers) in packs {
            let repetitions = numbers.len() as u64;
            if repetitions < least {
                let pack = pack.to_owned();
                reasons.push(Unpromoted::Repetitions {
                    pack,
                    repetitions,
                    least,
                });
            }
        }
        for one in repetitions {
            self.gains(one, &mut reasons);
            self.categories(one, &mut reasons);
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    /// What of its own numbers can't be.
    fn undeclared(&self) -> Vec<Unpromoted> {
        let counts = [
            ("packs", self.packs),
            ("repetitions", self.repetitions),
            ("categories", self.categories.len() as u64),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count == 0);
        let counts = counts.map(|(field, _)| (field, 0.0, "1 or more"));
        let percents = [
            ("wall_percent", self.wall_percent),
            ("decode_percent", self.decode_percent),
            ("mixed_percent", self.mixed_percent),
            ("category_loss_percent", self.category_loss_percent),
        ];
        let is_bad = |value: f64| !(value.is_finite() && value >= 0.0);
        let percents = percents.into_iter().filter(|(_, value)| is_bad(*value));
        let percents = percents.map(|(field, value)| (field, value, "a number, 0 or above"));
        let all = counts.chain(percents);
        let refused = all.map(|(field, value, expected)| Unpromoted::Undeclared {
            field,
            value,
            expected,
        });
        refused.collect()
    }

    fn gains(&self, one: &Repetition, reasons: &mut Vec<Unpromoted>) {
        let (pack, number) = (|| one.pack.clone(), one.number);
        let gains = [
            ("wall", one.wall_percent, self.wall_percent),
            ("median decode", one.decode_percent, self.decode_percent),
            ("mixed", one.mixed_percent, self.mixed_percent),
        ];
        for (figure, value, least) in gains {
            // No number is at least nothing.
            let is_met = value.is_finite() && value >= least;
            if !is_met {
                let pack = pack();
                reasons.push(Unpromoted::Gain {
                    pack,
                    number,
                    figure,
                    value,
                    least,
                });
            }
        }
        let lower = one.lower_95;
        let is_above = lower.is_finite() && lower > 0.0;
        if !is_above {
            let pack = pack();
            reasons.push(Unpromoted::Bound {
                pack,
                number,
                lower,
            });
        }
    }

    fn categories(&self, one: &Repetition, reasons: &mut Vec<Unpromoted>) {
        let (pack, number) = (|| one.pack.clone(), one.number);
        let mut category = |category: &String, fault| {
            let (pack, category) = (pack(), category.clone());
            reasons.push(Unpromoted::Category {
                pack,
                number,
                category,
                fault,
            });
        };
        let measured = |name: &&String| one.p10_percent.contains_key(*name);
        for name in self.categories.iter().filter(|name| !measured(name)) {
            category(name, "not measured");
        }
        let declared = |name: &&String| self.categories.contains(*name);
        for name in one.p10_percent.keys().filter(|name| !declared(name)) {
            category(name, "not declared");
        }
        for (category, value) in &one.p10_percent {
            let value = *value;
            let is_kept = value.is_finite() && value >= -self.category_loss_percent;
            if !is_kept {
                let (pack, category) = (pack(), category.clone());
                reasons.push(Unpromoted::Loss {
                    pack,
                    number,
                    category,
                    value,
                });
            }
        }
    }
}

/// What a development run asks for before anything is frozen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Development {
    /// Tokens of a cycle, over all prompts, at least.
    pub emitted: f64,
    /// Tokens of a cycle, over mixed prompts, at least.
    pub emitted_mixed: f64,
    /// Milliseconds of draft and policy together in a cycle, at most.
    pub draft_and_policy_ms: f64,
}

impl Development {
    /// Whether all three are met; what is no number meets none, and is no threshold.
    pub fn is_met_by(&self, emitted: f64, emitted_mixed: f64, draft_and_policy_ms: f64) -> bool {
        let measured = [emitted, emitted_mixed, draft_and_policy_ms];
        let declared = [self.emitted, self.emitted_mixed, self.draft_and_policy_ms];
        let is_good = |value: &f64| value.is_finite() && *value >= 0.0;
        measured.iter().chain(&declared).all(is_good)
            && emitted >= self.emitted
            && emitted_mixed >= self.emitted_mixed
            && draft_and_policy_ms <= self.draft_and_policy_ms
    }
}
