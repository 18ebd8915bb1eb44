//! Copying one file: the source is hashed as it is read, the copy as it is read back.
//!
//! Invariants:
//! - what is read back comes from the new file, through its own descriptor, after it was written;
//! - the two digests are found from two reads, and only equal ones are answered.
//!
//! With threads, one reads and writes, one hashes what was read, one reads the copy back and hashes
//! it: each keeps a core busy, and pieces are still in its cache when they come by. With one thread
//! the two hashes take turns on one core, which is faster than one after the other.

use crate::copy::{COPY_MODE, rounded};
use crate::models::digests::unchanged;
use crate::models::hash::{DEPTH, PIECE_BYTES, Piece, each_piece, hash_pieces, read_whole};
use crate::models::prepare::ModelPrepareError;
use crate::room::Reservation;
use packhouse_base::digest::{Digest, Hasher};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, Operation};
use packhouse_sys::stat::StatIdentity;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

/// What all copies of one model share.
pub(crate) struct Copier<'a> {
    pub(crate) files: &'a Dir,
    pub(crate) room: &'a Reservation,
    pub(crate) threads: NonZeroUsize,
    pub(crate) copied: &'a dyn Fn(u64),
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

/// One source file to copy.
pub(crate) struct Original<'a> {
    pub(crate) file: &'a File,
    /// What it was before the first byte was read.
    pub(crate) identity: StatIdentity,
    /// What the copy is called.
    pub(crate) name: String,
}

/// A copy whose bytes were read back.
pub(crate) struct Copied {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) identity: StatIdentity,
}

/// The digests of what was read from the source, and of what is in the copy.
struct Digests {
    source: Digest,
    copy: Digest,
}

