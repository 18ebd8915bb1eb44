//! A bag's payload as typed records, and everything that is wrong with its form.

use super::{LegRecord, LegStatus, Line, RunRecord};
use crate::analysis::{Kind, Status};
use crate::document::DocumentError;
use crate::marker::Marker;
use crate::record::RecordError;
use crate::{Lane, Packet, Prereg};
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;
use packhouse_ledger::{Entry, EntryFault};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One thing that is wrong, or not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The reason code.
    pub code: &'static str,
    /// The payload path that it is about; of a line with its number.
    pub path: String,
    /// What.
    pub words: String,
}

/// A payload that was read. What is not there or broken is none, and a failure.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The payload's files.
    pub payload: Contents,
    /// Digest of `packet.json`.
    pub packet_digest: Digest,
    /// The lane.
    pub lane: Option<Lane>,
    /// The preregistration.
    pub prereg: Option<Prereg>,
    /// The packet.
    pub packet: Option<Packet>,
    /// The marker.
    pub marker: Option<Marker>,
    /// Lines of the ledger, each with its bytes.
    pub authority: Vec<(Vec<u8>, Entry)>,
    /// The run.
    pub run: Option<RunRecord>,
    /// What each leg's folder has, by its number.
    pub legs: BTreeMap<u64, LegReading>,
    /// What is wrong with all of it.
    pub failures: Vec<Failure>,
}

/// What a leg's folder has.
#[derive(Clone, Debug, Default)]
pub struct LegReading {
    /// Its record.
    pub record: Option<LegRecord>,
    /// Its events, each with the number of its line, from 1.
    pub lines: Vec<(u64, Line)>,
    /// Whether each line of its exchange could be read.
    pub is_whole: bool,
}

impl Failure {
    /// One failure.
    pub fn new(code: &'static str, path: impl Into<String>, words: impl fmt::Display) -> Self {
        Self {
            code,
            path: path.into(),
            words: words.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.code, self.path)?;
        // A program's own words may be in it, as many as a message has.
        match self.words.char_indices().nth(WORDS_MAX) {
            None => f.write_str(&self.words),
            Some((end, _)) => write!(f, "{} ...", &self.words[..end]),
        }
    }
}

/// Most characters of a failure's words in an analysis.
const WORDS_MAX: usize = 500;

impl Reading {
    /// What its inputs were drawn from: the marker's salt, else the nonce of the run.
    pub fn source(&self) -> Option<Digest> {
        let salt = self.marker.as_ref().and_then(|marker| marker.salt);
        salt.or_else(|| self.run.as_ref().map(|run| run.nonce))
    }

    /// Reads the payload of a bag.
    pub fn of(bag: &Contents) -> Self {
        let payload = bag.payload();
        let mut failures = Vec::new();
        let mut files = Files {
            payload: &payload,
            failures: &mut failures,
        };
        let run = files.record(RUN, RunRecord::parse);
        let kind = run.as_ref().map_or(Kind::Run, |run| run.kind);
        let is_aborted = run.as_ref().is_none_or(|run| run.status == Status::Aborted);
        let mut reading = Self {
            packet_digest: Digest::of(payload.get(PACKET).unwrap_or_default()),
            lane: files.document(LANE, Lane::parse),
            prereg: files.document(PREREG, Prereg::parse),
            packet: files.document(PACKET, Packet::parse),
            marker: files.marker(kind),
            authority: files.authority(),
            legs: files.legs(is_aborted, run.as_ref()),
            run,
            failures: Vec::new(),
            payload: Contents::default(),
        };
        files.unexpected();
        reading.payload = payload;
        reading.failures = failures;
        reading
    }

    /// A run or a rehearsal; a run where nobody can say.
    pub fn kind(&self) -> Kind {
        self.run.as_ref().map_or(Kind::Run, |run| run.kind)
    }

    /// How the run ended; aborted where nobody can say.
    pub fn status(&self) -> Status {
        self.run.as_ref().map_or(Status::Aborted, |run| run.status)
    }
}

struct Files<'a> {
    payload: &'a Contents,
    failures: &'a mut Vec<Failure>,
}

