//! How far each tensor of a prepare is.

use super::How;
use super::look::Found;
use super::round::lock;
use packhouse_base::digest::PackKey;
use packhouse_store::record::PackRecord;
use std::sync::Mutex;

/// The tensors of an order, by index.
pub(super) struct States {
    states: Mutex<Vec<State>>,
}

/// How far one tensor is.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Its pack is to be made.
    ToMake(Reason),
    /// Another tensor of the order has the same pack.
    Same(PackKey),
    /// Another process makes its pack.
    Busy(PackKey, Reason),
    /// Its pack is there.
    Ready(Box<PackRecord>, How),
}

/// Why a pack is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It is not there, or nobody knows yet.
    New,
    /// What was there was damaged.
    Damaged(String),
    /// What is there is sound and doubtful: only packing tells. The source is packed twice.
    Disputed(String),
}

impl States {
    pub(super) fn new(count: usize) -> Self {
        Self {
            states: Mutex::new(vec![State::ToMake(Reason::New); count]),
        }
    }

    /// The state of one tensor.
    pub(super) fn of(&self, item: usize) -> State {
        lock(&self.states)[item].clone()
    }

    /// Changes the state of one tensor.
    pub(super) fn set(&self, item: usize, state: State) {
        lock(&self.states)[item] = state;
    }

    /// Why the pack of a tensor is to be made.
    pub(super) fn reason(&self, item: usize) -> Reason {
        match self.of(item) {
            State::ToMake(reason) | State::Busy(_, reason) => reason,
            State::Same(_) | State::Ready(..) => Reason::New,
        }
    }

    /// Takes note of damage; what was found first is what is told.
    pub(super) fn set_damaged(&self, item: usize, was: String) {
        if self.reason(item) == Reason::New {
            self.set(item, State::ToMake(Reason::Damaged(was)));
        }
    }

    /// Takes what was found of a tensor's pack.
    pub(super) fn set_found(&self, item: usize, found: &Found) {
        let how = match self.reason(item) {
            Reason::New => How::Reused,
            // Somebody else made it again meanwhile.
            Reason::Damaged(was) | Reason::Disputed(was) => How::Healed { was },
        };
        let record = Box::new(found.record.clone());
        self.set(item, State::Ready(record, how));
    }

    /// Takes a pack that was made.
    pub(super) fn set_made(&self, item: usize, record: PackRecord) {
        let how = match self.reason(item) {
            Reason::New => How::Packed,
            Reason::Damaged(was) | Reason::Disputed(was) => How::Healed { was },
        };
        let mut states = lock(&self.states);
        // Another tensor of the same pack may have believed a record that was wrong.
        for state in states.iter_mut() {
            if let State::Ready(theirs, _) = state
                && theirs.identity == record.identity
            {
                **theirs = record.clone();
            }
        }
        states[item] = State::Ready(Box::new(record), how);
    }

    /// The tensors whose packs are to be made.
    pub(super) fn to_make(&self) -> Vec<usize> {
        self.select(|state| matches!(state, State::ToMake(_)))
    }

    /// The tensors whose packs other processes make.
    pub(super) fn busy(&self) -> Vec<usize> {
        self.select(|state| matches!(state, State::Busy(..)))
    }

    /// Gives tensors with the pack of another one that one's record, or makes them anew where it
    /// came to nothing.
    pub(super) fn resolve_same(&self) {
        let mut states = lock(&self.states);
        for index in 0..states.len() {
            let State::Same(key) = states[index] else {
                continue;
            };
            let record = states.iter().find_map(|state| match state {
                State::Ready(record, _) if record.key() == key => Some(record.clone()),
                State::Ready(..) | State::ToMake(_) | State::Same(_) | State::Busy(..) => None,
            });
            states[index] = match record {
                Some(record) => State::Ready(record, How::Reused),
                None => State::ToMake(Reason::New),
            };
        }
    }

    /// How many are ready.
    pub(super) fn ready_count(&self) -> usize {
        self.select(|state| matches!(state, State::Ready(..))).len()
    }

    fn select(&self, wanted: impl Fn(&State) -> bool) -> Vec<usize> {
        let states = lock(&self.states);
        let all = states.iter().enumerate();
        all.filter(|(_, state)| wanted(state))
            .map(|(index, _)| index)
            .collect()
    }
}
