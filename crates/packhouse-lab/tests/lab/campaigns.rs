//! Campaigns on a played lab: rehearsed, run, released, aborted.

use crate::played::{Manner, PREREG, Played, RECIPES};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::{Status, Verdict};
use packhouse_lab::campaign::{
    CampaignError, Fault, Finished, Frozen, REASON_BYTES_MAX, Ran, rehearse, run, would_rehearse,
};
use packhouse_lab::evidence::Failure;
use packhouse_lab::marker::Markers;
use packhouse_lab::recovery::recover;
use packhouse_lab::review;
use packhouse_lab::tamper::{Judge, OwnJudge};
use packhouse_lab::verify::Evidence;
use packhouse_ledger::act::Rehearsed;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Act, Ledger, Stage};
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

/// Why a rehearsal is not green.
fn rehearsed(played: &Played, packet: Digest) -> Option<Fault> {
    let rehearsal = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES)).expect("because it is entered")
    });
    rehearsal.fault
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
    is_compared(&played, packet);
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

/// A file that is swapped while a leg goes on is not run in the next one, nor is it what ran.
#[test]
fn a_program_that_is_swapped_during_its_run_aborts_it_by_name() {
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    for legs in [1, 2] {
        let (played, packet) = Played::armed_as(21, &PREREG.replace(leg, &leg.repeat(legs)));
        played.programs.manner.set(Manner::Swaps);
        let finished = sealed(&played, packet);
        assert_eq!(finished.analysis.verdict, Verdict::Abort);
        let fault = finished.fault.expect("because it was swapped");
        assert_eq!(fault.stage, Stage::Identities);
        let named = "program candidate: file candidate: frozen ";
        assert!(fault.reason.contains(named), "{fault}");
        // The second leg was never begun.
        assert_eq!(played.programs.asked.borrow().len(), 3);
        assert_eq!(played.findings(packet), []);
    }
}

/// What an interpreter loads by itself is found before the marker, and before that in rehearsal.
#[test]
fn a_mapped_file_that_is_not_frozen_is_named_before_anything_is_consumed() {
    let (played, packet) = Played::armed(22);
    played.programs.manner.set(Manner::Stranger);
    let fault = released(&played, packet);
    // All of them at once, and where they are: each that is found later costs an experiment.
    let words = "identities: candidate: again.so, SHA-256 ";
    assert!(fault.to_string().starts_with(words), "{fault}");
    let others = "is mapped and not frozen, nor is stranger.so";
    assert!(fault.reason.ends_with(others), "{fault}");
    let paths = fault.unfrozen.iter().map(|mapped| mapped.path.display());
    let paths: Vec<String> = paths.map(|path| path.to_string()).collect();
    assert_eq!(paths, ["/played/again.so", "/played/stranger.so"]);
    assert_eq!(standing(&played, packet), Standing::Armed);
    let (played, packet) = Played::registered(23);
    played.programs.manner.set(Manner::Stranger);
    let fault = rehearsed(&played, packet).expect("because it is not green");
    assert!(fault.to_string().starts_with(words), "{fault}");
    assert_eq!(played.programs.asked.borrow().len(), 0);
}

/// No case is asked of the real candidate, but that it has no such device is seen in rehearsal.
#[test]
fn a_rehearsal_greets_the_candidate_itself() {
    for (manner, words) in [
        (
            Manner::Silent,
            "hello: candidate: at hello: no answer in time",
        ),
        (
            Manner::Elsewhere,
            "discovery: candidate: the program has no device cpu",
        ),
    ] {
        let (played, packet) = Played::registered(24);
        played.programs.manner.set(manner);
        let fault = rehearsed(&played, packet).expect("because it is not green");
        assert_eq!(fault.to_string(), words);
        assert_eq!(played.programs.asked.borrow().len(), 0);
    }
}

/// The null program declines with its own words: that gate decides nothing in a rehearsal.
#[test]
fn a_rehearsal_goes_on_where_only_a_gate_that_does_not_decide_fails() {
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let document = PREREG.replace(leg, &leg.repeat(2));
    let document = document.replace("stop = \"never\"", "stop = \"first-failed-leg\"");
    let document = document.replace("reason = \"input input", "reason = \"another input");
    let (played, packet) = Played::registered_as(25, &document);
    assert_eq!(rehearsed(&played, packet), None);
}

