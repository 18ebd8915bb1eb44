//! What a held-out pack is made of: so many requests of each kind, in declared buckets.

use packhouse_base::Blame;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What a pack must be made of, declared before it is revealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composition {
    /// Category to how many short requests it has, exactly.
    pub short: BTreeMap<String, u64>,
    /// Tokens of short prompts: each is in one of these, and each of these has one.
    pub prompt_buckets: Vec<RangeInclusive<u64>>,
    /// Tokens that short requests ask for, likewise.
    pub output_buckets: Vec<RangeInclusive<u64>>,
    /// How many long requests there are, exactly.
    pub long: u64,
    /// Tokens of their prompts.
    pub long_tokens: RangeInclusive<u64>,
}

/// A short request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// Its category.
    pub category: String,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens that it asks for.
    pub output_tokens: u64,
}

/// Why a pack is not what was declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mispacked {
    /// There are more or fewer requests of a kind.
    #[error("{kind} has {requests} requests, expected {expected}")]
    Count {
        /// The category, or `long`.
        kind: String,
        /// Requests there are.
        requests: u64,
        /// What was declared.
        expected: u64,
    },
    /// A request is of no bucket.
    #[error("{what} of request {request} are {tokens}, which is in no bucket")]
    Outside {
        /// `prompt tokens`, `output tokens` or `long prompt tokens`.
        what: &'static str,
        /// The request, counted from 0 among the short or the long.
        request: usize,
        /// Its tokens.
        tokens: u64,
    },
    /// A bucket has no request.
    #[error("no request has {least} to {most} {what}")]
    Empty {
        /// `prompt tokens` or `output tokens`.
        what: &'static str,
        /// The least of the bucket.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl Mispacked {
    /// Whose side it is on: whoever made the pack.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Count { .. } | Self::Outside { .. } | Self::Empty { .. } => Blame::Caller,
        }
    }
}

impl Composition {
    /// What the reference lab asked for: 48 short requests and 16 long ones.
    pub fn usual() -> Self {
        let short = [("code", 12), ("math", 10), ("mixed", 20), ("tools", 6)];
        Self {
            short: short.map(|(name, count)| (name.to_owned(), count)).into(),
            prompt_buckets: vec![32..=128, 129..=512, 513..=900],
            output_buckets: vec![8..=48, 96..=192, 256..=512],
            long: 16,
            long_tokens: 2048..=4096,
        }
    }

    /// Holds a pack against it; long requests are given by the tokens of their prompts. Lists every
    /// reason against it.
    pub fn judge(&self, short: &[Short], long: &[u64]) -> Result<(), Vec<Mispacked>> {
        let mut reasons = self.counts(short, long);
        let of = |tokens: fn(&Short) -> u64| short.iter().map(tokens).collect::<Vec<u64>>();
        let prompts = of(|it| it.prompt_tokens);
        let outputs = of(|it| it.output_tokens);
        reasons.extend(bucketed("prompt tokens", &self.prompt_buckets, &prompts));
        reasons.extend(bucketed("output tokens", &self.output_buckets, &outputs));
        let only = std::slice::from_ref(&self.long_tokens);
        reasons.extend(outside("long prompt tokens", only, long));
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(reasons),
        }
    }

    fn counts(&self, short: &[Short], long: &[u64]) -> Vec<Mispacked> {
        let mut kinds: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (kind, expected) in &self.short {
            kinds.entry(kind).or_default().1 = *expected;
        }
        for request in short {
            kinds.entry(&request.category).or_default().0 += 1;
        }
        let long = ("long", (long.len() as u64, self.long));
        let wrong = kinds.into_iter().chain([long]);
        let wrong = wrong.filter(|(_, (requests, expected))| requests != expected);
        let wrong = wrong.map(|(kind, (requests, expected))| Mispacked::Count {
            kind: kind.to_owned(),
            requests,
            expected,
        });
        wrong.collect()
    }
}

fn bucketed(what: &'static str, buckets: &[RangeInclusive<u64>], tokens: &[u64]) -> Vec<Mispacked> {
    let mut reasons = outside(what, buckets, tokens);
    let empty = buckets
        .iter()
        .filter(|bucket| !tokens.iter().any(|tokens| bucket.contains(tokens)));
    reasons.extend(empty.map(|bucket| Mispacked::Empty {
        what,
        least: *bucket.start(),
        most: *bucket.end(),
    }));
    reasons
}

fn outside(what: &'static str, buckets: &[RangeInclusive<u64>], tokens: &[u64]) -> Vec<Mispacked> {
    let is_outside = |tokens: &u64| !buckets.iter().any(|bucket| bucket.contains(tokens));
    let wrong = tokens.iter().copied().enumerate();
    let wrong = wrong.filter(|(_, tokens)| is_outside(tokens));
    wrong
        .map(|(request, tokens)| Mispacked::Outside {
            what,
            request,
            tokens,
        })
        .collect()
}
