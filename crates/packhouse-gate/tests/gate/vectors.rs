//! Published figures of the reference lab, made again to the last bit that was published.

use crate::failures::TWO_CONTROLS;
use packhouse_base::Blame;
use packhouse_gate::blocks::{Noise, Paired, Spans};
use packhouse_gate::bootstrap::{SEED, Statistic, hierarchical_lower_95};
use packhouse_gate::crossover::{Control, ControlNoise};
use packhouse_gate::random::Xoshiro;
use packhouse_gate::rate::{Arrivals, Burst, Window};
use packhouse_gate::recorded::{
    NoFigure, agrees, converted, cycle_ms, is_reproduced, reproduction_floor, response_rates, rise,
    window_rates,
};
use packhouse_gate::sign::{least_attainable, sign_test};
use packhouse_gate::speculation::{Counters, Speculation};
use packhouse_gate::suite::{Summary, median};
use packhouse_gate::text::shortest;

/// Row 0 of the record: the first and the hundredth token, in seconds.
const FIRST: f64 = 10.328412583003228;
const HUNDREDTH: f64 = 22.82249498800229;
/// From its first token to its second.
const STALL: f64 = 11.430783651998354;

/// The nearest whole nanosecond.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// What is published with a number of digits.
fn digits(value: f64, places: usize) -> String {
    format!("{value:.places$}")
}

#[test]
fn row_0_of_the_record_has_both_its_rates_to_the_last_bit() {
    let mut offsets = vec![FIRST + STALL; 100];
    offsets[0] = FIRST;
    offsets[99] = HUNDREDTH;
    let rates = window_rates(&offsets, 100).expect("because there are 100 tokens");
    assert_eq!(rates.events_over_span, 8.003789054567829);
    assert_eq!(rates.inter_token, 7.923751164022152);
    assert_eq!((rates.events, rates.intervals), (100, 99));
    assert!(agrees(rates.inter_token, 7.923751164022152 + 9e-13));
    assert!(!agrees(rates.inter_token, 7.923751164022152 + 1.1e-12));
    let [first, second, hundredth] = [FIRST, FIRST + STALL, HUNDREDTH].map(nanoseconds);
    let bursts = [(first, 1), (second, 98), (hundredth, 1)];
    let bursts = bursts.map(|(at_ns, tokens)| Burst { at_ns, tokens });
    let arrivals = Arrivals::of(0, 25_466_613_150, &bursts).expect("because the times rise");
    let stall = arrivals.first_gap().expect("because there are two bursts");
    assert_eq!(stall.count(), 11_430_783_652);
    assert_eq!(digits(rates.span, 4), "12.4941");
    assert_eq!(digits(100.0 * STALL / rates.span, 1), "91.5");

    let rates = response_rates(512, 25.46661315000165, 15.138200566998421);
    let rates = rates.expect("because the spans are above zero");
    assert_eq!(rates.wall, 20.10475429081416);
    assert_eq!(rates.full_after_first, 33.82172126297297);
    assert_eq!(rates.full_inter_token, 33.75566321363123);
}

