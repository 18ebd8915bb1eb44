//! `lab init`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab_words::LabInitArgs;
use crate::places::Lookup;
use std::path::Path;

/// Makes a folder a lab.
pub(crate) fn execute(
    _args: &LabInitArgs,
    _given: Option<&Path>,
    _lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab init"))
}
