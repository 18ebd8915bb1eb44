//! `lab verify`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab_words::LabVerifyArgs;
use std::path::Path;

/// Verifies evidence offline.
pub(crate) fn execute(_args: &LabVerifyArgs, _lab: Option<&Path>) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab verify"))
}
