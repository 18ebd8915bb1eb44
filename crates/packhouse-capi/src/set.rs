//! Sets and mappings: open, look up, map, sample, count, release.

use crate::contract::{count, path, told};
use crate::edge::{self, Sized32, guard, place, shield};
use crate::handles::{self, packhouse_mapping, packhouse_set};
use crate::types::*;
use crate::usage::{OK, Usage};
use packhouse_loader::Trust;
use packhouse_loader::set::{Held, Mapper, OpenOptions, SampleChoice, SetName, SetReader};
use packhouse_store::object::{HowVerified, VerifiedObject};
use packhouse_sys::read_map::ReadMap;
use std::ffi::{c_char, c_void};
use std::io;
use std::mem::offset_of;
use std::sync::Arc;

/// Maps objects of the store and of stages.
struct StoreMapper;

impl Mapper for StoreMapper {
    fn map(&self, object: &VerifiedObject) -> io::Result<ReadMap> {
        let file = object.file().as_fd().ok_or(io::ErrorKind::Unsupported)?;
        let bytes = usize::try_from(object.length()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the object was verified on this very descriptor, and neither the store nor a
        // stage writes or truncates what it published; who does so from outside ends the process
        // by SIGBUS, which `packhouse.h` says.
        unsafe { ReadMap::of_file(file, bytes) }
    }
}

/// Opens a set. The stage is searched first, where one is given, then the store. Nothing below the
/// store's root is written; receipts, and that the set was used, are noted in the state folder. On
/// success `*set` is the caller's: `packhouse_set_release` gives it back.
///
/// # Safety
/// As `packhouse.h` says: pointers are NULL or lead to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_open(
    options: *const packhouse_open_options,
    set: *mut *mut packhouse_set,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    // SAFETY: the caller's promise.
    unsafe { edge::clear(set) };
    let body = || {
        let set = place(set, "set")?;
        // SAFETY: the caller's promise.
        let options = unsafe { open_options(options) }?;
        let reader = SetReader::open(&options, Arc::new(StoreMapper))?;
        let handle = handles::give(Arc::new(packhouse_set::new(reader)));
        // SAFETY: the caller's promise.
        unsafe { set.write(handle) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard(refusal, body) }
}

/// Takes one more count of a set; each is given back by `packhouse_set_release`. NULL is fine.
///
/// # Safety
/// As for `packhouse_set_open`; the caller owns a count of the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_retain(set: *mut packhouse_set) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::retain(set) });
}

/// Gives one count of a set back; the last one closes it. Mappings of it stay. NULL is fine.
///
/// # Safety
/// As for `packhouse_set_retain`; the caller gives that count up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_release(set: *mut packhouse_set) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::release(set) });
}

