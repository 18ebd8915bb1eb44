//! Campaigns on a played lab: rehearsed, run, released, aborted.

use crate::played::{Manner, Played, RECIPES};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{CampaignError, Fault, Finished, Frozen, Ran, rehearse, run};
use packhouse_lab::tamper::OwnJudge;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Stage};

fn ran(played: &Played, packet: Digest) -> Result<Ran, CampaignError> {
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
        run(campaign, writer, &frozen)
    })
}

fn sealed(played: &Played, packet: Digest) -> Finished {
    match ran(played, packet).expect("because nothing stands against it") {
        Ran::Sealed(finished) => *finished,
        Ran::Released(fault) => panic!("released: {fault}"),
    }
}

fn released(played: &Played, packet: Digest) -> Fault {
    match ran(played, packet).expect("because nothing stands against it") {
        Ran::Sealed(finished) => panic!("sealed: {finished:?}"),
        Ran::Released(fault) => fault,
    }
}

fn standing(played: &Played, packet: Digest) -> Standing {
    let ledger = Ledger::read(&played.dir("/home/user/lab"), None).expect("because it is good");
    ledger.state().packets()[&packet].standing
}

#[test]
fn an_armed_packet_is_run_once_and_sealed() {
    let (played, packet) = Played::armed(1);
    let finished = sealed(&played, packet);
    assert_eq!(finished.analysis.verdict, Verdict::Pass, "{finished:?}");
    assert_eq!(played.programs.asked.borrow().len(), 3);
    let again = ran(&played, packet)
        .expect_err("because it was run")
        .to_string();
    assert!(
        again.ends_with("is sealed-pass, and has to be armed"),
        "{again}"
    );
    assert_eq!(played.programs.asked.borrow().len(), 3);
}

#[test]
fn a_rehearsal_runs_the_null_program_and_every_tampered_copy_is_rejected() {
    let (played, packet) = Played::registered(2);
    played.programs.manner.set(Manner::Dies);
    let rehearsal = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES)).expect("because it is entered")
    });
    assert_eq!(rehearsal.fault, None);
    assert!(rehearsal.tampers > 300, "{}", rehearsal.tampers);
    assert_eq!(rehearsal.tampers, rehearsal.rejected);
    // The candidate itself, which would die, was never asked.
    assert_eq!(played.programs.asked.borrow().len(), 0);
    assert_eq!(standing(&played, packet), Standing::Rehearsed);
}

#[test]
fn a_wrong_bit_is_a_row_that_fails_and_no_abort() {
    let (played, packet) = Played::armed(3);
    played.programs.manner.set(Manner::WrongBit);
    let finished = sealed(&played, packet);
    assert_eq!(
        (finished.analysis.verdict, finished.fault),
        (Verdict::Fail, None)
    );
    let equality = finished
        .analysis
        .gate("equality")
        .expect("because it is always there");
    assert_eq!(equality.passed, Some(false));
    assert_eq!(standing(&played, packet), Standing::SealedFail);
}

#[test]
fn a_program_that_dies_aborts_the_packet_for_ever() {
    let (played, packet) = Played::armed(4);
    played.programs.manner.set(Manner::Dies);
    let finished = sealed(&played, packet);
    let fault = finished.fault.expect("because it died");
    assert_eq!(finished.analysis.verdict, Verdict::Abort);
    assert_eq!(fault.stage, Stage::Leg);
    assert!(
        fault
            .reason
            .contains("candidate: in case 1: the program ended"),
        "{fault}"
    );
    assert_eq!(standing(&played, packet), Standing::SealedAbort);
    played.programs.manner.set(Manner::Honest);
    assert!(ran(&played, packet).is_err());
}

#[test]
fn what_fails_before_the_marker_releases_the_packet_and_it_is_run_later() {
    let (played, packet) = Played::armed(5);
    played.programs.manner.set(Manner::Silent);
    let fault = released(&played, packet);
    assert_eq!(
        fault.to_string(),
        "hello: candidate: at hello: no answer in time"
    );
    played.programs.manner.set(Manner::Elsewhere);
    let fault = released(&played, packet);
    assert_eq!(
        fault.to_string(),
        "discovery: candidate: the program has no device cpu"
    );
    assert_eq!(standing(&played, packet), Standing::Armed);
    let home = format!("/home/user/lab/evidence/{packet}");
    assert_eq!(played.sim.files(&home), Vec::<std::path::PathBuf>::new());
    assert_eq!(played.programs.asked.borrow().len(), 0);
    played.programs.manner.set(Manner::Honest);
    assert_eq!(sealed(&played, packet).analysis.verdict, Verdict::Pass);
}
