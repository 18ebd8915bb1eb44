//! The files that a load's tensors come from, and what is known of them.

use crate::pack::digest_of;
use packhouse_base::digest::{Digest, Hasher, TensorDigest};
use packhouse_container::{FileSource, ReadAt as _, TensorDirectory};
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_store::root::Store;
use packhouse_store::state::settle_wait_ns;
use packhouse_sys::real::{fs_stat_of_fd, identity_of_fd};
use packhouse_sys::source_map::{self, ProcessMaps};
use packhouse_sys::stat::{FsTrust, StatIdentity};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The source files of one load.
#[derive(Default)]
pub(crate) struct Sources {
    maps: ProcessMaps,
    files: BTreeMap<(u64, u64), Option<Arc<SourceFile>>>,
}

/// One file that tensors of a load lie in, by the engine's own descriptor.
pub(crate) struct SourceFile {
    file: File,
    path: Option<PathBuf>,
    /// The identity at first sight; `None` where stat proves nothing.
    identity: Option<StatIdentity>,
    ledger: Option<SourceLedger>,
    /// Wall-clock time at first sight, before anything of it was hashed.
    seen_ns: i64,
    learnt: Mutex<BTreeMap<SourceRange, TensorDigest>>,
}

/// Where a tensor's bytes lie: in a mapping that can't hold changes of the process' own, so that
/// its file speaks for it and its pages may be dropped.
#[derive(Clone)]
pub(crate) struct Located {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) range: SourceRange,
}

/// Where bytes that are to be packed come from.
pub(crate) enum Origin {
    /// Memory of the engine's own.
    Memory,
    /// A mapping of which no file can be asked: its descriptor is closed, or the engine may write
    /// to it.
    Mapping,
    Located(Located),
}

/// Tells whether bytes stayed the same since `Watch::begin`, so that a digest and a pack of them
/// belong together although they were read one after the other.
pub(crate) enum Watch {
    /// Nobody but the engine changes them, and it waits for us.
    Memory,
    Stat(Arc<SourceFile>, StatIdentity),
    /// Stat proves nothing, so they must hash to the same again.
    Hash,
}

impl Sources {
    /// Finds the file and range behind bytes, without reading them.
    pub(crate) fn locate(&mut self, bytes: &[u8], store: Option<&Store>, now_ns: i64) -> Origin {
        let (address, length) = (bytes.as_ptr().addr(), bytes.len());
        if !self.covers(address, length) {
            // What can't be told may be a file that others write to.
            let Ok(maps) = ProcessMaps::read() else {
                return Origin::Mapping;
            };
            self.maps = maps;
        }
        let Some(mapping) = self.maps.find(address, length) else {
            return match self.maps.touches(address, length) {
                true => Origin::Mapping,
                false => Origin::Memory,
            };
        };
        // What the engine wrote to a private mapping is not in the file.
        if mapping.own_changes {
            return Origin::Mapping;
        }
        let range = SourceRange {
            offset: mapping.offset_of(address),
            length: u64::try_from(length).unwrap_or(u64::MAX),
        };
        let (device, inode) = (mapping.device, mapping.inode);
        let file = self.files.entry((device, inode));
        let file =
            file.or_insert_with(|| SourceFile::open(device, inode, store, now_ns).map(Arc::new));
        match file {
            Some(file) => Origin::Located(Located {
                file: file.clone(),
                range,
            }),
            None => Origin::Mapping,
        }
    }

    /// Whether the listing at hand covers the range and still holds there: an engine may have
    /// mapped another file at the same place since.
    fn covers(&self, address: usize, length: usize) -> bool {
        let Some(mapping) = self.maps.find(address, length) else {
            return false;
        };
        [address, address + length.saturating_sub(1)]
            .into_iter()
            .all(|address| source_map::still_maps(mapping, address) == Some(true))
    }

    /// The files that tensors were found in.
    pub(crate) fn files(&self) -> Vec<Arc<SourceFile>> {
        self.files.values().flatten().cloned().collect()
    }
}

impl Origin {
    pub(crate) fn located(&self) -> Option<&Located> {
        match self {
            Self::Located(located) => Some(located),
            Self::Memory | Self::Mapping => None,
        }
    }
}

impl Watch {
    pub(crate) fn begin(origin: &Origin, now_ns: i64) -> Self {
        match origin {
            Origin::Memory => Self::Memory,
            Origin::Mapping => Self::Hash,
            Origin::Located(located) => match located.file.identity_now() {
                // Of a file that changed a moment ago stat may not show the next change.
                Some(identity) if is_settled(&identity, now_ns) => {
                    Self::Stat(located.file.clone(), identity)
                }
                Some(_) | None => Self::Hash,
            },
        }
    }

