//! `released.json`: that nothing of a run is left, and how that was proven.

use super::stop::{Step, StopMember};
use super::table::Table;
use super::{Record, Timestamp};
use crate::identity::{ProcessKey, RunId};
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};

/// The proof that a run gave everything back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The run.
    pub run: RunId,
    /// When it was proven.
    pub at: Timestamp,
    /// Who proved it.
    pub controller: ProcessKey,
    /// Processes that ended, each with the last thing that was done to it.
    pub ended: Vec<EndedProcess>,
    /// Its port.
    pub port: ReleasedPort,
    /// Its devices.
    pub devices: Vec<ReleasedDevice>,
    /// Private memory of its processes before the first signal.
    pub private_bytes: Option<u64>,
    /// The host's available memory afterwards; for people.
    pub available_bytes: Option<u64>,
}

/// A process that ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedProcess {
    /// Which.
    pub member: StopMember,
    /// The last signal that it got; `None`: it ended by itself.
    pub after: Option<Step>,
}

/// What became of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleasedPort {
    /// Nobody listens.
    Free,
    /// A process that is not proven to be the worker's listens.
    Taken {
        /// Who, in words.
        by: String,
    },
    /// It could not be seen.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What became of the memory of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedDevice {
    /// The device's canonical id.
    pub id: String,
    /// Whether it came back.
    pub memory: ReleasedMemory,
}

/// Whether memory came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleasedMemory {
    /// It did.
    Returned {
        /// What may be in use at most.
        target_bytes: u64,
        /// What is in use.
        used_bytes: u64,
    },
    /// It did not.
    Held {
        /// What may be in use at most.
        target_bytes: u64,
        /// What is in use.
        used_bytes: u64,
    },
    /// The memory is that of processes, and they are gone.
    WithProcesses,
    /// It can't be told.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Record for Released {
    const FILE: &'static str = "released.json";
    const SCHEMA: &'static str = "packhouse/worker-released/1";

    fn to_value(&self) -> Value {
        json!({
            "at": self.at.to_value(),
            "available_bytes": self.available_bytes,
            "controller": self.controller.to_value(),
            "devices": self.devices.iter().map(ReleasedDevice::to_value).collect::<Vec<_>>(),
            "ended": self.ended.iter().map(EndedProcess::to_value).collect::<Vec<_>>(),
            "port": self.port.to_value(),
            "private_bytes": self.private_bytes,
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        let ended = table.tables("ended")?.into_iter();
        let devices = table.tables("devices")?.into_iter();
        Ok(Self {
            run: table.run("run")?,
            at: Timestamp::take(table, "at")?,
            controller: table.key("controller")?,
            ended: ended.map(EndedProcess::take).collect::<Result<_, _>>()?,
            port: ReleasedPort::take(table.table("port")?)?,
            devices: devices
                .map(ReleasedDevice::take)
                .collect::<Result<_, _>>()?,
            private_bytes: table.optional("private_bytes", Table::integer)?,
            available_bytes: table.optional("available_bytes", Table::integer)?,
        })
    }
}

impl EndedProcess {
    fn to_value(&self) -> Value {
        json!({
            "after": self.after.map(Step::word),
            "key": self.member.key.to_value(),
            "name": self.member.name,
        })
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let after = match table.optional_text("after")? {
            None => None,
            Some(word) => Some(Step::parse(&word).ok_or_else(|| {
                table.wrong("after", "interrupt, terminate, kill or null", &json!(word))
            })?),
        };
        let member = StopMember {
            key: table.key("key")?,
            name: table.text("name")?,
        };
        table.finish()?;
        Ok(Self { member, after })
    }
}

impl ReleasedPort {
    /// The port as documents show it.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Free => json!({"state": "free"}),
            Self::Taken { by } => json!({"by": by, "state": "taken"}),
            Self::Unknown { why } => json!({"state": "unknown", "why": why}),
        }
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let state = table.text("state")?;
        let port = match state.as_str() {
            "free" => Self::Free,
            "taken" => Self::Taken {
                by: table.text("by")?,
            },
            "unknown" => Self::Unknown {
                why: table.text("why")?,
            },
            other => return Err(table.wrong("state", "free, taken or unknown", &json!(other))),
        };
        table.finish()?;
        Ok(port)
    }
}

impl ReleasedDevice {
    /// The device as documents show it.
    pub fn to_value(&self) -> Value {
        match &self.memory {
            ReleasedMemory::Returned {
                target_bytes,
                used_bytes,
            } => json!({
                "id": self.id,
                "memory": "returned",
                "target_bytes": target_bytes,
                "used_bytes": used_bytes,
            }),
            ReleasedMemory::Held {
                target_bytes,
                used_bytes,
            } => json!({
                "id": self.id,
                "memory": "held",
                "target_bytes": target_bytes,
                "used_bytes": used_bytes,
            }),
            ReleasedMemory::WithProcesses => json!({"id": self.id, "memory": "with_processes"}),
            ReleasedMemory::Unknown { why } => {
                json!({"id": self.id, "memory": "unknown", "why": why})
            }
        }
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let id = table.text("id")?;
        let word = table.text("memory")?;
        let memory = match word.as_str() {
            "returned" => ReleasedMemory::Returned {
                target_bytes: table.integer("target_bytes")?,
                used_bytes: table.integer("used_bytes")?,
            },
            "held" => ReleasedMemory::Held {
                target_bytes: table.integer("target_bytes")?,
                used_bytes: table.integer("used_bytes")?,
            },
            "with_processes" => ReleasedMemory::WithProcesses,
            "unknown" => ReleasedMemory::Unknown {
                why: table.text("why")?,
            },
            other => {
                let expected = "returned, held, with_processes or unknown";
                return Err(table.wrong("memory", expected, &json!(other)));
            }
        };
        table.finish()?;
        Ok(Self { id, memory })
    }
}
