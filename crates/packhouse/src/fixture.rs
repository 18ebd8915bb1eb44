//! `fixture`: golden fixtures, and kernels judged by them.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture_words::{FixtureCommand, FixtureRunArgs};
use crate::places::Lookup;
use crate::{fixture_prepare, fixture_program, fixture_run, fixture_serve, fixture_verify};
use packhouse_fixture::families::{self, Family};

/// Executes one command on fixtures.
pub(crate) fn execute(command: FixtureCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        FixtureCommand::Ls(args) => fixture_verify::list(&args, lookup),
        FixtureCommand::Prepare(args) => fixture_prepare::prepare(&args, lookup),
        FixtureCommand::Verify(args) => fixture_verify::verify(&args, lookup),
        FixtureCommand::Run(args) => {
            let chosen = chosen(&args)?;
            if args.program.is_empty() {
                fixture_run::run(&args, &chosen)
            } else {
                fixture_program::run(&args, &chosen, lookup)
            }
        }
        FixtureCommand::Serve(args) => fixture_serve::serve(&args, lookup),
    }
}

/// The families that the command line names, in the order of the table, or all.
pub(crate) fn select(ids: &[String]) -> Result<Vec<&'static Family>, Failure> {
    for id in ids {
        if families::find(id).is_none() {
            let known: Vec<&str> = families::all().map(|family| family.id).collect();
            return Err(Failure::usage("no such fixture", id)
                .cause(format!("there are {}", known.join(", ")))
                .hint("packhouse fixture ls"));
        }
    }
    let is_named = |family: &&Family| ids.is_empty() || ids.iter().any(|id| id == family.id);
    Ok(families::all().filter(is_named).collect())
}

fn chosen(args: &FixtureRunArgs) -> Result<Vec<&'static Family>, Failure> {
    select(&args.ids)
}
