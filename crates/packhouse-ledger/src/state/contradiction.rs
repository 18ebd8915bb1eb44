//! How an entry can contradict those before it.

use crate::act::{Date, Name};
use crate::page::utc;
use crate::state::Standing;
use packhouse_base::digest::Digest;

/// What an entry contradicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Index 0 is no genesis, or another entry is one.
    #[error("the first entry, and no other, is `genesis`; this one is `{kind}`")]
    Genesis {
        /// The entry's kind.
        kind: &'static str,
    },
    /// The lane was never opened.
    #[error("lane {lane} was never opened")]
    LaneUnknown {
        /// The lane.
        lane: Name,
    },
    /// The lane was opened before.
    #[error("lane {lane} was opened by entry {opened}; another promise is another lane")]
    LaneExists {
        /// The lane.
        lane: Name,
        /// Index of the entry that opened it.
        opened: u64,
    },
    /// The lane is closed, for good.
    #[error("lane {lane} was closed by entry {since}, for good")]
    LaneClosed {
        /// The lane.
        lane: Name,
        /// Index of the entry that closed it.
        since: u64,
    },
    /// Resumed, but it is open.
    #[error("lane {lane} is open: there is nothing to resume")]
    LaneOpen {
        /// The lane.
        lane: Name,
    },
    /// Closed while an execution is under way.
    #[error("lane {lane} can't be closed: packet {packet} is in state {standing}")]
    LaneBusy {
        /// The lane.
        lane: Name,
        /// The packet.
        packet: Digest,
        /// Its state.
        standing: Standing,
    },
    /// Nothing new begins in a lane that waits.
    #[error("lane {lane} is {phase} until {until}: {reason}")]
    LaneWaiting {
        /// The lane.
        lane: Name,
        /// Paused or blocked.
        phase: &'static str,
        /// Until when.
        until: Date,
        /// Why.
        reason: String,
    },
    /// The packet was registered before.
    #[error("packet {packet} was registered by entry {registered}")]
    PacketExists {
        /// The packet.
        packet: Digest,
        /// Index of its registration.
        registered: u64,
    },
    /// The experiment was registered before.
    #[error("experiment {experiment} was registered as packet {packet}")]
    ExperimentExists {
        /// The experiment.
        experiment: Name,
        /// Its packet.
        packet: Digest,
    },
    /// The packet was never registered.
    #[error("packet {packet} was never registered")]
    PacketUnknown {
        /// The packet.
        packet: Digest,
    },
    /// A second nonce while one is open.
    #[error("packet {packet} has an open nonce {nonce}: a second one is for another run of it")]
    NonceOpen {
        /// The packet.
        packet: Digest,
        /// The open nonce.
        nonce: Digest,
    },
    /// The packet was given up: only words follow.
    #[error(
        "packet {packet} was withdrawn by entry {entry} ({}): no `{kind}` follows", utc(*at_ns)
    )]
    Withdrawn {
        /// The packet.
        packet: Digest,
        /// Index of the entry that withdrew it.
        entry: u64,
        /// That entry's time; for people.
        at_ns: i64,
        /// The refused entry's kind.
        kind: &'static str,
    },
    /// The packet's state does not admit the entry.
    #[error("packet {packet} is {standing}: `{kind}` needs it {needs}")]
    State {
        /// The packet.
        packet: Digest,
        /// Its state.
        standing: Standing,
        /// The entry's kind.
        kind: &'static str,
        /// The states that admit it.
        needs: &'static str,
    },
    /// The nonce was used before.
    #[error("nonce {nonce} was used before")]
    NonceReused {
        /// The nonce.
        nonce: Digest,
    },
    /// Another nonce than the open one.
    #[error("nonce {actual}, but the open one is {expected}")]
    NonceOther {
        /// The open nonce.
        expected: Digest,
        /// What the entry says.
        actual: Digest,
    },
    /// Another entry than the newest rehearsal.
    #[error("entry {actual} is not the packet's newest rehearsal, which is entry {expected}")]
    Rehearsal {
        /// Index of the newest rehearsal.
        expected: u64,
        /// What the entry says.
        actual: u64,
    },
    /// A reviewer's latest word is a rejection.
    #[error("{reviewer:?} rejected the packet in entry {entry}, and said nothing else since")]
    Rejected {
        /// Who.
        reviewer: String,
        /// Index of the rejection.
        entry: u64,
    },
    /// Armed by what is no standing approval.
    #[error("entry {entry} is not an approval of this packet that stands")]
    ReviewUnknown {
        /// The index that was cited.
        entry: u64,
    },
    /// Another bag than the closed one.
    #[error("bag {actual}, but the closed one is {expected}")]
    BagOther {
        /// The closed bag.
        expected: Digest,
        /// What the entry says.
        actual: Digest,
    },
    /// Not the next number.
    #[error("analysis number {actual}, where {expected} is next")]
    Number {
        /// The next.
        expected: u64,
        /// What the entry says.
        actual: u64,
    },
    /// A record without a pass that stands.
    #[error("packet {packet} is {standing}, and its newest analysis says {newest}: no record")]
    RecordVerdict {
        /// The packet.
        packet: Digest,
        /// Its state.
        standing: Standing,
        /// The newest verdict, or `nothing`.
        newest: &'static str,
    },
    /// A record by another seal than one of the packet's with verdict pass.
    #[error("seal {seal} is not one of packet {packet} with verdict pass")]
    RecordSeal {
        /// The packet.
        packet: Digest,
        /// The seal.
        seal: Digest,
    },
    /// Two current records for one key.
    #[error("the current record of {key:?} is {}, not {}", shown(*expected), shown(*actual))]
    RecordCurrent {
        /// The key.
        key: String,
        /// Index of the current record.
        expected: Option<u64>,
        /// What the entry supersedes.
        actual: Option<u64>,
    },
    /// A correction of nothing, or of a correction.
    #[error("entry {entry} {why}")]
    Correction {
        /// The index that was cited.
        entry: u64,
        /// Why it can't be corrected.
        why: &'static str,
    },
}