/// The disk of the lab, at each answer that the candidate gave: no answer lies there to be read.
#[test]
fn a_drawn_fixture_is_on_no_disk_while_a_program_could_read_it() {
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let (played, packet) = Played::armed_as(26, &PREREG.replace(leg, &leg.repeat(2)));
    let count = {
        let sim = played.sim.crash(Crash::Kept, 0);
        let other = Played::on(sim.clone(), played.programs.again());
        sim.restart_count();
        sealed(&other, packet);
        sim.operation_count()
    };
    let home = format!("/home/user/lab/evidence/{packet}");
    let is_drawn = |sim: &packhouse_sim::SimFs| {
        let files = sim.files(&home);
        files
            .iter()
            .any(|path| path.to_string_lossy().contains("/drawn/"))
    };
    let mut was_open = 0;
    for at in (0..count).step_by(7) {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let other = Played::on(sim.clone(), played.programs.again());
        let _ = ran(&other, packet);
        let left = sim.crash(Crash::Kept, at);
        let legs = format!("{home}/bag.open/data/legs/01/leg.json");
        let is_closed = left.read(format!("{home}/bag/bagit.txt")).is_some();
        if !is_closed && left.read(legs).is_none() {
            assert!(!is_drawn(&left), "operation {at}");
            was_open += 1;
        }
        // What is sealed then has all that was asked.
        let again = Played::on(left, other.programs.again());
        again
            .act(|campaign, writer| recover(campaign, writer, packet))
            .ok();
        if standing(&again, packet) == Standing::SealedAbort {
            assert_eq!(again.findings(packet), [], "operation {at}");
        }
    }
    assert!(was_open > 5, "{was_open}");
}

/// An `armed` that no reviewer stands behind is refused before the nonce: the one run isn't spent.
#[test]
fn a_packet_that_too_few_approved_is_not_run() {
    let document = PREREG.replace("reviewers = 1", "reviewers = 2");
    let (played, packet) = Played::armed_as(27, &document);
    let before = played.sim.read("/home/user/lab/ledger.jsonl");
    let error = ran(&played, packet)
        .expect_err("because one approved")
        .to_string();
    let words = "reviewers who must approve: 2; approvals that it was armed by: 1, reviewers: 1";
    assert!(error.ends_with(words), "{error}");
    assert_eq!(played.sim.read("/home/user/lab/ledger.jsonl"), before);
    assert_eq!(played.programs.asked.borrow().len(), 0);
}