/// Tells what a set is. The plan's name belongs to the set.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_summary(
    set: *const packhouse_set,
    summary: *mut packhouse_summary,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(summary)?) };
        let told = packhouse_summary {
            struct_size,
            is_staged: set.reader.stage().is_some().into(),
            entry_count: set.reader.manifest().entries().len() as u64,
            plan: set.plan.as_ptr(),
            key: *set.reader.key().as_bytes(),
        };
        // SAFETY: as above.
        unsafe { edge::fill(summary, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Reads the entry at an index, 0 to `entry_count`, whatever its contract: for engines that look at
/// a whole set before they choose. Its texts belong to the set.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_entry_at(
    set: *const packhouse_set,
    index: u64,
    entry: *mut packhouse_entry,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(entry)?) };
        let at = usize::try_from(index).ok();
        let found = at.and_then(|at| set.reader.entry_at(at));
        let found = found.ok_or(Usage::Index {
            index,
            count: set.reader.manifest().entries().len() as u64,
        })?;
        // SAFETY: as above.
        unsafe { edge::fill(entry, told(set, &found?, struct_size)?) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Finds the pack of a slot. It must be exactly what the contract says.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_lookup_slot(
    set: *const packhouse_set,
    slot: u64,
    contract: *const packhouse_contract,
    entry: *mut packhouse_entry,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(entry)?) };
        // SAFETY: as above.
        let contract = unsafe { crate::contract::contract(contract) }?;
        let found = set.reader.lookup_slot(slot, &contract)?;
        // SAFETY: as above.
        unsafe { edge::fill(entry, told(set, &found, struct_size)?) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Finds the pack of a tensor by its name. It must be exactly what the contract says; where a plan
/// has several packs of one tensor, exactly one of them must be.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_lookup_tensor(
    set: *const packhouse_set,
    tensor: *const c_char,
    contract: *const packhouse_contract,
    entry: *mut packhouse_entry,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(entry)?) };
        // SAFETY: as above.
        let tensor = unsafe { edge::text(tensor, "tensor") }?;
        // SAFETY: as above.
        let contract = unsafe { crate::contract::contract(contract) }?;
        let found = set.reader.lookup_tensor(tensor, &contract)?;
        // SAFETY: as above.
        unsafe { edge::fill(entry, told(set, &found, struct_size)?) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Puts an entry's payload into memory: proves it as the set's trust says, then maps it. On success
/// `*mapping` is the caller's: `packhouse_mapping_release` gives it back. It outlives the set.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_map(
    set: *const packhouse_set,
    entry: *const packhouse_entry,
    mapping: *mut *mut packhouse_mapping,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    // SAFETY: the caller's promise.
    unsafe { edge::clear(mapping) };
    let body = || {
        let mapping = place(mapping, "mapping")?;
        // SAFETY: the caller's promise, here and below.
        let set = unsafe { opened(set) }?;
        // SAFETY: as above.
        let found = unsafe { crate::contract::entry(set, entry) }?;
        let mapped = set.reader.map(&found)?;
        let handle = handles::give(Arc::new(packhouse_mapping { mapping: mapped }));
        // SAFETY: as above.
        unsafe { mapping.write(handle) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Packs groups of live weights again and compares them with the payload, bit for bit. `live` is
/// called on this thread, with `context`; `options` may be NULL, and so may `report`.
///
/// # Safety
/// As for `packhouse_set_retain`; `live` does what its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_sample(
    set: *const packhouse_set,
    entry: *const packhouse_entry,
    live: packhouse_live_weights,
    context: *mut c_void,
    options: *const packhouse_sample_options,
    report: *mut packhouse_sample_report,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        let live = live.ok_or(Usage::NullPointer { argument: "live" })?;
        // SAFETY: the caller's promise, here and below.
        let (set, choice) = unsafe { (opened(set)?, sample_choice(options)?) };
        let report_size = match report.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { edge::judge(report) }?),
        };
        // SAFETY: as above.
        let found = unsafe { crate::contract::entry(set, entry) }?;
        let mut give = |offset: u64, target: &mut [u8]| {
            let bytes = target.len() as u64;
            // SAFETY: the caller's promise; the target is that long.
            unsafe { live(context, offset, target.as_mut_ptr().cast(), bytes) == 0 }
        };
        let compared = set.reader.sample(&found, &mut give, choice)?;
        if let Some(struct_size) = report_size {
            let told = packhouse_sample_report {
                struct_size,
                reserved: 0,
                compared_groups: compared.compared_groups,
                group_count: compared.group_count,
                source_bytes: compared.source_bytes,
                payload_bytes: compared.payload_bytes,
            };
            // SAFETY: as above.
            unsafe { edge::fill(report, told) };
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells where the set's tensors went since it was opened.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_counters(
    set: *const packhouse_set,
    counters: *mut packhouse_counters,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(counters)?) };
        let counted = set.reader.counters();
        let told = packhouse_counters {
            struct_size,
            refused_count: u32::try_from(counted.refused.len()).unwrap_or(u32::MAX),
            mapped: count(counted.mapped),
            copied: count(counted.copied),
            deep: count(counted.deep),
            receipt: count(counted.receipt),
            reverified: count(counted.reverified),
            sample: count(counted.sample),
            sampled: count(counted.sampled),
            sampled_groups: counted.sampled_groups,
        };
        // SAFETY: as above.
        unsafe { edge::fill(counters, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells the first reason whose number is above `after`, and what it refused; `status` is
/// `PACKHOUSE_OK` in it when there is none. Begin with `PACKHOUSE_OK` and go on with each status
/// told: whatever other threads do meanwhile, no reason is told twice, and none that was there at
/// the beginning is left out.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_refused_after(
    set: *const packhouse_set,
    after: packhouse_status,
    refused: *mut packhouse_refused,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (set, struct_size) = unsafe { (opened(set)?, edge::judge(refused)?) };
        let counted = set.reader.counters().refused;
        // They rise by their codes' numbers.
        let next = counted.iter().find(|next| next.code.number() > after);
        let told = packhouse_refused {
            struct_size,
            status: next.map_or(OK, |next| next.code.number()),
            count: next.map_or_else(packhouse_count::default, |next| count(next.count)),
        };
        // SAFETY: as above.
        unsafe { edge::fill(refused, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells the last refusal of any thread since the set was opened; `status` is `PACKHOUSE_OK` in it
/// when there was none.
///
/// # Safety
/// As for `packhouse_set_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_set_last_refusal(
    set: *const packhouse_set,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        unsafe { edge::judge(refusal) }?;
        // SAFETY: as above.
        let last = unsafe { opened(set) }?.reader.last_refusal();
        let status = last.as_ref().map_or(OK, |last| last.code().number());
        let text = last.map(|last| last.to_string()).unwrap_or_default();
        // SAFETY: as above.
        unsafe { edge::tell(refusal, status, &text) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Takes one more count of a mapping. NULL is fine.
///
/// # Safety
/// As for `packhouse_set_open`; the caller owns a count of the mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_mapping_retain(mapping: *mut packhouse_mapping) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::retain(mapping) });
}

/// Gives one count of a mapping back; after the last one its bytes are gone. NULL is fine.
///
/// # Safety
/// As for `packhouse_mapping_retain`; the caller gives that count up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_mapping_release(mapping: *mut packhouse_mapping) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::release(mapping) });
}

/// Tells where a mapping's bytes are. They belong to the mapping.
///
/// # Safety
/// As for `packhouse_mapping_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_mapping_view(
    mapping: *const packhouse_mapping,
    view: *mut packhouse_view,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let struct_size = unsafe { edge::judge(view) }?;
        let argument = "mapping";
        // SAFETY: as above.
        let mapping = unsafe { handles::borrow(mapping) }.ok_or(Usage::NullPointer { argument })?;
        let mapping = &mapping.mapping;
        let told = packhouse_view {
            struct_size,
            held: match mapping.held() {
                Held::Mapped => PACKHOUSE_HELD_MAPPED,
                Held::Copied => PACKHOUSE_HELD_COPIED,
            },
            proof: match mapping.how() {
                HowVerified::Deep | HowVerified::Published => PACKHOUSE_PROOF_DEEP,
                HowVerified::Receipt => PACKHOUSE_PROOF_RECEIPT,
                HowVerified::Reverified => PACKHOUSE_PROOF_REVERIFIED,
                HowVerified::Sample => PACKHOUSE_PROOF_SAMPLE,
            },
            reserved: 0,
            payload: mapping.as_ptr().cast(),
            payload_bytes: mapping.len() as u64,
            object: *mapping.object().as_bytes(),
        };
        // SAFETY: as above.
        unsafe { edge::fill(view, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// # Safety
/// The pointer is NULL or a set that the caller owns a count of during `'a`.
unsafe fn opened<'a>(set: *const packhouse_set) -> Result<&'a packhouse_set, Usage> {
    // SAFETY: the caller's promise.
    unsafe { handles::borrow(set) }.ok_or(Usage::NullPointer { argument: "set" })
}

/// # Safety
/// The pointer is NULL or leads to options of the size that they say.
unsafe fn open_options(pointer: *const packhouse_open_options) -> Result<OpenOptions, Usage> {
    // SAFETY: the caller's promise, here and below.
    let given = unsafe { edge::take(pointer) }?;
    let trust = match given.trust {
        PACKHOUSE_TRUST_SAMPLE => Trust::Sample,
        PACKHOUSE_TRUST_RECEIPT => Trust::Receipt,
        PACKHOUSE_TRUST_DEEP => Trust::Deep,
        other => {
            return Err(Usage::Value {
                argument: "options.trust",
                actual: other.into(),
                expected: "PACKHOUSE_TRUST_SAMPLE, _RECEIPT or _DEEP",
            });
        }
    };
    let name = packhouse_open_options::NAME;
    let offset = match (given.flags & !PACKHOUSE_OPEN_STRICT, given.reserved) {
        (0, 0) => None,
        (0, _) => Some(offset_of!(packhouse_open_options, reserved)),
        _ => Some(offset_of!(packhouse_open_options, flags)),
    };
    if let Some(offset) = offset {
        return Err(Usage::UnknownField { name, offset });
    }
    // SAFETY: as above.
    let set = unsafe { edge::optional_text(given.set, "options.set") }?;
    // SAFETY: as above.
    let stage_root = unsafe { path(given.stage) };
    Ok(OpenOptions {
        // SAFETY: as above.
        trusted_uids: unsafe { trusted_uids(&given) }?,
        // SAFETY: as above.
        root: needed(unsafe { path(given.store) }, "options.store")?,
        // SAFETY: as above.
        state: needed(unsafe { path(given.state) }, "options.state")?,
        stage_root,
        set: set.map_or(SetName::Only, SetName::parse),
        trust,
        strict: given.flags & PACKHOUSE_OPEN_STRICT != 0,
    })
}

/// # Safety
/// The pointer in the options is NULL or leads to so many numbers.
unsafe fn trusted_uids(given: &packhouse_open_options) -> Result<Vec<u32>, Usage> {
    let (pointer, count) = (given.trusted_uids, given.trusted_uid_count);
    if count > TRUSTED_UIDS_MAX {
        return Err(Usage::Value {
            argument: "options.trusted_uid_count",
            actual: count,
            expected: "0 to 64",
        });
    }
    if pointer.is_null() && count > 0 {
        let argument = "options.trusted_uids";
        return Err(Usage::NullPointer { argument });
    }
    let count = usize::try_from(count).expect("because it is at most 64");
    // SAFETY: the caller's promise: so many are there.
    Ok((0..count)
        .map(|at| unsafe { pointer.add(at).read() })
        .collect())
}

/// More owners than any store is shared by.
const TRUSTED_UIDS_MAX: u64 = 64;

fn needed<T>(value: Option<T>, argument: &'static str) -> Result<T, Usage> {
    value.ok_or(Usage::NullPointer { argument })
}

/// # Safety
/// The pointer is NULL or leads to options of the size that they say.
unsafe fn sample_choice(pointer: *const packhouse_sample_options) -> Result<SampleChoice, Usage> {
    if pointer.is_null() {
        return Ok(SampleChoice {
            group_count: None,
            seed: 0,
        });
    }
    // SAFETY: the caller's promise.
    let given = unsafe { edge::take(pointer) }?;
    if given.reserved != 0 {
        return Err(Usage::UnknownField {
            name: packhouse_sample_options::NAME,
            offset: offset_of!(packhouse_sample_options, reserved),
        });
    }
    Ok(SampleChoice {
        group_count: (given.group_count != 0).then_some(given.group_count),
        seed: given.seed,
    })
}

/// Says of a struct how it is called and how long its first version is.
macro_rules! sized {
    ($($name:ident up to $last:ident: $last_type:ty;)*) => {
        $(
            // SAFETY: it is `repr(C)`, begins with `struct_size`, and holds integers and pointers.
            unsafe impl Sized32 for $name {
                const NAME: &'static str = stringify!($name);
                const FIRST_SIZE: usize = offset_of!(Self, $last) + size_of::<$last_type>();
            }
        )*
    };
}

sized! {
    packhouse_open_options up to trusted_uid_count: u64;
    packhouse_summary up to key: [u8; PACKHOUSE_DIGEST_BYTES];
    packhouse_view up to object: [u8; PACKHOUSE_DIGEST_BYTES];
    packhouse_counters up to sampled_groups: u64;
    packhouse_refused up to count: packhouse_count;
    packhouse_sample_options up to seed: u64;
    packhouse_sample_report up to payload_bytes: u64;
}
