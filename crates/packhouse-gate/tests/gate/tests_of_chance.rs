//! Bounds, tests and plans where what they give can be seen without a second implementation.

use packhouse_gate::blocks::{
    Noise, Paired, Spans, Unpaired, hodges_lehmann, median_lower_95, median_percent,
};
use packhouse_gate::bootstrap::{NothingDrawn, Statistic, hierarchical_lower_95};
use packhouse_gate::permutation::{Start, Unpermuted, permutation};
use packhouse_gate::rational::Rational;
use packhouse_gate::sequential::{Look, Plan, Step, Unplanned};
use packhouse_gate::suite::{NoSummary, Summary, class_balanced, percentile};
use packhouse_gate::wilcoxon::{Unranked, equivalence, shift_lower, signed_rank};

fn block(control: u64, candidate: u64) -> Spans {
    Spans {
        control_ns: [control, control],
        candidate_ns: [candidate, candidate],
    }
}

/// A-B-B-A: what drifts in proportion to time is in both arms alike.
#[test]
fn a_linear_drift_saves_nothing() {
    for drift in [1, 17, 9_000] {
        let spans = Spans {
            control_ns: [1_000_000, 1_000_000 + 3 * drift],
            candidate_ns: [1_000_000 + drift, 1_000_000 + 2 * drift],
        };
        let paired = Paired::of(8, &[spans]).expect("because there is a block");
        assert_eq!((paired.wins, paired.losses), (0, 0));
        assert_eq!(paired.savings, [Rational::ZERO]);
        assert_eq!(paired.sign.two_sided, 1.0);
    }
}

#[test]
fn a_win_is_more_than_nothing_and_a_tie_is_neither() {
    let blocks = [
        block(101, 100),
        block(100, 100),
        block(100, 101),
        block(102, 100),
    ];
    let paired = Paired::of(1, &blocks).expect("because there are blocks");
    assert_eq!((paired.wins, paired.losses), (2, 1));
    assert_eq!((paired.sign.wins, paired.sign.losses), (2, 1));
    assert_eq!(paired.median.to_string(), "1/2");
    assert_eq!(paired.savings[3].to_string(), "2");
    assert!(paired.meets(2, 0));
    assert!(!paired.meets(2, 1));
}

#[test]
fn bounds_of_blocks_that_all_save_the_same_are_that_saving() {
    let paired = Paired::of(3, &[block(1_010, 1_000); 31]).expect("because there are blocks");
    for figure in [
        paired.median,
        paired.hodges_lehmann,
        paired.bootstrap_lower_95,
    ] {
        assert_eq!(figure.to_string(), "10/3");
    }
    let noise = Noise::of(3, &[block(1_010, 1_000); 31]).expect("because there are blocks");
    assert!(noise.detectable >= noise.floor);
    let none = Noise::of(3, &[block(1_000, 1_000); 5]).expect("because there are blocks");
    assert_eq!((none.floor, none.detectable_ns()), (Rational::ZERO, 0));
}

/// A rehearsal has an analysis at hand, not the spans: savings alone say the same.
#[test]
fn noise_is_the_same_from_spans_and_from_their_savings() {
    let blocks = [
        block(1_007, 1_000),
        block(999, 1_004),
        block(1_003, 1_001),
        block(1_000, 1_000),
    ];
    let savings = Paired::of(6, &blocks)
        .expect("because there are blocks")
        .savings;
    assert_eq!(savings[0].denominator(), 6);
    assert_eq!(Noise::of_savings(&savings), Noise::of(6, &blocks));
    assert_eq!(Noise::of_savings(&[]), Err(Unpaired::Empty));
    let many = vec![Rational::ZERO; 1_001];
    assert_eq!(
        Noise::of_savings(&many),
        Err(Unpaired::TooMany { blocks: 1_001 })
    );
    // What is detectable was 0 where it was more than a gate can ask for, and every gate passed.
    let wild = [Rational::whole(i64::MAX), Rational::whole(i64::MIN)];
    let wild = wild.map(|value| value.plus(value).expect("because it is small"));
    let wild = Noise::of_savings(&wild).expect("because there are savings");
    assert!(wild.detectable > Rational::new(1 << 64, 1).expect("because 1 is above zero"));
    assert_eq!(wild.detectable_ns(), u64::MAX);
    let fine = [Rational::new(1, 3_i128.pow(60)), Rational::new(1, 1 << 100)];
    let fine = fine.map(|value| value.expect("because it is above zero"));
    assert_eq!(Noise::of_savings(&fine), Err(Unpaired::TooFine));
}

