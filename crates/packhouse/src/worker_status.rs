//! `worker status`: what became of each worker.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::FleetArgs;

/// Answers the command.
pub(crate) fn status(_args: &FleetArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker status"))
}