/// Whatever had no rate had none without a word: each cause has its own now.
#[test]
fn a_window_without_a_span_or_with_one_token_says_why_it_has_no_rate() {
    let offsets = [1.0, 1.0, 3.0];
    let said = |offsets: &[f64], events| {
        let none = window_rates(offsets, events);
        none.expect_err("because it has none").to_string()
    };
    for events in [0, 1] {
        let expected = format!("{events} events have no interval between them");
        assert_eq!(said(&offsets, events), expected);
    }
    assert_eq!(
        said(&offsets, 2),
        "the span is 0, expected a number above 0"
    );
    assert_eq!(said(&offsets, 4), "there are 3 offsets for 4 events");
    assert_eq!(said(&[], 2), "there are 0 offsets for 2 events");
    assert_eq!(
        said(&[f64::NAN, 2.0], 2),
        "the span is NaN, expected a number above 0"
    );
    assert_eq!(
        said(&[0.0, 5e-324], 2),
        "the rate is inf, expected a number above 0"
    );
    assert!(window_rates(&[0.0, f64::INFINITY], 2).is_err());
    assert!(window_rates(&offsets, 3).is_ok());
    let said = |tokens, elapsed, after_first| {
        let none = response_rates(tokens, elapsed, after_first);
        none.expect_err("because it has none").to_string()
    };
    assert_eq!(said(0, 1.0, 1.0), "there is no token");
    assert_eq!(
        said(5, 1.0, 0.0),
        "the time after the first token is 0, expected a number above 0"
    );
    assert_eq!(
        said(5, 1.0, 1.5),
        "1.5 s after the first token are more than 1 s for all"
    );
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(said(5, seconds, 1.0).starts_with("the whole time is "));
        assert!(said(5, 1.0, seconds).starts_with("the time after the first token is "));
        let none = cycle_ms(seconds, 5).expect_err("because it has none");
        assert!(none.to_string().starts_with("the decode time is "));
    }
    assert!(response_rates(5, 1.0, 1.0).is_ok());
    assert_eq!(
        cycle_ms(1.0, 0),
        Err(NoFigure::Nothing { counted: "cycle" })
    );
    assert_eq!(cycle_ms(0.25, 4), Ok(62.5));
    assert_eq!(NoFigure::Events { events: 1 }.blame(), Blame::Caller);
}

/// Above 2^53 a count was rounded before anything was divided by it.
#[test]
fn a_count_that_binary64_would_round_is_refused_by_name() {
    let most = 1_u64 << 53;
    let rates = response_rates(most, 2.0, 1.0).expect("because it is not rounded");
    assert_eq!(rates.wall, 2_f64.powi(52));
    assert_eq!(rates.full_inter_token, 9_007_199_254_740_991.0);
    let said = |none: NoFigure| none.to_string();
    let more = "are 9007199254740993, at most 2^53 are taken";
    let tokens = response_rates(most + 1, 2.0, 1.0).expect_err("because it would be");
    assert_eq!(said(tokens), format!("tokens {more}"));
    let cycles = cycle_ms(1.0, most + 1).expect_err("because it would be");
    assert_eq!(said(cycles), format!("cycles {more}"));
    let events = converted(1.0, most + 1).expect_err("because it would be");
    assert_eq!(said(events), format!("events {more}"));
}

/// A counter that fell by less than was rounded away counted as one that stood still.
#[test]
fn a_counter_that_fell_by_however_little_has_no_rise() {
    assert_eq!(rise(0.0, 3.0), Ok(3));
    assert_eq!(rise(2.5, 2.5), Ok(0));
    assert_eq!(rise(0.0, 3.000_000_9), Ok(3));
    for (before, after) in [
        (3.0, 2.0),
        (5.0, 4.999_999_9),
        (0.0, -1e-6),
        (f64::NAN, 1.0),
        (f64::INFINITY, f64::INFINITY),
    ] {
        let none = rise(before, after).expect_err("because it fell");
        let said = format!("a counter went from {before} to {after}");
        assert_eq!(none.to_string(), said);
    }
    for (after, rose) in [
        (0.5, "0.5"),
        (f64::INFINITY, "inf"),
        (1e16, "10000000000000000"),
    ] {
        let none = rise(0.0, after).expect_err("because it is no count");
        let said = format!("a counter rose by {rose}, which is no count");
        assert_eq!(none.to_string(), said);
    }
}

/// The floor of a reproduction was in no function, so nobody could be held to it.
#[test]
fn a_reproduction_reaches_95_percent_of_the_sealed_conventional_median() {
    let sealed = 101.94172124017027;
    assert_eq!(reproduction_floor(sealed), Ok(96.84463517816175));
    assert_eq!(is_reproduced(sealed, 96.84463517816175), Ok(true));
    let below = 96.84463517816175_f64.next_down();
    assert_eq!(is_reproduced(sealed, below), Ok(false));
    assert_eq!(is_reproduced(sealed, sealed), Ok(true));
    for (sealed, measured) in [
        (0.0, 1.0),
        (f64::NAN, 1.0),
        (1.0, f64::INFINITY),
        (1.0, -1.0),
    ] {
        assert!(is_reproduced(sealed, measured).is_err());
    }
}

