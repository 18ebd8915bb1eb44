//! A-B-B-A blocks: what one block saves per cycle, and what all of them show.
//!
//! - A block is control, candidate, candidate, control, so that a drift that is linear in time
//!   saves nothing.
//! - Savings are exact fractions of a nanosecond; a win is a saving above zero, exactly.
//! - One device's blocks make one `Paired`: nothing here joins two devices.

use crate::bootstrap::{doubled_median, lower_95_of_doubled_median, null_of_doubled_median};
use crate::rational::{Rational, in_one_unit};
use crate::sign::{MOST_PAIRS, SignTest, sign_test};
use packhouse_base::Blame;

/// Spans above this, about 146 years, are refused: sums of them stay exact.
const LONGEST_NS: u64 = 1 << 62;
/// Cycles above this are refused: fractions over them stay exact.
const MOST_CYCLES: u64 = 1 << 32;

/// Blocks that a gate needs at least: of five, all won, a fair coin's two-sided p is 0.0625, and
/// what so few show of the noise is less than it looks.
pub const LEAST_BLOCKS: u64 = 6;

/// What a block's four runs took, each for the same number of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// The control's first and last run, in nanoseconds.
    pub control_ns: [u64; 2],
    /// The candidate's two runs between them, in nanoseconds.
    pub candidate_ns: [u64; 2],
}

/// What the blocks of one device show. Savings are of one cycle, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// Each block's saving, in the order they were run.
    pub savings: Vec<Rational>,
    /// Blocks that saved something.
    pub wins: u64,
    /// Blocks that lost something.
    pub losses: u64,
    /// Their median; the mean of the middle two where they are even in number.
    pub median: Rational,
    /// Wins against losses, by the coin; its unit is the block.
    pub sign: SignTest,
    /// The Hodges-Lehmann shift: the median of the means of all pairs, each block with itself too.
    pub hodges_lehmann: Rational,
    /// The median's 95 % lower bound, by bootstrap over blocks.
    pub bootstrap_lower_95: Rational,
}

/// What two arms that are the same still differ by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// The size that the median of that many blocks stays within, 95 times of 100.
    pub floor: Rational,
    /// The saving whose median would be above `floor` 80 times of 100.
    pub detectable: Rational,
}

/// Why blocks show nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpaired {
    /// There is no block.
    #[error("there is no block")]
    Empty,
    /// There are more than a sign test takes.
    #[error("there are {blocks} blocks, at most {MOST_PAIRS} are taken")]
    TooMany {
        /// Blocks there are.
        blocks: usize,
    },
    /// A run of no cycle took no time that could be divided.
    #[error("a run has {cycles} cycles, expected 1 to {MOST_CYCLES}")]
    Cycles {
        /// Cycles of a run.
        cycles: u64,
    },
    /// A span is no span.
    #[error("a run of block {block} took {ns} ns, expected 1 to {LONGEST_NS}")]
    Span {
        /// The block, counted from 0.
        block: usize,
        /// Its span.
        ns: u64,
    },
    /// Savings have no unit in common that is coarse enough.
    #[error("savings of blocks need more than 103 bits in one unit")]
    TooFine,
}

impl Unpaired {
    /// Whose side it is on: whoever took the spans.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty
            | Self::TooMany { .. }
            | Self::Cycles { .. }
            | Self::Span { .. }
            | Self::TooFine => Blame::Caller,
        }
    }
}

impl Paired {
    /// Judges the blocks of one device, each of whose runs was of `cycles` cycles.
    pub fn of(cycles: u64, blocks: &[Spans]) -> Result<Self, Unpaired> {
        let below = 2 * i128::from(cycles);
        Self::of_whole(&differences(cycles, blocks)?, below)
    }

    /// Judges paired differences that are no spans: the rows of two starts, one difference for each
    /// prompt. Wins are differences above zero.
    pub fn of_differences(differences: &[Rational]) -> Result<Self, Unpaired> {
        few(differences.len())?;
        let (whole, below) = in_one_unit(differences).ok_or(Unpaired::TooFine)?;
        Self::of_whole(&whole, below)
    }

    /// Differences are `whole / below`, and there is one.
    fn of_whole(whole: &[i128], below: i128) -> Result<Self, Unpaired> {
        let wins = whole.iter().filter(|above| **above > 0).count() as u64;
        let losses = whole.iter().filter(|above| **above < 0).count() as u64;
        let lower = lower_95_of_doubled_median(whole).ok_or(Unpaired::Empty)?;
        let over = |above, times: i128| {
            let below = below.checked_mul(times);
            let value = below.and_then(|below| Rational::new(above, below));
            value.ok_or(Unpaired::TooFine)
        };
        let savings = whole.iter().map(|above| over(*above, 1));
        Ok(Self {
            savings: savings.collect::<Result<_, _>>()?,
            wins,
            losses,
            median: over(doubled_median(&mut whole.to_vec()), 2)?,
            sign: sign_test(wins, losses).expect("because the blocks are not too many"),
            hodges_lehmann: over(doubled_median(&mut pair_sums(whole)), 4)?,
            bootstrap_lower_95: over(lower, 2)?,
        })
    }

