//! `lab review`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabReviewArgs;

/// Enters a reviewer's word.
pub(crate) fn execute(_args: &LabReviewArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab review"))
}
