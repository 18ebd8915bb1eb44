//! Withdrawals: what waits for its run is given up with a reason; what was run never is, whatever
//! this copy of the ledger says of it.

use crate::desk::Desk;
use crate::played::Played;
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{CampaignError, Frozen, rehearse, run, would, would_rehearse};
use packhouse_lab::marker::{Marker, Markers};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_lab::tamper::OwnJudge;
use packhouse_lab::withdraw::{WithdrawError, withdrawal};
use packhouse_ledger::act::{Armed, Consumed, Nonce, Released, Withdrawn};
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Stage, Writer};
use packhouse_sys::stat::FsKind;

const REASON: &str = "the width is another one";

/// What is entered, and why nothing is.
fn asked(desk: &Desk, writer: &Writer, packet: Digest) -> Result<Withdrawn, WithdrawError> {
    desk.with(|lab| withdrawal(lab, writer.ledger(), packet, REASON))
}

fn why(desk: &Desk, writer: &Writer, packet: Digest) -> String {
    let refused = asked(desk, writer, packet);
    refused.expect_err("because it is refused").to_string()
}

/// A packet that is armed.
fn armed() -> (Desk, Writer, Digest) {
    let (desk, mut writer, packet) = Desk::registered();
    let rehearsal = desk.enter(&mut writer, desk.rehearsal(packet, true));
    let armed = Armed {
        packet,
        rehearsal,
        reviews: Vec::new(),
    };
    desk.enter(&mut writer, armed);
    (desk, writer, packet)
}

fn nonce(packet: Digest, nonce: &[u8]) -> Nonce {
    Nonce {
        packet,
        nonce: Digest::of(nonce),
        markers: None,
    }
}

fn released(packet: Digest, nonce: &[u8], reason: &str) -> Released {
    Released {
        packet,
        nonce: Digest::of(nonce),
        stage: Stage::Marker,
        reason: reason.to_owned(),
    }
}

#[test]
fn what_waits_is_withdrawn_by_a_line_of_words() {
    let (desk, writer, packet) = Desk::registered();
    let act = desk.with(|lab| withdrawal(lab, writer.ledger(), packet, " the width \n"));
    let act = act.expect("because it waits");
    assert_eq!((act.packet, act.reason.as_str()), (packet, "the width"));
    for (reason, said) in [
        ("", "there must be a reason"),
        (" \t\n", "there must be a reason"),
        ("a\tb", "has '\\t', which a terminal does not draw"),
        ("a\u{1b}[2J", "has '\\u{1b}', which"),
        ("a\u{9b}b", "has '\\u{9b}', which"),
        ("\u{200b}", "has '\\u{200b}', which"),
        ("a\u{202e}b", "has '\\u{202e}', which"),
    ] {
        let refused = desk.with(|lab| withdrawal(lab, writer.ledger(), packet, reason));
        let refused = refused.expect_err("because it says nothing");
        assert!(refused.to_string().contains(said), "{reason:?}: {refused}");
    }
    let unknown = why(&desk, &writer, Digest::of(b"none"));
    assert!(unknown.contains("is not registered here"), "{unknown}");
    // Where no marker is ever taken, a packet can be given up all the same.
    desk.sim.set_kind(FsKind::Tmpfs);
    assert!(asked(&desk, &writer, packet).is_ok());
}

#[test]
fn an_open_nonce_is_told_first_and_a_packet_of_another_run_is_not_withdrawn() {
    let (desk, mut writer, packet) = armed();
    assert!(asked(&desk, &writer, packet).is_ok());
    desk.enter(&mut writer, nonce(packet, b"1"));
    let said = why(&desk, &writer, packet);
    assert!(said.contains("a run of it was announced (nonce "), "{said}");
    desk.enter(&mut writer, released(packet, b"1", "it ended"));
    assert!(asked(&desk, &writer, packet).is_ok(), "released");
    desk.enter(&mut writer, nonce(packet, b"2"));
    let spent = format!(
        "{}: its marker is of another lab",
        packhouse_ledger::act::SPENT
    );
    let at = writer.ledger().entries().len();
    desk.enter(&mut writer, released(packet, b"2", &spent));
    let said = why(&desk, &writer, packet);
    assert!(
        said.starts_with(&format!("entry {at} says that {spent}")),
        "{said}"
    );
    // A rehearsal after it says nothing else.
    desk.enter(&mut writer, desk.rehearsal(packet, true));
    assert_eq!(why(&desk, &writer, packet), said);

    let (desk, mut writer, packet) = armed();
    desk.enter(&mut writer, nonce(packet, b"1"));
    let consumed = Consumed {
        packet,
        nonce: Digest::of(b"1"),
        marker: Digest::of(b"marker"),
    };
    desk.enter(&mut writer, consumed);
    let said = why(&desk, &writer, packet);
    assert_eq!(said, "it is consumed: what was run is not withdrawn");
}

