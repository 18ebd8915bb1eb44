//! What a run over a suite of fresh responses is good for: promotion, screening or nothing.
//!
//! - Every reason is listed. A run that fails as screening is never promoted.
//! - A count that is absent is no 0, neither of cached tokens nor of any other.
//! - Whatever it comes to, publishing needs an attestation of quality by somebody else beside it.

use packhouse_base::Blame;
use std::collections::BTreeSet;
use std::fmt;

/// What came of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The prompt's SHA-256.
    pub prompt_sha256: String,
    /// The prompt's class, where the suite has classes.
    pub class: Option<String>,
    /// Prompt tokens that came from a cache, where the server says so as an integer.
    pub cached_tokens: Option<u64>,
    /// Timed events: token ids where they were asked for, chunks else.
    pub events: Option<u64>,
    /// Tokens of the response.
    pub completion_tokens: Option<u64>,
    /// Whether the row has its rate.
    pub has_rate: bool,
    /// Why it ended, where that is known.
    pub finish: Option<String>,
}

/// What was asked of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Prompts that the suite has.
    pub suite_prompts: u64,
    /// Prompts of it that were asked.
    pub prompts: u64,
    /// Tokens that each request asked for at most.
    pub cap: u64,
    /// Events of the window.
    pub window: u64,
    /// Whether end tokens were ignored. If not, every reason of an end must be known.
    pub is_end_ignored: bool,
}

/// What a promotion asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Prompts, at least.
    pub prompts: u64,
    /// Classes of prompts, at least.
    pub classes: u64,
    /// Tokens that each request asks for at most, exactly so many.
    pub cap: u64,
    /// Events of the window, exactly.
    pub window: u64,
    /// Tokens of every response, at least.
    pub completion: u64,
}

impl Policy {
    /// What the reference lab asked for.
    pub const USUAL: Self = Self {
        prompts: 12,
        classes: 5,
        cap: 512,
        window: 100,
        completion: 100,
    };
}

/// What a run is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// It may be promoted.
    Promotion,
    /// It is a screening, and no more.
    Screening,
    /// It is no evidence.
    Invalid,
}

impl Grade {
    /// Whether whoever asked for this gets a yes: a promotion, or a screening where that is enough.
    pub fn is_yes(self, is_screening_enough: bool) -> bool {
        match self {
            Self::Promotion => true,
            Self::Screening => is_screening_enough,
            Self::Invalid => false,
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Promotion => "promotion-grade-fresh-response",
            Self::Screening => "fresh-response-screening",
            Self::Invalid => "invalid-or-incomplete",
        })
    }
}

/// Why a run is no more than it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ungraded {
    /// Not every prompt that was asked was answered.
    #[error("{answers} of {prompts} prompts were answered")]
    Rows {
        /// Answers there are.
        answers: usize,
        /// Prompts that were asked.
        prompts: u64,
    },
    /// A row lacks something, or has too little of it.
    #[error("row {row} has {what} {value}, expected {expected}")]
    Row {
        /// The row, counted from 0.
        row: usize,
        /// Of what.
        what: &'static str,
        /// What it has.
        value: String,
        /// What is asked for.
        expected: String,
    },
    /// A prompt was asked twice.
    #[error("row {row} is of prompt {prompt_sha256}, which an earlier one is of")]
    Again {
        /// The later row, counted from 0.
        row: usize,
        /// The prompt.
        prompt_sha256: String,
    },
    /// The suite as a whole is not what a promotion asks for.
    #[error("{what} is {value}, expected {expected}")]
    Suite {
        /// What of it.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What is asked for.
        expected: String,
    },
    /// End tokens were ignored.
    #[error("end tokens were ignored")]
    EndIgnored,
}

impl Ungraded {
    /// Whose side it is on: whoever ran it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Rows { .. }
            | Self::Row { .. }
            | Self::Again { .. }
            | Self::Suite { .. }
            | Self::EndIgnored => Blame::Caller,
        }
    }
}

