//! Where copies came from: one record per source path, so that a model is found by its path, and a
//! source that changed since is noticed.
//!
//! Invariants:
//! - a record is believed under the path that it holds the digest of, and for the stat identities
//!   that the source's files had when they were hashed;
//! - a record is replaced whole, under the room lock, and only after a hash or a receipt.
//!
//! Never: needs the source to be there. Format: `docs/format/model-copies.md`.

use crate::models::entry::models_dir;
use crate::models::key::ModelKey;
use crate::models::receipts::is_plain;
use crate::name::{SOURCES_NAME, TEMP_PREFIX};
use crate::receipts::{checksum_of, seal};
use crate::room::RoomError;
use crate::root::StageRoot;
use crate::staged::FOLDER_MODE;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::encode::Sequence;
use packhouse_store::fields::{FieldError, Fields};
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_store::state::{render_stat, take_stat};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::{FsKind, FsTrust, StatIdentity};
use serde_json::{Value, json};
use std::path::Path;

/// The schema of a source record.
pub const SOURCE_RECORD_SCHEMA: &str = "packhouse/model-source/1";

/// One file of a source, as whoever opened it found it.
#[derive(Debug)]
pub enum SourceFile {
    /// It is there.
    Open(File),
    /// Nothing has its name.
    Gone,
    /// Its disk can't be reached: it was unplugged, say.
    Unreadable {
        /// What the system said.
        why: String,
    },
    /// It is there, and this user may not read it.
    Forbidden(SeenStat),
    /// Something else has its name, or nobody can tell what has.
    Other {
        /// What differs.
        field: &'static str,
    },
}

/// What `stat` says of a file that can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenStat {
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Owner.
    pub uid: u32,
    /// Permission bits: the lower 12 bits of st_mode.
    pub mode: u32,
}

/// What the source is now, beside what it was when it was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Every file is what it was.
    Unchanged,
    /// It is not there, or not all of it; what is there is what it was.
    Gone,
    /// It can't be read; what can be is what it was.
    Unreadable {
        /// What the system said.
        why: String,
    },
    /// It is another file, or was changed.
    Changed {
        /// The first field that differs.
        field: &'static str,
    },
    /// It is what it was, and some process can write to it.
    Written,
    /// It is on a file system whose stat proves nothing.
    Remote {
        /// The file system.
        kind: FsKind,
    },
    /// The copy was found by its digest alone.
    NotAsked,
}

/// What a path's content was when it was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// The path for people: what is no UTF-8 in it is replaced.
    pub path: String,
    /// What names the record: a digest of the path's bytes.
    pub name: Digest,
    /// The model that the path was.
    pub key: ModelKey,
    /// The files' stat identities when they were hashed, shards in order.
    pub files: Vec<StatIdentity>,
}

/// Why a record of a source is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceRecordError {
    /// It can't be read or trusted.
    #[error(transparent)]
    Small(#[from] SmallRefusal),
    /// Not a record of this schema.
    #[error("record {name}: {source}")]
    Form {
        /// The record's name.
        name: Digest,
        /// What is wrong with it.
        source: FieldError,
    },
    /// Torn or edited.
    #[error("record {name}: checksum {expected}, content has {actual}")]
    Checksum {
        /// The record's name.
        name: Digest,
        /// The checksum in the record.
        expected: Digest,
        /// The checksum of its content.
        actual: Digest,
    },
    /// The record of another path.
    #[error("record {name}: is of path {path:?}, named {actual}")]
    OtherPath {
        /// The record's name.
        name: Digest,
        /// The path in the record.
        path: String,
        /// The name that it has.
        actual: Digest,
    },
}

