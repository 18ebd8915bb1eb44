//! A watcher beside each child: where this process dies, whoever is in the child's group dies too.
//!
//! Invariants:
//! - the child itself names its group, before it becomes the program: no group goes unwatched;
//! - it ends a group only when this process ended without a word: a child that was reaped is none
//!   of its business, as its number may be another's;
//! - it holds no descriptor but its end of one pipe, and is out of reach of the terminal.
//!
//! Never: allocates, or takes a lock: it is a copy of a process that may have many threads.

use super::own::Own;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

/// A watcher that waits. Dropped, it ends and is reaped, and its group lives on.
pub(super) struct Watcher {
    pid: Option<Pid>,
    line: OwnedFd,
    _own: Option<Own>,
}

impl Watcher {
    /// Starts one. Errors as pipe and fork do.
    pub(super) fn start() -> Result<Self, Errno> {
        let (heard, line) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the copy goes on with `watch` alone, which makes async-signal-safe calls only,
        // allocates nothing and does not return.
        match unsafe { libc::fork() } {
            0 => watch(heard.as_raw_fd()),
            pid if pid < 0 => {
                Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN))
            }
            pid => Ok(Self {
                pid: Pid::from_raw(pid),
                line,
                _own: Pid::from_raw(pid).map(Own::new),
            }),
        }
    }

    /// What a child tells its group on, between fork and exec.
    pub(super) fn line(&self) -> RawFd {
        self.line.as_raw_fd()
    }
}

/// Names the caller's group to the watcher. Async-signal-safe.
pub(super) fn name_group(line: RawFd, group: Pid) -> Result<(), Errno> {
    // SAFETY: the caller's copy of the descriptor is open: it closes at exec, which comes later.
    let line = unsafe { BorrowedFd::borrow_raw(line) };
    let number = group.as_raw_nonzero().get().to_ne_bytes();
    match retry_on_intr(|| rustix::io::write(line, &number))? {
        NAME_BYTES => Ok(()),
        _ => Err(Errno::IO),
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = retry_on_intr(|| rustix::io::write(&self.line, &[0; DONE_BYTES]));
        if let Some(pid) = self.pid {
            let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
        }
    }
}

/// What the watcher does: it reads until it is told to go, or until nobody is left to tell it.
fn watch(heard: RawFd) -> ! {
    let mut said = [0; NAME_BYTES + DONE_BYTES];
    let mut length = 0;
    // SAFETY: system calls only, on descriptors by number and on `said`, which is as long as is
    // told. `_exit` runs no handlers of the process that this is a copy of.
    unsafe {
        libc::setsid();
        if libc::dup2(heard, 0) < 0 {
            libc::_exit(1);
        }
        close_others();
        while length <= NAME_BYTES {
            let (at, left) = (said.as_mut_ptr().add(length), said.len() - length);
            match libc::read(0, at.cast(), left) {
                0 => break,
                read if read > 0 => length += read.unsigned_abs(),
                _ if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(1),
            }
        }
        if length == NAME_BYTES {
            let group = i32::from_ne_bytes([said[0], said[1], said[2], said[3]]);
            if group > 1 {
                libc::kill(-group, libc::SIGKILL);
            }
        }
        libc::_exit(0)
    }
}

/// Closes every descriptor but the first.
fn close_others() {
    let (first, last): (libc::c_uint, libc::c_uint) = (1, libc::c_uint::MAX);
    // SAFETY: close_range closes descriptors, which nobody uses here, and touches no memory.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) } == 0 {
        return;
    }
    // Kernels before 5.9 lack it; the loop covers the usual limits of open files.
    for fd in 1..65_536 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Bytes of a group's number.
const NAME_BYTES: usize = 4;
/// Bytes that tell the watcher to go: more than a number has.
const DONE_BYTES: usize = NAME_BYTES + 1;
