//! `keep`: the process that stands between a start and the engine.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::KeepArgs;

/// Answers the command.
pub(crate) fn keep(_args: &KeepArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "keep"))
}
