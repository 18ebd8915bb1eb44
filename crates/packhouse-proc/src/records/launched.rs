//! `launched.json`: which processes a run is, written before the engine may begin.

use super::table::Table;
use super::{Record, Timestamp};
use crate::identity::{ProcessKey, RunId};
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The processes of a run. While it is written the worker is still the gate, which becomes the
/// engine under the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The run.
    pub run: RunId,
    /// The process that waits for the worker.
    pub keeper: ProcessKey,
    /// The engine.
    pub worker: ProcessKey,
    /// The engine's session: all that it starts and that does not leave it.
    pub session: i32,
    /// The control group, under systemd.
    pub cgroup: Option<PathBuf>,
    /// When.
    pub at: Timestamp,
}

impl Record for Launched {
    const FILE: &'static str = "launched.json";
    const SCHEMA: &'static str = "packhouse/worker-launched/1";

    fn to_value(&self) -> Value {
        json!({
            "at": self.at.to_value(),
            "cgroup": self.cgroup.as_ref().map(|path| path.to_string_lossy()),
            "keeper": self.keeper.to_value(),
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
            "session": self.session,
            "worker": self.worker.to_value(),
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        Ok(Self {
            run: table.run("run")?,
            keeper: table.key("keeper")?,
            worker: table.key("worker")?,
            session: table.narrow("session", "a session id")?,
            cgroup: table.optional_text("cgroup")?.map(PathBuf::from),
            at: Timestamp::take(table, "at")?,
        })
    }
}
