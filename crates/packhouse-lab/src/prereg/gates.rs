//! Gates that an experiment chooses, beside those that always hold.

use super::matrix::NAME;
use crate::document::{DocumentError, Fields};
use packhouse_component::name::is_name;

/// A gate of a preregistration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateRule {
    /// No two cases of a leg have equal inputs.
    FreshInputs,
    /// Storages and inputs do not move between cases.
    StablePointers,
    /// Every output's storage was filled with a byte of the controller's before it was written.
    Poisoned,
    /// No answer has a warning.
    NoWarnings,
    /// No answer comes from a stream that is being captured.
    CaptureIdle,
    /// Every answer shows that a path ran, by its counter.
    Witness {
        /// The path.
        path: String,
        /// The counter.
        counter: String,
        /// What it must be at least.
        minimum: u64,
    },
    /// The program denies abilities that nothing may depend on.
    Denial {
        /// Their names.
        denies: Vec<String>,
    },
}

impl GateRule {
    /// The word in documents and records.
    pub fn word(&self) -> &'static str {
        match self {
            Self::FreshInputs => "fresh-inputs",
            Self::StablePointers => "stable-pointers",
            Self::Poisoned => "poisoned",
            Self::NoWarnings => "no-warnings",
            Self::CaptureIdle => "capture-idle",
            Self::Witness { .. } => WITNESS,
            Self::Denial { .. } => DENIAL,
        }
    }

    /// What no two gates of a preregistration have both.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Witness { path, counter, .. } => format!("{WITNESS} {path} {counter}"),
            Self::FreshInputs
            | Self::StablePointers
            | Self::Poisoned
            | Self::NoWarnings
            | Self::CaptureIdle
            | Self::Denial { .. } => self.word().to_owned(),
        }
    }

    pub(super) fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        let kinds = "fresh-inputs, stable-pointers, poisoned, no-warnings, capture-idle, witness \
                     or denial";
        fields.can_be(&["kind", "path", "counter", "minimum", "denies"]);
        let kind = fields.one_of("kind", kinds, |word| {
            let plain = PLAIN.iter().find(|gate| gate.word() == word).cloned();
            match word {
                WITNESS => Some(Chosen::Witness),
                DENIAL => Some(Chosen::Denial),
                _ => plain.map(Chosen::Plain),
            }
        })?;
        match kind {
            Chosen::Plain(gate) => Ok(gate),
            Chosen::Witness => Ok(Self::Witness {
                path: fields.word("path", NAME, is_name)?,
                counter: fields.word("counter", NAME, is_name)?,
                minimum: fields.integer("minimum", (1, i64::MAX.unsigned_abs()))?,
            }),
            Chosen::Denial => Ok(Self::Denial {
                denies: fields.distinct_words("denies", NAME, is_name)?,
            }),
        }
    }
}

enum Chosen {
    Plain(GateRule),
    Witness,
    Denial,
}

const WITNESS: &str = "witness";
const DENIAL: &str = "denial";
const PLAIN: [GateRule; 5] = [
    GateRule::FreshInputs,
    GateRule::StablePointers,
    GateRule::Poisoned,
    GateRule::NoWarnings,
    GateRule::CaptureIdle,
];
