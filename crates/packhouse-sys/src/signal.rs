//! SIGINT and SIGTERM as a question: was this process asked to end?
//!
//! Invariants:
//! - the first of each signal is noted and nothing else; the second ends the process as it would
//!   have without this.
//!
//! Never: runs code in the handler but one store.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Notes the next SIGINT and SIGTERM instead of dying of them. Errors as sigaction does.
pub fn catch_once() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: zeroed is a valid sigaction: no handler, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is filled above and outlives the call; the handler only stores to an
        // atomic, which is allowed in a handler.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives each signal its default action, before this process becomes another program: what is
/// ignored stays ignored across exec, so that an engine could inherit a dead SIGINT.
pub fn reset_all() {
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: zeroed is a valid sigaction: the default action, no flags, an empty mask.
        let action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` outlives the call. It fails for SIGKILL, SIGSTOP and those that the C
        // library keeps for itself, which can't be changed and need no reset.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// The last signal that Linux has.
const SIGNAL_MAX: libc::c_int = 64;

/// Whether a signal came since `catch_once`.
pub fn was_caught() -> bool {
    CAUGHT.load(Ordering::Relaxed)
}

extern "C" fn note(_signal: libc::c_int) {
    CAUGHT.store(true, Ordering::Relaxed);
}

static CAUGHT: AtomicBool = AtomicBool::new(false);
