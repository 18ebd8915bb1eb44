//! What an entry says: a closed set of kinds, each with its own body.
//!
//! Invariants: every field of a body is taken by name and none is left over; what `body` writes,
//! `read` takes back to the same act. Whether an act contradicts others is `state`'s to say.
//!
//! Format: `docs/format/ledger.md`, sections 3 and 4.

mod fields;
mod forms;

pub use fields::{FieldFault, REVIEWER};
pub(crate) use fields::{FieldValue, Fields, Written};
pub use forms::{
    Date, DateError, LaneAction, Name, NameError, Review, Stage, Verdict, is_reviewer,
};

use packhouse_base::digest::Digest;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Defines the kinds: `field: type as how`, where how is a method of `Fields` and `Written`.
macro_rules! acts {
    ($($(#[$doc:meta])* $kind:ident = $text:literal {
        $($(#[$fdoc:meta])* $field:ident: $type:ty as $how:ident),+ $(,)?
    })+) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $kind {
            $($(#[$fdoc])* pub $field: $type),+
        })+

        /// What an entry says.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Act {
            $($(#[$doc])* $kind($kind)),+
        }

        impl Act {
            /// The kinds, in the order of the format.
            pub const KINDS: &'static [&'static str] = &[$($text),+];

            /// The kind's word in the ledger.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $text),+
                }
            }

            /// The body, as it is written.
            pub fn body(&self) -> Value {
                let mut written = Written::default();
                match self {
                    $(Self::$kind(body) => {
                        $(written.$how(stringify!($field), &body.$field);)+
                    })+
                }
                written.finish()
            }

            /// Reads a body of a kind; `None` for an unknown kind. Errors on fields that are
            /// absent, unknown, of another form, or do not go together.
            pub fn read(kind: &str, body: Map<String, Value>) -> Option<Result<Self, FieldFault>> {
                let mut fields = Fields::new(body);
                match kind {
                    $($text => Some($kind::read(&mut fields).and_then(|act| {
                        fields.finish()?;
                        let act = Self::$kind(act);
                        act.agrees().map(|()| act)
                    })),)+
                    _ => None,
                }
            }
        }

        $(impl $kind {
            fn read(fields: &mut Fields) -> Result<Self, FieldFault> {
                Ok(Self { $($field: fields.$how(stringify!($field))?),+ })
            }
        }

        impl From<$kind> for Act {
            fn from(body: $kind) -> Self {
                Self::$kind(body)
            }
        })+
    };
}

