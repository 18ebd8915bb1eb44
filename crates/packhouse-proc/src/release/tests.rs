//! Memory that comes back in steps, late, never, or where nobody can tell.

use super::*;
use packhouse_sim::SimClock;
use proptest::prelude::*;
use std::sync::Mutex;

const PACE: Pace = Pace {
    interval_ns: 10,
    calm: 3,
    timeout_ns: 100,
    slack_bytes: 10,
};

fn baseline(start: Option<u64>, stop: Option<u64>, ours: Option<u64>) -> Baseline {
    Baseline {
        id: DeviceId::recorded("nvidia:GPU-1"),
        before_start_bytes: start,
        before_stop_bytes: stop,
        ours_bytes: ours,
    }
}

fn reading(used_bytes: u64, pids: &[u32]) -> Reading {
    let processes = pids.iter().map(|pid| VendorProcess {
        pid: *pid,
        used_bytes: None,
    });
    Reading {
        used_bytes: Observation::Known(used_bytes),
        processes: Observation::Known(processes.collect()),
    }
}

fn unread() -> Reading {
    Reading {
        used_bytes: Observation::unknown("no driver"),
        processes: Observation::unknown("no driver"),
    }
}

/// Says each reading once, and the last one for ever.
struct Series {
    left: Mutex<Vec<Reading>>,
    asked: Mutex<usize>,
}

impl Series {
    fn new(readings: &[Reading]) -> Self {
        Self {
            left: Mutex::new(readings.iter().rev().cloned().collect()),
            asked: Mutex::new(0),
        }
    }
}

impl Readings for Series {
    fn read(&self, ids: &[DeviceId]) -> Vec<Reading> {
        *self.asked.lock().unwrap() += 1;
        let mut left = self.left.lock().unwrap();
        let last = left.last().expect("because there is one").clone();
        if left.len() > 1 {
            left.pop();
        }
        vec![last; ids.len()]
    }
}

fn waited(baseline: &Baseline, readings: &[Reading]) -> (ReleasedMemory, usize) {
    let series = Series::new(readings);
    let found = wait(
        &series,
        &SimClock::new(),
        std::slice::from_ref(baseline),
        &PACE,
    );
    assert_eq!(found.len(), 1);
    let asked = *series.asked.lock().unwrap();
    (found[0].memory.clone(), asked)
}

fn returned(target_bytes: u64, used_bytes: u64) -> ReleasedMemory {
    ReleasedMemory::Returned {
        target_bytes,
        used_bytes,
    }
}

fn why(memory: &ReleasedMemory) -> &str {
    match memory {
        ReleasedMemory::Unknown { why } => why,
        other => panic!("known: {other:?}"),
    }
}

#[test]
fn memory_that_comes_back_in_steps_is_waited_for() {
    let before = baseline(Some(100), Some(900), Some(800));
    let steps = [900, 500, 110, 300, 110, 105, 100].map(|used| reading(used, &[]));
    // One low reading between two high ones proves nothing; the third low one in a row does.
    assert_eq!(waited(&before, &steps), (returned(100, 110), 7));
    let steps = [100, 100, 100].map(|used| reading(used, &[]));
    assert_eq!(waited(&before, &steps), (returned(100, 100), 3));
}

#[test]
fn memory_that_stays_is_held_only_when_nobody_else_is_there() {
    let before = baseline(Some(100), Some(900), Some(800));
    let held = ReleasedMemory::Held {
        target_bytes: 100,
        used_bytes: 111,
    };
    let (found, asked) = waited(&before, &[reading(111, &[])]);
    assert_eq!(found, held);
    assert_eq!(asked, 11, "it is waited for as long as the pace says");
    let (found, _) = waited(&before, &[reading(5000, &[42, 43])]);
    assert_eq!(why(&found), "others use the device: pid 42, 43");
    let hidden = Reading {
        used_bytes: Observation::Known(111),
        processes: Observation::unknown("no list"),
    };
    let (found, _) = waited(&before, &[hidden]);
    assert!(why(&found).ends_with("no list"), "{found:?}");
}

