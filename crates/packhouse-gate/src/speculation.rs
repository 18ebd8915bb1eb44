//! Speculative decoding: what the counters say, and what the delivered tokens say of the counters.
//!
//! - Counters are rises over a whole suite, integers, and must agree with each other before any
//!   figure is made of them.
//! - Tokens per cycle are of delivered tokens: what a verifier emitted and nobody got is an
//!   overrun, and is bounded.
//! - A survival that hardly falls, with a jump in speed, is an alarm: the verifier reads stale
//!   data.

use packhouse_base::Blame;

/// How far the counters rose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Requests decoded.
    pub requests: u64,
    /// Cycles of draft and verify.
    pub cycles: u64,
    /// Tokens drafted in each cycle.
    pub depth: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Drafted tokens that the verifier accepted.
    pub accepted: u64,
    /// Accepted tokens by their position in the draft.
    pub positions: Vec<u64>,
}

/// Why counters are no evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// There was no cycle, or nothing is drafted in one.
    #[error("{cycles} cycles of depth {depth} draft nothing")]
    Nothing {
        /// Cycles.
        cycles: u64,
        /// Depth.
        depth: u64,
    },
    /// A product of them is above 2^53: they are no counts of tokens.
    #[error("{counter} is {value}, which is no count of tokens")]
    Size {
        /// Which.
        counter: &'static str,
        /// Its value.
        value: u64,
    },
    /// Drafted tokens are not depth times cycles.
    #[error("{drafted} tokens were drafted, {cycles} cycles of depth {depth} draft {expected}")]
    Drafted {
        /// Tokens drafted.
        drafted: u64,
        /// Cycles.
        cycles: u64,
        /// Depth.
        depth: u64,
        /// Their product.
        expected: u64,
    },
    /// There is not one counter for each position.
    #[error("{positions} positions are counted, the depth is {depth}")]
    Positions {
        /// Positions counted.
        positions: usize,
        /// Depth.
        depth: u64,
    },
    /// A position was accepted more often than the one before it, or than there were cycles.
    #[error("position {position} was accepted {accepted} times, the one before it {before}")]
    Rising {
        /// The position, counted from 0.
        position: usize,
        /// Times it was accepted.
        accepted: u64,
        /// Times the one before it was, or cycles.
        before: u64,
    },
    /// The positions' sum is not what was accepted.
    #[error("{accepted} tokens were accepted, by position {sum}")]
    Accepted {
        /// Tokens accepted.
        accepted: u64,
        /// The sum of the positions.
        sum: u64,
    },
    /// Not every prompt was decoded once.
    #[error("{requests} requests were decoded for {prompts} prompts")]
    Requests {
        /// Requests decoded.
        requests: u64,
        /// Prompts.
        prompts: u64,
    },
    /// More tokens were delivered than were emitted.
    #[error("{delivered} tokens were delivered, {emitted} were emitted")]
    Invented {
        /// Tokens delivered.
        delivered: u64,
        /// Tokens emitted.
        emitted: u64,
    },
    /// More tokens were emitted and not delivered than each request's last cycle can have.
    #[error("{overrun} emitted tokens were not delivered, at most {most} can be")]
    Overrun {
        /// Tokens emitted and not delivered.
        overrun: u64,
        /// One depth for each request.
        most: u64,
    },
}

impl Contradiction {
    /// Whose side it is on: the server's counters, or whoever read them.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Nothing { .. }
            | Self::Size { .. }
            | Self::Drafted { .. }
            | Self::Positions { .. }
            | Self::Rising { .. }
            | Self::Accepted { .. }
            | Self::Requests { .. }
            | Self::Invented { .. }
            | Self::Overrun { .. } => Blame::Caller,
        }
    }
}

/// Counters that agree with each other and with what was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speculation {
    counters: Counters,
    delivered: u64,
}

