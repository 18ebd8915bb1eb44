//! `worker logs`: what an engine wrote.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::WorkerLogsArgs;

/// Answers the command.
pub(crate) fn logs(_args: &WorkerLogsArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker logs"))
}
