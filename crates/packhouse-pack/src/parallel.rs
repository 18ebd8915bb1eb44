//! One tensor on several threads: disjoint slices of the target, cut in safe code.

use crate::packers::Bound;
use packhouse_layout::Admitted;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

/// Packs the whole payload. Each thread has a range of its steps: one slice of each region.
pub(crate) fn pack(
    admitted: &Admitted,
    bound: Bound,
    source: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    if let Bound::Judge(judge) = bound {
        return (judge.pack)(admitted, source, target);
    }
    let split = admitted.split();
    let [first_bytes, second_bytes] = split.step_bytes;
    let (mut first, mut second) = target.split_at_mut(length(split.step_count * first_bytes));
    let parts = ranges(split.step_count, thread_count).map(|steps| {
        let count = steps.end - steps.start;
        let targets = [
            take(&mut first, count * first_bytes),
            take(&mut second, count * second_bytes),
        ];
        (steps, targets)
    });
    run(parts.collect(), |steps, targets| match bound {
        Bound::Judge(_) => {}
        Bound::Avx2(token, pack, _) => pack(token, admitted, steps, source, targets),
        Bound::Avx512(token, pack, _) => pack(token, admitted, steps, source, targets),
    });
}

/// Unpacks the whole payload. Each thread has a range of groups: one slice of the source.
pub(crate) fn unpack(
    admitted: &Admitted,
    bound: Bound,
    payload: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    if let Bound::Judge(judge) = bound {
        return (judge.unpack)(admitted, payload, target);
    }
    let geometry = admitted.geometry();
    let mut rest = target;
    let parts = ranges(geometry.unit_count(), thread_count).map(|groups| {
        let rows_end = (groups.end * geometry.unit_rows).min(geometry.row_count);
        let row_count = rows_end - groups.start * geometry.unit_rows;
        let rows = take(&mut rest, row_count * geometry.row_bytes);
        (groups, rows)
    });
    run(parts.collect(), |groups, rows| match bound {
        Bound::Judge(_) => {}
        Bound::Avx2(token, _, unpack) => unpack(token, admitted, groups, payload, rows),
        Bound::Avx512(token, _, unpack) => unpack(token, admitted, groups, payload, rows),
    });
}

/// Does the first part here and the others on threads of their own. A part whose thread can't be
/// started is done here too: packing never fails for want of threads.
fn run<Target: Send>(parts: Vec<(Range<u64>, Target)>, work: impl Fn(Range<u64>, Target) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        let mut here = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            if index == 0 {
                here.push(part);
                continue;
            }
            // The closure is lost with a thread that fails to start, so the part stays out of it.
            let slot = std::sync::Arc::new(std::sync::Mutex::new(Some(part)));
            let theirs = slot.clone();
            let take = |slot: &std::sync::Mutex<Option<_>>| slot.lock().ok()?.take();
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                if let Some((range, target)) = take(&theirs) {
                    work(range, target);
                }
            });
            if started.is_err() {
                here.extend(slot.lock().ok().and_then(|mut part| part.take()));
            }
        }
        for (range, target) in here {
            work(range, target);
        }
    });
}

/// Cuts `0..count` into at most `part_count` ranges whose lengths differ by at most one; at least
/// one range.
fn ranges(count: u64, part_count: NonZeroUsize) -> impl Iterator<Item = Range<u64>> {
    let parts = (part_count.get() as u64).min(count).max(1);
    (0..parts).map(move |part| {
        let start = |part: u64| count / parts * part + (count % parts).min(part);
        start(part)..start(part + 1)
    })
}

/// Takes the first bytes off a slice.
fn take<'a>(rest: &mut &'a mut [u8], byte_count: u64) -> &'a mut [u8] {
    let (taken, left) = std::mem::take(rest).split_at_mut(length(byte_count));
    *rest = left;
    taken
}

fn length(byte_count: u64) -> usize {
    usize::try_from(byte_count).expect("because the target lies in memory")
}
