//! What holds for all fractions, blocks and arrivals.

use packhouse_gate::blocks::{Paired, Spans};
use packhouse_gate::exact::first_difference;
use packhouse_gate::rate::{Arrivals, Burst, Window};
use packhouse_gate::rational::Rational;
use packhouse_gate::wilcoxon::signed_rank;
use proptest::prelude::*;
use std::cmp::Ordering;

/// Numbers of the sizes that figures have, both signs, with all their bits.
fn figure() -> impl Strategy<Value = f64> {
    let parts = (any::<bool>(), 1_u64..1 << 53, -60..10_i32);
    parts.prop_map(|(is_negative, whole, power)| {
        let size = whole as f64 * 2_f64.powi(power);
        if is_negative { -size } else { size }
    })
}

fn spans() -> impl Strategy<Value = Spans> {
    (
        1..1_u64 << 40,
        1..1_u64 << 40,
        1..1_u64 << 40,
        1..1_u64 << 40,
    )
        .prop_map(|(first, second, third, last)| Spans {
            control_ns: [first, last],
            candidate_ns: [second, third],
        })
}

fn exchanged(spans: &Spans) -> Spans {
    Spans {
        control_ns: spans.candidate_ns,
        candidate_ns: spans.control_ns,
    }
}

fn exact(value: f64) -> Rational {
    Rational::of_binary64(value).expect("because its size is a figure's")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_number_is_its_own_fraction(left in figure(), right in figure()) {
        prop_assert_eq!(exact(left).to_binary64(), left);
        let order = left.partial_cmp(&right).expect("because both are numbers");
        prop_assert_eq!(exact(left).cmp(&exact(right)), order);
        prop_assert_eq!(exact(left).opposite().to_binary64(), -left);
        prop_assert_eq!(exact(left).size().to_binary64(), left.abs());
    }

    #[test]
    fn sums_of_fractions_round_as_sums_of_numbers(left in figure(), right in figure()) {
        // Sums of two numbers are rounded once, and so are exact sums that are rounded.
        let sum = exact(left).plus(exact(right));
        if let Some(sum) = sum {
            prop_assert_eq!(sum.to_binary64(), left + right);
            prop_assert_eq!(sum.minus(exact(right)), Some(exact(left)));
        }
        let half = exact(left).half().expect("because there is a bit left");
        prop_assert_eq!(half.plus(half), Some(exact(left)));
    }

    #[test]
    fn a_ceiling_is_the_least_whole_number_not_below(
        above in -10_000_i128..10_000,
        below in 1_i128..99,
    ) {
        let value = Rational::new(above, below).expect("because it is above zero");
        let ceiling = Rational::new(value.ceiling(), 1).expect("because 1 is above zero");
        let one_less = ceiling.minus(Rational::whole(1)).expect("because it is small");
        prop_assert!(one_less < value && value <= ceiling);
    }

    #[test]
    fn a_later_start_of_the_clock_changes_no_rate(
        gaps in prop::collection::vec((1_u64..1 << 30, 1_u64..9), 3..20),
        later in 0_u64..1 << 40,
    ) {
        let rates = |start: u64| {
            let mut at_ns = start;
            let bursts = gaps.iter().map(|(gap, tokens)| {
                at_ns += gap;
                Burst { at_ns, tokens: *tokens }
            });
            let bursts: Vec<Burst> = bursts.collect();
            let arrivals = Arrivals::of(start, at_ns + 1, &bursts);
            let arrivals = arrivals.expect("because the times rise");
            let k_first = gaps[0].1;
            [Window::InterToken { k_first }, Window::Steady, Window::EventsOverSpan, Window::Wall]
                .map(|window| arrivals.rate(window).expect("because of three bursts"))
        };
        let (now, then) = (rates(0), rates(later));
        for (left, right) in now.iter().zip(&then) {
            prop_assert_eq!(left.compare(right), Some(Ordering::Equal));
            prop_assert_eq!(left.counted(), right.counted());
        }
        prop_assert!(now[0].exact() < now[2].exact());
    }

    #[test]
    fn lists_part_where_the_first_change_is(
        mut ids in prop::collection::vec(any::<u32>(), 1..40),
        at in any::<prop::sample::Index>(),
    ) {
        let teacher = ids.clone();
        prop_assert_eq!(first_difference(&teacher, &ids), None);
        let index = at.index(ids.len());
        ids[index] ^= 1;
        let found = first_difference(&teacher, &ids).expect("because one id differs");
        prop_assert_eq!(found.index, index);
        prop_assert_eq!((found.expected, found.actual), (Some(teacher[index]), Some(ids[index])));
        ids.truncate(index);
        let found = first_difference(&teacher, &ids).expect("because one is shorter");
        prop_assert_eq!((found.index, found.actual), (index, None));
    }

    #[test]
    fn tails_of_signed_ranks_hold_all_outcomes(values in prop::collection::vec(-9_i64..9, 0..12)) {
        let values: Vec<Rational> = values.into_iter().map(Rational::whole).collect();
        let opposite: Vec<Rational> = values.iter().map(|value| value.opposite()).collect();
        let test = signed_rank(&values).expect("because they are few");
        let other = signed_rank(&opposite).expect("because they are few");
        prop_assert_eq!(test.two_sided, other.two_sided);
        prop_assert!(test.one_sided + other.one_sided >= 1.0);
        prop_assert!(test.one_sided > 0.0 && test.two_sided <= 1.0);
    }
}

// Each case is two bootstraps.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn arms_exchanged_lose_what_they_won(
        blocks in prop::collection::vec(spans(), 1..6),
        cycles in 1..1_u64 << 32,
    ) {
        let exchanged: Vec<Spans> = blocks.iter().map(exchanged).collect();
        let paired = Paired::of(cycles, &blocks).expect("because the spans are small");
        let other = Paired::of(cycles, &exchanged).expect("because the spans are small");
        prop_assert_eq!((paired.wins, paired.losses), (other.losses, other.wins));
        prop_assert_eq!(paired.median, other.median.opposite());
        prop_assert_eq!(paired.hodges_lehmann, other.hodges_lehmann.opposite());
        prop_assert_eq!(paired.sign.two_sided, other.sign.two_sided);
        prop_assert!(paired.bootstrap_lower_95 <= paired.median);
        prop_assert!(other.bootstrap_lower_95 <= other.median);
    }
}
