//! What a user has seen of each lab's ledger: the last head, outside of the lab.
//!
//! A chain proves that nothing in it was changed without changing its head; only who remembers
//! that head can tell that the whole was replaced, or that its end is gone.
//!
//! Invariants: a memory is written whole and replaces the older one; one that can't be read is
//! never taken for one that is absent.
//!
//! Format: `docs/format/ledger.md`, section 7.

use crate::act::{Fields, Written};
use crate::chain::Ledger;
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use serde_json::Value;
use std::path::PathBuf;

/// The schema of a remembered head.
pub const SCHEMA: &str = "packhouse/ledger-head/1";

/// The folder of a user's remembered heads.
#[derive(Clone, Debug)]
pub struct Heads {
    folder: Dir,
}

/// A head that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The lab's id.
    pub lab: Digest,
    /// Index of the entry.
    pub index: u64,
    /// Its digest.
    pub head: Digest,
}

/// Why a ledger is not what was seen last.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The memory can't be read or written.
    #[error("{0}")]
    Fs(FsError),
    /// The memory is there and says nothing that we wrote.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The entry that was seen last is not in the ledger any more.
    #[error(
        "truncated, rewritten or forked: you have seen entry {} with digest {}, \
         and {} (noted in {})",
        seen.index, seen.head, shown(*actual), path.display()
    )]
    Gone {
        /// What was seen.
        seen: Head,
        /// Digest of the entry that is there instead; `None`: the ledger ends before it.
        actual: Option<Digest>,
        /// The file of the memory.
        path: PathBuf,
    },
}

impl Heads {
    /// Opens the memory below a user's state folder and makes it where it is missing.
    pub fn open(state: &Dir) -> Result<Self, HeadError> {
        let mut folder = state.clone();
        for name in ["lab", "heads"] {
            match folder.make_dir(name, 0o700) {
                Ok(()) => {}
                Err(error) if error.kind == FsErrorKind::Exists => {}
                Err(error) => return Err(HeadError::Fs(error)),
            }
            folder = folder.open_dir(name)?;
        }
        Ok(Self { folder })
    }

    /// Demands that the head seen last is in the ledger, then notes its present one. Errors with
    /// `Gone` where it is not, and where the memory can't be read or written.
    pub fn admit(&self, ledger: &Ledger) -> Result<(), HeadError> {
        let now = Head::of(ledger);
        match self.seen(now.lab)? {
            Some(seen) if seen == now => return Ok(()),
            Some(seen) => self.holds(seen, ledger)?,
            None => {}
        }
        self.note(now)
    }

    /// The head seen last of a lab. Errors where the memory is there and can't be read.
    pub fn seen(&self, lab: Digest) -> Result<Option<Head>, HeadError> {
        let name = file_name(lab);
        let bytes = match self.folder.read_small(&name, HEAD_BYTES_MAX) {
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HeadError::Fs(error)),
            Ok(bytes) => bytes,
        };
        let head = Head::parse(&bytes).and_then(|head| {
            let same = head.lab == lab;
            same.then_some(head)
                .ok_or(format!("is of lab {}", head.lab))
        });
        head.map(Some).map_err(|reason| HeadError::Damaged {
            path: self.folder.path().join(name),
            reason,
        })
    }

    fn holds(&self, seen: Head, ledger: &Ledger) -> Result<(), HeadError> {
        let index = usize::try_from(seen.index).ok();
        let entry = index.and_then(|index| ledger.entries().get(index));
        let actual = entry.map(|entry| entry.digest);
        if actual == Some(seen.head) {
            return Ok(());
        }
        let path = self.folder.path().join(file_name(seen.lab));
        Err(HeadError::Gone { seen, actual, path })
    }

    /// Writes a head over the older one. Whoever else is writing one noted a head of the same
    /// chain, so nothing is lost by leaving it at that.
    fn note(&self, head: Head) -> Result<(), HeadError> {
        let lock = self.lock_file(head.lab)?;
        if !lock.try_lock(LockKind::Exclusive, 0, 1)? {
            return Ok(());
        }
        let (name, fresh) = (file_name(head.lab), format!("{}.new", head.lab));
        match self.folder.unlink(&fresh) {
            Err(error) if error.kind != FsErrorKind::NotFound => return Err(HeadError::Fs(error)),
            Ok(()) | Err(_) => {}
        }
        let file = self.folder.create_new(&fresh, 0o600)?;
        file.write_all_at(0, &head.render())?;
        file.sync()?;
        self.folder.rename_over(&fresh, &name)?;
        self.folder.sync()?;
        Ok(())
    }

    fn lock_file(&self, lab: Digest) -> Result<File, FsError> {
        let name = format!("{lab}.lock");
        match self.folder.create_new(&name, 0o600) {
            Err(error) if error.kind == FsErrorKind::Exists => self.folder.open_file_writable(name),
            other => other,
        }
    }
}

impl Head {
    /// The head of a ledger.
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            lab: ledger.state().id(),
            index: (ledger.entries().len() as u64).saturating_sub(1),
            head: ledger.head(),
        }
    }

    fn render(&self) -> Vec<u8> {
        let mut written = Written::default();
        written.required("head", &self.head);
        written.required("index", &self.index);
        written.required("lab", &self.lab);
        written.required("schema", &SCHEMA.to_owned());
        canonical::render(&written.finish())
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = canonical::parse(bytes).map_err(|error| error.to_string())?;
        let Value::Object(object) = value else {
            return Err("not a JSON object".to_owned());
        };
        let mut fields = Fields::new(object);
        let (schema, head) = (|| {
            let schema: String = fields.required("schema")?;
            let head = Self {
                lab: fields.required("lab")?,
                index: fields.required("index")?,
                head: fields.required("head")?,
            };
            fields.finish().map(|()| (schema, head))
        })()
        .map_err(|fault| fault.to_string())?;
        if schema != SCHEMA {
            return Err(format!("schema {schema:?}, not {SCHEMA:?}"));
        }
        Ok(head)
    }
}

impl HeadError {
    /// Whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Fs(error) => error.blame(),
            Self::Damaged { .. } => Blame::Store,
            Self::Gone { .. } => Blame::Source,
        }
    }
}

impl From<FsError> for HeadError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

const HEAD_BYTES_MAX: u64 = 4096;

fn file_name(lab: Digest) -> String {
    format!("{lab}.json")
}

fn shown(actual: Option<Digest>) -> String {
    actual.map_or("now the ledger ends before it".to_owned(), |digest| {
        format!("now it has digest {digest}")
    })
}
