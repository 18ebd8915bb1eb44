//! Stopping early, with an error rate that is fixed before: sign tests with several looks.
//!
//! - A plan names its looks beforehand. `false_pass` is exactly how often a plan would pass a
//!   candidate that is no better, by counting every outcome.
//! - A plan that only ever stops for failure never passes more often than one that looks once.

use crate::rational::Rational;
use packhouse_base::Blame;

/// Pairs of a plan at most: 2^n stays within 127 bits.
pub const MOST_PLANNED: u64 = 120;

/// One look at the wins so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Pairs that are there by then.
    pub pairs: u64,
    /// Stops for failure with fewer wins than these.
    pub fails_below: u64,
    /// Stops for success with these wins or more; none where this look can't pass.
    pub passes_at: Option<u64>,
}

/// Looks that were planned, with what they are worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    looks: Vec<Look>,
}

/// What a look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There are not enough pairs for the next look, or the look decided nothing.
    Continue,
    /// The candidate failed.
    Failed,
    /// The candidate passed.
    Passed,
}

/// Why looks are no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplanned {
    /// There is no look.
    #[error("there is no look")]
    Empty,
    /// A look has no more pairs than the one before it, or more than can be counted.
    #[error("look {look} is at {pairs} pairs, expected {least} to {MOST_PLANNED}")]
    Pairs {
        /// The look.
        look: usize,
        /// Its pairs.
        pairs: u64,
        /// The least that it could have.
        least: u64,
    },
    /// A look would pass what it fails, or asks for more wins than there are pairs.
    #[error("look {look} fails below {fails_below} wins and passes at {passes_at} of {pairs}")]
    Bounds {
        /// The look.
        look: usize,
        /// Its bound for failure.
        fails_below: u64,
        /// Its bound for success.
        passes_at: u64,
        /// Its pairs.
        pairs: u64,
    },
    /// The last look can leave everything open.
    #[error("the last look decides nothing between {fails_below} and {passes_at} wins")]
    Open {
        /// Its bound for failure.
        fails_below: u64,
        /// Its bound for success, or one more than its pairs.
        passes_at: u64,
    },
}

impl Unplanned {
    /// Whose side it is on: whoever planned.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty | Self::Pairs { .. } | Self::Bounds { .. } | Self::Open { .. } => {
                Blame::Caller
            }
        }
    }
}

impl Plan {
    /// Takes the looks of a plan, in their order. The last decides.
    pub fn of(looks: &[Look]) -> Result<Self, Unplanned> {
        let mut least = 1;
        for (look, bounds) in looks.iter().enumerate() {
            let Look {
                pairs,
                fails_below,
                passes_at,
            } = *bounds;
            if !(least..=MOST_PLANNED).contains(&pairs) {
                return Err(Unplanned::Pairs { look, pairs, least });
            }
            least = pairs + 1;
            let passes_at = passes_at.unwrap_or(pairs);
            if fails_below > passes_at || passes_at > pairs {
                return Err(Unplanned::Bounds {
                    look,
                    fails_below,
                    passes_at,
                    pairs,
                });
            }
        }
        let last = looks.last().ok_or(Unplanned::Empty)?;
        let passes_at = last.passes_at.unwrap_or(last.pairs + 1);
        let fails_below = last.fails_below;
        match fails_below == passes_at {
            true => Ok(Self {
                looks: looks.to_vec(),
            }),
            false => Err(Unplanned::Open {
                fails_below,
                passes_at,
            }),
        }
    }

    /// What the plan says of wins so far, counted in the order of the pairs: looks are taken at
    /// their own pairs only, so what came after one can't change it.
    pub fn step(&self, outcomes: &[bool]) -> Step {
        for look in &self.looks {
            let pairs = usize::try_from(look.pairs).expect("because it is at most 120");
            let Some(seen) = outcomes.get(..pairs) else {
                return Step::Continue;
            };
            let wins = seen.iter().filter(|is_win| **is_win).count() as u64;
            if wins < look.fails_below {
                return Step::Failed;
            }
            if look.passes_at.is_some_and(|least| wins >= least) {
                return Step::Passed;
            }
        }
        Step::Continue
    }

    /// How often a fair coin passes, exactly.
    pub fn false_pass(&self) -> Rational {
        let last = self.looks.last().map_or(0, |look| look.pairs);
        // In how many ways each number of wins is reached without a decision.
        let mut ways = vec![1_i128];
        let mut passed = 0_i128;
        let mut looks = self.looks.iter().peekable();
        for pairs in 1..=last {
            ways = next(&ways);
            let Some(look) = looks.next_if(|look| look.pairs == pairs) else {
                continue;
            };
            for (wins, ways) in (0..).zip(&mut ways) {
                if look.passes_at.is_some_and(|least| wins >= least) {
                    passed += *ways << (last - pairs);
                    *ways = 0;
                }
                if wins < look.fails_below {
                    *ways = 0;
                }
            }
        }
        Rational::new(passed, 1 << last).expect("because 2^120 is above zero")
    }
}

/// Ways after one more pair: each number of wins stays, or is one more.
fn next(ways: &[i128]) -> Vec<i128> {
    let at = |index: usize| ways.get(index).copied().unwrap_or(0);
    let one_more = |index: usize| index.checked_sub(1).map_or(0, at);
    (0..=ways.len())
        .map(|wins| at(wins) + one_more(wins))
        .collect()
}
