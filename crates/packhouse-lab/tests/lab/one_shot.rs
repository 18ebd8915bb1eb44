//! The one-shot right: what is drawn for a run, where its marker lies, and who may give it back.
//!
//! In a reference a candidate gave runs up before their end until it was asked what it could do,
//! and an older copy of the folder in which runs were remembered let a packet be run again.

use crate::played::{Played, RECIPES};
use packhouse_bag::Contents;
use packhouse_bagcheck::{Entry, Tree, check};
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{
    Campaign, CampaignError, Fault, Finished, Frozen, Ran, Would, rehearse, run, would,
};
use packhouse_lab::marker::{Marker, Markers};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_lab::tamper::OwnJudge;
use packhouse_lab::world::Lab;
use packhouse_ledger::act::Nonce;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Writer};
use packhouse_sim::{Crash, Fault as SimFault};
use std::path::Path;

fn ran(played: &Played, packet: Digest) -> Result<Ran, CampaignError> {
    played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
        run(campaign, writer, &frozen)
    })
}

fn standing(played: &Played, packet: Digest) -> Standing {
    let ledger = Ledger::read(&played.dir("/home/user/lab"), None).expect("because it is good");
    ledger.state().packets()[&packet].standing
}

/// What both judges find in the sealed evidence of a packet.
fn found(played: &Played, packet: Digest) -> Vec<String> {
    let home = format!("/home/user/lab/evidence/{packet}");
    let files = Contents::read(&played.dir(&home)).expect("because it is sealed");
    let entry = |(path, bytes): (&String, &std::sync::Arc<[u8]>)| {
        (path.clone(), Entry::file(std::sync::Arc::clone(bytes)))
    };
    let tree: Tree = files.files().iter().map(entry).collect();
    let ledger = played.sim.read("/home/user/lab/ledger.jsonl");
    let second = check(&tree, ledger.as_deref(), None);
    let second = second.findings.iter().map(ToString::to_string);
    let own = played.findings(packet);
    own.iter().map(ToString::to_string).chain(second).collect()
}

/// Whoever knew the inputs before the packet is consumed could give runs up until they are good.
#[test]
fn what_is_asked_is_drawn_when_the_packet_is_consumed_and_not_from_the_ledger() {
    let (played, packet) = Played::armed(51);
    let sealed = ran(&played, packet).expect("because nothing stands against it");
    assert!(matches!(sealed, Ran::Sealed(_)), "{sealed:?}");
    let data = format!("/home/user/lab/evidence/{packet}/bag/data");
    let marker = played.sim.read(format!("{data}/marker.json"));
    let marker = Marker::parse(&marker.expect("because it was a run"));
    let marker = marker.expect("because it is whole");
    let salt = marker.salt.expect("because markers have one now");
    let id = "mul-mxfp4-ggml-cpu-repack-v1";
    let tags = format!("{data}/drawn/{id}-1/tagmanifest-sha256.txt");
    let drawn = played.sim.read(tags).expect("because repeat 1 was asked");
    let of = |source| {
        let made = RECIPES.repeat(id, 1, source).expect("because it is ours");
        made.bag.files()["tagmanifest-sha256.txt"].clone()
    };
    assert_eq!(drawn, of(salt));
    assert_ne!(drawn, of(marker.nonce), "everybody has read the nonce");
    let ledger = played.sim.read("/home/user/lab/ledger.jsonl");
    let ledger = String::from_utf8(ledger.expect("because it is there"));
    let ledger = ledger.expect("because it is text");
    assert!(!ledger.contains(&salt.to_string()), "{ledger}");
    assert_eq!(found(&played, packet), Vec::<String>::new());
}

/// Gives an armed packet a nonce, as a run does that ends then.
fn opened(played: &Played, packet: Digest, markers: Option<Digest>) {
    played.act(|campaign, writer| {
        let boot = campaign.lab.host.boot_id().expect("because it is played");
        let act = Nonce {
            packet,
            nonce: Digest::of(b"nonce"),
            markers,
        };
        let entered = writer.append(act, 1, &boot);
        entered.expect("because it is armed");
    });
}

fn own_folder(played: &Played) -> Digest {
    played.with(|campaign| {
        let markers = Markers::open(campaign.lab.fs, &campaign.lab.state);
        let id = markers.and_then(|markers| markers.identify(campaign.lab.fs));
        id.expect("because it can be made")
    })
}

fn recovered(played: &Played, packet: Digest) -> Recovered {
    let recovered = played.act(|campaign, writer| recover(campaign, writer, packet));
    recovered.expect("because nothing stands against it")
}

