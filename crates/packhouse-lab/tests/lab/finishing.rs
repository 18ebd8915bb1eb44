//! What a stopped run left, finished: by whom, with whose marker, and with which reason.

use crate::played::{Manner, Played};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Frozen, Ran, Would, run, would};
use packhouse_lab::marker::Marker;
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::Ledger;
use packhouse_ledger::state::Standing;
use packhouse_sim::{Crash, Fault, SimFs};
use packhouse_sys::fs::FsErrorKind;

fn ran(played: &Played, packet: Digest) -> Option<Ran> {
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).ok()?;
        run(campaign, writer, &frozen).ok()
    })
}

fn standing(played: &Played, packet: Digest) -> Standing {
    let ledger = Ledger::read(&played.dir("/home/user/lab"), None).expect("because it is good");
    ledger.state().packets()[&packet].standing
}

/// A copy of an armed lab, whose run fails at an operation.
fn failing(played: &Played, packet: Digest, at: u64, fault: Fault) -> (SimFs, Option<Ran>) {
    let sim = played.sim.crash(Crash::Kept, at);
    sim.restart_count();
    sim.set_fault(Some(fault));
    let copy = Played::on(sim.clone(), played.programs.again());
    let ended = ran(&copy, packet);
    sim.set_fault(None);
    (sim, ended)
}

fn operations(played: &Played, packet: Digest) -> u64 {
    let copy = Played::on(played.sim.crash(Crash::Kept, 0), played.programs.again());
    copy.sim.restart_count();
    ran(&copy, packet).expect("because nothing stands against it");
    copy.sim.operation_count()
}

/// The last moment of a run in which the packet stood there.
fn stopped(played: &Played, packet: Digest, there: Standing) -> Played {
    for at in (0..operations(played, packet)).rev() {
        let (sim, _) = failing(played, packet, at, Fault::Stop { at });
        let after = Played::on(sim.crash(Crash::Kept, at), played.programs.again());
        if standing(&after, packet) == there {
            return after;
        }
    }
    panic!("never {there:?}");
}

/// Else whoever doesn't like a verdict kills the command, and tries builds until one says pass.
#[test]
fn only_the_program_that_the_packet_froze_gives_the_first_verdict() {
    let (played, packet) = Played::armed(31);
    for there in [Standing::Consumed, Standing::Closed] {
        let mut left = stopped(&played, packet, there);
        let own = std::mem::replace(&mut left.host.analyzer, Digest::of(b"another build"));
        let before = left.sim.read("/home/user/lab/ledger.jsonl");
        let files = left.sim.files("/home/user/lab");
        let looked = left.act(|campaign, writer| would(campaign, writer.ledger(), packet));
        let refused = left.act(|campaign, writer| recover(campaign, writer, packet));
        let words = refused.expect_err("because it is another").to_string();
        assert_eq!(
            words,
            format!(
                "packet {packet} froze the program that seals it: SHA-256 {own}; this program is \
                 {}",
                left.host.analyzer
            )
        );
        assert_eq!(looked.map_err(|error| error.to_string()), Err(words));
        assert_eq!(left.sim.read("/home/user/lab/ledger.jsonl"), before);
        assert_eq!(left.sim.files("/home/user/lab"), files, "{there:?}");
        left.host.analyzer = own;
        let sealed = left.act(|campaign, writer| recover(campaign, writer, packet));
        assert!(matches!(sealed, Ok(Recovered::Sealed(_))), "{sealed:?}");
        assert_eq!(left.findings(packet), []);
    }
}

/// Two copies of a lab, run at the same moment: one marker, and one of the two is consumed by it.
#[test]
fn a_marker_of_another_run_releases_the_nonce_and_is_never_entered() {
    let (played, packet) = Played::armed(32);
    let left = stopped(&played, packet, Standing::Nonce);
    let path = format!("/home/user/state/lab/markers/{packet}.json");
    let marker = left.sim.read(&path).expect("because it was taken");
    let own = Marker::parse(&marker).expect("because it is whole");
    let others = [
        Marker {
            nonce: Digest::of(b"another nonce"),
            ..own.clone()
        },
        Marker {
            lab: Digest::of(b"another lab"),
            ..own.clone()
        },
        Marker {
            ledger: Digest::of(b"another head"),
            ..own
        },
    ];
    for other in others {
        let copy = Played::on(left.sim.crash(Crash::Kept, 1), left.programs.again());
        copy.sim.replace(&path, &other.render(), 0o400);
        let planned = copy.act(|campaign, writer| would(campaign, writer.ledger(), packet));
        let recovered = copy.act(|campaign, writer| recover(campaign, writer, packet));
        let Ok(Recovered::Released(fault)) = recovered else {
            panic!("{recovered:?}");
        };
        let words = "the packet is consumed by another run: its marker is of the ";
        assert!(fault.reason.starts_with(words), "{fault}");
        assert!(matches!(planned, Ok(Would::Release(reason)) if reason == fault.reason));
        assert_eq!(standing(&copy, packet), Standing::Armed);
        let ledger = copy.sim.read("/home/user/lab/ledger.jsonl");
        let ledger = String::from_utf8(ledger.expect("because it is there"));
        let ledger = ledger.expect("because it is text");
        assert!(!ledger.contains("\"kind\":\"consumed\""), "{ledger}");
        assert!(ran(&copy, packet).is_none(), "the packet is consumed");
    }
}

/// A bag that can't be written says so again at every later write; that is no cause. A program that
/// can't do what is asked has its log written, and its leg's record, before anybody asks whether
/// what it said was written.
#[test]
fn the_first_cause_of_a_bag_that_broke_is_what_is_told() {
    let (played, packet) = Played::armed(33);
    let kind = FsErrorKind::Errno(28);
    let mut told = 0;
    for (manner, step) in [(Manner::Honest, 3), (Manner::Elsewhere, 1)] {
        played.programs.manner.set(manner);
        for at in (0..operations(&played, packet)).step_by(step) {
            let (_, ended) = failing(&played, packet, at, Fault::Error { at, kind });
            let reason = match ended {
                Some(Ran::Released(fault)) => fault.reason,
                Some(Ran::Sealed(finished)) if finished.analysis.verdict == Verdict::Abort => {
                    finished.fault.expect("because it is an abort").reason
                }
                Some(Ran::Sealed(_)) | None => continue,
            };
            assert!(!reason.contains("an earlier write"), "{at}: {reason}");
            told += 1;
        }
    }
    assert!(told > 10, "{told}");
}
