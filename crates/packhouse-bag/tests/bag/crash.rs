//! Stops, tears, reorders and fills: at every operation of a bag's life, what is there afterwards
//! is no bag, an open one whose whole files are whole, or the closed one. Never a third thing, and
//! never less than what was said to be durable.
//!
//! The canaries at the end leave out a sync and must be noticed.

use crate::samples::{disk, home, info};
use packhouse_bag::{
    Contents, Found, OpenBag, Outcome, Resumed, check, closed, discard, look, write_new,
};
use packhouse_base::digest::Digest;
use packhouse_sim::{Crash, Fault, SimFs, Skip};
use packhouse_sys::fs::FsErrorKind;
use std::collections::BTreeMap;

const EXCHANGE: &str = "legs/00/exchange.jsonl";
/// How much of the exchange is synced halfway.
const HALF: usize = 12;
const FIXTURE: &str = "drawn/x-1";
const CRASHES: [Crash; 5] = [
    Crash::Lost,
    Crash::Torn,
    Crash::Reordered,
    Crash::LostEntries,
    Crash::Kept,
];

/// The sample, and a folder that is put as a whole.
fn payload() -> Contents {
    let mut payload = crate::samples::payload();
    for (name, bytes) in fixture() {
        payload.insert(format!("{FIXTURE}/{name}"), bytes);
    }
    payload
}

fn fixture() -> BTreeMap<String, Vec<u8>> {
    let files = [("bagit.txt", b"1"), ("data/x", b"2"), ("data/y", b"3")];
    files
        .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
        .into()
}

fn bag() -> Contents {
    closed(&payload(), &info())
}

/// What a writer was told before it ended.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    created: bool,
    half: bool,
    closed: Option<Digest>,
}

/// The life of the sample bag.
fn write(sim: &SimFs, told: &mut Told) -> Result<(), String> {
    let text = |error: packhouse_bag::WriteError| error.to_string();
    let payload = payload();
    let bytes = |path: &str| payload.get(path).expect("because it is in the sample");
    let mut bag = OpenBag::create(&home(sim)).map_err(text)?;
    told.created = true;
    bag.put("packet.json", bytes("packet.json")).map_err(text)?;
    bag.append(EXCHANGE, &bytes(EXCHANGE)[..HALF])
        .map_err(text)?;
    bag.sync().map_err(text)?;
    told.half = true;
    bag.append(EXCHANGE, &bytes(EXCHANGE)[HALF..])
        .map_err(text)?;
    bag.put("outputs/00ff", bytes("outputs/00ff"))
        .map_err(text)?;
    bag.put_folder(FIXTURE, &fixture()).map_err(text)?;
    bag.put("legs/00/leg.json", bytes("legs/00/leg.json"))
        .map_err(text)?;
    told.closed = Some(bag.close(&info()).map_err(text)?);
    Ok(())
}

/// How many operations it takes.
fn operations() -> u64 {
    let sim = disk(1);
    write(&sim, &mut Told::default()).expect("because nothing is in the way");
    sim.operation_count()
}

/// Says what is wrong with a folder of evidence after a crash.
fn inspect(sim: &SimFs, told: Told) -> Result<(), String> {
    let home = home(sim);
    match look(&home).map_err(|error| error.to_string())? {
        Found::Absent if told.created => Err("the bag is gone".to_owned()),
        Found::Absent => Ok(()),
        Found::Closed => inspect_closed(sim, told),
        Found::Open if told.closed.is_some() => Err("the closed bag is open again".to_owned()),
        Found::Open => {
            let resumed = OpenBag::resume(&home).map_err(|error| error.to_string())?;
            inspect_open(&resumed, told)?;
            go_on(sim, resumed)
        }
    }
}

fn inspect_closed(sim: &SimFs, told: Told) -> Result<(), String> {
    let dir = home(sim)
        .open_dir("bag")
        .map_err(|error| error.to_string())?;
    let contents = Contents::read(&dir).map_err(|error| error.to_string())?;
    check(&contents).map_err(|faults| format!("{faults:?}"))?;
    if contents != bag() {
        return Err("closed with other bytes".to_owned());
    }
    match told.closed {
        Some(digest) if contents.digest() != Some(digest) => Err("another digest".to_owned()),
        Some(_) | None => Ok(()),
    }
}

