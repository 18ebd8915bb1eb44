//! Registration, rehearsals that are fresh or stale, reviews, and arming by them.

use crate::desk::{Desk, PREREG_FILE, RECIPES};
use packhouse_base::digest::Digest;
use packhouse_lab::freeze::FreezeError;
use packhouse_lab::marker::{Marker, MarkerError, Markers};
use packhouse_lab::register::RegisterError;
use packhouse_lab::rehearsal::{Now, Stale, fresh};
use packhouse_lab::review::{self, ArmError, ReviewError};
use packhouse_lab::world::Lab;
use packhouse_ledger::act::{Armed, Consumed, Nonce, Rehearsed, Reviewed};
use packhouse_ledger::{Review, Writer};
use packhouse_sys::stat::FsKind;

const PACKET_FILE: &str = "/home/user/lab/experiments/one/packet.json";

/// Enters a reviewer's word as the command does.
fn says(
    desk: &Desk,
    writer: &mut Writer,
    packet: Digest,
    reviewer: &str,
    verdict: Review,
) -> Result<Reviewed, ReviewError> {
    let state = &writer.ledger().state().packets()[&packet];
    let word = review::word(packet, state, reviewer, verdict, "looked at all of it")?;
    desk.enter(writer, word.clone());
    Ok(word)
}

fn arm(desk: &Desk, writer: &Writer, packet: Digest) -> Result<Armed, ArmError> {
    desk.with(|lab| review::arm(lab, writer.ledger(), packet, &RECIPES))
}

/// A packet that nothing keeps from being armed.
fn reviewed() -> (Desk, Writer, Digest) {
    let (desk, mut writer, packet) = Desk::registered();
    desk.enter(&mut writer, desk.rehearsal(packet, true));
    for reviewer in ["ann", "bob"] {
        says(&desk, &mut writer, packet, reviewer, Review::Approve).expect("because it is green");
    }
    (desk, writer, packet)
}

#[test]
fn an_experiment_is_registered_once_with_the_lane_that_was_opened() {
    let (desk, mut writer, packet) = Desk::registered();
    let bytes = desk.sim.read(PACKET_FILE).expect("because it was written");
    assert_eq!(Digest::of(&bytes), packet);
    let error = desk
        .register(&mut writer)
        .expect_err("because it is registered");
    let said = format!("experiment one is registered as packet {packet}");
    assert_eq!(error.to_string(), said);

    let (desk, mut writer) = Desk::open();
    desk.edit("lane = \"fast\"", "lane = \"slow\"");
    let lane = crate::documents::LANE.replace("\"fast\"", "\"slow\"");
    desk.sim
        .replace("/home/user/lab/lanes/slow.toml", lane.as_bytes(), 0o644);
    let error = desk
        .register(&mut writer)
        .expect_err("because it was never opened");
    assert_eq!(error.to_string(), "lane slow is not open");

    let (desk, mut writer) = Desk::open();
    let lane = crate::documents::LANE.replace("bit-equal", "near");
    desk.sim
        .replace("/home/user/lab/lanes/fast.toml", lane.as_bytes(), 0o644);
    let error = desk
        .register(&mut writer)
        .expect_err("because the promise changed");
    assert!(
        matches!(error, RegisterError::LaneChanged { .. }),
        "{error}"
    );
    assert!(
        desk.sim.read(PACKET_FILE).is_none(),
        "nothing is written for what is refused"
    );
}

#[test]
fn a_packet_that_no_entry_names_is_replaced_and_a_registered_one_never() {
    let (desk, mut writer) = Desk::open();
    desk.sim.replace(PACKET_FILE, b"left by a kill", 0o444);
    let plan =
        desk.with(|lab| packhouse_lab::register::plan(lab, writer.ledger(), "one", &RECIPES));
    let plan = plan.expect("because it can be registered");
    assert_eq!(plan.replaces, Some(Digest::of(b"left by a kill")));
    let packet = desk
        .register(&mut writer)
        .expect("because it can be registered");
    let bytes = desk.sim.read(PACKET_FILE).expect("because it was written");
    assert_eq!(Digest::of(&bytes), packet);
    // A kill between the two steps: the same packet is found, and entered.
    let (desk, mut writer) = Desk::open();
    let planned = desk.with(|lab| {
        let plan = packhouse_lab::register::plan(lab, writer.ledger(), "one", &RECIPES)?;
        packhouse_lab::register::write(lab, &plan).map(|()| plan)
    });
    let planned = planned.expect("because it can be written");
    let packet = desk.register(&mut writer).expect("because it goes on");
    assert_eq!(packet, planned.act.packet);
}

