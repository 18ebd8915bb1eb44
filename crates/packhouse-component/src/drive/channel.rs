//! The pipes of a session: one message each way at a time, each told to whoever keeps a record.

use super::{Doing, DriveError, What};
use crate::check::Seen;
use crate::frame::{Frames, encode};
use crate::message::{Reply, Request};
use packhouse_sys::child::{Ended, Exit, StartError, Talk, TalkError};
use packhouse_sys::clock::{Clock as _, RealClock};

/// Who keeps a record of a session.
pub trait Tap {
    /// Is told of an event when it happened; of a message before the next one.
    fn told(&mut self, event: &Event<'_>);

    /// Whether the session is to be ended now, though the program was not done.
    fn is_over(&self) -> bool {
        false
    }
}

/// What happened in a session.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// One side said a message of the protocol.
    Said {
        /// When, by the steady clock: just before the driver wrote it, just after it had read it.
        at_ns: u64,
        /// Which side.
        side: Side,
        /// The message, as it was in its frame.
        message: &'a [u8],
    },
    /// The driver looked into the folders after a reply to a case.
    Saw {
        /// When it had.
        at_ns: u64,
        /// Index of the case.
        index: u64,
        /// What it found.
        seen: &'a Seen,
    },
}

/// A side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The driver.
    Controller,
    /// The program.
    Component,
}

/// Keeps no record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untapped;

impl Tap for Untapped {
    fn told(&mut self, _: &Event<'_>) {}
}

/// The pipes, what was read of them and not used yet, and the tap.
pub(super) struct Channel {
    talk: Talk,
    frames: Frames,
    tap: Box<dyn Tap>,
}

impl Channel {
    pub(super) fn new(talk: Talk, tap: Box<dyn Tap>) -> Self {
        Self {
            talk,
            frames: Frames::default(),
            tap,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.talk.pid()
    }

    /// Asks once and reads one reply; also how many nanoseconds passed between. What the program
    /// said before it was asked is refused.
    pub(super) fn exchanged(
        &mut self,
        request: &Request,
        deadline_ns: u64,
    ) -> Result<(Reply, u64), What> {
        let asked_ns = self.send(request, deadline_ns)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            if let Some(message) = self.frames.next_message()? {
                let at_ns = RealClock.steady_ns();
                let reply = Reply::parse(&message)?;
                self.tap.told(&Event::Said {
                    at_ns,
                    side: Side::Component,
                    message: &message,
                });
                return Ok((reply, at_ns.saturating_sub(asked_ns)));
            }
            match self.read(&mut piece, deadline_ns)? {
                0 => return Err(What::Closed),
                length => self.frames.push(&piece[..length]),
            }
        }
    }

    /// Says something, and when.
    pub(super) fn send(&mut self, request: &Request, deadline_ns: u64) -> Result<u64, What> {
        self.silent()?;
        let message = request.render();
        let frame = encode(&message)?;
        let at_ns = RealClock.steady_ns();
        self.tap.told(&Event::Said {
            at_ns,
            side: Side::Controller,
            message: &message,
        });
        self.talk.write_all(&frame, deadline_ns)?;
        Ok(at_ns)
    }

    /// Tells what the folders have.
    pub(super) fn saw(&mut self, index: u64, seen: &Seen) {
        let at_ns = RealClock.steady_ns();
        self.tap.told(&Event::Saw { at_ns, index, seen });
    }

    pub(super) fn end(self, timeout_ns: u64) -> Result<Ended, StartError> {
        self.talk.end(timeout_ns)
    }

    /// Ends a program that broke off, and says how it ended where it ended by itself.
    pub(super) fn failed(self, doing: Doing, what: What) -> DriveError {
        let pid = self.pid();
        let is_gone = matches!(what, What::Closed | What::Deaf);
        let ended: Ended = match self.talk.end(if is_gone { GRACE_NS } else { 0 }) {
            Ok(ended) => ended,
            Err(error) => return error.into(),
        };
        let what = match ended.exit {
            Exit::Exited(_) | Exit::Signalled(_) if is_gone => What::Ended(ended.exit),
            Exit::Exited(_) | Exit::Signalled(_) | Exit::TimedOut => what,
        };
        DriveError::ended(doing, what, (pid, &ended))
    }

    /// Reads some bytes, looking now and then whether the session is to be ended.
    fn read(&mut self, piece: &mut [u8], deadline_ns: u64) -> Result<usize, What> {
        loop {
            if self.tap.is_over() {
                return Err(What::Interrupted);
            }
            let look_ns = RealClock.steady_ns().saturating_add(LOOK_NS);
            match self.talk.read(piece, look_ns.min(deadline_ns)) {
                Err(TalkError::TimedOut) if look_ns < deadline_ns && self.has_time() => {}
                other => return Ok(other?),
            }
        }
    }

    /// Whether the program's own time is not over.
    fn has_time(&self) -> bool {
        self.talk.deadline_ns() > RealClock.steady_ns()
    }

    /// Errs when the program spoke before it was asked.
    fn silent(&mut self) -> Result<(), What> {
        let pending = self.frames.pending_bytes();
        let more = match self.talk.read(&mut [0; 64], 0) {
            Err(TalkError::TimedOut) => 0,
            other => other?,
        };
        match pending + more {
            0 => Ok(()),
            bytes => Err(What::Unasked {
                bytes: bytes as u64,
            }),
        }
    }
}

const PIECE_BYTES: usize = 64 << 10;
/// How long a session that is to be ended may go unnoticed.
const LOOK_NS: u64 = 100_000_000;
/// How long a program that closed its pipes may take to end by itself, so that it can be said how.
const GRACE_NS: u64 = 2_000_000_000;
