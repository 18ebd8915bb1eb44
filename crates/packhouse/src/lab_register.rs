//! `lab register`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabRegisterArgs;

/// Freezes an experiment.
pub(crate) fn execute(_args: &LabRegisterArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab register"))
}
