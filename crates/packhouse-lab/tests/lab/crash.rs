//! A run that is stopped before every operation that changes something, and started again: what is
//! released was never asked anything, what was asked anything is sealed, and no packet's first case
//! is ever asked twice.
//!
//! A campaign that could be repeated after a fault, by deleting a folder or by copying the lab, is
//! how a reference lab came to more than one run of a one-shot packet.

use crate::played::{Manner, Played, Programs};
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{CampaignError, Frozen, run};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Act, Ledger, Writer};
use packhouse_sim::{Crash, Fault, SimFs};
use packhouse_sys::fs::FsErrorKind;

/// What `lab run` does: what an earlier run left is finished, else the packet is run.
fn lab_run(played: &Played, packet: Digest) -> Result<Standing, String> {
    played.with(|campaign| {
        let writer = Writer::open(&campaign.lab.root, None, campaign.lab.clock);
        let mut writer = writer.map_err(|error| error.to_string())?;
        let text = |error: CampaignError| error.to_string();
        if recover(campaign, &mut writer, packet).map_err(text)?
            == Recovered::Nothing(Standing::Armed)
        {
            let frozen = Frozen::load(campaign, writer.ledger(), packet).map_err(text)?;
            run(campaign, &mut writer, &frozen).map_err(text)?;
        }
        Ok(writer.ledger().state().packets()[&packet].standing)
    })
}

/// Where the ledger has the packet, and that the ledger is good.
fn standing(played: &Played, packet: Digest) -> Standing {
    let root = played.dir("/home/user/lab");
    let ledger = Ledger::read(&root, None).expect("because no crash makes a bad ledger");
    ledger.state().packets()[&packet].standing
}

/// How often the candidate was asked its first case.
fn first_cases(programs: &Programs) -> usize {
    let asked = programs.asked.borrow();
    asked.iter().filter(|(_, index)| *index == 0).count()
}

/// Starts the lab again on what is left, until the packet is sealed.
fn to_the_end(sim: &SimFs, programs: &Programs, packet: Digest, label: &str) -> Standing {
    let played = Played::on(sim.clone(), programs.clone());
    for _ in 0..3 {
        let was_asked = first_cases(programs) > 0;
        let ran = lab_run(&played, packet).unwrap_or_else(|error| panic!("{label}: {error}"));
        assert_eq!(ran, standing(&played, packet), "{label}");
        match ran {
            Standing::SealedPass | Standing::SealedFail | Standing::SealedAbort => return ran,
            Standing::Armed => assert!(!was_asked, "{label}: asked, and then released"),
            other => panic!("{label}: left {other:?}"),
        }
    }
    panic!("{label}: released over and over");
}

/// Operations of a run of an armed packet.
fn operations(base: &Played, packet: Digest) -> u64 {
    let sim = base.sim.crash(Crash::Kept, 0);
    let played = Played::on(sim.clone(), base.programs.again());
    sim.restart_count();
    let sealed = lab_run(&played, packet).expect("because nothing stands against it");
    assert_eq!(sealed, Standing::SealedPass);
    sim.operation_count()
}

#[test]
fn a_run_stopped_anywhere_is_released_or_sealed_and_never_asked_again() {
    let (played, packet) = Played::armed(2);
    let count = operations(&played, packet);
    let crashes = [
        Crash::Lost,
        Crash::Torn,
        Crash::Reordered,
        Crash::LostEntries,
        Crash::Kept,
    ];
    let (mut aborted, mut passed) = (0, 0);
    for at in 0..count {
        let crash = crashes[usize::try_from(at).expect("because it is small") % crashes.len()];
        let label = format!("stopped at {at} of {count}, {crash:?}");
        let programs = played.programs.again();
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(Fault::Stop { at }));
        let stopped = Played::on(sim.clone(), programs.clone());
        // The last operation gives back the room that a reason would have taken; nothing needs it.
        let is_over = at + 1 == count;
        assert_eq!(lab_run(&stopped, packet).is_ok(), is_over, "{label}");
        let asked = first_cases(&programs);
        let mut sim = sim.crash(crash, at);
        if at % 4 == 0 {
            // Once more while it is finished, somewhere else each time.
            sim.restart_count();
            sim.set_fault(Some(Fault::Stop { at: at * 7 % 60 }));
            let _ = lab_run(&Played::on(sim.clone(), programs.clone()), packet);
            sim = sim.crash(crash, at + 1);
        }
        match to_the_end(&sim, &programs, packet, &label) {
            Standing::SealedAbort => aborted += 1,
            Standing::SealedPass => passed += 1,
            other => panic!("{label}: {other:?}"),
        }
        assert!(first_cases(&programs) <= 1, "{label}: asked {asked} before");
        if at % 8 == 0 {
            let sealed = Played::on(sim, programs);
            assert_eq!(sealed.findings(packet), [], "{label}");
        }
    }
    assert!(
        aborted > 10 && passed > 10,
        "{aborted} aborted, {passed} passed of {count}"
    );
}

