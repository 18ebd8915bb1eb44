//! SIGINT and SIGTERM as a question: was this process asked to end? And SIGHUP as none.
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

/// Ignores SIGHUP: what is on the way goes on when its terminal goes. Errors as sigaction does.
pub fn ignore_hangup() -> io::Result<()> {
    // SAFETY: zeroed is a valid sigaction: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: `action` is filled above and outlives the call, and no handler is set.
    if unsafe { libc::sigaction(libc::SIGHUP, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has the kernel keep children that ended until they are waited for: where whoever became this
/// process ignored SIGCHLD, they would be gone, and their numbers another's. Errors as sigaction
/// does.
pub fn keep_ended_children() -> io::Result<()> {
    // SAFETY: zeroed is a valid sigaction: the default action, no flags, an empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is made above and outlives the call, and no handler is set.
    if unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives each signal its default action, before this process becomes another program: what is
/// ignored stays ignored across exec, so that an engine could inherit a dead SIGINT.
pub fn reset_all() {
    // The kernel's own form of an action, zeroed: the default action, no flags, an empty mask.
    let action = [0u64; 4];
    for signal in 1..=SIGNAL_MAX {
        // Asked of the kernel, since the C library hides the two that it keeps for itself, and
        // leaves them ignored in what its posix_spawn starts.
        // SAFETY: `action` is as large as the kernel's sigaction on 64-bit hosts, outlives the call
        // and has no handler that could run. It fails for SIGKILL and SIGSTOP, which need no reset.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                action.as_ptr(),
                std::ptr::null_mut::<u64>(),
                SIGNAL_SET_BYTES,
            )
        };
    }
}

/// The kernel's set of signals has a bit for each.
const SIGNAL_SET_BYTES: usize = 8;
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
