//! The structs of `packhouse.h`, field by field as C has them.
//!
//! A struct that a caller fills, or that is filled for it, begins with `struct_size`: the caller's
//! own `sizeof`, up to 4096. A caller built against an earlier version gives a smaller one and sees
//! only the fields that it knows. Of a larger one, of a caller built against a later version, the
//! bytes that this library doesn't know must be zero where the caller fills it, and are set to zero
//! where the library does. Fields are only ever added at the end.

use std::ffi::{c_char, c_void};

/// Most dims that an entry or contract can tell.
pub const PACKHOUSE_DIMS_MAX: usize = 8;
/// Bytes of a digest: SHA-256 of payloads and tensors, BLAKE3 of heads.
pub const PACKHOUSE_DIGEST_BYTES: usize = 32;
/// Bytes of a refusal's text, its final NUL among them.
pub const PACKHOUSE_TEXT_BYTES: usize = 496;
/// Bytes of a layout's or parameter's name, its final NUL among them.
pub const PACKHOUSE_NAME_BYTES: usize = 48;

/// A status: `PACKHOUSE_OK` or one of the numbers in the list.
pub type packhouse_status = i32;

/// What `packhouse_set_open` is told.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_open_options {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_TRUST_*`: what proof a payload needs before it is mapped.
    pub trust: u32,
    /// `PACKHOUSE_OPEN_*` bits.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The store's root, an absolute path.
    pub store: *const c_char,
    /// The folder of this user's private state, an absolute path; receipts live there.
    pub state: *const c_char,
    /// The folder of stages, an absolute path; NULL looks for none.
    pub stage: *const c_char,
    /// The set: 8 to 64 digits of its key, or its folder; NULL is the only one of the store.
    pub set: *const c_char,
    /// User ids that may own the store, beside this user's and root's; NULL when there are none.
    pub trusted_uids: *const u32,
    /// How many.
    pub trusted_uid_count: u64,
}

/// One named layout parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_parameter {
    /// Its name.
    pub name: *const c_char,
    /// Its value.
    pub value: u64,
}

/// What an engine's kernel reads; a pack must be exactly this to be found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_contract {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// ggml type id of the source tensor.
    pub type_id: u32,
    /// Layout id.
    pub layout: *const c_char,
    /// Layout version.
    pub layout_version: u64,
    /// Dims, ne0 first; trailing ones don't matter.
    pub dims: [u64; PACKHOUSE_DIMS_MAX],
    /// How many of them are given.
    pub dim_count: u32,
    /// Zero.
    pub reserved: u32,
    /// The layout's parameters, all of them, however few: not NULL and a count of 0 says that there
    /// are none. NULL means the layout's defaults and what follows from the tensor, in look-ups as
    /// in packing; a layout that the library doesn't know has none.
    pub parameters: *const packhouse_parameter,
    /// How many.
    pub parameter_count: u64,
    /// 32 bytes, SHA-256 of the source tensor; NULL takes any. `packhouse_pack` hashes what it is
    /// given, and `packhouse_unpack` what it made.
    pub source_sha256: *const u8,
    /// 32 bytes, the packer's fingerprint; NULL takes any, which a layout whose order depends on
    /// its packer does not allow. To pack, unpack or tell lengths it must be the one of this
    /// library.
    pub fingerprint: *const u8,
}

/// One tensor of a set: what its pack is. The texts and parameters belong to the set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_entry {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// ggml type id of the source tensor.
    pub type_id: u32,
    /// Place among the set's entries.
    pub index: u64,
    /// The plan's fixed number for the tensor.
    pub slot: u64,
    /// The tensor's name, NUL-terminated UTF-8.
    pub tensor: *const c_char,
    /// Its length without the NUL.
    pub tensor_bytes: u64,
    /// Layout id, NUL-terminated.
    pub layout: *const c_char,
    /// Layout version.
    pub layout_version: u64,
    /// The layout's parameters.
    pub parameters: *const packhouse_parameter,
    /// How many.
    pub parameter_count: u64,
    /// Dims, ne0 first.
    pub dims: [u64; PACKHOUSE_DIMS_MAX],
    /// How many.
    pub dim_count: u32,
    /// Zero.
    pub reserved: u32,
    /// Length of the payload.
    pub payload_bytes: u64,
    /// Rows of the source, over all matrices.
    pub row_count: u64,
    /// Bytes of one row of the source.
    pub row_bytes: u64,
    /// Rows in one sample group.
    pub unit_rows: u64,
    /// The pack's key.
    pub pack_key: [u8; PACKHOUSE_DIGEST_BYTES],
    /// SHA-256 of the payload.
    pub object: [u8; PACKHOUSE_DIGEST_BYTES],
    /// SHA-256 of the source tensor.
    pub source_sha256: [u8; PACKHOUSE_DIGEST_BYTES],
    /// The packer's fingerprint.
    pub fingerprint: [u8; PACKHOUSE_DIGEST_BYTES],
}

/// What an open set is. The text belongs to the set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_summary {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// 1 when payloads come from a stage in RAM, else 0.
    pub is_staged: u32,
    /// Tensors in the set.
    pub entry_count: u64,
    /// The plan's name, NUL-terminated UTF-8.
    pub plan: *const c_char,
    /// The set's key.
    pub key: [u8; PACKHOUSE_DIGEST_BYTES],
}