impl Copier<'_> {
    /// Copies a file into the folder. Errors when the source changes meanwhile, or when the copy
    /// reads back other than it.
    pub(crate) fn copy(&self, original: Original<'_>) -> Result<Copied, ModelPrepareError> {
        let target = self.files.create_new(&original.name, 0o600)?;
        let digests = match self.threads.get() {
            1 => self.in_turns(&original, &target),
            _ => self.side_by_side(&original, &target),
        };
        // Of a file that changed meanwhile, that is what is to be said.
        unchanged(original.file, &original.identity)?;
        let digests = digests?;
        if original.file.has_writer() == Some(true) {
            let path = original.file.path().to_owned();
            return Err(ModelPrepareError::Writer { path });
        }
        if digests.source != digests.copy {
            return Err(ModelPrepareError::Differs {
                path: original.file.path().to_owned(),
                source_digest: digests.source,
                copy_digest: digests.copy,
            });
        }
        target.set_mode(COPY_MODE)?;
        target.sync()?;
        let (length, written) = (original.identity.size, whole_steps(original.identity.size));
        self.room.written(rounded(length).saturating_sub(written));
        Ok(Copied {
            name: original.name,
            digest: digests.copy,
            identity: target.identity()?,
        })
    }

    /// Everything on this thread.
    fn in_turns(
        &self,
        original: &Original<'_>,
        target: &File,
    ) -> Result<Digests, ModelPrepareError> {
        let (mut source, mut copy) = (Hasher::default(), Hasher::default());
        let mut back = vec![0; PIECE_BYTES];
        let mut piece = vec![0; PIECE_BYTES];
        self.pump(original, target, &mut |offset, filled, fill| {
            fill(&mut piece)?;
            read_whole(target, offset, &mut back[..filled])?;
            Hasher::update_many(&mut [
                (&mut source, &piece[..filled]),
                (&mut copy, &back[..filled]),
            ]);
            Ok(())
        })?;
        Ok(Digests {
            source: source.finish(),
            copy: copy.finish(),
        })
    }

    /// One thread more for each hash.
    fn side_by_side(
        &self,
        original: &Original<'_>,
        target: &File,
    ) -> Result<Digests, ModelPrepareError> {
        let (pieces, to_hash) = sync_channel::<Piece>(DEPTH);
        let (spans, to_read) = sync_channel::<(u64, usize)>(DEPTH);
        let (used, free) = channel::<Vec<u8>>();
        for _ in 0..DEPTH {
            // The other end is held below.
            let _ = used.send(vec![0; PIECE_BYTES]);
        }
        std::thread::scope(|scope| {
            let spawn = || std::thread::Builder::new();
            let source = spawn().spawn_scoped(scope, move || hash_pieces(&to_hash, &used));
            let copy = spawn().spawn_scoped(scope, move || hash_spans(target, to_read));
            let (Ok(source), Ok(copy)) = (source, copy) else {
                // No threads are to be had; the one that is ends with its channel.
                drop((pieces, spans));
                return self.in_turns(original, target);
            };
            let pumped = self.pump(original, target, &mut |offset, filled, fill| {
                hand_over(&pieces, &spans, &free, offset, filled, fill)
            });
            drop((pieces, spans));
            let source = source.join().expect("because hashing does not panic");
            let copy = copy.join().expect("because hashing does not panic");
            // What ended the other thread is the cause of what ended this one.
            let copy = copy?;
            pumped?;
            Ok(Digests { source, copy })
        })
    }

    /// Reads the source piece by piece and writes each to the copy. `piece` gets offset and length
    /// of one, and a closure that fills a buffer with it and writes it.
    fn pump(
        &self,
        original: &Original<'_>,
        target: &File,
        piece: &mut dyn FnMut(u64, usize, &mut Fill<'_>) -> Result<(), FsError>,
    ) -> Result<(), ModelPrepareError> {
        let noted = Cell::new(0);
        let progress = |bytes: u64| {
            (self.copied)(bytes);
            noted.set(noted.get() + bytes);
            while noted.get() >= ROOM_STEP_BYTES {
                noted.set(noted.get() - ROOM_STEP_BYTES);
                self.room.written(ROOM_STEP_BYTES);
            }
        };
        let length = original.identity.size;
        let is_whole = each_piece(length, &progress, self.cancel, &mut |offset, wanted| {
            piece(offset, wanted, &mut |buffer| {
                read_whole(original.file, offset, &mut buffer[..wanted])?;
                target.write_all_at(offset, &buffer[..wanted])
            })
        });
        match is_whole? {
            true => Ok(()),
            false => Err(ModelPrepareError::Cancelled),
        }
    }
}

/// Fills a buffer from the source and writes it to the copy.
type Fill<'f> = dyn FnMut(&mut Vec<u8>) -> Result<(), FsError> + 'f;

/// Gives one piece to the thread that hashes it, and its place to the one that reads it back.
fn hand_over(
    pieces: &SyncSender<Piece>,
    spans: &SyncSender<(u64, usize)>,
    free: &Receiver<Vec<u8>>,
    offset: u64,
    filled: usize,
    fill: &mut Fill<'_>,
) -> Result<(), FsError> {
    // A thread that is gone had an error of its own, which the caller finds at its end.
    let gone = || FsError {
        operation: Operation::Read,
        path: std::path::PathBuf::new(),
        kind: FsErrorKind::Stopped,
    };
    let mut buffer = free.recv().map_err(|_| gone())?;
    fill(&mut buffer)?;
    pieces.send((buffer, filled)).map_err(|_| gone())?;
    spans.send((offset, filled)).map_err(|_| gone())
}

fn hash_spans(target: &File, spans: Receiver<(u64, usize)>) -> Result<Digest, FsError> {
    let mut hasher = Hasher::default();
    let mut back = vec![0; PIECE_BYTES];
    for (offset, filled) in spans {
        read_whole(target, offset, &mut back[..filled])?;
        hasher.update(&back[..filled]);
    }
    Ok(hasher.finish())
}

/// Bytes of a file that are noted as written while it is copied.
fn whole_steps(length: u64) -> u64 {
    length / ROOM_STEP_BYTES * ROOM_STEP_BYTES
}

/// How often the reservation is told what is written.
const ROOM_STEP_BYTES: u64 = 64 << 20;
