//! `worker start`: starts workers and waits until they are ready.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::WorkerStartArgs;

/// Answers the command.
pub(crate) fn start(_args: &WorkerStartArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker start"))
}
