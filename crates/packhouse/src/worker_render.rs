//! `worker render`: environment and command of each worker.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::FleetFileArgs;

/// Answers the command.
pub(crate) fn render(_args: &FleetFileArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker render"))
}
