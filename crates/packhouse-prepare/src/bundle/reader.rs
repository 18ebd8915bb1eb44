//! Reading a bundle's members from a stream, each one known before it is read.
//!
//! Invariants:
//! - a header is compared with the only one that the member may have;
//! - no more is allocated than has been read, or than one chunk;
//! - the stream is read to its end, and must end there.

use super::contents::{CONTENTS_BYTES_MAX, CONTENTS_PATH, Contents, Member};
use super::error::BundleError;
use super::member::{BLOCK_BYTES, Kind, describe, header, octal_length, padding};
use std::io::{self, Read};

/// A bundle's stream.
pub(super) struct Reader<'r> {
    source: &'r mut dyn Read,
    offset: u64,
}

impl<'r> Reader<'r> {
    pub(super) fn new(source: &'r mut dyn Read) -> Self {
        Self { source, offset: 0 }
    }

    /// Reads the first member.
    pub(super) fn contents(&mut self) -> Result<Contents, BundleError> {
        let mut block = [0; BLOCK_BYTES];
        self.exact(&mut block, "its first header")?;
        let no_bundle = || BundleError::NoBundle {
            actual: describe(&block),
        };
        let length = octal_length(&block).ok_or_else(no_bundle)?;
        if block != header(CONTENTS_PATH, Kind::File(length)) {
            return Err(no_bundle());
        }
        if length > CONTENTS_BYTES_MAX {
            return Err(BundleError::ContentsTooLong {
                limit: CONTENTS_BYTES_MAX,
                actual: length,
            });
        }
        let bytes = self.content(CONTENTS_PATH, length)?;
        Ok(Contents::parse(&bytes)?)
    }

    /// Reads the header of a member, which must be next.
    pub(super) fn header(&mut self, member: &Member) -> Result<(), BundleError> {
        let offset = self.offset;
        let mut block = [0; BLOCK_BYTES];
        self.exact(&mut block, &member.path)?;
        let expected = header(&member.path, member.kind);
        if block == expected {
            return Ok(());
        }
        Err(BundleError::Member {
            offset,
            expected: describe(&expected),
            actual: describe(&block),
        })
    }

    /// Reads a small member's content.
    pub(super) fn content(&mut self, path: &str, length: u64) -> Result<Vec<u8>, BundleError> {
        let mut bytes = Vec::new();
        let offset = self.offset;
        let read = (&mut *self.source).take(length).read_to_end(&mut bytes);
        read.map_err(|source| BundleError::Read { offset, source })?;
        self.offset += bytes.len() as u64;
        if bytes.len() as u64 != length {
            return Err(self.truncated(path));
        }
        self.padding(path, length)?;
        Ok(bytes)
    }

    /// Reads the next part of a content.
    pub(super) fn part(&mut self, path: &str, target: &mut [u8]) -> Result<(), BundleError> {
        self.exact(target, path)
    }

    /// Reads the zeros after a content.
    pub(super) fn padding(&mut self, path: &str, length: u64) -> Result<(), BundleError> {
        let offset = self.offset;
        let mut block = [0; BLOCK_BYTES];
        let zeros = &mut block[..padding(length)];
        self.exact(zeros, path)?;
        if zeros.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Err(BundleError::Padding {
            offset,
            member: path.to_owned(),
        })
    }

    /// Reads the end: two blocks of zeros, and nothing.
    pub(super) fn end(mut self) -> Result<(), BundleError> {
        let mut blocks = [0; 2 * BLOCK_BYTES];
        let offset = self.offset;
        self.exact(&mut blocks, "the end of the archive")?;
        let (first, _) = blocks
            .split_first_chunk::<BLOCK_BYTES>()
            .expect("because there are two");
        if blocks.iter().any(|byte| *byte != 0) {
            return Err(BundleError::Member {
                offset,
                expected: "the end of the archive".to_owned(),
                actual: match describe(first).as_str() {
                    "the end of the archive" => "one block of zeros".to_owned(),
                    other => other.to_owned(),
                },
            });
        }
        let offset = self.offset;
        let mut one = [0];
        loop {
            return match self.source.read(&mut one) {
                Ok(0) => Ok(()),
                Ok(_) => Err(BundleError::Trailing { offset }),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => Err(BundleError::Read { offset, source }),
            };
        }
    }

    fn exact(&mut self, target: &mut [u8], member: &str) -> Result<(), BundleError> {
        let mut filled = 0;
        while filled < target.len() {
            match self.source.read(&mut target[filled..]) {
                Ok(0) => return Err(self.truncated(member)),
                Ok(read) => {
                    filled += read;
                    self.offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(BundleError::Read {
                        offset: self.offset,
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    fn truncated(&self, member: &str) -> BundleError {
        BundleError::Truncated {
            offset: self.offset,
            member: member.to_owned(),
        }
    }
}