#[test]
fn one_wild_block_moves_no_bound_far() {
    let mut blocks = vec![block(1_010, 1_000); 31];
    blocks[7] = block(900_000_000, 1_000);
    let paired = Paired::of(1, &blocks).expect("because there are blocks");
    assert_eq!(paired.median.to_string(), "10");
    assert_eq!(paired.hodges_lehmann.to_string(), "10");
    assert_eq!(paired.bootstrap_lower_95.to_string(), "10");
}

#[test]
fn blocks_that_are_none_are_refused() {
    let said = |cycles, blocks: &[Spans]| {
        let paired = Paired::of(cycles, blocks).expect_err("because they are none");
        assert_eq!(Noise::of(cycles, blocks), Err(paired));
        paired.to_string()
    };
    let fine = block(5, 5);
    assert_eq!(said(1, &[]), "there is no block");
    assert_eq!(
        said(1, &[fine; 1_001]),
        "there are 1001 blocks, at most 1000 are taken"
    );
    assert_eq!(
        said(0, &[fine]),
        "a run has 0 cycles, expected 1 to 4294967296"
    );
    assert_eq!(
        said(4_294_967_297, &[fine]),
        "a run has 4294967297 cycles, expected 1 to 4294967296"
    );
    assert_eq!(
        said(1, &[fine, block(5, 0)]),
        "a run of block 1 took 0 ns, expected 1 to 4611686018427387904"
    );
    assert_eq!(
        said(1, &[block(u64::MAX, 5)]),
        "a run of block 0 took 18446744073709551615 ns, expected 1 to 4611686018427387904"
    );
    assert_eq!(Unpaired::Empty.blame(), packhouse_base::Blame::Caller);
    let most = block(1 << 62, 1);
    let paired = Paired::of(1 << 32, &[most, block(1, 1 << 62), most]);
    assert_eq!(paired.expect("because they are within bounds").wins, 2);
}

#[test]
fn rows_of_one_start_make_one_start() {
    let start = Start::of_rows(&[30.5, 31.5, 90.0, 31.0]).expect("because there are rows");
    assert_eq!(start.figure().to_string(), "125/4");
    let said = |rows: &[f64]| {
        let none = Start::of_rows(rows).expect_err("because it is none");
        none.to_string()
    };
    assert_eq!(said(&[]), "the start has no row");
    assert_eq!(said(&[1.0, f64::NAN]), "row 1 is NaN, expected a number");
    assert_eq!(
        said(&[1e-60]),
        format!("row 0 is {}, which needs more than 127 bits", 1e-60)
    );
    assert_eq!(
        said(&[2_f64.powi(-120), 2_f64.powi(60)]),
        "the mean of the middle two rows needs more than 127 bits"
    );
    let starts = |figures: &[f64]| -> Vec<Start> {
        let start = |figure: &f64| Start::of_rows(&[*figure; 13]).expect("because of rows");
        figures.iter().map(start).collect()
    };
    // Thirteen better rows each, and still two starts: 1/6 is the least that can come out.
    let test = permutation(&starts(&[30.0, 31.0]), &starts(&[40.0, 41.0]));
    let test = test.expect("because there are starts");
    assert_eq!(test.one_sided, 1.0 / 6.0);
    assert_eq!(test.two_sided, 1.0 / 3.0);
    assert_eq!(test.least_attainable.to_string(), "1/6");
    let empty = permutation(&[], &starts(&[1.0])).expect_err("because an arm is empty");
    let said = "0 starts of the control and 1 of the candidate: each needs one";
    assert_eq!(empty.to_string(), said);
    let many = permutation(&starts(&[1.0; 13]), &starts(&[1.0; 13]));
    assert_eq!(
        many,
        Err(Unpermuted::TooMany {
            control: 13,
            candidate: 13
        })
    );
    let many = permutation(&starts(&[1.0]), &starts(&[1.0; 65]));
    assert_eq!(
        many,
        Err(Unpermuted::TooMany {
            control: 1,
            candidate: 65
        })
    );
    let fine = permutation(&starts(&[2_f64.powi(-60)]), &starts(&[2_f64.powi(60)]));
    assert_eq!(fine, Err(Unpermuted::TooFine));
}

