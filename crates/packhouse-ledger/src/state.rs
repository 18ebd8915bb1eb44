//! The state that entries make: lanes, packets, records. The one place that says what may follow.
//!
//! Invariants:
//! - `judge` looks only at the state and the entry; `apply` is called with what it let pass;
//! - a packet has one `Standing`, and only the table of the format changes it;
//! - a key has at most one current record.
//!
//! Never: looks at the time, but to note that a clock went back.
//!
//! Format: `docs/format/ledger.md`, section 5.

mod contradiction;
mod judge;

pub use contradiction::Contradiction;

use crate::act::{
    Act, Analysed, Armed, Date, Lane, LaneAction, Name, Record, Registered, Rehearsed, Review,
    Reviewed, Sealed, Verdict,
};
use crate::entry::Entry;
use packhouse_base::digest::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// What the entries of a ledger make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The lab's title and id; `None` before the genesis only.
    genesis: Option<(String, Digest)>,
    /// Entries so far.
    count: u64,
    /// Time of the newest entry.
    at_ns: i64,
    lanes: BTreeMap<Name, LaneState>,
    packets: BTreeMap<Digest, PacketState>,
    experiments: BTreeMap<Name, Digest>,
    records: BTreeMap<String, RecordState>,
    corrections: BTreeMap<u64, Vec<u64>>,
    corrected: BTreeSet<u64>,
    notes: Vec<u64>,
    nonces: BTreeSet<Digest>,
    clock_went_back: Vec<u64>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// SHA-256 of its document when it was opened.
    pub document: Digest,
    /// Index of the entry that opened it.
    pub opened: u64,
    /// What it does now.
    pub phase: LanePhase,
    /// Index of the entry that made it so.
    pub since: u64,
    /// Why.
    pub reason: String,
}

/// What a lane does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LanePhase {
    /// Goes on.
    Open,
    /// Paused by choice.
    Paused {
        /// Until when.
        until: Date,
    },
    /// Waits for something else.
    Blocked {
        /// Until when.
        until: Date,
    },
    /// Over for good.
    Closed,
}

/// Where a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Frozen; no rehearsal, or the newest is not green.
    Registered,
    /// The newest rehearsal is green.
    Rehearsed,
    /// Somebody said something since.
    Reviewed,
    /// May be executed.
    Armed,
    /// Given up before it was executed.
    Withdrawn,
    /// An execution was announced.
    Nonce,
    /// The execution began.
    Consumed,
    /// The bag is closed.
    Closed,
    /// Sealed: every gate passed.
    SealedPass,
    /// Sealed: a gate did not.
    SealedFail,
    /// Sealed: the run did not come to its end.
    SealedAbort,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketState {
    /// Its experiment.
    pub experiment: Name,
    /// Its lane.
    pub lane: Name,
    /// SHA-256 of its preregistration.
    pub prereg: Digest,
    /// The single difference under test.
    pub treatment: String,
    /// Where it stands.
    pub standing: Standing,
    /// Index of the entry that put it there.
    pub since: u64,
    /// Index of its registration.
    pub registered: u64,
    /// Indexes of its rehearsals, oldest first.
    pub rehearsals: Vec<u64>,
    /// The newest rehearsal and its index, if it is green.
    pub green: Option<(u64, Rehearsed)>,
    /// Each reviewer's latest word.
    pub words: BTreeMap<String, ReviewState>,
    /// The newest arming and its index, while it stands.
    pub armed: Option<(u64, Armed)>,
    /// Its end before any execution, if that came.
    pub withdrawn: Option<WithdrawalState>,
    /// The open or used nonce.
    pub nonce: Option<Digest>,
    /// Id of the folder that its marker will be in, where the nonce names one.
    pub markers: Option<Digest>,
    /// SHA-256 of the marker, once consumed.
    pub marker: Option<Digest>,
    /// The closed bag.
    pub bag: Option<Digest>,
    /// Its analyses, oldest first: the first is the sealed one.
    pub analyses: Vec<AnalysisState>,
    /// Every entry about it, oldest first.
    pub entries: Vec<u64>,
}

