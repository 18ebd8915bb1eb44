//! The sign test: how often a fair coin would do as well. Exact: a count of outcomes over 2^n.

use crate::natural::Natural;
use crate::rational::Rational;
use packhouse_base::Blame;

/// Pairs that a sign test takes at most: above, its smallest values leave binary64's normal range.
pub const MOST_PAIRS: u64 = 1000;

/// The outcome of a sign test. Its unit of analysis is whatever a pair is: say so beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignTest {
    /// Pairs that differ in the direction hoped for.
    pub wins: u64,
    /// Pairs that differ in the other.
    pub losses: u64,
    /// P(at least this many wins) of a fair coin, rounded once.
    pub one_sided: f64,
    /// Twice the smaller tail, at most 1, rounded once.
    pub two_sided: f64,
}

/// Why outcomes were not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncounted {
    /// There are more pairs than a sign test takes.
    #[error("{wins} wins and {losses} losses are more than {MOST_PAIRS} pairs")]
    Pairs {
        /// Pairs that were won.
        wins: u64,
        /// Pairs that were lost.
        losses: u64,
    },
    /// There are more ways to choose than can be written down.
    #[error("{control} and {candidate} units can be chosen in more than 2^127 ways")]
    Choices {
        /// Units of the control.
        control: u64,
        /// Units of the candidate.
        candidate: u64,
    },
}

impl Uncounted {
    /// Whose side it is on: whoever chose how much to measure.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Pairs { .. } | Self::Choices { .. } => Blame::Caller,
        }
    }
}

/// Judges wins against losses, `MOST_PAIRS` together at most; ties are in neither. Without any pair
/// both values are 1.
pub fn sign_test(wins: u64, losses: u64) -> Result<SignTest, Uncounted> {
    let pairs = wins.checked_add(losses);
    let pairs = pairs
        .filter(|pairs| *pairs <= MOST_PAIRS)
        .ok_or(Uncounted::Pairs { wins, losses })?;
    // Up to 1000 pairs no value is below binary64's normal range.
    let power = |exponent: u64| -i64::try_from(exponent).expect("because it is at most 1000");
    let two_sided = match wins == losses {
        true => 1.0,
        false => outcomes(pairs, wins.max(losses)).scaled(power(pairs - 1)),
    };
    Ok(SignTest {
        wins,
        losses,
        one_sided: outcomes(pairs, wins).scaled(power(pairs)),
        two_sided,
    })
}

/// The least one-sided value that a test of two arms can give: one in all ways to choose which of
/// the units were the candidate's, of which there are below 2^127.
pub fn least_attainable(control: u64, candidate: u64) -> Result<Rational, Uncounted> {
    let ways = ways(control, candidate).and_then(|ways| Rational::new(1, ways));
    ways.ok_or(Uncounted::Choices { control, candidate })
}

/// In how many ways `chosen` of the units of both can be chosen; `None` from 2^127 on.
fn ways(left: u64, chosen: u64) -> Option<i128> {
    let units = left.checked_add(chosen)?;
    // Each step's ways are no more than the last one's, and no product is more than its step's.
    let mut ways = Rational::whole(1);
    for index in 0..left.min(chosen) {
        let (above, below) = (i128::from(units - index), i128::from(index + 1));
        ways = ways.times(Rational::new(above, below)?)?;
    }
    Some(ways.numerator())
}

/// In how many of the 2^pairs outcomes at least `wins` are won.
fn outcomes(pairs: u64, wins: u64) -> Natural {
    let mut sum = Natural::ZERO;
    let mut ways = Natural::of(1);
    // Ways to lose 0, 1, 2, ... of the pairs.
    for losses in 0..=pairs - wins {
        sum.add(&ways);
        ways.multiply_small(pairs - losses);
        ways.divide_small(losses + 1);
    }
    sum
}