/// The same row in nanoseconds: the stall of first use hides a steady rate ten times as high.
#[test]
fn the_first_use_of_row_0_hid_ninety_two_tokens_per_second() {
    let first = 10_328_412_583;
    let second = first + 11_430_783_652;
    let last = 22_822_494_988;
    let mut at_ns: Vec<u64> = (0..98).map(|i| second + (last - second) * i / 97).collect();
    at_ns.push(last);
    at_ns.insert(0, first);
    let arrivals = Arrivals::of_tokens(0, 25_466_613_150, &at_ns[..100]);
    let arrivals = arrivals.expect("because the times rise");
    assert_eq!(arrivals.tokens().count(), 100 - 1 + 1);
    let gap = arrivals.first_gap().expect("because there are two bursts");
    assert_eq!(gap.count(), 11_430_783_652);
    let steady = arrivals
        .rate(Window::Steady)
        .expect("because there are three");
    assert_eq!(digits(steady.per_second(), 0), "92");
    let hidden = arrivals.rate(Window::InterToken { k_first: 1 });
    assert_eq!(
        digits(hidden.expect("because there are two").per_second(), 2),
        "7.92"
    );
}

fn record_counters() -> Counters {
    Counters {
        requests: 13,
        cycles: 1609,
        depth: 11,
        drafted: 17699,
        accepted: 4747,
        positions: vec![1171, 847, 631, 497, 397, 328, 248, 204, 172, 140, 112],
    }
}

#[test]
fn the_records_counters_and_its_delivered_tokens_are_two_figures() {
    let record = Speculation::of(record_counters(), 13, 6354);
    let record = record.expect("because the published counters agree");
    assert_eq!(record.acceptance(), 0.26820724334708174);
    assert_eq!(record.mean_accepted(), 2.950279676817899);
    assert_eq!(digits(record.emitted_by_counters(), 6), "3.950280");
    assert_eq!(digits(record.emitted_by_delivery(), 6), "3.940957");
    assert_eq!(record.overrun(), 15);
    let survival = record.survival();
    let shown: Vec<String> = survival.iter().map(|share| digits(*share, 6)).collect();
    let published = "0.727781 0.526414 0.392169 0.308888 0.246737 0.203853 0.154133 0.126787 \
                     0.106899 0.087011 0.069608";
    assert_eq!(shown.join(" "), published);
    let conditional = record.conditional();
    assert_eq!(conditional[0], Some(survival[0]));
    assert_eq!(conditional[1], Some(survival[1] / survival[0]));
}

#[test]
fn the_first_matched_draft_survives_as_published() {
    let counters = Counters {
        requests: 1,
        cycles: 279,
        depth: 7,
        drafted: 279 * 7,
        accepted: 953,
        positions: vec![234, 187, 142, 121, 104, 86, 79],
    };
    let emitted = 953 + 279 + 1;
    let draft = Speculation::of(counters, 1, emitted).expect("because they agree");
    let survival = draft.survival();
    let shown: Vec<String> = survival
        .iter()
        .map(|share| digits(100.0 * share, 3))
        .collect();
    let percents = [
        "83.871", "67.025", "50.896", "43.369", "37.276", "30.824", "28.315",
    ];
    assert_eq!(shown, percents);
    assert_eq!(digits(draft.mean_accepted(), 6), "3.415771");
}

#[test]
fn the_suites_tokens_add_up() {
    let prompts = [
        90, 132, 110, 102, 112, 89, 149, 111, 125, 140, 229, 112, 863_u32,
    ];
    assert_eq!(prompts.iter().sum::<u32>(), 2364);
    let values: Vec<f64> = prompts.iter().map(|count| f64::from(*count)).collect();
    assert_eq!(median(&values), Ok(112.0));
    let summary = Summary::of(&values).expect("because they are usual");
    assert_eq!(summary.mean, 2364.0 / 13.0);
    assert_eq!((summary.min, summary.max, summary.count), (89.0, 863.0, 13));
    // What the thirteen delivered: their sum is what the record's counters are held against.
    let mut outputs = vec![512_u32; 10];
    outputs.extend([296, 426, 512]);
    let delivered: u32 = outputs.iter().sum();
    let values: Vec<f64> = outputs.iter().map(|count| f64::from(*count)).collect();
    assert_eq!((delivered, median(&values)), (6354, Ok(512.0)));
    let record = Speculation::of(record_counters(), 13, u64::from(delivered));
    assert_eq!(record.map(|record| record.overrun()), Ok(15));
}

