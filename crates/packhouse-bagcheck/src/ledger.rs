//! The ledger: `docs/format/ledger.md`.
//!
//! * Read from the first line to the last; the first entry that contradicts ends the reading, as
//!   the format has it.
//! * Whatever is in the file is judged against the entries before it, never against the clock.

mod body;
mod state;

use crate::json::{Json, parse};
use crate::shape::{is_digest, sha256};
use body::Body;
pub(crate) use state::{Packet, Seal, State};
use std::collections::BTreeMap;

/// Why a line or an act is refused: a code of `ledger.md`, section 6, and words.
pub(crate) type Refusal = (&'static str, String);

/// One line that was read.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number in the ledger.
    pub(crate) index: u64,
    /// When it was written, by the wall clock.
    pub(crate) at_ns: i64,
    /// The boot that it was written in.
    pub(crate) boot: String,
    /// Its kind.
    pub(crate) kind: String,
    /// Its body, of that kind's form.
    pub(crate) body: Body,
    /// Digest that it says the line before it has.
    pub(crate) previous: String,
    /// Digest of its own line.
    pub(crate) digest: String,
}

/// A whole ledger, up to the first entry that is refused.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The entries.
    pub(crate) entries: Vec<Entry>,
    /// What they make.
    pub(crate) state: State,
    /// The line that is refused, from 1, and why.
    pub(crate) refused: Option<(u64, Refusal)>,
    /// Bytes behind the last newline.
    pub(crate) torn_bytes: usize,
}

impl Ledger {
    /// Reads a ledger's bytes.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut ledger = Self::default();
        if bytes.len() > LEDGER_BYTES_MAX {
            let words = format!("{} bytes, more than 64 MiB", bytes.len());
            ledger.refused = Some((1, ("ledger.too-long", words)));
            return ledger;
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        ledger.torn_bytes = bytes.len() - whole;
        for (number, line) in (1..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
            if let Err(refusal) = ledger.take(line) {
                ledger.refused = Some((number, refusal));
                return ledger;
            }
        }
        if ledger.entries.is_empty() {
            let words = "not a single whole line".to_owned();
            ledger.refused = Some((1, ("ledger.no-entries", words)));
        }
        ledger
    }

    /// Returns the digest of the last entry, or 64 zeros.
    pub(crate) fn head(&self) -> String {
        let last = self.entries.last();
        last.map_or_else(|| "0".repeat(64), |entry| entry.digest.clone())
    }

    /// Returns the entry with this digest.
    pub(crate) fn find(&self, digest: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.digest == digest)
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let entry = read_line(line)?;
        let next = self.entries.len() as u64;
        if entry.index != next {
            let words = format!("index {} where {next} must be", entry.index);
            return Err(("ledger.index", words));
        }
        let head = self.head();
        if entry.previous != head {
            let words = format!(
                "`previous` is {}, the line before has {head}",
                entry.previous
            );
            return Err(("ledger.previous", words));
        }
        self.state.apply(&entry)?;
        self.entries.push(entry);
        Ok(())
    }
}

const LINE_BYTES_MAX: usize = 1 << 20;
const LEDGER_BYTES_MAX: usize = 64 << 20;
const FIELDS: [&str; 7] = [
    "at_ns", "body", "boot", "index", "kind", "previous", "schema",
];

/// Reads one line with its newline, whatever stands around it.
pub(crate) fn read_line(line: &[u8]) -> Result<Entry, Refusal> {
    if line.len() > LINE_BYTES_MAX {
        let words = format!("{} bytes, more than 1 MiB", line.len());
        return Err(("ledger.too-long", words));
    }
    let value = parse(line).map_err(|words| ("ledger.not-canonical", words))?;
    let Json::Object(map) = &value else {
        let words = format!("the line is {}", value.kind());
        return Err(("ledger.not-canonical", words));
    };
    body::exactly(map, "the line", &FIELDS, &[])?;
    let wrong = |name: &str, form: &str| Err(("ledger.type", format!("`{name}` is not {form}")));
    let at_ns = match map.get("at_ns") {
        Some(Json::Integer(at)) => i64::try_from(*at).ok(),
        _ => None,
    };
    let Some(at_ns) = at_ns else {
        return wrong("at_ns", "an integer of 64 bits with a sign");
    };
    let Some(Json::Text(boot)) = map.get("boot") else {
        return wrong("boot", "text");
    };
    let index = match map.get("index") {
        Some(Json::Integer(index)) => u64::try_from(*index).ok(),
        _ => None,
    };
    let Some(index) = index.filter(|index| *index <= body::COUNT_MAX) else {
        return wrong("index", "a count");
    };
    let Some(Json::Text(kind)) = map.get("kind") else {
        return wrong("kind", "text");
    };
    let previous = match map.get("previous") {
        Some(Json::Text(previous)) if is_digest(previous) => previous.clone(),
        _ => return wrong("previous", "a digest"),
    };
    let Some(Json::Text(schema)) = map.get("schema") else {
        return wrong("schema", "text");
    };
    let Some(Json::Object(fields)) = map.get("body") else {
        return wrong("body", "an object");
    };
    if schema != "packhouse/ledger/1" {
        return Err(("ledger.schema", format!("another schema: {schema:?}")));
    }
    Ok(Entry {
        index,
        at_ns,
        boot: boot.clone(),
        kind: kind.clone(),
        body: Body::read(kind, fields)?,
        previous,
        digest: sha256(&line[..line.len() - 1]),
    })
}

/// Reads lines that were taken from a ledger, in rising order: those of one lane and one packet.
/// Returns the entries and the state that they make, or the number of the line and why not.
pub(crate) fn read_extract(bytes: &[u8]) -> Result<Vec<Entry>, (u64, Refusal)> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        entries.push(read_line(line).map_err(|refusal| (number, refusal))?);
    }
    Ok(entries)
}

/// Packets by digest.
pub(crate) type Packets = BTreeMap<String, Packet>;
