//! Memory of a prepare: how much is in flight, and buffers that are used again.
//!
//! Invariants:
//! - what is taken stays within the budget, but for one tensor alone that is larger than it;
//! - everything a tensor needs is taken at once, so nobody who holds a part waits for the rest.
//!
//! Never: zeroes a buffer that was used before; who takes one fills it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The memory that a prepare may use.
pub(super) struct Budget {
    limit_bytes: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used_bytes: u64,
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
}

/// A part of the budget; given back when dropped.
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
}

/// Memory under a lease.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Where it begins: at a cache line, because packers write whole lines past the caches.
    start: usize,
    length: usize,
    lease: Lease,
}

/// A filled buffer that nobody changes any more.
#[derive(Clone)]
pub(super) struct Shared(Arc<Buffer>);

impl Budget {
    pub(super) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            state: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Waits until that much is free, or nothing is used.
    ///
    /// Whoever holds a lease works towards dropping it, and drops it when told to stop.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Lease {
        let waits = |state: &mut State| {
            state.used_bytes > 0 && state.used_bytes.saturating_add(bytes) > self.limit_bytes
        };
        let mut state = self
            .freed
            .wait_while(self.lock(), waits)
            .unwrap_or_else(PoisonError::into_inner);
        state.used_bytes = state.used_bytes.saturating_add(bytes);
        Lease {
            budget: self.clone(),
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest spare buffer that is long enough and not much too long.
    fn spare(&self, length: usize) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let fits = |bytes: &Vec<u8>| bytes.len() >= length && bytes.len() / 2 <= length;
        let best = state.spare.iter().enumerate().filter(|(_, b)| fits(b));
        let (index, _) = best.min_by_key(|(_, bytes)| bytes.len())?;
        let bytes = state.spare.swap_remove(index);
        state.spare_bytes -= bytes.len() as u64;
        Some(bytes)
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        let length = bytes.len() as u64;
        if state.spare_bytes + length <= self.limit_bytes / 2 {
            state.spare_bytes += length;
            state.spare.push(bytes);
        }
    }
}

impl Lease {
    /// Gives a part of the lease a life of its own.
    pub(super) fn split(&mut self, bytes: u64) -> Lease {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Lease {
            budget: self.budget.clone(),
            bytes,
        }
    }

    /// A buffer whose bytes mean nothing yet.
    pub(super) fn buffer(self, length: usize) -> Buffer {
        let spare = self.budget.spare(length + LINE_BYTES);
        let bytes = spare.unwrap_or_else(|| vec![0; length + LINE_BYTES]);
        let start = bytes.as_ptr().align_offset(LINE_BYTES);
        Buffer {
            start: if start < LINE_BYTES { start } else { 0 },
            bytes,
            length,
            lease: self,
        }
    }
}

impl Buffer {
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    pub(super) fn share(self) -> Shared {
        Shared(Arc::new(self))
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes[self.0.start..self.0.start + self.0.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.lease.budget.keep(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.lock().used_bytes -= self.bytes;
            self.budget.freed.notify_all();
        }
    }
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_within_the_limit_does_not_wait_and_goes_back() {
        let budget = Budget::new(100);
        let mut first = budget.take(60);
        let part = first.split(20);
        assert_eq!(budget.lock().used_bytes, 60);
        drop(first);
        assert_eq!(budget.lock().used_bytes, 20);
        drop(part);
        assert_eq!(budget.lock().used_bytes, 0);
    }

    #[test]
    fn what_is_larger_than_the_budget_comes_alone() {
        let budget = Budget::new(100);
        let huge = budget.take(1000);
        let waiting = std::thread::spawn({
            let budget = budget.clone();
            move || drop(budget.take(1))
        });
        assert!(!waiting.is_finished());
        drop(huge);
        waiting.join().expect("because the huge lease ended");
    }

    #[test]
    fn a_buffer_is_used_again_for_about_the_same_length() {
        let budget = Budget::new(1000);
        let mut buffer = budget.take(100).buffer(100);
        buffer.bytes_mut().fill(7);
        drop(buffer);
        let again = budget.take(90).buffer(90).share();
        assert_eq!(again.as_ref(), [7; 90]);
        // 64 bytes for the alignment go with each: 74 are less than half of 164.
        let other = budget.take(10).buffer(10).share();
        assert_eq!(other.as_ref(), [0; 10]);
        for shared in [&again, &other] {
            assert_eq!(shared.as_ref().as_ptr().addr() % LINE_BYTES, 0);
        }
    }
}