#[test]
fn the_ladder_of_records_rises_and_converts() {
    let ladder = [
        33.085825,
        33.267564,
        33.438926675602126,
        33.89498511171744,
        92.16352215694299,
        94.92003934159611,
        102.97143559613157,
    ];
    assert!(ladder.is_sorted_by(|lower, higher| lower < higher));
    let conventional = 101.94172124017027;
    assert_eq!(converted(ladder[6], 100), Ok(conventional));
    for none in [
        converted(5.0, 0),
        converted(5.0, 1),
        converted(0.0, 9),
        converted(f64::NAN, 9),
    ] {
        assert!(none.is_err(), "{none:?}");
    }
    assert_eq!(digits(102.0 - conventional, 14), "0.05827875982973");
    let later = [124.64241272122038, 125.4619731637751];
    assert!(later.iter().all(|figure| *figure > conventional));
}

#[test]
fn two_controls_of_one_crossover_differ_by_more_than_its_gates() {
    let controls = ControlNoise::of(&[TWO_CONTROLS]);
    let noise = controls
        .expect("because they are above zero")
        .expect("because there is a pair");
    assert_eq!(digits(noise.absolute, 6), "1.768777");
    assert_eq!(digits(noise.percent, 2), "5.67");
    assert_eq!(ControlNoise::of(&[]), Ok(None));
    assert_eq!(digits(noise.cycle_ms, 6), "0.949366");
    let quieter = |low, high| {
        [low, high].map(|headline| Control {
            headline,
            cycle_ms: 93.0,
        })
    };
    let [first, second] = TWO_CONTROLS;
    let several = [quieter(100.0, 101.0), [second, first], quieter(50.0, 50.0)];
    let several = ControlNoise::of(&several).expect("because they are above zero");
    assert_eq!(several, Some(noise));
}

#[test]
fn the_coins_word_on_rows_and_blocks_is_as_published() {
    let two_sided = |wins, losses| sign_test(wins, losses).expect("because few").two_sided;
    assert_eq!(two_sided(10, 3), 0.09228515625);
    assert_eq!(digits(two_sided(10, 3), 3), "0.092");
    assert_eq!(digits(two_sided(11, 2), 3), "0.022");
    assert_eq!(digits(two_sided(12, 1), 4), "0.0034");
    assert_eq!(digits(two_sided(13, 0), 5), "0.00024");
    assert!(two_sided(31, 0) < 1e-9);
    assert_eq!(two_sided(0, 13), two_sided(13, 0));
    assert_eq!(two_sided(0, 0), 1.0);
    for (wins, losses) in [(999, 2), (u64::MAX, 2)] {
        let none = sign_test(wins, losses).expect_err("because they are many");
        let said = format!("{wins} wins and {losses} losses are more than 1000 pairs");
        assert_eq!(none.to_string(), said);
        assert_eq!(none.blame(), Blame::Caller);
    }
    // Shown in digits alone, however small, and by the even one of two that are equally near.
    let shown = |wins, losses| shortest(two_sided(wins, losses));
    assert_eq!(shown(31, 0), "0.0000000009313225746154785");
    assert_eq!(shown(26, 0), "0.000000029802322387695312");
    assert_eq!(shown(18, 5), "0.010622024536132812");
}

