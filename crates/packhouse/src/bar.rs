//! The progress bar: one line on stderr, and only where that is a terminal.

use packhouse_base::units;
use packhouse_prepare::prepare::{Event, Phase, Progress};
use packhouse_sys::clock::{Clock as _, RealClock};
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Says in one line what a command does now, where stderr is a terminal; nothing clears the line.
pub(crate) fn note(text: &str) {
    if std::io::stderr().is_terminal() {
        let line: String = text.chars().take(LINE_CHARS).collect();
        // A terminal that went away is no reason to stop.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }
}

/// The same for what changes often: it is drawn ten times a second at most.
pub(crate) fn tick(text: impl FnOnce() -> String) {
    let now_ns = RealClock.steady_ns();
    let last_ns = TICKED_NS.load(Ordering::Relaxed);
    if now_ns.saturating_sub(last_ns) >= DRAW_NS && std::io::stderr().is_terminal() {
        TICKED_NS.store(now_ns, Ordering::Relaxed);
        note(&text());
    }
}

/// Clears the line of [`tick`], if it was drawn.
pub(crate) fn clear() {
    if TICKED_NS.swap(0, Ordering::Relaxed) > 0 {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

static TICKED_NS: AtomicU64 = AtomicU64::new(0);

/// A bar that hears how far a command is.
pub(crate) struct Bar {
    is_shown: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    what: &'static str,
    total_bytes: u64,
    done_bytes: u64,
    began_ns: u64,
    drawn_ns: u64,
    note: String,
}

impl Bar {
    /// A bar for the process' stderr.
    pub(crate) fn new() -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            state: Mutex::default(),
        }
    }

    /// Begins a phase of a command that has no `Progress`.
    pub(crate) fn begin(&self, phase: Phase, total_bytes: u64) {
        self.hear(Event::Begin { phase, total_bytes });
    }

    /// Begins a phase by a command's own word.
    pub(crate) fn start(&self, what: &'static str, total_bytes: u64) {
        let state = State {
            what,
            total_bytes,
            began_ns: RealClock.steady_ns(),
            ..State::default()
        };
        *self.lock() = state;
    }

    /// So many more bytes are done.
    pub(crate) fn done(&self, bytes: u64) {
        self.hear(Event::Done { bytes });
    }

    /// Shows a word beside the bar.
    pub(crate) fn note(&self, words: &str) {
        self.hear(Event::Tensor { name: words });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn hear(&self, event: Event<'_>) {
        if !self.is_shown {
            return;
        }
        let now_ns = RealClock.steady_ns();
        let mut state = self.lock();
        match event {
            Event::Begin { phase, total_bytes } => {
                *state = State {
                    what: word(phase),
                    total_bytes,
                    began_ns: now_ns,
                    ..State::default()
                };
            }
            Event::Done { bytes } => state.done_bytes += bytes,
            Event::Tensor { name } => name.clone_into(&mut state.note),
            Event::Waits { what } => state.note = format!("another process makes {what}; waiting"),
        }
        if now_ns.saturating_sub(state.drawn_ns) >= DRAW_NS {
            state.drawn_ns = now_ns;
            let line = state.line(now_ns);
            // A terminal that went away is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_shown && self.lock().drawn_ns > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl State {
    fn line(&self, now_ns: u64) -> String {
        let passed_ns = now_ns.saturating_sub(self.began_ns).max(1);
        let done = self.done_bytes.min(self.total_bytes);
        let share = |width: u64| {
            let filled = u128::from(done) * u128::from(width) / u128::from(self.total_bytes.max(1));
            usize::try_from(filled).unwrap_or(0)
        };
        let per_second = u128::from(done) * 1_000_000_000 / u128::from(passed_ns);
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        let left_s = (self.total_bytes - done) / per_second.max(1);
        let left = match done {
            0 => "-:--".to_owned(),
            _ => format!("{}:{:02}", left_s / 60, left_s % 60),
        };
        let line = format!(
            "{} [{}{}] {:3} % of {}, {}/s, {left} left  {}",
            self.what,
            "#".repeat(share(BAR_WIDTH)),
            ".".repeat(usize::try_from(BAR_WIDTH).unwrap_or(0) - share(BAR_WIDTH)),
            share(100),
            units::bytes(self.total_bytes),
            units::bytes(per_second),
            self.note,
        );
        line.chars().take(LINE_CHARS).collect()
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Look => "look",
        Phase::Pack => "pack",
        Phase::Verify => "verify",
        Phase::Copy => "copy",
    }
}

/// Between two drawings.
const DRAW_NS: u64 = 100_000_000;
const BAR_WIDTH: u64 = 20;
/// Below the width of a plain terminal, so that the line never breaks.
const LINE_CHARS: usize = 79;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long() {
        let mut state = State {
            what: "pack",
            total_bytes: 4 << 30,
            done_bytes: 1 << 30,
            note: "blk.3.ffn_up.weight".into(),
            ..State::default()
        };
        assert_eq!(
            state.line(2_000_000_000),
            "pack [#####...............]  25 % of 4.00 GiB, 512.0 MiB/s, 0:06 left  blk.3.ff"
        );
        state.done_bytes = 0;
        assert!(state.line(1).contains("-:-- left"), "{}", state.line(1));
        state.done_bytes = u64::MAX;
        assert!(state.line(1).contains("100 % of"), "{}", state.line(1));
    }
}
