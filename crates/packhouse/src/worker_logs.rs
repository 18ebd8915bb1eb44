//! `worker logs`: what an engine wrote in a start.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_scope::Scope;
use crate::worker_words::WorkerLogsArgs;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_proc::fleet::WorkerName;
use packhouse_proc::logs::{LogError, LogText};
use packhouse_proc::runs::Run;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::num::NonZeroUsize;

/// Answers the command. What an engine wrote is shown as it is, but for what a terminal would obey.
pub(crate) fn logs(args: &WorkerLogsArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let scope = Scope::find(&args.fleet, "logs", lookup)?;
    let (mut text, mut workers) = (String::new(), Vec::new());
    for name in &scope.names {
        let log = Log::read(&scope, name, args)?;
        if scope.names.len() > 1 {
            let _ = writeln!(text, "==> {name}{} <==", log.number());
        }
        text += &log.text();
        workers.push(log.document(name));
    }
    Ok(Answer::done(
        text,
        json!({ "fleet": scope.fleet, "workers": workers }),
    ))
}

/// The log of one worker's run.
struct Log {
    run: Option<u32>,
    runs: Vec<u32>,
    log: Option<LogText>,
}

impl Log {
    fn read(scope: &Scope, name: &WorkerName, args: &WorkerLogsArgs) -> Result<Self, Failure> {
        let failure = |error: &dyn std::error::Error| {
            Failure::new("cannot read the log of worker", name)
                .because(error)
                .hint(format!("packhouse worker status {}", scope.which()))
        };
        let runs = scope.runs(name).map_err(|error| failure(&error))?;
        let mut kept = match &runs {
            None => Vec::new(),
            Some(runs) => runs.list().map_err(|error| failure(&error))?,
        };
        let numbers: Vec<u32> = kept.iter().map(Run::number).collect();
        let run = match args.run {
            None => kept.pop(),
            Some(number) => {
                let found = kept.into_iter().find(|run| run.number() == number);
                Some(found.ok_or_else(|| unknown(scope, name, number, &numbers))?)
            }
        };
        let lines = args.lines.map(NonZeroUsize::get);
        let log = run.as_ref().map(|run| LogText::read(run, lines));
        let log = log.transpose().map_err(|error: LogError| failure(&error))?;
        Ok(Self {
            run: run.as_ref().map(Run::number),
            runs: numbers,
            log: log.flatten(),
        })
    }

    fn number(&self) -> String {
        self.run
            .map_or_else(String::new, |run| format!(", run {run}"))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        match (&self.log, self.run) {
            (None, None) => text.push_str("it was never started\n"),
            (None, Some(_)) => text.push_str("it wrote nothing\n"),
            (Some(log), _) if log.text.is_empty() && log.freed_bytes == 0 => {
                text.push_str("it wrote nothing\n");
            }
            (Some(log), _) => {
                if log.freed_bytes > 0 {
                    let freed = units::bytes(log.freed_bytes);
                    let _ = writeln!(text, "[the first {freed} were given back]");
                }
                if log.left_out_bytes > 0 {
                    let left_out = units::bytes(log.left_out_bytes);
                    let _ = writeln!(text, "[{left_out} before these are left out]");
                }
                for line in String::from_utf8_lossy(&log.text).lines() {
                    // A tab only moves on, and engines' tables have them.
                    let line = line.replace('\t', "        ");
                    let _ = writeln!(text, "{}", Shown(&line));
                }
            }
        }
        text
    }

    fn document(&self, name: &WorkerName) -> Value {
        let log = self.log.as_ref();
        json!({
            "worker": name.as_str(),
            "run": self.run,
            "runs": self.runs,
            "freed_bytes": log.map(|log| log.freed_bytes),
            "left_out_bytes": log.map(|log| log.left_out_bytes),
            "text": log.map(|log| String::from_utf8_lossy(&log.text)),
        })
    }
}

fn unknown(scope: &Scope, name: &WorkerName, number: u32, kept: &[u32]) -> Failure {
    let failure = Failure::usage(format!("worker {name} has no such run"), number);
    let kept: Vec<String> = kept.iter().map(u32::to_string).collect();
    failure
        .cause(match kept.as_slice() {
            [] => "it was never started".to_owned(),
            kept => format!("kept are runs {}", kept.join(", ")),
        })
        .hint(format!(
            "packhouse worker logs {} --worker {name}",
            scope.which()
        ))
}
