//! Failures of the reference lab that can't happen again: fragile headlines, gates below the noise,
//! and rates that count one interval too many.

use crate::crossovers::{METADATA, beside_quiet_controls, leg};
use packhouse_gate::blocks::{Noise, Spans};
use packhouse_gate::bootstrap::{Statistic, hierarchical_lower_95};
use packhouse_gate::crossover::{
    Bound, Control, ControlNoise, Disposition, Gate, Leg, Misjudged, Pair, Thresholds, judge,
};
use packhouse_gate::random::Xoshiro;
use packhouse_gate::rate::{Arrivals, Burst, NoRate, Window};
use packhouse_gate::rational::Rational;
use packhouse_gate::recorded::window_rates;
use packhouse_gate::sequential::{Look, Plan};
use packhouse_gate::sign::{least_attainable, sign_test};
use packhouse_gate::speculation::{Counters, Speculation};
use packhouse_gate::suite::median;

/// A router kernel won 10 of 13 rows and 0.71 % in the paired median, and lost the headline by
/// 1.9985 % because the median row alone did. Ten of thirteen is a coin's work too.
#[test]
fn a_headline_of_one_row_and_ten_wins_are_both_shown_and_neither_is_called_significant() {
    let rates = [
        20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 31.0, 40.0, 41.0, 42.0, 43.0, 44.0, 45.0,
    ];
    let mut better = rates.map(|rate| rate * 1.0071);
    better[6] = rates[6] * (1.0 - 0.019985);
    better[0] = rates[0] * 0.99;
    better[12] = rates[12] * 0.99;
    let headline = |rates: &[f64]| median(rates).expect("because there are rows");
    let control = leg(headline(&rates), &rates);
    let candidate = Leg {
        cycle_ms: 91.9699,
        ..leg(headline(&better), &better)
    };
    let pair = Pair::of(&control, &candidate).expect("because they are a pair");
    assert_eq!((pair.wins, pair.losses), (10, 3));
    assert_eq!(format!("{:.4}", pair.headline_percent), "-1.9985");
    assert_eq!(format!("{:.2}", pair.median_percent), "0.71");
    assert_eq!(format!("{:.4}", pair.cycle_saving_ms), "1.0301");
    assert!(pair.sign.two_sided > 0.09);
    let thresholds = Thresholds {
        record: 31.0,
        ..METADATA
    };
    let judged = judge(
        &beside_quiet_controls(&thresholds),
        [&control, &candidate],
        None,
    );
    let judged = judged.expect("because they are a pair");
    assert_eq!(judged.disposition, Disposition::PhaseOneStop);
    let listed: Vec<(Gate, bool)> = judged
        .outcomes
        .iter()
        .map(|outcome| (outcome.gate, outcome.passed))
        .collect();
    assert_eq!(
        listed,
        [
            (Gate::Quality, true),
            (Gate::Headline, false),
            (Gate::RowWins, true),
            (Gate::MedianPercent, true),
            (Gate::CycleSaving, true),
            (Gate::Work, true),
            (Gate::ControlHealth, true),
        ]
    );
}

/// Headlines and cycles of the two controls of one published crossover.
pub(crate) const TWO_CONTROLS: [Control; 2] = [
    Control {
        headline: 32.942323,
        cycle_ms: 92.960307,
    },
    Control {
        headline: 31.173546,
        cycle_ms: 93.909673,
    },
];

/// Gates of 0.25 % and of "faster at all" were asked where two controls differed by 5.67 %.
#[test]
fn a_gate_below_what_two_controls_differ_by_is_refused() {
    let noise = ControlNoise::of(&[TWO_CONTROLS]);
    let noise = noise
        .expect("because they are above zero")
        .expect("because there is a pair");
    let said = |thresholds: &Thresholds| {
        let refused = thresholds
            .detectable(&noise)
            .expect_err("because it is below");
        refused.to_string()
    };
    let noise_percent = noise.percent;
    assert!(said(&METADATA).starts_with("the headline gate asks for 0.2499999999999"));
    assert!(said(&METADATA).ends_with(&format!("controls differ by {noise_percent} %")));
    let headline = Thresholds {
        headline_ratio: Bound::AtLeast(1.06),
        ..METADATA
    };
    assert_eq!(
        said(&headline),
        format!("the median-percent gate asks for 0.25 %, controls differ by {noise_percent} %")
    );
    let wide = Thresholds {
        median_percent: Bound::AtLeast(5.7),
        ..headline
    };
    let saving = Thresholds {
        cycle_saving_ms: Bound::AtLeast(0.94),
        ..wide
    };
    assert_eq!(
        said(&saving),
        format!(
            "the cycle-saving gate asks for 0.94 ms, controls differ by {} ms",
            noise.cycle_ms
        )
    );
    let above = Thresholds {
        cycle_saving_ms: Bound::AtLeast(0.95),
        ..wide
    };
    assert!(above.detectable(&noise).is_ok());
    let none = Thresholds {
        median_percent: Bound::Above(f64::NAN),
        ..headline
    };
    assert_eq!(
        said(&none),
        "the median-percent gate: median_percent is NaN, expected a number"
    );
}