    /// Whether both thresholds are met: enough wins, and a median saving that is large enough.
    pub fn meets(&self, minimum_wins: u64, minimum_median_saving_ns: u64) -> bool {
        let least = Rational::new(i128::from(minimum_median_saving_ns), 1);
        let least = least.expect("because 1 is above zero");
        self.wins >= minimum_wins && self.median >= least
    }
}

impl Noise {
    /// Takes the noise of one device from blocks in which both arms were the control.
    pub fn of(cycles: u64, blocks: &[Spans]) -> Result<Self, Unpaired> {
        let differences = differences(cycles, blocks)?;
        Self::of_whole(&differences, 2 * i128::from(cycles))
    }

    /// Takes the noise of one device from the savings of such blocks, in the order they were run.
    pub fn of_savings(savings: &[Rational]) -> Result<Self, Unpaired> {
        few(savings.len())?;
        let (whole, below) = in_one_unit(savings).ok_or(Unpaired::TooFine)?;
        Self::of_whole(&whole, below)
    }

    /// Savings are `whole / below`, and there is one.
    fn of_whole(whole: &[i128], below: i128) -> Result<Self, Unpaired> {
        let null = null_of_doubled_median(whole).ok_or(Unpaired::Empty)?;
        let (within, eighty) = null;
        let halved = |doubled| Rational::new(doubled, below.checked_mul(2)?);
        Ok(Self {
            floor: halved(within).ok_or(Unpaired::TooFine)?,
            detectable: halved(within + eighty).ok_or(Unpaired::TooFine)?,
        })
    }

    /// The detectable saving in whole nanoseconds, rounded up: a gate below it is refused. One that
    /// is below 0 is 0; one above all that a gate can ask for is the most that one can.
    pub fn detectable_ns(&self) -> u64 {
        let ceiling = self.detectable.ceiling().max(0);
        u64::try_from(ceiling).unwrap_or(u64::MAX)
    }
}

/// The Hodges-Lehmann shift of differences: the median of the means of all pairs, each with itself
/// too.
pub fn hodges_lehmann(differences: &[Rational]) -> Result<Rational, Unpaired> {
    few(differences.len())?;
    let (whole, below) = in_one_unit(differences).ok_or(Unpaired::TooFine)?;
    let shift = doubled_median(&mut pair_sums(&whole));
    let below = below.checked_mul(4).ok_or(Unpaired::TooFine)?;
    Rational::new(shift, below).ok_or(Unpaired::TooFine)
}

/// The 95 % lower percentile bound of the median of differences, by bootstrap over them in their
/// order.
pub fn median_lower_95(differences: &[Rational]) -> Result<Rational, Unpaired> {
    few(differences.len())?;
    let (whole, below) = in_one_unit(differences).ok_or(Unpaired::TooFine)?;
    let lower = lower_95_of_doubled_median(&whole).ok_or(Unpaired::Empty)?;
    let below = below.checked_mul(2).ok_or(Unpaired::TooFine)?;
    Rational::new(lower, below).ok_or(Unpaired::TooFine)
}

/// The median saving as percent of what a cycle of the control takes in the median:
/// `100 median(d) / median(A1 + A2)`.
pub fn median_percent(blocks: &[Spans]) -> Result<Rational, Unpaired> {
    let mut saved = differences(1, blocks)?;
    let mut taken: Vec<i128> = blocks.iter().map(|spans| sum(spans.control_ns)).collect();
    let percent = Rational::new(100 * doubled_median(&mut saved), doubled_median(&mut taken));
    Ok(percent.expect("because spans are above zero and bounded"))
}

/// What each block's controls took longer than its candidates, over all four runs.
fn differences(cycles: u64, blocks: &[Spans]) -> Result<Vec<i128>, Unpaired> {
    few(blocks.len())?;
    if !(1..=MOST_CYCLES).contains(&cycles) {
        return Err(Unpaired::Cycles { cycles });
    }
    let difference = |(block, spans): (usize, &Spans)| {
        let all = spans.control_ns.iter().chain(&spans.candidate_ns);
        match all.copied().find(|ns| !(1..=LONGEST_NS).contains(ns)) {
            Some(ns) => Err(Unpaired::Span { block, ns }),
            None => Ok(sum(spans.control_ns) - sum(spans.candidate_ns)),
        }
    };
    blocks.iter().enumerate().map(difference).collect()
}

fn few(blocks: usize) -> Result<(), Unpaired> {
    match blocks {
        0 => Err(Unpaired::Empty),
        _ if blocks as u64 > MOST_PAIRS => Err(Unpaired::TooMany { blocks }),
        _ => Ok(()),
    }
}

fn sum(spans: [u64; 2]) -> i128 {
    i128::from(spans[0]) + i128::from(spans[1])
}

/// The sums of all pairs, each with itself and each pair once.
pub(crate) fn pair_sums(values: &[i128]) -> Vec<i128> {
    let with_later = |(index, left): (usize, &i128)| {
        let left = *left;
        values[index..].iter().map(move |right| left + right)
    };
    values.iter().enumerate().flat_map(with_later).collect()
}
