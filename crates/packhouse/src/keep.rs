//! `keep`: the process that stands between a start and the engine.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::worker_words::KeepArgs;
use packhouse_proc::keeper::Keeper;
use packhouse_proc::procfs::Procfs;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Launches a run's engine and waits for its end. What goes wrong is in the run's records and, as
/// standard error is there, in its `keeper.log`.
pub(crate) fn keep(args: &KeepArgs) -> Result<Answer, Failure> {
    let shown = args.folder.display();
    let procfs = Procfs::new(Path::new("/proc")).map_err(|error| {
        Failure::new("cannot keep a run", args.folder.display()).because(&error)
    })?;
    let keeper = Keeper {
        fs: Arc::new(RealFs),
        clock: &RealClock,
        procfs: &procfs,
        // The file of this process, whatever became of its name.
        program: Path::new("/proc/self/exe"),
    };
    let exit = keeper
        .keep(&args.folder)
        .map_err(|error| Failure::new("cannot keep a run", shown).because(&error))?;
    let outcome = exit.outcome.to_string();
    Ok(Answer::done(
        format!("{outcome}\n"),
        json!({ "outcome": outcome }),
    ))
}
