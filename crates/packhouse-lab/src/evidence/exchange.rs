//! `legs/<nn>/exchange.jsonl`: what both sides said, and what was seen.

use crate::prereg::Treatment;
use crate::record::{Fields, RecordError, read_whole, wrong};
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
use packhouse_component::MessageError;
use packhouse_component::frame::FRAME_BYTES_MAX;
use packhouse_component::message::{Reply, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One event of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Steady nanoseconds since the leg's start.
    pub at_ns: u64,
    /// Whose session it is.
    pub treatment: Treatment,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The controller asked.
    Asked(Box<Request>),
    /// The component said.
    Said(Box<Reply>),
    /// The controller looked into the two folders.
    Seen(SeenRecord),
    /// The session ended; `bye` where it ended as it should.
    End(String),
}

/// What was seen in the two folders after an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRecord {
    /// The case's number.
    pub index: u64,
    /// Name to what is there, in the outputs' folder.
    pub outputs: BTreeMap<String, SeenOutput>,
    /// Name to the digest of what is there now, of each input of the case.
    pub inputs: BTreeMap<String, Option<Digest>>,
    /// Names in the inputs' folder that the controller did not put there.
    pub inputs_extra: Vec<String>,
}

/// An entry of the outputs' folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenOutput {
    /// A regular file that was read.
    File {
        /// Its length.
        bytes: u64,
        /// SHA-256 of it.
        sha256: Digest,
    },
    /// Anything else, in words.
    Refused(String),
}

/// Why a line is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is not the record that a line is.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its message is none of the protocol.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Its message is longer than any that can be sent.
    #[error("message: {actual} bytes, at most {FRAME_BYTES_MAX}")]
    TooLong {
        /// Its bytes.
        actual: usize,
    },
}

impl LineError {
    /// Its reason code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Record(error) => error.code(),
            Self::Message(_) | Self::TooLong { .. } => "leg.message",
        }
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> packhouse_base::Blame {
        match self {
            Self::Record(error) => error.blame(),
            Self::Message(error) => error.blame(),
            Self::TooLong { .. } => packhouse_base::Blame::Source,
        }
    }
}

impl Line {
    /// Reads a line, its LF included.
    ///
    /// # Errors
    /// On anything but a line of the page.
    pub fn parse(bytes: &[u8]) -> Result<Self, LineError> {
        let (at_ns, treatment, raw) = Fields::whole(bytes, |fields| {
            let at_ns = fields.count("at_ns")?;
            let treatment = super::treatment(fields)?;
            let side = fields.one_of("from", "controller or component", Side::from_id)?;
            Ok((at_ns, treatment, Raw::read(fields, side)?))
        })?;
        let event = match raw {
            Raw::Asked(message) => Event::Asked(Box::new(asked(message)?)),
            Raw::Said(message) => Event::Said(Box::new(Reply::parse(&sent(&message)?)?)),
            Raw::Seen(seen) => Event::Seen(seen),
            Raw::End(text) => Event::End(text),
        };
        Ok(Self {
            at_ns,
            treatment,
            event,
        })
    }

    /// The bytes of the line, its LF included.
    pub fn render(&self) -> Vec<u8> {
        let mut value = json!({ "at_ns": self.at_ns, "treatment": self.treatment.word() });
        let (side, field, content) = match &self.event {
            Event::Asked(request) => (Side::Controller, "message", portable(request)),
            Event::Said(reply) => (Side::Component, "message", parsed(&reply.render())),
            Event::Seen(seen) => (Side::Controller, "seen", seen.value()),
            Event::End(text) => (Side::Controller, "end", json!(text)),
        };
        value["from"] = json!(side.id());
        value[field] = content;
        render(&value)
    }
}

