//! The messages of both sides. Specified in `docs/format/component.md`.

mod read;
mod write;

use crate::{Dtype, Form};
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

/// The protocol's name, version included.
pub const PROTOCOL: &str = "packhouse/component/1";

/// What a driver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message.
    Hello(Greeting),
    /// Asks for one run.
    Case(CaseOrder),
    /// The last message: the program ends with code 0.
    Bye,
}

/// What a program says, one message to each but `Bye`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Hello`.
    Hello(Introduction),
    /// To `Case`: it was run.
    Answer(Answer),
    /// To `Case`: it was not run.
    Declined(Declined),
}

/// A driver's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Which protocol it speaks.
    pub protocol: String,
    /// Random, and given back in the answer: a recorded answer is none.
    pub challenge: Digest,
    /// Absolute path of the folder that inputs are read from.
    pub inputs: String,
    /// Absolute path of the folder that outputs are written to.
    pub outputs: String,
}

/// Who the program is and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Which protocol it speaks.
    pub protocol: String,
    /// The challenge.
    pub challenge: Digest,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can run.
    pub kernels: Vec<Offer>,
    /// Where it can run, `cpu` or `cuda:UUID`.
    pub devices: Vec<String>,
    /// Whether it says if a stream is being captured.
    pub says_capture: bool,
    /// What it can't do: `generation`, `network`. Empty where it denies nothing.
    pub denies: Vec<String>,
    /// Whether it can run a case several times and time the whole.
    pub times: bool,
    /// Whether it can fill its output storages before a run.
    pub poisons: bool,
}

/// A kernel that a program has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Id of the fixture whose contract it fulfils.
    pub fixture: String,
    /// The arms that it has.
    pub arms: Vec<String>,
    /// The widths that it has.
    pub widths: Vec<u64>,
}

/// One run that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseOrder {
    /// The case's number in this session, from 0.
    pub index: u64,
    /// Id of the fixture.
    pub fixture: String,
    /// Id of the layout of its packed weights, where it has them.
    pub layout: Option<String>,
    /// Where to run.
    pub device: String,
    /// Which treatment.
    pub arm: String,
    /// Rows of activations.
    pub width: u64,
    /// Which repeat, from 0.
    pub repeat: u64,
    /// The fixture's parameters.
    pub parameters: BTreeMap<String, u64>,
    /// Role to file.
    pub inputs: BTreeMap<String, InputFile>,
    /// What is to be written.
    pub boundaries: Vec<Wanted>,
    /// The value of every byte of every output storage before the run.
    pub poison: Option<u8>,
    /// How often to run it, timing the whole; 1 or more.
    pub cycles: Option<u64>,
}

/// An input in the inputs' folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Its name there.
    pub file: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of it.
    pub sha256: Digest,
}

/// A boundary that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// The storage that it lies in.
    pub storage: String,
    /// The new file in the outputs' folder that gets its elements.
    pub file: String,
    /// What it must look like.
    pub form: Form,
}

/// One run that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The case's number.
    pub index: u64,
    /// One record for each boundary.
    pub boundaries: Vec<TensorRecord>,
    /// Role to what the program finds in its own memory after the run.
    pub inputs: BTreeMap<String, InputRecord>,
    /// Which paths ran.
    pub witnesses: Vec<Witness>,
    /// Whether a stream was being captured.
    pub capture: Capture,
    /// What the program has to say.
    pub warnings: Vec<String>,
    /// How long all cycles took, where they were asked for.
    pub timed: Option<Timed>,
}

/// How long several runs of one case took, by the program's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// How many runs.
    pub cycles: u64,
    /// Nanoseconds of all of them together.
    pub elapsed_ns: u64,
}

/// A boundary as the program has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRecord {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Elements from one index to the next, per extent.
    pub stride: Vec<u64>,
    /// Elements before its first one in its storage.
    pub storage_offset: u64,
    /// Bytes of all its elements.
    pub bytes: u64,
    /// Where it lies.
    pub device: String,
    /// Address of its first element.
    pub start: u64,
    /// Address behind its last element.
    pub end: u64,
    /// The file that has its elements.
    pub file: String,
    /// SHA-256 of its elements.
    pub sha256: Digest,
}

/// An input as the program has it after the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRecord {
    /// Address of its first element.
    pub start: u64,
    /// Address behind its last element.
    pub end: u64,
    /// SHA-256 of its bytes there.
    pub sha256: Digest,
}

/// That a path ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The path's name.
    pub path: String,
    /// What it counted.
    pub counters: BTreeMap<String, u64>,
}

/// Whether a stream was being captured during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The program can't say.
    Unknown,
    /// None was.
    Idle,
    /// One was.
    Capturing,
}

/// One run that was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// The case's number.
    pub index: u64,
    /// Why.
    pub reason: String,
}

/// The path of the witness that counts poisoned bytes, and its counter.
pub const POISON_WITNESS: (&str, &str) = ("poison", "bytes");

impl CaseOrder {
    /// Bytes of all output storages, each up to the end of its last boundary.
    pub fn storage_bytes(&self) -> u64 {
        let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
        for wanted in &self.boundaries {
            let form = &wanted.form;
            let first = form.storage_offset.saturating_mul(form.dtype.bytes());
            let end = ends.entry(&wanted.storage).or_default();
            *end = (*end).max(first.saturating_add(form.bytes));
        }
        ends.into_values().fold(0, u64::saturating_add)
    }
}

impl Capture {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Unknown, Self::Idle, Self::Capturing];

    /// Its name in messages.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Idle => "idle",
            Self::Capturing => "capturing",
        }
    }

    /// Finds a state by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capture| capture.id() == id)
    }
}