    /// The file and identity to hash a source by later, where stat alone proves that it stays.
    pub(crate) fn stat_of(&self, located: Option<&Located>) -> Option<(Located, StatIdentity)> {
        match self {
            Self::Stat(_, before) => Some((located?.clone(), *before)),
            Self::Memory | Self::Hash => None,
        }
    }

    /// Whether bytes that hashed to `digest` are the same still.
    pub(crate) fn holds(&self, digest: TensorDigest, bytes: &[u8]) -> bool {
        match self {
            Self::Memory => true,
            Self::Stat(file, before) => file.identity_now() == Some(*before),
            Self::Hash => digest_of(bytes) == digest,
        }
    }
}

impl SourceFile {
    fn open(device: u64, inode: u64, store: Option<&Store>, seen_ns: i64) -> Option<Self> {
        let file = File::from(source_map::open_file(device, inode).ok().flatten()?);
        let trust = fs_stat_of_fd(file.as_fd()).map(|stat| stat.kind.trust());
        let local = matches!(trust, Ok(FsTrust::Local));
        let identity = identity_of_fd(file.as_fd()).ok().filter(|_| local);
        let ledger = identity.as_ref().and_then(|identity| {
            let sources = store?.sources().ok()?;
            Some(sources.lookup(identity).ok()?.ledger)
        });
        let path = source_map::path_of(file.as_fd());
        Some(Self {
            file,
            path,
            identity,
            ledger,
            seen_ns,
            learnt: Mutex::default(),
        })
    }

    /// The digest that the ledger has for exactly this range of the unchanged file.
    pub(crate) fn known(&self, range: SourceRange) -> Option<TensorDigest> {
        self.unchanged()?;
        self.ledger.as_ref()?.tensor(range)
    }

    /// The identity, if it is still the one at first sight.
    pub(crate) fn unchanged(&self) -> Option<StatIdentity> {
        self.identity_now()
            .filter(|now| Some(*now) == self.identity)
    }

    /// The identity now; `None` where stat proves nothing.
    fn identity_now(&self) -> Option<StatIdentity> {
        self.identity?;
        identity_of_fd(self.file.as_fd()).ok()
    }

    /// Hashes a range through the descriptor, in pieces between which `stop` is asked. `None` when
    /// stopped, or when the file can't be read or is not the one of `before` at the end.
    pub(crate) fn hash(
        &self,
        range: SourceRange,
        before: &StatIdentity,
        stop: &dyn Fn() -> bool,
    ) -> Option<TensorDigest> {
        let source = FileSource::new(&self.file).ok()?;
        let mut hasher = Hasher::default();
        let mut piece = vec![0; HASH_BYTES];
        let mut done = 0;
        while done < range.length {
            if stop() {
                return None;
            }
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let piece = &mut piece[..left.min(HASH_BYTES)];
            source.read_at(piece, range.offset + done).ok()?;
            hasher.update(piece);
            done += u64::try_from(piece.len()).ok()?;
        }
        (self.identity_now() == Some(*before)).then(|| TensorDigest(hasher.finish()))
    }

    /// Notes a digest taken from bytes of the file while its identity stayed the same.
    pub(crate) fn learn(&self, range: SourceRange, digest: TensorDigest) {
        let known = self.ledger.as_ref().and_then(|ledger| ledger.tensor(range));
        if known != Some(digest) {
            self.learnt
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(range, digest);
        }
    }

    /// What was learnt, as a ledger for the store to keep; `None` when there is nothing new or the
    /// file changed. A ledger that was found wrong is replaced by what it did not say.
    pub(crate) fn new_ledger(&self, directory: Digest) -> Option<SourceLedger> {
        let learnt = self
            .learnt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let identity = self.unchanged().filter(|_| !learnt.is_empty())?;
        Some(SourceLedger::new(identity, directory, learnt))
    }

    /// Wall-clock time before anything of the file was hashed: what is learnt of it is no older.
    pub(crate) fn seen_ns(&self) -> i64 {
        self.seen_ns
    }

    /// Parses the file's tensor directory; `None` when it is no GGUF that we read, or changed.
    pub(crate) fn directory(&self) -> Option<TensorDirectory> {
        let source = FileSource::new(&self.file).ok()?;
        let directory = TensorDirectory::parse(&source).ok()?;
        self.unchanged()?;
        Some(directory)
    }

    /// The path the file was opened by, if it still has one.
    pub(crate) fn path(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }
}

/// Whether an identity is old enough that the next change will show in it.
fn is_settled(identity: &StatIdentity, now_ns: i64) -> bool {
    settle_wait_ns(identity, now_ns).is_none()
}

/// Bytes that are read and hashed at a time.
const HASH_BYTES: usize = 1 << 20;
