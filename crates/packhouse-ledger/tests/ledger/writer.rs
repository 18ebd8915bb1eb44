//! The one writer: lock, refusals before anything is written, a file that changes under it.

use crate::heads::{dir, disk};
use crate::story::*;
use packhouse_ledger::{Heads, Ledger, Writer, WriterError, is_packet_held};
use packhouse_sim::{Fault, SimFs};
use packhouse_sys::fs::FsErrorKind;

const FILE: &str = "/home/user/lab/ledger.jsonl";

fn begun() -> SimFs {
    let sim = disk();
    sim.replace(FILE, &Story::begun().bytes, 0o644);
    sim
}

fn writer(sim: &SimFs) -> Result<Writer, WriterError> {
    Writer::open(&dir(sim, "lab"), None, &*sim.clock())
}

#[test]
fn a_lab_begins_once() {
    let sim = disk();
    let lab = dir(&sim, "lab");
    let clock = sim.clock();
    let error = writer(&sim).expect_err("because there is no ledger");
    assert!(
        error.to_string().contains("ledger.jsonl: not found"),
        "{error}"
    );
    let begin = || Writer::init(&lab, &*clock, genesis(), 7, "boot-1");
    let writer = begin().expect("because there is none");
    assert_eq!(writer.ledger().state().lab(), "a lab");
    let on_disk = sim.read(FILE).expect("because it was made");
    assert_eq!(writer.ledger().bytes(), on_disk);
    drop(writer);
    let error = begin().expect_err("because there is one");
    assert_eq!(
        error.to_string(),
        format!("there is a ledger already: {FILE}")
    );
    assert_eq!(sim.read(FILE), Some(on_disk));
}

#[test]
fn entries_are_appended_and_read_back() {
    let sim = begun();
    let mut story = Story::begun();
    let mut writer = writer(&sim).expect("because nobody else writes");
    for act in [
        registered(1, "one").into(),
        packhouse_ledger::Act::from(green(1)),
    ] {
        let at_ns = 1_000 + i64::try_from(story.count).expect("because small");
        let entry = writer
            .append(act.clone(), at_ns, "boot-1")
            .expect("because it fits");
        assert_eq!((entry.index, &entry.act), (story.count, &act));
        story.tell(act);
        assert_eq!(sim.read(FILE).as_ref(), Some(&story.bytes));
    }
    assert_eq!(*writer.ledger(), story.ledger());
    drop(writer);
    assert_eq!(Ledger::read(&dir(&sim, "lab"), None), Ok(story.ledger()));
}

#[test]
fn what_contradicts_is_refused_before_a_byte_is_written_and_the_writer_goes_on() {
    let sim = begun();
    let mut writer = writer(&sim).expect("because nobody else writes");
    let before = sim.read(FILE);
    sim.restart_count();
    let error = writer
        .append(nonce(1, 1), 1, "b")
        .expect_err("because it is not registered");
    assert_eq!(error.code(), Some("ledger.packet-unknown"));
    let mut empty = registered(1, "one");
    empty.treatment.clear();
    let error = writer
        .append(empty, 1, "b")
        .expect_err("because words are not empty");
    assert_eq!(error.to_string(), "field `treatment` is empty, not words");
    let mut unsorted = registered(1, "one");
    unsorted.treatment = "x".to_owned();
    let mut arming = armed(1, 3, vec![2, 1]);
    let error = writer
        .append(arming.clone(), 1, "b")
        .expect_err("because they descend");
    assert_eq!(error.code(), Some("ledger.type"));
    arming.reviews = vec![u64::MAX];
    let error = writer
        .append(arming, 1, "b")
        .expect_err("because no count is so great");
    assert_eq!(error.code(), Some("ledger.type"));
    assert_eq!((sim.read(FILE), sim.operation_count()), (before, 0));
    writer
        .append(unsorted, 1, "b")
        .expect("because nothing was written before");
}

/// `git clean -fdX` removes what is ignored, the lock too, while a run holds it.
#[test]
fn a_lock_that_is_removed_while_it_is_held_lets_no_second_writer_in() {
    let sim = begun();
    let first = writer(&sim).expect("because nobody else writes");
    dir(&sim, "lab")
        .unlink("ledger.lock")
        .expect("because it is there");
    let error = writer(&sim).expect_err("because somebody does");
    assert_eq!(
        error.to_string(),
        "another process writes this ledger: /home/user/lab/ledger.jsonl is locked"
    );
    drop(first);
    assert!(writer(&sim).is_ok());
}

