//! An answer against its case and the raw files. Pure.
//!
//! Invariants:
//! - every fault is found, each for its own reason; with any fault there is nothing to judge;
//! - what is `Verified` was computed here from the raw files, whatever the answer claims; what only
//!   the program can know is `Attested`, and no function makes the one of the other.
//!
//! Never: believes a digest, a length or a shape of the answer.

mod fault;
mod intervals;

pub use fault::Fault;

use crate::Form;
use crate::message::{
    Answer, Capture, CaseOrder, InputRecord, Introduction, POISON_WITNESS, TensorRecord, Timed,
    Wanted, Witness,
};
use packhouse_base::digest::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// What was found in the two folders after an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Name to what is there, in the outputs' folder.
    pub outputs: BTreeMap<String, SeenFile>,
    /// Name to the digest of what is there now, of each input of the case; none where no regular
    /// file can be read.
    pub inputs: BTreeMap<String, Option<Digest>>,
    /// Names in the inputs' folder that the driver did not put there.
    pub inputs_extra: Vec<String>,
    /// Nanoseconds from asking to the answer, by the driver's clock: no run was longer.
    pub span_ns: u64,
}

/// An entry of the outputs' folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenFile {
    /// A regular file with one name.
    Bytes(Vec<u8>),
    /// A regular file that is longer than any boundary of the case, and was not read.
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// Something else, in words: one of `docs/format/evidence.md`, section 5.
    Other(&'static str),
}

impl SeenFile {
    /// What an entry that was not read is, from its words; none of words that no entry has.
    pub fn refused(words: &str) -> Option<Self> {
        if let Some(bytes) = words.strip_suffix(" bytes") {
            let number = bytes
                .parse()
                .ok()
                .filter(|number: &u64| number.to_string() == bytes);
            return number.map(|bytes| Self::TooLong { bytes });
        }
        REFUSED
            .into_iter()
            .find(|known| *known == words)
            .map(Self::Other)
    }
}

/// The words of entries that are no files to be read.
const REFUSED: [&str; 8] = [
    "a symlink",
    "a folder",
    "no regular file",
    "no file",
    "a file with several names",
    "a file that can't be read",
    "a file that is gone again",
    "a file that is being written",
];

/// An answer without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    verified: Vec<Verified>,
    attested: Attested,
}

/// A boundary whose file was read and hashed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    boundary: String,
    form: Form,
    sha256: Digest,
    bytes: Vec<u8>,
}

/// What only the program can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attested {
    /// Boundary to where its elements lay: device, first address, address behind the last.
    pub boundaries: BTreeMap<String, Place>,
    /// Role to where the input lay and what it was after the run.
    pub inputs: BTreeMap<String, InputRecord>,
    /// Which paths ran.
    pub witnesses: Vec<Witness>,
    /// Whether a stream was being captured.
    pub capture: Capture,
    /// What the program had to say.
    pub warnings: Vec<String>,
    /// How long all cycles took: no longer than the driver waited.
    pub timed: Option<Timed>,
}

/// Where a tensor lay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which device.
    pub device: String,
    /// Address of its first element.
    pub start: u64,
    /// Address behind its last element.
    pub end: u64,
}

impl Checked {
    /// The boundaries, in the case's order.
    pub fn verified(&self) -> &[Verified] {
        &self.verified
    }

    /// What only the program can know.
    pub fn attested(&self) -> &Attested {
        &self.attested
    }
}

impl Verified {
    /// The boundary's name.
    pub fn boundary(&self) -> &str {
        &self.boundary
    }

