//! Evidence of a packet: the records of a bag's payload, and the reading of all of it.
//!
//! - Everything is read; what is broken is a failure with its reason code, and the rest is read on.
//! - Nothing is believed here: `gates` computes what these records say of themselves.
//!
//! Specified in `docs/format/evidence.md`, part 1.

pub mod exchange;
pub mod leg;
pub mod reading;
pub mod run;

pub use exchange::{Event, Line, LineError, SeenOutput, SeenRecord};
pub use leg::{HoldersRecord, HostDeviceRecord, LegKind, LegRecord, ObjectRecord, ProgramRecord};
pub use reading::{Failure, LegReading, Reading, leg_folder};
pub use run::{ClockRecord, HostRecord, RunLeg, RunRecord};

use crate::prereg::Treatment;
use crate::record::{Fields, RecordError};
use packhouse_ledger::act::Stage;
use serde_json::{Value, json};

/// One instant on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
    /// Nanoseconds since some instant of this boot.
    pub steady_ns: u64,
}

/// How a leg ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegStatus {
    /// It ran to its end, and nothing was wrong.
    Complete,
    /// It ran to its end, and a row or an answer was wrong.
    Failed,
    /// A session broke off, or it was cut short.
    Broken,
}

impl Instants {
    /// As it stands in records.
    pub(crate) fn value(self) -> Value {
        json!({ "wall_ns": self.wall_ns, "steady_ns": self.steady_ns })
    }

    /// Reads one.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, RecordError> {
        Ok(Self {
            wall_ns: fields.integer("wall_ns")?,
            steady_ns: fields.count("steady_ns")?,
        })
    }
}

impl LegStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Failed, Self::Broken];

    /// Its name in records.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Broken => "broken",
        }
    }

    /// Finds a status by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.id() == id)
    }

    /// Reads one.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, RecordError> {
        fields.one_of("status", "complete, failed or broken", Self::from_id)
    }
}

/// Reads what a program plays.
pub(crate) fn treatment(fields: &mut Fields) -> Result<Treatment, RecordError> {
    fields.one_of("treatment", "control or candidate", Treatment::from_word)
}

/// Reads a stage, or null.
pub(crate) fn stage(fields: &mut Fields) -> Result<Option<Stage>, RecordError> {
    let Some(text) = fields.optional_text("stage")? else {
        return Ok(None);
    };
    let stage = Stage::parse(&text);
    let stage = stage.ok_or_else(|| fields.wrong("stage", "a stage", &Value::String(text)));
    stage.map(Some)
}