/// Blocks in which both arms are the control: the detectable effect is taken from them, and it is
/// more than the median that such blocks show.
#[test]
fn the_detectable_effect_comes_from_control_control_blocks() {
    let mut random = Xoshiro::seeded(9);
    let mut span = || 100_000 + random.below(2_000);
    let mut blocks = |count: usize| -> Vec<Spans> {
        let mut block = || Spans {
            control_ns: [span(), span()],
            candidate_ns: [span(), span()],
        };
        (0..count).map(|_| block()).collect()
    };
    let few = Noise::of(10, &blocks(5)).expect("because there are blocks");
    let many = Noise::of(10, &blocks(101)).expect("because there are blocks");
    assert!(Rational::ZERO < many.floor && many.floor < many.detectable);
    assert!(many.detectable < few.detectable);
    assert!(many.detectable_ns() > 0);
    assert!(
        Rational::whole(i64::try_from(many.detectable_ns()).expect("small")) >= many.detectable
    );
}

#[test]
fn two_starts_of_each_arm_cannot_give_a_probability_below_a_sixth() {
    let sixth = least_attainable(2, 2).expect("because it is small");
    assert_eq!(sixth.to_binary64(), 1.0 / 6.0);
    assert!(sixth.to_binary64() > 0.05);
    let more = least_attainable(4, 4).expect("because it is small");
    assert!(more.to_binary64() < 0.05);
}

/// A record came from one leg whose own identity said that it was no record leg.
#[test]
fn one_pair_of_legs_is_never_a_record_and_the_higher_start_is_never_published() {
    let control = leg(33.0, &[33.0; 13]);
    let at = |headline| Leg {
        cycle_ms: 92.0,
        ..leg(headline, &[34.0; 13])
    };
    let (b1, b2) = (at(90.0), at(34.0));
    let thresholds = beside_quiet_controls(&METADATA);
    let one = judge(&thresholds, [&control, &b1], None).expect("because they are a pair");
    assert_eq!(one.disposition, Disposition::PhaseOnePassed);
    assert!(
        one.outcomes
            .iter()
            .all(|outcome| outcome.gate != Gate::Floor)
    );
    let all = judge(&thresholds, [&control, &b1], Some([&b2, &control]));
    let publishable = all.expect("because they are pairs").disposition;
    assert_eq!(
        publishable,
        Disposition::RecordCandidate { publishable: 34.0 }
    );
}

#[test]
fn a_second_pair_after_a_first_that_failed_is_refused() {
    let control = leg(33.0, &[33.0; 13]);
    let slower = leg(32.0, &[34.0; 13]);
    let thresholds = beside_quiet_controls(&METADATA);
    let refused = judge(&thresholds, [&control, &slower], Some([&slower, &control]));
    let refused = refused.expect_err("because the first pair failed");
    assert_eq!(
        refused,
        Misjudged::RunAfterStop {
            gate: Gate::Headline
        }
    );
    let said = "the first pair failed at headline, and a second was run";
    assert_eq!(refused.to_string(), said);
}

/// Collecting pairs until it looks good passes a candidate that is no better far more often than
/// the one look that was declared; stopping early for failure alone never does.
#[test]
fn looking_until_it_looks_good_is_counted_and_stopping_for_failure_is_free() {
    let look = |pairs, fails_below, passes_at| Look {
        pairs,
        fails_below,
        passes_at,
    };
    let exact = |looks: &[Look]| {
        Plan::of(looks)
            .expect("because the last decides")
            .false_pass()
    };
    let once = exact(&[look(20, 15, Some(15))]);
    assert!(once.to_binary64() < 0.05);
    // After every pair, whatever is below 5 % by itself.
    let unlikely = |pairs: u64, wins: u64| {
        let test = sign_test(wins, pairs - wins).expect("because few");
        test.one_sided < 0.05
    };
    let at = |pairs: u64| (0..=pairs).find(|wins| unlikely(pairs, *wins));
    let mut peeking: Vec<Look> = (5..20).map(|pairs| look(pairs, 0, at(pairs))).collect();
    peeking.push(look(20, 15, Some(15)));
    assert_eq!(format!("{:.3}", exact(&peeking).to_binary64()), "0.099");
    let futile = exact(&[look(8, 4, None), look(14, 10, None), look(20, 15, Some(15))]);
    assert!(futile < once);
}