#[test]
fn a_rehearsal_is_fresh_until_anything_under_it_changes() {
    let (desk, mut writer, packet) = Desk::registered();
    let now = |desk: &Desk| desk.with(Now::of).expect("because the host says it");
    let fresh = |writer: &Writer, now: &Now| fresh(writer.ledger(), packet, now, 100);
    assert_eq!(fresh(&writer, &now(&desk)), Err(Stale::None));
    let entry = desk.enter(&mut writer, desk.rehearsal(packet, false));
    let error = fresh(&writer, &now(&desk)).expect_err("because it is not green");
    let said = format!("its newest rehearsal (entry {entry}) is not green: hello: no answer");
    assert_eq!(error.to_string(), said);
    let entry = desk.enter(&mut writer, desk.rehearsal(packet, true));
    let then = now(&desk);
    let at_ns = writer.ledger().entries()[entry as usize].at_ns;
    let at = |wall_ns: i64| Now {
        wall_ns,
        ..then.clone()
    };
    // Both ends of its age, to the nanosecond.
    assert_eq!(fresh(&writer, &at(at_ns)), Ok(entry));
    assert_eq!(fresh(&writer, &at(at_ns + 100_000_000_000)), Ok(entry));
    let old = Stale::Old {
        entry,
        age_s: 101,
        max_s: 100,
    };
    assert_eq!(fresh(&writer, &at(at_ns + 100_000_000_001)), Err(old));
    let ahead = Stale::Ahead { entry, ahead_s: 1 };
    assert_eq!(fresh(&writer, &at(at_ns - 1)), Err(ahead));
    assert!(matches!(
        fresh(&writer, &at(i64::MIN)),
        Err(Stale::Ahead { .. })
    ));
    assert!(matches!(
        fresh(&writer, &at(i64::MAX)),
        Err(Stale::Old { .. })
    ));
    let other = Now {
        boot: "boot-2".to_owned(),
        ..then.clone()
    };
    let error = fresh(&writer, &other)
        .expect_err("because the host was restarted")
        .to_string();
    assert_eq!(
        error,
        format!(
            "its rehearsal (entry {entry}) was in boot boot-1, and this one is \
                               boot-2"
        )
    );
    let other = Now {
        analyzer: Digest::of(b"another build"),
        ..then.clone()
    };
    assert!(matches!(
        fresh(&writer, &other),
        Err(Stale::Analyzer { .. })
    ));
    // The newest counts, and no older one behind it.
    desk.enter(&mut writer, desk.rehearsal(packet, false));
    assert!(matches!(fresh(&writer, &then), Err(Stale::NotGreen { .. })));
    let unknown = Digest::of(b"unknown");
    let error = packhouse_lab::rehearsal::fresh(writer.ledger(), unknown, &then, 100);
    assert_eq!(error, Err(Stale::Unknown { packet: unknown }));
}

