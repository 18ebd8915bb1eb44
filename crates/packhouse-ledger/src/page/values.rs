//! What a page is drawn from. Texts are as their documents have them; digests are 64 hex digits.

use super::live::Live;
use super::ran::Ran;
use crate::act::Verdict;
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

/// All that the ledger and the sealed analyses say of a lab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The lab's name.
    pub lab: String,
    /// The lab's random id, 64 hex digits.
    pub lab_id: String,
    /// Entries in the ledger.
    pub entry_count: u64,
    /// Digest of the last entry.
    pub head: String,
    /// The last entry's time, nanoseconds since 1970.
    pub last_at_ns: i64,
    /// Lanes, in the order in which they were opened.
    pub lanes: Vec<Lane>,
    /// Every record, in the ledger's order.
    pub records: Vec<Record>,
    /// Packets, in the order in which they were registered.
    pub packets: Vec<Packet>,
    /// The newest notes, newest first.
    pub notes: Vec<Note>,
    /// What a reader should know before believing the rest.
    pub doubts: Vec<Doubt>,
    /// Every entry of the ledger, in its order.
    pub marks: Vec<Mark>,
    /// What was observed on this host; `None` on a page that is kept.
    pub live: Option<Live>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its id.
    pub lane: String,
    /// Its state.
    pub state: LaneState,
    /// Why it is in that state.
    pub reason: String,
    /// The day until which it waits, `YYYY-MM-DD`.
    pub until: Option<String>,
    /// When it came into that state.
    pub since_ns: i64,
    /// The entry that brought it into that state.
    pub entry: u64,
    /// What its document says.
    pub text: Option<LaneText>,
}

/// The states of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// Experiments may be registered.
    Open,
    /// Set aside by choice until a date.
    Paused,
    /// Held up by something else until a date.
    Blocked,
    /// Over for good.
    Closed,
}

/// What a lane's document says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneText {
    /// One line for people.
    pub title: String,
    /// The model.
    pub model: String,
    /// How its weights are stored.
    pub quantisation: String,
    /// The runtime.
    pub runtime: String,
    /// The hardware.
    pub hardware: String,
    /// The numerical promise.
    pub promise: String,
    /// The teacher.
    pub teacher: String,
    /// The key of its records.
    pub record_key: String,
}

/// A record: a claim that a sealed pass carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is a record of.
    pub key: String,
    /// The claim.
    pub claim: String,
    /// The widths that it covers.
    pub widths: Vec<u64>,
    /// The packet whose seal it cites.
    pub packet: String,
    /// The number of that seal.
    pub seal_number: u64,
    /// Its entry.
    pub entry: u64,
    /// When it was entered.
    pub at_ns: i64,
    /// The entry of the record that took its place.
    pub superseded_by: Option<u64>,
    /// The entry of an analysis that no longer passes.
    pub disputed_by: Option<u64>,
    /// Corrections of it, in the ledger's order.
    pub corrections: Vec<String>,
}

/// A packet and all that became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its digest.
    pub packet: String,
    /// Its experiment.
    pub experiment: String,
    /// Its lane.
    pub lane: String,
    /// The one difference that it tests.
    pub treatment: String,
    /// Its state.
    pub state: PacketState,
    /// What the ledger gives as reason for that state: stage and words; may be empty.
    pub reason: String,
    /// The entry that brought it into that state.
    pub entry: u64,
    /// When it came into that state.
    pub since_ns: i64,
    /// Its rehearsals.
    pub rehearsals: Rehearsals,
    /// Its reviews since the newest rehearsal.
    pub reviews: Vec<Review>,
    /// What its preregistration says.
    pub plan: Found<Plan>,
    /// Why it was released, each time, oldest first.
    pub released: Vec<String>,
    /// Its seals, the first analysis first.
    pub seals: Vec<Sealed>,
    /// What ran, on a report; `None` on a page that is kept.
    pub ran: Option<Ran>,
}

/// The states of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketState {
    /// Frozen, never rehearsed.
    Registered,
    /// Its newest rehearsal failed.
    RehearsedRed,
    /// Its newest rehearsal passed.
    RehearsedGreen,
    /// Approved by somebody, rejected by nobody.
    Reviewed,
    /// A reviewer's latest word is no.
    Rejected,
    /// It may run once.
    Armed,
    /// A run has its nonce; whether it was consumed is not yet told.
    Nonce,
    /// A run ended before the marker; it may run again.
    Released,
    /// A run ended before the marker: another run of the packet, of a copy of the lab, has it.
    Spent,
    /// Given up before it was run.
    Withdrawn,
    /// Its marker is taken: it runs, or was killed.
    Consumed,
    /// Its bag is closed and waits for analysis and seal.
    Closed,
    /// Every gate passed.
    SealedPass,
    /// A gate failed.
    SealedFail,
    /// It was consumed and has no answer.
    SealedAbort,
}

/// How often a packet was rehearsed, and what the newest green rehearsal showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsals {
    /// Rehearsals that passed.
    pub green_count: u64,
    /// All rehearsals.
    pub count: u64,
    /// Tamper cases that the newest green one rejected, each for its own reason.
    pub tampers: u64,
    /// The smallest saving for each cycle that the timing of every rehearsal could have told, by
    /// device: the largest of all their figures.
    pub detectable_ns: Vec<(String, u64)>,
    /// What rehearsals that were not green could have told, in their order: device and saving.
    pub red_ns: Vec<(String, u64)>,
}

