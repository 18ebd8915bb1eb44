//! SHA-256 of one open file: a long one is read by one thread and hashed by another.
//!
//! Never: maps the file. What is hashed was read, so an outside truncation is an error and no
//! signal.

use packhouse_base::digest::{Digest, Hasher};
use packhouse_sys::fs::{File, FsError, FsErrorKind, Operation};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

/// A buffer, and how much of it counts.
pub(crate) type Piece = (Vec<u8>, usize);

/// Hashes the first `length` bytes of a file; `None` when it was cancelled. Errors with `EndsEarly`
/// when there are fewer.
pub(crate) fn hash_file(
    file: &File,
    length: u64,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
) -> Result<Option<Digest>, FsError> {
    if length < LONG_BYTES {
        return hash_here(file, length, progress, cancel);
    }
    let (pieces, to_hash) = sync_channel::<Piece>(DEPTH);
    let (used, free) = channel::<Vec<u8>>();
    for _ in 0..DEPTH {
        // The other end is held below.
        let _ = used.send(vec![0; PIECE_BYTES]);
    }
    std::thread::scope(|scope| {
        let spawn = std::thread::Builder::new();
        let Ok(hasher) = spawn.spawn_scoped(scope, move || hash_pieces(&to_hash, &used)) else {
            return hash_here(file, length, progress, cancel);
        };
        let read = each_piece(length, progress, cancel, &mut |offset, wanted| {
            // The hasher ends with this channel only.
            let mut buffer = free.recv().unwrap_or_else(|_| vec![0; PIECE_BYTES]);
            read_whole(file, offset, &mut buffer[..wanted])?;
            let _ = pieces.send((buffer, wanted));
            Ok(())
        });
        drop(pieces);
        let digest = hasher.join().expect("because hashing does not panic");
        Ok(read?.then_some(digest))
    })
}

/// Hashes pieces until there are no more, and gives their buffers back.
pub(crate) fn hash_pieces(pieces: &Receiver<Piece>, used: &Sender<Vec<u8>>) -> Digest {
    let mut hasher = Hasher::default();
    for (buffer, filled) in pieces {
        hasher.update(&buffer[..filled]);
        // Nobody wants it back after the last piece.
        let _ = used.send(buffer);
    }
    hasher.finish()
}

/// Reads exactly these bytes. Errors with `EndsEarly` when the file has fewer.
pub(crate) fn read_whole(file: &File, offset: u64, piece: &mut [u8]) -> Result<(), FsError> {
    match file.read_full_at(offset, piece)? {
        filled if filled == piece.len() => Ok(()),
        _ => Err(FsError {
            operation: Operation::Read,
            path: file.path().to_owned(),
            kind: FsErrorKind::EndsEarly,
        }),
    }
}

/// Calls `work` with offset and length of each piece; false when it was cancelled.
pub(crate) fn each_piece(
    length: u64,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
    work: &mut dyn FnMut(u64, usize) -> Result<(), FsError>,
) -> Result<bool, FsError> {
    let mut offset = 0;
    while offset < length {
        if cancel() {
            return Ok(false);
        }
        let left = usize::try_from(length - offset).unwrap_or(usize::MAX);
        let wanted = left.min(PIECE_BYTES);
        work(offset, wanted)?;
        offset += wanted as u64;
        progress(wanted as u64);
    }
    Ok(true)
}

fn hash_here(
    file: &File,
    length: u64,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
) -> Result<Option<Digest>, FsError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; PIECE_BYTES];
    let is_whole = each_piece(length, progress, cancel, &mut |offset, wanted| {
        read_whole(file, offset, &mut buffer[..wanted])?;
        hasher.update(&buffer[..wanted]);
        Ok(())
    });
    Ok(is_whole?.then(|| hasher.finish()))
}

/// Stays in a core's cache between being read, hashed and written.
pub(crate) const PIECE_BYTES: usize = 512 << 10;
/// Pieces under way between two threads.
pub(crate) const DEPTH: usize = 8;
/// Where a thread is worth its start.
const LONG_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::real::file_of_fd;
    use std::io::Write as _;

    #[test]
    fn long_and_short_files_hash_to_what_their_bytes_do() {
        let long = usize::try_from(LONG_BYTES).expect("because it is small");
        for bytes in [0, 1, PIECE_BYTES, long - 1, long, long + 1, 3 * long + 7] {
            let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
            let mut file = tempfile::tempfile().expect("because a temp folder is there");
            file.write_all(&content).expect("because there is room");
            let file = file_of_fd(file.into(), "model".into());
            let told = std::cell::Cell::new(0);
            let progress = |bytes| told.set(told.get() + bytes);
            let found = hash_file(&file, bytes as u64, &progress, &|| false);
            assert_eq!(found, Ok(Some(Digest::of(&content))), "{bytes}");
            assert_eq!(told.get(), bytes as u64);
            let cancelled = hash_file(&file, bytes as u64, &progress, &|| true);
            assert_eq!(cancelled.map(|found| found.is_none()), Ok(bytes > 0));
            let short = hash_file(&file, bytes as u64 + 1, &progress, &|| false);
            let kind = short.map_err(|error| error.kind);
            assert_eq!(kind, Err(FsErrorKind::EndsEarly), "{bytes}");
        }
    }
}
