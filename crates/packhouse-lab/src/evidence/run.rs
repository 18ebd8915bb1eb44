//! `run.json`: what a run as a whole was.

use super::{Instants, LegStatus};
use crate::analysis::{Kind, Status};
use crate::record::{Fields, RecordError};
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::Stage;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The run or a rehearsal.
    pub kind: Kind,
    /// The packet's digest.
    pub packet: Digest,
    /// The nonce.
    pub nonce: Digest,
    /// How it ended.
    pub status: Status,
    /// Where it ended, if it is not complete.
    pub stage: Option<Stage>,
    /// Why, if it is not complete.
    pub reason: Option<String>,
    /// The host's boot id.
    pub boot: String,
    /// What it ran on.
    pub host: HostRecord,
    /// When it began; none where a killed run left nobody who knows.
    pub started: Option<Instants>,
    /// When it ended, or was found.
    pub ended: Instants,
    /// How far the wall clock went another way than the steady one.
    pub clock: ClockRecord,
    /// The legs that were begun.
    pub legs: Vec<RunLeg>,
    /// Files without bytes that a killed run left, and that were removed.
    pub removed: Vec<String>,
}

/// What a run ran on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// The kernel.
    pub kernel: String,
    /// The CPU.
    pub cpu: String,
    /// The evidence folder's file system.
    pub file_system: String,
}

/// How far the wall clock went further or less far than the steady one; one of them is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockRecord {
    /// Further, in nanoseconds.
    pub forward_ns: u64,
    /// Less far, in nanoseconds.
    pub back_ns: u64,
}

/// A leg as the run has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLeg {
    /// Its number.
    pub number: u64,
    /// Its index in the preregistration.
    pub leg: u64,
    /// Where it ran.
    pub device: String,
    /// How it ended.
    pub status: LegStatus,
}

impl RunRecord {
    /// The bytes of `run.json`.
    pub fn render(&self) -> Vec<u8> {
        render(&json!({
            "schema": SCHEMA,
            "kind": self.kind.id(),
            "packet": self.packet.to_string(),
            "nonce": self.nonce.to_string(),
            "status": self.status.id(),
            "stage": self.stage.map(Stage::as_str),
            "reason": self.reason,
            "boot": self.boot,
            "host": {
                "kernel": self.host.kernel,
                "cpu": self.host.cpu,
                "file_system": self.host.file_system,
            },
            "started": self.started.map(Instants::value),
            "ended": self.ended.value(),
            "clock": { "forward_ns": self.clock.forward_ns, "back_ns": self.clock.back_ns },
            "legs": self.legs.iter().map(RunLeg::value).collect::<Vec<_>>(),
            "removed": self.removed,
        }))
    }

    /// Reads `run.json`.
    ///
    /// # Errors
    /// On anything but canonical JSON with every field of the page and no other.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        Fields::whole(bytes, |fields| {
            fields.exactly("schema", SCHEMA)?;
            Ok(Self {
                kind: fields.one_of("kind", "run or rehearsal", Kind::from_id)?,
                packet: fields.digest("packet")?,
                nonce: fields.digest("nonce")?,
                status: fields.one_of("status", STATUS, Status::from_id)?,
                stage: super::stage(fields)?,
                reason: fields.optional_text("reason")?,
                boot: fields.text("boot")?,
                host: fields.object("host", host)?,
                started: fields.optional_object("started", Instants::read)?,
                ended: fields.object("ended", Instants::read)?,
                clock: fields.object("clock", clock)?,
                legs: fields.objects("legs", leg)?,
                removed: removed(fields)?,
            })
        })
    }
}

impl RunLeg {
    fn value(&self) -> Value {
        json!({
            "number": self.number,
            "leg": self.leg,
            "device": self.device,
            "status": self.status.id(),
        })
    }
}

/// Paths of payload files, none of them twice.
fn removed(fields: &mut Fields) -> Result<Vec<String>, RecordError> {
    let paths = fields.texts("removed")?;
    let is_path = |path: &&String| packhouse_bag::is_path(&format!("data/{path}"));
    let distinct: BTreeSet<&String> = paths.iter().filter(is_path).collect();
    if distinct.len() < paths.len() {
        return Err(fields.wrong("removed", "paths of a payload, each once", &json!(paths)));
    }
    Ok(paths)
}

fn host(fields: &mut Fields) -> Result<HostRecord, RecordError> {
    Ok(HostRecord {
        kernel: fields.text("kernel")?,
        cpu: fields.text("cpu")?,
        file_system: fields.text("file_system")?,
    })
}

fn clock(fields: &mut Fields) -> Result<ClockRecord, RecordError> {
    Ok(ClockRecord {
        forward_ns: fields.count("forward_ns")?,
        back_ns: fields.count("back_ns")?,
    })
}

fn leg(fields: &mut Fields) -> Result<RunLeg, RecordError> {
    Ok(RunLeg {
        number: fields.count("number")?,
        leg: fields.count("leg")?,
        device: fields.text("device")?,
        status: LegStatus::read(fields)?,
    })
}

const SCHEMA: &str = "packhouse/run/1";
const STATUS: &str = "complete, stopped or aborted";
