//! Medians with exact, distribution-free intervals.
//!
//! The interval of a median is bounded by two order statistics: with n independent values, the
//! chance that the true median lies below the k-th smallest is a binomial tail. No resampling, no
//! assumption about the noise, and the coverage is stated as it is and not as wished.

/// A median and the order statistics around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The interval's exact coverage; below 0.95 only when there are fewer than six values.
    pub coverage: f64,
}

/// The median of `values` and the narrowest symmetric interval that covers it in 95 % of runs, or
/// the whole range where no interval does. `None` without values.
pub fn median(values: &[f64]) -> Option<Median> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let value = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    let mut best = Median {
        value,
        low: first,
        high: last,
        coverage: coverage(count, 0),
    };
    for skipped in 1..count.div_ceil(2) {
        if coverage(count, skipped) < 0.95 {
            break;
        }
        best.low = sorted[skipped];
        best.high = sorted[count - 1 - skipped];
        best.coverage = coverage(count, skipped);
    }
    Some(best)
}

/// 1 - 2 P(Binomial(count, 1/2) <= skipped).
fn coverage(count: usize, skipped: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for taken in 0..=skipped {
        tail += term;
        term *= (count - taken) as f64 / (taken + 1) as f64;
    }
    2.0_f64.mul_add(-tail, 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_values_are_the_fewest_that_cover_95_percent() {
        assert!(coverage(5, 0) < 0.95);
        assert!((coverage(6, 0) - 0.968_75).abs() < 1e-12);
        assert!((coverage(9, 1) - 0.960_937_5).abs() < 1e-12);
    }

    #[test]
    fn nine_values_drop_one_at_each_end() {
        let values = [9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0];
        let median = median(&values).expect("nine values");
        assert_eq!((median.value, median.low, median.high), (5.0, 2.0, 8.0));
    }

    #[test]
    fn few_values_give_their_range_and_admit_it() {
        let median = median(&[2.0, 1.0]).expect("two values");
        assert_eq!((median.value, median.low, median.high), (1.5, 1.0, 2.0));
        assert!((median.coverage - 0.5).abs() < 1e-12);
        assert_eq!(super::median(&[]), None);
    }
}