/// The copy that was not run would hide the run of the other one.
#[test]
fn a_marker_or_evidence_stands_against_a_withdrawal_whatever_the_ledger_says() {
    let (desk, writer, packet) = armed();
    let home = format!("/home/user/lab/evidence/{packet}");
    desk.sim.make_dirs("/home/user/lab/evidence", 1000, 0o755);
    desk.sim.make_dirs(&home, 1000, 0o755);
    assert!(asked(&desk, &writer, packet).is_ok(), "an empty folder");
    let bag = format!("{home}/bag.open");
    desk.sim.make_dirs(&bag, 1000, 0o755);
    let said = why(&desk, &writer, packet);
    let expected = format!("evidence/{packet}/bag.open is there: evidence of a run");
    assert!(said.starts_with(&expected), "{said}");

    let (desk, writer, packet) = armed();
    let marker = Marker {
        packet,
        nonce: Digest::of(b"1"),
        ledger: Digest::of(b"head"),
        lab: Digest::of(b"lab"),
        file_system: "ext4".to_owned(),
        salt: Some(Digest::of(b"salt")),
    };
    desk.with(|lab| {
        let markers = Markers::open(lab.fs, &lab.state).expect("because it is ours");
        markers.take(lab.fs, &marker).expect("because it is free");
    });
    let said = why(&desk, &writer, packet);
    let expected = format!("/{packet}.json is there: what was run is not withdrawn");
    assert!(said.ends_with(&expected), "{said}");
    // A marker that nobody can read was one.
    let path = format!("/home/user/state/lab/markers/{packet}.json");
    desk.sim.replace(path, b"{", 0o400);
    assert_eq!(why(&desk, &writer, packet), said);
}

#[test]
fn no_act_follows_a_withdrawal_and_no_program_is_started() {
    let (played, packet) = Played::armed(7);
    let reason = REASON.to_owned();
    played.act(|_, writer| played.enter(writer, Withdrawn { packet, reason }));
    let before = played.sim.read("/home/user/lab/ledger.jsonl");
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet);
        let frozen = frozen.expect("because its documents stay");
        let told = |error: CampaignError| error.to_string();
        let refused = would_rehearse(campaign, writer.ledger(), packet).map_err(told);
        let refused = refused.expect_err("because it is withdrawn");
        assert!(refused.contains("was withdrawn by entry "), "{refused}");
        let same = rehearse(campaign, writer, &frozen, &OwnJudge(campaign.recipes)).map_err(told);
        assert_eq!(same.expect_err("because it is withdrawn"), refused);
        for error in [
            would(campaign, writer.ledger(), packet).err(),
            run(campaign, writer, &frozen).err(),
        ] {
            let error = error.map(told).unwrap_or_default();
            assert!(error.contains("withdrawn"), "{error}");
        }
        let left = recover(campaign, writer, packet).expect("because nothing is left");
        assert_eq!(left, Recovered::Nothing(Standing::Withdrawn));
        let again = withdrawal(campaign.lab, writer.ledger(), packet, REASON);
        let again = again.expect_err("because it is withdrawn").to_string();
        assert!(again.starts_with("it was withdrawn by entry "), "{again}");
        assert!(again.ends_with(REASON), "{again}");
    });
    assert_eq!(played.sim.read("/home/user/lab/ledger.jsonl"), before);
}