#[test]
fn few_starts_have_a_least_probability() {
    let least = |starts| {
        let least = least_attainable(starts, starts).expect("because it is small");
        least.to_string()
    };
    assert_eq!([2, 3, 4].map(least), ["1/6", "1/20", "1/70"]);
    for (control, candidate) in [(1000, 1000), (u64::MAX, 1), (65, 66)] {
        let none = least_attainable(control, candidate).expect_err("because they are many");
        let said = format!("{control} and {candidate} units can be chosen in more than 2^127 ways");
        assert_eq!(none.to_string(), said);
    }
    // Products on the way to 2^127 ways were above it: there were none from some 2^120 on.
    let most = least_attainable(64, 64).expect("because C(128, 64) is below 2^125");
    assert_eq!(
        most.denominator(),
        23_951_146_041_928_082_866_135_587_776_380_551_750
    );
    let wide = least_attainable(1 << 60, 2).expect("because it is below 2^119");
    assert_eq!(
        wide.denominator(),
        ((1_i128 << 60) + 2) * ((1 << 60) + 1) / 2
    );
}

/// A shared gate won 31 of 31 blocks at 0.120856 ms and was refused: both thresholds count.
#[test]
fn thirty_one_wins_do_not_make_up_for_a_median_below_the_gate() {
    let block = |saving: u64| Spans {
        control_ns: [10_000_000 + 2 * 64 * saving, 10_000_000],
        candidate_ns: [10_000_000; 2],
    };
    let blocks: Vec<Spans> = (0..31).map(|index| block(120_841 + index)).collect();
    let paired = Paired::of(64, &blocks).expect("because there are blocks");
    assert_eq!((paired.wins, paired.losses), (31, 0));
    assert_eq!(paired.median.to_string(), "120856");
    assert!(!paired.meets(28, 150_000));
    assert!(paired.meets(31, 120_856));
    assert!(!paired.meets(32, 120_856));
    assert!(!paired.meets(31, 120_857));
}

/// The vectors of section 12 of the page.
#[test]
fn the_pages_vectors_are_current() {
    let draws = |seed| {
        let mut random = Xoshiro::seeded(seed);
        let words: [u64; 8] = std::array::from_fn(|_| random.word());
        let below: [u64; 8] = std::array::from_fn(|_| random.below(31));
        format!(
            "{}, {}, {}, {} | {below:?}",
            words[0], words[1], words[2], words[3]
        )
    };
    let page = include_str!("../../../../docs/format/statistics.md");
    for (name, seed) in [("0", 0), ("0x7061636b686f7573", SEED)] {
        let row = format!("| {name} | {} |\n", draws(seed).replace(['[', ']'], ""));
        assert!(page.contains(&row), "{row}");
    }
    let spans = |[a1, b1, b2, a2]: [u64; 4]| Spans {
        control_ns: [a1, a2],
        candidate_ns: [b1, b2],
    };
    let blocks = [
        [1040, 900, 910, 1047],
        [1010, 1000, 1003, 1004],
        [1001, 980, 985, 1012],
        [1000, 1031, 999, 1000],
        [1020, 990, 970, 1007],
        [1011, 1001, 1004, 1011],
    ];
    let paired = Paired::of(7, &blocks.map(spans)).expect("because there are blocks");
    let figures = [
        paired.median,
        paired.hodges_lehmann,
        paired.bootstrap_lower_95,
    ];
    assert_eq!(
        figures.map(|it| it.to_string()),
        ["65/28", "39/14", "-13/28"]
    );
    assert_eq!(
        (paired.wins, paired.losses, paired.sign.two_sided),
        (5, 1, 0.21875)
    );
    let controls = [
        [1000, 1010, 990, 1005],
        [1003, 1001, 1000, 1004],
        [990, 1000, 1008, 997],
        [1004, 1004, 1001, 1001],
        [995, 999, 1003, 1013],
    ];
    let noise = Noise::of(7, &controls.map(spans)).expect("because there are blocks");
    let figures = [noise.floor, noise.detectable].map(|it| it.to_string());
    assert_eq!(
        (figures, noise.detectable_ns()),
        (["3/7".into(), "11/14".into()], 1)
    );
    let starts = [vec![1.5, -0.25, 2.0], vec![0.5, 1.0, 3.25]];
    let bound = |statistic| hierarchical_lower_95(&starts, statistic);
    assert_eq!(bound(Statistic::Median), Ok(0.375));
    assert_eq!(bound(Statistic::Mean), Ok(0.5833333333333334));
}
