//! Rates: a count over a named window, made from arrivals, never from a count and a duration.
//!
//! - A `Rate` keeps its window, its count, both ends and all that arrived: a figure can be made
//!   again from what is written beside it.
//! - N tokens make N - 1 intervals at most. Tokens that came in one burst share its time, so a
//!   window that begins at a burst counts none of that burst's tokens.
//! - Rates of two windows aren't comparable, and `Rate` has no order.
//! - There is no operator from counts and times to anything:
//!
//! ```compile_fail,E0369
//! use packhouse_gate::rate::{Nanos, Tokens};
//! let _ = Tokens::of(512) / Nanos::of(25_466_613_150);
//! ```
//!
//! ```compile_fail,E0369
//! use packhouse_gate::rate::{Intervals, Nanos};
//! let _ = Intervals::of(99) / Nanos::of(12_494_082_404);
//! ```
//!
//! ```compile_fail,E0308
//! use packhouse_gate::rate::Tokens;
//! let _ = std::time::Duration::from_secs(1) / Tokens::of(512);
//! ```
//!
//! ```compile_fail,E0451
//! use packhouse_gate::rate::{Rate, Window};
//! let _ = Rate { window: Window::Wall, counted: 512, from_ns: 0, to_ns: 9, arrived: 512 };
//! ```
//!
//! ```compile_fail,E0369
//! use packhouse_gate::rate::Rate;
//! fn faster(left: Rate, right: Rate) -> bool {
//!     left > right
//! }
//! ```
//!
//! What there is instead:
//!
//! ```
//! use packhouse_gate::rate::{Arrivals, Burst, Window};
//! let bursts = [Burst { at_ns: 2_000, tokens: 1 }, Burst { at_ns: 5_000, tokens: 3 }];
//! let arrivals = Arrivals::of(1_000, 6_000, &bursts).expect("because they are in order");
//! let rate = arrivals.rate(Window::InterToken { k_first: 1 }).expect("because there are two");
//! assert_eq!(rate.per_second(), 1e6);
//! ```

use crate::rational::Rational;
use packhouse_base::Blame;
use std::cmp::Ordering;

/// A count of tokens. It divides by nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tokens(u64);

/// A count of intervals between tokens. It divides by nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Intervals(u64);

/// A span in nanoseconds. Nothing is divided by it but inside a `Rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(u64);

impl Tokens {
    /// Counts tokens.
    pub fn of(count: u64) -> Self {
        Self(count)
    }

    /// How many.
    pub fn count(self) -> u64 {
        self.0
    }
}

impl Intervals {
    /// Counts intervals.
    pub fn of(count: u64) -> Self {
        Self(count)
    }

    /// How many.
    pub fn count(self) -> u64 {
        self.0
    }
}

impl Nanos {
    /// Takes a span.
    pub fn of(count: u64) -> Self {
        Self(count)
    }

    /// The span between two readings of one steady clock; `None` where the later is earlier.
    pub fn between(earlier_ns: u64, later_ns: u64) -> Option<Self> {
        later_ns.checked_sub(earlier_ns).map(Self)
    }

    /// How many nanoseconds.
    pub fn count(self) -> u64 {
        self.0
    }
}

/// What a rate counts, over which span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// From the first burst to the last: the tokens after the first `k_first`, which are those of
    /// the first burst, so the count is N - k_first.
    InterToken {
        /// Tokens of the first burst.
        k_first: u64,
    },
    /// From the second burst to the last: what the first use costs is outside. The count leaves out
    /// the first two bursts.
    Steady,
    /// All tokens over the span from the first to the last, one more than there are intervals. It
    /// is here to repeat figures that were published so, and is marked wherever it is shown.
    EventsOverSpan,
    /// All tokens from the request to the end.
    Wall,
    /// The server's own count over the server's own span.
    ServerReported,
}

impl Window {
    /// Its name, as records and pages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InterToken { .. } => "inter-token",
            Self::Steady => "steady",
            Self::EventsOverSpan => "events-over-span",
            Self::Wall => "wall",
            Self::ServerReported => "server-reported",
        }
    }
}

/// Tokens that came at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The steady clock's reading, in nanoseconds.
    pub at_ns: u64,
    /// Tokens that came, at least one.
    pub tokens: u64,
}

/// When the tokens of one request came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    started_ns: u64,
    /// None where the last bursts were left out: what is left of a response has no end.
    ended_ns: Option<u64>,
    bursts: Vec<Burst>,
}

/// A count over the span of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    window: Window,
    counted: u64,
    from_ns: u64,
    to_ns: u64,
    arrived: u64,
}

