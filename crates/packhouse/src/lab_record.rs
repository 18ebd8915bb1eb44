//! `lab record`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabRecordArgs;

/// Names a record.
pub(crate) fn execute(_args: &LabRecordArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab record"))
}
