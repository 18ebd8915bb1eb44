//! `identity.json`: what exactly runs, written once it is ready. A worker counts as started from
//! then on.

use super::order::OrderModel;
use super::table::Table;
use super::{Record, Timestamp};
use crate::identity::{ProcessKey, RunId};
use packhouse_base::digest::Digest;
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The identity of a worker that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The run.
    pub run: RunId,
    /// The process: boot, pid namespace, pid and start.
    pub worker: ProcessKey,
    /// The words that it runs with.
    pub command: Vec<String>,
    /// Names that it was allowed to inherit.
    pub inherit: Vec<String>,
    /// Its program.
    pub executable: LoadedFile,
    /// Its libraries, by path.
    pub libraries: Vec<LoadedFile>,
    /// Its model.
    pub model: Option<OrderModel>,
    /// The socket that it answered on.
    pub listener: ReadyListener,
    /// Nanoseconds from the order to its first good answer, by the steady clock; `None` when the
    /// wait was resumed after a boot's steady clock was lost.
    pub ready_after_ns: Option<u64>,
    /// When it was ready.
    pub at: Timestamp,
}

/// A file that a process runs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// Its path when it was mapped.
    pub path: PathBuf,
    /// What was hashed.
    pub content: LoadedContent,
}

/// What is known of a loaded file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadedContent {
    /// Hashed, through what the process itself has mapped.
    Hashed {
        /// SHA-256 of the whole file.
        sha256: Digest,
        /// Its length.
        bytes: u64,
    },
    /// Not hashed, and why.
    Unknown {
        /// Why.
        why: String,
    },
}

/// The socket of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyListener {
    /// Address and port.
    pub address: String,
    /// The socket's inode, which is among the worker's open files.
    pub inode: u64,
}

impl Record for Identity {
    const FILE: &'static str = "identity.json";
    const SCHEMA: &'static str = "packhouse/worker-identity/1";

    fn to_value(&self) -> Value {
        json!({
            "at": self.at.to_value(),
            "command": self.command,
            "executable": self.executable.to_value(),
            "inherit": self.inherit,
            "libraries": self.libraries.iter().map(LoadedFile::to_value).collect::<Vec<_>>(),
            "listener": {"address": self.listener.address, "inode": self.listener.inode},
            "model": self.model.as_ref().map(OrderModel::to_value),
            "ready_after_ns": self.ready_after_ns,
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
            "worker": self.worker.to_value(),
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        let libraries = table.tables("libraries")?.into_iter();
        let mut listener = table.table("listener")?;
        let ready = ReadyListener {
            address: listener.text("address")?,
            inode: listener.integer("inode")?,
        };
        listener.finish()?;
        Ok(Self {
            run: table.run("run")?,
            worker: table.key("worker")?,
            command: table.texts("command")?,
            inherit: table.texts("inherit")?,
            executable: LoadedFile::take(table.table("executable")?)?,
            libraries: libraries.map(LoadedFile::take).collect::<Result<_, _>>()?,
            model: table.optional("model", OrderModel::take)?,
            listener: ready,
            ready_after_ns: table.optional("ready_after_ns", Table::integer)?,
            at: Timestamp::take(table, "at")?,
        })
    }
}

impl LoadedFile {
    fn to_value(&self) -> Value {
        let path = self.path.to_string_lossy();
        match &self.content {
            LoadedContent::Hashed { sha256, bytes } => {
                json!({"bytes": bytes, "path": path, "sha256": sha256.to_string()})
            }
            LoadedContent::Unknown { why } => json!({"path": path, "unknown": why}),
        }
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let path = PathBuf::from(table.text("path")?);
        let content = if table.has("unknown") {
            LoadedContent::Unknown {
                why: table.text("unknown")?,
            }
        } else {
            LoadedContent::Hashed {
                sha256: table.digest("sha256")?,
                bytes: table.integer("bytes")?,
            }
        };
        table.finish()?;
        Ok(Self { path, content })
    }
}
