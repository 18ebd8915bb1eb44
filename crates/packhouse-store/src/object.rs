//! Reading objects: only what was verified is handed out.
//!
//! Invariants:
//! - an object is opened once, by descriptor, and everything is asked of that descriptor;
//! - it is a regular file of a trusted owner, writable by nobody else, of the length wanted;
//! - its bytes were hashed by this process, or this user's receipt matches the descriptor's stat
//!   identity; an object with a second name is hashed at each use, since its bytes could be changed
//!   through a name outside the store;
//! - stat is asked again after hashing, and must be equal.
//!
//! Never: reports a corrupt object as missing, trusts stat on a remote file system, edits an
//! object. Format: `docs/format/store.md`.

use crate::quarantine::Moved;
use crate::receipt::{Receipt, ReceiptMiss, Receipts};
use crate::root::{Base, OpenError, Store};
pub use crate::settle::{PendingReceipt, SettleError, Settled};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Hasher, ObjectDigest};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, FsKind, FsTrust, StatIdentity, Volume};
use std::path::PathBuf;

/// What proof an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectTrust {
    /// A matching receipt, else a hash now.
    Receipt,
    /// A hash now.
    Deep,
}

/// How an object was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowVerified {
    /// Hashed now, as asked.
    Deep,
    /// A receipt of this user matches.
    Receipt,
    /// Hashed now, because no receipt matched.
    Reverified,
    /// Written and hashed by this process.
    Published,
    /// Accepted by samples of live weights alone, as the user chose.
    Sample,
}

/// An object whose bytes are proven, and the descriptor that they were proven on.
#[derive(Debug)]
pub struct VerifiedObject {
    digest: ObjectDigest,
    length: u64,
    how: HowVerified,
    file: File,
    pub(crate) identity: StatIdentity,
    fs_trust: FsTrust,
    pub(crate) link_count: u64,
}

/// An object that is structurally sound but whose bytes nobody proved. Samples may be compared with
/// it, where the user chose that trust.
#[derive(Debug)]
pub struct UnverifiedObject {
    object: VerifiedObject,
}

/// Why an object is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectRefusal {
    /// There is none.
    #[error("object {digest} is not in the store")]
    Missing {
        /// The object.
        digest: ObjectDigest,
    },
    /// Something else than a regular file has its name.
    #[error("object {digest}: {} is a {kind}; {moved}", path.display())]
    NotRegular {
        /// The object.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// What is there.
        kind: FileKind,
        /// Where it went.
        moved: Moved,
    },
    /// Its owner is not trusted.
    #[error("object {digest}: {} belongs to uid {uid}, trusted are {trusted:?}; {moved}",
        path.display())]
    Owner {
        /// The object.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// The owners trusted.
        trusted: Vec<u32>,
        /// Where it went.
        moved: Moved,
    },
    /// Others than its owner can write to it.
    #[error("object {digest}: {} has mode {mode:04o}, others can write to it; {moved}",
        path.display())]
    Writable {
        /// The object.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Where it went.
        moved: Moved,
    },
    /// It has another length than its pack says.
    #[error("object {digest} is corrupt: {} has {actual} bytes, expected {expected}; {moved}",
        path.display())]
    Length {
        /// The object.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// Length wanted.
        expected: u64,
        /// Length there.
        actual: u64,
        /// Where it went.
        moved: Moved,
    },
    /// Its bytes hash to something else.
    #[error("object {digest} is corrupt: {} hashes to {actual}; {moved}", path.display())]
    Corrupt {
        /// The object, and so the digest expected.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// The digest of its bytes.
        actual: Digest,
        /// Where it went.
        moved: Moved,
    },
    /// It changed while it was hashed.
    #[error("object {digest}: {} changed while it was hashed ({field})", path.display())]
    Changed {
        /// The object.
        digest: ObjectDigest,
        /// Its path.
        path: PathBuf,
        /// The first field of the stat identity that differs.
        field: &'static str,
    },
    /// The caller's buffer has another length.
    #[error("object {digest} has {expected} bytes, the buffer has {actual}")]
    Buffer {
        /// The object.
        digest: ObjectDigest,
        /// Its length.
        expected: u64,
        /// The buffer's length.
        actual: u64,
    },
    /// Its folder is not trusted.
    #[error("object {digest}: {error}")]
    Folder {
        /// The object.
        digest: ObjectDigest,
        /// What is wrong with the folder.
        error: Box<OpenError>,
    },
    /// The system said no.
    #[error("object {digest}: {error}")]
    Fs {
        /// The object.
        digest: ObjectDigest,
        /// The failure.
        error: FsError,
    },
}

