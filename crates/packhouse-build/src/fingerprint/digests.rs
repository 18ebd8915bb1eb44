//! SHA-256 of many files, with receipts: what has the stat identity that it had when it was hashed
//! is not hashed again.
//!
//! Invariants:
//! - a receipt is believed for the very stat identity, on a file system whose stat proves
//!   something, of a file that nobody has open for writing;
//! - an identity enters the receipts only when it is settled: a later change shows;
//! - a file that changes while it is hashed is an error.
//!
//! Never: needed. Receipts that are absent or damaged cost hashes.

use super::error::FingerprintError;
use super::{disk, keep};
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, Hasher};
use packhouse_store::state::{file_system_text, parse_file_system, settle_wait_ns};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError};
use packhouse_sys::stat::{FileKind, FsTrust, StatIdentity};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// SHA-256 of its bytes.
    pub(super) sha256: Digest,
    /// Their number.
    pub(super) bytes: u64,
    /// Whether its owner may execute it.
    pub(super) is_executable: bool,
}

impl Content {
    /// The facts of a file that is what it is by its bytes alone.
    pub(super) fn facts(&self) -> Value {
        json!({ "bytes": self.bytes, "sha256": self.sha256.to_string() })
    }
}

/// The digests that are known, and those that were asked for.
pub(super) struct Digests<'a> {
    clock: &'a dyn Clock,
    known: BTreeMap<StatIdentity, Digest>,
    kept: Option<Kept>,
    asked: Mutex<Asked>,
}

/// What was asked for: by path, and by the identity that it had.
#[derive(Default)]
struct Asked {
    contents: BTreeMap<PathBuf, Content>,
    identities: BTreeMap<PathBuf, StatIdentity>,
    receipts: Vec<Receipt>,
    hashed: u64,
}

/// What a file was when it was hashed, or when it was found to be what it was then.
struct Receipt {
    path: PathBuf,
    identity: StatIdentity,
    digest: Digest,
    /// Whether its identity had settled before it was hashed: a change since would show.
    is_settled: bool,
}

/// Where receipts are kept.
struct Kept {
    fs: Arc<dyn Fs>,
    dir: Dir,
    name: String,
}

impl<'a> Digests<'a> {
    /// Opens the receipts of one build below the user's folder of private state. A folder that
    /// can't be made or is not trusted costs hashes.
    pub(super) fn open(
        fs: &Arc<dyn Fs>,
        clock: &'a dyn Clock,
        state: Option<&Path>,
        build: &Path,
    ) -> Self {
        let kept = state.and_then(|state| Kept::open(fs, state, build));
        let known = kept.as_ref().map(Kept::read).unwrap_or_default();
        Self {
            clock,
            known,
            kept,
            asked: Mutex::default(),
        }
    }

    /// The content of a file. Errors when it is no regular file, can't be read, or changes
    /// meanwhile.
    pub(super) fn of(&self, path: &Path) -> Result<Content, FingerprintError> {
        if let Some(content) = self.lock().contents.get(path) {
            return Ok(*content);
        }
        let wrong = |why: String| FingerprintError::File {
            path: path.to_owned(),
            why,
        };
        let file = disk::open(path).map_err(|error| wrong(error.to_string()))?;
        self.of_file(path, &file)
            .map_err(|error| wrong(error.kind.to_string()))?
            .map_err(wrong)
    }