/// Evidence of an earlier shot, or what is in its way, stops a run before its nonce and stays.
#[test]
fn what_lies_in_the_evidence_is_found_before_the_nonce_and_never_removed() {
    for name in ["bag.open", "bag", "analysis-1", "seal-1.json"] {
        let (played, packet) = Played::armed(28);
        let home = format!("/home/user/lab/evidence/{packet}");
        for folder in ["/home/user/lab/evidence", &home, &format!("{home}/{name}")] {
            played.sim.make_dirs(folder, 1000, 0o755);
        }
        let before = played.sim.read("/home/user/lab/ledger.jsonl");
        let error = ran(&played, packet)
            .expect_err("because it is there")
            .to_string();
        assert!(error.starts_with("file-system: evidence/"), "{error}");
        assert!(error.contains(&format!("/{name} is there")), "{error}");
        assert_eq!(played.sim.read("/home/user/lab/ledger.jsonl"), before);
        let names = played.dir(&home).list().expect("because it is there");
        assert_eq!(names, [name]);
    }
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

/// Where the ledger has the packet consumed and its bag is closed; with the file of the bag of
/// another run, of a copy of the lab.
fn consumed_and_closed(played: &Played, packet: Digest) -> Played {
    let count = {
        let sim = played.sim.crash(Crash::Kept, 0);
        sim.restart_count();
        sealed(&Played::on(sim.clone(), played.programs.again()), packet);
        sim.operation_count()
    };
    for at in (0..count).rev() {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let _ = ran(&Played::on(sim.clone(), played.programs.again()), packet);
        let after = Played::on(sim.crash(Crash::Kept, at), played.programs.again());
        let bag = format!("/home/user/lab/evidence/{packet}/bag/bagit.txt");
        if standing(&after, packet) == Standing::Consumed && after.sim.read(&bag).is_some() {
            return after;
        }
    }
    panic!("never consumed with a closed bag");
}

/// A killed run was turned into a sealed pass by the bag of a copy of the lab.
#[test]
fn a_killed_run_is_not_sealed_by_the_bag_of_another_run() {
    let (played, packet) = Played::armed(29);
    let other = Played::on(played.sim.crash(Crash::Kept, 0), played.programs.again());
    // Other random numbers, as another run has them.
    other
        .programs
        .random
        .fetch_add(100, std::sync::atomic::Ordering::Relaxed);
    sealed(&other, packet);
    for name in ["run.json", "marker.json", "authority.jsonl"] {
        let after = consumed_and_closed(&played, packet);
        let before = after.sim.read("/home/user/lab/ledger.jsonl");
        let theirs = format!("/home/user/lab/evidence/{packet}/bag/data/{name}");
        let theirs = other.sim.read(theirs).expect("because it is sealed");
        after.close_with(packet, name, &theirs);
        let recovered = after.act(|campaign, writer| recover(campaign, writer, packet));
        let refused = recovered.expect_err("because it is another's").to_string();
        let said = format!("the bag of another run: its {name} is not this ledger's");
        assert!(refused.ends_with(&said), "{refused}");
        assert_eq!(after.sim.read("/home/user/lab/ledger.jsonl"), before);
    }
    let after = consumed_and_closed(&played, packet);
    let recovered = after.act(|campaign, writer| recover(campaign, writer, packet));
    assert!(recovered.is_ok(), "{recovered:?}");
}

/// An open bag in which cases were asked is evidence of a run, and no release removes it.
#[test]
fn a_release_keeps_the_open_bag_of_another_run() {
    let (played, packet) = Played::armed(30);
    let nonce = Digest::of(b"nonce");
    played.act(|campaign, writer| {
        let boot = campaign.lab.host.boot_id().expect("because it is played");
        let markers = Markers::open(campaign.lab.fs, &campaign.lab.state)
            .and_then(|markers| markers.identify(campaign.lab.fs));
        let act = packhouse_ledger::act::Nonce {
            packet,
            nonce,
            markers: Some(markers.expect("because it can be made")),
        };
        let entered = writer.append(act, 1, &boot);
        entered.expect("because it is armed");
    });
    let data = format!("/home/user/lab/evidence/{packet}/bag.open/data");
    for end in [3, 2, 1, 0] {
        let folder = std::path::Path::new(&data).ancestors().nth(end);
        let folder = folder.expect("because it is deep enough");
        played.sim.make_dirs(folder, 1000, 0o755);
    }
    let marker = format!("{data}/marker.json");
    played.sim.replace(&marker, b"of another run", 0o444);
    let recovered = played.act(|campaign, writer| recover(campaign, writer, packet));
    recovered.expect("because there is no marker of ours");
    assert_eq!(standing(&played, packet), Standing::Armed);
    assert!(played.sim.read(&marker).is_some());
    // And nothing is run over it.
    let refused = ran(&played, packet)
        .expect_err("because it is there")
        .to_string();
    assert!(refused.contains("bag.open is there"), "{refused}");
}

/// A rehearsal takes seconds, and could only be of use to a run that can't be.
#[test]
fn a_packet_with_a_marker_is_not_rehearsed_though_its_ledger_knows_nothing() {
    let (played, packet) = Played::armed(31);
    let before = played.sim.read("/home/user/lab/ledger.jsonl");
    let before = before.expect("because it is there");
    sealed(&played, packet);
    played
        .sim
        .replace("/home/user/lab/ledger.jsonl", &before, 0o644);
    let refused = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES)).map(|_| ())
    });
    let refused = refused.expect_err("because it was run").to_string();
    assert!(refused.contains("its marker is here"), "{refused}");
}

/// Who tells a rehearsal to end when it is at its tampered copies.
struct Interrupting;

impl Judge for Interrupting {
    fn name(&self) -> &'static str {
        "interrupting"
    }

    fn codes(&self, _: &Evidence) -> std::collections::BTreeSet<String> {
        IS_TOLD.store(true, std::sync::atomic::Ordering::Relaxed);
        std::collections::BTreeSet::new()
    }
}

static IS_TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn interrupted(played: &Played, packet: Digest) -> Result<Option<Fault>, CampaignError> {
    IS_TOLD.store(false, std::sync::atomic::Ordering::Relaxed);
    let rehearsal = played.act(|campaign, writer| {
        let campaign = packhouse_lab::campaign::Campaign {
            interrupted: || IS_TOLD.load(std::sync::atomic::Ordering::Relaxed),
            ..*campaign
        };
        let frozen = Frozen::load(&campaign, writer.ledger(), packet).expect("because it is");
        rehearse(&campaign, writer, &frozen, &Interrupting)
    });
    rehearsal.map(|rehearsal| rehearsal.fault)
}

/// Who saw that it is loud could end it, and try another time.
#[test]
fn a_rehearsal_that_is_told_to_end_at_its_tampered_copies_enters_its_noise_or_nothing() {
    const SAID: &str = "analysis: this process was told to end";
    let (played, packet) = Played::registered(32);
    let before = played.sim.read("/home/user/lab/ledger.jsonl");
    let refused = interrupted(&played, packet).expect_err("because it was told to");
    assert_eq!(refused.to_string(), SAID);
    assert_eq!(played.sim.read("/home/user/lab/ledger.jsonl"), before);

    let document = PREREG
        .replace("[[rejection]]", TIMING)
        .replace("[matrix]", CONTROL);
    let (played, packet) = Played::registered_as(33, &document);
    let fault = interrupted(&played, packet).expect("because its noise is known");
    assert_eq!(fault.map(|fault| fault.to_string()).as_deref(), Some(SAID));
    let entered = newest_rehearsal(&played);
    let quiet = Some([("cpu".to_owned(), 1)].into());
    assert_eq!((entered.green, entered.tampers), (false, 0));
    assert_eq!(entered.detectable_ns, quiet);
}

