//! The model file of a set: its bytes' digests, from the source ledger or read now.

use crate::model::{Model, ModelError, ModelFile};
use crate::prepare::known;
use packhouse_base::digest::{Digest, Hasher, TensorDigest};
use packhouse_store::ledger::SourceRange;
use packhouse_store::root::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A model file with what is known of its bytes.
pub(super) struct Source<'m> {
    pub(super) file: &'m ModelFile,
    known: BTreeMap<SourceRange, TensorDigest>,
}

impl<'m> Source<'m> {
    /// The file of a model that has no other.
    pub(super) fn new(store: &Store, model: &Model, file: &'m ModelFile) -> Self {
        let directory = model.container().shards().first();
        let known = directory.map(|directory| known(store, file, directory.digest()));
        Self {
            file,
            known: known.unwrap_or_default(),
        }
    }

    /// SHA-256 of a range, from the ledger or read now.
    pub(super) fn sha256(&self, offset: u64, length: u64) -> Result<Digest, ModelError> {
        let range = SourceRange { offset, length };
        if let Some(TensorDigest(known)) = self.known.get(&range) {
            return Ok(*known);
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
