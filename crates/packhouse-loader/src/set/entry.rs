//! One tensor of an open set, and its payload in memory.

use crate::set::packing::{Asked, admit};
use crate::set::refusal::{Refusal, SlotName};
use packhouse_base::digest::{ObjectDigest, SetKey};
use packhouse_store::object::{HowVerified, VerifiedObject};
use packhouse_store::record::PackRecord;
use packhouse_sys::read_map::ReadMap;
use std::io;
use std::sync::Arc;

/// One tensor of an open set whose record was read, and proved to be the one that the set names.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) index: usize,
    pub(crate) set: SetKey,
    pub(crate) slot: u64,
    pub(crate) tensor: String,
    pub(crate) record: Arc<PackRecord>,
}

/// Maps what is verified. The crate that may hold unsafe code says how.
pub trait Mapper: Send + Sync {
    /// Maps a verified object of a local file system, whole and read-only. Errors as mmap does.
    fn map(&self, object: &VerifiedObject) -> io::Result<ReadMap>;
}

/// A payload in memory. It stays while anybody holds it, whether or not the set is still open.
#[derive(Debug)]
pub struct Mapping {
    pub(crate) bytes: ReadMap,
    pub(crate) object: ObjectDigest,
    pub(crate) how: HowVerified,
    pub(crate) held: Held,
}

/// What holds a payload's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The object's own pages, shared with every process that maps it.
    Mapped,
    /// Private memory, hashed while it was read: the file system is not one that is mapped.
    Copied,
}

impl Entry {
    /// Its slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// Its tensor's name.
    pub fn tensor(&self) -> &str {
        &self.tensor
    }

    /// Its place in the set's manifest.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The pack's record.
    pub fn record(&self) -> &PackRecord {
        &self.record
    }

    pub(crate) fn name(&self) -> SlotName {
        SlotName {
            slot: self.slot,
            tensor: self.tensor.clone(),
        }
    }
}

impl Mapping {
    /// The object whose bytes these are.
    pub fn object(&self) -> ObjectDigest {
        self.object
    }

    /// How the bytes were proved.
    pub fn how(&self) -> HowVerified {
        self.how
    }

    /// What holds them.
    pub fn held(&self) -> Held {
        self.held
    }
}

impl std::ops::Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether the payload is as long as its layout says, where the layout is known here: a kernel
/// reads that far.
pub(crate) fn fits_its_layout(
    record: &PackRecord,
    name: impl Fn() -> SlotName,
) -> Result<(), Refusal> {
    let admitted = match admit(&name().to_string(), &Asked::by(&record.identity)) {
        Ok(admitted) => admitted,
        // An engine may know a layout that this library does not pack.
        Err(Refusal::LayoutUnknown { .. }) => return Ok(()),
        Err(refusal) => return Err(refusal),
    };
    if admitted.payload_bytes() == record.length {
        return Ok(());
    }
    Err(Refusal::PackLength {
        name: name(),
        layout: admitted.layout().id(),
        expected: admitted.payload_bytes(),
        actual: record.length,
    })
}
