//! `lab analyse`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabAnalyseArgs;

/// Analyses a sealed bag again.
pub(crate) fn execute(_args: &LabAnalyseArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab analyse"))
}
