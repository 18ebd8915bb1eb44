//! `lab seal`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_campaign::{Prepared, step_failed};
use crate::lab_open::{Opened, Told, stands};
use crate::lab_run::{entered, released, sealed, to_be_sealed};
use crate::lab_words::LabRunArgs;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{Campaign, CampaignError, is_consumed, would};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::state::Standing;
use serde_json::json;

/// Finishes what a killed run left.
pub(crate) fn execute(args: &LabRunArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    let prepared = Prepared::new(&opened, args.key.as_deref())?;
    let standing = opened.standing(&ledger, packet)?.standing;
    if !args.execute {
        let step = step(standing).ok_or_else(|| nothing(args, place, packet, standing))?;
        let campaign = prepared.campaign();
        let would = would(&campaign, &ledger, packet);
        would.map_err(|error| unsealed(args, place, (&campaign, packet), &error))?;
        let told = Told {
            lines: vec![
                format!("packet {packet} is {}", stands(standing)),
                step.to_owned(),
            ],
            irreversible: "a seal: its verdict stays",
            json: json!({ "packet": packet.to_string(), "standing": stands(standing) }),
        };
        return Ok(told.planned(&place.hint(&format!("seal {} --execute", args.packet))));
    }
    prepared.sweep();
    let mut writer = opened.writer()?;
    let campaign = prepared.campaign();
    let left = recover(&campaign, &mut writer, packet);
    let left = left.map_err(|error| unsealed(args, place, (&campaign, packet), &error))?;
    let answer = match left {
        Recovered::Sealed(finished) => sealed(args, &opened, (packet, &finished), true),
        Recovered::Released(fault) => released(args, place, packet, &fault),
        Recovered::Nothing(standing) => return Err(nothing(args, place, packet, standing)),
    };
    Ok(prepared.remembered(&writer, entered(answer, &writer)))
}

/// Why what a run left is not finished: to be tried again, where it could not be written.
fn unsealed(
    args: &LabRunArgs,
    place: &Place,
    (campaign, packet): (&Campaign<'_>, Digest),
    error: &CampaignError,
) -> Failure {
    let is_of_disk = error.blame() == Blame::Host;
    match is_of_disk && is_consumed(campaign, packet).is_ok_and(|is| is) {
        true => to_be_sealed(args, place, error),
        false => step_failed(place, error),
    }
}

fn nothing(args: &LabRunArgs, place: &Place, packet: Digest, standing: Standing) -> Failure {
    Failure::new("nothing is left to seal", packet)
        .cause(format!("the packet is {}", stands(standing)))
        .hint(place.hint(&format!("report {}", args.packet)))
}

/// What there is to do in a standing, if there is anything.
fn step(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::Nonce => Some("release it, or where its marker is there seal an abort"),
        Standing::Consumed => Some("close its bag from what is there, and seal an abort"),
        Standing::Closed => Some("analyse and seal its closed bag"),
        Standing::Registered
        | Standing::Rehearsed
        | Standing::Reviewed
        | Standing::Armed
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => None,
    }
}
