//! Exactness: a run's token ids against a teacher's, row by row.
//!
//! - A row is exact when it answers the same prompt, nothing was cached, and every token id is the
//!   same and in its place; where the teacher has a digest of the text, that too.
//! - What is absent is a fault of its own: a count of cached tokens is never 0, a digest of the
//!   text never the teacher's.
//! - One row that differs makes the run differ; rows are never averaged.

use std::fmt;

/// What one row answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The prompt's index in the suite.
    pub prompt_index: u64,
    /// The prompt's id.
    pub prompt_id: String,
    /// The prompt's SHA-256.
    pub prompt_sha256: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Prompt tokens that came from a cache, where the server says so.
    pub cached_tokens: Option<u64>,
    /// The ids of all tokens that came.
    pub token_ids: Vec<u32>,
    /// The SHA-256 of the text, where it was taken.
    pub text_sha256: Option<String>,
}

/// Where two lists of token ids part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first index at which they differ; the shorter one's length where it is a beginning of
    /// the other.
    pub index: usize,
    /// The expected id there; none past the end.
    pub expected: Option<u32>,
    /// The id that came; none past the end.
    pub actual: Option<u32>,
    /// Ids expected.
    pub expected_length: usize,
    /// Ids that came.
    pub actual_length: usize,
}

/// Why a row is not exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inexact {
    /// It is of another prompt: by index, id, digest or tokens.
    Prompt {
        /// Which of the four.
        field: &'static str,
        /// The teacher's.
        expected: String,
        /// The row's.
        actual: String,
    },
    /// Prompt tokens came from a cache.
    Cached {
        /// How many.
        tokens: u64,
    },
    /// Nobody says whether prompt tokens came from a cache.
    CachedAbsent,
    /// Token ids differ.
    Tokens(Difference),
    /// The teacher has a digest of the text, and the row has none.
    TextAbsent {
        /// The teacher's.
        expected: String,
    },
    /// The text's digest differs.
    Text {
        /// The teacher's.
        expected: String,
        /// The row's.
        actual: String,
    },
    /// The run has no such row.
    Missing,
    /// The teacher has no such row.
    Invented,
}

impl fmt::Display for Inexact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt {
                field,
                expected,
                actual,
            } => {
                write!(
                    formatter,
                    "the prompt's {field} is {actual}, expected {expected}"
                )
            }
            Self::Cached { tokens } => {
                write!(
                    formatter,
                    "{tokens} prompt tokens came from a cache, expected 0"
                )
            }
            Self::CachedAbsent => {
                formatter.write_str("the server doesn't say how many prompt tokens were cached")
            }
            Self::Tokens(difference) => difference.fmt(formatter),
            Self::TextAbsent { expected } => {
                write!(formatter, "the text has no digest, expected {expected}")
            }
            Self::Text { expected, actual } => {
                write!(
                    formatter,
                    "the text has digest {actual}, expected {expected}"
                )
            }
            Self::Missing => formatter.write_str("the run has no such row"),
            Self::Invented => formatter.write_str("the teacher has no such row"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |id: Option<u32>| id.map_or("the end".to_owned(), |id| id.to_string());
        write!(
            formatter,
            "token {} is {}, expected {} ({} tokens, expected {})",
            self.index,
            shown(self.actual),
            shown(self.expected),
            self.actual_length,
            self.expected_length
        )
    }
}

/// A run against its teacher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exactness {
    /// For each row of the longer list, in order: why it is not exact. Empty for an exact row.
    pub rows: Vec<Vec<Inexact>>,
}

impl Exactness {
    /// Compares a run with its teacher, row by row in their order.
    pub fn of(teacher: &[Row], run: &[Row]) -> Self {
        let rows = 0..teacher.len().max(run.len());
        let rows = rows.map(|index| match (teacher.get(index), run.get(index)) {
            (Some(expected), Some(actual)) => faults(expected, actual),
            (Some(_), None) => vec![Inexact::Missing],
            (None, _) => vec![Inexact::Invented],
        });
        Self {
            rows: rows.collect(),
        }
    }

    /// How many rows are exact.
    pub fn exact_rows(&self) -> usize {
        self.rows.iter().filter(|row| row.is_empty()).count()
    }

    /// Whether every row is, and there is one.
    pub fn is_exact(&self) -> bool {
        !self.rows.is_empty() && self.exact_rows() == self.rows.len()
    }

