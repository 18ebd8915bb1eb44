//! Lines of the ledger in a bag: whether they give this run its right.

use super::records::path_of_authority;
use crate::analysis::{Kind, Status};
use crate::evidence::Failure;
use crate::evidence::Reading;
use crate::evidence::reading::{AUTHORITY, MARKER, RUN};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Armed, Consumed, Genesis, Nonce, Reviewed};
use packhouse_ledger::{Act, Entry, LaneAction, Review};
use std::collections::BTreeSet;

/// Judges all of it.
pub(crate) fn authority(reading: &Reading, failures: &mut Vec<Failure>) {
    if reading.authority.is_empty() {
        return;
    }
    chain(reading, failures);
    strangers(reading, failures);
    required(reading, failures);
    withdrawn(reading, failures);
    if reading.kind() == Kind::Run {
        armed(reading, failures);
        rehearsed(reading, failures);
        noise(reading, failures);
        nonce(reading, failures);
        boot(reading, failures);
    } else {
        consumed(reading, failures);
    }
}

/// The lab's id.
pub(crate) fn lab(reading: &Reading) -> Option<Digest> {
    entries(reading).find_map(|entry| match &entry.act {
        Act::Genesis(Genesis { id, .. }) => Some(*id),
        _ => None,
    })
}

/// The head of the ledger before this packet was consumed.
pub(crate) fn before_consumed(reading: &Reading) -> Option<Digest> {
    let is_it = |entry: &&Entry| match &entry.act {
        Act::Consumed(Consumed { packet, .. }) => *packet == reading.packet_digest,
        _ => false,
    };
    entries(reading).find(is_it).map(|entry| entry.previous)
}

fn entries(reading: &Reading) -> impl Iterator<Item = &Entry> {
    reading.authority.iter().map(|(_, entry)| entry)
}

fn chain(reading: &Reading, failures: &mut Vec<Failure>) {
    let first = &reading.authority[0].1;
    if first.index != 0 || !matches!(first.act, Act::Genesis(_)) {
        failures.push(Failure::new(
            "authority.chain",
            AUTHORITY,
            "genesis is not the first line",
        ));
    }
    for (line, pair) in reading.authority.windows(2).enumerate() {
        let [(_, before), (_, after)] = pair else {
            continue;
        };
        let path = path_of_authority(line + 1);
        if after.index <= before.index {
            let words = format!("index {} behind {}", after.index, before.index);
            failures.push(Failure::new("authority.chain", path, words));
        } else if after.index == before.index + 1 && after.previous != before.digest {
            let words = format!(
                "previous {}, the line before is {}",
                after.previous, before.digest
            );
            failures.push(Failure::new("authority.chain", path, words));
        }
    }
}

/// Lines of other packets and lanes have no business here.
fn strangers(reading: &Reading, failures: &mut Vec<Failure>) {
    let lane = reading
        .packet
        .as_ref()
        .map(|packet| packet.lane.id.as_str());
    for (line, entry) in entries(reading).enumerate() {
        let is_ours = match &entry.act {
            Act::Genesis(_) => true,
            Act::Lane(act) => lane.is_none_or(|lane| act.lane.as_str() == lane),
            Act::Note(note) => {
                let of = note.lane.as_ref().map(|lane| lane.as_str());
                lane.is_none_or(|lane| of == Some(lane))
            }
            other => other.packet() == Some(reading.packet_digest),
        };
        if !is_ours {
            let words = format!("{} of another packet or lane", entry.act.kind());
            failures.push(Failure::new(
                "authority.state",
                path_of_authority(line),
                words,
            ));
        }
    }
}

/// The lane was opened with this document, and the packet registered with this preregistration.
fn required(reading: &Reading, failures: &mut Vec<Failure>) {
    let Some(packet) = &reading.packet else {
        return;
    };
    let is_open = entries(reading).any(|entry| match &entry.act {
        Act::Lane(act) => {
            act.action == LaneAction::Open
                && act.lane.as_str() == packet.lane.id
                && act.document == Some(packet.lane.sha256)
        }
        _ => false,
    });
    let is_registered = entries(reading).any(|entry| match &entry.act {
        Act::Registered(act) => {
            act.packet == reading.packet_digest
                && act.experiment.as_str() == packet.experiment
                && act.lane.as_str() == packet.lane.id
                && act.prereg == packet.prereg
        }
        _ => false,
    });
    let required = [
        (
            is_open,
            "the lane was not opened with the packet's document of it",
        ),
        (is_registered, "the packet was not registered as it is"),
    ];
    for (is_so, words) in required {
        if !is_so {
            failures.push(Failure::new("authority.state", AUTHORITY, words));
        }
    }
}

