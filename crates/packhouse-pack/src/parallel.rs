//! One tensor on several threads: disjoint slices of the target, cut in safe code.

use crate::packers::{Bound, BoundInverse};
use packhouse_layout::Admitted;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Packs the whole payload. Each thread has a range of its steps, one slice of each region, where
/// the kernel does not share it out itself.
pub(crate) fn pack(
    admitted: &Admitted,
    bound: Bound,
    source: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    match bound {
        Bound::Judge(judge) => (judge.pack)(admitted, source, target),
        Bound::HeadAvx2(token, pack) => pack(token, admitted, source, target, thread_count),
        Bound::HeadAvx512(token, pack) => pack(token, admitted, source, target, thread_count),
        Bound::Avx2(token, pack, _) => {
            pack_steps(admitted, target, thread_count, |steps, targets| {
                pack(token, admitted, steps, source, targets);
            });
        }
        Bound::Avx512(token, pack, _) => {
            pack_steps(admitted, target, thread_count, |steps, targets| {
                pack(token, admitted, steps, source, targets);
            });
        }
    }
}

/// Shares the steps of a payload out.
fn pack_steps(
    admitted: &Admitted,
    target: &mut [u8],
    thread_count: NonZeroUsize,
    pack: impl Fn(Range<u64>, [&mut [u8]; 2]) + Sync,
) {
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
    run(parts.collect(), thread::Builder::new, pack);
}

/// Unpacks the whole payload. Each thread has a range of groups: one slice of the source.
pub(crate) fn unpack(
    admitted: &Admitted,
    bound: BoundInverse,
    payload: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    if let BoundInverse::Judge(unpack) = bound {
        return unpack(admitted, payload, target);
    }
    let geometry = admitted.geometry();
    let mut rest = target;
    let parts = ranges(geometry.unit_count(), thread_count).map(|groups| {
        let rows_end = groups
            .end
            .saturating_mul(geometry.unit_rows)
            .min(geometry.row_count);
        let row_count = rows_end - groups.start * geometry.unit_rows;
        let rows = take(&mut rest, row_count * geometry.row_bytes);
        (groups, rows)
    });
    run(
        parts.collect(),
        thread::Builder::new,
        |groups, rows| match bound {
            BoundInverse::Judge(_) => {}
            BoundInverse::Avx2(token, unpack) => unpack(token, admitted, groups, payload, rows),
            BoundInverse::Avx512(token, unpack) => unpack(token, admitted, groups, payload, rows),
        },
    );
}

/// Does the first part here and the others on threads of their own. A part whose thread can't be
/// started is done here too: packing never fails for want of threads.
fn run<Target: Send>(
    parts: Vec<(Range<u64>, Target)>,
    builder: fn() -> thread::Builder,
    work: impl Fn(Range<u64>, Target) + Sync,
) {
    let work = &work;
    let mut parts = parts.into_iter();
    let mut here: Vec<_> = parts.next().into_iter().collect();
    thread::scope(|scope| {
        for part in parts {
            // The closure is lost with a thread that fails to start, so the part stays out of it.
            let slot = Arc::new(Mutex::new(Some(part)));
            let theirs = Arc::clone(&slot);
            let started = builder().spawn_scoped(scope, move || {
                if let Some((range, target)) = take_part(&theirs) {
                    work(range, target);
                }
            });
            if started.is_err() {
                here.extend(take_part(&slot));
            }
        }
        for (range, target) in here {
            work(range, target);
        }
    });
}

fn take_part<Part>(slot: &Mutex<Option<Part>>) -> Option<Part> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(bytes: &mut [u8], count: usize) -> Vec<(Range<u64>, &mut [u8])> {
        let mut rest = bytes;
        let count = NonZeroUsize::new(count).expect("because tests ask for some");
        ranges(rest.len() as u64, count)
            .map(|range| (range.clone(), take(&mut rest, range.end - range.start)))
            .collect()
    }

    fn fill(range: Range<u64>, target: &mut [u8]) {
        for (index, byte) in range.zip(target) {
            *byte = u8::try_from(index).expect("because tests have few bytes");
        }
    }

    #[test]
    fn ranges_tile_what_they_cut_and_differ_by_at_most_one() {
        for (count, part_count) in (0..40).flat_map(|count| (1..7).map(move |p| (count, p))) {
            let parts = NonZeroUsize::new(part_count).expect("because it begins at 1");
            let ranges: Vec<_> = ranges(count, parts).collect();
            assert_eq!(ranges.len() as u64, count.clamp(1, part_count as u64));
            let mut end = 0;
            let lengths: Vec<_> = ranges.iter().map(|range| range.end - range.start).collect();
            for range in ranges {
                assert_eq!(range.start, end);
                end = range.end;
            }
            assert_eq!(end, count);
            let spread = lengths.iter().max().zip(lengths.iter().min());
            assert!(
                spread.is_some_and(|(most, least)| most - least <= 1),
                "{lengths:?}"
            );
        }
    }

    #[test]
    fn parts_whose_threads_do_not_start_are_done_all_the_same() {
        // No address space has room for such a stack.
        let hopeless = || thread::Builder::new().stack_size(1 << 62);
        let started = thread::scope(|scope| hopeless().spawn_scoped(scope, || ()).is_ok());
        assert!(!started);
        let expected: Vec<u8> = (0..37).collect();
        for builder in [hopeless, thread::Builder::new] {
            let mut bytes = [0xff; 37];
            run(parts(&mut bytes, 5), builder, fill);
            assert_eq!(bytes, expected[..]);
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_on_a_thread_is_not_lost() {
        let mut bytes = [0; 4];
        run(parts(&mut bytes, 2), thread::Builder::new, |range, _| {
            assert_eq!(range.start, 0, "the second part");
        });
    }
}
