//! A user's memory of heads: a ledger that was cut, rewritten or forked since is refused.

use crate::story::*;
use packhouse_ledger::heads::{Head, HeadError};
use packhouse_ledger::{Heads, Ledger};
use packhouse_sim::{Crash, Fault, SimClock, SimFs};
use packhouse_sys::fs::{Dir, Fs};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn disk() -> SimFs {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    sim.make_dirs("/home/user/state", 1000, 0o700);
    sim.make_dirs("/home/user/lab", 1000, 0o755);
    sim
}

pub(crate) fn dir(sim: &SimFs, name: &str) -> Dir {
    let mut dir = sim.root().expect("because the disk is there");
    for part in ["home", "user", name] {
        dir = dir.open_dir(part).expect("because the test made it");
    }
    dir
}

fn heads(sim: &SimFs) -> Heads {
    Heads::open(&dir(sim, "state")).expect("because the state folder is ours")
}

fn memory() -> PathBuf {
    PathBuf::from(format!("/home/user/state/lab/heads/{}.json", digest(0xaa)))
}

#[test]
fn what_was_seen_last_must_still_be_there() {
    let sim = disk();
    let heads = heads(&sim);
    let short = Story::to("registered").ledger();
    let story = Story::to("armed");
    let long = story.ledger();
    assert_eq!(heads.seen(digest(0xaa)), Ok(None));
    assert_eq!(heads.admit(&short), Ok(()));
    assert_eq!(heads.seen(digest(0xaa)), Ok(Some(Head::of(&short))));
    assert_eq!(heads.admit(&long), Ok(()), "it went on");
    assert_eq!(heads.admit(&long), Ok(()));
    let gone = heads.admit(&short).expect_err("because the end is gone");
    let (index, head, path) = (5, long.head(), memory());
    assert_eq!(
        gone.to_string(),
        format!(
            "truncated, rewritten or forked: you have seen entry {index} with digest {head}, and \
             now the ledger ends before it (noted in {})",
            path.display()
        )
    );
    let mut fork = Story::to("reviewed");
    fork.tell(note(None));
    fork.tell(note(None));
    let fork = fork.ledger();
    let other = fork.entries()[5].digest;
    let gone = heads
        .admit(&fork)
        .expect_err("because it went on otherwise");
    assert!(
        gone.to_string()
            .contains(&format!("now it has digest {other}")),
        "{gone}"
    );
    // Nothing of a refused ledger is noted.
    assert_eq!(heads.seen(digest(0xaa)), Ok(Some(Head::of(&long))));
    assert_eq!(heads.admit(&long), Ok(()));
    // Another lab is another memory.
    let mut other = Story::unbegun();
    let mut begin = genesis();
    begin.id = digest(0xab);
    other.tell(begin);
    assert_eq!(heads.admit(&other.ledger()), Ok(()));
}

#[test]
fn a_damaged_memory_is_never_taken_for_none() {
    let ledger = Story::to("armed").ledger();
    let (id, head) = (digest(0xaa), ledger.head());
    let of = |index: &str, lab: &str, head: &str, schema: &str| {
        format!(
            "{{\"head\":\"{head}\",\"index\":{index},\"lab\":\"{lab}\",\"schema\":\"{schema}\"}}\n"
        )
    };
    let (lab, head) = (id.to_string(), head.to_string());
    let schema = "packhouse/ledger-head/1";
    for (bytes, reason) in [
        (String::new(), "not JSON"),
        ("[]\n".to_owned(), "not a JSON object"),
        (
            of("5", &lab, &head, schema).replace('\n', ""),
            "not canonical",
        ),
        (of("-1", &lab, &head, schema), "field `index` is -1"),
        (of("5", &lab[1..], &head, schema), "field `lab` is"),
        (of("5", &lab, &head, "packhouse/ledger-head/2"), "schema"),
        (
            of("5", &digest(1).to_string(), &head, schema),
            "is of lab 0101",
        ),
        (
            of("5", &lab, &head, schema).replace('}', ",\"x\":1}"),
            "field \"x\"",
        ),
    ] {
        let sim = disk();
        let heads = heads(&sim);
        sim.replace(memory(), bytes.as_bytes(), 0o600);
        let error = heads.admit(&ledger).expect_err("because it is damaged");
        assert!(matches!(error, HeadError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}: {reason}");
        assert_eq!(
            sim.read(memory()),
            Some(bytes.into_bytes()),
            "left as it is"
        );
    }
    let sim = disk();
    sim.replace(
        memory_of(&sim),
        of("5", &lab, &head, schema).as_bytes(),
        0o600,
    );
    assert_eq!(
        heads(&sim).admit(&ledger),
        Ok(()),
        "the format's own example is read"
    );
}

/// The memory's path once its folder is there.
fn memory_of(sim: &SimFs) -> PathBuf {
    heads(sim);
    memory()
}

#[test]
fn a_kill_at_any_step_leaves_the_older_or_the_newer_memory() {
    let base = disk();
    let short = Story::to("registered").ledger();
    let long = Story::to("armed").ledger();
    heads(&base)
        .admit(&short)
        .expect("because nothing is wrong");
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        let heads = heads(&sim);
        sim.restart_count();
        heads.admit(&long).expect("because nothing is wrong");
        sim.operation_count()
    };
    assert!(count >= 5, "make, write, sync, rename, sync");
    for at in 0..=count {
        for (crash, seed) in [
            (Crash::Lost, 1),
            (Crash::Torn, 2),
            (Crash::Reordered, 3),
            (Crash::LostEntries, 4),
            (Crash::Kept, 5),
        ] {
            let sim = base.crash(Crash::Kept, 0);
            let memory = heads(&sim);
            sim.restart_count();
            sim.set_fault(Some(Fault::Stop { at }));
            let noted = memory.admit(&long).is_ok();
            let after = sim.crash(crash, seed);
            let memory = heads(&after);
            let seen = memory.seen(digest(0xaa)).expect("because it is whole");
            let seen = seen.expect("because one was there");
            assert!(seen == Head::of(&short) && !noted || seen == Head::of(&long));
            memory.admit(&long).expect("because both are in it");
        }
    }
}

#[test]
fn reading_a_lab_asks_the_memory() {
    let sim = disk();
    let heads = heads(&sim);
    let story = Story::to("armed");
    sim.replace("/home/user/lab/ledger.jsonl", &story.bytes, 0o644);
    let lab = dir(&sim, "lab");
    let read = Ledger::read(&lab, Some(&heads)).expect("because nothing is wrong");
    assert_eq!(read, story.ledger());
    let short = Story::to("registered");
    sim.replace("/home/user/lab/ledger.jsonl", &short.bytes, 0o644);
    let error = Ledger::read(&lab, Some(&heads)).expect_err("because the end is gone");
    assert!(
        error
            .to_string()
            .starts_with("truncated, rewritten or forked"),
        "{error}"
    );
    assert!(
        Ledger::read(&lab, None).is_ok(),
        "without a memory nobody can tell"
    );
}