/// A folder that is shared, or a lab that was copied: nobody here can say what the other did.
#[test]
fn a_nonce_whose_marker_would_lie_elsewhere_is_an_abort_and_never_a_second_run() {
    for (markers, words) in [
        (None, "its nonce names no folder of markers"),
        (
            Some(Digest::of(b"another host")),
            "its nonce was taken with another folder of markers (another host, user, home)",
        ),
    ] {
        let (played, packet) = Played::armed(52);
        own_folder(&played);
        opened(&played, packet, markers);
        let reason = format!("{words}: whether its run began can't be seen from here");
        let planned = played.act(|campaign, writer| would(campaign, writer.ledger(), packet));
        assert!(
            matches!(&planned, Ok(Would::Lost(said)) if *said == reason),
            "{planned:?}"
        );
        let Recovered::Sealed(finished) = recovered(&played, packet) else {
            panic!("released, and may be run again");
        };
        let Finished { fault, .. } = *finished;
        assert_eq!(fault.expect("because it is an abort").reason, reason);
        assert_eq!(standing(&played, packet), Standing::SealedAbort);
        assert!(ran(&played, packet).is_err(), "once is once");
        assert!(played.programs.asked.borrow().is_empty());
        assert_eq!(found(&played, packet), Vec::<String>::new());
    }
    let (played, packet) = Played::armed(53);
    let own = own_folder(&played);
    opened(&played, packet, Some(own));
    let Recovered::Released(fault) = recovered(&played, packet) else {
        panic!("nothing was asked, and it can be seen here");
    };
    assert_eq!(fault.reason, "it ended before its marker");
    assert_eq!(own_folder(&played), own, "the id is made once");
}

/// A run of this very lab and user, whose ledger was copied away before it was consumed.
#[test]
fn a_copy_of_a_lab_with_its_nonce_open_cannot_run_the_packet_under_another_state_folder() {
    let (played, packet) = Played::armed(54);
    let count = {
        let other = Played::on(played.sim.crash(Crash::Kept, 0), played.programs.again());
        other.sim.restart_count();
        ran(&other, packet).expect("because nothing stands against it");
        other.sim.operation_count()
    };
    let mut elsewhere = 0;
    for at in (0..count).step_by(5) {
        let programs = played.programs.again();
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        assert!(ran(&Played::on(sim.clone(), programs.clone()), packet).is_err());
        let left = Played::on(sim.crash(Crash::Kept, at), programs.clone());
        let began = standing(&left, packet);
        if !matches!(began, Standing::Nonce | Standing::Consumed) {
            continue;
        }
        let closed = format!("/home/user/lab/evidence/{packet}/bag/data/run.json");
        let is_closed = left.sim.read(closed).is_some();
        left.sim.make_dirs("/home/user/elsewhere", 1000, 0o700);
        let state = left.dir("/home/user/elsewhere");
        let sealed = in_state(&left, state, |campaign, writer| {
            recover(campaign, writer, packet)
        });
        assert!(
            matches!(sealed, Ok(Recovered::Sealed(_))),
            "{at}: {sealed:?}"
        );
        let expected = match (standing(&left, packet), began) {
            // Its bag was closed: what it has is judged.
            (Standing::SealedPass, Standing::Consumed) => is_closed,
            (ended, _) => ended == Standing::SealedAbort,
        };
        assert!(expected, "{at}: {began:?}");
        assert_eq!(
            found(&left, packet),
            Vec::<String>::new(),
            "{at}: {began:?}"
        );
        elsewhere += 1;
    }
    assert!(elsewhere > 5, "{elsewhere} of {count}");
}

/// Does something with another state folder.
fn in_state<T>(
    played: &Played,
    state: packhouse_sys::fs::Dir,
    act: impl FnOnce(&Campaign<'_>, &mut Writer) -> T,
) -> T {
    played.act(|campaign, writer| {
        let lab = Lab {
            fs: campaign.lab.fs,
            root: campaign.lab.root.clone(),
            state,
            clock: campaign.lab.clock,
            host: campaign.lab.host,
        };
        let campaign = Campaign {
            lab: &lab,
            sessions: campaign.sessions,
            recipes: campaign.recipes,
            interrupted: campaign.interrupted,
            progress: campaign.progress,
            software: campaign.software,
            key: campaign.key,
        };
        act(&campaign, writer)
    })
}

/// Whoever puts a lab back from a copy puts back what is in it.
#[test]
fn a_state_folder_in_the_lab_is_refused_before_anything_is_started() {
    let (played, packet) = Played::armed(55);
    for folder in ["", "/state", "/state/deep/er"] {
        let path = format!("/home/user/lab{folder}");
        for above in Path::new(&path)
            .ancestors()
            .collect::<Vec<_>>()
            .iter()
            .rev()
        {
            if above.starts_with("/home/user/lab/") {
                played.sim.make_dirs(above, 1000, 0o700);
            }
        }
        let said = format!("{path}: is in the lab /home/user/lab: markers must lie outside it");
        let before = played.sim.read("/home/user/lab/ledger.jsonl");
        let dir = || played.dir(&path);
        let refused = in_state(&played, dir(), |campaign, writer| {
            let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
            run(campaign, writer, &frozen)
        });
        let is_it = |fault: &Fault| fault.to_string().contains(&said);
        assert!(
            matches!(&refused, Err(CampaignError::Refused(fault)) if is_it(fault)),
            "{refused:?}"
        );
        assert_eq!(played.sim.read("/home/user/lab/ledger.jsonl"), before);
    }
    let (played, packet) = Played::registered(56);
    let root = played.dir("/home/user/lab");
    let rehearsal = in_state(&played, root, |campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
        rehearse(campaign, writer, &frozen, &OwnJudge(&RECIPES))
    });
    let fault = rehearsal.expect("because it is entered").fault;
    let said = "/home/user/lab: is in the lab /home/user/lab: markers must lie outside it";
    assert!(fault.is_some_and(|fault| fault.reason.starts_with(said)));
    assert!(played.programs.asked.borrow().is_empty());
}
