//! What a run writes into its bag while it goes on: documents, fixtures, exchanges, outputs.
//!
//! Invariants:
//! - an output's bytes are in the bag before the line that names them, but for the control's: those
//!   are in memory alone while a program could copy them out of it, as drawn fixtures are;
//! - after each case all else is durable;
//! - after a write that failed nothing is written any more, and the session is told to end.

use super::Fault;
use crate::evidence::LegRecord;
use crate::prereg::Treatment;
use crate::recipes::Made;
use crate::sessions::Gone;
use packhouse_bag::{BagInfo, OpenBag, TAG_MANIFEST_FILE, WriteError};
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_component::check::{Seen, SeenFile};
use packhouse_component::drive::{Event, Side, Tap};
use packhouse_component::json;
use packhouse_ledger::Stage;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The writer of a run's bag, shared with the taps of its sessions.
#[derive(Clone)]
pub(crate) struct Recorder {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    bag: OpenBag,
    /// The folder of the leg that goes on.
    leg: String,
    start_ns: u64,
    last_ns: u64,
    /// Fixtures that were asked, by their folders.
    held: BTreeMap<String, Arc<Made>>,
    /// Outputs of the control, by their paths.
    answers: BTreeMap<String, Vec<u8>>,
    failure: Option<WriteError>,
    interrupted: fn() -> bool,
}

/// What one session tells.
struct SessionTap {
    recorder: Recorder,
    treatment: &'static str,
}

impl Recorder {
    /// A recorder of a bag. `interrupted` says whether this process was asked to end.
    pub(crate) fn new(bag: OpenBag, interrupted: fn() -> bool) -> Self {
        let inner = Inner {
            bag,
            leg: String::new(),
            start_ns: 0,
            last_ns: 0,
            held: BTreeMap::new(),
            answers: BTreeMap::new(),
            failure: None,
            interrupted,
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// Begins a leg's exchange.
    pub(crate) fn begin_leg(&self, number: u64, start_ns: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.leg = leg_folder(number);
        (inner.start_ns, inner.last_ns) = (start_ns, 0);
    }

    /// The tap of a session of the leg.
    pub(crate) fn tap(&self, treatment: &'static str) -> Box<dyn Tap> {
        Box::new(SessionTap {
            recorder: self.clone(),
            treatment,
        })
    }

    /// Puts a file.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.inner.borrow_mut().kept(|bag| bag.put(path, bytes))
    }

    /// Puts a fixture's files below a folder, if they are not there yet.
    pub(crate) fn put_fixture(&self, folder: &str, made: &Made) -> Result<(), WriteError> {
        let mut inner = self.inner.borrow_mut();
        let is_there = inner.bag.has(&format!("{folder}/{TAG_MANIFEST_FILE}"));
        match is_there {
            true => Ok(()),
            // As a whole: half a fixture is none, and would be a fault of the evidence.
            false => inner.kept(|bag| bag.put_folder(folder, made.bag.files())),
        }
    }

    /// Keeps a fixture in memory for [`Self::put_held`].
    pub(crate) fn hold(&self, folder: String, made: Arc<Made>) {
        self.inner.borrow_mut().held.entry(folder).or_insert(made);
    }

    /// Puts what was kept, when no program lives that could read it.
    pub(crate) fn put_held(&self) -> Result<(), WriteError> {
        let held = std::mem::take(&mut self.inner.borrow_mut().held);
        for (folder, made) in &held {
            self.put_fixture(folder, made)?;
        }
        let mut inner = self.inner.borrow_mut();
        for (path, bytes) in std::mem::take(&mut inner.answers) {
            if !inner.bag.has(&path) {
                inner.kept(|bag| bag.put(&path, &bytes))?;
            }
        }
        drop(inner);
        self.sync()
    }

    /// The last line of a session.
    pub(crate) fn end(&self, treatment: &str, at_ns: u64, end: &str) {
        let mut inner = self.inner.borrow_mut();
        inner.line(at_ns, treatment, CONTROLLER, ("end", json!(end)));
    }

    /// A session's log, if it has one.
    pub(crate) fn log(&self, treatment: &str, gone: &Gone) -> Result<(), WriteError> {
        if gone.log.is_empty() {
            return Ok(());
        }
        let mut inner = self.inner.borrow_mut();
        let path = format!("{}/{treatment}.stderr", inner.leg);
        inner.kept(|bag| bag.put(&path, &gone.log))
    }

    /// Puts the record of the leg that goes on.
    pub(crate) fn leg_record(&self, record: &LegRecord) -> Result<(), WriteError> {
        let mut inner = self.inner.borrow_mut();
        let path = format!("{}/leg.json", inner.leg);
        inner.kept(|bag| bag.put(&path, &record.render()))?;
        inner.kept(OpenBag::sync)
    }

    /// Makes all of it durable.
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.inner.borrow_mut().kept(OpenBag::sync)
    }

