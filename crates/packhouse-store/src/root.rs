//! The store's folders: opening, making, and the rule of trusted owners.
//!
//! Invariants:
//! - every component of a path is opened by itself and its owner and mode are taken from the
//!   descriptor; a symlink is followed by hand, and only one that a trusted owner made;
//! - a component may be changed by trusted owners only; root-owned sticky ancestors (`/tmp`) are
//!   the one exception;
//! - the state folder is this user's alone;
//! - folders are made in an order in which a crash at any point leaves a store that opens.
//!
//! Never: trusts a name that was not opened. Format: `docs/format/store.md`.

pub use crate::folders::Owners;
use crate::folders::{LINK_HOPS_MAX, Links, MakeModes, judge, open_or_make, open_trusted, walk};
use crate::publish::{PublishError, publish_small};
use crate::state::{State, StateError};
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where a store is, whom it trusts and how much it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store's root, absolute.
    pub root: PathBuf,
    /// The folder of private state, absolute: what this user verified, saw and used.
    pub state: PathBuf,
    /// Owners trusted beside root and the effective user.
    pub trusted_uids: Vec<u32>,
    /// Makes, moves and removes nothing below the root.
    pub read_only: bool,
    /// Cap on the objects' bytes. `None`: 20 % of the file system.
    pub max_bytes: Option<u64>,
    /// Free space of the file system that is never used.
    pub min_free_bytes: u64,
}

/// A store that was opened: its folders are there and their owners are trusted.
pub struct Store {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: StoreConfig,
    pub(crate) owners: Owners,
    folders: Folders,
    id: StoreId,
    state: Result<State, OpenError>,
    synced: Mutex<Synced>,
}

/// The store's random name, made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreId([u8; 16]);