#[test]
fn a_full_or_failing_disk_anywhere_is_released_or_sealed_when_there_is_room() {
    let (played, packet) = Played::armed(3);
    let count = operations(&played, packet);
    for at in (0..count).step_by(7) {
        let eio = FsErrorKind::Errno(5);
        for fault in [
            Fault::Full { at },
            Fault::Error {
                at: at + 1,
                kind: eio,
            },
        ] {
            let label = format!("{fault:?} of {count}");
            let programs = played.programs.again();
            let sim = played.sim.crash(Crash::Kept, at);
            sim.restart_count();
            sim.set_fault(Some(fault));
            let _ = lab_run(&Played::on(sim.clone(), programs.clone()), packet);
            sim.set_fault(None);
            let ended = to_the_end(&sim, &programs, packet, &label);
            assert!(first_cases(&programs) <= 1, "{label}: {ended:?}");
        }
    }
}

/// Why a run was aborted, where no byte could be written any more from then on: it was lost, and
/// the seal said only how far the run had come.
#[test]
fn a_disk_that_is_full_to_the_end_keeps_why_the_run_was_aborted() {
    let (played, packet) = Played::armed(4);
    let count = operations(&played, packet);
    let (mut told, mut finished) = (0, 0);
    for at in (0..count).step_by(2) {
        let label = format!("full from {at} of {count}");
        let programs = played.programs.again();
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(Fault::Full { at }));
        let full = Played::on(sim.clone(), programs.clone());
        let ran = lab_run(&full, packet);
        sim.set_fault(None);
        let open = standing(&full, packet);
        let ended = to_the_end(&sim, &programs, packet, &label);
        if ended == Standing::SealedAbort {
            assert!(ran.is_err() || open == ended, "{label}: {ran:?}");
            let reason = aborted_by(&full, packet);
            assert!(reason.contains("no space"), "{label}: {reason}");
            told += 1;
        } else {
            finished += 1;
        }
        let causes = sim.files("/home/user/state/lab/causes");
        assert_eq!(causes, Vec::<std::path::PathBuf>::new(), "{label}");
        if at % 8 == 0 {
            assert_eq!(full.findings(packet), [], "{label}");
        }
    }
    assert!(told > 10 && finished > 10, "{told} told, {finished} not");
}

/// The reason that is sealed.
fn aborted_by(played: &Played, packet: Digest) -> String {
    let root = played.dir("/home/user/lab");
    let ledger = Ledger::read(&root, None).expect("because no disk makes a bad ledger");
    let mut sealed = ledger
        .entries()
        .iter()
        .filter_map(|entry| match &entry.act {
            Act::Sealed(sealed) if sealed.packet == packet => Some(sealed.reason.clone()),
            _ => None,
        });
    sealed.next().expect("because it is sealed")
}

/// A program that died on a full disk: the first cause is told, by the run or by who seals it.
#[test]
fn what_ended_a_run_first_is_told_where_the_disk_is_full_later() {
    let (played, packet) = Played::armed(5);
    let (mut told, mut untold) = (0, 0);
    for at in (0..operations(&played, packet)).step_by(2) {
        let label = format!("full from {at}");
        let programs = played.programs.again();
        programs.manner.set(Manner::Dies);
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(Fault::Full { at }));
        let full = Played::on(sim.clone(), programs.clone());
        let _ = lab_run(&full, packet);
        // Its second case was asked, and it died of it.
        let has_died = programs.asked.borrow().iter().any(|(_, index)| *index == 1);
        sim.set_fault(None);
        to_the_end(&sim, &programs, packet, &label);
        let reason = aborted_by(&full, packet);
        let is_told = reason.contains("the program ended by signal 9");
        assert!(is_told || reason.contains("no space"), "{label}: {reason}");
        // Of the case that it died in, the line itself may have found no room, which comes after
        // syncs, which need none.
        untold += usize::from(has_died && !is_told);
        assert!(untold <= 4, "{label}: {reason}");
        told += usize::from(is_told);
    }
    assert!(told > 10, "{told}");
}