/// The lower bound is of starts and rows together; more rows of the same two starts don't make up
/// for starts that disagree.
#[test]
fn rows_do_not_make_up_for_starts_that_disagree() {
    let bound = |starts: &[Vec<f64>]| {
        let bound = hierarchical_lower_95(starts, Statistic::Mean);
        bound.expect("because there are rows")
    };
    let disagreeing = vec![vec![7.0; 13], vec![-2.0; 13]];
    assert_eq!(bound(&disagreeing), -2.0);
    let pooled = vec![disagreeing.concat()];
    assert!(bound(&pooled) > 0.0);
}

/// For a month every lane divided N tokens by the span of N - 1 intervals.
#[test]
fn n_tokens_over_n_minus_one_intervals_is_never_an_inter_token_rate() {
    let at_ns: Vec<u64> = (0..100)
        .map(|index| 1_000_000_000 + index * 10_000_000)
        .collect();
    let arrivals = Arrivals::of_tokens(0, 2_000_000_000, &at_ns).expect("because they rise");
    let inter = arrivals.rate(Window::InterToken { k_first: 1 });
    let inter = inter.expect("because there are two");
    assert_eq!(inter.per_second(), 100.0);
    let legacy = arrivals
        .rate(Window::EventsOverSpan)
        .expect("because there are two");
    assert_eq!((legacy.counted(), inter.counted()), (100, 99));
    assert_eq!(legacy.window().name(), "events-over-span");
    assert_eq!(legacy.exact().to_string(), "10000/99");
    assert_eq!(inter.compare(&legacy), None);
    // The same from times that others recorded.
    let offsets: Vec<f64> = (0..100).map(|index| f64::from(index) / 128.0).collect();
    let rates = window_rates(&offsets, 100).expect("because there are 100");
    assert_eq!(rates.inter_token, 128.0);
    assert_eq!(rates.events_over_span, 100.0 / (99.0 / 128.0));
}

/// Eight tokens in one chunk share its time: a window that begins there counts none of the eight.
#[test]
fn tokens_of_the_first_burst_are_not_counted_over_the_time_after_it() {
    let burst = |at_ns, tokens| Burst { at_ns, tokens };
    let bursts = [burst(1_000, 8), burst(2_000, 8), burst(3_000, 8)];
    let arrivals = Arrivals::of(0, 4_000, &bursts).expect("because they are in order");
    let rate = arrivals.rate(Window::InterToken { k_first: 8 });
    assert_eq!(
        rate.expect("because there are two").per_second(),
        16.0 / 2e-6
    );
    let pretended = arrivals.rate(Window::InterToken { k_first: 1 });
    assert_eq!(
        pretended,
        Err(NoRate::First {
            declared: 1,
            actual: 8
        })
    );
}

/// One stall of first use was 91.5 % of a window, and the suite's median hid it.
#[test]
fn a_stall_of_first_use_is_a_figure_of_its_own() {
    let mut at_ns = vec![1_000_000_000, 11_000_000_000];
    at_ns.extend((1..=98).map(|index| 11_000_000_000 + index * 10_000_000));
    let arrivals = Arrivals::of_tokens(0, 13_000_000_000, &at_ns).expect("because they rise");
    let stall = arrivals.first_gap().expect("because there are two bursts");
    let first = arrivals.to_first().expect("because there is one");
    assert_eq!(
        (stall.count(), first.count()),
        (10_000_000_000, 1_000_000_000)
    );
    let rate = |window| {
        arrivals
            .rate(window)
            .expect("because there are three")
            .per_second()
    };
    assert_eq!(rate(Window::Steady), 100.0);
    assert!(rate(Window::InterToken { k_first: 1 }) < 10.0);
    assert!(rate(Window::Wall) < 8.0);
}

/// Tokens per cycle came from counters alone, though fifteen verified tokens were never delivered.
#[test]
fn tokens_per_cycle_are_of_delivered_tokens() {
    let counters = Counters {
        requests: 2,
        cycles: 10,
        depth: 4,
        drafted: 40,
        accepted: 20,
        positions: vec![9, 6, 3, 2],
    };
    let draft = Speculation::of(counters.clone(), 2, 27).expect("because they agree");
    assert_eq!(draft.emitted_by_counters(), 3.0);
    assert_eq!(draft.emitted_by_delivery(), 2.5);
    assert_eq!(draft.overrun(), 5);
    let more = Speculation::of(counters, 2, 33).expect_err("because nobody emitted so many");
    assert_eq!(
        more.to_string(),
        "33 tokens were delivered, 32 were emitted"
    );
}