/// A reviewer's latest word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewState {
    /// Index of the entry.
    pub entry: u64,
    /// The word.
    pub verdict: Review,
    /// The rehearsal that was looked at.
    pub rehearsal: u64,
    /// What else they say.
    pub note: String,
}

/// How a packet was given up before its execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalState {
    /// Index of the entry.
    pub entry: u64,
    /// When it was entered, by its writer's wall clock; for people.
    pub at_ns: i64,
    /// Why.
    pub reason: String,
}

/// An analysis of a sealed bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisState {
    /// Index of the entry.
    pub entry: u64,
    /// From 1.
    pub number: u64,
    /// What it says.
    pub verdict: Verdict,
    /// SHA-256 of `analysis.json`.
    pub analysis: Digest,
    /// SHA-256 of the seal.
    pub seal: Digest,
}

/// The current record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordState {
    /// Index of the entry.
    pub entry: u64,
    /// What it says.
    pub record: Record,
    /// Index of an analysis that no longer says pass.
    pub disputed: Option<u64>,
    /// Indexes of the records before it, oldest first.
    pub earlier: Vec<u64>,
}

impl State {
    /// The lab's title; empty before the genesis only.
    pub fn lab(&self) -> &str {
        self.genesis.as_ref().map_or("", |(lab, _)| lab)
    }

    /// The lab's id; zeros before the genesis only.
    pub fn id(&self) -> Digest {
        let id = self.genesis.as_ref().map(|(_, id)| *id);
        id.unwrap_or(crate::entry::NO_ENTRY)
    }

    /// Lanes by name.
    pub fn lanes(&self) -> &BTreeMap<Name, LaneState> {
        &self.lanes
    }

    /// Packets by digest.
    pub fn packets(&self) -> &BTreeMap<Digest, PacketState> {
        &self.packets
    }

    /// Packets by experiment.
    pub fn experiments(&self) -> &BTreeMap<Name, Digest> {
        &self.experiments
    }

    /// Current records by key.
    pub fn records(&self) -> &BTreeMap<String, RecordState> {
        &self.records
    }

    /// Corrections by the entry that they correct.
    pub fn corrections(&self) -> &BTreeMap<u64, Vec<u64>> {
        &self.corrections
    }

    /// Indexes of notes.
    pub fn notes(&self) -> &[u64] {
        &self.notes
    }

    /// Indexes of entries whose time is before that of the entry before.
    pub fn clock_went_back(&self) -> &[u64] {
        &self.clock_went_back
    }

    /// Packets that a text means: an experiment's name, or the first eight or more digits of a
    /// packet's digest. More than one: the text is ambiguous; none: nothing has that name.
    pub fn packets_named(&self, text: &str) -> Vec<Digest> {
        let named = Name::parse(text).ok();
        if let Some(packet) = named.and_then(|name| self.experiments.get(&name)) {
            return vec![*packet];
        }
        if text.len() < 8 {
            return Vec::new();
        }
        let packets = self.packets.keys().copied();
        packets
            .filter(|packet| packet.to_string().starts_with(text))
            .collect()
    }

    /// Takes an entry in that `judge` let pass.
    pub(crate) fn apply(&mut self, entry: &Entry) {
        if self.count > 0 && entry.at_ns < self.at_ns {
            self.clock_went_back.push(entry.index);
        }
        self.count = entry.index + 1;
        self.at_ns = entry.at_ns;
        match &entry.act {
            Act::Genesis(body) => self.genesis = Some((body.lab.clone(), body.id)),
            Act::Lane(body) => self.apply_lane(entry.index, body),
            Act::Registered(body) => self.apply_registered(entry.index, body),
            Act::Record(body) => self.apply_record(entry.index, body),
            Act::Corrected(body) => {
                self.corrected.insert(entry.index);
                self.corrections
                    .entry(body.entry)
                    .or_default()
                    .push(entry.index);
            }
            Act::Note(_) => self.notes.push(entry.index),
            Act::Analysed(body) => self.dispute(entry.index, body),
            Act::Nonce(body) => {
                self.nonces.insert(body.nonce);
            }
            Act::Rehearsed(_)
            | Act::Reviewed(_)
            | Act::Armed(_)
            | Act::Released(_)
            | Act::Withdrawn(_)
            | Act::Consumed(_)
            | Act::Closed(_)
            | Act::Sealed(_) => {}
        }
        if let Some(packet) = entry.act.packet().and_then(|id| self.packets.get_mut(&id)) {
            packet.entries.push(entry.index);
            packet.apply(entry);
        }
    }

