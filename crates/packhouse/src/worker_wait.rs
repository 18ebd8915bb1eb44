//! The second half of `worker start`: waits for all launched workers at once, with one line that
//! says how far each is.

use crate::worker_launch::{Begun, InFlight, Refused, Would};
use packhouse_proc::fleet::WorkerName;
use packhouse_proc::procfs::Procfs;
use packhouse_proc::ready::{NotReady, Progress, Waiting};
use packhouse_proc::records::Identity;
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::signal;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

/// What became of one worker's start.
pub(crate) enum Waited {
    /// A dry run found nothing against it.
    Would(Box<Would>),
    /// Something is against it.
    Refused(Refused),
    /// It was launched, and is ready or will not be.
    Ended(Box<InFlight>, Box<Result<Identity, NotReady>>),
}

/// Waits for all workers that were launched; the others are handed on.
pub(crate) fn wait(procfs: &Procfs, names: &[WorkerName], begun: Vec<Begun>) -> Vec<Waited> {
    // A launch is safe to be killed at any step, so that only the wait has an end of its own. Where
    // this fails, it has none.
    let _ = signal::catch_once();
    let board = Board::new(names);
    let wait = |index: usize, begun: Begun| match begun {
        Begun::Would(would) => Waited::Would(would),
        Begun::Refused(refused) => Waited::Refused(refused),
        Begun::Launched(flight) => {
            let waiting = Waiting {
                procfs,
                clock: &RealClock,
                me: &flight.me,
                runs: &flight.runs,
                run: &flight.underway.run,
                order: &flight.underway.order,
                launched: &flight.underway.launched,
                cancel: &signal::was_caught,
            };
            let ended = waiting.wait(&mut |progress, waited_ns| {
                board.tell(index, progress, waited_ns);
            });
            board.ended(index, ended.is_ok());
            Waited::Ended(flight, Box::new(ended))
        }
    };
    std::thread::scope(|scope| {
        let begun = begun.into_iter().enumerate();
        let threads: Vec<_> = begun
            .map(|(index, begun)| scope.spawn(move || wait(index, begun)))
            .collect();
        let ended = threads.into_iter();
        ended
            .map(|thread| thread.join().expect("because waiting does not panic"))
            .collect()
    })
}

/// One line on stderr, where that is a terminal.
struct Board {
    is_shown: bool,
    state: Mutex<State>,
}

struct State {
    workers: Vec<(String, Option<String>)>,
    drawn_ns: u64,
    drawn: String,
}

impl Board {
    fn new(names: &[WorkerName]) -> Self {
        let workers = names.iter().map(|name| (name.to_string(), None));
        Self {
            is_shown: std::io::stderr().is_terminal(),
            state: Mutex::new(State {
                workers: workers.collect(),
                drawn_ns: 0,
                drawn: String::new(),
            }),
        }
    }

    fn tell(&self, index: usize, progress: &Progress, waited_ns: u64) {
        let word = match progress {
            Progress::Starting => "starts",
            Progress::Loading { .. } => "loads",
            Progress::Serving { .. } => "answers",
        };
        self.draw(index, format!("{word} {} s", waited_ns / 1_000_000_000));
    }

    fn ended(&self, index: usize, is_ready: bool) {
        let word = if is_ready { "ready" } else { "not ready" };
        self.draw(index, word.to_owned());
    }

    fn draw(&self, index: usize, word: String) {
        if !self.is_shown {
            return;
        }
        let now_ns = RealClock.steady_ns();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.workers[index].1 = Some(word);
        if now_ns.saturating_sub(state.drawn_ns) >= DRAW_NS {
            let line = state.line();
            if line != state.drawn {
                state.drawn_ns = now_ns;
                // A terminal that went away is no reason to stop.
                let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
                state.drawn = line;
            }
        }
    }
}

impl State {
    fn line(&self) -> String {
        let told = self.workers.iter();
        let told = told.filter_map(|(name, word)| Some(format!("{name} {}", word.as_ref()?)));
        let line = told.collect::<Vec<_>>().join(", ");
        line.chars().take(LINE_CHARS).collect()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_shown && state.drawn_ns > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Between two drawings.
const DRAW_NS: u64 = 200_000_000;
/// Below the width of a plain terminal, so that the line never breaks.
const LINE_CHARS: usize = 79;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_each_worker_is_and_never_breaks() {
        let mut state = State {
            workers: vec![
                ("w0".into(), Some("loads 3 s".into())),
                ("w1".into(), None),
                ("w2".into(), Some("ready".into())),
            ],
            drawn_ns: 0,
            drawn: String::new(),
        };
        assert_eq!(state.line(), "w0 loads 3 s, w2 ready");
        state.workers = vec![("w".repeat(64), Some("loads 3 s".into())); 2];
        assert_eq!(state.line().len(), LINE_CHARS);
    }
}