#[test]
fn others_that_came_after_the_start_count_from_before_the_stop() {
    // 100 before the start; then another took 300, and the worker had 500.
    let before = baseline(Some(100), Some(900), Some(500));
    assert_eq!(
        waited(&before, &[reading(400, &[42])]).0,
        returned(400, 400)
    );
    // Without a process that is there, those 300 are not explained.
    let (found, _) = waited(&before, &[reading(400, &[])]);
    assert!(matches!(found, ReleasedMemory::Held { .. }), "{found:?}");
    // The start was not seen.
    let before = baseline(None, Some(900), Some(500));
    assert_eq!(waited(&before, &[reading(405, &[])]).0, returned(400, 405));
}

#[test]
fn what_can_not_be_read_is_unknown_and_not_waited_for() {
    let nothing = baseline(None, Some(900), None);
    let (found, asked) = waited(&nothing, &[reading(0, &[])]);
    assert!(why(&found).contains("not recorded"), "{found:?}");
    assert_eq!(asked, 3);
    let before = baseline(Some(100), None, None);
    let (found, asked) = waited(&before, &[unread()]);
    assert_eq!((why(&found), asked), ("no driver", 3));
    // A driver that answers again is listened to.
    let steps = [unread(), unread(), reading(100, &[])];
    assert_eq!(waited(&before, &steps), (returned(100, 100), 5));
    let (found, asked) = (
        wait(&Series::new(&[unread()]), &SimClock::new(), &[], &PACE),
        0,
    );
    assert_eq!((found.len(), asked), (0, 0));
}

#[test]
fn cores_have_no_memory_of_their_own() {
    let found = reading_of(
        &inventory(&crate::devices::NoTools, &nowhere()),
        &DeviceId::recorded("cpu:0-3"),
    );
    assert_eq!(found.used_bytes, Observation::Absent);
    let before = baseline(None, None, None);
    let (memory, asked) = waited(&before, &[found]);
    assert_eq!((memory, asked), (ReleasedMemory::WithProcesses, 1));
    let gone = reading_of(
        &inventory(&crate::devices::NoTools, &nowhere()),
        &DeviceId::recorded("pci:0000:03:00.0"),
    );
    assert!(gone.used_bytes.why_unknown().is_some(), "{gone:?}");
}

fn nowhere() -> Roots {
    let root = std::path::PathBuf::from("/nowhere/at/all");
    Roots {
        proc: root.clone(),
        sys: root.clone(),
        dev: root,
    }
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let processes = prop_oneof![
        Just(Observation::Absent),
        Just(Observation::unknown("no list")),
        Just(Observation::Known(Vec::new())),
        Just(reading(0, &[42]).processes),
    ];
    let used_bytes = prop_oneof![
        4 => (0u64..300).prop_map(Observation::Known),
        1 => Just(Observation::unknown("no driver")),
        1 => Just(Observation::Absent),
    ];
    (used_bytes, processes).prop_map(|(used_bytes, processes)| Reading {
        used_bytes,
        processes,
    })
}

proptest! {
    #[test]
    fn no_verdict_says_more_than_was_seen(
        series in prop::collection::vec(any_reading(), 0..6),
        start in prop::option::of(0u64..200),
        stop in prop::option::of(0u64..200),
        ours in prop::option::of(0u64..200),
    ) {
        let before = baseline(start, stop, ours);
        let last = &series[series.len().saturating_sub(PACE.calm)..];
        let others = stop.zip(ours).map(|(stop, ours)| stop.saturating_sub(ours));
        let most = start.max(others).unwrap_or(0) + PACE.slack_bytes;
        let known = last.iter().filter_map(|seen| seen.used_bytes.known().copied());
        let known: Vec<u64> = known.collect();
        match judge(&before, &series, &PACE) {
            ReleasedMemory::Returned { used_bytes, .. } => {
                prop_assert_eq!(known.len(), PACE.calm);
                prop_assert!(known.iter().all(|used| *used <= most && *used <= used_bytes));
            }
            ReleasedMemory::Held { target_bytes, used_bytes } => {
                prop_assert_eq!(known.len(), PACE.calm);
                prop_assert!(used_bytes > target_bytes + PACE.slack_bytes);
                let nobody = match &last[last.len() - 1].processes {
                    Observation::Absent => true,
                    Observation::Known(list) => list.is_empty(),
                    Observation::Unknown { .. } => false,
                };
                prop_assert!(nobody);
            }
            ReleasedMemory::WithProcesses => {
                prop_assert!(last.iter().any(|seen| seen.used_bytes == Observation::Absent));
            }
            ReleasedMemory::Unknown { why } => prop_assert!(!why.is_empty()),
        }
    }
}
