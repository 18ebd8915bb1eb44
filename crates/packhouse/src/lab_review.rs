//! `lab review`: a reviewer's word on a rehearsed packet.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::{Opened, Told};
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::{LabReviewArgs, LabReviewVerdict};
use packhouse_lab::review::{self, ReviewError};
use packhouse_ledger::act::Reviewed;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Act, Ledger, Review};
use serde_json::json;

/// Enters a reviewer's word.
pub(crate) fn execute(args: &LabReviewArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    if !args.execute {
        let ledger = opened.ledger()?;
        let act = word(&opened, &ledger, args)?;
        let verdict = act.verdict.as_str();
        let command = format!(
            "review {} --reviewer {} --verdict {verdict} --note {} --execute",
            args.packet,
            quoted(&act.reviewer),
            quoted(&act.note)
        );
        return Ok(told(&act).planned(&place.hint(&command)));
    }
    let mut writer = opened.writer()?;
    let act = word(&opened, writer.ledger(), args)?;
    let told = told(&act);
    let arm = (args.verdict == LabReviewVerdict::Approve)
        .then(|| place.hint(&format!("arm {} --execute", args.packet)));
    let entered = opened.append(&mut writer, act)?;
    Ok(entered.answer(told, arm.as_deref()))
}

fn word(opened: &Opened<'_>, ledger: &Ledger, args: &LabReviewArgs) -> Result<Reviewed, Failure> {
    let packet = opened.packet(ledger, &args.packet)?;
    not_withdrawn(opened, ledger, packet)?;
    let state = opened.standing(ledger, packet)?;
    let verdict = match args.verdict {
        LabReviewVerdict::Approve => Review::Approve,
        LabReviewVerdict::Reject => Review::Reject,
    };
    let word = review::word(packet, state, &args.reviewer, verdict, &args.note);
    let verdict = verdict.as_str();
    let word = word.map_err(|error| {
        let place = opened.place;
        let (failure, hint) = match &error {
            ReviewError::Empty { .. } => {
                let failure = Failure::usage("not reviewed", &args.packet);
                let packet = &args.packet;
                let words = format!("review {packet} --reviewer NAME --verdict {verdict} ");
                (failure, place.hint(&(words + "--note TEXT")))
            }
            ReviewError::Reviewer { .. } => {
                let failure = Failure::usage("not reviewed", &args.packet);
                let packet = &args.packet;
                let words = format!("review {packet} --reviewer name@host --verdict {verdict} ");
                (failure, place.hint(&(words + "--note TEXT")))
            }
            ReviewError::Standing { standing } => {
                let failure = Failure::new("not reviewed", &args.packet);
                (failure, place.hint(&instead(*standing, &args.packet)))
            }
        };
        failure.because(&error).hint(hint)
    })?;
    opened.accepts(ledger, &Act::from(word.clone()))?;
    Ok(word)
}

/// What there is to do with a packet that is not reviewed.
fn instead(standing: Standing, packet: &str) -> String {
    match standing {
        Standing::Registered | Standing::Rehearsed | Standing::Reviewed | Standing::Armed => {
            format!("rehearse {packet}")
        }
        Standing::Nonce | Standing::Consumed | Standing::Closed => format!("seal {packet}"),
        Standing::Withdrawn
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => format!("report {packet}"),
    }
}

fn told(act: &Reviewed) -> Told {
    let verdict = act.verdict.as_str();
    let (reviewer, packet) = (&act.reviewer, act.packet);
    Told {
        lines: vec![
            format!("packet {packet}: {verdict} by {reviewer}"),
            format!("of its rehearsal, entry {}: {}", act.rehearsal, act.note),
        ],
        irreversible: "the word stays in the ledger; only a later word of the same reviewer counts \
                       instead of it",
        json: json!({
            "packet": packet.to_string(),
            "reviewer": reviewer,
            "verdict": verdict,
        }),
    }
}