/// Nothing of the packet follows its withdrawal.
fn withdrawn(reading: &Reading, failures: &mut Vec<Failure>) {
    let lines = entries(reading).enumerate();
    let own = lines.filter(|(_, entry)| entry.act.packet() == Some(reading.packet_digest));
    let after = own.skip_while(|(_, entry)| !matches!(entry.act, Act::Withdrawn(_)));
    for (line, entry) in after.skip(1) {
        let words = format!("{} of a packet that was withdrawn", entry.act.kind());
        let path = path_of_authority(line);
        failures.push(Failure::new("authority.state", path, words));
    }
}

/// The packet was armed, by as many approvals as the preregistration demands.
fn armed(reading: &Reading, failures: &mut Vec<Failure>) {
    let armed = entries(reading).filter_map(|entry| match &entry.act {
        Act::Armed(armed) if armed.packet == reading.packet_digest => Some(armed),
        _ => None,
    });
    let Some(armed) = armed.last() else {
        failures.push(Failure::new(
            "authority.state",
            AUTHORITY,
            "the packet was not armed",
        ));
        return;
    };
    let approvers: BTreeSet<&str> = armed
        .reviews
        .iter()
        .filter_map(|index| approver(reading, armed, *index))
        .collect();
    let needed = reading.prereg.as_ref().map_or(0, |prereg| prereg.reviewers);
    if (approvers.len() as u64) < needed || approvers.len() != armed.reviews.len() {
        let words = format!(
            "reviewers who must approve: {needed}; approvals that it was armed by: {}, \
             reviewers: {}",
            armed.reviews.len(),
            approvers.len(),
        );
        failures.push(Failure::new("authority.state", AUTHORITY, words));
    }
}

/// Arming and nonce each stand on a fresh rehearsal: the newest before it, green, of the packet's
/// analyzer, in the same boot, and not too old.
fn rehearsed(reading: &Reading, failures: &mut Vec<Failure>) {
    let packet = reading.packet_digest;
    let is_its = |act: &Act| match act {
        Act::Armed(armed) => armed.packet == packet,
        Act::Nonce(nonce) => nonce.packet == packet,
        _ => false,
    };
    let acts = ["armed", "nonce"].into_iter().filter_map(|kind| {
        let all = entries(reading).filter(|entry| entry.act.kind() == kind && is_its(&entry.act));
        all.last()
    });
    for act in acts {
        let mut lines = reading.authority.iter().enumerate().rev();
        let newest = lines.find_map(|(line, (_, entry))| match &entry.act {
            Act::Rehearsed(rehearsed) if rehearsed.packet == packet => {
                (entry.index < act.index).then_some((line, entry, rehearsed))
            }
            _ => None,
        });
        let Some((line, entry, rehearsed)) = newest else {
            let words = format!("{} without a rehearsal before it", act.act.kind());
            failures.push(Failure::new("authority.state", AUTHORITY, words));
            continue;
        };
        let analyzer = reading.packet.as_ref().map(|packet| packet.analyzer);
        let max_age_s = reading.prereg.as_ref().map(|own| own.rehearsal_max_age_s);
        let max_age_ns = max_age_s.map_or(i128::MAX, |max_age_s| {
            (i128::from(max_age_s) + ENTERING_S) * 1_000_000_000
        });
        let age_ns = i128::from(act.at_ns) - i128::from(entry.at_ns);
        let is_fresh = rehearsed.green
            && analyzer.is_none_or(|analyzer| analyzer == rehearsed.analyzer)
            && entry.boot == act.boot
            && (0..=max_age_ns).contains(&age_ns);
        if !is_fresh {
            let words = format!(
                "no fresh rehearsal for {} ({age_ns} ns later)",
                act.act.kind()
            );
            let path = path_of_authority(line);
            failures.push(Failure::new("authority.state", path, words));
        }
    }
}