impl SourceRecord {
    /// Makes the record of a path.
    pub(crate) fn new(path: &Path, key: ModelKey, files: Vec<StatIdentity>) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            name: record_name(path),
            key,
            files,
        }
    }

    /// Parses the record of this name. Errors on any byte that `render` would not have written.
    pub fn parse(name: Digest, bytes: &[u8]) -> Result<Self, SourceRecordError> {
        let form = |source| SourceRecordError::Form { name, source };
        let mut fields = Fields::parse(bytes, SOURCE_RECORD_SCHEMA).map_err(form)?;
        let expected = fields.digest("checksum").map_err(form)?;
        let actual = checksum_of(bytes);
        if actual != expected {
            return Err(SourceRecordError::Checksum {
                name,
                expected,
                actual,
            });
        }
        let record = Self::take(fields).map_err(form)?;
        if record.name != name {
            return Err(SourceRecordError::OtherPath {
                name,
                path: record.path,
                actual: record.name,
            });
        }
        Ok(record)
    }

    /// Renders the record as canonical JSON; its first field is the checksum of the rest.
    pub fn render(&self) -> Vec<u8> {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|stat| json!({"stat": render_stat(stat)}))
            .collect();
        seal(json!({
            "schema": SOURCE_RECORD_SCHEMA,
            "path": self.path,
            "path_sha256": self.name.to_string(),
            "key": self.key.to_string(),
            "files": files,
        }))
    }

    /// Whether open files are what was copied, as far as stat can prove it.
    pub(crate) fn is_of(&self, files: &[File]) -> Result<bool, FsError> {
        for (file, was) in files.iter().zip(&self.files) {
            if was.difference(&file.identity()?).is_some() || remote_kind(file)?.is_some() {
                return Ok(false);
            }
        }
        Ok(files.len() == self.files.len())
    }

    /// Compares the source's files with what they were.
    pub fn compare(&self, files: &[SourceFile]) -> Result<SourceState, FsError> {
        if files.is_empty() {
            return Ok(SourceState::NotAsked);
        }
        if files.len() != self.files.len() {
            let field = "count of files";
            return Ok(SourceState::Changed { field });
        }
        let (mut state, mut is_written) = (SourceState::Unchanged, false);
        for (file, was) in files.iter().zip(&self.files) {
            match file {
                SourceFile::Open(file) => {
                    if let Some(field) = was.difference(&file.identity()?) {
                        return Ok(SourceState::Changed { field });
                    }
                    is_written |= file.has_writer() == Some(true);
                    if let kind @ Some(_) = remote_kind(file)? {
                        let remote = kind.map(|kind| SourceState::Remote { kind });
                        state = remote.unwrap_or(state);
                    }
                }
                SourceFile::Gone if state == SourceState::Unchanged => state = SourceState::Gone,
                SourceFile::Gone => {}
                SourceFile::Other { field } => return Ok(SourceState::Changed { field }),
                SourceFile::Forbidden(seen) => {
                    if let Some(field) = was.difference(&seen.beside(was)) {
                        return Ok(SourceState::Changed { field });
                    }
                    if state == SourceState::Unchanged {
                        let why = "permission denied".to_owned();
                        state = SourceState::Unreadable { why };
                    }
                }
                SourceFile::Unreadable { why } => {
                    if state == SourceState::Unchanged {
                        state = SourceState::Unreadable { why: why.clone() };
                    }
                }
            }
        }
        // Of a remote one nothing is proven anyway, and that is the first thing to say.
        let is_remote = matches!(state, SourceState::Remote { .. });
        Ok(match is_written && !is_remote {
            true => SourceState::Written,
            false => state,
        })
    }

    fn take(mut fields: Fields) -> Result<Self, FieldError> {
        let mut files = Vec::new();
        for mut inner in fields.objects("files")? {
            files.push(take_stat(&mut inner)?);
            inner.finish()?;
        }
        let record = Self {
            path: fields.text("path")?,
            name: fields.digest("path_sha256")?,
            key: ModelKey(fields.digest("key")?),
            files,
        };
        fields.finish()?;
        Ok(record)
    }
}

impl SeenStat {
    /// A stat identity with what is seen here, and what can't be seen as it was.
    fn beside(&self, was: &StatIdentity) -> StatIdentity {
        StatIdentity {
            inode: self.inode,
            size: self.size,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            uid: self.uid,
            mode: self.mode,
            ..*was
        }
    }
}

impl SourceRecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Small(refusal) => refusal.blame(),
            Self::Form { .. } | Self::Checksum { .. } | Self::OtherPath { .. } => Blame::Store,
        }
    }
}

/// The kind of a file's file system, where its stat proves nothing.
pub(crate) fn remote_kind(file: &File) -> Result<Option<FsKind>, FsError> {
    let kind = file.fs_stat()?.kind;
    Ok((kind.trust() == FsTrust::Remote).then_some(kind))
}

/// What the copy of a source's file is called: as the file, where that is a name that a record can
/// hold.
pub(crate) fn copy_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    is_plain(name).then(|| name.to_owned())
}

/// Reads the record of a path; `None` where there is none.
pub(crate) fn read_record(
    root: &StageRoot,
    path: &Path,
) -> Result<Option<SourceRecord>, SourceRecordError> {
    read_named(root, record_name(path))
}

/// A record as found under its name.
pub(crate) type FoundRecord = (Digest, Result<SourceRecord, SourceRecordError>);

/// Reads every record, rising by name.
pub(crate) fn read_all(root: &StageRoot) -> Result<Vec<FoundRecord>, FsError> {
    let Some(dir) = sources_dir(root)? else {
        return Ok(Vec::new());
    };
    let names = dir.list()?;
    let names = names
        .iter()
        .filter_map(|name| Digest::parse(name.to_str()?).ok());
    let mut records = Vec::new();
    for name in names {
        match read_named(root, name) {
            Ok(None) => {}
            Ok(Some(record)) => records.push((name, Ok(record))),
            Err(error) => records.push((name, Err(error))),
        }
    }
    Ok(records)
}

/// Writes a record over the one before, whole or not at all.
pub(crate) fn write_record(root: &StageRoot, record: &SourceRecord) -> Result<(), RoomError> {
    // Whoever holds the lock writes alone, so what is unfinished here is a dead writer's.
    let _held = root.lock_room()?;
    let dir = make_sources_dir(root)?;
    sweep(&dir, false)?;
    let temp = format!("{TEMP_PREFIX}{}", root.random_digits()?);
    let written = dir.create_new(&temp, 0o600).and_then(|file| {
        file.write_all_at(0, &record.render())?;
        file.sync()
    });
    let renamed = written.and_then(|()| dir.rename_over(&temp, record.name.to_string()));
    if let Err(error) = renamed {
        // The first error is the one to report.
        let _ = dir.unlink(&temp);
        return Err(error.into());
    }
    Ok(dir.sync()?)
}

