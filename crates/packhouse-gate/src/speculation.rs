//! Speculative decoding: what the counters say, and what the delivered tokens say of the counters.
//!
//! - Counters are rises over a whole suite, integers, and must agree with each other before any
//!   figure is made of them.
//! - Tokens per cycle are of delivered tokens: what a verifier emitted and nobody got is an
//!   overrun, and is bounded.
//! - A survival that hardly falls, with a jump in speed, is an alarm: the verifier reads stale
//!   data.

use crate::exact::first_difference;
use packhouse_base::Blame;
use std::collections::BTreeMap;

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
    /// Positions are not counted from 0 on without a gap.
    #[error("position {position} is counted where {expected} was expected")]
    Gap {
        /// The position that is counted.
        position: u64,
        /// The one that was expected.
        expected: u64,
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
            | Self::Gap { .. }
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

/// Counts by position, as servers name them, in their order: every position from 0 on is there.
pub fn by_position(counted: &BTreeMap<u64, u64>) -> Result<Vec<u64>, Contradiction> {
    let all = (0..).zip(counted).map(|(expected, (position, accepted))| {
        let position = *position;
        match position == expected {
            true => Ok(*accepted),
            false => Err(Contradiction::Gap { position, expected }),
        }
    });
    all.collect()
}

/// What was emitted and not delivered of one response, in order: what the arms of a crossover must
/// have alike.
///
/// `delivered` are the ids that came, of which the first is before every cycle; `events` are what
/// the verifier emitted in each. What was delivered is a beginning of what was emitted, and what
/// was not is within the last event and at most `depth` ids.
pub fn excess<'a>(
    delivered: &[u32],
    events: &'a [Vec<u32>],
    depth: u64,
) -> Result<&'a [u32], Undelivered> {
    let [_, after_first @ ..] = delivered else {
        return Err(Undelivered::Nothing);
    };
    let mut rest = after_first;
    let mut left: &[u32] = &[];
    for (event, emitted) in events.iter().enumerate() {
        // Nothing may follow an event that was not delivered to its end.
        if !left.is_empty() {
            return Err(Undelivered::Later { event });
        }
        let taken = rest.len().min(emitted.len());
        let (now, later) = rest.split_at(taken);
        if let Some(difference) = first_difference(&emitted[..taken], now) {
            let index = 1 + after_first.len() - rest.len() + difference.index;
            return Err(Undelivered::Other { event, index });
        }
        (rest, left) = (later, &emitted[taken..]);
    }
    if !rest.is_empty() {
        let ids = rest.len();
        return Err(Undelivered::Invented { ids });
    }
    match left.len() as u64 > depth {
        true => Err(Undelivered::Long {
            ids: left.len(),
            depth,
        }),
        false => Ok(left),
    }
}

/// Why what was delivered is not what was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// Not even a first token was delivered.
    #[error("no token was delivered")]
    Nothing,
    /// An id was delivered that was not emitted there.
    #[error("token {index} is not what event {event} emitted")]
    Other {
        /// The event, counted from 0.
        event: usize,
        /// The token, counted from 0 with the first.
        index: usize,
    },
    /// More was delivered than was emitted.
    #[error("{ids} tokens were delivered that no event emitted")]
    Invented {
        /// How many.
        ids: usize,
    },
    /// An event follows one that was not delivered to its end.
    #[error("event {event} follows one that was not delivered to its end")]
    Later {
        /// The later event, counted from 0.
        event: usize,
    },
    /// More was not delivered than a cycle drafts.
    #[error("{ids} emitted tokens were not delivered, at most {depth} can be")]
    Long {
        /// How many.
        ids: usize,
        /// Tokens drafted in a cycle.
        depth: u64,
    },
}

impl Undelivered {
    /// Whose side it is on: the server's, or whoever recorded it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Nothing
            | Self::Other { .. }
            | Self::Invented { .. }
            | Self::Later { .. }
            | Self::Long { .. } => Blame::Caller,
        }
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