#[test]
fn there_is_one_writer_at_a_time_and_any_number_of_readers() {
    let sim = begun();
    let first = writer(&sim).expect("because nobody else writes");
    let error = writer(&sim).expect_err("because somebody does");
    assert_eq!(
        error.to_string(),
        "another process writes this ledger: /home/user/lab/ledger.lock is locked"
    );
    let lab = dir(&sim, "lab");
    let clock = sim.clock();
    let error = Writer::init(&lab, &*clock, genesis(), 1, "b").expect_err("because it is locked");
    assert!(matches!(error, WriterError::Busy { .. }), "{error}");
    assert!(Ledger::read(&lab, None).is_ok());
    drop(first);
    assert!(writer(&sim).is_ok());
}

/// A run of hours kept everybody from writing a note.
#[test]
fn while_a_writer_rests_others_append_and_it_goes_on_behind_them() {
    let sim = begun();
    let clock = sim.clock();
    let mut resting = writer(&sim).expect("because nobody else writes");
    resting.rest();
    let error = resting.append(nonce(1, 1), 1, "b");
    assert_eq!(error.err(), Some(WriterError::Resting));
    let mut other = writer(&sim).expect("because the lock was given back");
    let busy = resting.wake(&*clock).expect_err("because another writes");
    assert!(matches!(busy, WriterError::Busy { .. }), "{busy}");
    other
        .append(registered(1, "one"), 1, "b")
        .expect("because it fits");
    drop(other);
    let torn = [sim.read(FILE).expect("because it is there"), b"{".to_vec()].concat();
    sim.replace(FILE, &torn, 0o644);
    resting.wake(&*clock).expect("because it goes on");
    assert_eq!(resting.cut_bytes(), 1);
    let again = resting.append(registered(1, "one"), 1, "b");
    let error = again.expect_err("because it was read");
    assert_eq!(error.code(), Some("ledger.packet-exists"));
    let entry = resting.append(green(1), 1, "b").expect("because it fits");
    assert_eq!(entry.index, Story::begun().count + 1);
    assert!(writer(&sim).is_err(), "it has the lock again, and keeps it");
}

#[test]
fn a_ledger_that_was_replaced_during_a_rest_is_not_written_to() {
    let sim = begun();
    let heads = Heads::open(&dir(&sim, "state")).expect("because it is ours");
    let lab = dir(&sim, "lab");
    let mut resting = Writer::open(&lab, Some(&heads), &*sim.clock()).expect("because it is free");
    resting
        .append(registered(1, "one"), 1, "b")
        .expect("because it fits");
    resting.rest();
    let mut other = Story::begun();
    other.tell(registered(1, "another"));
    sim.replace(FILE, &other.bytes, 0o644);
    let error = resting.wake(&*sim.clock());
    let error = error.expect_err("because it was forked").to_string();
    let words = format!("{FILE} changed while a packet was executed: forked at entry");
    assert!(error.starts_with(&words), "{error}");
    assert_eq!(
        resting.append(green(1), 1, "b").err(),
        Some(WriterError::Resting)
    );
    assert_eq!(sim.read(FILE), Some(other.bytes));
}

#[test]
fn one_process_executes_a_packet_whoever_has_the_ledger() {
    let sim = begun();
    let clock = sim.clock();
    let lab = dir(&sim, "lab");
    let mut first = writer(&sim).expect("because nobody else writes");
    let held = first.hold_packet(digest(1), &*clock);
    let held = held.expect("because nobody executes it");
    first.rest();
    let second = writer(&sim).expect("because the first one rests");
    assert_eq!(is_packet_held(&lab, digest(1)), Ok(true));
    // As `git pull` does with a ledger that went on elsewhere.
    let bytes = sim.read(FILE).expect("because it is there");
    sim.remove(FILE);
    sim.replace(FILE, &bytes, 0o644);
    assert_eq!(is_packet_held(&lab, digest(1)), Ok(true));
    drop(held);
    let held = first.hold_packet(digest(1), &*clock);
    let held = held.expect("because nobody executes it");
    // As `git clean -fdX` does: the ledger itself is locked too.
    lab.unlink("ledger.lock").expect("because it is there");
    let error = second.hold_packet(digest(1), &*clock);
    let packet = digest(1);
    assert_eq!(error.err(), Some(WriterError::PacketBusy { packet }));
    assert_eq!(is_packet_held(&lab, digest(2)), Ok(false));
    assert!(second.hold_packet(digest(2), &*clock).is_ok());
    drop(held);
    assert_eq!(is_packet_held(&lab, digest(1)), Ok(false));
    assert!(second.hold_packet(digest(1), &*clock).is_ok());
}