/// Why a receipt does not hold for a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptDoubt {
    /// It is no regular file.
    #[error("it is a {kind}, expected a regular file")]
    NotRegular {
        /// What it is.
        kind: FileKind,
    },
    /// It has other names, through which its bytes could be changed.
    #[error("it has {count} names, expected 1")]
    Linked {
        /// How many.
        count: u64,
    },
    /// Stat proves nothing on its file system.
    #[error("stat proves nothing on {kind}")]
    Remote {
        /// The file system.
        kind: FsKind,
    },
    /// Its stat identity is another one.
    #[error("its {field} is not the receipt's")]
    Differs {
        /// The first field that differs.
        field: &'static str,
        /// The identity in the receipt.
        expected: Box<StatIdentity>,
        /// The identity now.
        actual: Box<StatIdentity>,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Store {
    /// Opens and verifies an object of a known length.
    ///
    /// Without a matching receipt it is hashed now and a receipt is recorded if that is possible
    /// already (`VerifiedObject::pending_receipt` otherwise). An object that is damaged or not ours
    /// goes to quarantine, so that the next publish can take its name.
    pub fn object(
        &self,
        digest: &ObjectDigest,
        length: u64,
        trust: ObjectTrust,
    ) -> Result<VerifiedObject, ObjectRefusal> {
        let mut object = self.open_sound(digest, length)?;
        let how = match trust {
            ObjectTrust::Deep => HowVerified::Deep,
            ObjectTrust::Receipt if self.receipt_for(&object).is_ok() => {
                object.how = HowVerified::Receipt;
                return Ok(object);
            }
            ObjectTrust::Receipt => HowVerified::Reverified,
        };
        let before_ns = self.clock.wall_ns();
        let actual = hash(&object.file, length);
        self.conclude(object, how, before_ns, actual)
    }

    /// Takes an object as verified when its bytes hashed to its name, from `before_ns` on. A
    /// damaged one goes to quarantine.
    pub(crate) fn conclude(
        &self,
        object: VerifiedObject,
        how: HowVerified,
        before_ns: i64,
        actual: Result<Digest, FsError>,
    ) -> Result<VerifiedObject, ObjectRefusal> {
        let digest = object.digest;
        let actual = actual.map_err(|error| refusal(&digest, error))?;
        object.unchanged()?;
        if actual != digest.0 {
            return Err(ObjectRefusal::Corrupt {
                digest,
                path: object.file.path().to_owned(),
                actual,
                moved: self.quarantine_object(&object),
            });
        }
        self.record_now(&object, before_ns);
        Ok(VerifiedObject { how, ..object })
    }

    /// Opens an object of a known length without proving its bytes.
    pub fn object_for_sample(
        &self,
        digest: &ObjectDigest,
        length: u64,
    ) -> Result<UnverifiedObject, ObjectRefusal> {
        let object = self.open_sound(digest, length)?;
        Ok(UnverifiedObject { object })
    }

    /// This user's receipts.
    pub fn receipts(&self) -> Result<Receipts, &OpenError> {
        self.state().map(|state| Receipts::new(state.clone()))
    }

    fn receipt_for(&self, object: &VerifiedObject) -> Result<(), NoReceipt> {
        if object.fs_trust == FsTrust::Remote || object.link_count != 1 {
            return Err(NoReceipt::StatNotTrusted);
        }
        let receipts = self.receipts().map_err(|_| NoReceipt::NoState)?;
        match receipts.find_for(object.digest, &object.identity) {
            Ok(_) => Ok(()),
            Err(
                ReceiptMiss::Absent { .. }
                | ReceiptMiss::Stale { .. }
                | ReceiptMiss::Form { .. }
                | ReceiptMiss::Checksum { .. }
                | ReceiptMiss::OtherObject { .. }
                | ReceiptMiss::Unreadable { .. },
            ) => Err(NoReceipt::NoMatch),
        }
    }

    /// Records a receipt of an object just hashed, if its ctime was old enough at `before_ns`,
    /// before the hash. What fails here costs one more hash at the next use, so it is no error.
    fn record_now(&self, object: &VerifiedObject, before_ns: i64) {
        if object.receipt_possible()
            && let Ok(receipts) = self.receipts()
        {
            let receipt = Receipt {
                object: object.digest,
                stat: object.identity,
                verified_ns: before_ns,
            };
            let _ = receipts.record(&receipt);
        }
    }

    /// Opens an object and asks the descriptor everything but its bytes.
    pub(crate) fn open_sound(
        &self,
        digest: &ObjectDigest,
        length: u64,
    ) -> Result<VerifiedObject, ObjectRefusal> {
        let name = digest.to_string();
        let missing = ObjectRefusal::Missing { digest: *digest };
        let folder = self
            .open_prefix(Base::Objects, &name[..2])
            .map_err(|error| ObjectRefusal::Folder {
                digest: *digest,
                error: Box::new(error),
            })?
            .ok_or(missing)?;
        let file = self.open_judged(&folder, digest, length)?;
        VerifiedObject::open(*digest, length, file).map_err(|error| refusal(digest, error))
    }

    /// Opens an object in the folder of its prefix, and judges kind, owner, mode and length by one
    /// stat of the descriptor.
    pub(crate) fn open_judged(
        &self,
        folder: &Dir,
        digest: &ObjectDigest,
        length: u64,
    ) -> Result<File, ObjectRefusal> {
        let name = digest.to_string();
        let file = match folder.open_file(&name) {
            Ok(file) => file,
            Err(error) if error.kind == FsErrorKind::NotFound => {
                return Err(ObjectRefusal::Missing { digest: *digest });
            }
            Err(error) if error.kind == FsErrorKind::Symlink => {
                return Err(ObjectRefusal::NotRegular {
                    digest: *digest,
                    path: error.path,
                    kind: FileKind::Symlink,
                    moved: self.quarantine(Base::Objects, &name, None),
                });
            }
            Err(error) => return Err(refusal(digest, error)),
        };
        self.judge_object(digest, length, &file)?;
        Ok(file)
    }

    fn quarantine_object(&self, object: &VerifiedObject) -> Moved {
        self.quarantine(
            Base::Objects,
            &object.digest.to_string(),
            Some(&object.file),
        )
    }

    fn judge_object(
        &self,
        digest: &ObjectDigest,
        length: u64,
        file: &File,
    ) -> Result<(), ObjectRefusal> {
        let digest = *digest;
        let path = file.path().to_owned();
        let stat = file.stat().map_err(|error| refusal(&digest, error))?;
        let moved = || self.quarantine(Base::Objects, &digest.to_string(), Some(file));
        if stat.kind != FileKind::Regular {
            return Err(ObjectRefusal::NotRegular {
                digest,
                path,
                kind: stat.kind,
                moved: moved(),
            });
        }
        if !self.owners.trusts(stat.uid) {
            return Err(ObjectRefusal::Owner {
                digest,
                path,
                uid: stat.uid,
                trusted: self.owners.uids().to_vec(),
                moved: moved(),
            });
        }
        if stat.mode & 0o022 != 0 {
            return Err(ObjectRefusal::Writable {
                digest,
                path,
                mode: stat.mode,
                moved: moved(),
            });
        }
        if stat.size != length {
            return Err(ObjectRefusal::Length {
                digest,
                path,
                expected: length,
                actual: stat.size,
                moved: moved(),
            });
        }
        Ok(())
    }
}

impl VerifiedObject {
    pub(crate) fn new(
        digest: ObjectDigest,
        length: u64,
        how: HowVerified,
        file: File,
    ) -> Result<Self, FsError> {
        let mut object = Self::open(digest, length, file)?;
        object.how = how;
        Ok(object)
    }

    /// Takes a copy of an object, outside the store, for which a receipt holds: this user hashed
    /// these bytes while the stat identity was `receipt`. Errors unless the descriptor has that
    /// identity now.
    pub fn by_receipt(
        digest: ObjectDigest,
        file: File,
        receipt: &StatIdentity,
        volume: &Volume,
    ) -> Result<Self, ReceiptDoubt> {
        let (stat, identity) = file.identity_on(volume)?;
        if stat.kind != FileKind::Regular {
            return Err(ReceiptDoubt::NotRegular { kind: stat.kind });
        }
        if stat.link_count != 1 {
            return Err(ReceiptDoubt::Linked {
                count: stat.link_count,
            });
        }
        if let Some(field) = receipt.difference(&identity) {
            return Err(ReceiptDoubt::Differs {
                field,
                expected: Box::new(*receipt),
                actual: Box::new(identity),
            });
        }
        let fs_trust = volume.kind().trust();
        if fs_trust == FsTrust::Remote {
            return Err(ReceiptDoubt::Remote {
                kind: volume.kind(),
            });
        }
        Ok(Self {
            digest,
            length: identity.size,
            how: HowVerified::Receipt,
            file,
            identity,
            fs_trust,
            link_count: stat.link_count,
        })
    }

    /// Hashes the bytes of an object, or of a copy, now. Errors when they are not the digest's, or
    /// when the file changes meanwhile; the file stays where it is.
    pub fn hashed_now(self) -> Result<Self, ObjectRefusal> {
        let actual = hash(&self.file, self.length).map_err(|error| refusal(&self.digest, error));
        self.hashed_to(actual?)
    }

    /// Takes the digest that this process just found for the bytes of the descriptor.
    pub(crate) fn hashed_to(self, actual: Digest) -> Result<Self, ObjectRefusal> {
        self.unchanged()?;
        if actual != self.digest.0 {
            return Err(ObjectRefusal::Corrupt {
                digest: self.digest,
                path: self.file.path().to_owned(),
                actual,
                moved: Moved::NotTried,
            });
        }
        let how = HowVerified::Deep;
        Ok(Self { how, ..self })
    }

    /// Its digest.
    pub fn digest(&self) -> ObjectDigest {
        self.digest
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How it was verified.
    pub fn how(&self) -> HowVerified {
        self.how
    }

    /// The descriptor it was verified on, open for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor's stat identity when it was verified.
    pub fn identity(&self) -> &StatIdentity {
        &self.identity
    }

    /// Whether its file system is local, so that it may be mapped. Else `read_into`.
    pub fn fs_trust(&self) -> FsTrust {
        self.fs_trust
    }

    /// The receipt to record once its ctime is old enough. `None` for one that came by receipt, or
    /// whose stat proves nothing: a remote file system, a second name.
    pub fn pending_receipt(&self) -> Option<PendingReceipt> {
        let proven = !matches!(self.how, HowVerified::Receipt | HowVerified::Sample);
        (proven && self.receipt_possible()).then_some(PendingReceipt {
            digest: self.digest,
            identity: self.identity,
        })
    }

    /// Reads the object into private memory and hashes what was read: for file systems whose files
    /// are not mapped. The buffer has the object's length; on an error its bytes mean nothing.
    pub fn read_into(&self, target: &mut [u8]) -> Result<(), ObjectRefusal> {
        read_hashed(&self.file, &self.digest, self.length, target)
    }

    fn open(digest: ObjectDigest, length: u64, file: File) -> Result<Self, FsError> {
        let identity = file.identity()?;
        let fs_trust = file.fs_stat()?.kind.trust();
        let link_count = file.stat()?.link_count;
        Ok(Self {
            digest,
            length,
            how: HowVerified::Deep,
            file,
            identity,
            fs_trust,
            link_count,
        })
    }

    fn receipt_possible(&self) -> bool {
        self.fs_trust == FsTrust::Local && self.link_count == 1
    }

    fn unchanged(&self) -> Result<(), ObjectRefusal> {
        let identity = self
            .file
            .identity()
            .map_err(|error| refusal(&self.digest, error))?;
        match self.identity.difference(&identity) {
            None => Ok(()),
            Some(field) => Err(ObjectRefusal::Changed {
                digest: self.digest,
                path: self.file.path().to_owned(),
                field,
            }),
        }
    }
}

impl UnverifiedObject {
    /// Takes it as verified: the caller compared samples of live weights with it, and the user
    /// chose that this is enough. No receipt comes of it.
    pub fn accept_sampled(self) -> VerifiedObject {
        let how = HowVerified::Sample;
        VerifiedObject { how, ..self.object }
    }

    /// Its digest, which nobody proved.
    pub fn digest(&self) -> ObjectDigest {
        self.object.digest
    }

    /// Its length in bytes, which holds.
    pub fn length(&self) -> u64 {
        self.object.length
    }

    /// The descriptor.
    pub fn file(&self) -> &File {
        &self.object.file
    }

    /// Whether its file system is local, so that it may be mapped.
    pub fn fs_trust(&self) -> FsTrust {
        self.object.fs_trust
    }
}

impl ReceiptDoubt {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotRegular { .. } | Self::Linked { .. } | Self::Differs { .. } => Blame::Store,
            Self::Remote { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

impl ObjectRefusal {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Missing { .. }
            | Self::NotRegular { .. }
            | Self::Owner { .. }
            | Self::Writable { .. }
            | Self::Length { .. }
            | Self::Corrupt { .. }
            | Self::Changed { .. } => Blame::Store,
            Self::Buffer { .. } => Blame::Caller,
            Self::Folder { error, .. } => error.blame(),
            Self::Fs { error, .. } => error.blame(),
        }
    }

    /// One word for counters and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::NotRegular { .. } => "not_regular",
            Self::Owner { .. } => "owner",
            Self::Writable { .. } => "writable",
            Self::Length { .. } => "length",
            Self::Corrupt { .. } => "corrupt",
            Self::Changed { .. } => "changed",
            Self::Buffer { .. } => "buffer",
            Self::Folder { .. } => "folder",
            Self::Fs { .. } => "host",
        }
    }

    /// Says whether the name is free now, so that a publish may take it.
    pub(crate) fn name_is_free(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::NotRegular { moved, .. }
            | Self::Owner { moved, .. }
            | Self::Writable { moved, .. }
            | Self::Length { moved, .. }
            | Self::Corrupt { moved, .. } => moved.name_is_free(),
            Self::Changed { .. } => true,
            Self::Buffer { .. } | Self::Folder { .. } | Self::Fs { .. } => false,
        }
    }
}

