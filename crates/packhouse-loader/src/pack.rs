//! The miss: the engine's own packer fills private memory, on all cores, while the source is
//! hashed.

use crate::engine::{Engine, PackerRefusal};
use crate::load::Request;
use packhouse_base::digest::{Hasher, TensorDigest};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How a tensor is packed.
pub(crate) struct PackPlan<'a> {
    pub(crate) engine: &'a dyn Engine,
    /// Whether units pack alone; else the whole is packed by one thread.
    pub(crate) by_units: bool,
    /// Threads to use, 1 or more.
    pub(crate) threads: usize,
}

impl PackPlan<'_> {
    /// Packs the whole tensor into `target`. Errors when the engine has no packing for it; `target`
    /// is then undefined. Stops early, with `false`, when `stop` is set.
    pub(crate) fn pack(
        &self,
        request: &Request<'_>,
        target: &mut [u8],
        stop: &AtomicBool,
    ) -> Result<bool, PackerRefusal> {
        let (source, geometry) = (request.source, &request.geometry);
        let unit_bytes = usize::try_from(geometry.unit_bytes())
            .unwrap_or(usize::MAX)
            .max(1);
        if !self.by_units || unit_bytes >= source.len() {
            self.engine
                .pack(request.ty, request.dims, geometry, source, target)?;
            return Ok(true);
        }
        let run_bytes = (RUN_BYTES / unit_bytes).max(1) * unit_bytes;
        let threads = self
            .threads
            .min(source.len().div_ceil(PARALLEL_BYTES))
            .max(1);
        let work = Mutex::new(source.chunks(run_bytes).zip(target.chunks_mut(run_bytes)));
        let worker = || -> Result<(), PackerRefusal> {
            while !stop.load(Ordering::Relaxed) {
                let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((source, target)) = next else { break };
                self.engine
                    .pack(request.ty, request.dims, geometry, source, target)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            // A thread that is not to be had leaves its work to the others.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
            let others: Vec<_> = (1..threads).filter_map(spawn).collect();
            let own = worker();
            let joined = others.into_iter().map(|other| other.join());
            let results = joined.map(|result| result.unwrap_or_else(|panic| resume(panic)));
            results.fold(own, Result::and)
        })?;
        Ok(!stop.load(Ordering::Relaxed))
    }
}

/// Hashes a source tensor.
pub(crate) fn digest_of(source: &[u8]) -> TensorDigest {
    let mut hasher = Hasher::default();
    hasher.update(source);
    TensorDigest(hasher.finish())
}

/// Runs `hash` on a thread of its own beside `pack`; on one thread, one after the other, when the
/// tensor is small.
pub(crate) fn beside<H: Send, P>(
    bytes: usize,
    hash: impl FnOnce() -> H + Send,
    pack: impl FnOnce() -> P,
) -> (H, P) {
    if bytes < PARALLEL_BYTES {
        return (hash(), pack());
    }
    let hash = Mutex::new(Some(hash));
    let run_hash = || {
        let hash = hash.lock().unwrap_or_else(PoisonError::into_inner).take();
        hash.map(|hash| hash())
    };
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, run_hash);
        let packed = pack();
        let hashed = match spawned {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume(panic)),
            // No thread is to be had: one after the other then.
            Err(_) => run_hash(),
        };
        (
            hashed.expect("because the hash is run exactly once"),
            packed,
        )
    })
}

fn resume(panic: Box<dyn std::any::Any + Send>) -> ! {
    std::panic::resume_unwind(panic)
}

/// Bytes that one thread packs at a time: large against the cost of a lock, small against a tensor.
const RUN_BYTES: usize = 1 << 20;
/// Bytes below which another thread costs more than it saves.
const PARALLEL_BYTES: usize = 1 << 20;
