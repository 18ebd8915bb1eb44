//! The signed-rank test of Wilcoxon, exact, and equivalence by two of them.
//!
//! - Differences of zero are left out (Wilcoxon's own rule); equal sizes share the mean of their
//!   ranks, and the distribution counted is the one of those ranks.
//! - Every outcome of the signs is counted: no normal approximation, at any size.
//! - The shift that these ranks estimate has a lower bound of theirs, at a rate of error that is
//!   exact, or lower where differences are equal or zero.

use crate::blocks::pair_sums;
use crate::rational::{Rational, in_one_unit};
use packhouse_base::Blame;

/// Differences that are taken at most: 2^n stays within 127 bits.
pub const MOST_DIFFERENCES: usize = 120;

/// The outcome of a signed-rank test. Its unit of analysis is whatever a difference is: say so
/// beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRank {
    /// Differences that are not zero.
    pub pairs: u64,
    /// The sum of the ranks of positive differences, doubled: ranks may be halves.
    pub doubled_rank_sum: u64,
    /// P(a sum at least this large), if every sign were as likely; rounded once.
    pub one_sided: f64,
    /// Twice the smaller tail, at most 1; rounded once.
    pub two_sided: f64,
}

/// Two one-sided tests against a margin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equivalence {
    /// P of the test that the differences are above `-margin`: small where there is no regression.
    pub above_lower: f64,
    /// P of the test that the differences are below `margin`.
    pub below_upper: f64,
}

impl Equivalence {
    /// Whether a loss of `margin` or more is excluded at this level.
    pub fn excludes_regression(&self, level: f64) -> bool {
        self.above_lower <= level
    }

    /// Whether a change of `margin` or more, either way, is excluded at this level: both tests are
    /// at the level itself, none is corrected.
    pub fn is_equivalent(&self, level: f64) -> bool {
        self.above_lower <= level && self.below_upper <= level
    }
}

/// The lower bound of the Hodges-Lehmann shift. Its unit of analysis is whatever a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftBound {
    /// The bound: one of the means of all pairs.
    pub lower: Rational,
    /// Its place among these, sorted, counted from 1.
    pub rank: u64,
    /// How often it is above the shift, where the differences are symmetric around that: at most
    /// so.
    pub error: Rational,
}

/// Why nothing was ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unranked {
    /// There are more differences than are counted.
    #[error("there are {differences} differences, at most {MOST_DIFFERENCES} are taken")]
    TooMany {
        /// Differences there are.
        differences: usize,
    },
    /// So few differences can give no bound at that rate of error.
    #[error(
        "{differences} differences are wrong at least 1 of 2^{differences} times, more than {error}"
    )]
    TooFew {
        /// Differences there are.
        differences: usize,
        /// The rate of error that was asked for.
        error: Rational,
    },
    /// A rate of error that is none.
    #[error("the rate of error is {error}, expected above 0 and below 1/2")]
    Error {
        /// The rate.
        error: Rational,
    },
    /// Differences have no unit in common that is coarse enough.
    #[error("differences need more than 103 bits in one unit")]
    NoUnit,
    /// A margin of nothing, or of less.
    #[error("the margin is {margin}, expected one above 0")]
    Margin {
        /// The margin.
        margin: Rational,
    },
    /// A difference and the margin have no sum that can be written down.
    #[error("difference {index} and the margin need more than 127 bits together")]
    TooFine {
        /// The difference, counted from 0.
        index: usize,
    },
}

impl Unranked {
    /// Whose side it is on: whoever measured, or chose the margin.
    pub fn blame(&self) -> Blame {
        match self {
            Self::TooMany { .. }
            | Self::TooFew { .. }
            | Self::Error { .. }
            | Self::NoUnit
            | Self::Margin { .. }
            | Self::TooFine { .. } => Blame::Caller,
        }
    }
}

/// Tests whether differences, `MOST_DIFFERENCES` at most, are above zero. Without any difference
/// both values are 1.
pub fn signed_rank(differences: &[Rational]) -> Result<SignedRank, Unranked> {
    few(differences)?;
    let ranked = doubled_ranks(differences);
    let all: usize = ranked.iter().map(|(rank, _)| rank).sum();
    let positive = ranked.iter().filter(|(_, is_positive)| *is_positive);
    let sum: usize = positive.map(|(rank, _)| rank).sum();
    let ways = ways(&ranked, all);
    let at_least: i128 = ways[sum..].iter().sum();
    let at_most: i128 = ways[..=sum].iter().sum();
    let outcomes = 1_i128 << ranked.len();
    let share = |ways: i128| Rational::new(ways.min(outcomes), outcomes);
    let share = |ways| {
        share(ways)
            .expect("because 2^120 is above zero")
            .to_binary64()
    };
    Ok(SignedRank {
        pairs: ranked.len() as u64,
        doubled_rank_sum: sum as u64,
        one_sided: share(at_least),
        two_sided: share(2 * at_least.min(at_most)),
    })
}

