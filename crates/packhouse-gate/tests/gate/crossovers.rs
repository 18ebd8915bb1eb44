//! Crossovers: figures, gates, dispositions; portfolios.

use packhouse_gate::crossover::{
    Bound, ControlNoise, Detectable, Disposition, Gate, Judged, Leg, NoPair, Pair, Row, SameWork,
    Starts, Thresholds, Work, judge,
};
use packhouse_gate::portfolio::{Admitted, Boundary, Part, admit};

/// What the reference lab asked of its metadata graph.
pub(crate) const METADATA: Thresholds = Thresholds {
    headline_ratio: Bound::AtLeast(1.0025),
    row_wins: 10,
    median_percent: Bound::AtLeast(0.25),
    cycle_saving_ms: Bound::AtLeast(0.15),
    work: SameWork::AcceptanceWithin(0.001),
    control_health: Some(0.02),
    record: 33.0,
    floor_ratio: 1.0025,
};

/// What it asked of one kernel's fusion.
const FUSION: Thresholds = Thresholds {
    headline_ratio: Bound::Above(1.0),
    row_wins: 9,
    median_percent: Bound::Above(0.0),
    cycle_saving_ms: Bound::Above(0.0),
    work: SameWork::Identical,
    control_health: None,
    record: 33.438926675602126,
    floor_ratio: 1.0,
};

pub(crate) fn leg(headline: f64, rows: &[f64]) -> Leg {
    let row = |(index, rate): (usize, &f64)| Row {
        prompt: format!("{index:064x}"),
        per_second: *rate,
    };
    Leg {
        headline,
        rows: rows.iter().enumerate().map(row).collect(),
        cycle_ms: 93.0,
        work: Some(Work {
            cycles: 1720,
            drafted: 12_040,
            accepted: 4642,
            positions: vec![1272, 935, 710, 567, 468, 391, 299],
        }),
        faults: vec![],
    }
}

/// What the draft of a start did.
fn work(leg: &mut Leg) -> &mut Work {
    leg.work.as_mut().expect("because there is a draft")
}

/// Controls that differ in nothing.
const QUIET: ControlNoise = ControlNoise {
    absolute: 0.0,
    percent: 0.0,
    cycle_ms: 0.0,
};

/// Thresholds beside controls that differ in nothing.
pub(crate) fn beside_quiet_controls(thresholds: &Thresholds) -> Detectable {
    let detectable = thresholds.detectable(&QUIET);
    detectable.expect("because they can be")
}

fn control() -> Leg {
    leg(33.0, &[33.0; 13])
}

fn candidate() -> Leg {
    Leg {
        cycle_ms: 92.0,
        ..leg(34.0, &[34.0; 13])
    }
}

fn failed(judged: &Judged) -> Vec<Gate> {
    let failed = judged.outcomes.iter().filter(|outcome| !outcome.passed);
    failed.map(|outcome| outcome.gate).collect()
}

fn phase_one(thresholds: &Thresholds, control: &Leg, candidate: &Leg) -> Judged {
    let thresholds = beside_quiet_controls(thresholds);
    judge(&thresholds, [control, candidate], None).expect("because they are a pair")
}

/// Headlines and cycles of a published crossover.
#[test]
fn deltas_of_a_published_crossover() {
    let published = [
        (
            (32.942323, 92.960307),
            (33.440373, 91.019299),
            "1.5119",
            "-2.0880",
        ),
        (
            (31.173546, 93.909673),
            (33.302984, 89.981714),
            "6.8309",
            "-4.1827",
        ),
    ];
    for (control, candidate, headline, cycle) in published {
        let leg = |(headline, cycle_ms): (f64, f64)| Leg {
            cycle_ms,
            ..leg(headline, &[1.0; 13])
        };
        let pair = Pair::of(&leg(control), &leg(candidate)).expect("because they are a pair");
        assert_eq!(format!("{:.4}", pair.headline_percent), headline);
        assert_eq!(format!("{:.4}", pair.cycle_percent), cycle);
        assert_eq!((pair.wins, pair.losses, pair.sign.two_sided), (0, 0, 1.0));
    }
}

