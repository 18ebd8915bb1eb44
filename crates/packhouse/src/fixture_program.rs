//! `fixture run -- PROGRAM`: an external program by the component protocol.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture_words::FixtureRunArgs;
use crate::places::Lookup;
use packhouse_fixture::families::Family;

/// Feeds fixtures to a program and judges every row.
pub(crate) fn run(
    args: &FixtureRunArgs,
    _families: &[&Family],
    _lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    Err(Failure::new(
        "cannot run a program",
        format!("{:?}", args.program),
    ))
}
