//! `gate`: waits for leave, then becomes the engine.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::GateArgs;

/// Answers the command.
pub(crate) fn gate(_args: &GateArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("not there yet", "gate"))
}