/// W1-N128 saved 3.752688 ms of a cycle, its draft did the same work, and it was slower: three of
/// thirteen rows were won, and the headline stopped it after the first pair. Headlines, counters,
/// wins, the paired median and the saving are published; the rows are made to give them.
#[test]
fn a_cheaper_cycle_with_a_lost_headline_is_stopped_after_its_first_pair() {
    let mut rates = [100.0 - 3.0578; 13];
    rates[..3].fill(101.0);
    let mut control = Leg {
        cycle_ms: 90.0,
        ..leg(34.969419, &[100.0; 13])
    };
    let mut candidate = Leg {
        cycle_ms: 90.0 - 3.752688,
        ..leg(34.029105, &rates)
    };
    (work(&mut control).accepted, work(&mut control).drafted) = (4641, 12_047);
    (work(&mut candidate).accepted, work(&mut candidate).drafted) = (4642, 12_040);
    let pair = Pair::of(&control, &candidate).expect("because they are a pair");
    assert_eq!(format!("{:.5}", pair.headline_percent), "-2.68896");
    assert_eq!((pair.wins, pair.losses), (3, 10));
    assert_eq!(format!("{:.4}", pair.median_percent), "-3.0578");
    assert_eq!(format!("{:.6}", pair.cycle_saving_ms), "3.752688");
    let stack = Thresholds {
        work: SameWork::AcceptanceWithin(0.001),
        cycle_saving_ms: Bound::AtLeast(0.15),
        ..FUSION
    };
    let judged = phase_one(&stack, &control, &candidate);
    assert_eq!(
        failed(&judged),
        [Gate::Headline, Gate::RowWins, Gate::MedianPercent]
    );
    assert_eq!(judged.disposition, Disposition::PhaseOneStop);
}

#[test]
fn acceptance_may_differ_by_a_thousandth_where_work_need_not_be_the_same() {
    let mut control = control();
    let mut candidate = candidate();
    (work(&mut control).accepted, work(&mut control).drafted) = (4641, 12_047);
    (work(&mut candidate).accepted, work(&mut candidate).drafted) = (4642, 12_040);
    let pair = Pair::of(&control, &candidate).expect("because they are a pair");
    let drafts = pair.work.expect("because both have a draft");
    assert_eq!(format!("{:.9}", drafts.acceptance_delta), "0.000307034");
    assert_eq!(failed(&phase_one(&METADATA, &control, &candidate)), []);
    assert_eq!(
        failed(&phase_one(&FUSION, &control, &candidate)),
        [Gate::Work]
    );
    work(&mut candidate).accepted = 4654;
    assert_eq!(
        failed(&phase_one(&METADATA, &control, &candidate)),
        [Gate::Work]
    );
    // Positions alone make the work another one.
    let mut candidate = self::candidate();
    assert_eq!(
        failed(&phase_one(&FUSION, &self::control(), &candidate)),
        []
    );
    work(&mut candidate).positions.swap(0, 1);
    assert_eq!(
        failed(&phase_one(&FUSION, &self::control(), &candidate)),
        [Gate::Work]
    );
}

/// Counts above 2^53 were rounded before they were divided.
#[test]
fn an_acceptance_of_large_counts_is_rounded_once() {
    let (mut control, mut candidate) = (control(), candidate());
    (work(&mut control).accepted, work(&mut control).drafted) = (1, 1);
    let counts = ((1_u64 << 55) + 1, (1_u64 << 55) + 6);
    (work(&mut candidate).accepted, work(&mut candidate).drafted) = counts;
    let pair = Pair::of(&control, &candidate).expect("because they are a pair");
    let drafts = pair.work.expect("because both have a draft");
    assert_eq!(drafts.acceptance_delta, -(2_f64.powi(-53)));
}

