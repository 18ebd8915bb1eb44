//! `lab rehearse`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabPacketArgs;

/// Rehearses a packet.
pub(crate) fn execute(_args: &LabPacketArgs, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab rehearse"))
}
