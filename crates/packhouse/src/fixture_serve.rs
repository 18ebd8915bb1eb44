//! `fixture serve`: our own kernels behind the component protocol.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture_words::FixtureServeArgs;
use crate::places::Lookup;

/// Answers on stdin and stdout until the other side ends.
pub(crate) fn serve(_args: &FixtureServeArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("cannot serve", "no protocol"))
}
