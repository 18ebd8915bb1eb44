//! What can be known before a case is asked is found before the marker: devices that are not here,
//! or are somebody else's; what a candidate's hello says against its own gates.

use crate::desk::{CARD, Desk, RECIPES};
use crate::maker;
use crate::played::{Manner, PREREG, Played};
use packhouse_bagcheck::Entry;
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{
    CampaignError, Fault, Frozen, Ran, is_consumed, rehearse, run, would, would_rehearse,
};
use packhouse_lab::evidence::LegRecord;
use packhouse_lab::review;
use packhouse_lab::tamper::OwnJudge;
use packhouse_lab::verify::findings;
use packhouse_lab::world::HostDevice;
use packhouse_ledger::Ledger;
use packhouse_ledger::state::Standing;

fn ran(played: &Played, packet: Digest) -> Result<Ran, CampaignError> {
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
        run(campaign, writer, &frozen)
    })
}

/// Why a packet would not be run, and is not, before its nonce.
fn refused(played: &Played, packet: Digest) -> String {
    let would = played.with(|campaign| would(campaign, &ledger(played), packet));
    let would = would.expect_err("because it can't be run").to_string();
    let ran = ran(played, packet).expect_err("because it can't be run");
    assert_eq!(ran.to_string(), would);
    assert_eq!(standing(played, packet), Standing::Armed);
    would
}

/// Why a rehearsal would not be green, and is not.
fn red(played: &Played, packet: Digest) -> Option<Fault> {
    let would = played.with(|campaign| would_rehearse(campaign, &ledger(played), packet));
    let would = would.expect("because it is entered");
    let rehearsal = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES)).expect("because it is entered")
    });
    if would.is_some() {
        assert_eq!(would, rehearsal.fault);
    }
    rehearsal.fault
}

fn ledger(played: &Played) -> Ledger {
    Ledger::read(&played.dir("/home/user/lab"), None).expect("because it is good")
}

fn standing(played: &Played, packet: Digest) -> Standing {
    ledger(played).state().packets()[&packet].standing
}

/// A preregistration on the card that `Manner::Elsewhere` says it has.
fn on_a_card() -> String {
    PREREG.replace("[\"cpu\"]", &format!("[\"{ELSEWHERE}\"]"))
}

fn plug(played: &Played, holders: &[&str]) {
    let device = HostDevice {
        model: "a card".to_owned(),
        driver: Some("driver".to_owned()),
        holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
        unknown: Vec::new(),
    };
    let mut devices = played.host.devices.lock().expect("because none panics");
    devices.insert(ELSEWHERE.to_owned(), device);
}

#[test]
fn a_card_that_is_not_on_this_host_is_found_before_anything_is_started() {
    let words = format!("discovery: device {ELSEWHERE}: it is not here");
    let (played, packet) = Played::registered_as(40, &on_a_card());
    // The program says that it has it.
    played.programs.manner.set(Manner::Elsewhere);
    let fault = red(&played, packet).expect("because there is no such card");
    assert_eq!(fault.to_string(), words);
    let (played, packet) = Played::armed_as(41, &on_a_card());
    played.programs.manner.set(Manner::Elsewhere);
    assert_eq!(refused(&played, packet), words);
    assert_eq!(played.programs.asked.borrow().len(), 0);

    let (desk, mut writer, packet) = Desk::registered();
    desk.enter(&mut writer, desk.rehearsal(packet, true));
    desk.host
        .devices
        .lock()
        .expect("because none panics")
        .remove(CARD);
    let armed = desk.with(|lab| review::arm(lab, writer.ledger(), packet, &RECIPES));
    let error = armed.expect_err("because the card is gone").to_string();
    assert_eq!(error, format!("device {CARD}: it is not here"));
}

#[test]
fn a_card_that_somebody_else_holds_is_no_leg_and_who_held_it_is_in_the_evidence() {
    let (played, packet) = Played::armed_as(42, &on_a_card());
    played.programs.manner.set(Manner::Elsewhere);
    plug(&played, &["train (pid 7)"]);
    assert_eq!(
        refused(&played, packet),
        format!("discovery: device {ELSEWHERE} is held by train (pid 7)")
    );
    plug(&played, &[]);
    let Ok(Ran::Sealed(finished)) = ran(&played, packet) else {
        panic!("not sealed");
    };
    assert_eq!(finished.analysis.verdict, Verdict::Pass, "{finished:?}");
    let leg = format!("/home/user/lab/evidence/{packet}/bag/data/legs/00/leg.json");
    let leg = LegRecord::parse(&played.sim.read(leg).expect("because it is sealed"));
    let device = leg.expect("because it is one").host_device;
    let device = device.expect("because a card is looked at");
    assert_eq!((&*device.model, &*device.driver), ("a card", "driver"));
    assert_eq!(device.before, device.after);
    assert_eq!(played.findings(packet), []);
}

