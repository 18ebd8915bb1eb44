//! `worker stop`: stops workers and waits until they are gone.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::WorkerStopArgs;

/// Answers the command.
pub(crate) fn stop(_args: &WorkerStopArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker stop"))
}
