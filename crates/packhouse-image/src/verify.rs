//! Judging an image's file by itself, without the head that it was made of.
//!
//! Invariants:
//! - a file's header must name the file that it is in, and give its length;
//! - the bytes that are hashed are read once, and the length is asked again afterwards.
//!
//! Never: says that an image is the right one. That takes the weights held now: a serve's sample.

use crate::folder::{Folder, ImageFile};
use crate::header::{HEADER_BYTES, Header};
use crate::key::ImageName;
use crate::read::hash_payload;
use crate::refusal::{Refusal, RefusalWhy};
use packhouse_base::Blame;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// An image whose every byte was hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedImage {
    /// What it says that it is.
    pub header: Header,
    /// Its length.
    pub bytes: u64,
}

/// Why a file is no intact image of its name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImageFault {
    /// Its file, header, length or payload is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is another image by its header.
    #[error("image {} is {expected} by its header", .file.display())]
    Name {
        /// The file.
        file: PathBuf,
        /// The name that follows from the header.
        expected: String,
    },
}

impl ImageFault {
    /// The file.
    pub fn file(&self) -> &PathBuf {
        match self {
            Self::Refused(refusal) => &refusal.file,
            Self::Name { file, .. } => file,
        }
    }

    /// Whether the file is wrong; otherwise the system would not let it be read.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Refused(refusal) => match &refusal.why {
                RefusalWhy::Unreadable(error) => error.blame() == Blame::Store,
                RefusalWhy::NotRegular { .. }
                | RefusalWhy::Owner { .. }
                | RefusalWhy::Writable { .. }
                | RefusalWhy::Length { .. }
                | RefusalWhy::Header(_)
                | RefusalWhy::Differs(_)
                | RefusalWhy::PayloadHash { .. }
                | RefusalWhy::Changed { .. }
                | RefusalWhy::Scale { .. }
                | RefusalWhy::Code { .. } => true,
            },
            Self::Name { .. } => true,
        }
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused(refusal) => refusal.blame(),
            Self::Name { .. } => Blame::Store,
        }
    }
}

/// Reads and hashes all of an image's file. `None`: there is none.
///
/// # Errors
/// The first thing that is wrong: the file, its header, its name, its length, its payload.
pub fn verify_image(
    folder: &Folder,
    name: &ImageName,
    threads: NonZeroUsize,
) -> Result<Option<VerifiedImage>, ImageFault> {
    let Some((header, image)) = judge_header(folder, name)? else {
        return Ok(None);
    };
    let refuse = |why| Refusal {
        file: image.file.path().to_owned(),
        why,
    };
    let hashed = hash_payload(
        &image.file,
        HEADER_BYTES as u64,
        header.payload_bytes(),
        threads,
    );
    let after = image.file.stat().map(|stat| stat.size);
    let after = after.map_err(|error| refuse(RefusalWhy::Unreadable(error)))?;
    let before = image.bytes;
    if after != before {
        return Err(refuse(RefusalWhy::Changed { before, after }).into());
    }
    let actual = hashed.map_err(|error| refuse(RefusalWhy::Unreadable(error)))?;
    let expected = *header.payload_hash();
    if actual != expected {
        return Err(refuse(RefusalWhy::PayloadHash { expected, actual }).into());
    }
    Ok(Some(VerifiedImage {
        header,
        bytes: before,
    }))
}

/// Reads an image's header and compares name and length with it. `None`: there is no such file.
pub(crate) fn judge_header(
    folder: &Folder,
    name: &ImageName,
) -> Result<Option<(Header, ImageFile)>, ImageFault> {
    let Some(image) = folder.open_image(name)? else {
        return Ok(None);
    };
    let refuse = |why| Refusal {
        file: image.file.path().to_owned(),
        why,
    };
    let mut bytes = [0; HEADER_BYTES];
    let read = image.file.read_full_at(0, &mut bytes);
    let read = read.map_err(|error| refuse(RefusalWhy::Unreadable(error)))?;
    if read < HEADER_BYTES {
        return Err(refuse(RefusalWhy::Length {
            expected: HEADER_BYTES as u64,
            actual: read as u64,
        })
        .into());
    }
    let header = Header::parse(&bytes).map_err(|error| refuse(RefusalWhy::Header(error)))?;
    let expected = ImageName::new(&header.key(), header.tile());
    if expected.as_ref() != Some(name) {
        return Err(ImageFault::Name {
            file: image.file.path().to_owned(),
            expected: expected.map_or_else(String::new, |name| name.to_string()),
        });
    }
    let (expected, actual) = (header.file_bytes(), image.bytes);
    if expected != actual {
        return Err(refuse(RefusalWhy::Length { expected, actual }).into());
    }
    Ok(Some((header, image)))
}
