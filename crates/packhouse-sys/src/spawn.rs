//! Starts a child that outlives its parent and holds nothing of it.
//!
//! Invariants:
//! - the child is no child of the caller by the time `spawn_detached` returns: nobody has to wait
//!   for it, and a caller that becomes another program by exec leaves it no stranger to reap;
//! - it has its own session (no terminal) and no descriptor but the three standard ones that the
//!   `Command` gives it.

#![expect(
    unsafe_code,
    reason = "fork and exec have no safe form; each block says why it holds"
)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Starts the command detached from this process. Errors when it can't be started; an error of the
/// started program itself is not seen.
pub fn spawn_detached(command: &mut Command) -> io::Result<()> {
    // SAFETY: `detach` calls only setsid, fork, close_range, fcntl and _exit, which POSIX lists as
    // async-signal-safe (close_range is a bare system call), allocates nothing and takes no lock.
    unsafe { command.pre_exec(detach) };
    let status = command.spawn()?.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the first child ended with {status}"
    )))
}

/// Runs between fork and exec: new session, second fork, no inherited descriptor survives exec.
fn detach() -> io::Result<()> {
    // SAFETY: setsid has no preconditions; a fresh child leads no process group, so it succeeds.
    if unsafe { libc::setsid() } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: after fork the child goes on only with async-signal-safe calls and exec, and the
    // parent only with _exit, so a lock that another thread held at the fork is never taken here.
    match unsafe { libc::fork() } {
        0 => close_on_exec(),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        // SAFETY: _exit has no preconditions and, unlike exit, runs no handlers of the caller.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Marks every descriptor but the standard ones to close at exec. They stay open until then because
/// std reports a failed exec through one of them.
pub(crate) fn close_on_exec() -> io::Result<()> {
    let last = libc::c_uint::MAX;
    // SAFETY: close_range with this flag changes descriptor flags and touches no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            last,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return Ok(());
    }
    // Kernels before 5.11 lack the flag; the loop covers the usual limits of open files.
    for fd in 3..65_536 {
        // SAFETY: F_SETFD changes a flag or fails with EBADF, and touches no memory.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_detached_child_is_no_child_and_a_missing_program_is_an_error() {
        let mut command = Command::new("true");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        spawn_detached(&mut command).expect("because true is everywhere");
        // SAFETY: waitpid with a null status pointer writes nothing.
        let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        // Other tests of this binary have no children either.
        assert_eq!(waited, -1);
        assert!(spawn_detached(&mut Command::new("no-such-program-anywhere")).is_err());
    }
}
