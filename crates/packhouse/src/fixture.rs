//! `fixture`: golden fixtures, and kernels judged by them.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::fixture_words::{FixtureCommand, FixtureRunArgs, FixtureSelectArgs};
use crate::hints;
use crate::places::{self, Lookup};
use crate::{fixture_prepare, fixture_program, fixture_run, fixture_serve, fixture_verify};
use packhouse_fixture::families::{self, Family};
use packhouse_fixture::{Case, Fixture, kernels};
use packhouse_layout::Layout;
use packhouse_store::folders::{Links, MakeModes, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::real::RealFs;
use std::collections::BTreeSet;
use std::path::PathBuf;

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
        FixtureCommand::Serve(args) => fixture_serve::serve(&args),
    }
}

/// The families that the command line names, in the order of the table, or all.
pub(crate) fn select(ids: &[String]) -> Result<Vec<&'static Family>, Failure> {
    for id in ids {
        if families::find(id).is_none() {
            return Err(Failure::usage("no such fixture", id).hint("packhouse fixture ls"));
        }
    }
    let is_named = |family: &&Family| ids.is_empty() || ids.iter().any(|id| id == family.id);
    Ok(families::all().filter(is_named).collect())
}

/// Makes a fixture and sees that it is one: an empty one would pass any kernel.
pub(crate) fn sound(family: &Family) -> Result<Fixture, Failure> {
    let fixture = (family.generate)();
    let sound = fixture.sound();
    sound.map_err(|error| Failure::new("not a fixture", family.id).because(&error))?;
    Ok(fixture)
}

fn chosen(args: &FixtureRunArgs) -> Result<Vec<&'static Family>, Failure> {
    for layout in &args.layout {
        if Layout::from_id(layout).is_none() {
            let known: Vec<&str> = Layout::ALL.iter().map(|layout| layout.id()).collect();
            return Err(Failure::usage("no such layout", layout)
                .cause(format!("there are {}", known.join(", ")))
                .hint("packhouse layouts"));
        }
    }
    let families = select(&args.ids)?;
    if args.layout.is_empty() {
        return Ok(families);
    }
    let has_layout = |family: &Family| {
        let fixture = (family.generate)();
        let packed = kernels::all().filter(|kernel| kernel.fixtures().contains(&family.id));
        let packed = packed.filter_map(|kernel| kernel.packs());
        let mut layouts = packed.chain(fixture.layout.as_deref());
        layouts.any(|layout| args.layout.iter().any(|asked| asked == layout))
    };
    let (chosen, others): (Vec<&Family>, Vec<&Family>) =
        families.into_iter().partition(|family| has_layout(family));
    match others.first() {
        // What was named must not be passed over because something else was run.
        Some(other) if !args.ids.is_empty() => Err(args.nothing_of(other.id)),
        _ if chosen.is_empty() => Err(args.nothing()),
        _ => Ok(chosen),
    }
}

impl FixtureRunArgs {
    /// The cases of a fixture that were asked for.
    pub(crate) fn cases<'f>(&self, fixture: &'f Fixture) -> Vec<&'f Case> {
        let is_asked = |case: &&Case| self.width.is_empty() || self.width.contains(&case.width);
        fixture.cases.iter().filter(is_asked).collect()
    }

    /// Says that nothing is left to run.
    pub(crate) fn nothing(&self) -> Failure {
        if self.ids.is_empty() {
            return self.nothing_of("any fixture");
        }
        self.nothing_of(&self.ids.join(", "))
    }

    /// Says that nothing of a fixture is left to run.
    pub(crate) fn nothing_of(&self, id: &str) -> Failure {
        let mut failure = Failure::usage("nothing to run", id);
        if !self.layout.is_empty() {
            failure = failure.cause(format!("in layout {}", self.layout.join(" or ")));
        }
        if !self.width.is_empty() {
            let widths: Vec<String> = self.width.iter().map(u64::to_string).collect();
            failure = failure.cause(format!("at width {}", widths.join(" or ")));
            if let Some(family) = families::find(id) {
                let cases = (family.generate)().cases;
                let there: BTreeSet<u64> = cases.iter().map(|case| case.width).collect();
                let there: Vec<String> = there.iter().map(u64::to_string).collect();
                failure = failure.cause(format!("its widths are {}", there.join(", ")));
            }
        }
        failure.hint("packhouse fixture ls")
    }
}

/// The folder of fixtures, and what hints call it.
pub(crate) struct Place {
    /// The folder.
    pub(crate) path: PathBuf,
    given: Option<PathBuf>,
}

impl Place {
    /// The folder as given, else of the environment, else in the user's cache.
    pub(crate) fn of(args: &FixtureSelectArgs, lookup: Lookup<'_>) -> Result<Self, Failure> {
        Ok(Self {
            path: places::fixtures(args.fixtures.as_deref(), lookup)?,
            given: args.fixtures.clone(),
        })
    }

    /// Opens it for looking; `None` where nothing was ever published.
    pub(crate) fn open(&self) -> Result<Option<Dir>, Failure> {
        match walk(&RealFs, &owners(), &self.path, None, Links::Follow) {
            Ok((_, dir)) => Ok(Some(dir)),
            Err(OpenError::Missing { .. }) => Ok(None),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// Opens it, and makes it and what is missing above it.
    pub(crate) fn make(&self) -> Result<Dir, Failure> {
        let modes = Some(MakeModes {
            parents: 0o700,
            last: 0o755,
        });
        let found = walk(&RealFs, &owners(), &self.path, modes, Links::Follow);
        let (_, dir) = found.map_err(|error| self.unusable(&error))?;
        Ok(dir)
    }

    /// A command for a hint, on the same folder.
    pub(crate) fn hint(&self, words: &str) -> String {
        match &self.given {
            Some(path) => format!("packhouse fixture {words} --fixtures {}", quoted(path)),
            None => format!("packhouse fixture {words}"),
        }
    }

    /// Says that the folder cannot be used.
    pub(crate) fn unusable(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::new("cannot use the folder of fixtures", self.path.display())
            .because(error)
            .hint(hints::of(error, &self.path))
    }
}

/// Whose folders are believed to stay as they are: the user's and root's.
fn owners() -> Owners {
    Owners::new(RealFs.effective_uid(), &[])
}