#[test]
fn a_reviewer_counts_once_however_the_name_is_written() {
    let (desk, mut writer, packet) = Desk::registered();
    let error = says(&desk, &mut writer, packet, "ann", Review::Approve);
    let error = error
        .expect_err("because nothing was rehearsed")
        .to_string();
    assert_eq!(
        error,
        "the packet is registered, and a review follows a green rehearsal"
    );
    desk.enter(&mut writer, desk.rehearsal(packet, true));
    let word = says(&desk, &mut writer, packet, "  ann ", Review::Approve);
    assert_eq!(word.expect("because it is green").reviewer, "ann");
    // Nothing that looks like her, or that somebody could take for her in another spelling.
    for other in [
        "Ann",
        "a nn",
        "a\u{200b}nn",
        "ann\u{ad}",
        "\u{ff41}nn",
        "\u{e4}nn",
        "a\u{308}nn",
        "\u{430}nn",
    ] {
        let error = says(&desk, &mut writer, packet, other, Review::Approve);
        let error = error.expect_err("because it is not plain").to_string();
        assert!(
            error.contains("is not a reviewer of up to 64 of a-z"),
            "{error}"
        );
    }
    let state = &writer.ledger().state().packets()[&packet];
    for (reviewer, note, field) in [(" ", "n", "reviewer"), ("bob", " \n", "note")] {
        let error = review::word(packet, state, reviewer, Review::Approve, note);
        assert_eq!(error, Err(ReviewError::Empty { field }));
    }
    let error = arm(&desk, &writer, packet)
        .expect_err("because two are needed")
        .to_string();
    assert_eq!(error, "reviewers who must approve: 2; who did: 1");
}

#[test]
fn a_packet_is_armed_by_a_fresh_rehearsal_and_enough_approvals() {
    let (desk, mut writer, packet) = reviewed();
    let armed = arm(&desk, &writer, packet).expect("because nothing stands against it");
    assert_eq!((armed.rehearsal, armed.reviews.len()), (3, 2));
    desk.enter(&mut writer, armed);
    let error = arm(&desk, &writer, packet)
        .expect_err("because it is armed")
        .to_string();
    assert_eq!(
        error,
        "the packet is armed, and only a rehearsed and reviewed one is armed"
    );
}

#[test]
fn a_rejection_stands_until_the_same_reviewer_approves() {
    let (desk, mut writer, packet) = reviewed();
    let entry = writer.ledger().entries().len();
    says(&desk, &mut writer, packet, "cid", Review::Reject).expect("because it is green");
    let error = arm(&desk, &writer, packet)
        .expect_err("because of cid")
        .to_string();
    assert_eq!(
        error,
        format!("cid rejected it (entry {entry}): looked at all of it")
    );
    // A new rehearsal does not overrule him.
    desk.enter(&mut writer, desk.rehearsal(packet, true));
    assert!(matches!(
        arm(&desk, &writer, packet),
        Err(ArmError::Rejected { .. })
    ));
    says(&desk, &mut writer, packet, "cid", Review::Approve).expect("because it is green");
    let armed = arm(&desk, &writer, packet).expect("because all approve");
    assert_eq!(armed.reviews.len(), 3);
}

/// A packet was rehearsed six times with nothing changed: five told a saving from none only far
/// above what its gate asked for, the sixth was quiet, and it was armed on that one alone.
#[test]
fn every_rehearsal_of_a_packet_counts_for_its_noise_and_not_the_quietest_one() {
    let rehearsed = |told: &[(bool, u64)]| {
        let (desk, mut writer, packet) = Desk::registered();
        for (green, ns) in told {
            let detectable_ns = Some([("cpu".to_owned(), *ns)].into());
            desk.enter(
                &mut writer,
                Rehearsed {
                    detectable_ns,
                    ..desk.rehearsal(packet, *green)
                },
            );
        }
        for reviewer in ["ann", "bob"] {
            let word = says(&desk, &mut writer, packet, reviewer, Review::Approve);
            word.expect("because the newest is green");
        }
        let first = writer.ledger().state().packets()[&packet].rehearsals[0];
        (arm(&desk, &writer, packet), first)
    };
    let (quiet, _) = rehearsed(&[(false, 1_000), (true, 19)]);
    quiet.expect("because the gate asks for no less");
    let (loud, first) = rehearsed(&[(false, 1_001), (false, 900), (true, 19)]);
    let error = loud.expect_err("because the first was as loud as the gate");
    assert_eq!(
        error.to_string(),
        format!(
            "cpu: minimum_median_saving_ns is 1000, and its rehearsal of entry {first} tells a \
             saving from none only from 1001 ns on: every rehearsal of a packet counts, and \
             another number is another experiment"
        )
    );
    assert_eq!(error.blame(), packhouse_base::Blame::Caller);
}