/// Removes a record; an absent one is fine.
pub(crate) fn remove_record(root: &StageRoot, name: Digest) -> Result<(), FsError> {
    let Some(dir) = sources_dir(root)? else {
        return Ok(());
    };
    match dir.unlink(name.to_string()) {
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Counts, and removes, what dead writers left; under the room lock.
pub(crate) fn sweep(dir: &Dir, dry_run: bool) -> Result<u64, FsError> {
    let mut count = 0;
    for name in dir.list()? {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with(TEMP_PREFIX))
        {
            count += 1;
            if !dry_run {
                dir.unlink(&name)?;
            }
        }
    }
    Ok(count)
}

/// The folder of records; `None` where nobody made one.
pub(crate) fn sources_dir(root: &StageRoot) -> Result<Option<Dir>, FsError> {
    let Some(models) = models_dir(root)? else {
        return Ok(None);
    };
    match models.open_dir(SOURCES_NAME) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn make_sources_dir(root: &StageRoot) -> Result<Dir, FsError> {
    let models = crate::models::entry::make_models_dir(root)?;
    match models.make_dir(SOURCES_NAME, FOLDER_MODE) {
        Err(error) if error.kind == FsErrorKind::Exists => {}
        other => other?,
    }
    // Also where a dead process made it and got no further.
    models.sync()?;
    models.open_dir(SOURCES_NAME)
}

fn read_named(root: &StageRoot, name: Digest) -> Result<Option<SourceRecord>, SourceRecordError> {
    let Some(dir) = sources_dir(root).map_err(SmallRefusal::from)? else {
        return Ok(None);
    };
    match read_trusted(&dir, &name.to_string(), RECORD_BYTES_MAX, &root.own) {
        Ok(bytes) => SourceRecord::parse(name, &bytes).map(Some),
        Err(SmallRefusal::Absent { .. }) => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

/// What names the record of a path, and whose turn it is to work on it.
pub(crate) fn record_name(path: &Path) -> Digest {
    let mut sequence = Sequence::new(PATH_TAG);
    sequence.bytes(path.as_os_str().as_encoded_bytes());
    sequence.finish()
}

const PATH_TAG: &str = "packhouse/model-path/1";
/// Room for some thousand shards.
const RECORD_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::stat::FsId;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn record() -> SourceRecord {
        let stat = StatIdentity {
            file_system: FsId::Uuid([7; 16]),
            inode: 2,
            generation: Some(3),
            size: 4,
            mtime_ns: -5,
            ctime_ns: 6,
            uid: 7,
            mode: 0o644,
        };
        let key = ModelKey(Digest::of(b"model"));
        SourceRecord::new(Path::new("/m/a b.gguf"), key, vec![stat, stat])
    }

    #[test]
    fn a_record_round_trips_and_no_changed_byte_and_no_cut_passes() {
        let good = record();
        let bytes = good.render();
        assert_eq!(SourceRecord::parse(good.name, &bytes), Ok(good.clone()));
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x20] {
                let mut edited = bytes.clone();
                edited[at] ^= flip;
                assert!(
                    SourceRecord::parse(good.name, &edited).is_err(),
                    "byte {at}"
                );
            }
            assert!(SourceRecord::parse(good.name, &bytes[..at]).is_err());
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert!(SourceRecord::parse(good.name, &longer).is_err());
        // Edits by somebody who makes the checksum fit.
        let text = String::from_utf8(bytes).expect("because JSON is UTF-8");
        let body = text
            .split_once("\",")
            .expect("because the checksum is first")
            .1;
        let value = format!("{{{body}").replace("\"size\":4", "\"size\":-4");
        let value = serde_json::from_str(&value).expect("because it is JSON");
        let said = SourceRecord::parse(good.name, &seal(value)).map_err(|error| error.to_string());
        let said = said.expect_err("because a length is not negative");
        assert!(said.contains("files[0].stat.size"), "{said}");
    }

    #[test]
    fn paths_that_look_alike_have_records_of_their_own() {
        let paths: [&[u8]; 5] = [
            b"/m/a",
            b"/m/a/",
            b"/m/\xff",
            b"/m/\xfe",
            b"/m/\xef\xbf\xbd",
        ];
        let names: Vec<Digest> = paths
            .iter()
            .map(|path| record_name(Path::new(OsStr::from_bytes(path))))
            .collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "path {index}");
        }
        assert_eq!(copy_name(Path::new("/m/a.gguf")).as_deref(), Some("a.gguf"));
        for odd in [&b"/m/\xff"[..], b"/", b"/m/.."] {
            assert_eq!(copy_name(Path::new(OsStr::from_bytes(odd))), None);
        }
    }
}