#[test]
fn differences_at_zero_and_at_the_most() {
    let whole = |values: &[i64]| -> Vec<Rational> {
        values.iter().map(|value| Rational::whole(*value)).collect()
    };
    let none = signed_rank(&whole(&[0, 0])).expect("because they are few");
    assert_eq!((none.pairs, none.one_sided, none.two_sided), (0, 1.0, 1.0));
    let all = signed_rank(&whole(&[3; 120])).expect("because 120 are taken");
    assert_eq!(all.one_sided, 2_f64.powi(-120));
    let many = Unranked::TooMany { differences: 121 };
    assert_eq!(signed_rank(&whole(&[3; 121])), Err(many));
    assert_eq!(
        many.to_string(),
        "there are 121 differences, at most 120 are taken"
    );
    let values = whole(&[1, -1, 2, 0, -2, 1, 0, -1]);
    let within = equivalence(&values, Rational::whole(5)).expect("because they are few");
    assert!(within.is_equivalent(0.05) && within.excludes_regression(0.05));
    // A gain that is certain is no equivalence, and no regression either.
    let gains = whole(&[9, 8, 9, 10, 11, 9, 8, 9]);
    let gain = equivalence(&gains, Rational::whole(5)).expect("because they are few");
    assert!(!gain.is_equivalent(0.05) && gain.excludes_regression(0.05));
    let none = equivalence(&gains, Rational::ZERO).expect_err("because there is no margin");
    assert_eq!(none.to_string(), "the margin is 0, expected one above 0");
    assert_eq!(
        equivalence(&whole(&[3; 121]), Rational::whole(1)),
        Err(many)
    );
    let fine = Rational::new(1, 1 << 100).expect("because it is above zero");
    let wide = Rational::new(1, 3_i128.pow(60)).expect("because it is above zero");
    let none = equivalence(&[Rational::whole(1), wide], fine).expect_err("because it is fine");
    assert_eq!(
        none.to_string(),
        "difference 1 and the margin need more than 127 bits together"
    );
}

