//! `verify` hashes copies, `warm` brings them back to memory.
//!
//! A copy whose bytes are other ones than its receipts say is taken out of service at once.
//!
//! Never: repairs, or renews a receipt; `prepare` replaces a copy that fails here.

use crate::condemn::{Condemned, condemn};
use crate::models::entry::{CopyProblem, CopyRefusal, Entry, entries_of};
use crate::models::key::ModelKey;
use crate::root::StageRoot;
use packhouse_base::digest::Digest;
use packhouse_store::hash_many::{Hashable, LANES_MAX, hash_many};
use packhouse_store::object::VerifiedObject;
use packhouse_sys::fs::{File, FsError, FsErrorKind, Operation};
use packhouse_sys::read_map::populate;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What verifying a model's copy found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelVerification {
    /// The model.
    pub key: ModelKey,
    /// Which copy of it; `None` where there is none.
    pub generation: Option<u64>,
    /// Why the copy as a whole is of no use, if so; then there are no files.
    pub problem: Option<CopyProblem>,
    /// Its files, shards in order.
    pub files: Vec<VerifiedFile>,
    /// Whether it was taken out of service for its bytes.
    pub condemned: Condemned,
}

/// What verifying one file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedFile {
    /// Its name.
    pub name: String,
    /// Its length by the receipt.
    pub bytes: u64,
    /// SHA-256 by the receipt.
    pub digest: Digest,
    /// What is wrong with it, if anything.
    pub problem: Option<CopyRefusal>,
}

impl ModelVerification {
    /// Whether a copy is there and nothing is wrong with it.
    pub fn is_good(&self) -> bool {
        let mut files = self.files.iter();
        self.generation.is_some()
            && self.problem.is_none()
            && files.all(|file| file.problem.is_none())
    }
}

/// One file on its way.
struct Hashing {
    model: usize,
    file: usize,
    object: VerifiedObject,
}

impl Hashable for Hashing {
    fn file(&self) -> &File {
        self.object.file()
    }

    fn length(&self) -> u64 {
        self.object.length()
    }
}

/// Hashes every file of the newest copies of these models, side by side, and takes those with other
/// bytes than they should have out of service. `progress` is told bytes as they are hashed.
pub fn verify(
    root: &StageRoot,
    keys: &[ModelKey],
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<ModelVerification>, FsError> {
    let mut found = Vec::new();
    let (mut work, mut folders) = (Vec::new(), Vec::new());
    for (model, key) in keys.iter().enumerate() {
        let (verification, entry) = open(root, *key)?;
        found.push(verification);
        let Some(entry) = entry else {
            folders.push(None);
            continue;
        };
        for (file, receipt) in entry.receipts.files.iter().enumerate() {
            // Also one that somebody can write to: what is there may be wrong already.
            match entry.file_to_hash(receipt) {
                Ok(object) => work.push(Hashing {
                    model,
                    file,
                    object,
                }),
                Err(refusal) => found[model].files[file].problem = Some(refusal),
            }
        }
        folders.push(Some(entry.folder));
    }
    // The longest first, so that no core ends with one of them.
    work.sort_by_key(|hashing| std::cmp::Reverse(hashing.object.length()));
    for (model, file, refusal) in hash_all(work, threads, progress) {
        if let (CopyRefusal::Bytes { .. }, Some(folder)) = (&refusal, &folders[model]) {
            found[model].condemned = condemn(folder);
        }
        found[model].files[file].problem = Some(refusal);
    }
    Ok(found)
}

/// Brings the files of a model's newest copy to memory, from where the kernel may have moved them
/// under pressure, and answers their bytes. Errors when there is no copy that holds.
pub fn warm(
    root: &StageRoot,
    key: ModelKey,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
) -> Result<Option<u64>, CopyProblem> {
    let Some(name) = entries_of(root, key).map_err(CopyRefusal::Fs)?.pop() else {
        return Ok(None);
    };
    let Some(entry) = Entry::open(root, name)? else {
        return Ok(None);
    };
    let mut warmed = 0;
    for receipt in &entry.receipts.files {
        let object = entry.file(receipt)?;
        let mut offset = 0;
        while offset < receipt.size && !cancel() {
            let bytes = (receipt.size - offset).min(WARM_BYTES);
            touch(object.file(), offset, bytes).map_err(CopyRefusal::Fs)?;
            offset += bytes;
            warmed += bytes;
            progress(bytes);
        }
    }
    Ok(Some(warmed))
}

/// Brings one range to memory: by a mapping, or by reading where there is none to be had.
fn touch(file: &File, offset: u64, bytes: u64) -> Result<(), FsError> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    if let Some(fd) = file.as_fd()
        && populate(fd, offset, length).is_ok()
    {
        return Ok(());
    }
    let mut piece = vec![0; length.min(READ_BYTES)];
    let mut done = 0;
    while done < bytes {
        let filled = file.read_full_at(offset + done, &mut piece)?;
        if filled == 0 {
            return Err(FsError {
                operation: Operation::Read,
                path: file.path().to_owned(),
                kind: FsErrorKind::EndsEarly,
            });
        }
        done += filled as u64;
    }
    Ok(())
}

fn open(root: &StageRoot, key: ModelKey) -> Result<(ModelVerification, Option<Entry>), FsError> {
    let mut verification = ModelVerification {
        key,
        generation: None,
        problem: None,
        files: Vec::new(),
        condemned: Condemned::No,
    };
    let Some(name) = entries_of(root, key)?.pop() else {
        return Ok((verification, None));
    };
    let entry = match Entry::open(root, name) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok((verification, None)),
        Err(problem) => {
            verification.generation = Some(name.generation);
            verification.problem = Some(problem);
            return Ok((verification, None));
        }
    };
    verification.generation = Some(name.generation);
    let files = entry.receipts.files.iter().map(|receipt| VerifiedFile {
        name: receipt.name.clone(),
        bytes: receipt.size,
        digest: receipt.digest,
        problem: None,
    });
    verification.files = files.collect();
    Ok((verification, Some(entry)))
}

fn hash_all(
    work: Vec<Hashing>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> Vec<(usize, usize, CopyRefusal)> {
    let count = work.len();
    let lanes = count.div_ceil(threads.get()).clamp(1, LANES_MAX);
    let queue = Mutex::new(work.into_iter());
    let refusals = Mutex::new(Vec::new());
    let run = || {
        let next = || lock(&queue).next();
        let done = |hashing: Hashing, actual: Result<Digest, FsError>| {
            if let Err(refusal) = conclude(&hashing.object, actual) {
                lock(&refusals).push((hashing.model, hashing.file, refusal));
            }
        };
        hash_many(lanes, next, done, progress);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(count) {
            // A thread that is not to be had leaves its work to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    refusals
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn conclude(object: &VerifiedObject, actual: Result<Digest, FsError>) -> Result<(), CopyRefusal> {
    let (actual, path) = (actual?, object.file().path().to_owned());
    if let Some(field) = object.identity().difference(&object.file().identity()?) {
        return Err(CopyRefusal::Stale { path, field });
    }
    let expected = object.digest().0;
    if actual != expected {
        return Err(CopyRefusal::Bytes {
            path,
            expected,
            actual,
        });
    }
    match object.file().has_writer() {
        Some(true) => Err(CopyRefusal::Writer { path }),
        Some(false) | None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mapped at once; a multiple of every page size.
const WARM_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 1 << 20;
