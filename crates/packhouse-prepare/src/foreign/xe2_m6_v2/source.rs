//! The model file of a set: its bytes' digests, from the source ledger or read now.

use crate::model::{Model, ModelError, ModelFile};
use packhouse_base::digest::{Digest, Hasher, TensorDigest};
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_store::root::Store;
use packhouse_sys::stat::FsTrust;
use std::path::PathBuf;

/// A model file with what is known of its bytes.
pub(super) struct Source<'m> {
    pub(super) file: &'m ModelFile,
    ledger: Option<SourceLedger>,
}

impl<'m> Source<'m> {
    pub(super) fn new(store: &Store, file: &'m ModelFile) -> Self {
        let trusted = file.fs_trust() == FsTrust::Local;
        let sources = trusted.then(|| store.sources().ok()).flatten();
        let found = sources.and_then(|sources| sources.lookup(file.identity()).ok());
        Self {
            file,
            ledger: found.map(|found| found.ledger),
        }
    }

    /// SHA-256 of a range, from the ledger or read now.
    pub(super) fn sha256(&self, offset: u64, length: u64) -> Result<Digest, ModelError> {
        let range = SourceRange { offset, length };
        let known = self.ledger.as_ref().and_then(|ledger| ledger.tensor(range));
        if let Some(TensorDigest(known)) = known {
            return Ok(known);
        }
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; chunk_bytes(length)];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let bytes = chunk_bytes(end - at);
            self.file.read_exact_at(at, &mut buffer[..bytes])?;
            hasher.update(&buffer[..bytes]);
            at += bytes as u64;
        }
        Ok(hasher.finish())
    }
}

/// The only file of a model; else the first one's path and how many there are.
pub(super) fn one_file(model: &Model) -> Result<&ModelFile, (PathBuf, usize)> {
    match model.files() {
        [file] => Ok(file),
        files => Err((
            files
                .first()
                .map(|file| file.path().to_owned())
                .unwrap_or_default(),
            files.len(),
        )),
    }
}

/// The buffer for a read of `length` bytes: one chunk, or less.
pub(super) fn chunk_bytes(length: u64) -> usize {
    usize::try_from(length).map_or(CHUNK_BYTES, |length| length.min(CHUNK_BYTES))
}

const CHUNK_BYTES: usize = 4 << 20;