/// What reviewers could see is what is armed, and what is gone need not be there.
fn is_compared(played: &Played, packet: Digest) {
    let kept = |played: &Played| {
        played.act(|campaign, writer| review::is_kept(campaign.lab, writer.ledger(), packet))
    };
    assert!(kept(played).expect("because it is as it was"));
    let home = format!("/home/user/lab/rehearsals/{packet}");
    for path in ["analysis-1/analysis.json", "bag/data/run.json"] {
        let changed = Played::on(played.sim.crash(Crash::Kept, 0), played.programs.again());
        let path = format!("{home}/{path}");
        let mut bytes = changed.sim.read(&path).expect("because it is kept");
        bytes[0] ^= 1;
        changed.sim.replace(&path, &bytes, 0o444);
        let refused = kept(&changed)
            .expect_err("because it was changed")
            .to_string();
        let said = format!("rehearsals/{packet}: ");
        assert!(refused.starts_with(&said), "{refused}");
    }
    let (armed, packet) = Played::armed(34);
    let gone = armed.act(|campaign, writer| review::is_kept(campaign.lab, writer.ledger(), packet));
    assert!(!gone.expect("because nothing contradicts"));
}

/// A program's own words must fit a line of the ledger.
#[test]
fn a_reason_is_bounded_where_it_is_made() {
    let long = "\u{fc}".repeat(100_000);
    let fault = Fault::new(Stage::Leg, &long);
    assert!(
        fault.reason.len() <= REASON_BYTES_MAX,
        "{}",
        fault.reason.len()
    );
    assert!(fault.reason.ends_with(" ..."), "{fault}");
    assert!(fault.reason.len() > REASON_BYTES_MAX - 4);
    let fits = "x".repeat(REASON_BYTES_MAX);
    assert_eq!(Fault::new(Stage::Leg, &fits).reason, fits);
    let failure = Failure {
        code: "answer.shape",
        path: "legs/00".to_owned(),
        words: long,
    };
    let said = failure.to_string();
    assert_eq!(
        said.chars().count(),
        "answer.shape: legs/00:  ...".len() + 500
    );
}

const TIMING: &str = r#"[[leg]]
kind = "timing"
[timing]
fixture = "mul-mxfp4-ggml-cpu-repack-v1"
arm = "plain"
width = 1
epochs = 1
blocks = 6
cycles = 1
minimum_wins = 6
minimum_median_saving_ns = 10
[[rejection]]"#;
const CONTROL: &str = r#"[program.control]
program = "candidate"
arguments = []
environment = {}
[matrix]"#;

fn newest_rehearsal(played: &Played) -> Rehearsed {
    let ledger = Ledger::read(&played.dir("/home/user/lab"), None).expect("because it is good");
    let acts = ledger.entries().iter().rev().map(|entry| entry.act.clone());
    let newest = acts.into_iter().find_map(|act| match act {
        Act::Rehearsed(rehearsed) => Some(rehearsed),
        _ => None,
    });
    newest.expect("because it was rehearsed")
}

/// Played programs need a nanosecond for whatever they are asked: what no rehearsal could tell from
/// none is nothing. An earlier one that was louder stays in the way, before a program is started.
#[test]
fn a_gate_within_the_noise_of_an_earlier_rehearsal_is_red_before_a_program_is_started() {
    let document = PREREG
        .replace("[[rejection]]", TIMING)
        .replace("[matrix]", CONTROL);
    let (played, packet) = Played::registered_as(31, &document);
    assert_eq!(rehearsed(&played, packet), None);
    let quiet = newest_rehearsal(&played);
    assert_eq!(quiet.detectable_ns, Some([("cpu".to_owned(), 1)].into()));
    let loud = Rehearsed {
        detectable_ns: Some([("cpu".to_owned(), 11)].into()),
        ..quiet
    };
    played.act(|_, writer| played.enter(writer, loud));
    let asked = played.programs.asked.borrow().len();
    let would = played.act(|campaign, writer| would_rehearse(campaign, writer.ledger(), packet));
    let fault = rehearsed(&played, packet).expect("because of the one before");
    assert_eq!(would.expect("because it is entered").as_ref(), Some(&fault));
    assert_eq!(fault.stage, Stage::Rehearsal);
    let words = "cpu: minimum_median_saving_ns is 10, and its rehearsal of entry 4 tells a saving";
    assert!(fault.reason.starts_with(words), "{}", fault.reason);
    assert_eq!(played.programs.asked.borrow().len(), asked);
}
