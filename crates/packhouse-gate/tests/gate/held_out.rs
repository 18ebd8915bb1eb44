//! Held-out packs: every one decides by itself.

use packhouse_gate::held_out::{Development, Promotion, Repetition};
use std::collections::BTreeSet;

const CATEGORIES: [&str; 5] = ["code", "long", "math", "mixed", "tools"];

fn promotion() -> Promotion {
    Promotion {
        packs: 2,
        repetitions: 2,
        wall_percent: 5.0,
        decode_percent: 5.0,
        mixed_percent: 3.0,
        category_loss_percent: 5.0,
        categories: CATEGORIES.map(str::to_owned).into(),
    }
}

fn repetitions() -> Vec<Repetition> {
    let one = |(pack, number): (&str, u64)| Repetition {
        pack: pack.to_owned(),
        number,
        wall_percent: 5.0,
        decode_percent: 5.0,
        mixed_percent: 3.0,
        lower_95: 0.01,
        p10_percent: CATEGORIES.map(|name| (name.to_owned(), -5.0)).into(),
    };
    [("A", 0), ("A", 1), ("B", 0), ("B", 1)].map(one).to_vec()
}

fn said(change: impl FnOnce(&mut Vec<Repetition>)) -> Vec<String> {
    let mut repetitions = repetitions();
    change(&mut repetitions);
    let reasons = promotion()
        .judge(&repetitions)
        .expect_err("because something is missing");
    reasons.iter().map(ToString::to_string).collect()
}

#[test]
fn a_promotion_needs_every_pack_every_repetition_and_every_category() {
    assert_eq!(promotion().judge(&repetitions()), Ok(()));
    assert_eq!(
        said(|all| {
            all.pop();
        }),
        ["pack B has 1 repetitions, at least 2 are needed"]
    );
    assert_eq!(
        said(|all| all.truncate(2)),
        ["1 packs were measured, at least 2 are needed"]
    );
    assert_eq!(
        said(Vec::clear),
        ["0 packs were measured, at least 2 are needed"]
    );
    assert_eq!(
        said(|all| all[3].number = 0),
        [
            "pack B has repetition 0 twice",
            "pack B has 1 repetitions, at least 2 are needed"
        ]
    );
    assert_eq!(
        said(|all| all[1].wall_percent = 4.9),
        ["pack A, repetition 1: wall is 4.9 %, at least 5 % is needed"]
    );
    assert_eq!(
        said(|all| all[2].decode_percent = f64::NAN),
        ["pack B, repetition 0: median decode is NaN %, at least 5 % is needed"]
    );
    assert_eq!(
        said(|all| all[0].mixed_percent = 2.0),
        ["pack A, repetition 0: mixed is 2 %, at least 3 % is needed"]
    );
    assert_eq!(
        said(|all| all[0].lower_95 = 0.0),
        ["pack A, repetition 0: the lower bound is 0, not above 0"]
    );
    assert_eq!(
        said(|all| {
            all[3].p10_percent.insert("long".to_owned(), -5.5);
        }),
        ["pack B, repetition 1: long is -5.5 % at its 10th percentile"]
    );
    assert_eq!(
        said(|all| {
            all[3].p10_percent.remove("long");
            all[3].p10_percent.insert("easy".to_owned(), 9.0);
        }),
        [
            "pack B, repetition 1: long is not measured",
            "pack B, repetition 1: easy is not declared"
        ]
    );
}

/// A promotion that asked for no category and no repetition promoted whatever was measured.
#[test]
fn a_promotion_that_asks_for_nothing_promotes_nothing() {
    let said = |promotion: &Promotion, repetitions: &[Repetition]| {
        let reasons = promotion
            .judge(repetitions)
            .expect_err("because of nothing");
        reasons
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<String>>()
    };
    let nothing = Promotion {
        packs: 0,
        repetitions: 0,
        categories: BTreeSet::new(),
        wall_percent: f64::NEG_INFINITY,
        mixed_percent: -0.5,
        ..promotion()
    };
    assert_eq!(
        said(&nothing, &[]),
        [
            "packs is 0, expected 1 or more",
            "repetitions is 0, expected 1 or more",
            "categories is 0, expected 1 or more",
            "wall_percent is -inf, expected a number, 0 or above",
            "mixed_percent is -0.5, expected a number, 0 or above",
        ]
    );
    let mut endless = repetitions();
    endless[0].wall_percent = f64::INFINITY;
    endless[1].lower_95 = f64::INFINITY;
    endless[2]
        .p10_percent
        .insert("code".to_owned(), f64::INFINITY);
    assert_eq!(
        said(&promotion(), &endless),
        [
            "pack A, repetition 0: wall is inf %, at least 5 % is needed",
            "pack A, repetition 1: the lower bound is inf, not above 0",
            "pack B, repetition 0: code is inf % at its 10th percentile",
        ]
    );
}

#[test]
fn a_development_run_meets_all_three_figures_or_none() {
    let least = Development {
        emitted: 2.2,
        emitted_mixed: 2.0,
        draft_and_policy_ms: 3.0,
    };
    assert!(least.is_met_by(2.2, 2.0, 3.0));
    assert!(!least.is_met_by(2.19, 2.0, 3.0));
    assert!(!least.is_met_by(2.2, 1.99, 3.0));
    assert!(!least.is_met_by(2.2, 2.0, 3.01));
    assert!(!least.is_met_by(2.2, 2.0, f64::NAN));
    assert!(!least.is_met_by(f64::INFINITY, 2.0, 3.0));
    let none = Development {
        emitted: f64::NEG_INFINITY,
        ..least
    };
    assert!(!none.is_met_by(2.2, 2.0, 3.0));
}
