//! What this library is, and what its statuses are called.

use crate::edge::shield;
use crate::types::packhouse_status;
use crate::usage::statuses;
use std::ffi::{CStr, c_char};

/// Goes up with every change that a program built against an earlier header would not survive.
pub const PACKHOUSE_ABI_VERSION: u32 = 1;

/// The library's version, as in `0.1.0`. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn packhouse_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The version of the interface that the library has; a program compares it with the header's
/// `PACKHOUSE_ABI_VERSION` before anything else.
#[unsafe(no_mangle)]
pub extern "C" fn packhouse_abi_version() -> u32 {
    PACKHOUSE_ABI_VERSION
}

/// A status' name, as in `PACKHOUSE_NO_SET`; `PACKHOUSE_UNKNOWN_STATUS` for numbers that are none.
/// The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn packhouse_status_name(status: packhouse_status) -> *const c_char {
    let name = || {
        let found = statuses().find(|known| known.number == status);
        found.map_or(UNKNOWN, |known| known.name).as_ptr()
    };
    shield(UNKNOWN.as_ptr(), name)
}

const UNKNOWN: &CStr = c"PACKHOUSE_UNKNOWN_STATUS";

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version has no NUL"),
    };
