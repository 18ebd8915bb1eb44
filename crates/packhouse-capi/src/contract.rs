//! From the structs of `packhouse.h` to the loader's values, and back.

use crate::edge::{self, Sized32};
use crate::handles::packhouse_set;
use crate::types::{
    PACKHOUSE_DIGEST_BYTES, PACKHOUSE_DIMS_MAX, packhouse_contract, packhouse_count,
    packhouse_entry, packhouse_parameter,
};
use crate::usage::{Failure, Usage};
use packhouse_base::digest::{Digest, Fingerprint, PackKey, TensorDigest};
use packhouse_loader::Count;
use packhouse_loader::set::{Contract, Entry};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

// SAFETY: it is `repr(C)`, begins with `struct_size`, and holds integers and pointers only.
unsafe impl Sized32 for packhouse_contract {
    const NAME: &'static str = "packhouse_contract";
    const FIRST_SIZE: usize = offset_of!(Self, fingerprint) + size_of::<*const u8>();
}

// SAFETY: as for `packhouse_contract`.
unsafe impl Sized32 for packhouse_entry {
    const NAME: &'static str = "packhouse_entry";
    const FIRST_SIZE: usize = offset_of!(Self, fingerprint) + PACKHOUSE_DIGEST_BYTES;
}

/// Takes a contract.
///
/// # Safety
/// The pointer is NULL or leads to a contract of the size that it says, whose pointers are NULL or
/// lead to what `packhouse.h` says.
pub(crate) unsafe fn contract(pointer: *const packhouse_contract) -> Result<Contract, Usage> {
    // SAFETY: the caller's promise, here and below.
    let given = unsafe { edge::take(pointer) }?;
    let dims = usize::try_from(given.dim_count).ok();
    let dims = dims.and_then(|count| given.dims.get(..count));
    if given.reserved != 0 {
        return Err(Usage::UnknownField {
            name: packhouse_contract::NAME,
            offset: offset_of!(packhouse_contract, reserved),
        });
    }
    Ok(Contract {
        // SAFETY: as above.
        layout: unsafe { edge::text(given.layout, "contract.layout") }?.to_owned(),
        layout_version: given.layout_version,
        type_id: given.type_id,
        dims: dims.map(<[u64]>::to_vec).ok_or(Usage::Value {
            argument: "contract.dim_count",
            actual: given.dim_count.into(),
            expected: "0 to 8",
        })?,
        // SAFETY: as above.
        parameters: unsafe { parameters(given.parameters, given.parameter_count) }?,
        // SAFETY: as above.
        source: unsafe { digest(given.source_sha256) }.map(TensorDigest),
        // SAFETY: as above.
        fingerprint: unsafe { digest(given.fingerprint) }.map(Fingerprint),
    })
}

/// # Safety
/// The pointer is NULL or leads to so many parameters, whose names are texts.
unsafe fn parameters(
    pointer: *const packhouse_parameter,
    count: u64,
) -> Result<Option<BTreeMap<String, u64>>, Usage> {
    let argument = "contract.parameters";
    if pointer.is_null() {
        return match count {
            0 => Ok(None),
            _ => Err(Usage::NullPointer { argument }),
        };
    }
    if count > PARAMETERS_MAX {
        return Err(Usage::Value {
            argument: "contract.parameter_count",
            actual: count,
            expected: "0 to 64",
        });
    }
    let mut found = BTreeMap::new();
    for index in 0..count {
        let at = usize::try_from(index).expect("because it is at most 64");
        // SAFETY: the caller's promise: so many are there.
        let parameter = unsafe { pointer.add(at).read() };
        // SAFETY: the caller's promise.
        let name = unsafe { edge::text(parameter.name, "contract.parameters[].name") }?;
        if found.insert(name.to_owned(), parameter.value).is_some() {
            return Err(Usage::Value {
                argument: "contract.parameters",
                actual: index,
                expected: "each name once",
            });
        }
    }
    Ok(Some(found))
}

/// # Safety
/// The pointer is NULL or leads to 32 bytes.
unsafe fn digest(pointer: *const u8) -> Option<Digest> {
    let bytes = pointer.cast::<[u8; PACKHOUSE_DIGEST_BYTES]>();
    // SAFETY: the caller's promise; bytes need no alignment.
    unsafe { bytes.as_ref() }.copied().map(Digest::from_bytes)
}

/// Takes an entry that the caller kept and finds it in the set again.
///
/// # Safety
/// The pointer is NULL or leads to an entry of the size that it says.
pub(crate) unsafe fn entry(
    set: &packhouse_set,
    pointer: *const packhouse_entry,
) -> Result<Entry, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { edge::take(pointer) }?;
    let pack = PackKey(Digest::from_bytes(given.pack_key));
    Ok(set.reader.entry_of(given.index, given.slot, &pack)?)
}

/// Tells an entry.
pub(crate) fn told(
    set: &packhouse_set,
    entry: &Entry,
    struct_size: u32,
) -> Result<packhouse_entry, Failure> {
    let (record, texts) = (entry.record(), set.texts(entry));
    let identity = &record.identity;
    let mut dims = [0; PACKHOUSE_DIMS_MAX];
    let dim_count = identity.dims.len();
    let target = dims.get_mut(..dim_count).ok_or_else(|| {
        let max = PACKHOUSE_DIMS_MAX;
        set.reader.too_many(entry, "dims", dim_count, max)
    })?;
    target.copy_from_slice(&identity.dims);
    Ok(packhouse_entry {
        struct_size,
        type_id: identity.type_id,
        index: entry.index() as u64,
        slot: entry.slot(),
        tensor: texts.tensor.as_ptr(),
        tensor_bytes: texts.tensor.len(),
        layout: texts.layout.as_ptr(),
        layout_version: identity.layout_version,
        parameters: texts.parameters().as_ptr(),
        parameter_count: texts.parameters().len() as u64,
        dims,
        dim_count: u32::try_from(dim_count).unwrap_or(u32::MAX),
        reserved: 0,
        payload_bytes: record.length,
        row_count: record.sample.row_count,
        row_bytes: record.sample.row_bytes,
        unit_rows: record.sample.unit_rows,
        pack_key: *record.key().as_bytes(),
        object: *record.object.as_bytes(),
        source_sha256: *identity.source.as_bytes(),
        fingerprint: *identity.fingerprint.as_bytes(),
    })
}

pub(crate) fn count(count: Count) -> packhouse_count {
    packhouse_count {
        tensors: count.tensors,
        bytes: count.bytes,
    }
}

/// Takes a path; NULL is none. Whether it is absolute is for the store to judge.
///
/// # Safety
/// The pointer is NULL or leads to a NUL-terminated text.
pub(crate) unsafe fn path(pointer: *const c_char) -> Option<PathBuf> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(OsStr::from_bytes(text.to_bytes()).into())
}

/// More parameters than any layout has.
const PARAMETERS_MAX: u64 = 64;