/// What a run comes to, and every reason why it is not more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graded {
    /// What it is good for.
    pub grade: Grade,
    /// Why it is no promotion; empty where it is one.
    pub reasons: Vec<Ungraded>,
}

/// Grades a run.
pub fn grade(policy: &Policy, asked: &Asked, answers: &[Answer]) -> Graded {
    let mut reasons = screened(asked, answers);
    let grade = match reasons.is_empty() {
        false => Grade::Invalid,
        true => {
            reasons = promoted(policy, asked, answers);
            match reasons.is_empty() {
                true => Grade::Promotion,
                false => Grade::Screening,
            }
        }
    };
    Graded { grade, reasons }
}

fn screened(asked: &Asked, answers: &[Answer]) -> Vec<Ungraded> {
    let mut reasons = Vec::new();
    let (count, prompts) = (answers.len(), asked.prompts);
    if count as u64 != prompts || count == 0 {
        reasons.push(Ungraded::Rows {
            answers: count,
            prompts,
        });
    }
    let mut seen = BTreeSet::new();
    for (row, answer) in answers.iter().enumerate() {
        let bad = row_faults(asked, answer).into_iter();
        reasons.extend(bad.map(|(what, value, expected)| Ungraded::Row {
            row,
            what,
            value,
            expected,
        }));
        if !seen.insert(&answer.prompt_sha256) {
            let prompt_sha256 = answer.prompt_sha256.clone();
            reasons.push(Ungraded::Again { row, prompt_sha256 });
        }
    }
    reasons
}

fn row_faults(asked: &Asked, answer: &Answer) -> Vec<(&'static str, String, String)> {
    let said = |value: Option<u64>| value.map_or("absent".to_owned(), |it| it.to_string());
    let mut faults = Vec::new();
    if !answer.has_rate {
        faults.push(("a rate", "absent".to_owned(), "one".to_owned()));
    }
    if answer.cached_tokens != Some(0) {
        let cached = said(answer.cached_tokens);
        faults.push(("cached tokens", cached, "0".to_owned()));
    }
    let counted = [
        ("events", answer.events),
        ("completion tokens", answer.completion_tokens),
    ];
    let few = |(_, value): &(&str, Option<u64>)| value.is_none_or(|it| it < asked.window);
    let least = format!("{} or more", asked.window);
    let few = counted.into_iter().filter(few);
    faults.extend(few.map(|(what, value)| (what, said(value), least.clone())));
    if answer.finish.is_none() && !asked.is_end_ignored {
        let expected = "a known one".to_owned();
        faults.push(("the reason of its end", "absent".to_owned(), expected));
    }
    faults
}

fn promoted(policy: &Policy, asked: &Asked, answers: &[Answer]) -> Vec<Ungraded> {
    let classes: BTreeSet<&String> = answers.iter().filter_map(|it| it.class.as_ref()).collect();
    let shortest = answers.iter().filter_map(|it| it.completion_tokens).min();
    let least = |least: u64| (least, format!("{least} or more"));
    let exactly = |value: u64| (value, value.to_string());
    let suite = asked.suite_prompts;
    let at_least = [
        (
            "the number of prompts",
            asked.prompts,
            least(policy.prompts),
        ),
        (
            "the number of classes",
            classes.len() as u64,
            least(policy.classes),
        ),
        (
            "the shortest response",
            shortest.unwrap_or(0),
            least(policy.completion),
        ),
    ];
    let at_least = at_least
        .into_iter()
        .filter(|(_, value, (least, _))| value < least);
    let equal = [
        ("the asked part of the suite", asked.prompts, exactly(suite)),
        ("the cap", asked.cap, exactly(policy.cap)),
        ("the window", asked.window, exactly(policy.window)),
    ];
    let equal = equal
        .into_iter()
        .filter(|(_, value, (expected, _))| value != expected);
    let suite = at_least.chain(equal);
    let suite = suite.map(|(what, value, (_, expected))| Ungraded::Suite {
        what,
        value,
        expected,
    });
    let ignored = asked.is_end_ignored.then_some(Ungraded::EndIgnored);
    suite.chain(ignored).collect()
}