#[test]
fn each_gate_fails_alone_at_its_own_threshold() {
    let fails = |control: &Leg, candidate: &Leg| failed(&phase_one(&METADATA, control, candidate));
    let mut faulty = candidate();
    faulty.faults.push("row 3 is not exact".to_owned());
    assert_eq!(fails(&control(), &faulty), [Gate::Quality]);
    let at = |headline| Leg {
        headline,
        ..candidate()
    };
    assert_eq!(fails(&control(), &at(33.0 * 1.0025)), []);
    assert_eq!(
        fails(&control(), &at((33.0_f64 * 1.0025).next_down())),
        [Gate::Headline]
    );
    let wins = |count: usize| {
        let mut rates = [34.0; 13];
        rates[count..].fill(33.0);
        Leg {
            rows: leg(34.0, &rates).rows,
            ..candidate()
        }
    };
    assert_eq!(fails(&control(), &wins(10)), []);
    assert_eq!(fails(&control(), &wins(9)), [Gate::RowWins]);
    let by = |rate: f64| Leg {
        rows: leg(34.0, &[rate; 13]).rows,
        ..candidate()
    };
    let quarter = Leg {
        rows: leg(33.0, &[400.0; 13]).rows,
        ..control()
    };
    assert_eq!(fails(&quarter, &by(401.0)), []);
    assert_eq!(
        fails(&quarter, &by(401.0_f64.next_down())),
        [Gate::MedianPercent]
    );
    let saving = |cycle_ms| Leg {
        cycle_ms,
        ..candidate()
    };
    let slow = Leg {
        cycle_ms: 0.65,
        ..control()
    };
    assert_eq!(fails(&slow, &saving(0.5)), []);
    assert_eq!(
        fails(&slow, &saving(0.5_f64.next_up())),
        [Gate::CycleSaving]
    );
    let off = |headline| Leg {
        headline,
        ..control()
    };
    assert_eq!(fails(&off(33.66), &at(34.0)), []);
    assert_eq!(fails(&off(33.67), &at(34.0)), [Gate::ControlHealth]);
    assert_eq!(fails(&off(32.33), &at(34.0)), [Gate::ControlHealth]);
}

#[test]
fn all_four_legs_come_to_one_disposition() {
    let come_to = |thresholds: &Thresholds, b1: f64, b2: f64, a2: f64| {
        let at = |headline| Leg {
            headline,
            ..candidate()
        };
        let a2 = Leg {
            headline: a2,
            ..control()
        };
        let thresholds = beside_quiet_controls(thresholds);
        let judged = judge(&thresholds, [&control(), &at(b1)], Some([&at(b2), &a2]));
        let judged = judged.expect("because they are pairs");
        (judged.disposition, failed(&judged))
    };
    let (candidate, none) = come_to(&METADATA, 34.5, 34.25, 33.0);
    assert_eq!(
        candidate,
        Disposition::RecordCandidate { publishable: 34.25 }
    );
    assert_eq!(none, []);
    let low = Thresholds {
        record: 34.2,
        control_health: None,
        ..METADATA
    };
    let below = come_to(&low, 34.5, 34.25, 33.0);
    assert_eq!(below, (Disposition::BelowFloor, vec![Gate::Floor]));
    let (negative, gates) = come_to(&METADATA, 34.0, 33.0, 33.0);
    assert_eq!(negative, Disposition::NegativeOrInconclusive);
    assert_eq!(gates, [Gate::Headline, Gate::Reproducibility, Gate::Floor]);
    // A candidate that beats each its own control, and not the better of the two by its lower
    // start.
    let drifted = Thresholds {
        control_health: None,
        record: 20.0,
        ..METADATA
    };
    let (disposition, gates) = come_to(&drifted, 34.0, 32.9, 32.0);
    assert_eq!(gates, []);
    assert_eq!(
        disposition,
        Disposition::RecordCandidate { publishable: 32.9 }
    );
}

