//! Which bytes of the files are read, in which order, and what for.
//!
//! Invariants:
//! - each byte is in at most one segment, and segments rise in each file;
//! - a file that is hashed as a whole is covered from its first byte to its last.

use super::order::Order;
use packhouse_store::ledger::SourceRange;

/// Bytes that are read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) shard: usize,
    pub(super) range: SourceRange,
    /// The items whose tensor this is; none for bytes that only the whole file's hash needs.
    pub(super) items: Vec<usize>,
}

/// Cuts one file: the tensors of the items, and between them all the rest when `whole_bytes`, the
/// file's size, is given.
pub(super) fn cut(
    order: &Order,
    items: &[usize],
    shard: usize,
    whole_bytes: Option<u64>,
) -> Vec<Segment> {
    let own = items
        .iter()
        .copied()
        .filter(|i| order.items[*i].shard == shard);
    let mut own: Vec<(SourceRange, usize)> = own.map(|i| (order.items[i].range, i)).collect();
    own.sort_unstable();
    let mut segments: Vec<Segment> = Vec::new();
    let mut end = 0;
    for (range, item) in own {
        match segments.last_mut() {
            // One tensor may fill several slots.
            Some(last) if last.range == range && !last.items.is_empty() => last.items.push(item),
            Some(_) | None => {
                if whole_bytes.is_some() {
                    push_gap(&mut segments, shard, end, range.offset);
                }
                end = range.offset + range.length;
                let items = vec![item];
                segments.push(Segment {
                    shard,
                    range,
                    items,
                });
            }
        }
    }
    if let Some(size) = whole_bytes {
        push_gap(&mut segments, shard, end, size);
    }
    segments
}

fn push_gap(segments: &mut Vec<Segment>, shard: usize, begin: u64, end: u64) {
    let mut offset = begin;
    while offset < end {
        let length = (end - offset).min(GAP_BYTES);
        let range = SourceRange { offset, length };
        let items = Vec::new();
        segments.push(Segment {
            shard,
            range,
            items,
        });
        offset += length;
    }
}

/// The most that is read at once of what no item needs.
const GAP_BYTES: u64 = 8 << 20;
