//! An act that is one entry of the ledger and nothing else: shown, or appended.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab_open::{Opened, Told};
use packhouse_ledger::{Act, Ledger};
use serde_json::json;

/// What is entered, and its words.
pub(crate) struct Entering {
    /// The act.
    pub(crate) act: Act,
    /// What is done, in a line.
    pub(crate) line: String,
    /// What can't be taken back.
    pub(crate) irreversible: &'static str,
    /// The command that does it, without `--execute` and the lab.
    pub(crate) command: String,
}

/// Judges an act against the ledger and, with `execute`, appends it. Without, nothing is written.
pub(crate) fn enter(
    opened: &Opened<'_>,
    execute: bool,
    entering: Entering,
) -> Result<Answer, Failure> {
    let Entering {
        act,
        line,
        irreversible,
        command,
    } = entering;
    let json = json!({ "kind": act.kind(), "body": act.body() });
    let told = |lines: Vec<String>, json| Told {
        lines,
        irreversible,
        json,
    };
    if !execute {
        let ledger = opened.ledger()?;
        opened.accepts(&ledger, &act)?;
        let command = opened.place.hint(&format!("{command} --execute"));
        let lines = vec![line].into_iter().chain(torn(&ledger)).collect();
        return Ok(told(lines, json).planned(&command));
    }
    let mut writer = opened.quiet_writer()?;
    let cut_bytes = writer.cut_bytes();
    opened.accepts(writer.ledger(), &act)?;
    let entered = opened.append(&mut writer, act)?;
    let mut lines = vec![line];
    if cut_bytes > 0 {
        lines.push(format!(
            "cut off {cut_bytes} bytes of an append that was never reported"
        ));
    }
    let mut json = json;
    json["cut_bytes"] = json!(cut_bytes);
    Ok(entered.answer(told(lines, json), None))
}

/// What a reader says of a torn append.
pub(crate) fn torn(ledger: &Ledger) -> Option<String> {
    let bytes = ledger.torn_bytes();
    (bytes > 0).then(|| {
        format!("cut off {bytes} bytes of an append that was never reported, which are ignored now")
    })
}

/// A lane's or experiment's id as given.
pub(crate) fn name(what: &str, text: &str) -> Result<packhouse_ledger::act::Name, Failure> {
    packhouse_ledger::act::Name::parse(text).map_err(|error| {
        Failure::usage(format!("not an id of {what}"), text)
            .because(&error)
            .hint("packhouse lab lane ls")
    })
}

/// Words of the command line: what is empty says nothing.
pub(crate) fn words(option: &str, text: &str) -> Result<String, Failure> {
    match text.trim() {
        "" => Err(Failure::usage("says nothing", option)
            .cause("the ledger keeps it, for whoever reads it later")
            .hint("packhouse lab --help")),
        words => Ok(words.to_owned()),
    }
}
