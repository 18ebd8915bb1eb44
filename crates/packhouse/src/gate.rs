//! `gate`: waits for leave, then becomes the engine.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::worker_words::GateArgs;
use packhouse_proc::cores::CpuSet;
use packhouse_proc::keeper::gate::pass;

/// Becomes the engine. Returns only when that failed; standard error is the engine's log.
pub(crate) fn gate(args: GateArgs) -> Result<Answer, Failure> {
    let cores = args.cores.as_deref().map(CpuSet::parse).transpose();
    let cores = cores.map_err(|error| {
        let given = args.cores.as_deref().unwrap_or_default();
        Failure::usage("not a set of cores", given).because(&error)
    })?;
    let mut words = args.engine.into_iter();
    let program = words.next().expect("because clap demands a command");
    let shown = program.display().to_string();
    let rest: Vec<_> = words.collect();
    let error = pass(cores.as_ref(), program, &rest);
    Err(Failure::new("the engine did not begin", shown).because(&error))
}