/// Why there is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRate {
    /// Bursts aren't in the order of their times, or outside the request.
    #[error("burst {index} is at {at_ns} ns, expected {from_ns} to {to_ns}")]
    Order {
        /// The burst.
        index: usize,
        /// Its time.
        at_ns: u64,
        /// The least that was possible.
        from_ns: u64,
        /// The most that was possible.
        to_ns: u64,
    },
    /// A burst has no token.
    #[error("burst {index} has no token")]
    Empty {
        /// The burst.
        index: usize,
    },
    /// There are more tokens than can be counted.
    #[error("there are more tokens than 2^64")]
    TooMany,
    /// The window has too few bursts for one span.
    #[error("{window} needs {least} bursts at different times, there are {bursts}")]
    TooFew {
        /// The window's name.
        window: &'static str,
        /// Bursts needed.
        least: usize,
        /// Bursts there are.
        bursts: usize,
    },
    /// The declared first burst isn't the one that came.
    #[error("the first burst has {actual} tokens, the window says {declared}")]
    First {
        /// Tokens that the window leaves out.
        declared: u64,
        /// Tokens of the first burst.
        actual: u64,
    },
    /// Fewer tokens came than were asked for.
    #[error("{arrived} tokens came, fewer than {token}")]
    Fewer {
        /// The last token that was asked for.
        token: u64,
        /// Tokens that came.
        arrived: u64,
    },
    /// Nothing came, or a server counted nothing: that is no rate, and none of 0.
    #[error("{window} counts no token")]
    NoToken {
        /// The window's name.
        window: &'static str,
    },
    /// A part of a response has no wall rate.
    #[error("wall is of a whole response, not of its first tokens")]
    Cut,
    /// Arrivals can't give what a server says of itself.
    #[error("server-reported is not made from arrivals")]
    NotReported,
    /// A span of nothing.
    #[error("a span of 0 ns has no rate")]
    Instant,
}

impl NoRate {
    /// Whose side it is on: whoever took the times, or chose the window.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Order { .. }
            | Self::Empty { .. }
            | Self::TooMany
            | Self::TooFew { .. }
            | Self::First { .. }
            | Self::Fewer { .. }
            | Self::NoToken { .. }
            | Self::Cut
            | Self::NotReported
            | Self::Instant => Blame::Caller,
        }
    }
}

impl Arrivals {
    /// Takes the times of one request, all of one steady clock: when it was sent, when its stream
    /// ended, and the bursts between, in their order. Bursts of one time are one burst.
    pub fn of(started_ns: u64, ended_ns: u64, bursts: &[Burst]) -> Result<Self, NoRate> {
        let mut joined: Vec<Burst> = Vec::new();
        let mut total = 0_u64;
        for (index, burst) in bursts.iter().enumerate() {
            let from_ns = joined.last().map_or(started_ns, |last| last.at_ns);
            let at_ns = burst.at_ns;
            if !(from_ns..=ended_ns).contains(&at_ns) {
                let to_ns = ended_ns;
                return Err(NoRate::Order {
                    index,
                    at_ns,
                    from_ns,
                    to_ns,
                });
            }
            if burst.tokens == 0 {
                return Err(NoRate::Empty { index });
            }
            total = total.checked_add(burst.tokens).ok_or(NoRate::TooMany)?;
            match joined.last_mut().filter(|last| last.at_ns == at_ns) {
                Some(last) => last.tokens += burst.tokens,
                None => joined.push(*burst),
            }
        }
        Ok(Self {
            started_ns,
            ended_ns: Some(ended_ns),
            bursts: joined,
        })
    }

    /// Takes one time per token.
    pub fn of_tokens(started_ns: u64, ended_ns: u64, at_ns: &[u64]) -> Result<Self, NoRate> {
        let single = |at_ns: &u64| Burst {
            at_ns: *at_ns,
            tokens: 1,
        };
        let bursts: Vec<Burst> = at_ns.iter().map(single).collect();
        Self::of(started_ns, ended_ns, &bursts)
    }

    /// All tokens that came.
    pub fn tokens(&self) -> Tokens {
        Tokens(self.bursts.iter().map(|burst| burst.tokens).sum())
    }

    /// Tokens of the first burst; none where nothing came.
    pub fn first_burst(&self) -> Option<Tokens> {
        self.bursts.first().map(|burst| Tokens(burst.tokens))
    }

    /// From the request to the first burst.
    pub fn to_first(&self) -> Option<Nanos> {
        let first = self.bursts.first()?;
        Nanos::between(self.started_ns, first.at_ns)
    }

