//! What fixtures, focused runs, fingerprints and the registry hold of the disk: for `du`, `doctor`
//! and `gc`.

use crate::fixture::Place;
use crate::fixture_words::FixtureSelectArgs;
use crate::places::{self, Lookup};
use packhouse_base::units;
use packhouse_fixture::families;
use packhouse_store::folders::{Links, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_sys::fs::{Dir, Fs as _, FsError, FsErrorKind, LockKind};
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::FileKind;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::Path;

/// A number of things and the lengths of their files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// What each of the folders holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    fixtures: Holding,
    damaged: Holding,
    unfinished: Holding,
    focused: Holding,
    fingerprints: Holding,
    registry: Holding,
    problems: Vec<String>,
}

/// What `gc` removed of fixtures, or would.
#[derive(Debug, Default)]
pub(crate) struct SweptFixtures {
    damaged: Holding,
    unfinished: Holding,
    /// Why more did not go.
    pub(crate) failure: Option<String>,
}

impl Held {
    /// Looks at the default folders. One that can't be read is said to be so and stops nothing.
    pub(crate) fn of(lookup: Lookup<'_>) -> Self {
        let mut held = Self::default();
        match shelf(lookup) {
            Err(problem) => held.problems.push(format!("fixtures: {problem}")),
            Ok(None) => {}
            Ok(Some(shelf)) => {
                if let Err(error) = held.add_fixtures(&shelf) {
                    held.problems.push(format!("fixtures: {error}"));
                }
            }
        }
        if let Ok(state) = places::state(lookup) {
            held.focused = held.look(&state, "focused", focused_runs);
            held.fingerprints = held.look(&state, "fingerprints", |dir| {
                records(inner(dir, "records")?.as_ref())
            });
            held.registry = held.look(&state, "registry", |dir| {
                records(inner(dir, "v1")?.as_ref())
            });
        }
        held
    }

    /// Name, number and bytes of each kind.
    pub(crate) fn groups(&self) -> [(&'static str, Holding); 6] {
        [
            ("fixtures", self.fixtures),
            ("damaged fixtures", self.damaged),
            ("unfinished fixtures", self.unfinished),
            ("focused runs", self.focused),
            ("fingerprints", self.fingerprints),
            ("registry records", self.registry),
        ]
    }

    /// Name and value of each row of a table of two columns.
    pub(crate) fn summaries(&self) -> [(&'static str, String); 6] {
        self.groups().map(|(name, held)| {
            let bytes = units::bytes(held.bytes);
            (name, format!("{} ({bytes})", held.count))
        })
    }

    /// Lines for what the table has no place for.
    pub(crate) fn lines(&self) -> String {
        let problems = self.problems.iter();
        problems.map(|problem| format!("{problem}\n")).collect()
    }

    /// All of it, for `--json`.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({ "problems": self.problems });
        for (name, held) in self.groups() {
            let name = name.replace(' ', "_");
            document[name] = json!({ "count": held.count, "bytes": held.bytes });
        }
        document
    }

    fn add_fixtures(&mut self, shelf: &Dir) -> Result<(), FsError> {
        for name in shelf.list()? {
            let bytes = bytes_of(shelf, &name)?;
            let kind = match kind_of(&name) {
                Kind::Lock | Kind::Other => continue,
                Kind::Damaged => &mut self.damaged,
                Kind::Unfinished => &mut self.unfinished,
                Kind::Fixture => &mut self.fixtures,
            };
            kind.add(bytes);
        }
        Ok(())
    }

    fn look(
        &mut self,
        state: &Path,
        name: &str,
        count: impl Fn(&Dir) -> Result<u64, FsError>,
    ) -> Holding {
        let looked = || -> Result<Holding, OpenError> {
            let found = walk(&RealFs, &owners(), &state.join(name), None, Links::Follow);
            let dir = match found {
                Err(OpenError::Missing { .. }) => return Ok(Holding::default()),
                other => other?.1,
            };
            let count = count(&dir)?;
            let bytes = bytes_in(&dir)?;
            Ok(Holding { count, bytes })
        };
        looked().unwrap_or_else(|error| {
            self.problems.push(format!("{name}: {error}"));
            Holding::default()
        })
    }
}

impl SweptFixtures {
    /// Removes what is damaged and what dead makers left, of the default folder, where nobody
    /// publishes.
    pub(crate) fn of(dry_run: bool, lookup: Lookup<'_>) -> Self {
        let mut swept = Self::default();
        if let Err(problem) = swept.sweep(dry_run, lookup) {
            swept.failure = Some(format!("fixtures: {problem}"));
        }
        swept
    }

