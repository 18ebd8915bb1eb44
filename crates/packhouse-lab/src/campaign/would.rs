//! What `run` would come to, without doing it: the same questions in the same order.

use super::{Campaign, CampaignError, EVIDENCE, Frozen, checks, own_analyzer, standing};
use crate::recovery::unmarked;
use packhouse_bag::Found;
use packhouse_bag::open::look;
use packhouse_base::digest::Digest;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, WriterError, is_packet_held};

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Would {
    /// Run it, once.
    Run,
    /// Release it, since its open nonce has no marker of its own: why.
    Release(String),
    /// Close its bag from what is there, and seal an abort.
    Abort,
    /// Analyse and seal its closed bag.
    Finish,
}

/// Says what running a packet would come to. Appends nothing.
///
/// # Errors
/// As `run` and `recover` would refuse it before they write anything.
pub fn would(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Would, CampaignError> {
    let actual = standing(ledger, packet)?.standing;
    if is_packet_held(&campaign.lab.root, packet)? {
        return Err(WriterError::PacketBusy { packet }.into());
    }
    let taken = checks::taken(campaign, packet)?;
    match actual {
        Standing::Nonce | Standing::Consumed => {
            let unmarked = unmarked(taken.as_ref(), ledger, packet);
            if let (Standing::Nonce, Some(reason)) = (actual, unmarked) {
                return Ok(Would::Release(reason));
            }
            own_analyzer(campaign, ledger, packet)?;
            Ok(match is_closed(campaign, packet) {
                true => Would::Finish,
                false => Would::Abort,
            })
        }
        Standing::Closed => {
            own_analyzer(campaign, ledger, packet)?;
            Ok(Would::Finish)
        }
        Standing::Registered | Standing::Rehearsed | Standing::Reviewed | Standing::Armed
            if taken.is_some() =>
        {
            Err(CampaignError::Consumed { packet })
        }
        Standing::Armed => {
            let frozen = Frozen::load(campaign, ledger, packet)?;
            let checked = checks::before_run(campaign, ledger, &frozen);
            checked.map_err(CampaignError::Refused)?;
            Ok(Would::Run)
        }
        Standing::Registered
        | Standing::Rehearsed
        | Standing::Reviewed
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => Err(CampaignError::Standing {
            packet,
            expected: "armed",
            actual: actual.as_str(),
        }),
    }
}

/// Whether the packet's bag was closed. What can't be read is found when it is done.
fn is_closed(campaign: &Campaign<'_>, packet: Digest) -> bool {
    let evidence = campaign.lab.root.open_dir(EVIDENCE);
    let home = evidence.and_then(|evidence| evidence.open_dir(packet.to_string()));
    home.is_ok_and(|home| matches!(look(&home), Ok(Found::Closed)))
}