/// Why a store or its state could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A configured path is not absolute.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// The path given.
        path: PathBuf,
    },
    /// There is no store, and a read-only open makes none.
    #[error("{} is not there, and a read-only store is not made", path.display())]
    Missing {
        /// The component that is missing.
        path: PathBuf,
    },
    /// A component belongs to somebody else.
    #[error("{} belongs to uid {uid}; trusted are {trusted:?}", path.display())]
    Owner {
        /// The component.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// The owners trusted.
        trusted: Vec<u32>,
    },
    /// A component can be changed by others.
    #[error("{} has mode {mode:04o}: others than its owner can change it", path.display())]
    Writable {
        /// The component.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A component is a file or a symlink where a folder must be.
    #[error("{} is a {kind} where a folder is expected", path.display())]
    NotDirectory {
        /// The component.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// More symlinks in a path than are followed.
    #[error("{} has more than {LINK_HOPS_MAX} symlinks", path.display())]
    TooManyLinks {
        /// The path given.
        path: PathBuf,
    },
    /// The state folder is not this user's alone.
    #[error(transparent)]
    State(#[from] StateError),
    /// The id file is not 32 hex digits and a newline.
    #[error("{} holds {actual:?}, expected 32 hex digits and a newline", path.display())]
    Id {
        /// The id file.
        path: PathBuf,
        /// What it holds, cut.
        actual: String,
    },
    /// A file of the root could not be made.
    #[error(transparent)]
    Publish(Box<PublishError>),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

struct Folders {
    root_parent: Dir,
    root: Dir,
    v1: Dir,
    objects: Dir,
    packs: Dir,
    sets: Dir,
    pins: Dir,
    quarantine: Dir,
}

/// Which folder entries this process has made durable, so that each is synced once.
#[derive(Default)]
struct Synced {
    anchored: bool,
    prefixes: BTreeSet<(&'static str, String)>,
}

impl StoreConfig {
    /// A writable store with the default caps that trusts root and the effective user.
    pub fn new(root: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            state: state.into(),
            trusted_uids: Vec::new(),
            read_only: false,
            max_bytes: None,
            min_free_bytes: MIN_FREE_BYTES,
        }
    }
}

impl Store {
    /// Opens a store, and makes what is missing of it unless the config says read-only.
    ///
    /// Errors when a component of the root is not trusted, or can't be opened or made. A state
    /// folder that can't be had does not fail the open: `state` answers why, and each read hashes.
    pub fn open(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        config: StoreConfig,
    ) -> Result<Self, OpenError> {
        let owners = Owners::new(fs.effective_uid(), &config.trusted_uids);
        let make = !config.read_only;
        let modes = make.then_some(MakeModes {
            parents: 0o700,
            last: 0o755,
        });
        let (root_parent, root) = walk(fs.as_ref(), &owners, &config.root, modes, Links::Follow)?;
        let v1 = open_or_make(&root, VERSION_DIR, 0o755, &owners, make)?;
        let open = |name| open_or_make(&v1, name, 0o755, &owners, make);
        let folders = Folders {
            objects: open(OBJECTS)?,
            packs: open(PACKS)?,
            sets: open("sets")?,
            pins: open("pins")?,
            quarantine: open("quarantine")?,
            root_parent,
            root,
            v1,
        };
        if make {
            publish_tag(fs.as_ref(), &folders.root)?;
        }
        let id = open_id(fs.as_ref(), &folders, &owners, make)?;
        let state = open_state(fs.clone(), &owners, &config.state, id);
        Ok(Self {
            fs,
            clock,
            config,
            owners,
            folders,
            id,
            state,
            synced: Mutex::new(Synced::default()),
        })
    }

    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// The config it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The file system behind it.
    pub fn fs(&self) -> &dyn Fs {
        self.fs.as_ref()
    }

    /// The clock behind it.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The owners it trusts.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// This user's private state for this store, or why there is none.
    pub fn state(&self) -> Result<&State, &OpenError> {
        self.state.as_ref()
    }

    /// `<root>/v1/objects`.
    pub fn objects_dir(&self) -> &Dir {
        &self.folders.objects
    }

    /// `<root>/v1/packs`.
    pub fn packs_dir(&self) -> &Dir {
        &self.folders.packs
    }

    /// `<root>/v1/sets`.
    pub fn sets_dir(&self) -> &Dir {
        &self.folders.sets
    }

    /// `<root>/v1/pins`.
    pub fn pins_dir(&self) -> &Dir {
        &self.folders.pins
    }

    /// `<root>/v1/quarantine`.
    pub fn quarantine_dir(&self) -> &Dir {
        &self.folders.quarantine
    }

    /// Opens a folder below one of the store's and judges its owner. `None` where there is none.
    pub fn open_folder(&self, parent: &Dir, name: &str) -> Result<Option<Dir>, OpenError> {
        match open_trusted(parent, name, &self.owners) {
            Ok(dir) => Ok(Some(dir)),
            Err(OpenError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens or makes a folder below one of the store's, durably.
    pub fn make_folder(&self, parent: &Dir, name: &str) -> Result<Dir, OpenError> {
        self.anchor()?;
        let dir = open_or_make(parent, name, 0o755, &self.owners, !self.config.read_only)?;
        Ok(dir)
    }

    /// Opens or makes `<base>/<aa>`, and makes its entry durable once in this process: its maker
    /// may have died before it could.
    pub(crate) fn make_prefix(&self, base: Base, prefix: &str) -> Result<Dir, OpenError> {
        self.anchor()?;
        let parent = self.base_dir(base);
        let dir = open_or_make(parent, prefix, 0o755, &self.owners, !self.config.read_only)?;
        let entry = (base.name(), prefix.to_owned());
        let mut synced = crate::lock_mutex(&self.synced);
        if !synced.prefixes.contains(&entry) {
            parent.sync()?;
            synced.prefixes.insert(entry);
        }
        Ok(dir)
    }

    /// Opens `<base>/<aa>` for reading. `None` where there is none.
    pub(crate) fn open_prefix(&self, base: Base, prefix: &str) -> Result<Option<Dir>, OpenError> {
        self.open_folder(self.base_dir(base), prefix)
    }

    pub(crate) fn base_dir(&self, base: Base) -> &Dir {
        match base {
            Base::Objects => &self.folders.objects,
            Base::Packs => &self.folders.packs,
        }
    }

    /// Makes the entries of the store's own folders durable, once in this process, before the first
    /// publish builds on them.
    pub(crate) fn anchor(&self) -> Result<(), OpenError> {
        let mut synced = crate::lock_mutex(&self.synced);
        if synced.anchored {
            return Ok(());
        }
        // The parent may be a folder that only its owner may read; it is not ours to insist.
        if let Ok(parent) = self.folders.root_parent.reopen() {
            parent.sync()?;
        }
        self.folders.root.sync()?;
        self.folders.v1.sync()?;
        synced.anchored = true;
        Ok(())
    }
}

/// A folder with two-digit subfolders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// `objects`.
    Objects,
    /// `packs`.
    Packs,
}

impl Base {
    fn name(self) -> &'static str {
        match self {
            Self::Objects => OBJECTS,
            Self::Packs => PACKS,
        }
    }
}

impl StoreId {
    /// Reads 32 lower-case hex digits; `None` for any other spelling.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 {
            return None;
        }
        let mut id = [0u8; 16];
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        let id = Self(id);
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for StoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<PublishError> for OpenError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Fs(error) => Self::Fs(error),
            other => Self::Publish(Box::new(other)),
        }
    }
}

impl OpenError {
    /// The failed system call, where that is all there is.
    pub fn as_fs(&self) -> Option<&FsError> {
        match self {
            Self::Fs(error) => Some(error),
            Self::Relative { .. }
            | Self::Missing { .. }
            | Self::Owner { .. }
            | Self::Writable { .. }
            | Self::NotDirectory { .. }
            | Self::TooManyLinks { .. }
            | Self::State(_)
            | Self::Id { .. }
            | Self::Publish(_) => None,
        }
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Relative { .. } => Blame::Caller,
            Self::Missing { .. }
            | Self::Owner { .. }
            | Self::Writable { .. }
            | Self::NotDirectory { .. }
            | Self::TooManyLinks { .. } => Blame::Host,
            Self::State(error) => error.blame(),
            Self::Id { .. } => Blame::Store,
            Self::Publish(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Free space that a fill never takes by default.
pub const MIN_FREE_BYTES: u64 = 10 << 30;

const VERSION_DIR: &str = "v1";
const OBJECTS: &str = "objects";
const PACKS: &str = "packs";
const ID: &str = "id";
const ID_BYTES: u64 = 33;
/// What a `CACHEDIR.TAG` holds.
pub const TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
# This file is a cache directory tag created by packhouse.\n\
# For information about cache directory tags see https://bford.info/cachedir/\n";

/// Puts the tag there once. Its content is for backup programs; another one is left alone.
fn publish_tag(fs: &dyn Fs, root: &Dir) -> Result<(), OpenError> {
    match root.open_file("CACHEDIR.TAG") {
        Ok(_) => return Ok(()),
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    match publish_small(fs, root, "CACHEDIR.TAG", TAG) {
        Ok(_) | Err(PublishError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads the id, or draws one. A damaged id is moved aside and drawn anew: what hangs on it is this
/// user's private state, which is verified once more.
fn open_id(
    fs: &dyn Fs,
    folders: &Folders,
    owners: &Owners,
    make: bool,
) -> Result<StoreId, OpenError> {
    let v1 = &folders.v1;
    for _ in 0..ID_ATTEMPTS {
        match read_id(v1, owners) {
            Ok(id) => return Ok(id),
            Err(OpenError::Missing { .. }) if make => {
                let id = StoreId(draw(fs)?);
                let text = format!("{id}\n");
                match publish_small(fs, v1, ID, text.as_bytes()) {
                    Ok(_) | Err(PublishError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(OpenError::Id { .. }) if make => {
                let aside = format!("{ID}.{}", StoreId(draw(fs)?));
                v1.rename_new(ID, &folders.quarantine, aside)?;
                v1.sync()?;
            }
            Err(error) => return Err(error),
        }
    }
    read_id(v1, owners)
}

fn read_id(v1: &Dir, owners: &Owners) -> Result<StoreId, OpenError> {
    let refuse = |actual: String| OpenError::Id {
        path: v1.path().join(ID),
        actual,
    };
    let file = match v1.open_file(ID) {
        Ok(file) => file,
        Err(error) if error.kind == FsErrorKind::NotFound => {
            return Err(OpenError::Missing { path: error.path });
        }
        Err(error) if error.kind == FsErrorKind::Symlink => {
            return Err(refuse("a symlink".into()));
        }
        Err(error) => return Err(error.into()),
    };
    judge(file.stat()?, file.path(), owners)?;
    let bytes = match file.read_small(ID_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.blame() == Blame::Store => return Err(refuse(error.kind.to_string())),
        Err(error) => return Err(error.into()),
    };
    parse_id(&bytes).ok_or_else(|| refuse(String::from_utf8_lossy(&bytes).into_owned()))
}

fn parse_id(bytes: &[u8]) -> Option<StoreId> {
    StoreId::parse(std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?)
}

fn draw(fs: &dyn Fs) -> Result<[u8; 16], FsError> {
    let mut bytes = [0; 16];
    fs.random(&mut bytes)?;
    Ok(bytes)
}

fn open_state(
    fs: Arc<dyn Fs>,
    owners: &Owners,
    path: &Path,
    id: StoreId,
) -> Result<State, OpenError> {
    let modes = MakeModes {
        parents: 0o700,
        last: 0o700,
    };
    let (_, top) = walk(fs.as_ref(), owners, path, Some(modes), Links::Follow)?;
    let this_user = Owners::only(fs.effective_uid());
    let dir = open_or_make(&top, &id.to_string(), 0o700, &this_user, true)?;
    Ok(State::new(fs, dir)?)
}

const ID_ATTEMPTS: u32 = 3;