fn inspect_open(resumed: &Resumed, told: Told) -> Result<(), String> {
    let payload = payload();
    for path in resumed.paths() {
        let actual = resumed.read(path).map_err(|error| error.to_string())?;
        let whole = payload
            .get(path)
            .ok_or_else(|| format!("{path} is invented"))?;
        if path == EXCHANGE {
            let is_half = actual.len() >= HALF && actual[..HALF] == whole[..HALF];
            if told.half && !is_half {
                return Err(format!("{path} lost what was synced"));
            }
        } else if actual != whole {
            return Err(format!("{path} is torn"));
        }
    }
    let is_fixture = |path: &&str| path.starts_with(FIXTURE);
    let fixture_count = resumed.paths().filter(is_fixture).count();
    if ![0, fixture().len()].contains(&fixture_count) {
        return Err(format!(
            "{fixture_count} files of a folder that was put as a whole"
        ));
    }
    for path in ["packet.json", EXCHANGE] {
        if told.half && !resumed.paths().any(|other| other == path) {
            return Err(format!("{path} was synced and is gone"));
        }
    }
    Ok(())
}

/// Closes what was resumed, and loses all that is not durable.
fn go_on(sim: &SimFs, resumed: Resumed) -> Result<(), String> {
    let text = |error: packhouse_bag::WriteError| error.to_string();
    let mut expected = Contents::default();
    for path in resumed.paths() {
        expected.insert(path, resumed.read(path).map_err(text)?);
    }
    expected.insert("run.json", *b"{}\n");
    let mut bag = resumed.into_bag();
    bag.put("run.json", b"{}\n").map_err(text)?;
    let digest = bag.close(&info()).map_err(text)?;
    let sim = sim.crash(Crash::Lost, 7);
    let dir = home(&sim)
        .open_dir("bag")
        .map_err(|error| error.to_string())?;
    let contents = Contents::read(&dir).map_err(|error| error.to_string())?;
    check(&contents).map_err(|faults| format!("{faults:?}"))?;
    if contents.digest() != Some(digest) || contents.payload() != expected {
        return Err("what was resumed and closed is not what is there".to_owned());
    }
    Ok(())
}

/// Runs with a fault, crashes in each way, and says what is wrong.
fn survey(fault: Fault, skip: Option<Skip>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (seed, crash) in CRASHES.into_iter().enumerate() {
        let sim = disk(1);
        sim.set_skip(skip);
        sim.set_fault(Some(fault));
        let mut told = Told::default();
        let ended = write(&sim, &mut told);
        let sim = sim.crash(crash, seed as u64);
        sim.set_fault(None);
        sim.set_skip(None);
        if let Err(words) = inspect(&sim, told) {
            wrong.push(format!("{fault:?} {crash:?}: {words} ({ended:?})"));
        }
    }
    wrong
}