#[test]
fn what_the_candidates_hello_says_against_its_gates_is_found_before_the_marker() {
    for (gate, words) in [
        (
            "kind = \"poisoned\"",
            "gate poisoned: the program does not say that it poisons",
        ),
        (
            "kind = \"capture-idle\"",
            "gate capture-idle: the program does not say that it knows when it is captured",
        ),
        (
            "kind = \"denial\"\ndenies = [\"network\"]",
            "gate denial: the program does not say that it denies network",
        ),
    ] {
        let document = format!("{PREREG}[[gate]]\n{gate}\n");
        let (played, packet) = Played::registered_as(43, &document);
        played.programs.manner.set(Manner::Modest);
        let fault = red(&played, packet).expect("because the gate can't pass");
        assert_eq!(fault.to_string(), format!("discovery: candidate: {words}"));
        let (played, packet) = Played::armed_as(44, &document);
        played.programs.manner.set(Manner::Modest);
        match ran(&played, packet) {
            Ok(Ran::Released(fault)) => assert!(fault.reason.ends_with(words), "{fault}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(standing(&played, packet), Standing::Armed);
        assert_eq!(played.programs.asked.borrow().len(), 0);
        // What it does say is asked for.
        played.programs.manner.set(Manner::Honest);
        match ran(&played, packet) {
            Ok(Ran::Sealed(finished)) => assert_eq!(finished.analysis.verdict, Verdict::Pass),
            other => panic!("{other:?}"),
        }
    }
}

/// What was seen of a card is in the evidence, and that nobody can check it is said with it.
#[test]
fn both_judges_read_what_the_host_said_of_a_card() {
    let script = maker::timed();
    let prereg = script
        .prereg
        .replace("\"cpu\"", &format!("\"{ELSEWHERE}\""));
    let evidence = maker::evidence(&maker::Script { prereg, ..script });
    assert_eq!(findings(&evidence, &maker::RECIPES), []);
    let files = evidence.files.files().iter();
    let files = files.map(|(path, bytes)| (path.clone(), Entry::file(bytes.clone())));
    let report = packhouse_bagcheck::check(&files.collect(), evidence.ledger.as_deref(), None);
    assert_eq!(report.findings, []);
    let text = |path: &str| {
        let bytes = evidence.files.get(path).expect("because it is there");
        String::from_utf8_lossy(bytes).into_owned()
    };
    assert!(text("analysis-1/analysis.json").contains("is attested by the program; that the host"));
    assert!(text("bag/data/legs/00/leg.json").contains("\"holders\":[\"somebody\"]"));
}

/// Escapes of a terminal are no words, and a long log is cut from its front.
#[test]
fn the_last_words_of_a_program_that_died_are_told() {
    let (played, packet) = Played::armed(45);
    played.programs.manner.set(Manner::Dies);
    let Ok(Ran::Sealed(finished)) = ran(&played, packet) else {
        panic!("not sealed");
    };
    let fault = finished.fault.expect("because it died");
    assert_eq!(
        fault.reason,
        "candidate: in case 1: the program ended by signal 9; its stderr ends: second / third / \
         cuda error 700: \\u{1b}[31millegal address"
    );
    assert_eq!(played.findings(packet), []);
}

#[test]
fn what_rehearse_would_do_is_what_it_does() {
    let (played, packet) = Played::armed(46);
    let would = |played: &Played| {
        let would = played.with(|campaign| would_rehearse(campaign, &ledger(played), packet));
        would.map_err(|error| error.to_string())
    };
    let consumed = |played: &Played| played.with(|campaign| is_consumed(campaign, packet));
    assert_eq!(would(&played), Ok(None));
    assert!(!consumed(&played).expect("because it can be told"));
    // Its program is another one: the rehearsal would not be green, and is not.
    played.swap();
    let fault = would(&played).expect("because it is entered");
    assert_eq!(fault, red(&played, packet));
    assert!(fault.is_some_and(|fault| fault.to_string().starts_with("identities: ")));

    let (played, packet) = Played::armed(47);
    let Ok(Ran::Sealed(_)) = ran(&played, packet) else {
        panic!("not sealed");
    };
    let would = played.with(|campaign| would_rehearse(campaign, &ledger(&played), packet));
    let refused = would.expect_err("because it was run").to_string();
    assert!(
        refused.contains("is sealed-pass: `rehearsed` needs"),
        "{refused}"
    );
    assert!(
        played
            .with(|campaign| is_consumed(campaign, packet))
            .expect("because it can be told")
    );
}

const ELSEWHERE: &str = "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555";