    /// From the first burst to the second: what the first use of a path costs is in it.
    pub fn first_gap(&self) -> Option<Nanos> {
        match self.bursts.as_slice() {
            [first, second, ..] => Nanos::between(first.at_ns, second.at_ns),
            _ => None,
        }
    }

    /// The bursts up to and with the one that holds this token, counted from 1: whole bursts, so
    /// their tokens may be more. Where later ones are left out, what is left has no wall rate.
    ///
    /// # Errors
    /// When fewer tokens came.
    pub fn up_to_token(&self, token: u64) -> Result<Self, NoRate> {
        let arrived = self.tokens().count();
        if arrived < token {
            return Err(NoRate::Fewer { token, arrived });
        }
        let mut before = 0;
        let within = self.bursts.iter().take_while(|burst| {
            let is_within = before < token;
            before += burst.tokens;
            is_within
        });
        let bursts: Vec<Burst> = within.copied().collect();
        let is_whole = bursts.len() == self.bursts.len();
        Ok(Self {
            started_ns: self.started_ns,
            ended_ns: self.ended_ns.filter(|_| is_whole),
            bursts,
        })
    }

    /// Makes the rate of a window from these arrivals.
    pub fn rate(&self, window: Window) -> Result<Rate, NoRate> {
        let arrived = self.tokens().count();
        let (from_ns, to_ns, counted) = match window {
            Window::InterToken { k_first } => {
                let [first, .., last] = self.at_least(window)?;
                if k_first != first.tokens {
                    let (declared, actual) = (k_first, first.tokens);
                    return Err(NoRate::First { declared, actual });
                }
                (first.at_ns, last.at_ns, arrived - k_first)
            }
            Window::Steady => {
                let [first, second, last] = self.at_least(window)?;
                let left_out = first.tokens + second.tokens;
                (second.at_ns, last.at_ns, arrived - left_out)
            }
            Window::EventsOverSpan => {
                let [first, .., last] = self.at_least(window)?;
                (first.at_ns, last.at_ns, arrived)
            }
            Window::Wall => {
                let ended_ns = self.ended_ns.ok_or(NoRate::Cut)?;
                (self.started_ns, ended_ns, arrived)
            }
            Window::ServerReported => return Err(NoRate::NotReported),
        };
        Rate::of(window, counted, (from_ns, to_ns), arrived)
    }

    /// The first, second and last burst, which are at least as many as the window needs.
    fn at_least(&self, window: Window) -> Result<[Burst; 3], NoRate> {
        let least = if window == Window::Steady { 3 } else { 2 };
        match self.bursts.as_slice() {
            [first, second, .., last] => Ok([*first, *second, *last]),
            [first, last] if least == 2 => Ok([*first, *last, *last]),
            bursts => Err(NoRate::TooFew {
                window: window.name(),
                least,
                bursts: bursts.len(),
            }),
        }
    }
}

impl Rate {
    /// What a server says of itself: its tokens over its span. It's never compared with a rate of
    /// arrivals.
    pub fn server_reported(tokens: Tokens, span: Nanos) -> Result<Self, NoRate> {
        Self::of(Window::ServerReported, tokens.0, (0, span.0), tokens.0)
    }

    fn of(window: Window, counted: u64, ends: (u64, u64), arrived: u64) -> Result<Self, NoRate> {
        let (from_ns, to_ns) = ends;
        if counted == 0 {
            let window = window.name();
            return Err(NoRate::NoToken { window });
        }
        if from_ns >= to_ns {
            return Err(NoRate::Instant);
        }
        Ok(Self {
            window,
            counted,
            from_ns,
            to_ns,
            arrived,
        })
    }

    /// The window that it is of.
    pub fn window(&self) -> Window {
        self.window
    }

    /// What was counted over the span: intervals, or tokens where the window says so.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// All tokens that came, whether the window counts them or not.
    pub fn arrived(&self) -> Tokens {
        Tokens(self.arrived)
    }

    /// Where the span begins and ends, by the clock of the arrivals.
    pub fn ends_ns(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }

    /// The span.
    pub fn span(&self) -> Nanos {
        Nanos(self.to_ns - self.from_ns)
    }

    /// The count of one second, exactly.
    pub fn exact(&self) -> Rational {
        let counted = i128::from(self.counted) * 1_000_000_000;
        Rational::new(counted, i128::from(self.span().0)).expect("because the span is not empty")
    }

    /// The count of one second, rounded once.
    pub fn per_second(&self) -> f64 {
        self.exact().to_binary64()
    }

    /// Compares two rates of one window; `None` where the windows are two. Windows between tokens
    /// are one, however many tokens the first burst had.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        let is_one = self.window.name() == other.window.name();
        is_one.then(|| self.exact().cmp(&other.exact()))
    }
}
