//! The packhouse command: words, environment, exit codes.
//!
//! Each command answers with an `Answer` (text and JSON) or a `Failure`; only this file and
//! `answer` print. Exit codes: 0 done or yes, 1 a negative answer, 2 usage, 3 not executed.

#![forbid(unsafe_code)]

mod answer;
mod cli;
mod failure;
mod files;
mod inspect;
mod places;
mod run;
mod usage;
mod watch;

use answer::Answer;
use clap::Parser as _;
use cli::{Cli, Command};
use failure::{Exit, Failure};
use std::process::ExitCode;

#[expect(clippy::disallowed_macros, reason = "the CLI's errors go to stderr")]
fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => match answer(cli) {
            Ok(exit) => exit,
            Err(failure) => {
                eprint!("{failure}");
                failure.exit()
            }
        },
        Err(error) => usage::explain(&error),
    };
    ExitCode::from(exit as u8)
}

fn answer(cli: Cli) -> Result<Exit, Failure> {
    let answer = execute(cli.command)?;
    answer
        .print(cli.json)
        .map_err(|error| Failure::new("cannot write the answer", "stdout").because(&error))
}

#[expect(
    clippy::disallowed_macros,
    reason = "the watcher's only word goes to stderr"
)]
fn execute(command: Command) -> Result<Answer, Failure> {
    let lookup = &places::environment;
    match command {
        Command::Run(args) => run::run(args, lookup),
        Command::Env(args) => run::env(&args, lookup),
        Command::Inspect { model, tensors } => inspect::inspect(&model, tensors),
        Command::Watch(args) => {
            if let Some(line) = watch::watch(&args) {
                eprintln!("{line}");
            }
            Ok(Answer::done(String::new(), serde_json::Value::Null))
        }
        _ => Err(Failure::new("not in this build yet", "this command")),
    }
}