impl SeenRecord {
    fn value(&self) -> Value {
        let output = |(file, output): (&String, &SeenOutput)| {
            let value = match output {
                SeenOutput::File { bytes, sha256 } => {
                    json!({ "bytes": bytes, "sha256": sha256.to_string() })
                }
                SeenOutput::Refused(text) => json!({ "refused": text }),
            };
            (file.clone(), value)
        };
        let outputs: serde_json::Map<String, Value> = self.outputs.iter().map(output).collect();
        let input = |(file, digest): (&String, &Option<Digest>)| {
            (file.clone(), json!(digest.map(|digest| digest.to_string())))
        };
        let inputs: serde_json::Map<String, Value> = self.inputs.iter().map(input).collect();
        json!({
            "index": self.index,
            "outputs": outputs,
            "inputs": inputs,
            "inputs_extra": self.inputs_extra,
        })
    }

    fn read(fields: &mut Fields) -> Result<Self, RecordError> {
        Ok(Self {
            index: fields.count("index")?,
            outputs: fields.map("outputs", |path, value| read_whole(path, value, output))?,
            inputs: fields.map("inputs", |path, value| match &value {
                Value::Null => Ok(None),
                Value::String(text) => Digest::parse(text)
                    .map(Some)
                    .map_err(|_| wrong(path, DIGEST, &value)),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Err(wrong(path, DIGEST, &value))
                }
            })?,
            inputs_extra: fields.texts("inputs_extra")?,
        })
    }
}

/// Who speaks.
#[derive(Clone, Copy)]
enum Side {
    Controller,
    Component,
}

impl Side {
    const fn id(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Component => "component",
        }
    }

    fn from_id(id: &str) -> Option<Self> {
        [Self::Controller, Self::Component]
            .into_iter()
            .find(|side| side.id() == id)
    }
}

/// A line whose message is not read yet.
enum Raw {
    Asked(Value),
    Said(Value),
    Seen(SeenRecord),
    End(String),
}

impl Raw {
    fn read(fields: &mut Fields, side: Side) -> Result<Self, RecordError> {
        match side {
            Side::Component => fields.value("message").map(Self::Said),
            Side::Controller if fields.has("seen") => {
                fields.object("seen", SeenRecord::read).map(Self::Seen)
            }
            Side::Controller if fields.has("end") => fields.text("end").map(Self::End),
            Side::Controller => fields.value("message").map(Self::Asked),
        }
    }
}

fn output(fields: &mut Fields) -> Result<SeenOutput, RecordError> {
    if fields.has("refused") {
        return fields.text("refused").map(SeenOutput::Refused);
    }
    Ok(SeenOutput::File {
        bytes: fields.count("bytes")?,
        sha256: fields.digest("sha256")?,
    })
}

/// Reads a controller's message. The folders of a hello stand for the host's paths, which are
/// nobody's business; what stands for them is no path, so that none can be there.
fn asked(mut message: Value) -> Result<Request, LineError> {
    if message["type"] == "hello" {
        for folder in FOLDERS {
            match message.get(folder) {
                Some(Value::String(text)) if text == folder => {
                    message[folder] = json!(format!("/{folder}"));
                }
                Some(other) => {
                    let field = format!("message.{folder}");
                    return Err(wrong(field, "its own name, and no path", other).into());
                }
                None => {}
            }
        }
    }
    Ok(Request::parse(&sent(&message)?)?)
}

/// The bytes of a message, which are no more than those that were sent.
fn sent(message: &Value) -> Result<Vec<u8>, LineError> {
    let bytes = render(message);
    let actual = bytes.len().saturating_sub(1);
    match actual > FRAME_BYTES_MAX {
        true => Err(LineError::TooLong { actual }),
        false => Ok(bytes),
    }
}

/// A controller's message as it stands in a line.
fn portable(request: &Request) -> Value {
    let mut value = parsed(&request.render());
    if matches!(request, Request::Hello(_)) {
        for folder in FOLDERS {
            value[folder] = json!(folder);
        }
    }
    value
}

fn parsed(message: &[u8]) -> Value {
    serde_json::from_slice(message).expect("because messages are rendered as JSON")
}

const FOLDERS: [&str; 2] = ["inputs", "outputs"];
const DIGEST: &str = "64 lower-case hex digits or null";
