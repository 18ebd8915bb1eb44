//! `exit.json`: how a run ended.

use super::table::Table;
use super::{Record, Timestamp};
use crate::identity::{ProcessKey, RunId};
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunExit {
    /// The run.
    pub run: RunId,
    /// How.
    pub outcome: Outcome,
    /// When it was seen.
    pub at: Timestamp,
    /// Processes that the engine left behind and that were ended after it.
    pub left_behind: Vec<LeftBehind>,
    /// Bytes of the log that were given back because it was too long.
    pub log_freed_bytes: u64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The engine exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The engine never ran.
    NotStarted {
        /// Why.
        why: String,
    },
    /// The engine is gone, and nobody saw how: its keeper was ended before it.
    Unseen,
}

/// A process that the engine left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Which.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
    /// Whether it is gone.
    pub is_gone: bool,
}

impl RunExit {
    /// Whether nothing of the run is known to be alive any more.
    pub fn is_final(&self) -> bool {
        self.left_behind.iter().all(|left| left.is_gone)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NotStarted { why } => write!(f, "never ran: {why}"),
            Self::Unseen => f.write_str("gone; its keeper was ended before it, so nobody saw how"),
        }
    }
}

impl Record for RunExit {
    const FILE: &'static str = "exit.json";
    const SCHEMA: &'static str = "packhouse/worker-exit/1";

    fn to_value(&self) -> Value {
        let outcome = match &self.outcome {
            Outcome::Code(code) => json!({"code": code}),
            Outcome::Signal(signal) => json!({"signal": signal}),
            Outcome::NotStarted { why } => json!({"not_started": why}),
            Outcome::Unseen => json!({"unseen": true}),
        };
        json!({
            "at": self.at.to_value(),
            "left_behind": self.left_behind.iter().map(LeftBehind::to_value).collect::<Vec<_>>(),
            "log_freed_bytes": self.log_freed_bytes,
            "outcome": outcome,
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        let left_behind = table.tables("left_behind")?.into_iter();
        Ok(Self {
            run: table.run("run")?,
            outcome: Outcome::take(table.table("outcome")?)?,
            at: Timestamp::take(table, "at")?,
            left_behind: left_behind
                .map(LeftBehind::take)
                .collect::<Result<_, _>>()?,
            log_freed_bytes: table.integer("log_freed_bytes")?,
        })
    }
}

impl Outcome {
    fn take(mut table: Table) -> Result<Self, FieldError> {
        let outcome = if table.has("code") {
            Self::Code(table.signed32("code")?)
        } else if table.has("signal") {
            Self::Signal(table.signed32("signal")?)
        } else if table.has("not_started") {
            Self::NotStarted {
                why: table.text("not_started")?,
            }
        } else {
            if !table.boolean("unseen")? {
                return Err(table.wrong("unseen", "true", &json!(false)));
            }
            Self::Unseen
        };
        table.finish()?;
        Ok(outcome)
    }
}

impl LeftBehind {
    fn to_value(&self) -> Value {
        json!({"is_gone": self.is_gone, "key": self.key.to_value(), "name": self.name})
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let left = Self {
            key: table.key("key")?,
            name: table.text("name")?,
            is_gone: table.boolean("is_gone")?,
        };
        table.finish()?;
        Ok(left)
    }
}