/// Whoever puts a lab back from a copy would put the markers back that are in it.
#[test]
fn nothing_is_armed_whose_marker_would_lie_in_the_lab() {
    let (desk, writer, packet) = reviewed();
    let inside = desk.dir("/home/user/lab/experiments");
    let error = desk.with(|lab| {
        let lab = Lab {
            fs: lab.fs,
            root: lab.root.clone(),
            state: inside,
            clock: lab.clock,
            host: lab.host,
        };
        review::arm(&lab, writer.ledger(), packet, &RECIPES)
    });
    let error = error.expect_err("because it is in the lab");
    assert!(
        matches!(&error, ArmError::Marker(MarkerError::InLab { .. })),
        "{error}"
    );
}

#[test]
fn nothing_is_armed_that_is_not_what_was_frozen() {
    let (desk, writer, packet) = reviewed();
    desk.edit("question = \"q\"", "question = \"another\"");
    let error = arm(&desk, &writer, packet)
        .expect_err("because it was edited")
        .to_string();
    let digest = writer.ledger().state().packets()[&packet].prereg;
    let said = format!("not what was frozen: experiments/one/prereg.toml: frozen {digest}, now ");
    assert!(error.starts_with(&said), "{error}");

    let (desk, writer, packet) = reviewed();
    desk.sim.replace(PREREG_FILE, b"nothing", 0o644);
    let error = arm(&desk, &writer, packet).expect_err("because it was replaced");
    assert!(
        matches!(error, ArmError::Freeze(FreezeError::Changed { .. })),
        "{error}"
    );

    let (desk, writer, packet) = reviewed();
    desk.sim.edit(PACKET_FILE, |bytes| bytes[20] ^= 1);
    let error = arm(&desk, &writer, packet)
        .expect_err("because the packet was edited")
        .to_string();
    assert!(
        error.contains("experiments/one/packet.json: frozen "),
        "{error}"
    );
}

#[test]
fn nothing_is_armed_that_could_not_be_consumed_or_was() {
    let (desk, writer, packet) = reviewed();
    desk.sim.set_kind(FsKind::Tmpfs);
    let error = arm(&desk, &writer, packet).expect_err("because a marker would be lost");
    assert!(matches!(error, ArmError::Marker(_)), "{error}");

    let (desk, writer, packet) = reviewed();
    let marker = Marker {
        packet,
        nonce: Digest::of(b"nonce"),
        ledger: writer.ledger().head(),
        lab: writer.ledger().state().id(),
        file_system: "ext4".to_owned(),
        salt: None,
    };
    let markers = Markers::open(&desk.sim, &desk.dir("/home/user/state"));
    let markers = markers.expect("because it can be made");
    markers
        .take(&desk.sim, &marker)
        .expect("because it is free");
    let error = arm(&desk, &writer, packet).expect_err("because it ran, says the marker");
    assert!(
        error
            .to_string()
            .starts_with(&format!("packet {packet} is consumed: ")),
        "{error}"
    );

    let (desk, mut writer, packet) = reviewed();
    let armed = arm(&desk, &writer, packet).expect("because nothing stands against it");
    desk.enter(&mut writer, armed);
    let nonce = Digest::of(b"nonce");
    let markers = None;
    let opened = Nonce {
        packet,
        nonce,
        markers,
    };
    desk.enter(&mut writer, opened);
    let marker = Digest::of(b"marker");
    desk.enter(
        &mut writer,
        Consumed {
            packet,
            nonce,
            marker,
        },
    );
    let error = arm(&desk, &writer, packet)
        .expect_err("because it ran")
        .to_string();
    assert!(error.starts_with("the packet is consumed, "), "{error}");
    let unknown = Digest::of(b"unknown");
    assert!(matches!(
        arm(&desk, &writer, unknown),
        Err(ArmError::Unknown { .. })
    ));
}
