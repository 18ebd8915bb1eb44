//! `lab report`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabReportArgs;

/// Shows one packet.
pub(crate) fn execute(_args: &LabReportArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab report"))
}
