//! Held-out packs: every one decides by itself.

use packhouse_gate::exact::Row;
use packhouse_gate::held_out::{
    Arms, Capture, Composition, Development, Equal, Hard, Promotion, Repetition, Short, Shown,
    Unequal,
};
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
    let equal = judged(|_| ()).expect("because all arms answer alike");
    let one = |(pack, number): (&str, u64)| Repetition {
        pack: pack.to_owned(),
        number,
        equal,
        wall_percent: 5.0,
        decode_percent: 5.0,
        mixed_percent: 3.0,
        lower_95: 0.01,
        p10_percent: CATEGORIES.map(|name| (name.to_owned(), -5.0)).into(),
    };
    [("A", 0), ("A", 1), ("B", 0), ("B", 1)].map(one).to_vec()
}

/// The rows of three arms, and what else is shown.
struct Seen {
    arms: [Vec<Row>; 3],
    shown: Shown,
}

/// Judges four requests whose arms answer alike, after a change.
fn judged(change: impl FnOnce(&mut Seen)) -> Result<Equal, Vec<Unequal>> {
    let row = |index: u64| Row {
        prompt_index: index,
        prompt_id: format!("request-{index}"),
        prompt_sha256: format!("{index:064x}"),
        prompt_tokens: 40,
        cached_tokens: Some(0),
        token_ids: vec![5, 6, 7],
        text_sha256: None,
    };
    let rows: Vec<Row> = (0..4).map(row).collect();
    let capture = |index: u64| Capture {
        position: index % 64,
        digest: format!("{index:064x}"),
    };
    let hard = Hard::usual();
    let mut seen = Seen {
        arms: [rows.clone(), rows.clone(), rows],
        shown: Shown {
            is_provenance_verified: Some(true),
            is_reuse_off: Some(true),
            request_ids: ["a", "b", "c", "d"].map(str::to_owned).into(),
            hangs: Some(0),
            restarts: Some(0),
            captures: (0..128).map(capture).collect(),
            passed: hard.tests.clone(),
            logprob_positions: 64,
        },
    };
    change(&mut seen);
    let [target_only, current, candidate] = &seen.arms;
    let arms = Arms {
        target_only,
        current,
        candidate,
    };
    hard.judge(arms, &seen.shown)
}

fn unequal(change: impl FnOnce(&mut Seen)) -> Vec<String> {
    let reasons = judged(change).expect_err("because something is missing");
    reasons.iter().map(ToString::to_string).collect()
}

/// A promotion asked for percents alone: whether the arms had answered alike was nobody's question.
#[test]
fn speeds_of_a_pack_count_only_where_all_arms_answered_alike() {
    assert!(judged(|_| ()).is_ok());
    assert_eq!(
        unequal(|seen| seen.arms[2][1].token_ids[2] = 8),
        [
            "the candidate arm has 3 of 4 requests exact: row 1: token 2 is 8, expected 7 \
             (3 tokens, expected 3)"
        ]
    );
    assert_eq!(
        unequal(|seen| seen.arms[1][0].cached_tokens = None),
        [
            "the current arm has 3 of 4 requests exact: row 0: the server doesn't say how many \
             prompt tokens were cached"
        ]
    );
    let cached = unequal(|seen| seen.arms[0][3].cached_tokens = Some(9));
    assert!(cached[0].starts_with("the target-only arm has 3 of 4"));
    let short = unequal(|seen| seen.arms[1].truncate(3));
    assert!(short[0].ends_with("row 3: the run has no such row"));
    let none = unequal(|seen| seen.arms = [vec![], vec![], vec![]]);
    assert_eq!(none[2], "the candidate arm has 0 of 0 requests exact");
}

#[test]
fn what_nobody_states_of_a_pack_is_missing() {
    let absent = unequal(|seen| {
        let shown = &mut seen.shown;
        (shown.is_provenance_verified, shown.is_reuse_off) = (None, Some(false));
        (shown.hangs, shown.restarts) = (None, Some(1));
        shown.logprob_positions = 63;
    });
    assert_eq!(
        absent,
        [
            "verified provenance is absent, expected true",
            "reuse off is false, expected true",
            "hangs is absent, expected 0",
            "restarts is 1, expected 0",
            "log probability positions is 63, expected 64 or more",
        ]
    );
    assert_eq!(
        unequal(|seen| seen.shown.request_ids[3] = "a".to_owned()),
        ["request 3 has the id a, which an earlier one has"]
    );
    assert_eq!(
        unequal(|seen| {
            seen.shown.request_ids.pop();
        }),
        ["request ids is 3, expected 4"]
    );
    let captures = unequal(|seen| {
        let captures = &mut seen.shown.captures;
        captures.truncate(58);
        captures[9].digest = captures[8].digest.clone();
    });
    assert_eq!(
        captures,
        [
            "captures is 58, expected 128 or more",
            "capture 9 is what capture 8 is",
            "no capture crosses position 58",
        ]
    );
    assert_eq!(
        unequal(|seen| {
            seen.shown.passed.remove("cancel");
        }),
        ["the test cancel did not pass"]
    );
}

#[test]
fn a_pack_has_what_was_declared_of_each_kind_and_bucket() {
    let usual = Composition::usual();
    assert_eq!(usual.short.values().sum::<u64>(), 48);
    let edges = [
        (32, 8),
        (128, 48),
        (129, 96),
        (512, 192),
        (513, 256),
        (900, 512),
    ];
    let mut short: Vec<Short> = Vec::new();
    for (category, count) in &usual.short {
        for _ in 0..*count {
            let (prompt_tokens, output_tokens) = edges[short.len() % edges.len()];
            short.push(Short {
                category: category.clone(),
                prompt_tokens,
                output_tokens,
            });
        }
    }
    let mut long = vec![2048; 15];
    long.push(4096);
    assert_eq!(usual.judge(&short, &long), Ok(()));
    let said = |short: &[Short], long: &[u64]| {
        let reasons = usual.judge(short, long).expect_err("because it is another");
        reasons
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<String>>()
    };
    let mut other = short.clone();
    other[0].category = "poems".to_owned();
    other[1].prompt_tokens = 901;
    other[2].output_tokens = 49;
    long[3] = 4097;
    assert_eq!(
        said(&other, &long[..15]),
        [
            "code has 11 requests, expected 12",
            "poems has 1 requests, expected 0",
            "long has 15 requests, expected 16",
            "prompt tokens of request 1 are 901, which is in no bucket",
            "output tokens of request 2 are 49, which is in no bucket",
            "long prompt tokens of request 3 are 4097, which is in no bucket",
        ]
    );
    let narrow: Vec<Short> = short
        .iter()
        .map(|one| Short {
            prompt_tokens: 64,
            ..one.clone()
        })
        .collect();
    assert_eq!(
        said(&narrow, &[2048; 16]),
        [
            "no request has 129 to 512 prompt tokens",
            "no request has 513 to 900 prompt tokens",
        ]
    );
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
