//! The program's side of the protocol, for components that are written with this crate.
//!
//! Invariants:
//! - an output is written, hashed and reported from one buffer per storage, at the offset that the
//!   case asks for, so that addresses and digests are those of what was written;
//! - an input is hashed again after the run, where the component had it;
//! - storages are poisoned before the first run, and cycles timed around the runs alone.

use crate::MessageError;
use crate::form::Form;
use crate::frame::{FrameError, Frames, encode};
use crate::message::{
    Answer, Capture, CaseOrder, Declined, Greeting, InputRecord, Introduction, Offer,
    POISON_WITNESS, PROTOCOL, Reply, Request, TensorRecord, Timed, Witness,
};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, DirAccess, Fs, FsError};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

/// A component.
pub trait Component {
    /// Its name, version and what it can run; asked once.
    fn card(&self) -> Card;

    /// Runs one case, whose inputs have the length and digest that the case says. Called once for
    /// each cycle of a case that is timed.
    ///
    /// # Errors
    /// With the reason why it does not run it.
    fn run(&mut self, order: &CaseOrder, inputs: &BTreeMap<String, Vec<u8>>)
    -> Result<Ran, String>;
}

/// What a component says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can run.
    pub kernels: Vec<Offer>,
    /// Where.
    pub devices: Vec<String>,
    /// Whether it says if a stream is being captured.
    pub says_capture: bool,
    /// What it can't do.
    pub denies: Vec<String>,
}

/// What a component made of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Boundary to its elements, contiguous.
    pub outputs: BTreeMap<String, Vec<u8>>,
    /// Which paths ran.
    pub witnesses: Vec<Witness>,
    /// Whether a stream was being captured.
    pub capture: Capture,
    /// What it has to say.
    pub warnings: Vec<String>,
}

/// Why serving broke off.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The driver's pipes could not be used.
    #[error("stdin or stdout: {0}")]
    Pipe(#[from] io::Error),
    /// The driver went away in the middle of a message, or without bye.
    #[error("the driver went away without bye")]
    Gone,
    /// The driver wrote no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The driver wrote no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The driver speaks another protocol.
    #[error("the driver speaks {actual:?}, expected {PROTOCOL:?}")]
    Protocol {
        /// Which.
        actual: String,
    },
    /// The driver did not say hello first, or said it twice.
    #[error("the driver's messages are out of order: {found}, expected {expected}")]
    Order {
        /// What came.
        found: &'static str,
        /// What had to come.
        expected: &'static str,
    },
    /// An input could not be read, or an output not be written.
    #[error(transparent)]
    File(#[from] FsError),
    /// An input is not what the case says.
    #[error("input {role}: SHA-256 {actual}, the case says {expected}")]
    Input {
        /// Its role.
        role: String,
        /// In the case.
        expected: Digest,
        /// Of the file.
        actual: Digest,
    },
    /// The component made another set of boundaries, or another size, than the case asks for.
    #[error("boundary {boundary}: made {actual} bytes, the case asks for {expected}")]
    Output {
        /// The boundary.
        boundary: String,
        /// In the case.
        expected: u64,
        /// That were made.
        actual: u64,
    },
}

impl ServeError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Pipe(_) => Blame::Host,
            Self::Gone
            | Self::Frame(_)
            | Self::Message(_)
            | Self::Protocol { .. }
            | Self::Order { .. }
            | Self::Input { .. } => Blame::Caller,
            Self::File(error) => error.blame(),
            Self::Output { .. } => Blame::Bug,
        }
    }
}

/// Serves one driver until it says bye.
///
/// # Errors
/// When the driver does not keep to the protocol, or a file can't be used.
pub fn serve(
    fs: &dyn Fs,
    input: &mut dyn Read,
    output: &mut dyn Write,
    component: &mut dyn Component,
) -> Result<(), ServeError> {
    let mut frames = Frames::default();
    let greeting = match next(input, &mut frames)? {
        Request::Hello(greeting) => greeting,
        Request::Case(_) => return Err(out_of_order("case", "hello")),
        Request::Bye => return Err(out_of_order("bye", "hello")),
    };
    if greeting.protocol != PROTOCOL {
        return Err(ServeError::Protocol {
            actual: greeting.protocol,
        });
    }
    let inputs = open(fs, &greeting.inputs)?;
    let outputs = open(fs, &greeting.outputs)?;
    say(output, &hello(&greeting, component.card()))?;
    loop {
        match next(input, &mut frames)? {
            Request::Hello(_) => return Err(out_of_order("hello", "case or bye")),
            Request::Case(order) => say(output, &ran(&order, &inputs, &outputs, component)?)?,
            Request::Bye => return Ok(()),
        }
    }
}

