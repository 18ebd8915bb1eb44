//! Layouts and their packers: what an engine falls back on when a pack is refused.

use crate::contract::contract;
use crate::edge::{self, Sized32, guard, place};
use crate::types::*;
use crate::usage::{Failure, Usage};
use packhouse_layout::{Layout, Parameter};
use packhouse_loader::set::Packing;
use std::ffi::c_void;
use std::mem::offset_of;
use std::num::NonZeroUsize;

/// How many layouts this library packs.
#[unsafe(no_mangle)]
pub extern "C" fn packhouse_layout_count() -> u32 {
    Layout::ALL.len() as u32
}

/// Tells the layout at an index, 0 to `packhouse_layout_count()`.
///
/// # Safety
/// As `packhouse.h` says: pointers are NULL or lead to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_layout_at(
    index: u32,
    summary: *mut packhouse_layout_summary,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let struct_size = unsafe { edge::judge(summary) }?;
        let layout = layout_at(index)?;
        let told = packhouse_layout_summary {
            struct_size,
            is_invertible: layout.is_invertible().into(),
            version: layout.version(),
            parameter_count: layout.parameters().len() as u64,
            id: edge::chars_of(layout.id()),
        };
        // SAFETY: as above.
        unsafe { edge::fill(summary, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells a parameter of the layout at an index.
///
/// # Safety
/// As for `packhouse_layout_at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_layout_parameter_at(
    layout_index: u32,
    parameter_index: u64,
    parameter: *mut packhouse_layout_parameter,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let struct_size = unsafe { edge::judge(parameter) }?;
        let known = layout_at(layout_index)?.parameters();
        let at = usize::try_from(parameter_index).ok();
        let found = at.and_then(|at| known.get(at)).ok_or(Usage::Index {
            index: parameter_index,
            count: known.len() as u64,
        })?;
        // SAFETY: as above.
        unsafe { edge::fill(parameter, told(found, struct_size)) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells the lengths of a contract's source and payload, if this library packs what the contract
/// says. Either place may be NULL.
///
/// # Safety
/// As for `packhouse_layout_at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_lengths(
    contract: *const packhouse_contract,
    source_bytes: *mut u64,
    payload_bytes: *mut u64,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let packing = unsafe { packing(contract) }?;
        let admitted = packing.admitted();
        let lengths = [
            (source_bytes, admitted.source_bytes()),
            (payload_bytes, admitted.payload_bytes()),
        ];
        for (target, bytes) in lengths {
            if !target.is_null() {
                // SAFETY: as above.
                unsafe { target.write(bytes) };
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Writes the 32 bytes of the fingerprint of this library's packer for a contract: what packs of
/// the layout have in their records when it made them. Which fingerprint the contract has makes no
/// difference here.
///
/// # Safety
/// As for `packhouse_layout_at`; 32 bytes are at `fingerprint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_fingerprint(
    contract: *const packhouse_contract,
    fingerprint: *mut u8,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        let target = place(fingerprint, "fingerprint")?;
        // SAFETY: the caller's promise, here and below.
        let contract = unsafe { crate::contract::contract(contract) }?;
        let made = Packing::of_layout(&contract)?.fingerprint()?;
        // SAFETY: as above.
        unsafe {
            target
                .cast::<[u8; PACKHOUSE_DIGEST_BYTES]>()
                .write(*made.as_bytes());
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Packs one tensor on up to `thread_count` threads, the calling one among them, but on no more
/// than the process has CPUs; 0 is one. Writes every byte of `payload`, whose length must be the
/// one of `packhouse_lengths`. A source that is not the contract's `source_sha256` is refused.
///
/// # Safety
/// As for `packhouse_layout_at`; nobody changes the buffers during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_pack(
    contract: *const packhouse_contract,
    source: *const c_void,
    source_bytes: u64,
    payload: *mut c_void,
    payload_bytes: u64,
    thread_count: u32,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let packing = unsafe { packing(contract) }?;
        let admitted = packing.admitted();
        // SAFETY: as above.
        let (source, payload) = unsafe {
            buffers(
                (SOURCE, source, source_bytes, admitted.source_bytes()),
                (PAYLOAD, payload, payload_bytes, admitted.payload_bytes()),
            )
        }?;
        let threads = usize::try_from(thread_count)
            .ok()
            .and_then(NonZeroUsize::new);
        packing.pack(source, payload, threads.unwrap_or(NonZeroUsize::MIN))?;
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Gives the source of a payload back. Writes every byte of `source`, whose length must be the one
/// of `packhouse_lengths`. What turns out not to be the contract's `source_sha256` is refused, and
/// `source` is set to zero. Of a layout that is not invertible nothing is unpacked or written.
///
/// # Safety
/// As for `packhouse_pack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_unpack(
    contract: *const packhouse_contract,
    payload: *const c_void,
    payload_bytes: u64,
    source: *mut c_void,
    source_bytes: u64,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let packing = unsafe { packing(contract) }?;
        let admitted = packing.admitted();
        // SAFETY: as above.
        let (payload, source) = unsafe {
            buffers(
                (PAYLOAD, payload, payload_bytes, admitted.payload_bytes()),
                (SOURCE, source, source_bytes, admitted.source_bytes()),
            )
        }?;
        packing.unpack(payload, source)?;
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

fn layout_at(index: u32) -> Result<Layout, Usage> {
    let found = Layout::ALL.get(index as usize).copied();
    found.ok_or(Usage::Index {
        index: index.into(),
        count: Layout::ALL.len() as u64,
    })
}

fn told(parameter: &Parameter, struct_size: u32) -> packhouse_layout_parameter {
    packhouse_layout_parameter {
        struct_size,
        has_default: parameter.default.is_some().into(),
        default_value: parameter.default.unwrap_or(0),
        min: parameter.min,
        max: parameter.max,
        name: edge::chars_of(parameter.name),
    }
}

/// # Safety
/// The pointer is NULL or leads to a contract of the size that it says.
unsafe fn packing(pointer: *const packhouse_contract) -> Result<Packing, Failure> {
    // SAFETY: the caller's promise.
    let contract = unsafe { contract(pointer) }?;
    Ok(Packing::of_contract(&contract)?)
}

/// What a buffer and its length are called.
type Names = [&'static str; 2];

const SOURCE: Names = ["source", "source_bytes"];
const PAYLOAD: Names = ["payload", "payload_bytes"];

/// Takes a buffer to read and one to write, each with its names, its length and the one it must
/// have.
///
/// # Safety
/// The pointers are NULL or lead to as many bytes as their lengths say, during `'a`, which nobody
/// else changes.
unsafe fn buffers<'a>(
    (from_names, from, from_bytes, from_expected): (Names, *const c_void, u64, u64),
    (to_names, to, to_bytes, to_expected): (Names, *mut c_void, u64, u64),
) -> Result<(&'a [u8], &'a mut [u8]), Usage> {
    let from_length = length(from_names, from, from_bytes, from_expected)?;
    let to_length = length(to_names, to.cast_const(), to_bytes, to_expected)?;
    let (start, end) = (from.addr(), from.addr().saturating_add(from_length));
    if to.addr() < end && start < to.addr().saturating_add(to_length) {
        let [first, second] = [from_names[0], to_names[0]];
        return Err(Usage::Overlap { first, second });
    }
    // SAFETY: the caller's promise; neither is NULL and they do not overlap.
    unsafe {
        Ok((
            std::slice::from_raw_parts(from.cast(), from_length),
            std::slice::from_raw_parts_mut(to.cast(), to_length),
        ))
    }
}

fn length(
    [argument, bytes]: Names,
    pointer: *const c_void,
    actual: u64,
    expected: u64,
) -> Result<usize, Usage> {
    if pointer.is_null() {
        return Err(Usage::NullPointer { argument });
    }
    if actual != expected {
        return Err(Usage::Buffer {
            argument,
            expected,
            actual,
        });
    }
    // No object of C is longer, nor is any slice of Rust.
    let length = isize::try_from(actual).map_err(|_| Usage::Value {
        argument: bytes,
        actual,
        expected: "at most 9223372036854775807",
    })?;
    Ok(length.unsigned_abs())
}

// SAFETY: it is `repr(C)`, begins with `struct_size`, and holds integers only.
unsafe impl Sized32 for packhouse_layout_summary {
    const NAME: &'static str = "packhouse_layout_summary";
    const FIRST_SIZE: usize = offset_of!(Self, id) + PACKHOUSE_NAME_BYTES;
}

// SAFETY: as for `packhouse_layout_summary`.
unsafe impl Sized32 for packhouse_layout_parameter {
    const NAME: &'static str = "packhouse_layout_parameter";
    const FIRST_SIZE: usize = offset_of!(Self, name) + PACKHOUSE_NAME_BYTES;
}
