//! Crossovers: figures, gates, dispositions; portfolios.

use packhouse_gate::crossover::{
    Bound, Disposition, Gate, Judged, Leg, NoPair, Pair, Row, SameWork, Thresholds, Work, judge,
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
        work: Work {
            cycles: 1720,
            drafted: 12_040,
            accepted: 4642,
            positions: vec![1272, 935, 710, 567, 468, 391, 299],
        },
        faults: vec![],
    }
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
    judge(thresholds, [control, candidate], None).expect("because they are a pair")
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
    let w1 = Pair::of(&leg(34.969419, &[1.0]), &leg(34.029105, &[1.0]));
    let w1 = w1.expect("because they are a pair");
    assert_eq!(format!("{:.4}", w1.headline_percent), "-2.6890");
}

#[test]
fn acceptance_may_differ_by_a_thousandth_where_work_need_not_be_the_same() {
    let mut control = control();
    let mut candidate = candidate();
    (control.work.accepted, control.work.drafted) = (4641, 12_047);
    (candidate.work.accepted, candidate.work.drafted) = (4642, 12_040);
    let pair = Pair::of(&control, &candidate).expect("because they are a pair");
    assert_eq!(format!("{:.9}", pair.acceptance_delta), "0.000307034");
    assert_eq!(failed(&phase_one(&METADATA, &control, &candidate)), []);
    assert_eq!(
        failed(&phase_one(&FUSION, &control, &candidate)),
        [Gate::Work]
    );
    candidate.work.accepted = 4654;
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
    candidate.work.positions.swap(0, 1);
    assert_eq!(
        failed(&phase_one(&FUSION, &self::control(), &candidate)),
        [Gate::Work]
    );
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
        let judged = judge(thresholds, [&control(), &at(b1)], Some([&at(b2), &a2]));
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
    idle.work.drafted = 0;
    assert_eq!(said(idle, candidate()), "nothing was drafted");
    let mut wild = control();
    wild.work.accepted = 12_041;
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
    assert_eq!(admit(&huge, FLOOR_NS), Ok(Admitted { sum_ns: u64::MAX }));
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
            "two parts are called second",
        ]
    );
    let empty = admit(&[], 0).expect_err("because there is no part");
    assert_eq!(empty[0].to_string(), "there is no part");
}
