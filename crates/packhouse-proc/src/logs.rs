//! The output of an engine: one file per run, appended to by the engine itself and kept within a
//! bound from its front.
//!
//! Invariants:
//! - a start never truncates: each run has a file of its own;
//! - what is given back is whole blocks at the front, as a hole, so that no byte moves and the
//!   engine need not know; its length says how many bytes went;
//! - a reader takes no more than a bound of the newest bytes, whatever the engine wrote.
//!
//! Never: loses the newest bytes; reads what was given back as if it were zeros of the engine.

use crate::runs::{LOG, Run, RunsError, open_or_create};
use packhouse_base::Blame;
use packhouse_sys::fs::{File, FsError, FsErrorKind};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

/// The log of a run while its engine writes to it.
pub struct LiveLog {
    file: File,
    max_bytes: u64,
    freed_bytes: u64,
    size: u64,
    pause_ns: u64,
}

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogText {
    /// Bytes at the front that were given back.
    pub freed_bytes: u64,
    /// Bytes after them that were not read, as there are too many.
    pub left_out_bytes: u64,
    /// The bytes after both, or the last lines of these.
    pub text: Vec<u8>,
}

/// Why a log can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The run's folder or file.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The file can't be appended to, kept within its bound or searched.
    #[error("{}: {source}", path.display())]
    Call {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The file system has no descriptors: a simulated one.
    #[error("{} has no descriptor", path.display())]
    NoDescriptor {
        /// The file.
        path: PathBuf,
    },
    /// The run.
    #[error(transparent)]
    Run(#[from] RunsError),
}

impl LogError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Fs(error) => error.blame(),
            Self::Call { .. } | Self::NoDescriptor { .. } => Blame::Host,
            Self::Run(error) => error.blame(),
        }
    }
}

impl LiveLog {
    /// Opens or makes a run's log.
    pub fn open(run: &Run, max_bytes: u64) -> Result<Self, LogError> {
        let file = open_or_create(run.dir(), LOG)?;
        Ok(Self {
            file,
            max_bytes,
            freed_bytes: 0,
            size: 0,
            pause_ns: PAUSE_MAX_NS,
        })
    }

    /// A descriptor for the engine: every write through it goes to the end.
    pub fn descriptor(&self) -> Result<OwnedFd, LogError> {
        let own = self.fd()?;
        rustix::fs::fcntl_setfl(own, OFlags::APPEND).map_err(|source| self.error(source))?;
        own.try_clone_to_owned()
            .map_err(|error| self.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Gives the front back when the log is longer than its bound. Errors leave it longer.
    pub fn bound(&mut self) -> Result<(), LogError> {
        let size = self.file.stat()?.size;
        let grown = size.saturating_sub(self.size);
        self.size = size;
        self.pause_ns = if grown > self.max_bytes / 8 {
            (self.pause_ns / 4).max(PAUSE_MIN_NS)
        } else if grown < self.max_bytes / 32 {
            (self.pause_ns * 2).min(PAUSE_MAX_NS)
        } else {
            self.pause_ns
        };
        if size.saturating_sub(self.freed_bytes) <= self.max_bytes {
            return Ok(());
        }
        // A quarter more goes, so that the next lines don't each cost a call.
        let kept = self.max_bytes - self.max_bytes / 4;
        let end = size.saturating_sub(kept) / BLOCK_BYTES * BLOCK_BYTES;
        if end <= self.freed_bytes {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.fd()?, flags, 0, end).map_err(|source| self.error(source))?;
        self.freed_bytes = end;
        Ok(())
    }

    /// When to look at it again: the sooner, the faster it grows.
    pub fn pause_ns(&self) -> u64 {
        self.pause_ns
    }

    /// Bytes that were given back.
    pub fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }

    fn fd(&self) -> Result<std::os::fd::BorrowedFd<'_>, LogError> {
        self.file.as_fd().ok_or_else(|| LogError::NoDescriptor {
            path: self.file.path().to_owned(),
        })
    }

    fn error(&self, source: Errno) -> LogError {
        LogError::Call {
            path: self.file.path().to_owned(),
            source,
        }
    }
}

impl LogText {
    /// Reads a run's log, or only its last lines. `None` when nothing was ever written.
    pub fn read(run: &Run, last_lines: Option<usize>) -> Result<Option<Self>, LogError> {
        let file = match run.dir().open_file(LOG) {
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let data = match file.as_fd() {
            None => Ok(0),
            Some(fd) => rustix::fs::seek(fd.as_fd(), SeekFrom::Data(0)),
        };
        // Taken after where its data begin, so never before it.
        let size = file.stat()?.size;
        let begin = match data {
            Ok(begin) => begin.min(size),
            // No data at all, or a file system that can't tell.
            Err(Errno::NXIO) => size,
            Err(_) => 0,
        };
        let bytes_max = match last_lines {
            None => READ_BYTES_MAX,
            Some(_) => TAIL_BYTES_MAX,
        };
        let first = size.saturating_sub(bytes_max).max(begin);
        let Some(last_lines) = last_lines else {
            let text = read_range(&file, first, size)?;
            return Ok(Some(Self {
                freed_bytes: begin,
                left_out_bytes: first - begin,
                text,
            }));
        };
        let mut span = TAIL_BYTES_MIN;
        loop {
            let from = size.saturating_sub(span).max(first);
            let text = read_range(&file, from, size)?;
            let lines = last(&text, last_lines);
            let is_whole = lines.len() < text.len();
            if is_whole || from == first {
                let text = lines.to_vec();
                return Ok(Some(Self {
                    freed_bytes: begin,
                    // Only where it is the lines asked for that are cut.
                    left_out_bytes: if is_whole { 0 } else { first - begin },
                    text,
                }));
            }
            span = span.saturating_mul(4);
        }
    }
}

/// The last lines of a text; one without an end counts as a line.
fn last(text: &[u8], lines: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = body.iter().enumerate().rev();
    let mut left = lines;
    if left == 0 {
        return &[];
    }
    let begin = ends.find_map(|(index, byte)| {
        left -= usize::from(*byte == b'\n');
        (left == 0).then_some(index + 1)
    });
    &text[begin.unwrap_or(0)..]
}

fn read_range(file: &File, from: u64, to: u64) -> Result<Vec<u8>, LogError> {
    let length = usize::try_from(to - from).unwrap_or(usize::MAX);
    let mut text = vec![0; length];
    let read = file.read_full_at(from, &mut text)?;
    text.truncate(read);
    Ok(text)
}

/// Holes are made of whole blocks; this is the common size of them.
const BLOCK_BYTES: u64 = 4096;
const TAIL_BYTES_MIN: u64 = 64 << 10;
/// Of lines that are asked for.
const TAIL_BYTES_MAX: u64 = 1 << 20;
/// Of a whole log; the newest are read.
const READ_BYTES_MAX: u64 = 64 << 20;
const PAUSE_MIN_NS: u64 = 5_000_000;
const PAUSE_MAX_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_counted_from_the_end() {
        let cases: [(&[u8], usize, &[u8]); 8] = [
            (b"", 3, b""),
            (b"a\nb\nc\n", 2, b"b\nc\n"),
            (b"a\nb\nc", 2, b"b\nc"),
            (b"a\nb\n", 5, b"a\nb\n"),
            (b"a\n\n\n", 2, b"\n\n"),
            (b"a", 1, b"a"),
            (b"a\nb", 0, b""),
            (b"\n", 1, b"\n"),
        ];
        for (text, lines, expected) in cases {
            assert_eq!(last(text, lines), expected, "{text:?} {lines}");
        }
    }
}