enum NoReceipt {
    StatNotTrusted,
    NoState,
    NoMatch,
}

const READ_BYTES: usize = 1 << 20;

fn refusal(digest: &ObjectDigest, error: FsError) -> ObjectRefusal {
    ObjectRefusal::Fs {
        digest: *digest,
        error,
    }
}

/// Hashes `length` bytes; a file that ends early hashes to what it has.
fn hash(file: &File, length: u64) -> Result<Digest, FsError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![
        0;
        READ_BYTES
            .min(usize::try_from(length).unwrap_or(READ_BYTES))
            .max(1)
    ];
    let mut offset = 0;
    while offset < length {
        let filled = file.read_full_at(offset, &mut buffer)?;
        if filled == 0 {
            break;
        }
        hasher.update(&buffer[..filled]);
        offset += filled as u64;
    }
    Ok(hasher.finish())
}

fn read_hashed(
    file: &File,
    digest: &ObjectDigest,
    length: u64,
    target: &mut [u8],
) -> Result<(), ObjectRefusal> {
    if target.len() as u64 != length {
        return Err(ObjectRefusal::Buffer {
            digest: *digest,
            expected: length,
            actual: target.len() as u64,
        });
    }
    let mut hasher = Hasher::default();
    let mut offset = 0;
    for chunk in target.chunks_mut(READ_BYTES) {
        let filled = file
            .read_full_at(offset, chunk)
            .map_err(|error| refusal(digest, error))?;
        hasher.update(&chunk[..filled]);
        offset += filled as u64;
    }
    let actual = hasher.finish();
    if actual != digest.0 {
        return Err(ObjectRefusal::Corrupt {
            digest: *digest,
            path: file.path().to_owned(),
            actual,
            moved: Moved::NotTried,
        });
    }
    Ok(())
}