#[test]
fn a_torn_append_is_cut_by_the_next_writer_who_says_so() {
    let sim = disk();
    let story = Story::to("armed");
    for torn in ["{", "{\"at_ns\":1}", "\u{0}\u{0}\u{0}"] {
        let bytes = [story.bytes.as_slice(), torn.as_bytes()].concat();
        sim.replace(FILE, &bytes, 0o644);
        let read = Ledger::read(&dir(&sim, "lab"), None).expect("because the lines are right");
        assert_eq!(read.torn_bytes(), torn.len() as u64);
        assert_eq!(sim.read(FILE), Some(bytes), "a reader leaves it");
        let mut writer = writer(&sim).expect("because nobody else writes");
        assert_eq!(writer.cut_bytes(), torn.len() as u64);
        assert_eq!(writer.ledger().torn_bytes(), 0);
        assert_eq!(sim.read(FILE).as_ref(), Some(&story.bytes));
        writer
            .append(nonce(1, 1), 1, "b")
            .expect("because the rest is right");
    }
}

/// An editor that drops the last newline makes a torn append of an entry that was reported. Cutting
/// it would lose evidence, so what was seen is asked for first.
#[test]
fn an_entry_that_was_seen_is_not_cut_for_its_lost_newline() {
    let sim = disk();
    let heads = Heads::open(&dir(&sim, "state")).expect("because it is ours");
    let story = Story::to("consumed");
    sim.replace(FILE, &story.bytes, 0o644);
    let lab = dir(&sim, "lab");
    Ledger::read(&lab, Some(&heads)).expect("because nothing is wrong");
    let cut = &story.bytes[..story.bytes.len() - 1];
    sim.replace(FILE, cut, 0o644);
    let error = Writer::open(&lab, Some(&heads), &*sim.clock());
    let error = error.expect_err("because the entry was seen");
    assert!(
        error
            .to_string()
            .starts_with("truncated, rewritten or forked"),
        "{error}"
    );
    assert_eq!(sim.read(FILE).as_deref(), Some(cut), "nothing was cut");
}

#[test]
fn the_writer_notes_the_head_with_each_entry() {
    let sim = begun();
    let heads = Heads::open(&dir(&sim, "state")).expect("because it is ours");
    let lab = dir(&sim, "lab");
    let mut writer = Writer::open(&lab, Some(&heads), &*sim.clock()).expect("because it is free");
    writer
        .append(registered(1, "one"), 1, "b")
        .expect("because it fits");
    // Before the command is done: it may be killed while programs are asked.
    let seen = heads.seen(digest(0xaa)).expect("because it is whole");
    assert_eq!(seen.map(|seen| seen.head), Some(writer.ledger().head()));
}

#[test]
fn a_file_that_changed_under_the_lock_is_not_written_to() {
    let story = Story::begun();
    type Change = fn(&SimFs);
    let changes: [(&str, Change); 4] = [
        // As `git checkout` does: the held file has no name any more.
        ("another file has its name", |sim| {
            let bytes = Story::begun().bytes;
            sim.remove(FILE);
            sim.replace(FILE, &bytes, 0o644);
        }),
        ("another file has its name", |sim| sim.remove(FILE)),
        ("its length", |sim| sim.edit(FILE, |bytes| bytes.push(b'x'))),
        ("its last entry", |sim| {
            sim.edit(FILE, |bytes| {
                let at = bytes.len() - 3;
                bytes[at] ^= 1;
            });
        }),
    ];
    for (what, change) in changes {
        let sim = begun();
        let mut writer = writer(&sim).expect("because nobody else writes");
        change(&sim);
        let before = sim.read(FILE);
        let error = writer.append(registered(1, "one"), 1, "b");
        let error = error.expect_err("because the file changed");
        let words = format!("{FILE} changed while we hold its lock: {what}");
        assert_eq!(error.to_string(), words);
        assert_eq!(sim.read(FILE), before);
        assert_eq!(writer.ledger().bytes(), story.bytes);
    }
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_written() {
    for (at, kind) in [
        (0, FsErrorKind::NoSpace),
        (0, FsErrorKind::Io),
        (1, FsErrorKind::Io),
    ] {
        let sim = begun();
        let mut writer = writer(&sim).expect("because nobody else writes");
        sim.restart_count();
        sim.set_fault(Some(Fault::Error { at, kind }));
        let error = writer.append(registered(1, "one"), 1, "b");
        let error = error.expect_err("because the disk failed");
        assert!(
            matches!(&error, WriterError::Fs(error) if error.kind == kind),
            "{error}"
        );
        sim.set_fault(None);
        let error = writer.append(registered(1, "one"), 1, "b");
        assert_eq!(error.err(), Some(WriterError::Poisoned));
        assert_eq!(
            writer.ledger().entries().len(),
            2,
            "what failed is not in it"
        );
    }
}
