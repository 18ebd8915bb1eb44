//! `lab withdraw`: a packet is given up before it is run, and everybody sees why.
//!
//! Invariants: who withdraws a packet holds its lock, so that no rehearsal or run is under way;
//! what was run is refused, whatever came of it.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::hints;
use crate::lab::Place;
use crate::lab_enter::torn;
use crate::lab_open::{Opened, Told, stands};
use crate::lab_refused::of_markers;
use crate::lab_words::LabWithdrawArgs;
use packhouse_base::digest::Digest;
use packhouse_lab::withdraw::{WithdrawError, withdrawal};
use packhouse_ledger::act::Withdrawn;
use packhouse_ledger::page::utc;
use packhouse_ledger::state::{PacketState, WithdrawalState};
use packhouse_ledger::{Act, Ledger, WriterError, is_packet_held};
use packhouse_sys::clock::RealClock;
use serde_json::json;

/// Withdraws a packet.
pub(crate) fn execute(args: &LabWithdrawArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    if !args.execute {
        let ledger = opened.ledger()?;
        let packet = opened.packet(&ledger, &args.packet)?;
        let held = is_packet_held(&opened.root, packet);
        if held.map_err(|error| opened.not_appended(&error.into()))? {
            return Err(busy(place, packet));
        }
        let act = judged(&opened, &ledger, (packet, args))?;
        let reason = quoted(&act.reason);
        let command = format!("withdraw {} --reason {reason} --execute", args.packet);
        let mut told = told(opened.standing(&ledger, packet)?, &act);
        told.lines.extend(torn(&ledger));
        return Ok(told.planned(&place.hint(&command)));
    }
    let mut writer = opened.writer()?;
    let packet = opened.packet(writer.ledger(), &args.packet)?;
    let hold = writer.hold_packet(packet, &RealClock);
    let _hold = hold.map_err(|error| match error {
        WriterError::PacketBusy { packet } => busy(place, packet),
        error => opened.not_appended(&error),
    })?;
    let act = judged(&opened, writer.ledger(), (packet, args))?;
    let state = opened.standing(writer.ledger(), packet)?;
    let another = place.hint(&another(state));
    let told = told(state, &act);
    let entered = opened.append(&mut writer, act)?;
    Ok(entered.answer(told, Some(&another)))
}

/// Refuses what can't follow a withdrawal, by its entry.
pub(crate) fn not_withdrawn(
    opened: &Opened<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<(), Failure> {
    let state = opened.standing(ledger, packet)?;
    let Some(withdrawn) = &state.withdrawn else {
        return Ok(());
    };
    Err(Failure::new("the packet was withdrawn", packet)
        .cause(told_withdrawn(withdrawn))
        .cause("another attempt is another experiment, with an id of its own")
        .hint(opened.place.hint(&another(state))))
}

/// Entry, date and reason of a withdrawal, in words.
pub(crate) fn told_withdrawn(withdrawn: &WithdrawalState) -> String {
    let (entry, reason) = (withdrawn.entry, &withdrawn.reason);
    format!("by entry {entry}, {}: {reason}", utc(withdrawn.at_ns))
}

/// The command that begins another experiment from a packet's.
pub(crate) fn another(state: &PacketState) -> String {
    format!("experiment new NEW-ID --from {}", state.experiment)
}

fn judged(
    opened: &Opened<'_>,
    ledger: &Ledger,
    (packet, args): (Digest, &LabWithdrawArgs),
) -> Result<Withdrawn, Failure> {
    let act = withdrawal(&opened.lab(), ledger, packet, &args.reason);
    let act = act.map_err(|error| refused(opened.place, args, &error))?;
    opened.accepts(ledger, &Act::from(act.clone()))?;
    Ok(act)
}

fn told(state: &PacketState, act: &Withdrawn) -> Told {
    let (packet, experiment, standing) = (act.packet, &state.experiment, stands(state.standing));
    let (rehearsals, reviews) = (state.rehearsals.len(), state.words.len());
    Told {
        lines: vec![
            format!("withdraw packet {packet} of {experiment}: {}", act.reason),
            format!(
                "{standing} until now; its documents, rehearsals ({rehearsals}) and reviews \
                 ({reviews}) stay"
            ),
        ],
        irreversible: "the packet can never be rehearsed, reviewed, armed or run again, nor its \
                       experiment's id be registered; entry and reason stay for everybody to see",
        json: json!({
            "packet": packet.to_string(),
            "experiment": experiment.as_str(),
            "standing": standing,
            "reason": act.reason,
        }),
    }
}

fn busy(place: &Place, packet: Digest) -> Failure {
    Failure::new("another process executes the packet", packet)
        .cause("what comes of it is entered before anything else of the packet")
        .hint(place.hint("state --live"))
}

fn refused(place: &Place, args: &LabWithdrawArgs, error: &WithdrawError) -> Failure {
    let named = &args.packet;
    let not = || Failure::new("not withdrawn", named).because(error);
    let report = || place.hint(&format!("report {named}"));
    let seal = || place.hint(&format!("seal {named}"));
    match error {
        WithdrawError::Empty | WithdrawError::Hidden { .. } => {
            Failure::usage("not withdrawn", named)
                .because(error)
                .hint(place.hint(&format!("withdraw {named} --reason TEXT")))
        }
        WithdrawError::Announced { .. } => not().hint(seal()),
        WithdrawError::Run { standing } => not().hint(match standing.is_sealed() {
            true => report(),
            false => seal(),
        }),
        WithdrawError::Again { .. }
        | WithdrawError::Unknown { .. }
        | WithdrawError::Spent { .. } => not().hint(report()),
        WithdrawError::Consumed { marker } => not().hint(format!("cat {}", quoted(marker))),
        WithdrawError::Evidence { path } => {
            not().hint(format!("ls -l {}", quoted(place.root.join(path))))
        }
        WithdrawError::Marker(error) => of_markers(not(), place, &error.to_string()),
        WithdrawError::Fs(error) => not().hint(hints::of(error, &place.root)),
    }
}