    fn apply_lane(&mut self, index: u64, body: &Lane) {
        let phase = match (body.action, &body.until) {
            (LaneAction::Pause, Some(until)) => LanePhase::Paused {
                until: until.clone(),
            },
            (LaneAction::Block, Some(until)) => LanePhase::Blocked {
                until: until.clone(),
            },
            (LaneAction::Close, _) => LanePhase::Closed,
            (LaneAction::Open | LaneAction::Resume | LaneAction::Pause | LaneAction::Block, _) => {
                LanePhase::Open
            }
        };
        let lane = self.lanes.entry(body.lane.clone()).or_insert(LaneState {
            document: body.document.unwrap_or(crate::entry::NO_ENTRY),
            opened: index,
            phase: LanePhase::Open,
            since: index,
            reason: String::new(),
        });
        lane.phase = phase;
        lane.since = index;
        lane.reason.clone_from(&body.reason);
    }

    fn apply_registered(&mut self, index: u64, body: &Registered) {
        self.experiments
            .insert(body.experiment.clone(), body.packet);
        let packet = PacketState {
            experiment: body.experiment.clone(),
            lane: body.lane.clone(),
            prereg: body.prereg,
            treatment: body.treatment.clone(),
            standing: Standing::Registered,
            since: index,
            registered: index,
            rehearsals: Vec::new(),
            green: None,
            words: BTreeMap::new(),
            armed: None,
            withdrawn: None,
            nonce: None,
            markers: None,
            marker: None,
            bag: None,
            analyses: Vec::new(),
            entries: Vec::new(),
        };
        self.packets.insert(body.packet, packet);
    }

    fn apply_record(&mut self, index: u64, body: &Record) {
        let mut earlier = Vec::new();
        if let Some(before) = self.records.remove(&body.key) {
            earlier = before.earlier;
            earlier.push(before.entry);
        }
        let record = RecordState {
            entry: index,
            record: body.clone(),
            disputed: None,
            earlier,
        };
        self.records.insert(body.key.clone(), record);
    }

    /// Marks the records that an analysis speaks against.
    fn dispute(&mut self, index: u64, body: &Analysed) {
        if body.verdict == Verdict::Pass {
            return;
        }
        for record in self.records.values_mut() {
            if record.record.packet == body.packet && record.disputed.is_none() {
                record.disputed = Some(index);
            }
        }
    }
}

impl PacketState {
    /// Approvals that stand, by entry.
    pub fn approvals(&self) -> Vec<u64> {
        let words = self.words.values();
        let mut entries: Vec<u64> = words
            .filter(|word| word.verdict == Review::Approve)
            .map(|word| word.entry)
            .collect();
        entries.sort_unstable();
        entries
    }

    /// The rejection that stands, if any, with its reviewer.
    pub fn rejection(&self) -> Option<(&str, &ReviewState)> {
        let mut words = self.words.iter();
        let found = words.find(|(_, word)| word.verdict == Review::Reject);
        found.map(|(reviewer, word)| (reviewer.as_str(), word))
    }

    /// The newest analysis's verdict.
    pub fn newest_verdict(&self) -> Option<Verdict> {
        self.analyses.last().map(|analysis| analysis.verdict)
    }

