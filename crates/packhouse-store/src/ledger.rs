//! The source ledger: what the bytes of each tensor of a container file hash to, by the file's stat
//! identity, so that a hit reads no byte of the source.
//!
//! A ledger is a folder of immutable segments, each named by the SHA-256 of its bytes. Invariants:
//! - a writer only adds a segment; the ledger is the union of those of one stat identity, so two
//!   writers lose nothing and need no lock;
//! - many segments are merged into one that is added first, before those it contains are removed;
//! - segments that contradict each other are all refused: the file was not what one of them saw;
//! - entries are looked up by exact (offset, length).
//!
//! Never: a path or a file name; an identity that is not settled. Format: `docs/format/state.md`.

use crate::fields::{FieldError, Fields};
use crate::root::{OpenError, Store};
use crate::state::{Durability, Recorded, State, StateError};
use crate::state::{file_system_text, list_names, remove_name, render_stat};
use crate::state::{settle_wait_ns, take_stat};
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::encode::Sequence;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::StatIdentity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The schema of a ledger segment.
pub const SOURCE_SCHEMA: &str = "packhouse/source/1";

/// The most tensors that one ledger holds.
pub const LEDGER_TENSORS_MAX: usize = 1 << 18;

/// What is known of one container file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLedger {
    stat: StatIdentity,
    directory: Digest,
    tensors: BTreeMap<SourceRange, TensorDigest>,
}

/// An exact range of a container file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceRange {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A ledger as found, with the segments that were refused on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLedger {
    /// What the good segments say together.
    pub ledger: SourceLedger,
    /// Segments that were refused; each costs hashing what it held.
    pub refused: Vec<SegmentRefusal>,
}

/// Why nothing is known of a file; costs hashing its tensors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceMiss {
    /// This file was never seen.
    #[error("no source ledger for inode {}", stat.inode)]
    Absent {
        /// The file's stat identity.
        stat: Box<StatIdentity>,
    },
    /// The file changed since it was seen.
    #[error("source ledger for inode {} is stale: {field} differs", actual.inode)]
    Stale {
        /// The first field of the stat identity that differs.
        field: &'static str,
        /// The identity that was seen.
        expected: Box<StatIdentity>,
        /// The identity now.
        actual: Box<StatIdentity>,
    },
    /// Every segment was refused; this is the first one's reason.
    #[error(transparent)]
    Refused(SegmentRefusal),
    /// The folder can't be read.
    #[error("source ledger: {0}")]
    Unreadable(FsError),
}

/// Why one segment isn't believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentRefusal {
    /// Its name isn't a digest.
    #[error("source segment {name:?}: not a digest")]
    Name {
        /// The name.
        name: String,
    },
    /// Its bytes hash to another name: torn by a crash or edited.
    #[error("source segment {expected}: its content hashes to {actual}")]
    Content {
        /// Its name.
        expected: Digest,
        /// SHA-256 of its bytes.
        actual: Digest,
    },
    /// Not of the schema.
    #[error("source segment {name}: {source}")]
    Form {
        /// Its name.
        name: Digest,
        /// What is wrong with its bytes.
        source: FieldError,
    },
    /// Its ranges are not in rising order.
    #[error("source segment {name}: range at offset {offset} does not rise")]
    Order {
        /// Its name.
        name: Digest,
        /// Offset of the range that does not rise.
        offset: u64,
    },
    /// A range leaves the file.
    #[error("source segment {name}: {length} bytes at offset {offset} leave a file of {size}")]
    OutOfFile {
        /// Its name.
        name: Digest,
        /// Offset of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// Size of the file by the segment's own identity.
        size: u64,
    },
    /// Two segments of one identity give different tensor directories.
    #[error("source segments disagree on the tensor directory: {first} and {second}")]
    Directory {
        /// One answer.
        first: Digest,
        /// The other.
        second: Digest,
    },
    /// Two segments of one identity give different digests for one range.
    #[error("source segments disagree at offset {offset}: {first} and {second}")]
    Digest {
        /// Offset of the range.
        offset: u64,
        /// One answer.
        first: TensorDigest,
        /// The other.
        second: TensorDigest,
    },
    /// It can't be read.
    #[error("source segment: {0}")]
    Unreadable(FsError),
}

/// The source ledgers of one user for one store.
#[derive(Clone)]
pub struct Sources {
    state: State,
}

impl SourceLedger {
    /// Makes a ledger; what `Sources::extend` adds.
    pub fn new(
        stat: StatIdentity,
        directory: Digest,
        tensors: BTreeMap<SourceRange, TensorDigest>,
    ) -> Self {
        Self {
            stat,
            directory,
            tensors,
        }
    }

    /// The identity the file had.
    pub fn stat(&self) -> &StatIdentity {
        &self.stat
    }

    /// Digest of the file's tensor directory.
    pub fn directory(&self) -> Digest {
        self.directory
    }

    /// The digest of exactly these bytes, if it is known.
    pub fn tensor(&self, range: SourceRange) -> Option<TensorDigest> {
        self.tensors.get(&range).copied()
    }

