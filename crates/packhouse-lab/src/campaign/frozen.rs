//! A registered packet with its documents, each with the bytes that go into the bag.

use super::{Campaign, CampaignError, Fault};
use crate::freeze::{self, Documents, FreezeError, Held};
use crate::packet::Packet;
use crate::prereg::{Prereg, Program, Treatment};
use crate::world::Launch;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::Act;
use packhouse_ledger::state::PacketState;
use packhouse_ledger::{Ledger, Stage};
use std::sync::OnceLock;

/// A packet, its lane and its preregistration. Whether they are what was registered is
/// [`freeze::unchanged`]'s to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The packet's digest.
    pub digest: Digest,
    /// The packet.
    pub packet: Packet,
    /// Bytes of `packet.json`.
    pub packet_bytes: Vec<u8>,
    /// Preregistration and lane.
    pub documents: Documents,
    /// Which files its frozen ones were when they were first measured.
    pub(super) held: OnceLock<Held>,
}

impl Frozen {
    /// Reads the documents of a packet that the ledger knows.
    ///
    /// # Errors
    /// When one can't be read or is no document of its kind, and when the packet is another one.
    pub fn load(
        campaign: &Campaign<'_>,
        ledger: &Ledger,
        packet: Digest,
    ) -> Result<Self, CampaignError> {
        let experiment = standing(ledger, packet)?.experiment.as_str();
        let path = freeze::packet_path(experiment);
        let found = freeze::packet(campaign.lab, experiment)?;
        let Some((document, packet_bytes)) = found else {
            return Err(CampaignError::Freeze(FreezeError::Absent { path }));
        };
        let actual = Digest::of(&packet_bytes);
        if actual != packet {
            return Err(CampaignError::Changed {
                path,
                expected: packet,
                actual,
            });
        }
        Ok(Self {
            digest: packet,
            packet: document,
            packet_bytes,
            documents: freeze::documents(campaign.lab, experiment)?,
            held: OnceLock::new(),
        })
    }

    /// The preregistration.
    pub fn prereg(&self) -> &Prereg {
        &self.documents.prereg
    }

    /// The files of a bag's payload that are documents.
    pub(crate) fn files(&self) -> [(&'static str, &[u8]); 3] {
        [
            ("lane.toml", &self.documents.lane_bytes),
            ("packet.json", &self.packet_bytes),
            ("prereg.toml", &self.documents.prereg_bytes),
        ]
    }

    /// How the program of a treatment is started; in a rehearsal the null program plays the
    /// candidate.
    pub(super) fn launch(
        &self,
        campaign: &Campaign<'_>,
        treatment: Treatment,
        is_rehearsal: bool,
    ) -> Result<Launch, Fault> {
        let null = Program::null();
        let control = self.prereg().control.as_ref().unwrap_or(&null);
        let program = match (treatment, is_rehearsal) {
            (Treatment::Control, _) | (Treatment::Candidate, true) => control,
            (Treatment::Candidate, false) => &self.prereg().candidate,
        };
        let launch = freeze::launch(campaign.lab, program);
        launch.map_err(|error| Fault::new(Stage::Identities, error))
    }
}

/// Where the ledger has a packet.
pub(crate) fn standing(ledger: &Ledger, packet: Digest) -> Result<&PacketState, CampaignError> {
    let state = ledger.state().packets().get(&packet);
    state.ok_or(CampaignError::Unknown { packet })
}

/// The ledger's lines that a bag carries: genesis, those of the lane, those of the packet up to its
/// `consumed`.
pub(crate) fn authority(ledger: &Ledger, packet: Digest) -> Vec<u8> {
    let state = ledger.state().packets().get(&packet);
    let lane = state.map(|state| &state.lane);
    let mut bytes = Vec::new();
    for entry in ledger.entries() {
        let is_ours = match &entry.act {
            Act::Genesis(_) => true,
            Act::Lane(body) => Some(&body.lane) == lane,
            act => act.packet() == Some(packet),
        };
        if is_ours {
            bytes.extend_from_slice(ledger.line(entry.index).unwrap_or_default());
        }
        if matches!(&entry.act, Act::Consumed(body) if body.packet == packet) {
            break;
        }
    }
    bytes
}