impl Speculation {
    /// Holds counters against each other, against the number of prompts, and against the tokens
    /// that were delivered over all requests.
    pub fn of(counters: Counters, prompts: u64, delivered: u64) -> Result<Self, Contradiction> {
        sizes(&counters, delivered)?;
        agree(&counters)?;
        let Counters {
            requests,
            cycles,
            depth,
            accepted,
            ..
        } = counters;
        if requests != prompts {
            return Err(Contradiction::Requests { requests, prompts });
        }
        // Each cycle emits what was accepted and one token of the verifier's; each request's first
        // token came before its first cycle.
        let emitted = accepted + cycles + requests;
        let Some(overrun) = emitted.checked_sub(delivered) else {
            return Err(Contradiction::Invented { delivered, emitted });
        };
        let most = requests * depth;
        if overrun > most {
            return Err(Contradiction::Overrun { overrun, most });
        }
        Ok(Self {
            counters,
            delivered,
        })
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// `accepted / drafted`.
    pub fn acceptance(&self) -> f64 {
        over(self.counters.accepted, self.counters.drafted)
    }

    /// `accepted at the position / cycles`, for each position.
    pub fn survival(&self) -> Vec<f64> {
        let positions = self.counters.positions.iter();
        positions
            .map(|accepted| over(*accepted, self.counters.cycles))
            .collect()
    }

    /// `survival / survival of the position before`, where that of position -1 is 1; `None` after a
    /// position that never survived.
    pub fn conditional(&self) -> Vec<Option<f64>> {
        let mut before = 1.0;
        let conditional = |survival| {
            let share = (before > 0.0).then(|| survival / before);
            before = survival;
            share
        };
        self.survival().into_iter().map(conditional).collect()
    }

    /// `accepted / cycles`.
    pub fn mean_accepted(&self) -> f64 {
        over(self.counters.accepted, self.counters.cycles)
    }

    /// `1 + accepted / cycles`: what counters alone say of tokens per cycle. It is above what was
    /// delivered wherever a request's last cycle was cut.
    pub fn emitted_by_counters(&self) -> f64 {
        1.0 + self.mean_accepted()
    }

    /// `(delivered - requests) / cycles`: tokens per cycle that somebody got.
    pub fn emitted_by_delivery(&self) -> f64 {
        // More requests than tokens is possible where all were cut at once.
        let after_first = self.delivered as f64 - self.counters.requests as f64;
        after_first / self.counters.cycles as f64
    }

    /// Tokens that were emitted and not delivered.
    pub fn overrun(&self) -> u64 {
        let Counters {
            requests,
            cycles,
            accepted,
            ..
        } = self.counters;
        accepted + cycles + requests - self.delivered
    }
}

/// What a verifier that reads stale data looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaleVerifier {
    /// The least share of the first position's acceptances that the last still has.
    pub least_flatness: f64,
    /// The least speed against the control's, where that is known.
    pub least_speed_up: f64,
}

impl StaleVerifier {
    /// Thresholds that no draft of ours or of the reference lab came near: survival of the last
    /// position 0.9 of the first's, and 1.2 times the control's speed.
    pub const USUAL: Self = Self {
        least_flatness: 0.9,
        least_speed_up: 1.2,
    };

    /// Whether the alarm trips: survival is that flat and, where the speed is known, the jump is
    /// that large. Without a control's speed flatness alone trips it. A draft of one position, or
    /// of none accepted, shows nothing.
    pub fn trips(&self, positions: &[u64], speed_up: Option<f64>) -> bool {
        let [first, .., last] = positions else {
            return false;
        };
        let is_flat = *first > 0 && over(*last, *first) >= self.least_flatness;
        // A speed-up that is no number is one that is not known.
        let known = speed_up.filter(|ratio| !ratio.is_nan());
        is_flat && known.is_none_or(|ratio| ratio >= self.least_speed_up)
    }
}

/// Counters are far below 2^53, so that no sum, product or conversion of them is rounded.
fn sizes(counters: &Counters, delivered: u64) -> Result<(), Contradiction> {
    let named = [
        ("requests", counters.requests),
        ("cycles", counters.cycles),
        ("depth", counters.depth),
        ("drafted", counters.drafted),
        ("accepted", counters.accepted),
        ("delivered", delivered),
    ];
    let positions = counters.positions.iter().map(|value| ("positions", *value));
    let most = |counter| if counter == "depth" { 1 << 12 } else { 1 << 40 };
    let large = |(counter, value): &(&'static str, u64)| *value > most(*counter);
    match named.into_iter().chain(positions).find(large) {
        Some((counter, value)) => Err(Contradiction::Size { counter, value }),
        None => Ok(()),
    }
}

fn agree(counters: &Counters) -> Result<(), Contradiction> {
    let Counters {
        cycles,
        depth,
        drafted,
        accepted,
        ..
    } = *counters;
    let expected = depth * cycles;
    if expected == 0 {
        return Err(Contradiction::Nothing { cycles, depth });
    }
    if drafted != expected {
        return Err(Contradiction::Drafted {
            drafted,
            cycles,
            depth,
            expected,
        });
    }
    if counters.positions.len() as u64 != depth {
        let positions = counters.positions.len();
        return Err(Contradiction::Positions { positions, depth });
    }
    let mut before = cycles;
    for (position, accepted) in counters.positions.iter().copied().enumerate() {
        if accepted > before {
            return Err(Contradiction::Rising {
                position,
                accepted,
                before,
            });
        }
        before = accepted;
    }
    let sum = counters.positions.iter().sum();
    match sum == accepted {
        true => Ok(()),
        false => Err(Contradiction::Accepted { accepted, sum }),
    }
}

fn over(above: u64, below: u64) -> f64 {
    above as f64 / below as f64
}
