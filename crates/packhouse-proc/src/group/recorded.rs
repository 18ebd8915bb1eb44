//! Whether the processes that a record names are the start's: a record may have been copied, put
//! back or changed by hand, so that a key alone proves only that such a process was written down.

use super::{Doubt, NamedStart, Ownership, Proof, is_child, is_in_unit, named_start};
use crate::identity::KEEPER_VARIABLE;
use crate::procfs::{Process, Procfs, ProcfsError};
use std::collections::BTreeMap;

/// Why the process with the recorded keeper's key is not taken for it; `None` when it is.
pub(super) fn keeper_doubt(
    ownership: &Ownership,
    process: &Process,
    seen: &BTreeMap<u32, Process>,
) -> Option<Doubt> {
    if process.key.start_ticks < ownership.started_after_ticks {
        return Some(Doubt::Older);
    }
    let environment = process.environment().unwrap_or_default();
    let is_named = environment.iter().any(|(name, _)| name == KEEPER_VARIABLE);
    let has_values = environment.iter().any(|(_, value)| !value.is_empty());
    if is_named || !has_values {
        return None;
    }
    // A unit's keeper is started by the user manager, whose environment names no start.
    let starts_ours = || {
        let main = ownership.main.and_then(|main| seen.get(&main.pid));
        main.is_some_and(|main| {
            Some(main.key) == ownership.main
                && main.parent == process.key.pid
                && matches!(named_start(main, &ownership.run), NamedStart::Ours)
        })
    };
    let is_ours = matches!(named_start(process, &ownership.run), NamedStart::Ours);
    if is_ours || is_in_unit(process, ownership) || starts_ours() {
        return None;
    }
    Some(Doubt::NotAKeeper)
}

/// Judges the process with the recorded main process' key. `keeper` is the proven keeper.
pub(super) fn main_proof(
    procfs: &Procfs,
    ownership: &Ownership,
    process: &Process,
    keeper: Option<&Process>,
) -> Result<Result<Proof, Doubt>, ProcfsError> {
    if process.key.start_ticks < ownership.started_after_ticks {
        return Ok(Err(Doubt::Older));
    }
    // The gate makes its session before it is recorded, and a leader can't leave it.
    let leads = |session: i32| u32::try_from(session) == Ok(process.key.pid);
    if !leads(process.session) || !ownership.session.is_some_and(leads) {
        return Ok(Err(Doubt::OtherSession));
    }
    match named_start(process, &ownership.run) {
        // Unreadable, in the middle of an exec, or overwritten by a title: the rest has to do.
        NamedStart::Ours | NamedStart::Blank => return Ok(Ok(Proof::Recorded)),
        NamedStart::Another => return Ok(Err(Doubt::AnotherRun)),
        NamedStart::None => {}
    }
    if let Some(keeper) = keeper
        && is_child(procfs, process, keeper, &ownership.run)?
    {
        return Ok(Ok(Proof::Descent));
    }
    if is_in_unit(process, ownership) {
        return Ok(Ok(Proof::ControlGroup));
    }
    Ok(Err(Doubt::NoRunId))
}
