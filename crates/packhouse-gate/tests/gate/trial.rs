//! The one load that a portfolio's admission allows.

use packhouse_base::Blame;
use packhouse_gate::portfolio::{Arm, Leg, NoTrial, Part, Trial, untried};

fn legs() -> Vec<Leg> {
    let leg = |(index, arm): (usize, Arm)| Leg {
        arm,
        binary: "ab".repeat(32),
        start: format!("start-{index}"),
        headline: [92.5, 92.0, 93.25][index],
        faults: vec![],
    };
    Arm::ORDER.into_iter().enumerate().map(leg).collect()
}

fn said(change: impl FnOnce(&mut Vec<Leg>)) -> String {
    let mut legs = legs();
    change(&mut legs);
    let none = Trial::of(&legs).expect_err("because it is none");
    none.to_string()
}

/// The order of the legs was nobody's business: any three of them could have been a trial.
#[test]
fn a_trial_is_candidate_control_candidate_of_one_binary() {
    let trial = Trial::of(&legs()).expect("because the order is B, A, B");
    assert_eq!(trial.mean_delta, 0.875);
    assert_eq!(trial.mean_percent, 100.0 * 0.875 / 92.0);
    assert_eq!((trial.publishable, trial.is_reproduced), (92.5, true));
    assert!(trial.is_above(92.4));
    // The mean is above, the lower start is not.
    assert!(!trial.is_above(92.5) && !trial.is_above(f64::NAN) && !trial.is_above(-1.0));
    assert_eq!(
        said(|legs| legs.swap(0, 1)),
        "leg 0 is of the control, expected the candidate"
    );
    assert_eq!(
        said(|legs| legs[1].arm = Arm::Candidate),
        "leg 1 is of the candidate, expected the control"
    );
    assert_eq!(
        said(|legs| {
            legs.pop();
        }),
        "there are 2 legs, expected 3: candidate, control, candidate"
    );
    assert_eq!(
        said(|legs| {
            let second = legs[1].clone();
            legs.push(second);
        }),
        "there are 4 legs, expected 3: candidate, control, candidate"
    );
    let binary = said(|legs| legs[1].binary = "cd".to_owned());
    assert!(binary.starts_with("leg 1 ran binary cd, leg 0 ran abab"));
    assert_eq!(
        said(|legs| legs[2].start = "start-0".to_owned()),
        "leg 2 is of start start-0, which an earlier one is of"
    );
    assert_eq!(
        said(|legs| legs[2].faults.push("row 3 is not exact".to_owned())),
        "leg 2 is no evidence: row 3 is not exact"
    );
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e61] {
        let none = said(|legs| legs[1].headline = value);
        let expected = format!("the headline of leg 1 is {value}, expected a number above 0");
        assert_eq!(none, expected);
    }
    assert_eq!(NoTrial::Count { legs: 0 }.blame(), Blame::Caller);
}

/// Two parts gained 0.711807 tokens per second in the mean and stayed below the record: preserved,
/// and not tried again without a part that saves something else.
#[test]
fn what_was_tried_is_not_tried_again_without_something_new() {
    let mut small = legs();
    for (leg, headline) in small.iter_mut().zip([33.6, 33.0, 33.823_614]) {
        leg.headline = headline;
    }
    let trial = Trial::of(&small).expect("because the order is B, A, B");
    assert_eq!(format!("{:.6}", trial.mean_delta), "0.711807");
    assert!(!trial.is_above(33.894_985_111_717_44));
    let part = |name: &str, saves: &[&str]| Part {
        name: name.to_owned(),
        lower_bound_ns: 300_000,
        saves: saves.iter().map(|name| (*name).to_owned()).collect(),
        boundaries: vec![],
        keeps_semantics: true,
        regressions: vec![],
        risks_collectives: false,
        is_source_compatible: true,
        is_frozen_first: true,
    };
    let tried = vec![part("router", &["route"]), part("gate", &["gate-up"])];
    let again = untried(&tried, std::slice::from_ref(&tried));
    let again = again.expect_err("because it was tried").to_string();
    assert_eq!(
        again,
        "every part saves what a portfolio of an earlier trial saved: router, gate"
    );
    let mut more = tried.clone();
    more.push(part("overlapping", &["gate-up", "norm"]));
    more.push(part("nothing", &[]));
    assert!(untried(&more, std::slice::from_ref(&tried)).is_err());
    more.push(part("norm", &["norm"]));
    assert_eq!(untried(&more, std::slice::from_ref(&tried)), Ok(()));
    assert!(untried(&more, &[tried.clone(), more.clone()]).is_err());
    assert_eq!(untried(&tried, &[]), Ok(()));
}
