//! What a run over a suite is good for.

use packhouse_base::Blame;
use packhouse_gate::screening::{Answer, Asked, Grade, Policy, Ungraded, grade};

const ASKED: Asked = Asked {
    suite_prompts: 13,
    prompts: 13,
    cap: 512,
    window: 100,
    is_end_ignored: false,
};

fn answers() -> Vec<Answer> {
    let answer = |index: usize| Answer {
        prompt_sha256: format!("{index:064x}"),
        class: Some(format!("class-{}", index % 5)),
        cached_tokens: Some(0),
        events: Some(100),
        completion_tokens: Some(100 + index as u64),
        has_rate: true,
        finish: Some("stop".to_owned()),
    };
    (0..13).map(answer).collect()
}

fn graded(asked: Asked, change: impl FnOnce(&mut Vec<Answer>)) -> (Grade, Vec<String>) {
    let mut answers = answers();
    change(&mut answers);
    let graded = grade(&Policy::USUAL, &asked, &answers);
    let reasons = graded.reasons.iter().map(ToString::to_string);
    (graded.grade, reasons.collect())
}

#[test]
fn a_run_is_a_promotion_a_screening_or_nothing() {
    let (promotion, none) = graded(ASKED, |_| ());
    assert_eq!((promotion, none), (Grade::Promotion, vec![]));
    let names = [Grade::Promotion, Grade::Screening, Grade::Invalid].map(|it| it.to_string());
    assert_eq!(
        names,
        [
            "promotion-grade-fresh-response",
            "fresh-response-screening",
            "invalid-or-incomplete"
        ]
    );
    let yes = |grade: Grade| [false, true].map(|enough| grade.is_yes(enough));
    assert_eq!(yes(Grade::Promotion), [true, true]);
    assert_eq!(yes(Grade::Screening), [false, true]);
    assert_eq!(yes(Grade::Invalid), [false, false]);
    assert_eq!(Ungraded::EndIgnored.blame(), Blame::Caller);
}

#[test]
fn each_reason_against_a_promotion_leaves_a_screening() {
    let part = Asked {
        prompts: 12,
        ..ASKED
    };
    let drop = |answers: &mut Vec<Answer>| answers.truncate(12);
    assert_eq!(
        graded(part, drop),
        (
            Grade::Screening,
            vec!["the asked part of the suite is 12, expected 13".to_owned()]
        )
    );
    let few = Asked {
        prompts: 11,
        suite_prompts: 11,
        ..ASKED
    };
    let reasons = graded(few, |answers| answers.truncate(11));
    assert_eq!(
        reasons.1,
        ["the number of prompts is 11, expected 12 or more"]
    );
    let other = Asked {
        cap: 511,
        window: 99,
        is_end_ignored: true,
        ..ASKED
    };
    let reasons = graded(other, |answers| {
        answers[3].completion_tokens = Some(99);
        answers[4].finish = None;
        for answer in answers {
            answer.class = Some("one".to_owned());
        }
    });
    assert_eq!(reasons.0, Grade::Screening);
    assert_eq!(
        reasons.1,
        [
            "the number of classes is 1, expected 5 or more",
            "the shortest response is 99, expected 100 or more",
            "the cap is 511, expected 512",
            "the window is 99, expected 100",
            "end tokens were ignored",
        ]
    );
}

/// An absent count of cached tokens passed for 0, and a missing row for one that nobody wanted.
#[test]
fn each_reason_against_a_screening_leaves_nothing() {
    let invalid = |change: fn(&mut Vec<Answer>)| {
        let (grade, reasons) = graded(ASKED, change);
        assert_eq!(grade, Grade::Invalid);
        reasons
    };
    assert_eq!(
        invalid(|all| {
            all.pop();
        }),
        ["12 of 13 prompts were answered"]
    );
    assert_eq!(
        invalid(|all| all[0].has_rate = false),
        ["row 0 has a rate absent, expected one"]
    );
    assert_eq!(
        invalid(|all| all[1].cached_tokens = None),
        ["row 1 has cached tokens absent, expected 0"]
    );
    assert_eq!(
        invalid(|all| all[1].cached_tokens = Some(64)),
        ["row 1 has cached tokens 64, expected 0"]
    );
    assert_eq!(
        invalid(|all| {
            all[2].events = Some(99);
            all[2].completion_tokens = None;
        }),
        [
            "row 2 has events 99, expected 100 or more",
            "row 2 has completion tokens absent, expected 100 or more"
        ]
    );
    assert_eq!(
        invalid(|all| all[5].finish = None),
        ["row 5 has the reason of its end absent, expected a known one"]
    );
    let again = invalid(|all| all[6].prompt_sha256 = all[5].prompt_sha256.clone());
    assert!(again[0].starts_with("row 6 is of prompt 000"));
    let nothing = Asked {
        prompts: 0,
        suite_prompts: 0,
        ..ASKED
    };
    let reasons = graded(nothing, Vec::clear);
    assert_eq!(reasons.0, Grade::Invalid);
    assert_eq!(reasons.1, ["0 of 0 prompts were answered"]);
}
