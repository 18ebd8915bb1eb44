//! `legs/<nn>/leg.json`: one leg, and the programs that were in it.

use super::{Instants, LegStatus};
use crate::prereg::Treatment;
use crate::record::{Fields, RecordError};
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// A leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegRecord {
    /// Its number.
    pub number: u64,
    /// Its index in the preregistration.
    pub leg: u64,
    /// What is asked in it.
    pub kind: LegKind,
    /// Where it ran.
    pub device: String,
    /// How it ended.
    pub status: LegStatus,
    /// When it began.
    pub started: Instants,
    /// When it ended.
    pub ended: Instants,
    /// Its programs, `control` first.
    pub programs: Vec<ProgramRecord>,
    /// What the host said of the device; of `cpu` nothing.
    pub host_device: Option<HostDeviceRecord>,
}

/// A device as the host had it around a leg, by the controller's own look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDeviceRecord {
    /// Its model.
    pub model: String,
    /// The kernel driver that had it; empty where it had none.
    pub driver: String,
    /// Who else held it before the leg's programs were started.
    pub before: HoldersRecord,
    /// The same when they were gone.
    pub after: HoldersRecord,
}

/// Who holds a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldersRecord {
    /// Processes that hold it for certain, in words.
    pub holders: Vec<String>,
    /// What could not be told, and why.
    pub unknown: Vec<String>,
}

/// What is asked in a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegKind {
    /// Cells of the matrix, of one program.
    Exact,
    /// Blocks of two programs.
    Timing,
}

/// A program of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRecord {
    /// What it plays.
    pub treatment: Treatment,
    /// Its process.
    pub pid: u64,
    /// Files that it had mapped executable after its last case, by name, then digest.
    pub objects: Vec<ObjectRecord>,
    /// `code N`, `signal N` or `killed`.
    pub exit: String,
    /// Bytes that are kept of its log.
    pub stderr_bytes: u64,
    /// Nanoseconds from its start to its end.
    pub elapsed_ns: u64,
}

/// A file by its last component and content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRecord {
    /// The file's last component.
    pub name: String,
    /// SHA-256 of it.
    pub sha256: Digest,
}

impl LegRecord {
    /// The bytes of `leg.json`.
    pub fn render(&self) -> Vec<u8> {
        let mut record = json!({
            "schema": SCHEMA,
            "number": self.number,
            "leg": self.leg,
            "kind": self.kind.id(),
            "device": self.device,
            "status": self.status.id(),
            "started": self.started.value(),
            "ended": self.ended.value(),
            "programs": self.programs.iter().map(ProgramRecord::value).collect::<Vec<_>>(),
        });
        if let Some(device) = &self.host_device {
            record[HOST_DEVICE] = device.value();
        }
        render(&record)
    }

    /// Reads `leg.json`.
    ///
    /// # Errors
    /// On anything but canonical JSON with every field of the page and no other.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        Fields::whole(bytes, |fields| {
            fields.exactly("schema", SCHEMA)?;
            Ok(Self {
                number: fields.count("number")?,
                leg: fields.count("leg")?,
                kind: fields.one_of("kind", "exact or timing", LegKind::from_id)?,
                device: fields.text("device")?,
                status: LegStatus::read(fields)?,
                started: fields.object("started", Instants::read)?,
                ended: fields.object("ended", Instants::read)?,
                programs: fields.objects("programs", program)?,
                host_device: match fields.has(HOST_DEVICE) {
                    true => Some(fields.object(HOST_DEVICE, HostDeviceRecord::read)?),
                    false => None,
                },
            })
        })
    }
}

impl HostDeviceRecord {
    fn value(&self) -> Value {
        let held = |held: &HoldersRecord| {
            let HoldersRecord { holders, unknown } = held;
            json!({ "holders": holders, "unknown": unknown })
        };
        json!({
            "model": self.model,
            "driver": self.driver,
            "before": held(&self.before),
            "after": held(&self.after),
        })
    }

    fn read(fields: &mut Fields) -> Result<Self, RecordError> {
        let held = |fields: &mut Fields| {
            Ok(HoldersRecord {
                holders: fields.texts("holders")?,
                unknown: fields.texts("unknown")?,
            })
        };
        Ok(Self {
            model: fields.text("model")?,
            driver: fields.text("driver")?,
            before: fields.object("before", held)?,
            after: fields.object("after", held)?,
        })
    }
}

impl LegKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Exact, Self::Timing];

    /// Its name in records.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Timing => "timing",
        }
    }

    /// Finds a kind by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }
}

impl ProgramRecord {
    fn value(&self) -> Value {
        let object = |object: &ObjectRecord| {
            let sha256 = object.sha256.to_string();
            json!({ "name": object.name, "sha256": sha256 })
        };
        json!({
            "treatment": self.treatment.word(),
            "pid": self.pid,
            "objects": self.objects.iter().map(object).collect::<Vec<_>>(),
            "exit": self.exit,
            "stderr_bytes": self.stderr_bytes,
            "elapsed_ns": self.elapsed_ns,
        })
    }
}

fn program(fields: &mut Fields) -> Result<ProgramRecord, RecordError> {
    Ok(ProgramRecord {
        treatment: super::treatment(fields)?,
        pid: pid(fields)?,
        objects: fields.objects("objects", object)?,
        exit: fields.one_of("exit", EXIT, is_exit)?,
        stderr_bytes: fields.count("stderr_bytes")?,
        elapsed_ns: fields.count("elapsed_ns")?,
    })
}

fn pid(fields: &mut Fields) -> Result<u64, RecordError> {
    match fields.count("pid")? {
        0 => Err(fields.wrong("pid", "an integer of 1 or more", &json!(0))),
        pid => Ok(pid),
    }
}

fn object(fields: &mut Fields) -> Result<ObjectRecord, RecordError> {
    Ok(ObjectRecord {
        name: fields.text("name")?,
        sha256: fields.digest("sha256")?,
    })
}

fn is_exit(text: &str) -> Option<String> {
    let number = text.strip_prefix("code ").or(text.strip_prefix("signal "));
    let is_number = number.is_some_and(|number| {
        number
            .parse::<u32>()
            .is_ok_and(|parsed| parsed.to_string() == number)
    });
    (is_number || text == "killed").then(|| text.to_owned())
}

const HOST_DEVICE: &str = "host_device";
const SCHEMA: &str = "packhouse/leg/1";
const EXIT: &str = "code N, signal N or killed";
