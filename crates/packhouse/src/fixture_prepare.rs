//! `fixture prepare`: recipes to published folders.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture_words::FixtureSelectArgs;
use crate::places::Lookup;

/// Makes and publishes fixtures, or finds them.
pub(crate) fn prepare(_args: &FixtureSelectArgs, _lookup: Lookup<'_>) -> Result<Answer, Failure> {
    Err(Failure::new("cannot publish fixtures", "no format"))
}