    fn is_row_exact(&self, index: usize) -> bool {
        self.rows.get(index).is_some_and(Vec::is_empty)
    }
}

/// Where two lists of token ids part; `None` where they are the same.
pub fn first_difference(expected: &[u32], actual: &[u32]) -> Option<Difference> {
    let pairs = expected.iter().zip(actual);
    let shared = pairs
        .take_while(|(expected, actual)| expected == actual)
        .count();
    let is_same = shared == expected.len() && shared == actual.len();
    (!is_same).then(|| Difference {
        index: shared,
        expected: expected.get(shared).copied(),
        actual: actual.get(shared).copied(),
        expected_length: expected.len(),
        actual_length: actual.len(),
    })
}

/// What parts two lists of token ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divergence {
    /// Nothing does.
    BitEqual,
    /// Two ids that the teacher had nearly alike: another order of sums may take the other one.
    NearTie {
        /// The teacher's logit of its own id there, less that of the id that came.
        margin: f64,
    },
    /// Anything else: ids that the teacher had apart, a length, and what nobody measured.
    Structural,
}

/// Classes a difference by the teacher's margin there, where it is known: at most `near` is a near
/// tie. It says what parts them, and makes no row exact.
pub fn divergence(difference: Option<&Difference>, margin: Option<f64>, near: f64) -> Divergence {
    let Some(difference) = difference else {
        return Divergence::BitEqual;
    };
    let is_of_two_ids = difference.expected.is_some() && difference.actual.is_some();
    let is_near = |margin: &f64| near.is_finite() && (0.0..=near).contains(margin);
    match margin.filter(is_near).filter(|_| is_of_two_ids) {
        Some(margin) => Divergence::NearTie { margin },
        None => Divergence::Structural,
    }
}

/// Everything for which a row is not what its teacher's is.
pub fn faults(expected: &Row, actual: &Row) -> Vec<Inexact> {
    let mut faults = Vec::new();
    let text = |count: fn(&Row) -> u64| [expected, actual].map(|row| count(row).to_string());
    let index = text(|row| row.prompt_index);
    let tokens = text(|row| row.prompt_tokens);
    let prompt = [
        ("index", &index[0], &index[1]),
        ("id", &expected.prompt_id, &actual.prompt_id),
        ("digest", &expected.prompt_sha256, &actual.prompt_sha256),
        ("token count", &tokens[0], &tokens[1]),
    ];
    for (field, expected, actual) in prompt {
        if expected != actual {
            let (expected, actual) = (expected.clone(), actual.clone());
            faults.push(Inexact::Prompt {
                field,
                expected,
                actual,
            });
        }
    }
    match actual.cached_tokens {
        Some(0) => {}
        Some(tokens) => faults.push(Inexact::Cached { tokens }),
        None => faults.push(Inexact::CachedAbsent),
    }
    let difference = first_difference(&expected.token_ids, &actual.token_ids);
    faults.extend(difference.map(Inexact::Tokens));
    faults.extend(text_fault(expected, actual));
    faults
}

/// What is not as it must be with the text; a teacher without a digest of it asks for none.
fn text_fault(expected: &Row, actual: &Row) -> Option<Inexact> {
    let expected = expected.text_sha256.clone()?;
    match actual.text_sha256.clone() {
        None => Some(Inexact::TextAbsent { expected }),
        Some(actual) if actual != expected => Some(Inexact::Text { expected, actual }),
        Some(_) => None,
    }
}

/// Whether a full output was followed by an exact row: row 0 has exactly `cap` tokens, and rows 0
/// and 1 are exact. It says nothing of long contexts.
pub fn full_output_then_next(exactness: &Exactness, run: &[Row], cap: usize) -> bool {
    let is_full = run.first().is_some_and(|row| row.token_ids.len() == cap);
    is_full && exactness.is_row_exact(0) && exactness.is_row_exact(1)
}

/// Whether exactly one row's prompt has `least` tokens or more, and that row is exact.
pub fn rollover(exactness: &Exactness, run: &[Row], least: u64) -> bool {
    let long = |(_, row): &(usize, &Row)| row.prompt_tokens >= least;
    let long: Vec<usize> = run
        .iter()
        .enumerate()
        .filter(long)
        .map(|(index, _)| index)
        .collect();
    match long.as_slice() {
        [index] => exactness.is_row_exact(*index),
        _ => false,
    }
}
