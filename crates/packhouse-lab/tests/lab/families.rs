//! What programs leave behind is ended with their leg, and what can't be ended ends the run.
//!
//! A daemon of one leg could be frozen while it was looked at, and answer or watch in the next.

use crate::played::{Manner, Played};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Finished, Frozen, REASON_BYTES_MAX, Ran, rehearse, run};
use packhouse_lab::recipes::Recipes;
use packhouse_lab::tamper::OwnJudge;

fn sealed(played: &Played, packet: Digest) -> Finished {
    let ran = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        run(campaign, writer, &frozen)
    });
    match ran.expect("because it is sealed") {
        Ran::Sealed(finished) => *finished,
        Ran::Released(fault) => panic!("{fault}"),
    }
}

fn log(played: &Played, packet: Digest) -> String {
    let path = format!("/home/user/lab/evidence/{packet}/bag/data/legs/00/candidate.stderr");
    let log = played.sim.read(&path).unwrap_or_default();
    String::from_utf8(log).expect("because it is text")
}

#[test]
fn who_outlived_a_program_and_was_ended_is_told_in_its_log_and_the_bag_holds() {
    let (played, packet) = Played::armed(31);
    played.programs.manner.set(Manner::Leaves);
    assert_eq!(sealed(&played, packet).analysis.verdict, Verdict::Pass);
    let told = "a word\npackhouse: process 77 (daemon) outlived it, and was ended\n";
    assert_eq!(log(&played, packet), told);
    assert_eq!(played.findings(packet), []);
}

#[test]
fn who_can_not_be_ended_aborts_the_run_and_no_further_leg_begins() {
    let (played, packet) = Played::armed(32);
    played.programs.manner.set(Manner::Stays);
    let finished = sealed(&played, packet);
    assert_eq!(finished.analysis.verdict, Verdict::Abort);
    let fault = finished.fault.expect("because it is an abort");
    let told = "leg: process 77 (daemon) can't be ended";
    assert_eq!(fault.to_string(), told);
    assert_eq!(played.findings(packet), []);
}

#[test]
fn a_leg_that_broke_off_says_why_first_and_then_who_is_left() {
    let (played, packet) = Played::armed(33);
    played.programs.manner.set(Manner::DiesAndStays);
    let fault = sealed(&played, packet).fault.expect("because it died");
    let told = fault.to_string();
    assert!(
        told.starts_with("leg: candidate: in case 1: the program ended")
            && told.ends_with("; process 77 (daemon) can't be ended"),
        "{told}"
    );
    assert_eq!(played.findings(packet), []);
}

/// Both reasons together were longer in the run's record than what the ledger takes, so that an
/// honest abort had another reason in each.
#[test]
fn who_is_left_is_told_as_far_as_a_reason_may_be_long() {
    let (played, packet) = Played::armed(37);
    played.programs.manner.set(Manner::DiesAndManyStay);
    let fault = sealed(&played, packet).fault.expect("because it died");
    assert_eq!(fault.reason.len(), REASON_BYTES_MAX);
    assert_eq!(played.findings(packet), []);
}

/// In a run, in a rehearsal and its greeting of the candidate, and where a leg begins with a
/// program that does not say hello.
#[test]
fn a_family_begins_before_its_programs_and_ends_before_the_next_begins() {
    let all = |played: &Played| {
        let done = played.programs.families.borrow().join(" ");
        let families: Vec<&str> = done.split("begin").skip(1).collect();
        assert!(!families.is_empty() && !done.starts_with("start"), "{done}");
        for family in families {
            let words: Vec<&str> = family.split_whitespace().collect();
            let last_start = words.iter().rposition(|word| *word == "start");
            let first_end = words.iter().position(|word| *word == "end");
            let is_ended = last_start.zip(first_end).is_some_and(|(s, e)| s < e);
            assert!(is_ended, "{done}");
        }
    };
    let (played, packet) = Played::armed(34);
    sealed(&played, packet);
    all(&played);
    let (played, packet) = Played::registered(35);
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        let recipes = Recipes::default();
        let rehearsed = rehearse(campaign, writer, &frozen, &OwnJudge(&recipes));
        rehearsed.expect("because it is entered");
    });
    all(&played);
    let (played, packet) = Played::armed(36);
    played.programs.manner.set(Manner::Silent);
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        let ran = run(campaign, writer, &frozen).expect("because it is released");
        assert!(matches!(ran, Ran::Released(_)), "{ran:?}");
    });
    all(&played);
}
