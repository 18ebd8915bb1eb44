//! The hash of whole files, fed with the buffers that tensors are packed from.

use super::budget::Shared;
use super::learn::whole_range;
use super::progress::Event;
use super::round::Round;
use packhouse_base::digest::{Hasher, TensorDigest};
use std::sync::mpsc::Receiver;

/// The next bytes of a file.
pub(super) struct Piece {
    pub(super) shard: usize,
    pub(super) bytes: Shared,
    /// Nobody else works on these bytes.
    pub(super) is_gap: bool,
}

/// Hashes pieces in the order in which they come, which is that of the files.
pub(super) fn run(round: &Round<'_, '_>, queue: &Receiver<Piece>) {
    let work = round.work;
    let mut current: Option<(usize, u64, Hasher)> = None;
    while let Ok(piece) = queue.recv() {
        if round.is_stopped() {
            continue;
        }
        let bytes: &[u8] = piece.bytes.as_ref();
        let (_, done_bytes, hasher) = match &mut current {
            Some(current) if current.0 == piece.shard => current,
            other => other.insert((piece.shard, 0, Hasher::default())),
        };
        hasher.update(bytes);
        *done_bytes += bytes.len() as u64;
        if piece.is_gap {
            let bytes = bytes.len() as u64;
            work.tell(Event::Done { bytes });
        }
        let size = work.model.files()[piece.shard].identity().size;
        if *done_bytes == size
            && let Some((shard, _, hasher)) = current.take()
        {
            let digest = TensorDigest(hasher.finish());
            work.learnt.learn(shard, whole_range(size), digest);
        }
    }
}