    /// The contents of many files, in the order given, on as many threads as help.
    pub(super) fn of_all(&self, paths: &[PathBuf]) -> Result<Vec<Content>, FingerprintError> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.of(path) {
                    let mut failed = failed.lock().expect("because nobody panics with it");
                    *failed = Some(error);
                    next.store(paths.len(), Ordering::Relaxed);
                }
            }
        };
        let threads = threads().min(paths.len().div_ceil(FILES_PER_THREAD));
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().expect("because nobody panics with it") {
            Some(error) => Err(error),
            None => paths.iter().map(|path| self.of(path)).collect(),
        }
    }

    /// What each file was that was asked for, by the path that it was asked for with.
    pub(super) fn identities(&self) -> BTreeMap<PathBuf, StatIdentity> {
        self.lock().identities.clone()
    }

    /// Keeps the receipts of all that was asked for. What was too young when it was hashed is
    /// hashed once more when a change would show; errors where that gives something else. What
    /// can't be written costs hashes the next time.
    pub(super) fn keep(self) -> Result<(), FingerprintError> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let asked = self.asked.into_inner();
        let asked = asked.expect("because nobody panics with it");
        if asked.hashed == 0 && asked.receipts.len() == self.known.len() {
            return Ok(());
        }
        let now_ns = self.clock.wall_ns();
        let young = asked.receipts.iter().filter(|receipt| !receipt.is_settled);
        let waits = young.filter_map(|receipt| settle_wait_ns(&receipt.identity, now_ns));
        if let Some(wait_ns) = waits.filter(|wait_ns| *wait_ns <= WAIT_NS_MAX).max() {
            self.clock.sleep_ns(wait_ns);
        }
        let now_ns = self.clock.wall_ns();
        let mut receipts = BTreeMap::new();
        for receipt in asked.receipts {
            if receipt.is_settled || receipt.stands(now_ns)? {
                receipts.insert(receipt.identity, receipt.digest);
            }
        }
        // Receipts are a convenience.
        let _ = kept.write(&receipts);
        Ok(())
    }

    fn of_file(&self, path: &Path, file: &File) -> Result<Result<Content, String>, FsError> {
        let stat = file.stat()?;
        if stat.kind != FileKind::Regular {
            return Ok(Err(format!("is a {}, expected a regular file", stat.kind)));
        }
        let before = file.identity()?;
        let can_tell =
            file.fs_stat()?.kind.trust() == FsTrust::Local && file.has_writer() != Some(true);
        let is_settled = settle_wait_ns(&before, self.clock.wall_ns()).is_none();
        let known = self.known.get(&before).filter(|_| can_tell).copied();
        let sha256 = match known {
            Some(digest) => digest,
            None => {
                let digest = hash(file)?;
                if let Some(field) = before.difference(&file.identity()?) {
                    return Ok(Err(format!(
                        "changed while it was hashed: its {field} differs"
                    )));
                }
                digest
            }
        };
        let content = Content {
            sha256,
            bytes: before.size,
            is_executable: before.mode & 0o100 != 0,
        };
        let mut asked = self.lock();
        asked.contents.insert(path.to_owned(), content);
        asked.identities.insert(path.to_owned(), before);
        asked.hashed += u64::from(known.is_none());
        if can_tell {
            asked.receipts.push(Receipt {
                path: path.to_owned(),
                identity: before,
                digest: sha256,
                is_settled,
            });
        }
        Ok(Ok(content))
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().expect("because nobody panics with it")
    }
}

impl Receipt {
    /// Whether a file that was young when it was hashed is the same now that a change would show.
    fn stands(&self, now_ns: i64) -> Result<bool, FingerprintError> {
        if settle_wait_ns(&self.identity, now_ns).is_some() {
            return Ok(false);
        }
        let wrong = |why: String| FingerprintError::File {
            path: self.path.clone(),
            why,
        };
        let file = disk::open(&self.path).map_err(|error| wrong(error.to_string()))?;
        let again = |file: &File| -> Result<(StatIdentity, Digest, StatIdentity), FsError> {
            Ok((file.identity()?, hash(file)?, file.identity()?))
        };
        let (before, digest, after) = again(&file).map_err(|error| wrong(error.to_string()))?;
        if (before, digest, after) == (self.identity, self.digest, self.identity) {
            return Ok(true);
        }
        Err(wrong("changed after it was hashed".to_owned()))
    }
}

impl Kept {
    fn open(fs: &Arc<dyn Fs>, state: &Path, build: &Path) -> Option<Self> {
        let dir = keep::folder(fs, &state.join(FOLDER)).ok()?;
        let name = Digest::of(build.as_os_str().as_encoded_bytes());
        Some(Self {
            fs: Arc::clone(fs),
            dir,
            name: format!("{name}.json"),
        })
    }

    fn read(&self) -> BTreeMap<StatIdentity, Digest> {
        let bytes = self.dir.read_small(&self.name, RECEIPTS_BYTES_MAX);
        bytes
            .ok()
            .and_then(|bytes| parse(&bytes))
            .unwrap_or_default()
    }

    fn write(&self, receipts: &BTreeMap<StatIdentity, Digest>) -> Result<(), FsError> {
        keep::replace(self.fs.as_ref(), &self.dir, &self.name, &render(receipts))?;
        keep::prune(&self.dir, FILES_KEPT_MAX).map(|_| ())
    }
}

/// The threads that this host runs at once, of which hashing takes a few.
fn threads() -> usize {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    most.min(THREADS_MAX)
}

