//! Bootstraps: what else the same pairs could have shown, by resampling with pinned draws.

use crate::random::Xoshiro;

/// Resamples of every bootstrap here: with 9999, the least 5 % end exactly at the 500th.
pub const RESAMPLES: usize = 9999;

/// The seed of every bootstrap that takes none: the letters `packhous`. It is no choice of whoever
/// measures.
pub const SEED: u64 = 0x7061_636b_686f_7573;

/// The rank, counted from 1, whose resample bounds 5 % from below.
const RANK_OF_5: usize = 500;
/// The rank that bounds 80 % from below.
const RANK_OF_80: usize = 8000;
/// The rank that bounds 95 % from below.
const RANK_OF_95: usize = 9500;

/// The 95 % lower percentile bound of the median of integers, twice: the doubled median keeps the
/// mean of the middle two whole. `None` without values.
pub(crate) fn lower_95_of_doubled_median(values: &[i128]) -> Option<i128> {
    let mut medians = resampled(values, |_, value| value)?;
    medians.sort_unstable();
    Some(medians[RANK_OF_5 - 1])
}

/// Of medians whose values got a sign at random, doubled: the size that 95 % stay within, and what
/// 80 % stay below. `None` without values.
pub(crate) fn null_of_doubled_median(values: &[i128]) -> Option<(i128, i128)> {
    let mut medians = resampled(values, |random, value| match random.word() >> 63 {
        0 => value,
        _ => -value,
    })?;
    medians.sort_unstable();
    let eighty = medians[RANK_OF_80 - 1];
    let mut sizes: Vec<i128> = medians.iter().map(|median| median.abs()).collect();
    sizes.sort_unstable();
    Some((sizes[RANK_OF_95 - 1], eighty))
}

/// The doubled median of each resample, in the order they were drawn.
fn resampled(values: &[i128], drawn: impl Fn(&mut Xoshiro, i128) -> i128) -> Option<Vec<i128>> {
    if values.is_empty() {
        return None;
    }
    let mut random = Xoshiro::seeded(SEED);
    let mut sample = vec![0; values.len()];
    let medians = (0..RESAMPLES).map(|_| {
        for value in &mut sample {
            let index = random.below(values.len() as u64);
            let index = usize::try_from(index).expect("because it is an index");
            *value = drawn(&mut random, values[index]);
        }
        doubled_median(&mut sample)
    });
    Some(medians.collect())
}

/// Twice the median: the sum of the middle two, which are the same one where there is one.
pub(crate) fn doubled_median(values: &mut [i128]) -> i128 {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable(middle);
    let upper = *upper;
    let lower = match is_even {
        true => below.iter().max().copied().unwrap_or(upper),
        false => upper,
    };
    lower + upper
}
