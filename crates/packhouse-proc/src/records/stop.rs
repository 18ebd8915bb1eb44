//! `stop.json`: that a run is being stopped, what it was when that began, and how far it went.
//!
//! It is there before the first signal, and written again after the signals of each step, so that a
//! stop that was cut short is continued: no step gets its time twice.

use super::table::Table;
use super::{Record, Timestamp};
use crate::identity::{ProcessKey, RunId};
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};

/// The intent to stop a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The run.
    pub run: RunId,
    /// When it was begun.
    pub begun: Timestamp,
    /// Who began it.
    pub controller: ProcessKey,
    /// Processes that were proven to be the run's: they stay so when proof is gone, as when their
    /// parent ends before them.
    pub members: Vec<StopMember>,
    /// The devices before the first signal.
    pub devices: Vec<StopDevice>,
    /// Private memory of all members before the first signal; `None` where it could not be read.
    pub private_bytes: Option<u64>,
    /// Steps whose signals were sent, in their order.
    pub steps: Vec<StopStep>,
}

/// A process of the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StopMember {
    /// Which.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
}

/// A device before the first signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopDevice {
    /// The device's canonical id.
    pub id: String,
    /// Memory in use on it by all; `None` where it could not be read.
    pub used_bytes: Option<u64>,
    /// Memory in use on it by the run; `None` where that is not told.
    pub ours_bytes: Option<u64>,
}

/// A step whose signals were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopStep {
    /// Which.
    pub step: Step,
    /// When.
    pub at: Timestamp,
}

/// One step of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// SIGINT to the main process.
    Interrupt,
    /// SIGTERM to all.
    Terminate,
    /// SIGKILL to all.
    Kill,
}

impl Step {
    /// Every step, in its order.
    pub const ALL: [Self; 3] = [Self::Interrupt, Self::Terminate, Self::Kill];

    /// The word in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Terminate => "terminate",
            Self::Kill => "kill",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }
}

impl Record for Stop {
    const FILE: &'static str = "stop.json";
    const SCHEMA: &'static str = "packhouse/worker-stop/1";

    fn to_value(&self) -> Value {
        json!({
            "begun": self.begun.to_value(),
            "controller": self.controller.to_value(),
            "devices": self.devices.iter().map(StopDevice::to_value).collect::<Vec<_>>(),
            "members": self.members.iter().map(StopMember::to_value).collect::<Vec<_>>(),
            "private_bytes": self.private_bytes,
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
            "steps": self.steps.iter().map(StopStep::to_value).collect::<Vec<_>>(),
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        let members = table.tables("members")?.into_iter();
        let devices = table.tables("devices")?.into_iter();
        let steps = table.tables("steps")?.into_iter();
        Ok(Self {
            run: table.run("run")?,
            begun: Timestamp::take(table, "begun")?,
            controller: table.key("controller")?,
            members: members.map(StopMember::take).collect::<Result<_, _>>()?,
            devices: devices.map(StopDevice::take).collect::<Result<_, _>>()?,
            private_bytes: table.optional("private_bytes", Table::integer)?,
            steps: steps.map(StopStep::take).collect::<Result<_, _>>()?,
        })
    }
}

impl StopMember {
    fn to_value(&self) -> Value {
        json!({"key": self.key.to_value(), "name": self.name})
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let member = Self {
            key: table.key("key")?,
            name: table.text("name")?,
        };
        table.finish()?;
        Ok(member)
    }
}

impl StopDevice {
    fn to_value(&self) -> Value {
        json!({"id": self.id, "ours_bytes": self.ours_bytes, "used_bytes": self.used_bytes})
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let device = Self {
            id: table.text("id")?,
            used_bytes: table.optional("used_bytes", Table::integer)?,
            ours_bytes: table.optional("ours_bytes", Table::integer)?,
        };
        table.finish()?;
        Ok(device)
    }
}

impl StopStep {
    fn to_value(&self) -> Value {
        json!({"at": self.at.to_value(), "step": self.step.word()})
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let word = table.text("step")?;
        let step = Step::parse(&word)
            .ok_or_else(|| table.wrong("step", "interrupt, terminate or kill", &json!(word)))?;
        let sent = Self {
            step,
            at: Timestamp::take(&mut table, "at")?,
        };
        table.finish()?;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests;