#[test]
fn starts_that_are_no_pair_say_why() {
    let said = |control: Leg, candidate: Leg| {
        let none = Pair::of(&control, &candidate).expect_err("because they are no pair");
        none.to_string()
    };
    assert_eq!(
        said(control(), leg(34.0, &[34.0; 12])),
        "the control has 13 rows, the candidate 12"
    );
    let mut other = candidate();
    other.rows.swap(3, 4);
    assert!(said(control(), other).starts_with("row 3 is of prompt 000"));
    let mut other = candidate();
    other.rows[2].per_second = f64::NAN;
    assert_eq!(
        said(control(), other),
        "a row is NaN, expected a number above 0"
    );
    let zero = Leg {
        headline: 0.0,
        ..control()
    };
    assert_eq!(
        said(zero, candidate()),
        "headline is 0, expected a number above 0"
    );
    let infinite = Leg {
        cycle_ms: f64::INFINITY,
        ..candidate()
    };
    assert_eq!(
        said(control(), infinite),
        "cycle is inf, expected a number above 0"
    );
    assert_eq!(
        said(leg(1.0, &[]), leg(1.0, &[])),
        "rows: there is no value"
    );
    let mut idle = control();
    work(&mut idle).drafted = 0;
    assert_eq!(said(idle, candidate()), "nothing was drafted");
    let mut wild = control();
    work(&mut wild).accepted = 12_041;
    assert_eq!(
        said(wild, candidate()),
        "12041 tokens were accepted of 12040 drafted"
    );
    let many = leg(1.0, &[1.0; 1_001]);
    assert_eq!(
        Pair::of(&many, &leg(1.0, &[2.0; 1_001])),
        Err(NoPair::TooMany { rows: 1_001 })
    );
}

fn part(name: &str, lower_bound_ns: u64) -> Part {
    Part {
        name: name.to_owned(),
        lower_bound_ns,
        saves: vec![format!("the work of {name}")],
        boundaries: vec![Boundary {
            name: "output".to_owned(),
            is_eager_shown: true,
            is_replay_shown: true,
        }],
        keeps_semantics: true,
        regressions: vec![],
        risks_collectives: false,
        is_source_compatible: true,
        is_frozen_first: true,
    }
}

/// Half a millisecond of a cycle, by conservative bounds.
const FLOOR_NS: u64 = 500_000;

#[test]
fn a_portfolio_is_admitted_by_the_sum_of_its_lower_bounds() {
    let parts = [part("router", 285_200), part("gate", 214_800)];
    assert_eq!(admit(&parts, FLOOR_NS), Ok(Admitted { sum_ns: 500_000 }));
    let parts = [part("router", 285_200), part("gate", 214_799)];
    let refused = admit(&parts, FLOOR_NS).expect_err("because it is too little");
    let said: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["the lower bounds come to 499999 ns of a cycle, at least 500000 are needed"]
    );
    let huge = [part("a", u64::MAX), part("b", u64::MAX)];
    let refused = admit(&huge, FLOOR_NS).expect_err("because it is no sum");
    assert_eq!(
        refused[0].to_string(),
        "the lower bounds come to more than 2^64 ns of a cycle"
    );
}

#[test]
fn every_reason_against_a_portfolio_is_listed() {
    let mut first = part("first", 400_000);
    first.keeps_semantics = false;
    first.boundaries[0].is_replay_shown = false;
    first.regressions.push("slower start".to_owned());
    let mut second = part("second", 400_000);
    second.saves = first.saves.clone();
    second.risks_collectives = true;
    second.boundaries[0].is_eager_shown = false;
    let mut third = part("second", 0);
    third.saves.clear();
    third.boundaries.clear();
    third.is_source_compatible = false;
    third.is_frozen_first = false;
    let refused = admit(&[first, second, third], FLOOR_NS).expect_err("because of much");
    let said: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "first changes what the model, its verification or its speculation means",
            "first has no replay evidence with changing inputs at output",
            "first has a known regression: slower start",
            "second has no eager evidence with changing inputs at output",
            "second risks what the devices do together",
            "first and second both claim the work of first",
            "second doesn't say what it saves",
            "second names no boundary that it changes",
            "second is not source-compatible with the others",
            "second was not frozen before its results",
            "two parts are called second",
        ]
    );
    let empty = admit(&[], 1).expect_err("because there is no part");
    assert_eq!(empty[0].to_string(), "there is no part");
    // Nothing is above nothing, and what has no name can't be told from anything.
    let mut blank = part(" ", 9);
    blank.saves.push(String::new());
    blank.boundaries[0].name.clear();
    blank.regressions.push("\t".to_owned());
    let refused = admit(&[blank], 0).expect_err("because nothing is named");
    let said: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[..5],
        [
            "the floor is 0 ns of a cycle, expected 1 or more",
            "part 0 has itself without a name",
            "part 0 has a saving without a name",
            "part 0 has a boundary without a name",
            "part 0 has a regression without a name",
        ]
    );
}

