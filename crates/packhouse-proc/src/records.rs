//! The records of a run: what was ordered, which processes it is, what exactly runs, how it ended.
//!
//! Invariants:
//! - a record is canonical JSON with a schema, parsed strictly: an unknown field, an absent one or
//!   one of another type is an error that names file and field, never a default;
//! - each is written once per run, whole and durable, by `runs::Run::write`.
//!
//! Never: secrets beyond the environment that the user gave the engine; the folder is 0700.
//! Format: `docs/format/workers.md`.

mod exit;
mod identity;
mod launched;
mod order;
mod released;
mod stop;
pub mod table;

pub use exit::{LeftBehind, Outcome, RunExit};
pub use identity::{Identity, LoadedContent, LoadedFile, ReadyListener};
pub use launched::Launched;
pub use order::{Backend, Order, OrderDevice, OrderModel, StopTimeouts};
pub use released::{EndedProcess, Released, ReleasedDevice, ReleasedMemory, ReleasedPort};
pub use stop::{Step, Stop, StopDevice, StopMember, StopStep};

use crate::identity::BootId;
use packhouse_base::canonical;
use packhouse_store::fields::FieldError;
use packhouse_sys::clock::Clock;
use serde_json::{Value, json};
use table::Table;

/// One kind of record of a run.
pub trait Record: Sized {
    /// Its name in the run's folder.
    const FILE: &'static str;
    /// Its schema with version.
    const SCHEMA: &'static str;

    /// The whole record, schema included.
    fn to_value(&self) -> Value;

    /// Takes the fields of a record whose schema was read. The caller refuses what is left over.
    fn from_table(table: &mut Table) -> Result<Self, FieldError>;

    /// Renders it as it is stored.
    fn render(&self) -> Vec<u8> {
        canonical::render(&self.to_value())
    }

    /// Parses what `render` wrote. Errors on anything else, with the field's name.
    fn parse(bytes: &[u8]) -> Result<Self, FieldError> {
        let mut table = Table::parse(bytes, Self::SCHEMA)?;
        let record = Self::from_table(&mut table)?;
        table.finish()?;
        Ok(record)
    }
}

/// A moment by both clocks. The steady one is only good within its boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// The boot.
    pub boot: BootId,
    /// Nanoseconds by the boot's steady clock.
    pub steady_ns: u64,
    /// Nanoseconds since the Unix epoch; for people.
    pub wall_ns: i64,
}

impl Timestamp {
    /// Now.
    pub fn now(boot: &BootId, clock: &dyn Clock) -> Self {
        Self {
            boot: *boot,
            steady_ns: clock.steady_ns(),
            wall_ns: clock.wall_ns(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({
            "boot": self.boot.to_string(),
            "steady_ns": self.steady_ns,
            "wall_ns": self.wall_ns,
        })
    }

    pub(crate) fn take(table: &mut Table, field: &str) -> Result<Self, FieldError> {
        let mut inner = table.table(field)?;
        let timestamp = Self {
            boot: inner.boot("boot")?,
            steady_ns: inner.integer("steady_ns")?,
            wall_ns: inner.signed("wall_ns")?,
        };
        inner.finish()?;
        Ok(timestamp)
    }
}
