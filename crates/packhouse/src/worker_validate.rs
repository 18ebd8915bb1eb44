//! `worker validate`: a fleet file against its format and this host.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::FleetFileArgs;

/// Answers the command.
pub(crate) fn validate(_args: &FleetFileArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker validate"))
}