#[test]
fn a_stop_at_any_operation_leaves_no_bag_an_open_one_or_the_closed_one() {
    for at in 0..operations() {
        let wrong = survey(Fault::Stop { at }, None);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn a_full_disk_at_any_operation_is_an_error_and_what_was_durable_stays() {
    for at in 0..operations() {
        let wrong = survey(Fault::Full { at }, None);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn an_error_of_the_disk_at_any_operation_poisons_and_what_was_durable_stays() {
    for at in 0..operations() {
        let kind = FsErrorKind::Io;
        let wrong = survey(Fault::Error { at, kind }, None);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// The machine runs on after the error, so reads still show what a failed sync has lost.
#[test]
fn what_a_failed_sync_lost_is_written_again_when_the_bag_is_resumed() {
    let mut resumed_count = 0;
    for at in 0..operations() {
        let sim = disk(1);
        let kind = FsErrorKind::Io;
        sim.set_fault(Some(Fault::Error { at, kind }));
        let mut told = Told::default();
        let ended = write(&sim, &mut told);
        sim.set_fault(None);
        // `inspect` crashes after it closed, and what is then there must be what was read before.
        inspect(&sim, told).unwrap_or_else(|words| panic!("{at}: {words} ({ended:?})"));
        resumed_count += u64::from(told.created && told.closed.is_none());
    }
    assert!(resumed_count > 20, "{resumed_count}");
}

#[test]
fn a_disk_that_changes_a_bit_of_any_write_is_found_before_the_bag_is_closed() {
    let mut found_count = 0;
    for at in 0..operations() {
        let sim = disk(1);
        sim.set_fault(Some(Fault::Flip { at }));
        let mut told = Told::default();
        let ended = write(&sim, &mut told);
        match ended {
            Ok(()) => inspect_closed(&sim, told).expect("because it was closed"),
            Err(words) => {
                assert!(
                    words.starts_with("/evidence/packet/bag.open: "),
                    "{at}: {words}"
                );
                let found = look(&home(&sim)).expect("because there is only one");
                assert_eq!(found, Found::Open, "{at}");
                found_count += 1;
            }
        }
    }
    // Seven files, one of them written in two pieces, and the four beside them.
    assert_eq!(found_count, 12);
}

#[test]
fn a_resume_that_is_stopped_at_any_operation_is_taken_up_again() {
    let count = operations();
    for at in (0..count).step_by(3) {
        let first = disk(1);
        first.set_fault(Some(Fault::Stop { at }));
        let mut told = Told::default();
        let _ = write(&first, &mut told);
        let first = first.crash(Crash::Torn, at);
        first.set_fault(None);
        if look(&home(&first)).expect("because there is only one") != Found::Open {
            continue;
        }
        for next in (0..60).step_by(2) {
            let sim = first.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_fault(Some(Fault::Stop { at: next }));
            let is_done = OpenBag::resume(&home(&sim)).is_ok();
            let sim = sim.crash(CRASHES[next as usize % 5], next);
            sim.set_fault(None);
            inspect(&sim, told).unwrap_or_else(|words| panic!("{at} {next}: {words}"));
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn a_discard_that_is_stopped_at_any_operation_is_done_again() {
    let made = || {
        let sim = disk(1);
        let mut bag = OpenBag::create(&home(&sim)).expect("because nothing is there");
        for (path, bytes) in payload().files() {
            bag.put(path, bytes).expect("because it is free");
        }
        bag.sync().expect("because nothing failed");
        sim.restart_count();
        sim
    };
    let sim = made();
    discard(&home(&sim)).expect("because nothing is in the way");
    let count = sim.operation_count();
    assert_eq!(look(&home(&sim.crash(Crash::Lost, 1))), Ok(Found::Absent));
    for at in 0..count {
        for crash in CRASHES {
            let sim = made();
            sim.set_fault(Some(Fault::Stop { at }));
            discard(&home(&sim)).expect_err("because it stops");
            let sim = sim.crash(crash, at);
            sim.set_fault(None);
            discard(&home(&sim)).expect("because nothing is in the way");
            assert_eq!(look(&home(&sim)), Ok(Found::Absent), "{at} {crash:?}");
        }
    }
}

#[test]
fn a_file_beside_a_bag_is_whole_or_absent_and_durable_once_it_is_told() {
    let sim = disk(1);
    write_new(&home(&sim), "seal-1.json", b"sealed").expect("because nothing is in the way");
    for at in 0..sim.operation_count() {
        for fault in [
            Fault::Stop { at },
            Fault::Full { at },
            Fault::Error {
                at,
                kind: FsErrorKind::Io,
            },
        ] {
            for crash in CRASHES {
                let sim = disk(1);
                sim.set_fault(Some(fault));
                let told = write_new(&home(&sim), "seal-1.json", b"sealed");
                let sim = sim.crash(crash, at);
                sim.set_fault(None);
                let dir = home(&sim);
                match dir.read_small("seal-1.json", 100) {
                    Ok(bytes) => assert_eq!(bytes, b"sealed", "{fault:?} {crash:?}"),
                    Err(error) => {
                        assert_eq!(error.kind, FsErrorKind::NotFound, "{fault:?} {crash:?}");
                        assert!(told.is_err(), "{fault:?} {crash:?}: told and gone");
                    }
                }
                // Done again, it is there for good.
                write_new(&dir, "seal-1.json", b"sealed").expect("because only it is there");
                let again = write_new(&dir, "seal-1.json", b"sealed");
                assert_eq!(again, Ok(Outcome::Equal));
                let sim = sim.crash(Crash::Lost, at);
                let read = home(&sim).read_small("seal-1.json", 100);
                assert_eq!(read.expect("because it was told"), b"sealed");
            }
        }
    }
}

#[test]
fn a_sync_that_is_left_out_is_noticed() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let wrong: Vec<String> = (0..=operations())
            .flat_map(|at| survey(Fault::Stop { at }, Some(skip)))
            .collect();
        assert!(!wrong.is_empty(), "{skip:?} is not noticed");
    }
}
