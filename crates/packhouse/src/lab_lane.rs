//! `lab lane`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabLaneCommand;

/// Executes one command on lanes.
pub(crate) fn execute(_command: &LabLaneCommand, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab lane"))
}