    /// Errs when something could not be written.
    pub(crate) fn good(&self) -> Result<(), Fault> {
        match &self.inner.borrow().failure {
            Some(error) => Err(Fault::new(Stage::Leg, error)),
            None => Ok(()),
        }
    }

    /// Whether this process was asked to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        (self.inner.borrow().interrupted)()
    }

    /// Closes the bag, when every session is over.
    pub(crate) fn close(self, info: &BagInfo) -> Result<Digest, WriteError> {
        match Rc::try_unwrap(self.inner) {
            Ok(inner) => {
                let Inner { bag, failure, .. } = inner.into_inner();
                bag.close(info).map_err(|error| first(failure, error))
            }
            // A session that lives on; its bag is as good as lost for this process.
            Err(inner) => Err(WriteError::Poisoned {
                path: inner.borrow().leg.clone().into(),
            }),
        }
    }
}

impl Tap for SessionTap {
    fn told(&mut self, event: &Event<'_>) {
        let mut inner = self.recorder.inner.borrow_mut();
        match *event {
            Event::Said {
                at_ns,
                side,
                message,
            } => inner.said(at_ns, self.treatment, side, message),
            Event::Saw { at_ns, index, seen } => inner.saw(at_ns, self.treatment, index, seen),
        }
    }

    fn is_over(&self) -> bool {
        let inner = self.recorder.inner.borrow();
        inner.failure.is_some() || (inner.interrupted)()
    }
}

impl Inner {
    fn said(&mut self, at_ns: u64, treatment: &str, side: Side, message: &[u8]) {
        // It was read as a message before it was told.
        let mut message = json::parse(message).unwrap_or(Value::Null);
        let from = match side {
            Side::Controller => CONTROLLER,
            Side::Component => "component",
        };
        if message["type"] == "hello" && side == Side::Controller {
            message["inputs"] = json!("inputs");
            message["outputs"] = json!("outputs");
        }
        self.line(at_ns, treatment, from, ("message", message));
    }

    fn saw(&mut self, at_ns: u64, treatment: &str, index: u64, seen: &Seen) {
        let mut outputs = Map::new();
        for (name, file) in &seen.outputs {
            let value = match file {
                SeenFile::Bytes(bytes) => self.output(treatment, bytes),
                SeenFile::TooLong { bytes } => json!({ "refused": format!("{bytes} bytes") }),
                SeenFile::Other(words) => json!({ "refused": words }),
            };
            outputs.insert(name.clone(), value);
        }
        let inputs = seen.inputs.iter().map(|(name, digest)| {
            let digest = digest.map(|digest| digest.to_string());
            (name.clone(), json!(digest))
        });
        let value = json!({
            "index": index,
            "inputs": inputs.collect::<Map<_, _>>(),
            "inputs_extra": seen.inputs_extra,
            "outputs": outputs,
        });
        self.line(at_ns, treatment, CONTROLLER, ("seen", value));
        self.attempt(OpenBag::sync);
    }

    /// Keeps an output's bytes, once per content, and says what they are.
    fn output(&mut self, treatment: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        let path = format!("outputs/{digest}");
        if !bytes.is_empty() && !self.bag.has(&path) {
            match treatment == Treatment::Control.word() {
                true => drop(self.answers.insert(path, bytes.to_vec())),
                false => self.attempt(|bag| bag.put(&path, bytes)),
            }
        }
        json!({ "bytes": bytes.len(), "sha256": digest.to_string() })
    }

    fn line(&mut self, at_ns: u64, treatment: &str, from: &str, what: (&str, Value)) {
        self.last_ns = at_ns.saturating_sub(self.start_ns).max(self.last_ns);
        let mut line = json!({ "at_ns": self.last_ns, "from": from, "treatment": treatment });
        line[what.0] = what.1;
        let path = format!("{}/exchange.jsonl", self.leg);
        let bytes = canonical::render(&line);
        self.attempt(|bag| bag.append(&path, &bytes));
    }

    /// Writes, and keeps the first cause: of a bag that is broken later writes only say that it is.
    fn kept<T>(
        &mut self,
        write: impl FnOnce(&mut OpenBag) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        write(&mut self.bag).map_err(|error| {
            let cause = first(self.failure.take(), error);
            self.failure = Some(cause.clone());
            cause
        })
    }

    /// Writes, unless something could not be written before.
    fn attempt(&mut self, write: impl FnOnce(&mut OpenBag) -> Result<(), WriteError>) {
        if self.failure.is_none() {
            self.failure = write(&mut self.bag).err();
        }
    }
}

/// The first cause of a write that failed.
fn first(earlier: Option<WriteError>, error: WriteError) -> WriteError {
    match error {
        WriteError::Poisoned { .. } => earlier.unwrap_or(error),
        error => error,
    }
}

/// The folder of a leg in the payload.
pub(crate) fn leg_folder(number: u64) -> String {
    format!("legs/{number:02}")
}

const CONTROLLER: &str = "controller";
