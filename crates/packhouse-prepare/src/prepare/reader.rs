//! The reader: goes through the files in order, once, as far ahead as memory allows.
//!
//! Invariants:
//! - memory for a tensor and its payloads is taken before the tensor is read;
//! - every buffer goes to all who need its bytes: nothing is read twice.

use super::budget::{Lease, Shared};
use super::round::Round;
use super::segments::Segment;
use super::whole::Piece;
use super::worker::Job;
use super::{SourceHash, round::Work};
use crate::model::ModelError;
use std::sync::mpsc::Sender;

pub(super) fn run(
    round: &Round<'_, '_>,
    segments: &[Segment],
    jobs: Sender<Job>,
    pieces: Sender<Piece>,
) {
    for segment in segments {
        if round.is_stopped() {
            return;
        }
        let (bytes, leases) = match read(round, segment) {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(error) => return round.fail(error),
        };
        let is_whole = wants_whole(round.work, segment.shard);
        if is_whole {
            let piece = Piece {
                shard: segment.shard,
                bytes: bytes.clone(),
                is_gap: segment.items.is_empty(),
            };
            // A receiver is gone only when the round failed.
            if pieces.send(piece).is_err() {
                return;
            }
        }
        for (item, payload) in segment.items.iter().zip(leases) {
            let job = Job {
                item: *item,
                source: bytes.clone(),
                payload,
            };
            if jobs.send(job).is_err() {
                return;
            }
        }
    }
}

/// Whether a file is hashed as a whole in this round.
pub(super) fn wants_whole(work: &Work<'_>, shard: usize) -> bool {
    work.options.source_hash == SourceHash::Whole && work.learnt.whole(shard).is_none()
}

/// Reads a segment; `None` when stopped.
fn read(
    round: &Round<'_, '_>,
    segment: &Segment,
) -> Result<Option<(Shared, Vec<Lease>)>, ModelError> {
    let work = round.work;
    let source_bytes = segment.range.length;
    let payload_bytes: Vec<u64> = match round.room {
        Some(_) => segment
            .items
            .iter()
            .map(|item| work.item(*item).recipe.payload_bytes())
            .collect(),
        None => vec![0; segment.items.len()],
    };
    let all_bytes = source_bytes + payload_bytes.iter().sum::<u64>();
    let mut lease = work.budget.take(all_bytes);
    let leases: Vec<Lease> = payload_bytes
        .iter()
        .map(|bytes| lease.split(*bytes))
        .collect();
    // Admission bounds it: the tensor lies in a file of this machine.
    let length = usize::try_from(source_bytes).unwrap_or(usize::MAX);
    let mut buffer = lease.buffer(length);
    let file = &work.model.files()[segment.shard];
    let mut offset = segment.range.offset;
    for part in buffer.bytes_mut().chunks_mut(READ_BYTES) {
        if round.is_stopped() {
            return Ok(None);
        }
        file.read_exact_at(offset, part)?;
        offset += part.len() as u64;
    }
    work.count(|cost| cost.source_bytes += source_bytes);
    Ok(Some((buffer.share(), leases)))
}

/// Bytes read between two questions whether to stop.
const READ_BYTES: usize = 8 << 20;