/// A mapped payload. The bytes belong to the mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_view {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_HELD_*`: what holds the bytes.
    pub held: u32,
    /// `PACKHOUSE_PROOF_*`: how the bytes were proved.
    pub proof: u32,
    /// Zero.
    pub reserved: u32,
    /// The payload, page-aligned and read-only.
    pub payload: *const c_void,
    /// Its length.
    pub payload_bytes: u64,
    /// Its SHA-256.
    pub object: [u8; PACKHOUSE_DIGEST_BYTES],
}

/// Tensors and the bytes of their payloads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct packhouse_count {
    /// Tensors.
    pub tensors: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

/// Where a set's tensors went. A tensor counts once in each, however often it is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_counters {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// How many reasons `packhouse_set_refused_after` can tell.
    pub refused_count: u32,
    /// Mapped from files.
    pub mapped: packhouse_count,
    /// Read into private memory.
    pub copied: packhouse_count,
    /// Of these two: hashed because `deep` was asked for.
    pub deep: packhouse_count,
    /// Proved by a receipt.
    pub receipt: packhouse_count,
    /// Hashed because no receipt matched.
    pub reverified: packhouse_count,
    /// Proved by samples alone.
    pub sample: packhouse_count,
    /// Whose samples equalled the live weights.
    pub sampled: packhouse_count,
    /// Groups compared.
    pub sampled_groups: u64,
}

/// One reason and what it refused.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_refused {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// The reason.
    pub status: packhouse_status,
    /// What it refused; what names no tensor of the set counts 0 bytes.
    pub count: packhouse_count,
}

/// Why a call failed, in words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_refusal {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// The same number that the call returned, when it failed; no success writes here.
    pub status: packhouse_status,
    /// Length of the whole text, which may be more than fits.
    pub text_bytes: u64,
    /// The text, cut between characters, NUL-terminated UTF-8.
    pub text: [c_char; PACKHOUSE_TEXT_BYTES],
}

/// How many samples are compared.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_sample_options {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Groups to compare; 0 is 4 to 8 of them by the tensor's size, UINT64_MAX is all.
    pub group_count: u64,
    /// Shifts the places of the groups; give another one at each start.
    pub seed: u64,
}

/// What was compared.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_sample_report {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Groups compared, all of them equal.
    pub compared_groups: u64,
    /// Groups of the whole tensor.
    pub group_count: u64,
    /// Bytes of live weights that were asked for.
    pub source_bytes: u64,
    /// Bytes of payload that were compared.
    pub payload_bytes: u64,
}

/// One layout that this library packs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_layout_summary {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// 1 when `packhouse_unpack` gives the source back of each type that `packhouse_pack` packs in
    /// this layout, else 0. Which types these are is the answer of `packhouse_lengths`.
    pub is_invertible: u32,
    /// Layout version.
    pub version: u64,
    /// How many parameters it has.
    pub parameter_count: u64,
    /// Layout id, NUL-terminated.
    pub id: [c_char; PACKHOUSE_NAME_BYTES],
}

/// One parameter of a layout.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_layout_parameter {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// 1 when the parameter may be left out, else 0.
    pub has_default: u32,
    /// Its value then.
    pub default_value: u64,
    /// Least value.
    pub min: u64,
    /// Greatest value.
    pub max: u64,
    /// Its name, NUL-terminated.
    pub name: [c_char; PACKHOUSE_NAME_BYTES],
}

/// Gives live weights: writes `bytes` source bytes from `offset` on to `target` and returns 0, or
/// returns anything else when it can't. It must not throw, unwind or jump out.
pub type packhouse_live_weights = Option<
    unsafe extern "C" fn(context: *mut c_void, offset: u64, target: *mut c_void, bytes: u64) -> i32,
>;

/// Samples of live weights alone: nothing is hashed, and a payload of the store is mapped only
/// after `packhouse_set_sample` found it equal.
pub const PACKHOUSE_TRUST_SAMPLE: u32 = 1;
/// A receipt of this user, else a hash now.
pub const PACKHOUSE_TRUST_RECEIPT: u32 = 2;
/// A hash now.
pub const PACKHOUSE_TRUST_DEEP: u32 = 3;

/// The first refusal fails the whole set, and opening proves every payload. Samples come after
/// opening: not together with `PACKHOUSE_TRUST_SAMPLE`.
pub const PACKHOUSE_OPEN_STRICT: u32 = 1;

/// The object's own pages, shared with every process that maps it.
pub const PACKHOUSE_HELD_MAPPED: u32 = 1;
/// Private memory.
pub const PACKHOUSE_HELD_COPIED: u32 = 2;

/// Hashed as asked.
pub const PACKHOUSE_PROOF_DEEP: u32 = 1;
/// A receipt.
pub const PACKHOUSE_PROOF_RECEIPT: u32 = 2;
/// Hashed because no receipt matched.
pub const PACKHOUSE_PROOF_REVERIFIED: u32 = 3;
/// Samples alone.
pub const PACKHOUSE_PROOF_SAMPLE: u32 = 4;