/// A reviewer's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Who.
    pub reviewer: String,
    /// Yes or no.
    pub approves: bool,
    /// In their words.
    pub note: String,
}

/// What a preregistration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Approvals that arming needs.
    pub reviewers: u64,
    /// The question.
    pub question: String,
    /// What a pass authorises.
    pub authorises: String,
    /// What it does not.
    pub does_not_authorise: String,
    /// What is left out on purpose.
    pub exclusions: Vec<String>,
    /// The gate of its timing leg.
    pub timing: Option<TimingRule>,
}

/// The two thresholds of a timing gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingRule {
    /// Blocks that must be won on each device.
    pub minimum_wins: u64,
    /// The least median saving for each cycle, in nanoseconds.
    pub minimum_median_saving_ns: u64,
}

/// One seal of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The analysis' number, from 1.
    pub number: u64,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its entry.
    pub entry: u64,
    /// When it was entered.
    pub at_ns: i64,
    /// Digest of the seal.
    pub seal: String,
    /// Digest of the bag.
    pub bag: String,
    /// Why a later analysis was made; empty for the first.
    pub why: String,
    /// The analysis itself.
    pub reading: Found<Evidence>,
}

/// A document or analysis that the ledger names by its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Found<T> {
    /// The file is the one that the ledger names.
    Here(T),
    /// There is no such file here.
    #[default]
    Absent,
    /// There is a file, which is refused for this reason.
    Refused(String),
}

impl<T> Found<T> {
    /// What is there.
    pub fn here(&self) -> Option<&T> {
        match self {
            Self::Here(found) => Some(found),
            Self::Absent | Self::Refused(_) => None,
        }
    }

    /// Why nothing is there.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Here(_) => None,
            Self::Absent => Some("not here"),
            Self::Refused(why) => Some(why),
        }
    }
}

/// What an analysis found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Its gates.
    pub gates: Vec<Gate>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Its timing, by device.
    pub timing: Vec<Timing>,
    /// What a bag alone can't prove.
    pub says: Vec<String>,
}

/// One gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub gate: String,
    /// What it rests on.
    pub basis: Basis,
    /// Whether it passed; `None`: it was not reached.
    pub passed: Option<bool>,
    /// Whether the verdict asks it.
    pub decides: bool,
    /// What was asked for.
    pub threshold: String,
    /// What was found.
    pub measured: String,
    /// The first failures.
    pub failures: Vec<String>,
    /// All failures.
    pub failure_count: u64,
}

/// What a gate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Recomputed from raw bytes.
    Verified,
    /// The program's own word.
    Attested,
    /// Some of both.
    Mixed,
}

/// One boundary of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The leg's number.
    pub leg: u64,
    /// The device.
    pub device: String,
    /// `control` or `candidate`.
    pub treatment: String,
    /// The case's number in its session.
    pub index: u64,
    /// The fixture.
    pub fixture: String,
    /// The arm.
    pub arm: String,
    /// The width.
    pub width: u64,
    /// The repeat.
    pub repeat: u64,
    /// The boundary.
    pub boundary: String,
    /// Whether it kept the promise.
    pub equal: bool,
}

/// The timing of one leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The leg's number.
    pub leg: u64,
    /// The device.
    pub device: String,
    /// Savings for each cycle, one a block, in order.
    pub savings: Vec<Saving>,
    /// Blocks with a saving above 0.
    pub wins: u64,
    /// Their median.
    pub median: Saving,
    /// Their Hodges-Lehmann shift.
    pub hodges_lehmann: Saving,
    /// p of the sign test, as the analysis spells it.
    pub sign_test_p: String,
    /// Lower bound of the median, by bootstrap, at 95 %.
    pub bootstrap_lower_95: Saving,
}

/// An exact number of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saving {
    /// Above the line.
    pub numerator: i128,
    /// Below it, at least 1.
    pub denominator: u64,
}

/// Words that somebody entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its entry.
    pub entry: u64,
    /// When it was entered.
    pub at_ns: i64,
    /// The lane that it is about.
    pub lane: Option<String>,
    /// The words.
    pub text: String,
}

/// Something to know before believing the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What kind it is, in a word or two.
    pub what: String,
    /// The whole sentence.
    pub text: String,
    /// The entry that it is about.
    pub entry: Option<u64>,
}

/// An entry as the timeline shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its index.
    pub index: u64,
    /// Its time.
    pub at_ns: i64,
    /// What it is.
    pub kind: MarkKind,
    /// The lane that it belongs to, if any.
    pub lane: Option<String>,
    /// The experiment that it belongs to, if any.
    pub experiment: Option<String>,
    /// The entry in a few words.
    pub words: String,
    /// Whether its time is before that of the entry before.
    pub went_back: bool,
}

/// What an entry means for the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A lab, lane, registration, review or the like.
    Act,
    /// A green rehearsal or a sealed pass.
    Pass,
    /// A red rehearsal, a rejection or a sealed fail.
    Fail,
    /// A release, a withdrawal or a sealed abort.
    Abort,
    /// A marker: the one irreversible act.
    Consumed,
    /// A record.
    Record,
    /// A note or a correction.
    Note,
}

/// The documents and analyses that a page is drawn from beside the ledger. What is in none of
/// the maps is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// Lanes' documents, by lane.
    pub lanes: BTreeMap<String, Found<LaneText>>,
    /// Preregistrations, by experiment.
    pub plans: BTreeMap<String, Found<Plan>>,
    /// Analyses, by packet and number.
    pub analyses: BTreeMap<(Digest, u64), Found<Evidence>>,
}
