//! A wrong command line in the form of every other error; help and version as clap renders them.

use crate::answer::{Answer, say, unwritten};
use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::Value;

/// Prints help, version or what is wrong, and says how the program ends.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI's usage errors go to stderr and name the command that was meant"
)]
pub(crate) fn explain(error: &clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let help = Answer::done(error.to_string(), Value::Null);
        return help.print(false).unwrap_or_else(|error| {
            say(unwritten(&error));
            Exit::NotExecuted
        });
    }
    let words = std::env::args().skip(1).take_while(|word| word != "--");
    let is_known = error.kind() != ErrorKind::InvalidSubcommand;
    say(failure(error, command(words, is_known).as_deref()));
    Exit::Usage
}

/// The command that the words begin, as deep as it goes. Words that are no command may be values of
/// options, but where a command is what is wrong.
fn command(words: impl Iterator<Item = String>, is_known: bool) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    let mut at = Cli::command();
    for word in words.filter(|word| !word.starts_with('-')) {
        let inner = at.find_subcommand(&word).cloned();
        match inner {
            Some(inner) => {
                names.push(word);
                at = inner;
            }
            None if is_known && at.has_subcommands() => {}
            None => break,
        }
    }
    (!names.is_empty()).then(|| names.join(" "))
}

fn failure(error: &clap::Error, command: Option<&str>) -> Failure {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg);
    let argument = match error.kind() {
        ErrorKind::MissingRequiredArgument => argument.map(|it| with_others(it, command)),
        _ => argument,
    };
    let value = text(ContextKind::InvalidValue);
    let (what, shown) = match error.kind() {
        ErrorKind::InvalidSubcommand => (
            "no such command".to_owned(),
            text(ContextKind::InvalidSubcommand),
        ),
        ErrorKind::UnknownArgument => ("unexpected argument".to_owned(), argument),
        ErrorKind::MissingRequiredArgument => ("missing argument".to_owned(), argument),
        ErrorKind::ArgumentConflict => match text(ContextKind::PriorArg) {
            Some(prior) if Some(&prior) != argument.as_ref() => {
                let both = argument.map(|argument| format!("{argument} and {prior}"));
                ("one excludes the other".to_owned(), both)
            }
            Some(_) | None => ("argument given twice".to_owned(), argument),
        },
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => match value.as_deref() {
            None | Some("") => ("missing value".to_owned(), argument),
            Some(_) => (
                format!("invalid value for {}", argument.unwrap_or_default()),
                value,
            ),
        },
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ("missing argument".to_owned(), Some("COMMAND".to_owned()))
        }
        kind => (kind.to_string(), argument.or(value)),
    };
    let mut failure = Failure::usage(what, shown.unwrap_or_else(|| "none given".to_owned()));
    if let Some(reason) = std::error::Error::source(error) {
        failure = failure.cause(reason.to_string());
    }
    if let Some(known) = text(ContextKind::ValidValue).filter(|known| !known.is_empty()) {
        failure = failure.cause(format!("known values: {known}"));
    }
    let suggested =
        text(ContextKind::SuggestedSubcommand).or_else(|| text(ContextKind::SuggestedArg));
    if let Some(suggested) = suggested {
        failure = failure.cause(format!("similar: {suggested}"));
    }
    match command {
        Some(command) => failure.hint(format!("packhouse {command} --help")),
        None => failure.hint("packhouse --help"),
    }
}

/// What is missing, with what may stand for it.
fn with_others(argument: String, command: Option<&str>) -> String {
    match command {
        Some("registry register") => {
            argument.replace("--model <FILE>", "--model <FILE> or --model-sha256 <HEX>")
        }
        Some("import") if argument.contains("--registered") => argument.replace(", <PATH>", ""),
        Some(_) | None => argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_deepest_that_was_begun() {
        let of = |line: &str, is_known| {
            let words = line.split(' ').map(str::to_owned);
            command(words, is_known)
        };
        let found = |line: &str| of(line, true).unwrap_or_default();
        assert_eq!(found("lab record orders q4 --widths 1,4"), "lab record");
        assert_eq!(found("lab --lab here lane new"), "lab lane new");
        assert_eq!(found("--json fixture run"), "fixture run");
        assert_eq!(found("prepare lab --plan x"), "prepare");
        assert_eq!(of("lab foo state", false).as_deref(), Some("lab"));
        assert_eq!(of("foo lab", false), None);
    }
}
