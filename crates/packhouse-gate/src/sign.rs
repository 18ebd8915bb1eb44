//! The sign test: how often a fair coin would do as well. Exact: a count of outcomes over 2^n.

use crate::natural::Natural;
use crate::rational::Rational;

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

/// Judges wins against losses; ties are in neither. `None` where they are more than `MOST_PAIRS`.
/// Without any pair both values are 1.
pub fn sign_test(wins: u64, losses: u64) -> Option<SignTest> {
    let pairs = wins
        .checked_add(losses)
        .filter(|pairs| *pairs <= MOST_PAIRS)?;
    // Up to 1000 pairs no value is below binary64's normal range.
    let power = |exponent: u64| -i64::try_from(exponent).expect("because it is at most 1000");
    let two_sided = match wins == losses {
        true => 1.0,
        false => outcomes(pairs, wins.max(losses)).scaled(power(pairs - 1)),
    };
    Some(SignTest {
        wins,
        losses,
        one_sided: outcomes(pairs, wins).scaled(power(pairs)),
        two_sided,
    })
}

/// The least one-sided value that a test of two arms can give: one in all ways to choose which of
/// the units were the candidate's. `None` where that is more than 2^127.
pub fn least_attainable(control_units: u64, candidate_units: u64) -> Option<Rational> {
    let units = control_units.checked_add(candidate_units)?;
    let mut ways = 1_i128;
    for chosen in 0..control_units.min(candidate_units) {
        ways = ways.checked_mul(i128::from(units - chosen))? / i128::from(chosen + 1);
    }
    Rational::new(1, ways)
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