fn ran(
    order: &CaseOrder,
    inputs: &Dir,
    outputs: &Dir,
    component: &mut dyn Component,
) -> Result<Reply, ServeError> {
    let mut tensors = BTreeMap::new();
    for (role, file) in &order.inputs {
        let bytes = inputs.read_small(&file.file, file.bytes)?;
        let actual = Digest::of(&bytes);
        if actual != file.sha256 {
            return Err(ServeError::Input {
                role: role.clone(),
                expected: file.sha256,
                actual,
            });
        }
        tensors.insert(role.clone(), bytes);
    }
    let mut storages = storages(order);
    let start_ns = RealClock.steady_ns();
    let mut ran = component.run(order, &tensors);
    for _ in 1..order.cycles.unwrap_or(1) {
        ran = ran.and_then(|_| component.run(order, &tensors));
    }
    let elapsed_ns = RealClock.steady_ns().saturating_sub(start_ns);
    let mut ran = match ran {
        Ok(ran) => ran,
        Err(reason) => {
            return Ok(Reply::Declined(Declined {
                index: order.index,
                reason,
            }));
        }
    };
    if order.poison.is_some() {
        ran.witnesses.push(poisoned(&storages));
    }
    let boundaries = written(order, ran.outputs, &mut storages, outputs)?;
    let inputs = tensors.iter().map(|(role, bytes)| {
        let (start, end) = interval(bytes);
        let sha256 = Digest::of(bytes);
        (role.clone(), InputRecord { start, end, sha256 })
    });
    Ok(Reply::Answer(Answer {
        index: order.index,
        boundaries,
        inputs: inputs.collect(),
        witnesses: ran.witnesses,
        capture: ran.capture,
        warnings: ran.warnings,
        timed: order.cycles.map(|cycles| Timed { cycles, elapsed_ns }),
    }))
}

/// A buffer for each storage, filled with the case's poison.
fn storages(order: &CaseOrder) -> BTreeMap<&str, Vec<u8>> {
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for wanted in &order.boundaries {
        let size = sizes.entry(&wanted.storage).or_default();
        *size = (*size).max(first_byte(&wanted.form) + wanted.form.bytes);
    }
    let poison = order.poison.unwrap_or(0);
    let filled = |size: u64| vec![poison; usize::try_from(size).unwrap_or(0)];
    let storages = sizes.into_iter();
    storages
        .map(|(storage, size)| (storage, filled(size)))
        .collect()
}

/// The witness of poisoned storages.
fn poisoned(storages: &BTreeMap<&str, Vec<u8>>) -> Witness {
    let (path, counter) = POISON_WITNESS;
    let bytes = storages.values().map(|storage| storage.len() as u64).sum();
    Witness {
        path: path.to_owned(),
        counters: BTreeMap::from([(counter.to_owned(), bytes)]),
    }
}

/// Lays every boundary at its place in its storage, and writes it to its file from there.
fn written(
    order: &CaseOrder,
    mut made: BTreeMap<String, Vec<u8>>,
    storages: &mut BTreeMap<&str, Vec<u8>>,
    outputs: &Dir,
) -> Result<Vec<TensorRecord>, ServeError> {
    let mut records = Vec::new();
    for wanted in &order.boundaries {
        let elements = made.remove(&wanted.name).unwrap_or_default();
        let start = usize::try_from(first_byte(&wanted.form)).unwrap_or(usize::MAX);
        let storage = storages.get_mut(wanted.storage.as_str());
        let place = storage.and_then(|storage| storage.get_mut(start..start + elements.len()));
        let place = place.filter(|place| place.len() as u64 == wanted.form.bytes);
        let Some(place) = place else {
            return Err(ServeError::Output {
                boundary: wanted.name.clone(),
                expected: wanted.form.bytes,
                actual: elements.len() as u64,
            });
        };
        place.copy_from_slice(&elements);
        outputs
            .create_new(&wanted.file, MODE_OUTPUT)?
            .write_all_at(0, place)?;
        let (start, end) = interval(place);
        records.push(TensorRecord {
            name: wanted.name.clone(),
            dtype: wanted.form.dtype,
            shape: wanted.form.shape.clone(),
            stride: wanted.form.stride.clone(),
            storage_offset: wanted.form.storage_offset,
            bytes: wanted.form.bytes,
            device: order.device.clone(),
            start,
            end,
            file: wanted.file.clone(),
            sha256: Digest::of(place),
        });
    }
    Ok(records)
}

fn first_byte(form: &Form) -> u64 {
    form.storage_offset.saturating_mul(form.dtype.bytes())
}

/// Addresses of a buffer's first byte and behind its last.
fn interval(bytes: &[u8]) -> (u64, u64) {
    let start = bytes.as_ptr().addr() as u64;
    (start, start + bytes.len() as u64)
}

fn hello(greeting: &Greeting, card: Card) -> Reply {
    Reply::Hello(Introduction {
        protocol: PROTOCOL.to_owned(),
        challenge: greeting.challenge,
        name: card.name,
        version: card.version,
        kernels: card.kernels,
        devices: card.devices,
        says_capture: card.says_capture,
        denies: card.denies,
        times: true,
        poisons: true,
    })
}

fn next(input: &mut dyn Read, frames: &mut Frames) -> Result<Request, ServeError> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        if let Some(message) = frames.next_message()? {
            return Ok(Request::parse(&message)?);
        }
        match input.read(&mut piece) {
            Ok(0) => return Err(ServeError::Gone),
            Ok(length) => frames.push(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn say(output: &mut dyn Write, reply: &Reply) -> Result<(), ServeError> {
    output.write_all(&encode(&reply.render())?)?;
    Ok(output.flush()?)
}

fn open(fs: &dyn Fs, path: &str) -> Result<Dir, FsError> {
    let names = Path::new(path)
        .components()
        .filter_map(|component| match component {
            std::path::Component::Normal(name) => Some(name),
            _ => None,
        });
    names.into_iter().try_fold(fs.root()?, |dir, name| {
        dir.open_dir_for(name, DirAccess::Lookup)
    })
}

fn out_of_order(found: &'static str, expected: &'static str) -> ServeError {
    ServeError::Order { found, expected }
}

const PIECE_BYTES: usize = 64 << 10;
const MODE_OUTPUT: u32 = 0o600;
