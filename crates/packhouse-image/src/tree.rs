//! BLAKE3 of long input on several threads: subtrees of one piece each, merged at the end.
//!
//! Invariant: the hash is `blake3::hash` of the whole input, whatever the number of threads.

use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a piece: a power of two of BLAKE3's chunks, so that each is a subtree.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// What a piece contributes: its subtree's chaining value, or the hash itself of the only piece.
pub(crate) struct PieceHash([u8; 32]);

/// Input of a known length, to be hashed in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    length: u64,
    piece_bytes: u64,
}

impl Tree {
    pub(crate) const fn new(length: u64) -> Self {
        Self::with_pieces(length, PIECE_BYTES)
    }

    const fn with_pieces(length: u64, piece_bytes: u64) -> Self {
        assert!(piece_bytes.is_power_of_two() && piece_bytes >= blake3::CHUNK_LEN as u64);
        Self {
            length,
            piece_bytes,
        }
    }

    /// The pieces in order: at least one, and only the last one is shorter.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Range<u64>> {
        let count = self.length.div_ceil(self.piece_bytes).max(1);
        (0..count).map(move |index| {
            let start = index * self.piece_bytes;
            start..self.length.min(start + self.piece_bytes)
        })
    }

    /// Hashes one piece's bytes.
    pub(crate) fn hash_piece(self, piece: &Range<u64>, bytes: &[u8]) -> PieceHash {
        assert_eq!(bytes.len() as u64, piece.end - piece.start, "a piece");
        if self.length <= self.piece_bytes {
            return PieceHash(blake3::hash(bytes).into());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(piece.start).update(bytes);
        PieceHash(hasher.finalize_non_root())
    }

    /// Does `work` for each piece on up to `threads` threads, the calling one among them, with the
    /// piece's own target and a buffer that the thread keeps. Answers the hash of the whole and
    /// what the pieces gave, in order.
    ///
    /// Errors with the first that a piece gave; the others stop at their next piece.
    pub(crate) fn hash<T: Send, R: Send, E: Send>(
        self,
        targets: Vec<T>,
        threads: NonZeroUsize,
        work: impl Fn(&Range<u64>, T, &mut Vec<u8>) -> Result<(PieceHash, R), E> + Sync,
    ) -> Result<([u8; 32], Vec<R>), E> {
        let count = targets.len();
        let queue = Mutex::new(self.pieces().zip(targets).enumerate());
        let done = Mutex::new((Vec::with_capacity(count), None));
        let stop = AtomicBool::new(false);
        let run = || {
            let mut buffer = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let Some((index, (piece, target))) = lock(&queue).next() else {
                    break;
                };
                match work(&piece, target, &mut buffer) {
                    Ok((hash, answer)) => lock(&done).0.push((index, hash.0, answer)),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        lock(&done).1.get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(count) {
                // A thread that is not to be had leaves its work to the others.
                let _ = std::thread::Builder::new().spawn_scoped(scope, run);
            }
            run();
        });
        let (mut pieces, error) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error {
            return Err(error);
        }
        pieces.sort_unstable_by_key(|(index, ..)| *index);
        let hashes: Vec<[u8; 32]> = pieces.iter().map(|(_, hash, _)| *hash).collect();
        let answers = pieces.into_iter().map(|(.., answer)| answer).collect();
        Ok((root(&hashes), answers))
    }
}

/// Hashes bytes in memory on up to `threads` threads.
pub(crate) fn hash_bytes(bytes: &[u8], threads: NonZeroUsize) -> [u8; 32] {
    let tree = Tree::new(bytes.len() as u64);
    let parts: Vec<&[u8]> = match bytes.is_empty() {
        true => vec![bytes],
        false => bytes.chunks(PIECE_BYTES as usize).collect(),
    };
    let work = |piece: &Range<u64>, part: &[u8], _: &mut Vec<u8>| {
        Ok::<_, std::convert::Infallible>((tree.hash_piece(piece, part), ()))
    };
    match tree.hash(parts, threads, work) {
        Ok((hash, _)) => hash,
        Err(never) => match never {},
    }
}

/// The hash over all pieces' values: of one piece it is the hash already.
fn root(pieces: &[[u8; 32]]) -> [u8; 32] {
    match pieces {
        [only] => *only,
        _ => {
            let (left, right) = halves(pieces);
            merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).into()
        }
    }
}

fn subtree(pieces: &[[u8; 32]]) -> [u8; 32] {
    match pieces {
        [only] => *only,
        _ => {
            let (left, right) = halves(pieces);
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// BLAKE3's rule: to the left is the largest power of two that leaves something to the right.
fn halves(pieces: &[[u8; 32]]) -> (&[[u8; 32]], &[[u8; 32]]) {
    pieces.split_at(pieces.len().next_power_of_two() / 2)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_on_any_number_of_threads_hash_as_the_whole() {
        let bytes: Vec<u8> = (0..70_001u32)
            .map(|i| (i.wrapping_mul(i) / 251) as u8)
            .collect();
        for length in [
            0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 5000, 16_384, 16_385, 70_001,
        ] {
            let bytes = &bytes[..length];
            for (piece_bytes, threads) in [(1024, 1), (1024, 3), (2048, 2), (16_384, 4)] {
                let tree = Tree::with_pieces(length as u64, piece_bytes);
                let targets = tree.pieces().map(|_| ()).collect();
                let threads = NonZeroUsize::new(threads).expect("because some are asked for");
                let work = |piece: &Range<u64>, (): (), _: &mut Vec<u8>| {
                    let part = &bytes[piece.start as usize..piece.end as usize];
                    Ok::<_, ()>((tree.hash_piece(piece, part), piece.start))
                };
                let (hash, starts) = tree
                    .hash(targets, threads, work)
                    .expect("because no piece fails");
                assert_eq!(hash, *blake3::hash(bytes).as_bytes(), "{length} bytes");
                assert!(starts.is_sorted());
            }
        }
    }

    #[test]
    fn long_bytes_hash_as_the_whole() {
        let bytes: Vec<u8> = (0..3_333_333u32).map(|i| (i / 7) as u8).collect();
        let threads = NonZeroUsize::new(2).expect("because 2 is not 0");
        assert_eq!(
            hash_bytes(&bytes, threads),
            *blake3::hash(&bytes).as_bytes()
        );
        assert_eq!(hash_bytes(&[], threads), *blake3::hash(&[]).as_bytes());
    }

    #[test]
    fn the_first_error_ends_it() {
        let tree = Tree::with_pieces(1 << 20, 1024);
        let targets = tree.pieces().map(|_| ()).collect();
        let work = |piece: &Range<u64>, (): (), _: &mut Vec<u8>| match piece.start {
            5120 => Err("piece 5"),
            _ => Ok((PieceHash([0; 32]), ())),
        };
        let answer = tree.hash(targets, NonZeroUsize::MIN, work);
        assert_eq!(answer.expect_err("because a piece failed"), "piece 5");
    }
}