/// The shift had a bound of the median beside it, and none of its own.
#[test]
fn a_shift_has_a_lower_bound_of_its_own_ranks() {
    let whole = |values: &[i64]| -> Vec<Rational> {
        values.iter().map(|value| Rational::whole(*value)).collect()
    };
    let twentieth = Rational::new(1, 20).expect("because 20 is above zero");
    let bound = |values: &[i64]| {
        let bound = shift_lower(&whole(values), twentieth).expect("because they are enough");
        (bound.lower.to_string(), bound.rank, bound.error.to_string())
    };
    // Ranks by tables of the test: 1 of 5, 3 of 6, 11 of 10, 22 of 13; errors by all signs.
    assert_eq!(bound(&[3, 1, 4, 1, 5]), ("1".into(), 1, "1/32".into()));
    assert_eq!(bound(&[1, 2, 3, 4, 5, 6]), ("2".into(), 3, "3/64".into()));
    let ten = bound(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(ten, ("7/2".into(), 11, "43/1024".into()));
    assert_eq!(bound(&[0; 13]), ("0".into(), 22, "193/4096".into()));
    let said = |values: &[i64], error| {
        let none = shift_lower(&whole(values), error).expect_err("because there is none");
        none.to_string()
    };
    assert_eq!(
        said(&[9, 9, 9, 9], twentieth),
        "4 differences are wrong at least 1 of 2^4 times, more than 1/20"
    );
    assert!(said(&[], twentieth).starts_with("0 differences are wrong"));
    for error in [Rational::ZERO, Rational::whole(1), Rational::whole(-1)] {
        let expected = format!("the rate of error is {error}, expected above 0 and below 1/2");
        assert_eq!(said(&[1; 9], error), expected);
    }
    assert!(said(&[1; 121], twentieth).starts_with("there are 121 differences"));
    let most = shift_lower(&whole(&[7; 120]), twentieth).expect("because 120 are taken");
    assert_eq!(most.lower, Rational::whole(7));
}

/// A difference that is not significant is no proof of none: that needs a margin, and enough pairs.
#[test]
fn no_regression_is_shown_by_a_margin_and_never_by_a_large_p() {
    let few = [Rational::whole(-4), Rational::whole(3), Rational::whole(1)];
    let difference = signed_rank(&few).expect("because they are few");
    assert!(difference.two_sided > 0.5);
    let within = equivalence(&few, Rational::whole(5)).expect("because they are few");
    assert!(!within.excludes_regression(0.05));
}

#[test]
fn hierarchical_bounds_are_below_the_figure_and_need_rows() {
    let starts = vec![vec![1.0, 2.0, 3.0], vec![2.0, 3.0, 4.0]];
    for statistic in [Statistic::Mean, Statistic::Median] {
        let lower = hierarchical_lower_95(&starts, statistic);
        let lower = lower.expect("because there are rows");
        assert!((1.0..2.5).contains(&lower), "{lower}");
        let same = hierarchical_lower_95(&[vec![0.5; 4], vec![0.5; 4]], statistic);
        assert_eq!(same, Ok(0.5));
    }
    let none = |starts: &[Vec<f64>]| hierarchical_lower_95(starts, Statistic::Mean);
    assert_eq!(none(&[]), Err(NothingDrawn::Empty));
    assert_eq!(
        none(&[vec![1.0], vec![]]),
        Err(NothingDrawn::NoRow { start: 1 })
    );
    let bad = none(&[vec![1.0, f64::INFINITY]]);
    let said = bad.expect_err("because it is no number").to_string();
    assert_eq!(
        said,
        "row 1 of start 0 is inf, expected 0 or a size of 1e-60 to 1e60"
    );
}

/// Of finite rows came a bound that was no number, and one that was infinite.
#[test]
fn a_hierarchical_bound_is_a_number_or_there_is_none() {
    let of = |starts: &[Vec<f64>], statistic| hierarchical_lower_95(starts, statistic);
    let huge = [vec![1e308; 2], vec![-1e308; 2]];
    for (statistic, size) in [(Statistic::Mean, 1e308), (Statistic::Median, 1e61)] {
        let huge = huge
            .clone()
            .map(|rows| rows.iter().map(|row| row / 1e308 * size).collect());
        let refused = of(&huge, statistic);
        assert!(
            matches!(
                refused,
                Err(NothingDrawn::Size {
                    start: 0,
                    row: 0,
                    ..
                })
            ),
            "{refused:?}"
        );
        let most = of(&[vec![1e60; 2], vec![1e60; 2]], statistic);
        assert_eq!(most, Ok(1e60));
        // Zeros of both signs are one.
        let zero = of(&[vec![0.0, -0.0, 0.0], vec![-0.0, -0.0]], statistic);
        assert_eq!(zero.map(f64::to_bits), Ok(0));
    }
    let least = Summary::of(&[0.0, -0.0]).map(|it| [it.min, it.median].map(f64::to_bits));
    assert_eq!(least, Ok([0, 0]));
}

/// Rows of two starts are differences and no spans: their shift is the same one.
#[test]
fn paired_rows_have_the_figures_of_blocks_with_the_same_savings() {
    let blocks = [
        block(1_007, 1_000),
        block(999, 1_004),
        block(1_003, 1_001),
        block(1_000, 1_000),
        block(1_011, 1_002),
    ];
    let paired = Paired::of(6, &blocks).expect("because there are blocks");
    let rows = &paired.savings;
    assert_eq!(Paired::of_differences(rows), Ok(paired.clone()));
    assert_eq!(hodges_lehmann(rows), Ok(paired.hodges_lehmann));
    assert_eq!(median_lower_95(rows), Ok(paired.bootstrap_lower_95));
    // Of thirteen rows, by hand: the means of all pairs of 1 to 13 have 7 in their middle.
    let thirteen: Vec<Rational> = (1..=13).map(Rational::whole).collect();
    assert_eq!(hodges_lehmann(&thirteen), Ok(Rational::whole(7)));
    let deltas = [0.5, -0.25, 2.0].map(|delta| Rational::of_binary64(delta).expect("small"));
    assert_eq!(
        hodges_lehmann(&deltas).map(|it| it.to_string()),
        Ok("11/16".into())
    );
    assert_eq!(hodges_lehmann(&[]), Err(Unpaired::Empty));
    assert_eq!(median_lower_95(&[]), Err(Unpaired::Empty));
    assert_eq!(Paired::of_differences(&[]), Err(Unpaired::Empty));
    // 100 (2 * 7) / (2 * 1003): the middle saving of the middle control.
    let percent = median_percent(&[block(1_003, 996), block(1_000, 999), block(1_020, 1_000)]);
    assert_eq!(percent.map(|it| it.to_string()), Ok("700/1003".into()));
    assert_eq!(median_percent(&[]), Err(Unpaired::Empty));
    let most = median_percent(&[block(1 << 62, 1), block(1, 1 << 62)]);
    assert_eq!(most, Ok(Rational::ZERO));
}

#[test]
fn each_class_counts_once() {
    let rows = [
        ("code", 10.0),
        ("prose", 40.0),
        ("code", 12.0),
        ("code", 14.0),
        ("sums", 20.0),
    ];
    let summary = class_balanced(rows).expect("because there are rows");
    assert_eq!((summary.count, summary.median), (3, 20.0));
    let none = class_balanced([]).expect_err("because there is no row");
    assert_eq!(none.to_string(), "there is no value");
    let bad = Summary::of(&[1.0, f64::NAN]).expect_err("because it is no number");
    assert_eq!(
        bad.to_string(),
        "value 1 is NaN, expected 0 or a size of 1e-60 to 1e60"
    );
    assert!(matches!(
        Summary::of(&[1e-61]),
        Err(NoSummary::Size { index: 0, .. })
    ));
    assert_eq!(Summary::of(&[0.0, 0.0]).map(|it| it.stdev), Ok(0.0));
    let many = Summary::of(&[1.0; 32_769]).expect_err("because they are many");
    assert_eq!(
        many.to_string(),
        "there are 32769 values, at most 32768 are taken"
    );
    assert!(percentile(&[1.0], f64::NAN).is_err());
    assert_eq!(
        percentile(&[1.0, 3.0], 1.5),
        Err(NoSummary::Share { share: 1.5 })
    );
    assert_eq!(percentile(&[3.0, 1.0], 0.25), Ok(1.5));
}

fn look(pairs: u64, fails_below: u64, passes_at: Option<u64>) -> Look {
    Look {
        pairs,
        fails_below,
        passes_at,
    }
}

#[test]
fn a_plan_decides_at_its_own_looks_only() {
    let plan = Plan::of(&[look(4, 2, None), look(8, 7, Some(7))]);
    let plan = plan.expect("because the last look decides");
    let after = |outcomes: &[u8]| {
        let outcomes: Vec<bool> = outcomes.iter().map(|win| *win == 1).collect();
        plan.step(&outcomes)
    };
    assert_eq!(after(&[]), Step::Continue);
    assert_eq!(after(&[0, 0, 0]), Step::Continue);
    assert_eq!(after(&[0, 0, 0, 1]), Step::Failed);
    // Wins that came after the look that failed change nothing.
    assert_eq!(after(&[0, 0, 0, 1, 1, 1, 1, 1]), Step::Failed);
    assert_eq!(after(&[1, 1, 1, 1, 1, 1, 1]), Step::Continue);
    assert_eq!(after(&[1, 1, 1, 1, 1, 1, 1, 0]), Step::Passed);
    assert_eq!(after(&[1, 1, 1, 1, 1, 1, 0, 0]), Step::Failed);
}

#[test]
fn looks_that_are_no_plan_say_why() {
    let said = |looks: &[Look]| {
        Plan::of(looks)
            .expect_err("because it is no plan")
            .to_string()
    };
    assert_eq!(said(&[]), "there is no look");
    assert_eq!(
        said(&[look(0, 0, None)]),
        "look 0 is at 0 pairs, expected 1 to 120"
    );
    assert_eq!(
        said(&[look(5, 0, None), look(5, 3, Some(3))]),
        "look 1 is at 5 pairs, expected 6 to 120"
    );
    assert_eq!(
        said(&[look(121, 3, Some(3))]),
        "look 0 is at 121 pairs, expected 1 to 120"
    );
    assert_eq!(
        said(&[look(5, 4, Some(3))]),
        "look 0 fails below 4 wins and passes at 3 of 5"
    );
    assert_eq!(
        said(&[look(5, 2, Some(4))]),
        "the last look decides nothing between 2 and 4 wins"
    );
    assert_eq!(Unplanned::Empty.blame(), packhouse_base::Blame::Caller);
    let longest = Plan::of(&[look(120, 120, Some(120))]).expect("because 120 are taken");
    assert_eq!(longest.false_pass().to_binary64(), 2_f64.powi(-120));
}
