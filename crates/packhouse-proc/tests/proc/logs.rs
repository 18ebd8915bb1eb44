//! Logs of engines that write more than anybody wants to read.

use crate::records::{key, order};
use packhouse_proc::logs::{LiveLog, LogText};
use packhouse_proc::runs::{LOG, Run, Runs};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

fn run(state: &Path) -> Run {
    let runs = Runs::make(Arc::new(RealFs), state, "home", "w0").unwrap();
    let lock = runs.lock(&RealClock, &key(1), 0).unwrap();
    runs.create(&lock, &order()).unwrap()
}

const MIB: u64 = 1 << 20;

#[test]
fn of_a_log_without_end_the_newest_bytes_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&folder.path().join("state"));
    // One line that is longer than anybody's memory, as far as a reader can tell.
    let mut log = File::create(run.dir().path().join(LOG)).unwrap();
    log.write_all(b"first ").unwrap();
    log.set_len(200 * MIB).unwrap();
    let read = |lines| LogText::read(&run, lines).unwrap().unwrap();
    let whole = read(None);
    assert_eq!(whole.text.len() as u64, 64 * MIB);
    assert_eq!(whole.left_out_bytes, 136 * MIB);
    assert_eq!(whole.freed_bytes, 0);
    let tail = read(Some(3));
    assert_eq!(tail.text.len() as u64, MIB);
    assert_eq!(tail.left_out_bytes, 199 * MIB);
    // Lines that are whole leave nothing out of what was asked for.
    log.seek(SeekFrom::End(0)).unwrap();
    log.write_all(b"\nlast\n").unwrap();
    let tail = read(Some(1));
    assert_eq!(
        (tail.text.as_slice(), tail.left_out_bytes),
        (&b"last\n"[..], 0)
    );
}

#[test]
fn a_log_that_grows_fast_is_looked_at_more_often() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&folder.path().join("state"));
    let mut live = LiveLog::open(&run, 64 << 10).unwrap();
    let mut log = File::options()
        .append(true)
        .open(run.dir().path().join(LOG))
        .unwrap();
    live.bound().unwrap();
    let calm_ns = live.pause_ns();
    assert_eq!(calm_ns, 1_000_000_000);
    for _ in 0..8 {
        log.write_all(&[b'x'; 64 << 10]).unwrap();
        live.bound().unwrap();
    }
    assert!(live.pause_ns() <= 5_000_000, "{}", live.pause_ns());
    assert!(live.freed_bytes() > 400 << 10, "{}", live.freed_bytes());
    for _ in 0..10 {
        live.bound().unwrap();
    }
    assert_eq!(live.pause_ns(), calm_ns);
}