    /// All known ranges, by rising offset.
    pub fn tensors(&self) -> &BTreeMap<SourceRange, TensorDigest> {
        &self.tensors
    }

    fn render(&self) -> Vec<u8> {
        let tensors: Vec<Value> = self
            .tensors
            .iter()
            .map(|(range, digest)| {
                json!({
                    "offset": range.offset,
                    "length": range.length,
                    "sha256": digest.to_string(),
                })
            })
            .collect();
        canonical::render(&json!({
            "schema": SOURCE_SCHEMA,
            "stat": render_stat(&self.stat),
            "directory": self.directory.to_string(),
            "tensors": tensors,
        }))
    }

    /// Adds what another segment of the same identity says. Errors when they contradict each other;
    /// this one is then unchanged.
    fn merge(&mut self, other: &Self) -> Result<(), SegmentRefusal> {
        if self.directory != other.directory {
            return Err(SegmentRefusal::Directory {
                first: self.directory,
                second: other.directory,
            });
        }
        for (range, second) in &other.tensors {
            match self.tensors.get(range) {
                Some(first) if first != second => {
                    return Err(SegmentRefusal::Digest {
                        offset: range.offset,
                        first: *first,
                        second: *second,
                    });
                }
                Some(_) | None => {}
            }
        }
        self.tensors.extend(&other.tensors);
        Ok(())
    }
}

impl Sources {
    /// The source ledgers in a private state.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// Looks a container file up by its live stat identity. Misses are named.
    pub fn lookup(&self, stat: &StatIdentity) -> Result<FoundLedger, SourceMiss> {
        let place = place_of(stat);
        let folder = self.state.folder(&[FOLDER, &place]);
        let absent = || SourceMiss::Absent {
            stat: Box::new(*stat),
        };
        let dir = folder.map_err(SourceMiss::Unreadable)?.ok_or_else(absent)?;
        let segments = read_segments(&dir).map_err(SourceMiss::Unreadable)?;
        let current: Vec<&SourceLedger> = segments.of_identity(stat).map(|(_, s)| s).collect();
        let Some((first, rest)) = current.split_first() else {
            return Err(segments.miss(stat));
        };
        let mut ledger = SourceLedger::clone(first);
        for segment in rest {
            ledger.merge(segment).map_err(SourceMiss::Refused)?;
        }
        Ok(FoundLedger {
            ledger,
            refused: segments.refused,
        })
    }

    /// Adds what was learnt of a file at `now_ns`, and removes segments of the same inode that are
    /// stale, damaged or contradicted. Two writers at once lose nothing. Errors as the file system
    /// does, and when the ledger would grow beyond `LEDGER_TENSORS_MAX`.
    pub fn extend(&self, learnt: &SourceLedger, now_ns: i64) -> Result<Recorded, StateError> {
        if let Some(wait_ns) = settle_wait_ns(&learnt.stat, now_ns) {
            return Ok(Recorded::NotYet { wait_ns });
        }
        let place = [FOLDER, &place_of(&learnt.stat)];
        let dir = self.state.folder_made(&place)?;
        let segments = read_segments(&dir)?;
        let mut whole = learnt.clone();
        let mut agreeing = Vec::new();
        let mut gone = segments.damaged.clone();
        for (name, segment) in &segments.good {
            if segment.stat == learnt.stat && whole.merge(segment).is_ok() {
                agreeing.push(name.clone());
            } else {
                gone.push(name.clone());
            }
        }
        if whole.tensors.len() > LEDGER_TENSORS_MAX {
            return Err(StateError::LedgerFull {
                path: dir.path().to_owned(),
                limit: LEDGER_TENSORS_MAX,
                actual: whole.tensors.len(),
            });
        }
        let merges = agreeing.len() >= SEGMENTS_MAX;
        let bytes = if merges {
            whole.render()
        } else {
            learnt.render()
        };
        let name = Digest::of(&bytes).to_string();
        self.state
            .replace(&dir, &name, &bytes, Durability::Durable)?;
        // The file's own folder is synced by now; its name, and its folder's, are not yet.
        self.state.sync_folder(&place)?;
        if merges {
            gone.append(&mut agreeing);
        }
        for old in gone.iter().filter(|old| **old != name) {
            remove_name(&dir, old)?;
        }
        Ok(Recorded::Written)
    }

    /// Lists the places that have a ledger, each with the time of its newest segment.
    pub(crate) fn places(&self) -> Result<Vec<(String, i64)>, FsError> {
        let mut places = Vec::new();
        let Some(root) = self.state.folder(&[FOLDER])? else {
            return Ok(places);
        };
        for place in list_names(&root)? {
            let dir = root.open_dir(&place)?;
            let mut newest_ns = i64::MIN;
            for name in dir.list()? {
                newest_ns = newest_ns.max(dir.stat_entry(&name)?.mtime_ns);
            }
            places.push((place, newest_ns));
        }
        Ok(places)
    }

    /// Forgets all that is known of the file at one place.
    pub(crate) fn forget_place(&self, place: &str) -> Result<(), FsError> {
        let Some(root) = self.state.folder(&[FOLDER])? else {
            return Ok(());
        };
        let dir = root.open_dir(place)?;
        for name in dir.list()? {
            dir.unlink(&name)?;
        }
        root.remove_dir(place)
    }
}

