//! `lab lane new`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabLaneNewArgs;

/// Writes a lane's document to edit.
pub(crate) fn execute(_args: &LabLaneNewArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab lane new"))
}
