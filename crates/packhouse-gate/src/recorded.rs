//! Figures of others, as they were recorded: offsets in binary64 seconds.
//!
//! Nothing of ours is recorded so. These formulas make published figures again, to the last bit,
//! from the times beside them: each is evaluated as it is written, every operation rounded once.

use packhouse_base::Blame;

/// Both rates of a window of token offsets, tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRates {
    /// `events / span`: one more event than there are intervals. Marked wherever it is shown.
    pub events_over_span: f64,
    /// `intervals / span`.
    pub inter_token: f64,
    /// Events of the window.
    pub events: u64,
    /// Intervals of the window, one less.
    pub intervals: u64,
    /// The last offset less the first, seconds.
    pub span: f64,
}

/// What a whole response took, tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseRates {
    /// `tokens / elapsed`.
    pub wall: f64,
    /// `tokens / after_first`: one more token than there are intervals. Marked wherever it is
    /// shown.
    pub full_after_first: f64,
    /// `(tokens - 1) / after_first`.
    pub full_inter_token: f64,
}

/// Why a figure of others can't be made again.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoFigure {
    /// There is no interval.
    #[error("{events} events have no interval between them")]
    Events {
        /// Events of the window.
        events: u64,
    },
    /// There are fewer offsets than the window has events.
    #[error("there are {offsets} offsets for {events} events")]
    Fewer {
        /// Events of the window.
        events: u64,
        /// Offsets there are.
        offsets: usize,
    },
    /// There is no token, or no cycle.
    #[error("there is no {counted}")]
    Nothing {
        /// What there is none of.
        counted: &'static str,
    },
    /// A count is above 2^53: binary64 would round it.
    #[error("{counted} are {value}, at most 2^53 are taken")]
    Count {
        /// What was counted.
        counted: &'static str,
        /// How many.
        value: u64,
    },
    /// A span, a rate or a sum of seconds is no number above 0.
    #[error("{figure} is {value}, expected a number above 0")]
    Size {
        /// Which.
        figure: &'static str,
        /// Its value.
        value: f64,
    },
    /// What came after the first token took longer than all of it.
    #[error("{after_first} s after the first token are more than {elapsed} s for all")]
    Longer {
        /// Seconds after the first token.
        after_first: f64,
        /// Seconds of the whole response.
        elapsed: f64,
    },
    /// A counter fell, or is no number.
    #[error("a counter went from {before} to {after}")]
    Fell {
        /// Before the suite.
        before: f64,
        /// After it.
        after: f64,
    },
    /// A counter rose by no whole number, or by more than can be told from one.
    #[error("a counter rose by {rise}, which is no count")]
    Broken {
        /// Its rise.
        rise: f64,
    },
}

impl NoFigure {
    /// Whose side it is on: whoever recorded.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Events { .. }
            | Self::Fewer { .. }
            | Self::Nothing { .. }
            | Self::Count { .. }
            | Self::Size { .. }
            | Self::Longer { .. }
            | Self::Fell { .. }
            | Self::Broken { .. } => Blame::Caller,
        }
    }
}

/// The rates of the first `events` tokens: of two or more, over a span above 0.
pub fn window_rates(offsets: &[f64], events: u64) -> Result<WindowRates, NoFigure> {
    if events <= 1 {
        return Err(NoFigure::Events { events });
    }
    let intervals = events - 1;
    let last = usize::try_from(intervals).ok();
    let last = last.and_then(|last| offsets.get(last));
    let (Some(first), Some(last)) = (offsets.first(), last) else {
        let offsets = offsets.len();
        return Err(NoFigure::Fewer { events, offsets });
    };
    let span = above_zero("the span", last - first)?;
    let events_over_span = count("events", events)? / span;
    Ok(WindowRates {
        events_over_span: above_zero("the rate", events_over_span)?,
        inter_token: count("intervals", intervals)? / span,
        events,
        intervals,
        span,
    })
}

/// The rates of a whole response of `tokens` tokens, one or more; what came after the first took no
/// longer than all of it.
pub fn response_rates(
    tokens: u64,
    elapsed: f64,
    after_first: f64,
) -> Result<ResponseRates, NoFigure> {
    if tokens == 0 {
        return Err(NoFigure::Nothing { counted: "token" });
    }
    above_zero("the whole time", elapsed)?;
    above_zero("the time after the first token", after_first)?;
    if after_first > elapsed {
        return Err(NoFigure::Longer {
            after_first,
            elapsed,
        });
    }
    let all = count("tokens", tokens)?;
    Ok(ResponseRates {
        wall: above_zero("the rate", all / elapsed)?,
        full_after_first: above_zero("the rate", all / after_first)?,
        full_inter_token: (all - 1.0) / after_first,
    })
}

/// A published `events / span` as `intervals / span`: times 0.99 for 100 events. It is for figures
/// whose offsets are gone; where they are there, `window_rates` gives the last bit too.
pub fn converted(events_over_span: f64, events: u64) -> Result<f64, NoFigure> {
    if events <= 1 {
        return Err(NoFigure::Events { events });
    }
    let rate = above_zero("the rate", events_over_span)?;
    let (intervals, events) = (count("intervals", events - 1)?, count("events", events)?);
    above_zero("the rate", rate * intervals / events)
}

/// Whether a stored figure is the one that was computed again: within 1e-12, absolutely.
pub fn agrees(stored: f64, computed: f64) -> bool {
    (stored - computed).abs() <= 1e-12
}

/// What a reproduction must reach at least: 95 % of the sealed median, by the convention that
/// counts intervals.
pub fn reproduction_floor(sealed_median: f64) -> Result<f64, NoFigure> {
    Ok(0.95 * above_zero("the sealed median", sealed_median)?)
}

/// Whether a median that was measured again is at the floor of its sealed one, or above it. Both
/// count intervals: one that counts events is converted first.
pub fn is_reproduced(sealed_median: f64, measured_median: f64) -> Result<bool, NoFigure> {
    let floor = reproduction_floor(sealed_median)?;
    Ok(above_zero("the measured median", measured_median)? >= floor)
}

/// Milliseconds of one cycle: `1000 seconds / cycles`, both as counters rose over a suite.
pub fn cycle_ms(decode_seconds: f64, cycles: u64) -> Result<f64, NoFigure> {
    if cycles == 0 {
        return Err(NoFigure::Nothing { counted: "cycle" });
    }
    let seconds = above_zero("the decode time", decode_seconds)?;
    above_zero("the cycle", 1000.0 * seconds / count("cycles", cycles)?)
}

/// A counter's rise, which servers give as binary64: not below 0, and within 1e-6 of a whole
/// number, below 9e15.
pub fn rise(before: f64, after: f64) -> Result<u64, NoFigure> {
    let rise = after - before;
    // By the rise itself: a small fall is rounded to a zero, too.
    let is_rise = rise >= 0.0;
    if !is_rise {
        return Err(NoFigure::Fell { before, after });
    }
    let whole = rise.round();
    let is_whole = (rise - whole).abs() <= 1e-6 && whole < 9e15;
    match is_whole {
        // Below 2^53 the conversion is exact.
        true => Ok(whole as u64),
        false => Err(NoFigure::Broken { rise }),
    }
}

fn above_zero(figure: &'static str, value: f64) -> Result<f64, NoFigure> {
    match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err(NoFigure::Size { figure, value }),
    }
}

/// Up to 2^53 the conversion is exact.
fn count(counted: &'static str, value: u64) -> Result<f64, NoFigure> {
    match value <= 1 << 53 {
        true => Ok(value as f64),
        false => Err(NoFigure::Count { counted, value }),
    }
}
