//! An out-of-tree ggml backend that gives an unmodified engine its packed weights from the store.
//!
//! The engine loads this library through `GGML_BACKEND_PATH`. Its one device has a buffer type that
//! the engine asks first for CPU weights; it takes exactly those that the engine's own CPU_REPACK
//! would take, maps stored packs over them, or lets the engine's own packer fill them and stores
//! the result.
//!
//! - `symbols`, `abi`, `host`: find and identify the engine's ggml before anything is registered;
//! - `select`, `buffer`, `device`: what the engine sees;
//! - `packer`: the engine's own packer, run by us;
//! - `environment`, `output`: the process' words, in and out; `plugin`: all of it together;
//! - `equivalence`: hosts an engine's libraries to compare stored packs with live ones;
//! - `live`, `values`: the same, for whoever compares packers and values of ours with the engine's.
//!
//! Invariants:
//! - no slot of a table that the probe did not identify is called;
//! - no panic leaves a callback; whatever goes wrong, the engine's own packer does the work;
//! - all packing is the engine's.
//!
//! Never links or loads a ggml into an engine. Design: `docs/design/ggml.md`.

mod abi;
mod buffer;
mod device;
mod environment;
pub mod equivalence;
mod host;
pub mod live;
mod output;
mod packer;
mod plugin;
mod select;
mod symbols;
mod tensor;
pub mod values;

use abi::v3;
use plugin::Plugin;
use std::ffi::c_int;
use std::panic::catch_unwind;

/// Tells ggml whether this backend can serve here: 0 when the plug-in stays out, with one line that
/// says why; else 1.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> c_int {
    let served = catch_unwind(|| Plugin::of_this_process().is_some());
    c_int::from(served.unwrap_or(false))
}

/// Gives ggml the backend's registry; null when the plug-in stays out.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_init() -> *mut v3::Reg {
    let reg = catch_unwind(|| Plugin::of_this_process().map(Plugin::reg));
    reg.ok().flatten().unwrap_or(std::ptr::null_mut())
}
