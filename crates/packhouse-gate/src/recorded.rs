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
/// offsets, and where the span is not above 0.
pub fn window_rates(offsets: &[f64], events: u64) -> Option<WindowRates> {
    let last = usize::try_from(events.checked_sub(1)?).ok()?;
    let span = offsets.get(last)? - offsets.first()?;
    let intervals = events - 1;
    (intervals > 0 && span > 0.0).then(|| WindowRates {
        events_over_span: count(events) / span,
        inter_token: count(intervals) / span,
        events,
        intervals,
        span,
    })
}

/// The rates of a whole response of `tokens` tokens; `None` where there is no token, or a span is
/// not above 0.
pub fn response_rates(tokens: u64, elapsed: f64, after_first: f64) -> Option<ResponseRates> {
    (tokens > 0 && elapsed > 0.0 && after_first > 0.0).then(|| ResponseRates {
        wall: count(tokens) / elapsed,
        full_after_first: count(tokens) / after_first,
        full_inter_token: count(tokens - 1) / after_first,
    })
}

/// A published `events / span` as `intervals / span`: times 0.99 for 100 events. It is for figures
/// whose offsets are gone; where they are there, `window_rates` gives the last bit too.
pub fn converted(events_over_span: f64, events: u64) -> f64 {
    events_over_span * (count(events.saturating_sub(1)) / count(events))
}

/// Whether a stored figure is the one that was computed again: within 1e-12, absolutely.
pub fn agrees(stored: f64, computed: f64) -> bool {
    (stored - computed).abs() <= 1e-12
}

/// Milliseconds of one cycle: `1000 seconds / cycles`, both as counters rose over a suite.
pub fn cycle_ms(decode_seconds: f64, cycles: u64) -> Option<f64> {
    (cycles > 0).then(|| 1000.0 * decode_seconds / count(cycles))
}

/// A counter's rise, which servers give as binary64; `None` where it fell, is no number, or is more
/// than 1e-6 away from a whole number.
pub fn rise(before: f64, after: f64) -> Option<u64> {
    let rise = after - before;
    let whole = rise.round();
    let is_whole = whole >= 0.0 && (rise - whole).abs() <= 1e-6 && whole < 9e15;
    // Below 2^53 the conversion is exact.
    is_whole.then_some(whole as u64)
}

/// Counts are far below 2^53, where the conversion is exact.
fn count(value: u64) -> f64 {
    value as f64
}