    /// Name, number and bytes of each kind.
    pub(crate) fn groups(&self) -> [(&'static str, u64, u64); 2] {
        [
            ("damaged fixtures", self.damaged.count, self.damaged.bytes),
            (
                "unfinished fixtures",
                self.unfinished.count,
                self.unfinished.bytes,
            ),
        ]
    }

    /// Of both.
    pub(crate) fn bytes(&self) -> u64 {
        self.damaged.bytes + self.unfinished.bytes
    }

    fn sweep(&mut self, dry_run: bool, lookup: Lookup<'_>) -> Result<(), String> {
        let text = |error: FsError| error.to_string();
        let Some(shelf) = shelf(lookup)? else {
            return Ok(());
        };
        let stat = shelf.stat().map_err(text)?;
        if stat.mode & 0o022 != 0 {
            let path = shelf.path().display();
            return Err(format!(
                "{path} has mode {:04o}: others can change it",
                stat.mode
            ));
        }
        let lock = match shelf.open_file_writable(LOCK) {
            // Nobody ever published here.
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(()),
            other => other.map_err(text)?,
        };
        if !lock.try_lock(LockKind::Exclusive, 0, 1).map_err(text)? {
            return Err(format!("{} is in use", shelf.path().display()));
        }
        for name in shelf.list().map_err(text)? {
            let kind = match kind_of(&name) {
                Kind::Lock | Kind::Fixture | Kind::Other => continue,
                Kind::Damaged => &mut self.damaged,
                Kind::Unfinished => &mut self.unfinished,
            };
            let bytes = bytes_of(&shelf, &name).map_err(text)?;
            if !dry_run {
                remove(&shelf, &name).map_err(text)?;
            }
            kind.add(bytes);
        }
        Ok(())
    }
}

impl Holding {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What a name on the shelf of fixtures stands for (`docs/format/fixture.md`, section 1).
enum Kind {
    Lock,
    Fixture,
    Damaged,
    Unfinished,
    Other,
}

fn kind_of(name: &OsStr) -> Kind {
    match name.to_str() {
        Some(LOCK) => Kind::Lock,
        Some(name) if families::find(name).is_some() => Kind::Fixture,
        Some(name) if is_aside(name) => Kind::Damaged,
        Some(name) if is_temp(name) => Kind::Unfinished,
        Some(_) | None => Kind::Other,
    }
}

fn is_aside(name: &str) -> bool {
    let id = name.strip_prefix("damaged-");
    id.is_some_and(|id| families::find(id).is_some())
}

fn is_temp(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.strip_prefix(".tmp-");
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_digit))
}

fn shelf(lookup: Lookup<'_>) -> Result<Option<Dir>, String> {
    let select = FixtureSelectArgs {
        ids: Vec::new(),
        fixtures: None,
    };
    let place = Place::of(&select, lookup).map_err(|failure| failure.reason())?;
    let Some(folder) = place.open().map_err(|failure| failure.reason())? else {
        return Ok(None);
    };
    inner(&folder, "v1").map_err(|error| error.to_string())
}

fn focused_runs(dir: &Dir) -> Result<u64, FsError> {
    let Some(keys) = inner(dir, "v1")? else {
        return Ok(0);
    };
    let mut count = 0;
    for key in keys.list()? {
        if keys.stat_entry(&key)?.kind == FileKind::Directory
            && let Some(key) = key.to_str()
            && let Some(key) = inner(&keys, key)?
            && let Some(runs) = inner(&key, "runs")?
        {
            count += runs.list()?.len() as u64;
        }
    }
    Ok(count)
}

fn records(dir: Option<&Dir>) -> Result<u64, FsError> {
    let names = dir.map_or(Ok(Vec::new()), Dir::list)?;
    let is_record = |name: &&std::ffi::OsString| {
        let name = name.as_encoded_bytes();
        name.ends_with(b".json") && !name.starts_with(b".")
    };
    Ok(names.iter().filter(is_record).count() as u64)
}

/// A folder in a folder; `None` where it is not there.
fn inner(dir: &Dir, name: &str) -> Result<Option<Dir>, FsError> {
    match dir.open_dir(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn bytes_in(dir: &Dir) -> Result<u64, FsError> {
    let mut bytes = 0;
    for name in dir.list()? {
        bytes += bytes_of(dir, &name)?;
    }
    Ok(bytes)
}

/// The lengths of an entry's files. What goes meanwhile counts nothing.
fn bytes_of(dir: &Dir, name: &OsStr) -> Result<u64, FsError> {
    let counted = || match dir.stat_entry(name)? {
        stat if stat.kind == FileKind::Directory => bytes_in(&dir.open_dir(name)?),
        stat => Ok(stat.size),
    };
    match counted() {
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(0),
        other => other,
    }
}

fn remove(dir: &Dir, name: &OsStr) -> Result<(), FsError> {
    if dir.stat_entry(name)?.kind != FileKind::Directory {
        return dir.unlink(name);
    }
    let inner = dir.open_dir(name)?;
    for name in inner.list()? {
        remove(&inner, &name)?;
    }
    dir.remove_dir(name)
}

fn owners() -> Owners {
    Owners::new(RealFs.effective_uid(), &[])
}

const LOCK: &str = "lock";
