//! Committers: write payloads as they come, and publish them in batches.
//!
//! A batch is written while its first chunks go out to the disk; then all of it is synced, objects
//! are linked, records follow, and what was learnt of the source is noted.
//!
//! Invariants:
//! - a record is published after its object, a tensor is ready after its record;
//! - what was written is published even when the round is stopped, so that the next run has it.

use super::PrepareError;
use super::budget::Shared;
use super::round::{Round, lock};
use super::state::{Reason, State};
use packhouse_base::digest::PackKey;
use packhouse_base::identity::PackIdentity;
use packhouse_store::lock::PackLock;
use packhouse_store::payload::Payload;
use packhouse_store::publish::{Batch, PublishOptions};
use packhouse_store::record::PackRecord;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

/// A payload to publish.
pub(super) struct Commit {
    pub(super) item: usize,
    pub(super) identity: PackIdentity,
    pub(super) payload: Payload<Shared>,
    /// Held until the pack is published.
    pub(super) _lock: PackLock,
}

/// A payload that is written and not published.
struct Pending {
    item: usize,
    identity: PackIdentity,
    _lock: PackLock,
}

pub(super) fn run(round: &Round<'_, '_>, queue: &Mutex<Receiver<Commit>>) {
    let Some(room) = round.room else { return };
    let store = round.work.store;
    let (mut batch, mut pending) = (store.batch(room), Vec::new());
    let mut batch_bytes = 0;
    loop {
        let next = lock(queue).recv();
        let is_last = next.is_err();
        if let Ok(commit) = next
            && !round.is_stopped()
        {
            batch_bytes += commit.payload.bytes().len() as u64;
            match add(round, &mut batch, commit) {
                Ok(added) => pending.push(added),
                Err(error) => round.fail(error),
            }
        }
        let is_full = batch_bytes >= BATCH_BYTES || pending.len() >= BATCH_COUNT;
        if (is_full || is_last) && !pending.is_empty() {
            let full = std::mem::replace(&mut batch, store.batch(room));
            if let Err(error) = publish(round, full, std::mem::take(&mut pending)) {
                round.fail(error);
            }
            batch_bytes = 0;
        }
        if is_last {
            return;
        }
    }
}

fn add(
    round: &Round<'_, '_>,
    batch: &mut Batch<'_>,
    commit: Commit,
) -> Result<Pending, PrepareError> {
    batch.add_payload(&commit.payload, &|| round.is_stopped())?;
    let bytes = commit.payload.bytes().len() as u64;
    round.work.count(|cost| cost.written_bytes += bytes);
    Ok(Pending {
        item: commit.item,
        identity: commit.identity,
        _lock: commit._lock,
    })
}

/// Publishes what is written, and notes what is known by then.
fn publish(
    round: &Round<'_, '_>,
    batch: Batch<'_>,
    pending: Vec<Pending>,
) -> Result<(), PrepareError> {
    let work = round.work;
    let objects = batch.finish(PublishOptions::default(), &|| false)?;
    let record = |(pending, object): (&Pending, _)| record_of(round, pending, object);
    let records: Vec<PackRecord> = pending.iter().zip(&objects).map(record).collect();
    let disputed = work.store.publish_packs(&records)?;
    lock(&work.receipts).extend(objects.iter().filter_map(|object| object.pending_receipt()));
    for (pending, record) in pending.iter().zip(records) {
        let key = record.key();
        if disputed.contains(&key) {
            work.states.set(pending.item, dispute(key));
        } else {
            work.states.set_made(pending.item, record);
        }
    }
    // The locks are given back now: whoever waits finds the packs.
    drop(pending);
    work.note()
}

fn record_of(
    round: &Round<'_, '_>,
    pending: &Pending,
    object: &packhouse_store::object::VerifiedObject,
) -> PackRecord {
    PackRecord {
        identity: pending.identity.clone(),
        object: object.digest(),
        length: object.length(),
        sample: round.work.item(pending.item).recipe.sample(),
    }
}

fn dispute(key: PackKey) -> State {
    let was = format!("pack {key} named another object, intact, than its source packs to");
    State::ToMake(Reason::Disputed(was))
}

/// Bytes after which a batch is published.
const BATCH_BYTES: u64 = 128 << 20;
/// Payloads after which a batch is published: each holds a descriptor.
const BATCH_COUNT: usize = 32;
