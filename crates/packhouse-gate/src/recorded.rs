//! Figures of others, as they were recorded: offsets in binary64 seconds.
//!
//! Nothing of ours is recorded so. These formulas make published figures again, to the last bit,
//! from the times beside them: each is evaluated as it is written, every operation rounded once.

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

/// The rates of the first `events` tokens; `None` where `events` is 0 or 1, where there are fewer
/// offsets, where the span is not above 0, and where anything is no number.
pub fn window_rates(offsets: &[f64], events: u64) -> Option<WindowRates> {
    let last = usize::try_from(events.checked_sub(1)?).ok()?;
    let span = offsets.get(last)? - offsets.first()?;
    let intervals = events - 1;
    let rates = WindowRates {
        events_over_span: count(events) / span,
        inter_token: count(intervals) / span,
        events,
        intervals,
        span,
    };
    (intervals > 0 && is_above_zero(span) && is_above_zero(rates.events_over_span)).then_some(rates)
}

/// The rates of a whole response of `tokens` tokens; `None` where there is no token, where a span
/// is no number above 0, and where what came after the first took longer than all of it.
pub fn response_rates(tokens: u64, elapsed: f64, after_first: f64) -> Option<ResponseRates> {
    let is_span = is_above_zero(elapsed) && is_above_zero(after_first) && after_first <= elapsed;
    (tokens > 0 && is_span).then(|| ResponseRates {
        wall: count(tokens) / elapsed,
        full_after_first: count(tokens) / after_first,
        full_inter_token: count(tokens - 1) / after_first,
    })
}

/// A published `events / span` as `intervals / span`: times 0.99 for 100 events. It is for figures
/// whose offsets are gone; where they are there, `window_rates` gives the last bit too. `None`
/// where `events` is 0 or 1, and where the figure is no number above 0.
pub fn converted(events_over_span: f64, events: u64) -> Option<f64> {
    let is_rate = events > 1 && is_above_zero(events_over_span);
    is_rate.then(|| events_over_span * count(events - 1) / count(events))
}

/// Whether a stored figure is the one that was computed again: within 1e-12, absolutely.
pub fn agrees(stored: f64, computed: f64) -> bool {
    (stored - computed).abs() <= 1e-12
}

/// Milliseconds of one cycle: `1000 seconds / cycles`, both as counters rose over a suite; `None`
/// without a cycle, and where the seconds are no number above 0.
pub fn cycle_ms(decode_seconds: f64, cycles: u64) -> Option<f64> {
    let is_rise = cycles > 0 && is_above_zero(decode_seconds);
    is_rise.then(|| 1000.0 * decode_seconds / count(cycles))
}

/// A counter's rise, which servers give as binary64; `None` where it fell, is no number, or is more
/// than 1e-6 away from a whole number.
pub fn rise(before: f64, after: f64) -> Option<u64> {
    let rise = after - before;
    let whole = rise.round();
    // By the rise itself: a small fall is rounded to a zero, too.
    let is_whole = rise >= 0.0 && (rise - whole).abs() <= 1e-6 && whole < 9e15;
    // Below 2^53 the conversion is exact.
    is_whole.then_some(whole as u64)
}

fn is_above_zero(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Counts are far below 2^53, where the conversion is exact.
fn count(value: u64) -> f64 {
    value as f64
}