/// No rehearsal of the packet, whatever came of it, told a saving from none only above what the
/// timing gate asks for.
fn noise(reading: &Reading, failures: &mut Vec<Failure>) {
    let timing = reading.prereg.as_ref().and_then(|own| own.timing.as_ref());
    let Some(asked) = timing.map(|timing| timing.minimum_median_saving_ns) else {
        return;
    };
    for (line, entry) in entries(reading).enumerate() {
        let least = match &entry.act {
            Act::Rehearsed(act) if act.packet == reading.packet_digest => {
                act.detectable_ns.iter().flatten().map(|(_, ns)| *ns).max()
            }
            _ => None,
        };
        if let Some(least) = least.filter(|least| *least > asked) {
            let words = format!("told savings from {least} ns on, the gate asks for {asked} ns");
            let path = path_of_authority(line);
            failures.push(Failure::new("authority.state", path, words));
        }
    }
}

/// Seconds from looking whether a rehearsal is fresh to the entry that stands on it: all that is
/// frozen is measured in between.
const ENTERING_S: i128 = 600;

/// Who approved by an entry that `armed` cites.
fn approver<'a>(reading: &'a Reading, armed: &Armed, index: u64) -> Option<&'a str> {
    let entry = entries(reading).find(|entry| entry.index == index)?;
    match &entry.act {
        Act::Reviewed(Reviewed {
            packet,
            reviewer,
            verdict: Review::Approve,
            ..
        }) if *packet == armed.packet => Some(reviewer),
        _ => None,
    }
}

/// Nobody rehearses what was run: a run that is told as its rehearsal still has this line.
fn consumed(reading: &Reading, failures: &mut Vec<Failure>) {
    for (line, entry) in entries(reading).enumerate() {
        let is_it = match &entry.act {
            Act::Consumed(act) => act.packet == reading.packet_digest,
            _ => false,
        };
        if is_it {
            let path = path_of_authority(line);
            let words = "consumed, before a rehearsal";
            failures.push(Failure::new("authority.state", path, words));
        }
    }
}

/// A run that was not killed ends in the boot in which the packet was consumed.
fn boot(reading: &Reading, failures: &mut Vec<Failure>) {
    let last = entries(reading).last();
    let consumed = last.filter(|entry| matches!(&entry.act, Act::Consumed(_)));
    let run = reading.run.as_ref();
    let run = run.filter(|run| run.status != Status::Aborted);
    if let (Some(consumed), Some(run)) = (consumed, run)
        && consumed.boot != run.boot
    {
        let words = format!(
            "boot {}, the packet was consumed in {}",
            run.boot, consumed.boot
        );
        failures.push(Failure::new("run.clock", RUN, words));
    }
}

/// The nonce that is open, the one that is consumed and the run's are one.
fn nonce(reading: &Reading, failures: &mut Vec<Failure>) {
    let mut fail = |code, words: String| failures.push(Failure::new(code, AUTHORITY, words));
    let last = entries(reading).last().map(|entry| &entry.act);
    let Some(Act::Consumed(consumed)) = last else {
        fail(
            "authority.state",
            "the last line is not this packet's consumed".to_owned(),
        );
        return;
    };
    let opened = entries(reading).filter_map(|entry| match &entry.act {
        Act::Nonce(Nonce { packet, nonce, .. }) if *packet == reading.packet_digest => Some(*nonce),
        _ => None,
    });
    let opened = opened.last();
    let run = reading.run.as_ref().map(|run| run.nonce);
    if opened != Some(consumed.nonce) || run.is_some_and(|run| run != consumed.nonce) {
        fail(
            "authority.nonce",
            format!("consumed nonce {}", consumed.nonce),
        );
    }
    // Of a run whose marker nobody could read `consumed` cites no bytes.
    let marker = Digest::of(reading.payload.get(MARKER).unwrap_or_default());
    if marker != consumed.marker {
        let words = format!(
            "consumed cites marker {}, here is {marker}",
            consumed.marker
        );
        fail("authority.nonce", words);
    }
}