acts! {
    /// The lab began.
    Genesis = "genesis" {
        /// The lab's title.
        lab: String as words,
        /// Its random id.
        id: Digest as required,
    }
    /// A lane was opened, paused, resumed, blocked or closed.
    Lane = "lane" {
        /// The lane.
        lane: Name as required,
        /// What was done.
        action: LaneAction as required,
        /// Why.
        reason: String as words,
        /// SHA-256 of its document; with `open`, and only there.
        document: Option<Digest> as optional,
        /// Until when; with `pause` and `block`, and only there.
        until: Option<Date> as optional,
    }
    /// A preregistration was frozen as a packet.
    Registered = "registered" {
        /// SHA-256 of `packet.json`.
        packet: Digest as required,
        /// The experiment.
        experiment: Name as required,
        /// Its lane.
        lane: Name as required,
        /// SHA-256 of `prereg.toml`.
        prereg: Digest as required,
        /// The single difference under test.
        treatment: String as words,
    }
    /// The whole pipeline ran on a null candidate.
    Rehearsed = "rehearsed" {
        /// The packet.
        packet: Digest as required,
        /// Whether all of it went well.
        green: bool as required,
        /// Where it went wrong; `None` exactly when green.
        stage: Option<Stage> as nullable,
        /// Why; may be empty when green.
        reason: String as required,
        /// The rehearsal's bag.
        bag: Option<Digest> as optional,
        /// SHA-256 of its `analysis.json`.
        analysis: Option<Digest> as optional,
        /// SHA-256 of the analyzer's binary.
        analyzer: Digest as required,
        /// Tamper cases tried.
        tampers: u64 as required,
        /// Tamper cases that both judges rejected for their own reason.
        rejected: u64 as required,
        /// How long it took.
        elapsed_ns: u64 as required,
        /// The smallest saving per cycle that its timing could have detected, by device.
        detectable_ns: Option<BTreeMap<String, u64>> as optional,
    }
    /// Somebody looked at packet and rehearsal.
    Reviewed = "reviewed" {
        /// The packet.
        packet: Digest as required,
        /// Who.
        reviewer: String as reviewer,
        /// Their word.
        verdict: Review as required,
        /// What else they say.
        note: String as required,
        /// Index of the packet's newest rehearsal.
        rehearsal: u64 as required,
    }
    /// The packet may be executed, once.
    Armed = "armed" {
        /// The packet.
        packet: Digest as required,
        /// Index of the packet's newest rehearsal.
        rehearsal: u64 as required,
        /// Indexes of standing approvals, ascending.
        reviews: Vec<u64> as required,
    }
    /// An execution was announced.
    Nonce = "nonce" {
        /// The packet.
        packet: Digest as required,
        /// Random.
        nonce: Digest as required,
        /// Id of the folder that the marker will be in; absent in older ledgers.
        markers: Option<Digest> as optional,
    }
    /// An announced execution ended before the marker.
    Released = "released" {
        /// The packet.
        packet: Digest as required,
        /// The open nonce.
        nonce: Digest as required,
        /// Where it ended.
        stage: Stage as required,
        /// Why.
        reason: String as words,
    }
    /// The packet was given up before its one execution began.
    Withdrawn = "withdrawn" {
        /// The packet.
        packet: Digest as required,
        /// Why.
        reason: String as words,
    }
    /// The marker was taken: the packet's one execution began.
    Consumed = "consumed" {
        /// The packet.
        packet: Digest as required,
        /// The open nonce.
        nonce: Digest as required,
        /// SHA-256 of the marker's bytes.
        marker: Digest as required,
    }
    /// The bag was closed.
    Closed = "closed" {
        /// The packet.
        packet: Digest as required,
        /// The bag.
        bag: Digest as required,
    }
    /// The bag was analysed and sealed.
    Sealed = "sealed" {
        /// The packet.
        packet: Digest as required,
        /// The verdict.
        verdict: Verdict as required,
        /// The bag.
        bag: Digest as required,
        /// SHA-256 of `analysis.json`.
        analysis: Digest as required,
        /// SHA-256 of `seal-1.json`.
        seal: Digest as required,
        /// 1.
        number: u64 as required,
        /// Where the run broke off; given exactly when the verdict is abort.
        stage: Option<Stage> as nullable,
        /// Why; may be empty without a stage.
        reason: String as required,
    }
    /// A sealed bag was analysed again.
    Analysed = "analysed" {
        /// The packet.
        packet: Digest as required,
        /// From 2.
        number: u64 as required,
        /// The verdict; the first stays the packet's.
        verdict: Verdict as required,
        /// The bag.
        bag: Digest as required,
        /// SHA-256 of this `analysis.json`.
        analysis: Digest as required,
        /// SHA-256 of this seal.
        seal: Digest as required,
        /// SHA-256 of the analyzer's binary.
        analyzer: Digest as required,
        /// Why again.
        why: String as words,
    }
    /// A claim became the current record of its key.
    Record = "record" {
        /// What is claimed about.
        key: String as words,
        /// The packet that passed.
        packet: Digest as required,
        /// The seal with verdict pass.
        seal: Digest as required,
        /// The claim.
        claim: String as words,
        /// The widths that it covers, ascending.
        widths: Vec<u64> as required,
        /// Index of the record that it takes the place of; `None` for the first.
        supersedes: Option<u64> as nullable,
    }
    /// An earlier entry was wrong, or says too little.
    Corrected = "corrected" {
        /// Its index.
        entry: u64 as required,
        /// What is to be read with it.
        text: String as words,
    }
    /// Words.
    Note = "note" {
        /// The lane that they are about.
        lane: Option<Name> as optional,
        /// The words.
        text: String as words,
    }
}

/// Whether a release at a stage and for a reason says that the packet has another run's marker:
/// then nothing can be done with it any more by who wrote that.
pub fn is_spent(stage: Stage, reason: &str) -> bool {
    stage == Stage::Marker && reason.starts_with(SPENT)
}

/// How the reason of a `released` begins whose packet has another run's marker.
pub const SPENT: &str = "the packet is consumed by another run";