impl Files<'_> {
    fn fail(&mut self, code: &'static str, path: &str, words: impl fmt::Display) {
        self.failures.push(Failure::new(code, path, words));
    }

    fn required(&mut self, path: &str) -> Option<Vec<u8>> {
        let bytes = self.payload.get(path).map(<[u8]>::to_vec);
        if bytes.is_none() {
            self.fail("record.missing", path, "not there");
        }
        bytes
    }

    fn record<T>(
        &mut self,
        path: &str,
        parse: impl Fn(&[u8]) -> Result<T, RecordError>,
    ) -> Option<T> {
        let bytes = self.required(path)?;
        match parse(&bytes) {
            Ok(record) => Some(record),
            Err(error) => {
                self.fail(error.code(), path, error);
                None
            }
        }
    }

    fn document<T>(
        &mut self,
        path: &str,
        parse: impl Fn(&[u8]) -> Result<T, DocumentError>,
    ) -> Option<T> {
        let bytes = self.required(path)?;
        match parse(&bytes) {
            Ok(document) => Some(document),
            Err(error) => {
                self.fail(document_code(&error), path, error);
                None
            }
        }
    }

    fn marker(&mut self, kind: Kind) -> Option<Marker> {
        match (kind, self.payload.get(MARKER)) {
            (Kind::Run, None) => {
                self.fail("marker.missing", MARKER, "not there, and this is a run");
                None
            }
            (Kind::Rehearsal, None) => None,
            (Kind::Rehearsal, Some(_)) => {
                self.fail(
                    "marker.unexpected",
                    MARKER,
                    "there, and this is a rehearsal",
                );
                None
            }
            (Kind::Run, Some(_)) => self.document(MARKER, Marker::parse),
        }
    }

    fn authority(&mut self) -> Vec<(Vec<u8>, Entry)> {
        let Some(bytes) = self.required(AUTHORITY) else {
            return Vec::new();
        };
        let mut entries = Vec::new();
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            match Entry::parse(line) {
                Ok(entry) => entries.push((line.to_vec(), entry)),
                Err(fault) => {
                    let path = format!("{AUTHORITY}:{}", index + 1);
                    self.fail(entry_code(&fault), &path, fault);
                }
            }
        }
        entries
    }

    /// Every folder below `legs`. Of an aborted run a broken leg's files may be lost.
    fn legs(&mut self, is_aborted: bool, run: Option<&RunRecord>) -> BTreeMap<u64, LegReading> {
        let names: BTreeSet<String> = self
            .payload
            .paths()
            .filter_map(|path| Some(path.strip_prefix("legs/")?.split_once('/')?.0.to_owned()))
            .collect();
        let mut legs = BTreeMap::new();
        for name in names {
            let Some(number) = leg_number(&name) else {
                continue;
            };
            let record_path = format!("legs/{name}/{LEG}");
            let is_lost = is_aborted && !ended(run, number);
            let is_excused = is_lost && self.payload.get(&record_path).is_none();
            let record = match is_excused {
                true => None,
                false => self.record(&record_path, LegRecord::parse),
            };
            let (lines, is_whole) = self.exchange(&name, is_aborted, is_lost);
            let leg = LegReading {
                record,
                lines,
                is_whole,
            };
            legs.insert(number, leg);
        }
        legs
    }

    fn exchange(
        &mut self,
        name: &str,
        is_aborted: bool,
        is_lost: bool,
    ) -> (Vec<(u64, Line)>, bool) {
        let path = format!("legs/{name}/{EXCHANGE}");
        if is_lost && self.payload.get(&path).is_none() {
            return (Vec::new(), true);
        }
        let Some(bytes) = self.required(&path) else {
            return (Vec::new(), false);
        };
        let (mut lines, mut is_whole) = (Vec::new(), true);
        for (index, bytes) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            // A killed controller leaves a torn line, which counts for nothing.
            if is_aborted && !bytes.ends_with(b"\n") {
                continue;
            }
            let number = index as u64 + 1;
            match Line::parse(bytes) {
                Ok(line) => lines.push((number, line)),
                Err(error) => {
                    is_whole = false;
                    let code = error.code();
                    self.fail(code, &format!("{path}:{number}"), error);
                }
            }
        }
        (lines, is_whole)
    }

    /// Files that the page does not have.
    fn unexpected(&mut self) {
        let strangers: Vec<String> = self
            .payload
            .paths()
            .filter(|path| !is_known(path))
            .map(str::to_owned)
            .collect();
        for path in strangers {
            self.fail("record.unexpected", &path, "no file of a payload");
        }
    }
}

/// The folder of a leg.
pub fn leg_folder(number: u64) -> String {
    format!("legs/{number:02}")
}

/// Whether the page has a payload file of this path.
fn is_known(path: &str) -> bool {
    if [LANE, PREREG, PACKET, MARKER, AUTHORITY, RUN].contains(&path) {
        return true;
    }
    let Some((folder, rest)) = path.split_once('/') else {
        return false;
    };
    match folder {
        "legs" => rest.split_once('/').is_some_and(|(name, file)| {
            let files = [LEG, EXCHANGE, "control.stderr", "candidate.stderr"];
            leg_number(name).is_some() && files.contains(&file)
        }),
        "outputs" => Digest::parse(rest).is_ok(),
        "fixtures" | "drawn" => rest.contains('/'),
        _ => false,
    }
}

fn leg_number(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (format!("{number:02}") == name).then_some(number)
}

fn document_code(error: &DocumentError) -> &'static str {
    match error {
        DocumentError::TooLong { .. }
        | DocumentError::NotText { .. }
        | DocumentError::Syntax { .. } => "record.not-canonical",
        DocumentError::Absent { .. } => "record.missing-field",
        DocumentError::Unknown(_) => "record.unknown-field",
        DocumentError::Wrong { .. } | DocumentError::Twice { .. } | DocumentError::Rule { .. } => {
            "record.type"
        }
    }
}

/// Whether a run says of a leg that it came to its end.
fn ended(run: Option<&RunRecord>, number: u64) -> bool {
    let mut legs = run.into_iter().flat_map(|run| &run.legs);
    legs.any(|leg| leg.number == number && leg.status != LegStatus::Broken)
}

/// The code of a line of the ledger by its place in a bag.
fn entry_code(fault: &EntryFault) -> &'static str {
    match fault.code() {
        "ledger.unknown-field" => "record.unknown-field",
        "ledger.missing-field" => "record.missing-field",
        "ledger.not-canonical" | "ledger.too-long" => "record.not-canonical",
        _ => "record.type",
    }
}

/// The lane's document.
pub const LANE: &str = "lane.toml";
/// The preregistration.
pub const PREREG: &str = "prereg.toml";
/// The packet.
pub const PACKET: &str = "packet.json";
/// The marker.
pub const MARKER: &str = "marker.json";
/// Lines of the ledger.
pub const AUTHORITY: &str = "authority.jsonl";
/// The run.
pub const RUN: &str = "run.json";
/// A leg, in its folder.
pub const LEG: &str = "leg.json";
/// Its events.
pub const EXCHANGE: &str = "exchange.jsonl";