impl Store {
    /// This user's source ledgers.
    pub fn sources(&self) -> Result<Sources, &OpenError> {
        self.state().map(|state| Sources::new(state.clone()))
    }
}

/// The segments of one place.
#[derive(Default)]
struct Segments {
    good: Vec<(String, SourceLedger)>,
    damaged: Vec<String>,
    refused: Vec<SegmentRefusal>,
}

impl Segments {
    fn of_identity(&self, stat: &StatIdentity) -> impl Iterator<Item = &(String, SourceLedger)> {
        self.good.iter().filter(move |(_, s)| s.stat == *stat)
    }

    fn miss(mut self, stat: &StatIdentity) -> SourceMiss {
        if let Some((_, seen)) = self.good.first()
            && let Some(field) = seen.stat.difference(stat)
        {
            return SourceMiss::Stale {
                field,
                expected: Box::new(seen.stat),
                actual: Box::new(*stat),
            };
        }
        match self.refused.pop() {
            Some(refusal) => SourceMiss::Refused(refusal),
            None => SourceMiss::Absent {
                stat: Box::new(*stat),
            },
        }
    }
}

fn read_segments(dir: &Dir) -> Result<Segments, FsError> {
    let mut segments = Segments::default();
    for attempt in 0..READ_ATTEMPTS {
        segments = Segments::default();
        let mut vanished = false;
        for name in list_names(dir)? {
            match dir.read_small(&name, SEGMENT_BYTES_MAX) {
                Ok(bytes) => segments.add(name, &bytes),
                // Another writer merged it: the merged segment is there, so list again.
                Err(error) if error.kind == FsErrorKind::NotFound => vanished = true,
                Err(error) => segments.refuse(name, SegmentRefusal::Unreadable(error)),
            }
        }
        if !vanished || attempt + 1 == READ_ATTEMPTS {
            break;
        }
    }
    Ok(segments)
}

impl Segments {
    fn add(&mut self, name: String, bytes: &[u8]) {
        match parse_segment(&name, bytes) {
            Ok(segment) => self.good.push((name, segment)),
            Err(refusal) => self.refuse(name, refusal),
        }
    }

    fn refuse(&mut self, name: String, refusal: SegmentRefusal) {
        self.damaged.push(name);
        self.refused.push(refusal);
    }
}

fn parse_segment(name: &str, bytes: &[u8]) -> Result<SourceLedger, SegmentRefusal> {
    let expected = Digest::parse(name).map_err(|_| SegmentRefusal::Name { name: name.into() })?;
    let actual = Digest::of(bytes);
    if actual != expected {
        return Err(SegmentRefusal::Content { expected, actual });
    }
    let (stat, directory, entries) = read_fields(bytes).map_err(|source| SegmentRefusal::Form {
        name: expected,
        source,
    })?;
    let mut tensors = BTreeMap::new();
    for (range, digest) in entries {
        let (offset, length) = (range.offset, range.length);
        if offset.checked_add(length).is_none_or(|end| end > stat.size) {
            return Err(SegmentRefusal::OutOfFile {
                name: expected,
                offset,
                length,
                size: stat.size,
            });
        }
        if tensors
            .last_key_value()
            .is_some_and(|(last, _)| *last >= range)
        {
            return Err(SegmentRefusal::Order {
                name: expected,
                offset,
            });
        }
        tensors.insert(range, digest);
    }
    Ok(SourceLedger::new(stat, directory, tensors))
}

type SegmentFields = (StatIdentity, Digest, Vec<(SourceRange, TensorDigest)>);

fn read_fields(bytes: &[u8]) -> Result<SegmentFields, FieldError> {
    let mut fields = Fields::parse(bytes, SOURCE_SCHEMA)?;
    let stat = take_stat(&mut fields)?;
    let directory = fields.digest("directory")?;
    let mut entries = Vec::new();
    for mut inner in fields.objects("tensors")? {
        let range = SourceRange {
            offset: inner.integer("offset")?,
            length: inner.integer("length")?,
        };
        entries.push((range, TensorDigest(inner.digest("sha256")?)));
        inner.finish()?;
    }
    fields.finish()?;
    Ok((stat, directory, entries))
}

/// Names the place of a file: what of its identity survives an edit, so that an edited file's
/// ledger replaces the old one.
pub(crate) fn place_of(stat: &StatIdentity) -> String {
    let mut sequence = Sequence::new("packhouse/place/1");
    sequence.text(&file_system_text(&stat.file_system));
    sequence.integer(stat.inode);
    sequence.list(stat.generation.as_slice(), |s, generation| {
        s.integer(u64::from(*generation));
    });
    sequence.finish().to_string()
}

/// The folder of source ledgers in a private state.
pub(crate) const FOLDER: &str = "sources";

/// Segments of one identity beyond which the next `extend` merges them.
const SEGMENTS_MAX: usize = 8;

const SEGMENT_BYTES_MAX: u64 = canonical::RECORD_BYTES_MAX as u64;
const READ_ATTEMPTS: u32 = 4;
