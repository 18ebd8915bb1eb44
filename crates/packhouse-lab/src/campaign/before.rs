//! What must hold of a packet beyond its marker: nobody ran it here, enough people approved it, and
//! what a started program has mapped is what was frozen.

use super::{Campaign, EVIDENCE, Fault, Frozen};
use crate::packet::Object;
use crate::prereg::Treatment;
use crate::world::Mapped;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Armed, Reviewed};
use packhouse_ledger::{Act, Ledger, Review, Stage};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use std::collections::BTreeSet;
use std::iter::repeat;

/// Whether there is no evidence of the packet yet. What is there is of another run, or in the way
/// of this one's: nothing of it is removed.
pub(super) fn no_evidence(campaign: &Campaign<'_>, packet: Digest) -> Result<(), Fault> {
    let stored = |error: FsError| Fault::new(Stage::FileSystem, error);
    let below = |dir: &Dir, name: &str| match dir.open_dir(name) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        Err(error) => Err(stored(error)),
    };
    let Some(evidence) = below(&campaign.lab.root, EVIDENCE)? else {
        return Ok(());
    };
    let Some(home) = below(&evidence, &packet.to_string())? else {
        return Ok(());
    };
    match home.list().map_err(stored)?.first() {
        None => Ok(()),
        Some(name) => {
            let path = format!("{EVIDENCE}/{packet}/{}", name.display());
            let reason = format!(
                "{path} is there: evidence of an earlier run, or none of ours; the folder must be \
                 empty before a run, and nothing is removed"
            );
            Err(Fault::new(Stage::FileSystem, reason))
        }
    }
}

/// Whether the packet is armed by as many approvals as its preregistration needs, each of another
/// reviewer: the gates ask the same of the evidence, when it is too late.
pub(super) fn approved(ledger: &Ledger, frozen: &Frozen) -> Result<(), Fault> {
    let mut newest = ledger.entries().iter().rev();
    let armed = newest.find_map(|entry| match &entry.act {
        Act::Armed(armed) if armed.packet == frozen.digest => Some(armed),
        _ => None,
    });
    let reviews: &[u64] = armed.map_or(&[], |armed: &Armed| &armed.reviews);
    let approver = |index: &u64| {
        let entry = ledger
            .entries()
            .iter()
            .find(|entry| entry.index == *index)?;
        match &entry.act {
            Act::Reviewed(Reviewed {
                packet,
                reviewer,
                verdict: Review::Approve,
                ..
            }) if *packet == frozen.digest => Some(reviewer.as_str()),
            _ => None,
        }
    };
    let approvers: BTreeSet<&str> = reviews.iter().filter_map(approver).collect();
    let needed = frozen.prereg().reviewers;
    if approvers.len() as u64 >= needed && approvers.len() == reviews.len() {
        return Ok(());
    }
    let reason = format!(
        "reviewers who must approve: {needed}; approvals that it was armed by: {}, reviewers: {}",
        reviews.len(),
        approvers.len()
    );
    Err(Fault::new(Stage::Discovery, reason))
}

/// Whether a program that said hello has nothing mapped but what the packet froze for it.
pub(super) fn mapped(
    campaign: &Campaign<'_>,
    frozen: &Frozen,
    (treatment, is_rehearsal): (Treatment, bool),
    pid: u32,
) -> Result<(), Fault> {
    let word = treatment.word();
    let fault = |reason: String| Fault::new(Stage::Identities, format!("{word}: {reason}"));
    let programs = &frozen.packet.programs;
    let program = match (treatment, is_rehearsal) {
        (Treatment::Control, _) => programs.control.as_ref(),
        (Treatment::Candidate, false) => Some(&programs.candidate),
        (Treatment::Candidate, true) => Some(programs.rehearsed()),
    };
    let program = program.ok_or_else(|| fault("the packet froze no such program".to_owned()))?;
    let mapped = campaign.lab.host.mapped_objects(pid);
    let mapped = mapped.map_err(|error| fault(error.to_string()))?;
    if mapped.is_empty() {
        return Err(fault("no mapped object".to_owned()));
    }
    // All at once: each that is found later costs a rehearsal, or the run.
    let objects = program.objects.iter().map(|object| object.sha256);
    let files = frozen.packet.frozen.iter().map(|file| file.sha256);
    let known: BTreeSet<Digest> = objects
        .chain(files)
        .chain([program.program.sha256])
        .collect();
    let is_frozen = |mapped: &Mapped| known.contains(&mapped.object.sha256);
    let strangers: Vec<Mapped> = mapped.into_iter().filter(|file| !is_frozen(file)).collect();
    let Some((first, others)) = strangers.split_first() else {
        return Ok(());
    };
    let Object { name, sha256 } = &first.object;
    let mut reason = format!("{name}, SHA-256 {sha256}, is mapped and not frozen");
    for (other, nor) in others
        .iter()
        .zip([", nor is "].into_iter().chain(repeat(", ")))
    {
        reason.push_str(nor);
        reason.push_str(&other.object.name);
    }
    let mut fault = fault(reason);
    fault.unfrozen = strangers;
    Err(fault)
}
