//! What `run` would come to, without doing it: the same questions in the same order.

use super::{
    Campaign, CampaignError, EVIDENCE, Fault, Frozen, checks, own_analyzer, rehearse, standing,
};
use crate::recovery::{Unmarked, unmarked};
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
    /// The same, since nobody can see here what became of its open nonce: why.
    Lost(String),
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
            let lost = match unmarked(campaign, taken.as_ref(), ledger, packet)? {
                Some(Unmarked::Released(reason)) => return Ok(Would::Release(reason)),
                Some(Unmarked::Lost(reason)) => Some(reason),
                None => None,
            };
            own_analyzer(campaign, ledger, packet)?;
            Ok(match (is_closed(campaign, packet), lost) {
                (true, _) => Would::Finish,
                (false, Some(reason)) => Would::Lost(reason),
                (false, None) => Would::Abort,
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
        | Standing::Withdrawn
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => Err(CampaignError::Standing {
            packet,
            expected: "armed",
            actual: actual.as_str(),
        }),
    }
}

/// Says what a rehearsal of a packet would come to before any program is started: nothing, or why
/// it would not be green. Appends nothing.
///
/// # Errors
/// As `rehearse` would refuse it before it enters anything.
pub fn would_rehearse(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Option<Fault>, CampaignError> {
    rehearse::admitted(ledger, packet, campaign.lab.host.analyzer()?)?;
    if is_packet_held(&campaign.lab.root, packet)? {
        return Err(WriterError::PacketBusy { packet }.into());
    }
    if is_consumed(campaign, packet)? {
        return Err(CampaignError::Consumed { packet });
    }
    let frozen = Frozen::load(campaign, ledger, packet)?;
    Ok(rehearse::ready(campaign, ledger, &frozen).err())
}

/// Whether a packet has a marker of this user on this host, whatever the marker looks like.
///
/// # Errors
/// When the folder of markers can't be used.
pub fn is_consumed(campaign: &Campaign<'_>, packet: Digest) -> Result<bool, CampaignError> {
    Ok(checks::taken(campaign, packet)?.is_some())
}

/// Whether the packet's bag was closed. What can't be read is found when it is done.
fn is_closed(campaign: &Campaign<'_>, packet: Digest) -> bool {
    let evidence = campaign.lab.root.open_dir(EVIDENCE);
    let home = evidence.and_then(|evidence| evidence.open_dir(packet.to_string()));
    home.is_ok_and(|home| matches!(look(&home), Ok(Found::Closed)))
}
