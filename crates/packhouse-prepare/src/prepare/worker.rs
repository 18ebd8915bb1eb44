//! Workers: each hashes several tensors and payloads side by side, and packs one at a time.
//!
//! A core hashes many streams faster than one, so a worker keeps some tensors in hand: a step
//! advances the hash of every source and payload that it has.
//!
//! Invariants:
//! - the payload is packed from the very buffer whose digest names its source;
//! - the right to make a pack is had before it is written, and kept until it is published;
//! - a tensor whose pack is there by now is not written.
//!
//! Never: waits for another process.

use super::PrepareError;
use super::budget::{Lease, Shared};
use super::commit::Commit;
use super::look::{Look, look};
use super::progress::Event;
use super::round::{Round, lock};
use super::state::{Reason, State};
use packhouse_base::digest::{ObjectDigest, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::payload::{Hashing, Payload};
use packhouse_store::quarantine::Moved;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

/// A tensor that was read.
pub(super) struct Job {
    pub(super) item: usize,
    pub(super) source: Shared,
    /// Memory for its payload.
    pub(super) payload: Lease,
}

/// A tensor in hand.
struct Held {
    item: usize,
    source: Source,
    payload: Target,
}

/// A source, hashed or not.
enum Source {
    Hashing(Hashing<Shared>),
    Hashed(Payload<Shared>),
}

/// A payload, packed or not.
enum Target {
    /// Only if its pack is not there.
    Later(Lease),
    Hashing(Hashing<Shared>),
    Hashed(Payload<Shared>),
}

pub(super) fn run(
    round: &Round<'_, '_>,
    queue: &Mutex<Receiver<Job>>,
    commits: &SyncSender<Commit>,
) {
    let mut held: VecDeque<Held> = VecDeque::new();
    let mut is_open = true;
    while is_open || !held.is_empty() {
        while is_open && held.len() < HELD_MAX {
            match next(queue, held.is_empty()) {
                Ok(Some(job)) if round.is_stopped() => drop(job),
                Ok(Some(job)) => held.push_back(Held::begin(round, job)),
                Ok(None) => break,
                Err(()) => is_open = false,
            }
        }
        if round.is_stopped() {
            held.clear();
            continue;
        }
        let mut parts: Vec<_> = held.iter_mut().flat_map(Held::parts).collect();
        Hashing::advance(&mut parts, STEP_BYTES);
        for _ in 0..held.len() {
            let Some(one) = held.pop_front() else { break };
            match one.settle(round, commits) {
                Ok(Some(one)) => held.push_back(one),
                Ok(None) => {}
                Err(error) => round.fail(error),
            }
        }
    }
}

/// The next job; `None` when there is none at the moment and the caller has other work.
fn next(queue: &Mutex<Receiver<Job>>, may_wait: bool) -> Result<Option<Job>, ()> {
    let queue = match may_wait {
        true => lock(queue),
        // Another worker waits in it: there is none.
        false => match queue.try_lock() {
            Ok(queue) => queue,
            Err(_) => return Ok(None),
        },
    };
    if may_wait {
        return queue.recv().map(Some).map_err(|_| ());
    }
    match queue.try_recv() {
        Ok(job) => Ok(Some(job)),
        Err(TryRecvError::Empty) => Ok(None),
        Err(TryRecvError::Disconnected) => Err(()),
    }
}

impl Held {
    fn begin(round: &Round<'_, '_>, job: Job) -> Self {
        let name = &round.work.item(job.item).tensor;
        round.work.tell(Event::Tensor { name });
        let hash_first = round.expects_packs.load(Ordering::Relaxed) || round.room.is_none();
        let payload = Target::Later(job.payload);
        let held = Self {
            item: job.item,
            source: Source::Hashing(Hashing::new(job.source)),
            payload,
        };
        if hash_first { held } else { held.packed(round) }
    }

    /// Packs, if that is still to be done.
    fn packed(mut self, round: &Round<'_, '_>) -> Self {
        let item = round.work.item(self.item);
        self.payload = match self.payload {
            Target::Later(lease) => {
                let buffer = pack(item.recipe.as_ref(), self.source.bytes(), lease);
                Target::Hashing(Hashing::new(buffer))
            }
            other => other,
        };
        self
    }

    /// What is still to be hashed.
    fn parts(&mut self) -> impl Iterator<Item = &mut Hashing<Shared>> {
        let source = match &mut self.source {
            Source::Hashing(hashing) => Some(hashing),
            Source::Hashed(_) => None,
        };
        let payload = match &mut self.payload {
            Target::Hashing(hashing) => Some(hashing),
            Target::Later(_) | Target::Hashed(_) => None,
        };
        source.into_iter().chain(payload)
    }

    /// Goes on with what is hashed by now. `None`: nothing is left to do here.
    fn settle(
        mut self,
        round: &Round<'_, '_>,
        commits: &SyncSender<Commit>,
    ) -> Result<Option<Self>, PrepareError> {
        self.source = self.source.settle();
        self.payload = self.payload.settle();
        let Source::Hashed(source) = &self.source else {
            return Ok(Some(self));
        };
        let digest = TensorDigest(source.digest().0);
        match &self.payload {
            Target::Hashing(_) => Ok(Some(self)),
            Target::Later(_) => {
                let is_done = round.learn(self.item, digest)?;
                Ok((!is_done).then(|| self.packed(round)))
            }
            Target::Hashed(_) => self.hand_over(round, digest, commits).map(|()| None),
        }
    }

    /// Gives a payload to be written, unless somebody else makes it or it is there.
    fn hand_over(
        self,
        round: &Round<'_, '_>,
        digest: TensorDigest,
        commits: &SyncSender<Commit>,
    ) -> Result<(), PrepareError> {
        let work = round.work;
        let item = work.item(self.item);
        let range = item.range;
        work.learnt.learn(item.shard, range, digest);
        let bytes = range.length;
        work.tell(Event::Done { bytes });
        let identity = item.recipe.identity(digest);
        let key = identity.key();
        if !round.claim(key) {
            work.states.set(self.item, State::Same(key));
            return Ok(());
        }
        let reason = work.states.reason(self.item);
        let Some(lock) = work.store.try_lock_pack(&key)? else {
            work.states.set(self.item, State::Busy(key, reason));
            return Ok(());
        };
        let Target::Hashed(payload) = self.payload else {
            return Ok(());
        };
        let is_there = match &reason {
            Reason::New | Reason::Damaged(_) => round.found(self.item, digest)?,
            Reason::Disputed(_) => {
                self.source.must_pack_alike(round, self.item, &payload)?;
                round.holds(self.item, digest, payload.digest())?
            }
        };
        if is_there {
            return Ok(());
        }
        round.expects_packs.store(false, Ordering::Relaxed);
        let commit = Commit {
            item: self.item,
            identity,
            payload,
            _lock: lock,
        };
        // Its receiver is gone only when the round failed.
        let _ = commits.send(commit);
        Ok(())
    }
}

impl Round<'_, '_> {
    /// Takes the digest of a tensor that is not packed yet; `true` when its pack is there, or is
    /// not to be made now.
    fn learn(&self, index: usize, digest: TensorDigest) -> Result<bool, PrepareError> {
        let item = self.work.item(index);
        self.work.learnt.learn(item.shard, item.range, digest);
        let is_disputed = matches!(self.work.states.reason(index), Reason::Disputed(_));
        let is_done = (!is_disputed && self.found(index, digest)?) || self.room.is_none();
        if is_done {
            let bytes = item.range.length;
            self.work.tell(Event::Done { bytes });
        }
        Ok(is_done)
    }

    /// Looks whether a pack is there by now, and takes it.
    fn found(&self, index: usize, digest: TensorDigest) -> Result<bool, PrepareError> {
        let work = self.work;
        match look(work.store, work.item(index), digest)? {
            Look::Ready(found) => {
                work.take_found(index, *found);
                self.expects_packs.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Look::Missing => Ok(false),
            Look::Damaged(was) => {
                work.states.set_damaged(index, was);
                Ok(false)
            }
        }
    }
}

impl Round<'_, '_> {
    /// Whether a disputed pack names the object that its source packs to. One that does not is
    /// moved away.
    fn holds(
        &self,
        index: usize,
        digest: TensorDigest,
        object: ObjectDigest,
    ) -> Result<bool, PrepareError> {
        let work = self.work;
        match look(work.store, work.item(index), digest)? {
            Look::Ready(found) if found.record.object == object => {
                work.take_found(index, *found);
                return Ok(true);
            }
            Look::Ready(found) => match work.store.distrust_pack(&found.record.key()) {
                Moved::To(_) | Moved::Gone => {}
                // It would be found again after the payload was written, and so on for ever.
                moved @ (Moved::ReadOnly | Moved::Failed(_) | Moved::NotTried) => {
                    return Err(PrepareError::Stuck {
                        tensor: work.item(index).tensor.clone(),
                        key: found.record.key(),
                        moved,
                    });
                }
            },
            Look::Missing | Look::Damaged(_) => {}
        }
        Ok(false)
    }
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Hashing(hashing) => hashing.bytes(),
            Self::Hashed(hashed) => hashed.bytes(),
        }
    }

    fn settle(self) -> Self {
        match self {
            Self::Hashing(hashing) => match hashing.finish() {
                Ok(hashed) => Self::Hashed(hashed),
                Err(hashing) => Self::Hashing(hashing),
            },
            hashed @ Self::Hashed(_) => hashed,
        }
    }

    /// Packs the source once more. Errors when the bytes differ from the first time.
    fn must_pack_alike(
        &self,
        round: &Round<'_, '_>,
        index: usize,
        payload: &Payload<Shared>,
    ) -> Result<(), PrepareError> {
        let item = round.work.item(index);
        let mut again = vec![0; payload.bytes().len()];
        item.recipe.pack(self.bytes(), &mut again);
        if again == payload.bytes() {
            return Ok(());
        }
        let PackIdentity { layout, .. } = item.recipe.identity(TensorDigest(payload.digest().0));
        Err(PrepareError::NotDeterministic {
            tensor: item.tensor.clone(),
            layout,
        })
    }
}

impl Target {
    fn settle(self) -> Self {
        match self {
            Self::Hashing(hashing) => match hashing.finish() {
                Ok(hashed) => Self::Hashed(hashed),
                Err(hashing) => Self::Hashing(hashing),
            },
            other @ (Self::Later(_) | Self::Hashed(_)) => other,
        }
    }
}

fn pack(recipe: &dyn super::Recipe, source: &[u8], lease: Lease) -> Shared {
    let length = usize::try_from(recipe.payload_bytes()).unwrap_or(usize::MAX);
    let mut buffer = lease.buffer(length);
    recipe.pack(source, buffer.bytes_mut());
    buffer.share()
}

/// Tensors in hand: with their payloads, as many streams as hash best on one core.
pub(super) const HELD_MAX: usize = 8;
/// Bytes of each stream hashed at a time: long against the cost of a step.
const STEP_BYTES: usize = 1 << 20;
