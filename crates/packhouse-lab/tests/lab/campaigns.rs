//! Campaigns on a played lab: rehearsed, run, released, aborted.

use crate::played::{Manner, PREREG, Played, RECIPES};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::{Status, Verdict};
use packhouse_lab::campaign::{CampaignError, Fault, Finished, Frozen, Ran, rehearse, run};
use packhouse_lab::recovery::recover;
use packhouse_lab::tamper::OwnJudge;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Stage};
use packhouse_sim::{Crash, Fault as SimFault};

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
    assert_eq!(played.findings(packet), []);
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

/// The exchange of a run that goes on, as it is on the disk after a power cut.
#[test]
fn what_was_asked_is_on_the_disk_when_a_program_dies_and_the_power_fails() {
    let (played, packet) = Played::armed(6);
    played.programs.manner.set(Manner::Dies);
    // The second case's line is written before it is asked; stop there, before anything else is.
    let count = {
        let sim = played.sim.crash(Crash::Kept, 0);
        let other = Played::on(sim.clone(), played.programs.again());
        sim.restart_count();
        sealed(&other, packet);
        sim.operation_count()
    };
    let answered = |played: &Played| {
        let path = format!("/home/user/lab/evidence/{packet}/bag.open/data/legs/00/exchange.jsonl");
        let bytes = played.sim.read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).matches("\"seen\"").count()
    };
    let most = (0..count).map(|at| {
        let sim = played.sim.crash(Crash::Kept, at);
        let programs = played.programs.again();
        let other = Played::on(sim.clone(), programs.clone());
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let _ = ran(&other, packet);
        let after = Played::on(sim.crash(Crash::Lost, at), programs.clone());
        // A second case is asked only when the answer to the first is durable.
        let asked = programs.asked.borrow().len();
        let durable = answered(&after);
        assert!(
            asked < 2 || durable >= 1 || !is_open(&after, packet),
            "{at}: {asked} asked"
        );
        durable
    });
    assert_eq!(most.max(), Some(1));
}

fn is_open(played: &Played, packet: Digest) -> bool {
    let path = format!("/home/user/lab/evidence/{packet}/bag.open/data/prereg.toml");
    played.sim.read(path).is_some()
}

#[test]
fn a_marker_of_the_packet_refuses_a_run_whatever_the_ledger_says() {
    let (played, packet) = Played::armed(7);
    let before = played
        .sim
        .read("/home/user/lab/ledger.jsonl")
        .expect("because it is there");
    sealed(&played, packet);
    played
        .sim
        .replace("/home/user/lab/ledger.jsonl", &before, 0o644);
    let asked = played.programs.asked.borrow().len();
    let refused = ran(&played, packet)
        .expect_err("because it was run")
        .to_string();
    assert!(refused.contains("the packet is consumed"), "{refused}");
    let recovered = played.act(|campaign, writer| recover(campaign, writer, packet));
    let refused = recovered
        .expect_err("because the ledger knows nothing")
        .to_string();
    assert!(refused.contains("its marker is here"), "{refused}");
    assert_eq!(played.programs.asked.borrow().len(), asked);
}

#[test]
fn a_rehearsal_of_another_boot_or_day_is_not_fresh() {
    let (mut played, packet) = Played::armed(8);
    played.host.boot = "boot-2".to_owned();
    let refused = ran(&played, packet)
        .expect_err("because of the boot")
        .to_string();
    assert!(refused.contains("was in boot boot-1"), "{refused}");
    played.host.boot = "boot-1".to_owned();
    played.clock.advance_ns(86_401_000_000_000);
    let refused = ran(&played, packet)
        .expect_err("because of its age")
        .to_string();
    assert!(refused.contains("at most 86400 s are fresh"), "{refused}");
    assert_eq!(standing(&played, packet), Standing::Armed);
    assert_eq!(played.programs.asked.borrow().len(), 0);
}

#[test]
fn a_closed_bag_that_was_changed_is_not_sealed() {
    let (played, packet) = Played::armed(9);
    let sim = &played.sim;
    sim.restart_count();
    let copy = Played::on(sim.crash(Crash::Kept, 0), played.programs.again());
    copy.sim.restart_count();
    sealed(&copy, packet);
    // Stopped when the ledger has `closed`, and another bag is put in its place.
    for at in (0..copy.sim.operation_count()).rev() {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let _ = ran(&Played::on(sim.clone(), played.programs.again()), packet);
        let after = Played::on(sim.crash(Crash::Kept, at), played.programs.again());
        if standing(&after, packet) != Standing::Closed {
            continue;
        }
        after.close_again(packet);
        let recovered = after.act(|campaign, writer| recover(campaign, writer, packet));
        let refused = recovered
            .expect_err("because it is another bag")
            .to_string();
        assert!(refused.contains("the ledger closed"), "{refused}");
        return;
    }
    panic!("never closed");
}

/// Two legs of the candidate, the first of which fails.
#[test]
fn the_stop_rule_begins_no_leg_after_one_that_failed() {
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let document = PREREG.replace(leg, &leg.repeat(2));
    let stops = document.replace("stop = \"never\"", "stop = \"first-failed-leg\"");
    for (document, legs) in [(&document, 2), (&stops, 1)] {
        let (played, packet) = Played::armed_as(10, document);
        played.programs.manner.set(Manner::WrongBit);
        let finished = sealed(&played, packet);
        assert_eq!(finished.analysis.verdict, Verdict::Fail);
        assert_eq!(played.programs.asked.borrow().len(), 3 * legs);
        let status = if legs == 1 {
            Status::Stopped
        } else {
            Status::Complete
        };
        assert_eq!(finished.analysis.status, status);
        let records = finished
            .analysis
            .gate("records")
            .expect("because it is always there");
        assert_eq!(records.failure_count, 0, "{records:?}");
        assert_eq!(played.findings(packet), []);
    }
}

#[test]
fn a_run_beyond_its_time_budget_is_stopped_and_fails() {
    let (played, packet) = Played::armed(11);
    played.programs.manner.set(Manner::Slow);
    let finished = sealed(&played, packet);
    let analysis = finished.analysis;
    assert_eq!(
        (analysis.status, analysis.verdict),
        (Status::Stopped, Verdict::Fail)
    );
    let failed = analysis
        .gates
        .iter()
        .filter(|gate| gate.passed == Some(false));
    let failed: Vec<&str> = failed.map(|gate| gate.gate.as_str()).collect();
    assert_eq!(failed, ["complete", "budget"]);
    assert_eq!(played.programs.asked.borrow().len(), 2);
    assert_eq!(played.findings(packet), []);
}

#[test]
fn a_packet_that_was_run_is_not_rehearsed_and_nothing_is_started_for_it() {
    let (played, packet) = Played::armed(12);
    sealed(&played, packet);
    let refused = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        let refused = rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES));
        refused.expect_err("because it was run").to_string()
    });
    assert!(refused.contains("sealed-pass"), "{refused}");
    let rehearsals = format!("/home/user/lab/rehearsals/{packet}");
    assert_eq!(
        played.sim.read(format!("{rehearsals}/bag/data/run.json")),
        None
    );
}
