//! One output stream of a child: read whenever there is something, kept up to a limit.

use super::Keep;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::{AsFd as _, OwnedFd};

/// A stream and what becomes of it.
pub(super) struct Pump {
    source: Option<OwnedFd>,
    keep: Keep,
    kept: Vec<u8>,
    kept_bytes: u64,
    pub(super) was_cut: bool,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpError {
    /// The stream could not be read.
    Read(Errno),
    /// The file could not be written.
    Write(Errno),
}

impl Pump {
    /// A pump of a pipe's end; of none it is at its end.
    pub(super) fn new(source: Option<OwnedFd>, keep: Keep) -> Self {
        Self {
            source,
            keep,
            kept: Vec::new(),
            kept_bytes: 0,
            was_cut: false,
        }
    }

    /// What to wait for, until the stream is at its end.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let source = self.source.as_ref()?;
        Some(PollFd::new(source, PollFlags::IN))
    }

    /// Reads what is there without waiting, at most `DRAIN_BYTES_MAX` so that a child that writes
    /// without end can't hold its reader either.
    pub(super) fn drain(&mut self) -> Result<(), PumpError> {
        let mut buffer = [0; PIECE_BYTES];
        let mut left = DRAIN_BYTES_MAX;
        while left > 0 {
            let Some(source) = &self.source else {
                return Ok(());
            };
            match retry_on_intr(|| rustix::io::read(source, &mut buffer)) {
                Ok(0) => self.source = None,
                Ok(length) => {
                    self.keep(&buffer[..length])?;
                    left = left.saturating_sub(length);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(PumpError::Read(errno)),
            }
        }
        Ok(())
    }

    /// What was kept in memory.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), PumpError> {
        let max_bytes = match &self.keep {
            Keep::Memory { max_bytes } | Keep::File { max_bytes, .. } => *max_bytes,
            Keep::Nothing => return Ok(()),
        };
        let room = max_bytes.saturating_sub(self.kept_bytes);
        let length = usize::try_from(room).map_or(piece.len(), |room| room.min(piece.len()));
        self.was_cut |= length < piece.len();
        self.kept_bytes += length as u64;
        match &self.keep {
            Keep::Memory { .. } => self.kept.extend_from_slice(&piece[..length]),
            Keep::File { file, .. } => write_all(file, &piece[..length])?,
            Keep::Nothing => {}
        }
        Ok(())
    }
}

fn write_all(file: &OwnedFd, mut rest: &[u8]) -> Result<(), PumpError> {
    while !rest.is_empty() {
        let written =
            retry_on_intr(|| rustix::io::write(file.as_fd(), rest)).map_err(PumpError::Write)?;
        if written == 0 {
            return Err(PumpError::Write(Errno::NOSPC));
        }
        rest = &rest[written..];
    }
    Ok(())
}

/// Bytes read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes read in a row from one stream.
const DRAIN_BYTES_MAX: usize = 1 << 20;
