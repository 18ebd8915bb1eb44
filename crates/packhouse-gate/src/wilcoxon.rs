//! The signed-rank test of Wilcoxon, exact, and equivalence by two of them.
//!
//! - Differences of zero are left out (Wilcoxon's own rule); equal sizes share the mean of their
//!   ranks, and the distribution counted is the one of those ranks.
//! - Every outcome of the signs is counted: no normal approximation, at any size.

use crate::rational::Rational;

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

/// Tests whether differences are above zero. `None` where there are more than `MOST_DIFFERENCES`.
/// Without any difference both values are 1.
pub fn signed_rank(differences: &[Rational]) -> Option<SignedRank> {
    if differences.len() > MOST_DIFFERENCES {
        return None;
    }
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
    Some(SignedRank {
        pairs: ranked.len() as u64,
        doubled_rank_sum: sum as u64,
        one_sided: share(at_least),
        two_sided: share(2 * at_least.min(at_most)),
    })
}

/// Tests whether differences are within `margin` of zero, by the signed ranks of `difference +
/// margin` and of `margin - difference`. `None` where the margin is not above zero, where there are
/// too many differences, and where a sum needs more than 127 bits.
pub fn equivalence(differences: &[Rational], margin: Rational) -> Option<Equivalence> {
    if margin <= Rational::ZERO {
        return None;
    }
    let above = differences.iter().map(|it| it.plus(margin));
    let below = differences.iter().map(|it| margin.minus(*it));
    let above: Option<Vec<Rational>> = above.collect();
    let below: Option<Vec<Rational>> = below.collect();
    Some(Equivalence {
        above_lower: signed_rank(&above?)?.one_sided,
        below_upper: signed_rank(&below?)?.one_sided,
    })
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