/// Tests whether differences are within `margin` of zero, by the signed ranks of `difference +
/// margin` and of `margin - difference`. The margin is above zero.
pub fn equivalence(differences: &[Rational], margin: Rational) -> Result<Equivalence, Unranked> {
    few(differences)?;
    if margin <= Rational::ZERO {
        return Err(Unranked::Margin { margin });
    }
    let moved = |by: fn(Rational, Rational) -> Option<Rational>| {
        let moved = differences.iter().enumerate();
        let moved = moved
            .map(|(index, one)| by(margin, *one).ok_or(Unranked::TooFine { index }))
            .collect::<Result<Vec<Rational>, Unranked>>();
        signed_rank(&moved?)
    };
    Ok(Equivalence {
        above_lower: moved(Rational::plus)?.one_sided,
        below_upper: moved(Rational::minus)?.one_sided,
    })
}

/// The one-sided lower bound of the Hodges-Lehmann shift, wrong at most so often: of the means of
/// all pairs, each with itself too, sorted, the one at the last rank `k` for which
/// `P(W <= k - 1) <= error`, where W is the rank sum of as many differences without equal sizes.
pub fn shift_lower(differences: &[Rational], error: Rational) -> Result<ShiftBound, Unranked> {
    few(differences)?;
    let half = Rational::new(1, 2).expect("because 2 is above zero");
    if error <= Rational::ZERO || error >= half {
        return Err(Unranked::Error { error });
    }
    let (whole, below) = in_one_unit(differences).ok_or(Unranked::NoUnit)?;
    let doubled = below.checked_mul(2).ok_or(Unranked::NoUnit)?;
    let count = differences.len();
    // Without equal sizes the doubled rank of each is twice its place.
    let ranked: Vec<(usize, bool)> = (1..=count).map(|place| (2 * place, false)).collect();
    let ways = ways(&ranked, count * (count + 1));
    let (mut rank, mut missed, mut tail) = (0_usize, Rational::ZERO, 0_i128);
    // Odd sums of doubled ranks have no way.
    for ways in ways.iter().step_by(2) {
        tail += ways;
        let share = Rational::new(tail, 1_i128 << count).expect("because 2^120 is above zero");
        if share > error {
            break;
        }
        (rank, missed) = (rank + 1, share);
    }
    let mut sums = pair_sums(&whole);
    sums.sort_unstable();
    let place = rank.checked_sub(1);
    let lower = place.and_then(|place| sums.get(place)).copied();
    let Some(lower) = lower else {
        return Err(Unranked::TooFew {
            differences: count,
            error,
        });
    };
    Ok(ShiftBound {
        lower: Rational::new(lower, doubled).ok_or(Unranked::NoUnit)?,
        rank: rank as u64,
        error: missed,
    })
}

fn few(differences: &[Rational]) -> Result<(), Unranked> {
    match differences.len() {
        0..=MOST_DIFFERENCES => Ok(()),
        differences => Err(Unranked::TooMany { differences }),
    }
}

/// Twice the rank of each difference that is not zero, by size, and whether it is above zero.
fn doubled_ranks(differences: &[Rational]) -> Vec<(usize, bool)> {
    let apart = differences.iter().filter(|it| **it != Rational::ZERO);
    let mut sizes: Vec<(Rational, bool)> =
        apart.map(|it| (it.size(), *it > Rational::ZERO)).collect();
    sizes.sort();
    let mut ranked = Vec::new();
    for equal in sizes.chunk_by(|left, right| left.0 == right.0) {
        // Ranks from `before + 1` to `before + equal`: twice their mean is the sum of both ends.
        let before = ranked.len();
        let doubled = 2 * before + equal.len() + 1;
        ranked.extend(equal.iter().map(|(_, is_positive)| (doubled, *is_positive)));
    }
    ranked
}

/// In how many outcomes of the signs the doubled ranks of positive ones sum to each value.
fn ways(ranked: &[(usize, bool)], all: usize) -> Vec<i128> {
    let mut ways = vec![0; all + 1];
    ways[0] = 1;
    let mut most = 0;
    for (rank, _) in ranked {
        most += rank;
        for sum in (*rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}