impl Act {
    /// The packet that it is about.
    pub fn packet(&self) -> Option<Digest> {
        match self {
            Self::Registered(Registered { packet, .. })
            | Self::Rehearsed(Rehearsed { packet, .. })
            | Self::Reviewed(Reviewed { packet, .. })
            | Self::Armed(Armed { packet, .. })
            | Self::Nonce(Nonce { packet, .. })
            | Self::Released(Released { packet, .. })
            | Self::Withdrawn(Withdrawn { packet, .. })
            | Self::Consumed(Consumed { packet, .. })
            | Self::Closed(Closed { packet, .. })
            | Self::Sealed(Sealed { packet, .. })
            | Self::Analysed(Analysed { packet, .. })
            | Self::Record(Record { packet, .. }) => Some(*packet),
            Self::Genesis(_) | Self::Lane(_) | Self::Corrected(_) | Self::Note(_) => None,
        }
    }

    /// Rules between the fields of one body.
    fn agrees(&self) -> Result<(), FieldFault> {
        match self {
            Self::Lane(body) => body.agrees(),
            Self::Rehearsed(body) => body.agrees(),
            Self::Sealed(body) => {
                let stage_given = body.verdict == Verdict::Abort;
                staged(stage_given, body.stage, &body.reason)?;
                formed(body.number == 1, "number", "1", body.number)
            }
            Self::Analysed(body) => formed(body.number >= 2, "number", "2 or more", body.number),
            Self::Record(body) => {
                let is_fit = body.widths.first().is_some_and(|width| *width >= 1);
                let actual = Value::from(body.widths.clone());
                formed(is_fit, "widths", "at least one width, from 1", actual)
            }
            Self::Genesis(_)
            | Self::Registered(_)
            | Self::Reviewed(_)
            | Self::Armed(_)
            | Self::Nonce(_)
            | Self::Released(_)
            | Self::Withdrawn(_)
            | Self::Consumed(_)
            | Self::Closed(_)
            | Self::Corrected(_)
            | Self::Note(_) => Ok(()),
        }
    }
}

impl Lane {
    fn agrees(&self) -> Result<(), FieldFault> {
        let (document, until) = match self.action {
            LaneAction::Open => (true, false),
            LaneAction::Pause | LaneAction::Block => (false, true),
            LaneAction::Resume | LaneAction::Close => (false, false),
        };
        let given = self.document.is_some() == document;
        rule(given, "document", "given with `open`, and only there")?;
        let given = self.until.is_some() == until;
        rule(
            given,
            "until",
            "given with `pause` and `block`, and only there: waits are dated",
        )
    }
}

impl Rehearsed {
    fn agrees(&self) -> Result<(), FieldFault> {
        staged(!self.green, self.stage, &self.reason)?;
        let fit = self.rejected <= self.tampers;
        rule(fit, "rejected", "no more tampers than were tried")?;
        if !self.green {
            return Ok(());
        }
        rule(self.bag.is_some(), "bag", "given when green")?;
        rule(self.analysis.is_some(), "analysis", "given when green")?;
        rule(self.tampers > 0, "tampers", "one at least when green")?;
        let all = self.rejected == self.tampers;
        rule(all, "rejected", "a green rehearsal rejected every tamper")
    }
}

fn rule(holds: bool, field: &'static str, rule: &'static str) -> Result<(), FieldFault> {
    if holds {
        return Ok(());
    }
    Err(FieldFault::Value { field, rule })
}

/// A form of a single field that its type does not say.
fn formed(
    holds: bool,
    field: &'static str,
    expected: &'static str,
    actual: impl ToString,
) -> Result<(), FieldFault> {
    if holds {
        return Ok(());
    }
    let actual = actual.to_string().chars().take(80).collect();
    Err(FieldFault::Type {
        field,
        expected,
        actual,
    })
}

/// A stage is given exactly when something went wrong, and then with a reason.
fn staged(demanded: bool, stage: Option<Stage>, reason: &str) -> Result<(), FieldFault> {
    rule(
        stage.is_some() == demanded,
        "stage",
        "given exactly when a rehearsal is not green or a run was aborted",
    )?;
    rule(
        !demanded || !reason.is_empty(),
        "reason",
        "given with every stage",
    )
}
