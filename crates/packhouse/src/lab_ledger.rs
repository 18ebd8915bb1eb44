//! `lab ledger`: what was done, in its order; notes and corrections.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_enter::{Entering, enter, name, torn, words};
use crate::lab_ledger_verify;
use crate::lab_open::{Opened, counted};
use crate::lab_words::{LabLedgerArgs, LabLedgerCommand, LabLedgerCorrectArgs, LabLedgerNoteArgs};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Act, Corrected, Note};
use packhouse_ledger::{Entry, Ledger};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Executes one command on the ledger.
pub(crate) fn execute(args: &LabLedgerArgs, place: &Place) -> Result<Answer, Failure> {
    match args.command.as_ref().unwrap_or(&LabLedgerCommand::Ls) {
        LabLedgerCommand::Ls => Ok(list(&Opened::of(place)?.ledger()?)),
        LabLedgerCommand::Verify(args) => lab_ledger_verify::execute(args, place),
        LabLedgerCommand::Note(args) => note(args, place),
        LabLedgerCommand::Correct(args) => correct(args, place),
    }
}

fn note(args: &LabLedgerNoteArgs, place: &Place) -> Result<Answer, Failure> {
    let text = words("TEXT", &args.text)?;
    let lane = args.lane.as_deref().map(|id| name("a lane", id));
    let lane = lane.transpose()?;
    let (about, option) = match &lane {
        Some(lane) => (format!("of lane {lane}: "), format!(" --lane {lane}")),
        None => (String::new(), String::new()),
    };
    let entering = Entering {
        line: format!("note {about}{text}"),
        irreversible: "the entry stays; it can be corrected by another one",
        command: format!("ledger note {}{option}", quoted(args.text.as_str())),
        act: Note { lane, text }.into(),
    };
    enter(&Opened::of(place)?, args.execute, entering)
}

fn correct(args: &LabLedgerCorrectArgs, place: &Place) -> Result<Answer, Failure> {
    let (entry, text) = (args.entry, words("TEXT", &args.text)?);
    let entering = Entering {
        line: format!("correct entry {entry}: {text}"),
        irreversible: "both entries stay: a correction is read with what it corrects",
        command: format!("ledger correct {entry} {}", quoted(args.text.as_str())),
        act: Corrected { entry, text }.into(),
    };
    enter(&Opened::of(place)?, args.execute, entering)
}

fn list(ledger: &Ledger) -> Answer {
    let mut rows = vec![
        ["entry", "time", "kind", "of", "what"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut entries = Vec::new();
    for entry in ledger.entries() {
        rows.push(row(ledger, entry));
        entries.push(json!({
            "index": entry.index,
            "at_ns": entry.at_ns,
            "boot": entry.boot,
            "kind": entry.act.kind(),
            "body": entry.act.body(),
            "previous": entry.previous.to_string(),
            "digest": entry.digest.to_string(),
        }));
    }
    let mut text = fitted_table(&COLUMNS, &rows);
    let _ = writeln!(text, "head {}", ledger.head());
    if let Some(torn) = torn(ledger) {
        let _ = writeln!(text, "the next command that appends will {torn}");
    }
    let json = json!({
        "lab": ledger.state().lab(),
        "id": ledger.state().id().to_string(),
        "entries": Value::from(entries),
        "head": ledger.head().to_string(),
        "torn_bytes": ledger.torn_bytes(),
        "clock_went_back": ledger.state().clock_went_back(),
    });
    Answer::done(text, json)
}

const COLUMNS: [Column; 5] = [
    Column::Right,
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Left,
];

fn row(ledger: &Ledger, entry: &Entry) -> Vec<String> {
    let state = ledger.state();
    let mut time = packhouse_ledger::page::utc(entry.at_ns);
    if state.clock_went_back().contains(&entry.index) {
        time.push_str(", clock went back");
    }
    let packet = entry.act.packet();
    let experiment = packet.and_then(|packet| state.packets().get(&packet));
    let of = match (&entry.act, experiment) {
        (Act::Lane(body), _) => body.lane.to_string(),
        (Act::Note(body), _) => body.lane.as_ref().map_or(String::new(), |l| l.to_string()),
        (Act::Corrected(body), _) => format!("entry {}", body.entry),
        (_, Some(packet)) => packet.experiment.to_string(),
        (_, None) => String::new(),
    };
    let mut what = said(&entry.act);
    for correction in state.corrections().get(&entry.index).into_iter().flatten() {
        let _ = write!(what, " (corrected by entry {correction})");
    }
    vec![
        entry.index.to_string(),
        time,
        entry.act.kind().to_owned(),
        of,
        what,
    ]
}

/// What an act says, in a few words.
fn said(act: &Act) -> String {
    match act {
        Act::Genesis(body) => format!("{}, id {}", body.lab, short(body.id)),
        Act::Lane(body) => match &body.until {
            Some(until) => format!("{} until {until}: {}", body.action, body.reason),
            None => format!("{}: {}", body.action, body.reason),
        },
        Act::Registered(body) => format!("packet {}: {}", short(body.packet), body.treatment),
        Act::Rehearsed(body) => {
            let tampers = format!("{} of {} tampers rejected", body.rejected, body.tampers);
            match body.stage {
                None => format!("green, {tampers}"),
                Some(stage) => format!("not green, at {stage}: {}", body.reason),
            }
        }
        Act::Reviewed(body) => {
            let word = format!("{}: {}", body.reviewer, body.verdict);
            let note = if body.note.is_empty() { "" } else { ", " };
            format!("{word} of rehearsal {}{note}{}", body.rehearsal, body.note)
        }
        Act::Armed(body) => {
            format!(
                "by rehearsal {} and {}",
                body.rehearsal,
                counted(body.reviews.len() as u64, "approval", "approvals")
            )
        }
        Act::Nonce(body) => short(body.nonce),
        Act::Released(body) => format!("at {}: {}", body.stage, body.reason),
        Act::Withdrawn(body) => body.reason.clone(),
        Act::Consumed(body) => format!("marker {}", short(body.marker)),
        Act::Closed(body) => format!("bag {}", short(body.bag)),
        Act::Sealed(body) => {
            let verdict = format!("{}, seal {}", body.verdict, short(body.seal));
            match body.stage {
                None => verdict,
                Some(stage) => format!("{verdict}, at {stage}: {}", body.reason),
            }
        }
        Act::Analysed(body) => {
            let (number, verdict) = (body.number, body.verdict);
            format!(
                "number {number}: {verdict}, seal {}: {}",
                short(body.seal),
                body.why
            )
        }
        Act::Record(body) => {
            let before = match body.supersedes {
                Some(entry) => format!(", in the place of entry {entry}"),
                None => String::new(),
            };
            let widths: Vec<_> = body.widths.iter().map(u64::to_string).collect();
            format!(
                "{}: {} at widths {}{before}",
                body.key,
                body.claim,
                widths.join(", ")
            )
        }
        Act::Corrected(body) => body.text.clone(),
        Act::Note(body) => body.text.clone(),
    }
}

/// The digits of a digest that a command takes for it.
fn short(digest: Digest) -> String {
    digest.to_string().chars().take(12).collect()
}
