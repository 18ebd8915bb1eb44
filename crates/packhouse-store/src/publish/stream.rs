//! Publishing an object whose digest is known and whose bytes come piece by piece: from a bundle,
//! from another folder. Memory is one chunk, whatever the object's length.
//!
//! Invariants:
//! - the name is only given after all bytes came and hash to it; before, there is nothing to see;
//! - the bytes are hashed once, as they are written.
//!
//! Never: reads past the object's length.

use super::{
    CHUNK_BYTES, Hasher, Linked, PublishError, PublishOptions, Reservation, Store, Temp,
    VerifiedObject, Written, pace,
};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest};
use std::fmt;

/// Why a stream's object was not published; `E` is the stream's own error.
#[derive(Debug)]
pub enum StreamError<E> {
    /// The stream failed.
    Source(E),
    /// The stream's bytes hash to something else.
    Digest {
        /// The digest wanted.
        expected: ObjectDigest,
        /// The digest of the bytes that came.
        actual: Digest,
    },
    /// Publishing failed.
    Publish(PublishError),
}

impl Store {
    /// Publishes an object of a known digest and length from a stream: `fill` fills each buffer it
    /// is given, in order. Errors leave nothing behind; bytes that are there already are verified
    /// and used.
    pub fn publish_stream<E>(
        &self,
        room: &Reservation,
        (expected, length): (ObjectDigest, u64),
        options: PublishOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<VerifiedObject, StreamError<E>> {
        let written = self.write_stream(room, length, fill)?;
        if written.digest != expected {
            return Err(StreamError::Digest {
                expected,
                actual: written.digest.0,
            });
        }
        self.link_written(&written, options)
            .map_err(StreamError::Publish)
            .inspect(|_| written.claim.published())
    }

    fn write_stream<'r, E>(
        &self,
        room: &'r Reservation,
        length: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Written<'r>, StreamError<E>> {
        self.writable()?;
        self.anchor().map_err(PublishError::from)?;
        let claim = room.claim(self, length).map_err(PublishError::from)?;
        let temp = Temp::create(self.fs.as_ref(), self.objects_dir(), 0o444)?;
        let kind = temp.file.fs_stat()?.kind;
        let chunk_bytes = CHUNK_BYTES as u64;
        let mut buffer = vec![0; usize::try_from(length.min(chunk_bytes)).unwrap_or(CHUNK_BYTES)];
        let mut hasher = Hasher::default();
        let mut offset = 0;
        while offset < length {
            let filled_bytes = chunk_bytes.min(length - offset);
            let chunk = &mut buffer[..usize::try_from(filled_bytes).unwrap_or(CHUNK_BYTES)];
            fill(chunk).map_err(StreamError::Source)?;
            temp.file.write_all_at(offset, chunk)?;
            hasher.update(chunk);
            pace(&temp.file, kind, offset, filled_bytes)?;
            offset += filled_bytes;
        }
        Ok(Written {
            temp,
            claim,
            digest: ObjectDigest(hasher.finish()),
            length,
        })
    }

    pub(super) fn link_written(
        &self,
        written: &Written<'_>,
        options: PublishOptions,
    ) -> Result<VerifiedObject, PublishError> {
        written.temp.file.sync()?;
        let (object, folder) = self.link_object(written)?;
        folder.sync()?;
        let object = match object {
            Linked::New => self.reopen_published(written, &folder)?,
            Linked::Found(object) => object,
        };
        if options.drop_cache {
            // Advice only: the object is published whatever comes of it.
            let _ = object.file().drop_cache();
        }
        Ok(object)
    }
}

impl<E> StreamError<E> {
    /// Says whose side the failure is on, where `E`'s is known.
    pub fn blame(&self, of_source: impl Fn(&E) -> Blame) -> Blame {
        match self {
            Self::Source(error) => of_source(error),
            Self::Digest { .. } => Blame::Source,
            Self::Publish(error) => error.blame(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for StreamError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Digest { expected, actual } => {
                write!(f, "bytes said to be object {expected} hash to {actual}")
            }
            Self::Publish(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for StreamError<E> {}

impl<E> From<PublishError> for StreamError<E> {
    fn from(error: PublishError) -> Self {
        Self::Publish(error)
    }
}

impl<E> From<packhouse_sys::fs::FsError> for StreamError<E> {
    fn from(error: packhouse_sys::fs::FsError) -> Self {
        Self::Publish(error.into())
    }
}
