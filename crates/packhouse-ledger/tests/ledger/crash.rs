//! A kill or a power cut at any step of init, of an append, and of cutting a torn one: a reported
//! entry is there, one that was not reported is there whole or not at all, and the lab goes on.

use crate::heads::{dir, disk};
use crate::story::*;
use packhouse_ledger::act::Act;
use packhouse_ledger::{Ledger, LedgerError, Writer};
use packhouse_sim::{Crash, Fault, SimFs, Skip};

const FILE: &str = "/home/user/lab/ledger.jsonl";

const CRASHES: [(Crash, u64); 9] = [
    (Crash::Lost, 1),
    (Crash::Torn, 1),
    (Crash::Torn, 2),
    (Crash::Torn, 3),
    (Crash::Reordered, 1),
    (Crash::Reordered, 2),
    (Crash::Reordered, 3),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];

/// Opens the ledger and appends the acts; the number of appends that were reported.
fn append(sim: &SimFs, acts: &[Act]) -> usize {
    let Ok(mut writer) = Writer::open(&dir(sim, "lab"), None, &*sim.clock()) else {
        return 0;
    };
    let told = acts
        .iter()
        .take_while(|act| writer.append((*act).clone(), 1, "b").is_ok());
    told.count()
}

/// The entries after a crash: those of before, all that were reported, and at most one more.
fn survives(after: &SimFs, before: usize, acts: &[Act], reported: usize) -> usize {
    let ledger = Ledger::read(&dir(after, "lab"), None).expect("because it was begun");
    let added: Vec<_> = ledger.entries()[before..]
        .iter()
        .map(|entry| &entry.act)
        .collect();
    assert!(
        added.len() >= reported,
        "{reported} reported, {} there",
        added.len()
    );
    assert!(added.len() <= reported + 1, "more than was begun");
    assert_eq!(added, acts[..added.len()].iter().collect::<Vec<_>>());
    added.len()
}

fn acts() -> Vec<Act> {
    vec![
        registered(1, "one").into(),
        green(1).into(),
        armed(1, 3, vec![]).into(),
        withdrawn(1).into(),
    ]
}

#[test]
fn an_append_is_whole_or_absent_at_every_step() {
    let base = disk();
    let begun = [Story::begun().bytes.as_slice(), b"{\"torn"].concat();
    base.replace(FILE, &begun, 0o644);
    let acts = acts();
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        assert_eq!(append(&sim, &acts), acts.len());
        sim.operation_count()
    };
    let faults = |at| {
        [
            Fault::Stop { at },
            Fault::Full { at },
            Fault::Error {
                at,
                kind: packhouse_sys::fs::FsErrorKind::Io,
            },
        ]
    };
    let mut partial = 0;
    for at in 0..=count {
        for fault in faults(at) {
            for (crash, seed) in CRASHES {
                let sim = base.crash(Crash::Kept, 0);
                sim.restart_count();
                sim.set_fault(Some(fault));
                let reported = append(&sim, &acts);
                let after = sim.crash(crash, seed);
                let there = survives(&after, 2, &acts, reported);
                partial += usize::from(there > reported);
                // The next command goes on from what is there.
                assert_eq!(append(&after, &acts[there..]), acts.len() - there);
                assert_eq!(survives(&after, 2, &acts, acts.len()), acts.len());
            }
        }
    }
    assert!(partial > 0, "no crash left an entry that was not reported");
}

#[test]
fn a_lab_whose_beginning_was_cut_short_begins_again() {
    let base = disk();
    let init = |sim: &SimFs| Writer::init(&dir(sim, "lab"), &*sim.clock(), genesis(), 1, "b");
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        init(&sim).expect("because nothing is wrong");
        sim.operation_count()
    };
    for at in 0..=count {
        for (crash, seed) in CRASHES {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_fault(Some(Fault::Stop { at }));
            let reported = init(&sim).is_ok();
            let after = sim.crash(crash, seed);
            let read = Ledger::read(&dir(&after, "lab"), None);
            match &read {
                Ok(ledger) => assert_eq!(ledger.entries().len(), 1),
                Err(LedgerError::NoEntries { .. } | LedgerError::Fs(_)) => {
                    assert!(!reported, "reported and gone: {read:?}");
                    init(&after).expect("because there is no ledger");
                }
                Err(error) => panic!("neither begun nor not: {error}"),
            }
            let acts = [vec![open("cpu").into()], acts()].concat();
            assert_eq!(append(&after, &acts), 5);
        }
    }
}

/// The crash test would notice a writer that does not sync.
#[test]
fn a_sync_that_lies_is_noticed() {
    let sim = disk();
    sim.replace(FILE, &Story::begun().bytes, 0o644);
    sim.set_skip(Some(Skip::FileSync));
    assert_eq!(append(&sim, &acts()), acts().len());
    let after = sim.crash(Crash::Lost, 1);
    let ledger = Ledger::read(&dir(&after, "lab"), None).expect("because it was begun");
    assert_eq!(ledger.entries().len(), 2, "reported, and lost");
    let sim = disk();
    sim.set_skip(Some(Skip::DirSync));
    Writer::init(&dir(&sim, "lab"), &*sim.clock(), genesis(), 1, "b").expect("because it is free");
    let after = sim.crash(Crash::LostEntries, 1);
    assert_eq!(after.read(FILE), None, "reported, and lost");
}
