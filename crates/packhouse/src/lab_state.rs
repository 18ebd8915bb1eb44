//! `lab state`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabStateArgs;
use crate::places::Lookup;

/// Shows the state of the lab.
pub(crate) fn execute(
    _args: &LabStateArgs,
    _place: &Place,
    _lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab state"))
}