    fn apply(&mut self, entry: &Entry) {
        let index = entry.index;
        match &entry.act {
            Act::Rehearsed(body) => self.apply_rehearsed(index, body),
            Act::Reviewed(body) => self.apply_reviewed(index, body),
            Act::Armed(body) => {
                self.armed = Some((index, body.clone()));
                self.stand(index, Standing::Armed);
            }
            Act::Nonce(body) => {
                self.nonce = Some(body.nonce);
                self.markers = body.markers;
                self.stand(index, Standing::Nonce);
            }
            Act::Released(_) => {
                self.nonce = None;
                self.markers = None;
                self.stand(index, Standing::Armed);
            }
            Act::Withdrawn(body) => {
                self.armed = None;
                self.withdrawn = Some(WithdrawalState {
                    entry: index,
                    at_ns: entry.at_ns,
                    reason: body.reason.clone(),
                });
                self.stand(index, Standing::Withdrawn);
            }
            Act::Consumed(body) => {
                self.marker = Some(body.marker);
                self.stand(index, Standing::Consumed);
            }
            Act::Closed(body) => {
                self.bag = Some(body.bag);
                self.stand(index, Standing::Closed);
            }
            Act::Sealed(body) => self.apply_sealed(index, body),
            Act::Analysed(body) => self.analyses.push(AnalysisState {
                entry: index,
                number: body.number,
                verdict: body.verdict,
                analysis: body.analysis,
                seal: body.seal,
            }),
            Act::Genesis(_)
            | Act::Lane(_)
            | Act::Registered(_)
            | Act::Record(_)
            | Act::Corrected(_)
            | Act::Note(_) => {}
        }
    }

    fn apply_rehearsed(&mut self, index: u64, body: &Rehearsed) {
        self.rehearsals.push(index);
        self.armed = None;
        self.green = body.green.then(|| (index, body.clone()));
        let standing = if body.green {
            Standing::Rehearsed
        } else {
            Standing::Registered
        };
        self.stand(index, standing);
    }

    fn apply_reviewed(&mut self, index: u64, body: &Reviewed) {
        let word = ReviewState {
            entry: index,
            verdict: body.verdict,
            rehearsal: body.rehearsal,
            note: body.note.clone(),
        };
        self.words.insert(body.reviewer.clone(), word);
        if self.standing == Standing::Armed && body.verdict == Review::Approve {
            return;
        }
        self.armed = None;
        self.stand(index, Standing::Reviewed);
    }

    fn apply_sealed(&mut self, index: u64, body: &Sealed) {
        self.analyses.push(AnalysisState {
            entry: index,
            number: body.number,
            verdict: body.verdict,
            analysis: body.analysis,
            seal: body.seal,
        });
        let standing = match body.verdict {
            Verdict::Pass => Standing::SealedPass,
            Verdict::Fail => Standing::SealedFail,
            Verdict::Abort => Standing::SealedAbort,
        };
        self.stand(index, standing);
    }

    fn stand(&mut self, index: u64, standing: Standing) {
        self.standing = standing;
        self.since = index;
    }
}

impl Standing {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Rehearsed => "rehearsed",
            Self::Reviewed => "reviewed",
            Self::Armed => "armed",
            Self::Withdrawn => "withdrawn",
            Self::Nonce => "nonce",
            Self::Consumed => "consumed",
            Self::Closed => "closed",
            Self::SealedPass => "sealed-pass",
            Self::SealedFail => "sealed-fail",
            Self::SealedAbort => "sealed-abort",
        }
    }

    /// Whether an execution was announced and is not sealed or released yet.
    pub fn has_begun(self) -> bool {
        match self {
            Self::Nonce | Self::Consumed | Self::Closed => true,
            Self::Registered
            | Self::Rehearsed
            | Self::Reviewed
            | Self::Armed
            | Self::Withdrawn
            | Self::SealedPass
            | Self::SealedFail
            | Self::SealedAbort => false,
        }
    }

    /// Whether it is sealed.
    pub fn is_sealed(self) -> bool {
        match self {
            Self::SealedPass | Self::SealedFail | Self::SealedAbort => true,
            Self::Registered
            | Self::Rehearsed
            | Self::Reviewed
            | Self::Armed
            | Self::Withdrawn
            | Self::Nonce
            | Self::Consumed
            | Self::Closed => false,
        }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl LanePhase {
    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused { .. } => "paused",
            Self::Blocked { .. } => "blocked",
            Self::Closed => "closed",
        }
    }
}
