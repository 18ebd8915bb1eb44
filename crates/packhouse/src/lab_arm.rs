//! `lab arm`: a reviewed packet may be run, once.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::{Opened, Told};
use crate::lab_refused::{of_freeze, of_host, of_markers};
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabPacketArgs;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::review::{self, ArmError};
use packhouse_lab::world::HostError;
use packhouse_ledger::act::Armed;
use packhouse_ledger::{Act, Ledger};
use serde_json::json;

/// Arms a packet.
pub(crate) fn execute(args: &LabPacketArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    if !args.execute {
        let ledger = opened.ledger()?;
        let (act, is_kept) = judged(&opened, &ledger, &args.packet)?;
        let command = place.hint(&format!("arm {} --execute", args.packet));
        return Ok(told(&act, is_kept).planned(&command));
    }
    let mut writer = opened.writer()?;
    let (act, is_kept) = judged(&opened, writer.ledger(), &args.packet)?;
    let told = told(&act, is_kept);
    let run = place.hint(&format!("run {}", args.packet));
    let entered = opened.append(&mut writer, act)?;
    Ok(entered.answer(told, Some(&run)))
}

fn judged(opened: &Opened<'_>, ledger: &Ledger, text: &str) -> Result<(Armed, bool), Failure> {
    let packet = opened.packet(ledger, text)?;
    not_withdrawn(opened, ledger, packet)?;
    let act = review::arm(&opened.lab(), ledger, packet, &Recipes::default());
    let act = act.map_err(|error| refused(opened, text, &error))?;
    opened.accepts(ledger, &Act::from(act.clone()))?;
    let is_kept = review::is_kept(&opened.lab(), ledger, packet);
    let is_kept = is_kept.map_err(|error| refused(opened, text, &error))?;
    Ok((act, is_kept))
}

fn told(act: &Armed, is_kept: bool) -> Told {
    let mut told = told_of(act);
    if !is_kept {
        let kept = format!(
            "rehearsals/{}: gone; only the ledger knows what it was",
            act.packet
        );
        told.lines.push(kept);
    }
    told
}

fn told_of(act: &Armed) -> Told {
    let reviews: Vec<String> = act.reviews.iter().map(u64::to_string).collect();
    Told {
        lines: vec![
            format!(
                "packet {} is as it was frozen, and may be run once",
                act.packet
            ),
            format!(
                "by its rehearsal, entry {}, and the approvals, entries {}",
                act.rehearsal,
                reviews.join(", ")
            ),
        ],
        irreversible: "nothing yet: the run consumes the packet",
        json: json!({
            "packet": act.packet.to_string(),
            "rehearsal": act.rehearsal,
            "reviews": act.reviews,
        }),
    }
}

fn refused(opened: &Opened<'_>, text: &str, error: &ArmError) -> Failure {
    let place = opened.place;
    let not = || Failure::new("not armed", text);
    match error {
        ArmError::Freeze(error) => of_freeze(not(), place, error),
        ArmError::Stale(_) | ArmError::Rehearsal { .. } => {
            let rehearse = place.hint(&format!("rehearse {text} --execute"));
            not().because(error).hint(rehearse)
        }
        ArmError::Reviewers { .. } | ArmError::Rejected { .. } => {
            let words = format!("review {text} --reviewer NAME --verdict approve --note TEXT");
            not().because(error).hint(place.hint(&words))
        }
        ArmError::Standing { .. } | ArmError::Unknown { .. } => not()
            .because(error)
            .hint(place.hint(&format!("report {text}"))),
        ArmError::Noise(_) => not()
            .because(error)
            .hint(place.hint(&format!("withdraw {text} --reason TEXT"))),
        ArmError::Consumed { marker, .. } => {
            not().because(error).hint(format!("cat {}", quoted(marker)))
        }
        ArmError::Marker(_) => of_markers(not().because(error), place, &error.to_string()),
        ArmError::Host(HostError::NoDevice { .. }) => {
            not().because(error).hint("packhouse worker devices")
        }
        ArmError::Host(_) => not().because(error).hint(of_host(place)),
    }
}
