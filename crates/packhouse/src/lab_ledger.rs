//! `lab ledger`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_words::LabLedgerCommand;

/// Executes one command on the ledger.
pub(crate) fn execute(_command: &LabLedgerCommand, _place: &Place) -> Result<Answer, Failure> {
    Err(Failure::new("not here yet", "lab ledger"))
}
