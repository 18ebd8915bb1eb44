//! The store: payloads by content, the packs and sets that name them, and what this user verified.
//!
//! - `root` opens a store and judges owners; `publish` makes bytes visible, `payload` such as are
//!   hashed; `object` and `pack` read only what is verified; `quarantine` moves the rest away;
//!   `reserve` and `lock` are for fillers;
//! - `record`, `manifest`, `container_record` are pure values; `set` reads and publishes sets;
//! - `state` is private: `receipt`, `ledger`, `use_log`;
//! - `verify`, `scrub`, `survey` and `doctor` look; `rm`, `pins` and `gc` decide what stays, and
//!   `gc_plan` is the pure part of that.
//!
//! Invariants:
//! - a crash at any operation leaves every object, pack and set whole or absent;
//! - nothing is handed out but what was verified; nothing below the root is overwritten or edited;
//! - each refusal names path or key, expected and actual.
//!
//! Never: prints, reads the environment, knows of containers' formats, SIMD or engines.
//! Formats: `docs/format/store.md`, `docs/format/state.md`, `docs/format/keys.md`.

#![forbid(unsafe_code)]

pub mod container_record;
pub mod deep;
pub mod doctor;
pub mod fields;
pub mod folders;
pub mod gc;
mod gc_lock;
pub mod gc_plan;
mod gc_sweep;
pub mod hash_many;
mod holders;
mod inventory;
pub mod ledger;
pub mod lock;
mod look;
pub mod manifest;
pub mod object;
pub mod pack;
mod pack_batch;
pub mod payload;
pub mod percent;
pub mod pins;
pub mod publish;
pub mod quarantine;
mod reach;
pub mod receipt;
pub mod record;
pub mod reserve;
pub mod rm;
pub mod root;
mod scan;
pub mod scrub;
pub mod set;
pub mod settle;
pub mod small;
pub mod state;
pub mod survey;
pub mod use_log;
pub mod verify;

/// Locks a mutex whose content no panic can leave half-changed.
pub(crate) fn lock_mutex<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