/// Does the same work for each, a few at once, and answers in their order.
pub(super) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                break;
            };
            let answer = work(item);
            let mut done = done.lock().expect("because nobody panics with it");
            done.insert(index, answer);
        }
    };
    std::thread::scope(|scope| {
        // A child dies with the thread that started it, which here waits for it.
        for _ in 1..threads().min(items.len()) {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().expect("because nobody panics with it");
    done.into_values().collect()
}

fn hash(file: &File) -> Result<Digest, FsError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_full_at(offset, &mut buffer)?;
        hasher.update(&buffer[..read]);
        offset += read as u64;
        if read < buffer.len() {
            return Ok(hasher.finish());
        }
    }
}

fn render(receipts: &BTreeMap<StatIdentity, Digest>) -> Vec<u8> {
    let rows = receipts.iter().map(|(identity, digest)| {
        json!([
            file_system_text(&identity.file_system),
            identity.inode,
            identity.generation,
            identity.size,
            identity.mtime_ns,
            identity.ctime_ns,
            identity.uid,
            identity.mode,
            digest.to_string(),
        ])
    });
    let rows = Value::Array(rows.collect());
    let checksum = Digest::of(&canonical::render(&rows));
    canonical::render(&json!({
        "checksum": checksum.to_string(),
        "files": rows,
        "schema": RECEIPTS_SCHEMA,
    }))
}

/// `None`: torn, edited, or of another version.
fn parse(bytes: &[u8]) -> Option<BTreeMap<StatIdentity, Digest>> {
    let record = canonical::parse(bytes).ok()?;
    if record.get("schema")?.as_str()? != RECEIPTS_SCHEMA {
        return None;
    }
    let rows = record.get("files")?;
    let checksum = Digest::parse(record.get("checksum")?.as_str()?).ok()?;
    if Digest::of(&canonical::render(rows)) != checksum {
        return None;
    }
    rows.as_array()?.iter().map(row).collect()
}

fn row(row: &Value) -> Option<(StatIdentity, Digest)> {
    let [
        file_system,
        inode,
        generation,
        size,
        mtime_ns,
        ctime_ns,
        uid,
        mode,
        digest,
    ] = row.as_array()?.as_slice()
    else {
        return None;
    };
    let narrow = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let identity = StatIdentity {
        file_system: parse_file_system(file_system.as_str()?)?,
        inode: inode.as_u64()?,
        generation: match generation {
            Value::Null => None,
            other => Some(narrow(other)?),
        },
        size: size.as_u64()?,
        mtime_ns: mtime_ns.as_i64()?,
        ctime_ns: ctime_ns.as_i64()?,
        uid: narrow(uid)?,
        mode: narrow(mode)?,
    };
    Some((identity, Digest::parse(digest.as_str()?).ok()?))
}

