//! `lab rehearse`.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::lab::Place;
use crate::lab_campaign::{Prepared, SecondJudge, gates, gates_document, step_failed};
use crate::lab_open::{Opened, Told};
use crate::lab_refused::{bytecode, freezing};
use crate::lab_unequal;
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabPacketArgs;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::campaign::{
    Campaign, CampaignError, Fault, Frozen, REHEARSALS, Rehearsal, rehearse, would_rehearse,
};
use packhouse_lab::noise;
use packhouse_ledger::{Ledger, WriterError};
use serde_json::json;
use std::fmt::Write as _;

/// Rehearses a packet.
pub(crate) fn execute(args: &LabPacketArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    not_withdrawn(&opened, &ledger, packet)?;
    let prepared = Prepared::new(&opened, None)?;
    if !args.execute {
        let would = would_rehearse(&prepared.campaign(), &ledger, packet);
        let fault = would.map_err(|error| refused(place, &args.packet, &error))?;
        let is_within = is_within_noise(&prepared.campaign(), &ledger, packet);
        let named = (args.packet.as_str(), packet);
        return Ok(plan(place, named, fault.as_ref(), is_within));
    }
    prepared.listen()?;
    let mut writer = opened.writer()?;
    let campaign = prepared.campaign();
    let frozen = Frozen::load(&campaign, writer.ledger(), packet);
    let frozen = frozen.map_err(|error| refused(place, &args.packet, &error))?;
    let rehearsed = rehearse(&campaign, &mut writer, &frozen, &SecondJudge);
    let rehearsal = rehearsed.map_err(|error| refused(place, &args.packet, &error))?;
    let is_within = is_within_noise(&campaign, writer.ledger(), packet);
    let named = (args.packet.as_str(), packet);
    let mut answer = answer(&rehearsal, named, place, is_within);
    if let Some(analysis) = &rehearsal.analysis {
        let bag = [REHEARSALS, &packet.to_string(), packhouse_bag::BAG_DIR];
        let unequal = lab_unequal::of_folder(&opened.root, &bag, analysis);
        answer.text += &lab_unequal::lines(&unequal);
        answer.json["unequal"] = lab_unequal::document(&unequal);
    }
    Ok(prepared.remembered(&writer, answer))
}

/// Why a packet is not rehearsed: nothing is entered.
fn refused(place: &Place, named: &str, error: &CampaignError) -> Failure {
    let failure = step_failed(place, named, error);
    match error {
        CampaignError::Ledger(WriterError::Refused(_)) | CampaignError::Consumed { .. } => {
            Failure::new("not rehearsed", named)
                .because(error)
                .hint(place.hint(&format!("report {named}")))
        }
        _ => failure,
    }
}

/// Whether a rehearsal has shown that the timing gate asks for less than can be told from none:
/// then no other one can be green.
fn is_within_noise(campaign: &Campaign<'_>, ledger: &Ledger, packet: Digest) -> bool {
    let frozen = Frozen::load(campaign, ledger, packet);
    frozen.is_ok_and(|own| noise::is_above(ledger, (packet, own.prereg()), None).is_err())
}

/// What is left of such a packet.
fn gives_up(place: &Place, named: &str) -> String {
    let withdraw = place.hint(&format!("withdraw {named} --reason TEXT"));
    format!("its gate stays within the noise, and another number is another experiment: {withdraw}")
}

/// What a rehearsal would come to, before any program is started.
fn plan(
    place: &Place,
    (named, packet): (&str, Digest),
    fault: Option<&Fault>,
    is_within: bool,
) -> Answer {
    let command = place.hint(&format!("rehearse {named} --execute"));
    let mut lines = match fault {
        None => vec![
            format!("run packet {packet} on a null candidate"),
            format!("replace what is in {REHEARSALS}/{packet}"),
            "enter what came of it in the ledger".to_owned(),
        ],
        Some(fault) => vec![
            format!("start no program of packet {packet}: {fault}"),
            "enter in the ledger that it is not green".to_owned(),
        ],
    };
    if is_within {
        lines.push(format!("gain nothing: {}", gives_up(place, named)));
    }
    let told = Told {
        lines,
        irreversible: "the ledger's entry; the packet stays to be run",
        json: json!({
            "packet": packet.to_string(),
            "stage": fault.map(|fault| fault.stage.as_str()),
            "reason": fault.map(|fault| &fault.reason),
            "within_noise": is_within,
        }),
    };
    let mut answer = told.planned(&command);
    if fault.is_some() {
        answer.exit = Exit::Negative;
    }
    answer
}

fn answer(
    rehearsal: &Rehearsal,
    (named, packet): (&str, Digest),
    place: &Place,
    is_within: bool,
) -> Answer {
    let packet = packet.to_string();
    let mut text = String::new();
    if let Some(analysis) = &rehearsal.analysis {
        text.push_str(&gates(analysis));
    }
    let seconds = rehearsal.elapsed_ns as f64 / 1e9;
    let _ = match rehearsal.tampers {
        0 => writeln!(text, "tampered copies: none were made"),
        tampers => writeln!(
            text,
            "tampered copies: {} of {tampers} rejected as they must be",
            rehearsal.rejected
        ),
    };
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
            text.push_str(&not_green(rehearsal, fault, (place, &packet)));
            text.push_str(&match is_within {
                true => format!("next: {}\n", gives_up(place, named)),
                false => mends(place, named),
            });
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
        "within_noise": is_within,
        "evidence": rehearsal.analysis.as_ref().map(|_| format!("{REHEARSALS}/{packet}")),
        "gates": rehearsal.analysis.as_ref().map(gates_document),
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

/// What stands against a rehearsal that was not green, and what it left.
fn not_green(rehearsal: &Rehearsal, fault: &Fault, (place, packet): (&Place, &str)) -> String {
    let mut text = format!("{}: {}\n", fault.stage, Shown(&fault.reason));
    text.push_str(&freezing(place, &fault.unfrozen));
    if let Some(words) = bytecode(&fault.reason) {
        let _ = writeln!(text, "{}", Shown(&words));
    }
    if let Some(analysis) = &rehearsal.analysis {
        let bag = analysis.bag;
        let _ = writeln!(text, "what it left: {REHEARSALS}/{packet}, bag {bag}");
    }
    text
}

/// What is next where another rehearsal may be green.
fn mends(place: &Place, named: &str) -> String {
    let again = place.hint(&format!("rehearse {named} --execute"));
    format!("mend that first; another form of what it froze is another experiment\nnext: {again}\n")
}
