//! `lab seal`.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_campaign::{Prepared, step_failed};
use crate::lab_open::{Opened, stands};
use crate::lab_run::{plan, released, sealed, to_be_sealed};
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabRunArgs;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{Campaign, CampaignError, is_consumed, would};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::WriterError;
use packhouse_ledger::state::Standing;

/// Finishes what a killed run left.
pub(crate) fn execute(args: &LabRunArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    not_withdrawn(&opened, &ledger, packet)?;
    let prepared = Prepared::new(&opened, args.key.as_deref())?;
    let standing = opened.standing(&ledger, packet)?.standing;
    if !args.execute {
        if !is_left(standing) {
            return Err(nothing(args, place, packet, standing));
        }
        let campaign = prepared.campaign();
        let would = would(&campaign, &ledger, packet);
        let would = would.map_err(|error| unsealed(args, place, (&campaign, packet), &error))?;
        return Ok(plan(("seal", args), place, (packet, standing), &would));
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
    Ok(prepared.remembered(&writer, answer))
}

/// Why what a run left is not finished: to be tried again, where it could not be written.
fn unsealed(
    args: &LabRunArgs,
    place: &Place,
    (campaign, packet): (&Campaign<'_>, Digest),
    error: &CampaignError,
) -> Failure {
    // Who executes it now is not done with it.
    let is_busy = matches!(error, CampaignError::Ledger(WriterError::PacketBusy { .. }));
    let is_of_disk = error.blame() == Blame::Host && !is_busy;
    match is_of_disk && is_consumed(campaign, packet).is_ok_and(|is| is) {
        true => to_be_sealed(args, place, error),
        false => step_failed(place, &args.packet, error),
    }
}

fn nothing(args: &LabRunArgs, place: &Place, packet: Digest, standing: Standing) -> Failure {
    Failure::new("nothing is left to seal", packet)
        .cause(format!("the packet is {}", stands(standing)))
        .hint(place.hint(&format!("report {}", args.packet)))
}

/// Whether a run left something to finish.
fn is_left(standing: Standing) -> bool {
    match standing {
        Standing::Nonce | Standing::Consumed | Standing::Closed => true,
        Standing::Registered
        | Standing::Rehearsed
        | Standing::Reviewed
        | Standing::Armed
        | Standing::Withdrawn
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => false,
    }
}
