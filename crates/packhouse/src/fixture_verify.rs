//! `fixture ls` and `fixture verify`: what is published, and whether it is what its recipe makes.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture_words::FixtureSelectArgs;
use crate::places::Lookup;

/// Lists the fixtures.
pub(crate) fn list(_args: &FixtureSelectArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("cannot list fixtures", "no format"))
}

/// Compares published fixtures with their recipes.
pub(crate) fn verify(_args: &FixtureSelectArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("cannot verify fixtures", "no format"))
}