const RECEIPTS_SCHEMA: &str = "packhouse/fingerprint-files/1";
const FOLDER: &str = "fingerprints/files";
const RECEIPTS_BYTES_MAX: u64 = 64 << 20;
/// Builds whose receipts are kept; beyond them the oldest go.
const FILES_KEPT_MAX: usize = 64;
/// A clock that was set may make a wait endless.
const WAIT_NS_MAX: u64 = 4_000_000_000;
const BUFFER_BYTES: usize = 1 << 18;
const THREADS_MAX: usize = 8;
/// Files for which a thread more is worth its start.
const FILES_PER_THREAD: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::clock::RealClock;
    use packhouse_sys::real::RealFs;
    use std::sync::atomic::AtomicI64;

    struct Home {
        folder: tempfile::TempDir,
        fs: Arc<dyn Fs>,
    }

    impl Home {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().expect("because tests have a temporary folder"),
                fs: Arc::new(RealFs),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn open<'a>(&self, clock: &'a dyn Clock) -> Digests<'a> {
            let state = self.path("state");
            Digests::open(&self.fs, clock, Some(&state), Path::new("/build"))
        }
    }

    #[test]
    fn a_receipt_is_believed_for_the_very_file_and_while_nobody_writes() {
        let home = Home::new();
        let path = home.path("file");
        std::fs::write(&path, "one").unwrap();
        let content = home.open(&RealClock).of(&path).unwrap();
        assert_eq!((content.sha256, content.bytes), (Digest::of(b"one"), 3));
        let first = home.open(&RealClock);
        first.of(&path).unwrap();
        first.keep().unwrap();
        let forged = Digest::of(b"what no file has");
        let believing = || {
            let mut digests = home.open(&RealClock);
            assert_eq!(digests.known.len(), 1);
            digests.known.values_mut().for_each(|known| *known = forged);
            digests
        };
        assert_eq!(believing().of(&path).unwrap().sha256, forged);
        let writer = std::fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(believing().of(&path).unwrap().sha256, Digest::of(b"one"));
        drop(writer);
        std::fs::write(&path, "two").unwrap();
        assert_eq!(believing().of(&path).unwrap().sha256, Digest::of(b"two"));
    }

    #[test]
    fn receipts_that_are_torn_or_edited_are_none() {
        let home = Home::new();
        let path = home.path("file");
        std::fs::write(&path, "one").unwrap();
        let first = home.open(&RealClock);
        first.of(&path).unwrap();
        first.keep().unwrap();
        let name = Digest::of(b"/build");
        let kept = home.path("state").join(FOLDER).join(format!("{name}.json"));
        let whole = std::fs::read_to_string(&kept).unwrap();
        let edits = [
            whole.replace(
                &Digest::of(b"one").to_string(),
                &Digest::of(b"1").to_string(),
            ),
            whole[..whole.len() - 7].to_owned(),
            whole.replace("fingerprint-files/1", "fingerprint-files/2"),
            String::new(),
        ];
        for edited in edits {
            std::fs::write(&kept, edited).unwrap();
            assert_eq!(home.open(&RealClock).known.len(), 0);
        }
        std::fs::write(&kept, whole).unwrap();
        assert_eq!(home.open(&RealClock).known.len(), 1);
    }

    /// A clock that stands at a file's time, and does something when it is slept on.
    struct Standing<'a> {
        now_ns: AtomicI64,
        meanwhile: &'a (dyn Fn() + Sync),
    }

    impl Clock for Standing<'_> {
        fn wall_ns(&self) -> i64 {
            self.now_ns.load(Ordering::Relaxed)
        }

        fn steady_ns(&self) -> u64 {
            0
        }

        fn sleep_ns(&self, duration_ns: u64) {
            (self.meanwhile)();
            let duration_ns = i64::try_from(duration_ns).unwrap();
            self.now_ns.fetch_add(duration_ns, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_file_too_young_to_be_told_from_a_later_one_is_hashed_once_more() {
        let home = Home::new();
        let path = home.path("file");
        std::fs::write(&path, "one").unwrap();
        let identity = disk::open(&path).unwrap().identity().unwrap();
        let clock = |meanwhile| Standing {
            now_ns: AtomicI64::new(identity.ctime_ns),
            meanwhile,
        };
        let edit = || std::fs::write(&path, "two").unwrap();
        let edited = clock(&edit);
        let digests = home.open(&edited);
        digests.of(&path).unwrap();
        let said = digests.keep().expect_err("because it changed meanwhile");
        assert!(
            said.to_string().ends_with("changed after it was hashed"),
            "{said}"
        );
        assert_eq!(home.open(&RealClock).known.len(), 0);
        std::fs::write(&path, "three").unwrap();
        let identity = disk::open(&path).unwrap().identity().unwrap();
        let quiet = Standing {
            now_ns: AtomicI64::new(identity.ctime_ns),
            meanwhile: &|| {},
        };
        let digests = home.open(&quiet);
        digests.of(&path).unwrap();
        digests.keep().unwrap();
        let known = home.open(&RealClock).known;
        assert_eq!(known.get(&identity), Some(&Digest::of(b"three")));
    }

    #[test]
    fn of_many_files_the_one_that_fails_is_named() {
        let home = Home::new();
        let paths: Vec<PathBuf> = (0..40).map(|i| home.path(&format!("{i}"))).collect();
        for (index, path) in paths.iter().enumerate() {
            std::fs::write(path, format!("{index}")).unwrap();
        }
        let contents = home.open(&RealClock).of_all(&paths).unwrap();
        let digests = contents.iter().map(|content| content.sha256);
        let expected = (0..40).map(|index| Digest::of(format!("{index}").as_bytes()));
        assert!(digests.eq(expected));
        std::fs::remove_file(&paths[17]).unwrap();
        std::fs::create_dir(&paths[17]).unwrap();
        let said = home
            .open(&RealClock)
            .of_all(&paths)
            .expect_err("because it is a folder");
        let expected = format!(
            "{}: is a folder, expected a regular file",
            paths[17].display()
        );
        assert_eq!(said.to_string(), expected);
    }
}
