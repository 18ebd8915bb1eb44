//! Counts of one response that several tell: how many tokens came, and how they ended.
//!
//! - Absent is not 0: a count that nobody gives is none, and one that was asked for and is absent
//!   makes the row invalid.
//! - All counts that are there are the same one, or there is none.
//! - A response has one end token at most, as its last; one of full length has none.

use crate::rate::Tokens;
use packhouse_base::Blame;
use std::fmt;

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The token ids that came.
    TokenIds,
    /// The usage that the server ends a response with.
    Usage,
    /// The sum over the chunks of the stream.
    Chunks,
    /// The rise of the server's own metric.
    Metrics,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TokenIds => "token ids",
            Self::Usage => "usage",
            Self::Chunks => "chunks",
            Self::Metrics => "metrics",
        })
    }
}

/// What each of them says; none where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Token ids that came.
    pub token_ids: Option<u64>,
    /// Tokens by the usage.
    pub usage: Option<u64>,
    /// Tokens over all chunks.
    pub chunks: Option<u64>,
    /// Tokens by the server's metric.
    pub metrics: Option<u64>,
}

/// Why a response has no count, or no valid end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miscounted {
    /// Nobody counts.
    #[error("nobody says how many tokens came")]
    Uncounted,
    /// A count that was asked for is absent.
    #[error("{source_name} don't say how many tokens came")]
    Absent {
        /// Who was asked.
        source_name: Source,
    },
    /// Two counts disagree.
    #[error("{first} say {count} tokens, {second} say {other}")]
    Disagreement {
        /// The first that counts.
        first: Source,
        /// Its count.
        count: u64,
        /// The first that disagrees with it.
        second: Source,
        /// Its count.
        other: u64,
    },
    /// More tokens came than were asked for.
    #[error("{tokens} tokens came, at most {cap} were asked for")]
    Longer {
        /// Tokens that came.
        tokens: u64,
        /// What was asked for.
        cap: u64,
    },
    /// A response that ended by its length is shorter.
    #[error("it ended by its length with {tokens} of {cap} tokens")]
    Shorter {
        /// Tokens that came.
        tokens: u64,
        /// What was asked for.
        cap: u64,
    },
    /// An end token is not the last one.
    #[error("token {index} of {tokens} is an end token")]
    Inside {
        /// Its index.
        index: usize,
        /// Tokens that came.
        tokens: usize,
    },
    /// A response that ended by its length has an end token.
    #[error("it ended by its length, and by an end token")]
    Both,
    /// Nobody says why it ended.
    #[error("nobody says why it ended")]
    Endless,
}

impl Miscounted {
    /// Whose side it is on: the server's, or whoever read it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Uncounted
            | Self::Absent { .. }
            | Self::Disagreement { .. }
            | Self::Longer { .. }
            | Self::Shorter { .. }
            | Self::Inside { .. }
            | Self::Both
            | Self::Endless => Blame::Caller,
        }
    }
}

impl Counts {
    /// The one count that all who count agree on; those of `needed` must.
    pub fn agreed(&self, needed: &[Source]) -> Result<Tokens, Miscounted> {
        let absent = needed.iter().find(|source| self.by(**source).is_none());
        if let Some(source) = absent {
            let source_name = *source;
            return Err(Miscounted::Absent { source_name });
        }
        let all = [
            Source::TokenIds,
            Source::Usage,
            Source::Chunks,
            Source::Metrics,
        ];
        let said = all.map(|source| Some((source, self.by(source)?)));
        let mut said = said.into_iter().flatten();
        let (first, count) = said.next().ok_or(Miscounted::Uncounted)?;
        match said.find(|(_, other)| *other != count) {
            None => Ok(Tokens::of(count)),
            Some((second, other)) => Err(Miscounted::Disagreement {
                first,
                count,
                second,
                other,
            }),
        }
    }

    /// What one of them says.
    pub fn by(&self, source: Source) -> Option<u64> {
        match source {
            Source::TokenIds => self.token_ids,
            Source::Usage => self.usage,
            Source::Chunks => self.chunks,
            Source::Metrics => self.metrics,
        }
    }
}

/// Why a response ended, by its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As many tokens came as were asked for.
    Length,
    /// The model ended it, or a text that stops it.
    Stop,
}

/// Holds the end of a response against the reason that its server gives, none where it gives none.
/// Of a request that ignores end tokens, `end_ids` are none.
pub fn ended(
    token_ids: &[u32],
    end_ids: &[u32],
    finish: Option<Finish>,
    cap: u64,
) -> Result<(), Miscounted> {
    let tokens = token_ids.len() as u64;
    if tokens > cap {
        return Err(Miscounted::Longer { tokens, cap });
    }
    let end = token_ids.iter().position(|id| end_ids.contains(id));
    if let Some(index) = end.filter(|index| index + 1 < token_ids.len()) {
        let tokens = token_ids.len();
        return Err(Miscounted::Inside { index, tokens });
    }
    match finish.ok_or(Miscounted::Endless)? {
        Finish::Length if tokens < cap => Err(Miscounted::Shorter { tokens, cap }),
        Finish::Length if end.is_some() => Err(Miscounted::Both),
        Finish::Length | Finish::Stop => Ok(()),
    }
}
