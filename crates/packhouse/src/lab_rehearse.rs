//! `lab rehearse`.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::lab::Place;
use crate::lab_campaign::{Prepared, SecondJudge, gates, step_failed};
use crate::lab_open::{Opened, Told};
use crate::lab_words::LabPacketArgs;
use packhouse_lab::campaign::{Frozen, Rehearsal, rehearse};
use serde_json::json;
use std::fmt::Write as _;

/// Rehearses a packet.
pub(crate) fn execute(args: &LabPacketArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    let prepared = Prepared::new(&opened, None)?;
    if !args.execute {
        let campaign = prepared.campaign();
        let frozen = Frozen::load(&campaign, &ledger, packet);
        frozen.map_err(|error| step_failed(place, &error))?;
        let told = Told {
            lines: vec![
                format!("run packet {packet} on a null candidate"),
                format!("replace what is in rehearsals/{packet}"),
                "enter what came of it in the ledger".to_owned(),
            ],
            irreversible: "the ledger's entry; the packet stays to be run",
            json: json!({ "packet": packet.to_string() }),
        };
        return Ok(told.planned(&place.hint(&format!("rehearse {} --execute", args.packet))));
    }
    prepared.listen()?;
    let mut writer = opened.writer()?;
    let campaign = prepared.campaign();
    let frozen = Frozen::load(&campaign, writer.ledger(), packet);
    let frozen = frozen.map_err(|error| step_failed(place, &error))?;
    let rehearsed = rehearse(&campaign, &mut writer, &frozen, &SecondJudge);
    let rehearsal = rehearsed.map_err(|error| step_failed(place, &error))?;
    let answer = answer(&rehearsal, &packet.to_string(), place, &args.packet);
    Ok(prepared.remembered(&writer, answer))
}

fn answer(rehearsal: &Rehearsal, packet: &str, place: &Place, named: &str) -> Answer {
    let mut text = String::new();
    if let Some(analysis) = &rehearsal.analysis {
        text.push_str(&gates(analysis));
    }
    let seconds = rehearsal.elapsed_ns as f64 / 1e9;
    let _ = writeln!(
        text,
        "tampered copies: {} of {} rejected as they must be",
        rehearsal.rejected, rehearsal.tampers
    );
    for (device, saving_ns) in rehearsal.detectable_ns.iter().flatten() {
        let _ = writeln!(
            text,
            "{device}: a saving of {saving_ns} ns per cycle could be told from none"
        );
    }
    match &rehearsal.fault {
        None => {
            let _ = writeln!(text, "rehearsal of {packet}: green, {seconds:.1} s");
            let review =
                format!("review {named} --reviewer NAME --verdict approve --note TEXT --execute");
            let _ = writeln!(text, "next: {}", place.hint(&review));
        }
        Some(fault) => {
            let _ = writeln!(text, "rehearsal of {packet}: not green, {seconds:.1} s");
            let _ = writeln!(
                text,
                "{}: {}",
                fault.stage,
                packhouse_base::shown::Shown(&fault.reason)
            );
        }
    }
    let json = json!({
        "packet": packet,
        "green": rehearsal.fault.is_none(),
        "stage": rehearsal.fault.as_ref().map(|fault| fault.stage.as_str()),
        "reason": rehearsal.fault.as_ref().map(|fault| &fault.reason),
        "bag": rehearsal.analysis.as_ref().map(|analysis| analysis.bag.to_string()),
        "tampers": rehearsal.tampers,
        "rejected": rehearsal.rejected,
        "detectable_ns": rehearsal.detectable_ns,
        "elapsed_ns": rehearsal.elapsed_ns,
    });
    Answer {
        text,
        json,
        exit: match rehearsal.fault {
            None => Exit::Done,
            Some(_) => Exit::Negative,
        },
    }
}