impl Contradiction {
    /// The reason code of `docs/format/ledger.md`, section 6.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Genesis { .. } => "ledger.genesis",
            Self::LaneUnknown { .. } => "ledger.lane-unknown",
            Self::LaneExists { .. } => "ledger.lane-exists",
            Self::LaneClosed { .. } => "ledger.lane-closed",
            Self::LaneOpen { .. } => "ledger.lane-state",
            Self::LaneBusy { .. } => "ledger.lane-busy",
            Self::LaneWaiting { .. } => "ledger.lane-waiting",
            Self::PacketExists { .. } => "ledger.packet-exists",
            Self::ExperimentExists { .. } => "ledger.experiment-exists",
            Self::PacketUnknown { .. } => "ledger.packet-unknown",
            Self::NonceOpen { .. } => "ledger.nonce-open",
            Self::Withdrawn { .. } | Self::State { .. } => "ledger.state",
            Self::NonceReused { .. } => "ledger.nonce-reused",
            Self::NonceOther { .. } => "ledger.nonce",
            Self::Rehearsal { .. } => "ledger.rehearsal",
            Self::Rejected { .. } => "ledger.rejected",
            Self::ReviewUnknown { .. } => "ledger.review",
            Self::BagOther { .. } => "ledger.bag",
            Self::Number { .. } => "ledger.number",
            Self::RecordVerdict { .. } => "ledger.record-verdict",
            Self::RecordSeal { .. } => "ledger.record-seal",
            Self::RecordCurrent { .. } => "ledger.record-current",
            Self::Correction { .. } => "ledger.correction",
        }
    }
}

fn shown(entry: Option<u64>) -> String {
    entry.map_or("none".to_owned(), |index| format!("entry {index}"))
}
