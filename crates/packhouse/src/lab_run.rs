//! `lab run`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabRunArgs;

/// Runs a packet once.
pub(crate) fn execute(_args: &LabRunArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab run"))
}