    /// What it looks like, from the case.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// SHA-256 of its elements.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// Its elements, little-endian, contiguous.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Checks an answer.
///
/// # Errors
/// With every fault, in a fixed order: the answer's own, each boundary's, files, inputs, intervals.
pub fn check(
    order: &CaseOrder,
    introduction: &Introduction,
    answer: Answer,
    mut seen: Seen,
) -> Result<Checked, Vec<Fault>> {
    let mut faults = Vec::new();
    own(order, introduction, &answer, &mut faults);
    asked_for(order, &answer, seen.span_ns, &mut faults);
    let records = by_name(order, &answer, &mut faults);
    let mut verified = Vec::new();
    for wanted in &order.boundaries {
        let Some(record) = records.get(wanted.name.as_str()) else {
            continue;
        };
        compare(order, wanted, record, &mut faults);
        if let Some(bytes) = elements(wanted, seen.outputs.remove(&wanted.file), &mut faults) {
            let sha256 = Digest::of(&bytes);
            if sha256 != record.sha256 {
                faults.push(Fault::Digest {
                    boundary: wanted.name.clone(),
                    claimed: record.sha256,
                    actual: sha256,
                });
            }
            verified.push(Verified {
                boundary: wanted.name.clone(),
                form: wanted.form.clone(),
                sha256,
                bytes,
            });
        }
    }
    let extra = seen.outputs.into_keys();
    faults.extend(extra.map(|file| Fault::FileExtra { file }));
    inputs(order, &answer, &seen.inputs, &mut faults);
    let extra = seen.inputs_extra.into_iter();
    faults.extend(extra.map(|file| Fault::InputExtra { file }));
    intervals::compare(order, &records, &answer.inputs, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Checked {
        verified,
        attested: attested(answer),
    })
}

/// What the answer says of itself as a whole.
fn own(order: &CaseOrder, introduction: &Introduction, answer: &Answer, faults: &mut Vec<Fault>) {
    if answer.index != order.index {
        faults.push(Fault::Index {
            expected: order.index,
            actual: answer.index,
        });
    }
    let mut paths = answer.witnesses.iter().map(|witness| &witness.path);
    if paths.all(|path| path == POISON_WITNESS.0) {
        faults.push(Fault::NoWitness);
    }
    match (introduction.says_capture, answer.capture) {
        (true, Capture::Unknown) => faults.push(Fault::CaptureNotSaid),
        (false, Capture::Idle | Capture::Capturing) => faults.push(Fault::CaptureNotOffered),
        (true, Capture::Idle | Capture::Capturing) | (false, Capture::Unknown) => {}
    }
}

/// What only some cases ask for: cycles, poison.
fn asked_for(order: &CaseOrder, answer: &Answer, span_ns: u64, faults: &mut Vec<Fault>) {
    match (order.cycles, answer.timed) {
        (Some(_), None) => faults.push(Fault::NotTimed),
        (None, Some(_)) => faults.push(Fault::TimedUnasked),
        (Some(expected), Some(timed)) if timed.cycles != expected => faults.push(Fault::Cycles {
            expected,
            actual: timed.cycles,
        }),
        (Some(_), Some(timed)) if timed.elapsed_ns > span_ns => faults.push(Fault::TimedLonger {
            elapsed_ns: timed.elapsed_ns,
            span_ns,
        }),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let (path, counter) = POISON_WITNESS;
    let poisoned = answer.witnesses.iter().find(|witness| witness.path == path);
    let actual = poisoned.and_then(|witness| witness.counters.get(counter).copied());
    let expected = order.storage_bytes();
    if order.poison.is_some() && actual.unwrap_or(0) < expected {
        faults.push(Fault::Poison { expected, actual });
    }
}

/// The first record of each boundary of the case.
fn by_name<'a>(
    order: &CaseOrder,
    answer: &'a Answer,
    faults: &mut Vec<Fault>,
) -> BTreeMap<&'a str, &'a TensorRecord> {
    let wanted: BTreeSet<&str> = order
        .boundaries
        .iter()
        .map(|wanted| wanted.name.as_str())
        .collect();
    let mut records = BTreeMap::new();
    for record in &answer.boundaries {
        let boundary = record.name.clone();
        if !wanted.contains(record.name.as_str()) {
            faults.push(Fault::Invented { boundary });
        } else if records.contains_key(record.name.as_str()) {
            faults.push(Fault::Twice { boundary });
        } else {
            records.insert(record.name.as_str(), record);
        }
    }
    let missing = wanted.iter().filter(|name| !records.contains_key(*name));
    faults.extend(missing.map(|name| Fault::Missing {
        boundary: (*name).to_owned(),
    }));
    records
}

/// A record against what the boundary must look like.
fn compare(order: &CaseOrder, wanted: &Wanted, record: &TensorRecord, faults: &mut Vec<Fault>) {
    let boundary = || wanted.name.clone();
    let form = &wanted.form;
    if record.dtype != form.dtype {
        faults.push(Fault::Dtype {
            boundary: boundary(),
            expected: form.dtype.id(),
            actual: record.dtype.id(),
        });
    }
    if record.shape != form.shape {
        faults.push(Fault::Shape {
            boundary: boundary(),
            expected: form.shape.clone(),
            actual: record.shape.clone(),
        });
    }
    if record.stride != form.stride {
        faults.push(Fault::Stride {
            boundary: boundary(),
            expected: form.stride.clone(),
            actual: record.stride.clone(),
        });
    }
    if record.storage_offset != form.storage_offset {
        faults.push(Fault::Offset {
            boundary: boundary(),
            expected: form.storage_offset,
            actual: record.storage_offset,
        });
    }
    if record.bytes != form.bytes {
        faults.push(Fault::Bytes {
            boundary: boundary(),
            expected: form.bytes,
            actual: record.bytes,
        });
    }
    if record.device != order.device {
        faults.push(Fault::Device {
            boundary: boundary(),
            expected: order.device.clone(),
            actual: record.device.clone(),
        });
    }
    if record.file != wanted.file {
        faults.push(Fault::FileName {
            boundary: boundary(),
            expected: wanted.file.clone(),
            actual: record.file.clone(),
        });
    }
}

/// The elements of a boundary, if its file has just them.
fn elements(wanted: &Wanted, seen: Option<SeenFile>, faults: &mut Vec<Fault>) -> Option<Vec<u8>> {
    let file = wanted.file.clone();
    let expected = wanted.form.bytes;
    let fault = match seen {
        None => Fault::FileAbsent { file },
        Some(SeenFile::Other(kind)) => Fault::FileKind { file, kind },
        Some(SeenFile::Bytes(bytes)) if bytes.is_empty() => Fault::FileEmpty { file },
        Some(SeenFile::Bytes(bytes)) if bytes.len() as u64 == expected => return Some(bytes),
        Some(SeenFile::Bytes(bytes)) => Fault::FileLength {
            file,
            expected,
            actual: bytes.len() as u64,
        },
        Some(SeenFile::TooLong { bytes }) => Fault::FileLength {
            file,
            expected,
            actual: bytes,
        },
    };
    faults.push(fault);
    None
}

/// The inputs, as the program has them and as they lie in their folder.
fn inputs(
    order: &CaseOrder,
    answer: &Answer,
    seen: &BTreeMap<String, Option<Digest>>,
    faults: &mut Vec<Fault>,
) {
    for (role, input) in &order.inputs {
        match answer.inputs.get(role) {
            None => faults.push(Fault::InputMissing { role: role.clone() }),
            Some(record) if record.sha256 != input.sha256 => faults.push(Fault::InputDigest {
                role: role.clone(),
                expected: input.sha256,
                actual: record.sha256,
            }),
            Some(_) => {}
        }
        if seen.get(&input.file) != Some(&Some(input.sha256)) {
            faults.push(Fault::InputChanged {
                role: role.clone(),
                file: input.file.clone(),
            });
        }
    }
    let invented = answer
        .inputs
        .keys()
        .filter(|role| !order.inputs.contains_key(*role));
    faults.extend(invented.map(|role| Fault::InputInvented { role: role.clone() }));
}

fn attested(answer: Answer) -> Attested {
    let places = answer.boundaries.into_iter().map(|record| {
        let place = Place {
            device: record.device,
            start: record.start,
            end: record.end,
        };
        (record.name, place)
    });
    Attested {
        boundaries: places.collect(),
        inputs: answer.inputs,
        witnesses: answer.witnesses,
        capture: answer.capture,
        warnings: answer.warnings,
        timed: answer.timed,
    }
}
