//! `worker devices`: the devices of this host.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;

/// Answers the command.
pub(crate) fn devices(_lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "worker devices"))
}