/// A record of -33 made every control healthy, and one of 0 put every candidate above its floor.
#[test]
fn thresholds_that_cannot_be_judge_nothing() {
    let said = |change: fn(&mut Thresholds)| {
        let mut thresholds = METADATA;
        change(&mut thresholds);
        let refused = thresholds.detectable(&QUIET);
        refused.expect_err("because it can't be").to_string()
    };
    let record = "the floor gate: record is ";
    for (change, value) in [
        ((|it| it.record = -33.0) as fn(&mut Thresholds), "-33"),
        (|it| it.record = 0.0, "0"),
    ] {
        assert_eq!(
            said(change),
            format!("{record}{value}, expected a number above 0")
        );
    }
    assert_eq!(
        said(|it| it.record = f64::NEG_INFINITY),
        format!("{record}-inf, expected a number")
    );
    assert_eq!(
        said(|it| it.floor_ratio = f64::NEG_INFINITY),
        "the floor gate: floor_ratio is -inf, expected a number"
    );
    assert_eq!(
        said(|it| it.control_health = Some(-0.02)),
        "the control-health gate: control_health is -0.02, expected a number above 0"
    );
    assert_eq!(
        said(|it| it.work = SameWork::AcceptanceWithin(f64::INFINITY)),
        "the work gate: the acceptance's share is inf, expected a number"
    );
    assert_eq!(
        said(|it| it.headline_ratio = Bound::AtLeast(0.0)),
        "the headline gate: headline_ratio is 0, expected a number above 0"
    );
}

/// Two engines without a draft: nothing of drafts is compared, and nothing of them is made up.
#[test]
fn starts_without_a_draft_are_paired_by_what_they_have() {
    let without = |leg: Leg| Leg { work: None, ..leg };
    let plain = Thresholds {
        work: SameWork::NoDraft,
        ..METADATA
    };
    let (control, candidate) = (without(control()), without(candidate()));
    assert_eq!(failed(&phase_one(&plain, &control, &candidate)), []);
    assert_eq!(
        failed(&phase_one(&METADATA, &control, &candidate)),
        [Gate::Work]
    );
    assert_eq!(
        failed(&phase_one(&plain, &self::control(), &self::candidate())),
        [Gate::Work]
    );
    assert_eq!(
        Pair::of(&control, &self::candidate()),
        Err(NoPair::OneSpeculates)
    );
}

/// A single start once looked 0.058 below its target, when the median of several was 1.5 % short.
#[test]
fn an_arm_has_the_median_of_its_starts_beside_the_lowest() {
    let starts = Starts::of(&[102.0, 100.4, 100.5, 100.6, 101.0]);
    let starts = starts.expect("because they are above zero");
    assert_eq!(
        (starts.count, starts.lowest, starts.median),
        (5, 100.4, 100.6)
    );
    assert!(starts.is_enough());
    let two = Starts::of(&[102.0, 100.0]).expect("because they are above zero");
    assert_eq!((two.median, two.is_enough()), (101.0, false));
    assert!(Starts::of(&[]).is_err() && Starts::of(&[1.0, 0.0]).is_err());
}
