//! Pins: names that keep a set, whatever its age, use or the cap.
//!
//! Invariants:
//! - a pin is one small file, `<root>/v1/pins/<name>`, that names one set; it is never edited;
//! - a pin that can't be read is reported by name, and gc then removes no set at all.
//!
//! Never: a pin on a set that isn't there. Format: `docs/format/store.md`.

use crate::fields::{FieldError, Fields};
use crate::publish::{PublishError, SmallOutcome};
use crate::root::Store;
use crate::set::SetMiss;
use crate::small::SmallRefusal;
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::SetKey;
use packhouse_sys::fs::{FsError, FsErrorKind};
use serde_json::json;
use std::collections::BTreeMap;

/// The schema of a pin.
pub const PIN_SCHEMA: &str = "packhouse/pin/1";

/// All pins, with those that can't be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Pinned sets by the pin's name.
    pub sets: BTreeMap<String, SetKey>,
    /// Pins that can't be read, with the reason.
    pub refused: BTreeMap<String, PinRefusal>,
}

/// Why a file is no pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinRefusal {
    /// Not of the schema.
    #[error("pin: {0}")]
    Form(#[from] FieldError),
    /// It can't be trusted or read.
    #[error(transparent)]
    File(#[from] SmallRefusal),
}

/// Why a set was not pinned or a pin not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The name isn't 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, or begins with a dot.
    #[error("not a pin name: {name:?}; 1 to 64 letters, digits, '.', '_' or '-', no dot first")]
    Name {
        /// The name given.
        name: String,
    },
    /// There is no such set.
    #[error(transparent)]
    Set(#[from] SetMiss),
    /// The name pins another set.
    #[error("pin {name} names set {actual}, not {expected}")]
    Taken {
        /// The pin.
        name: String,
        /// The set to pin.
        expected: SetKey,
        /// The set it names.
        actual: SetKey,
    },
    /// There is no such pin.
    #[error("no pin {name}")]
    Absent {
        /// The name given.
        name: String,
    },
    /// The pin there can't be read.
    #[error("pin {name}: {source}")]
    Refused {
        /// The pin.
        name: String,
        /// Why.
        source: PinRefusal,
    },
    /// It could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Store {
    /// Pins a set under a name. Errors when the set isn't there or the name pins another one.
    pub fn pin(&self, name: &str, set: SetKey) -> Result<SmallOutcome, PinError> {
        judge_name(name)?;
        self.read_set(set)?;
        let bytes = canonical::render(&json!({"schema": PIN_SCHEMA, "set": set.to_string()}));
        match self.publish_small(self.pins_dir(), name, &bytes) {
            Err(PublishError::Conflict { .. }) => {}
            other => return Ok(other?),
        }
        match self.read_pin(name) {
            Ok(actual) => Err(PinError::Taken {
                name: name.into(),
                expected: set,
                actual,
            }),
            Err(source) => Err(PinError::Refused {
                name: name.into(),
                source,
            }),
        }
    }

    /// Removes a pin, good or not. Errors when there is none of that name.
    pub fn unpin(&self, name: &str) -> Result<(), PinError> {
        judge_name(name)?;
        self.writable()?;
        match self.pins_dir().unlink(name) {
            Err(error) if error.kind == FsErrorKind::NotFound => {
                return Err(PinError::Absent { name: name.into() });
            }
            other => other?,
        }
        Ok(self.pins_dir().sync()?)
    }

    /// Reads all pins. Errors only when their folder can't be listed.
    pub fn pins(&self) -> Result<Pins, FsError> {
        let mut pins = Pins::default();
        for name in crate::state::list_names(self.pins_dir())? {
            match self.read_pin(&name) {
                Ok(set) => {
                    pins.sets.insert(name, set);
                }
                Err(PinRefusal::File(SmallRefusal::Absent { .. })) => {}
                Err(refusal) => {
                    pins.refused.insert(name, refusal);
                }
            }
        }
        Ok(pins)
    }

    fn read_pin(&self, name: &str) -> Result<SetKey, PinRefusal> {
        let bytes = self.read_trusted(self.pins_dir(), name, PIN_BYTES_MAX)?;
        let mut fields = Fields::parse(&bytes, PIN_SCHEMA)?;
        let set = SetKey(fields.digest("set")?);
        fields.finish()?;
        Ok(set)
    }
}

impl PinRefusal {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_) => Blame::Store,
            Self::File(refusal) => refusal.blame(),
        }
    }
}

impl PinError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name { .. } | Self::Taken { .. } | Self::Absent { .. } => Blame::Caller,
            Self::Set(miss) => miss.blame(),
            Self::Refused { source, .. } => source.blame(),
            Self::Publish(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

fn judge_name(name: &str) -> Result<(), PinError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let good = (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain);
    if good {
        return Ok(());
    }
    Err(PinError::Name {
        name: crate::fields::cut(name.to_owned()),
    })
}

const PIN_BYTES_MAX: u64 = 4096;
