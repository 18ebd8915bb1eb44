//! Priority of background threads, and the signal of the file size limit.

use std::io;

/// Puts the calling thread at idle CPU and idle disk priority: it runs when nothing else wants to.
/// Errors with what the first refusing call said; the thread then keeps the priority that call left
/// it.
pub fn set_idle_priority() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread and `parameter` lives over the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ioprio_set takes three integers; 0 is the calling thread.
    if unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a write past the limit of file sizes (RLIMIT_FSIZE) an error for the calling thread and
/// those it starts from now on, where it would end the process: it blocks SIGXFSZ. A program that
/// is then executed inherits that. Errors as pthread_sigmask does.
pub fn survive_file_size_limit() -> io::Result<()> {
    // SAFETY: zeroed is a valid sigset_t for sigemptyset to fill.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` lives over the calls, which only write to it.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
    }
    // SAFETY: `set` was filled above; no old mask is asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// From ioprio_set(2): the id names one thread.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// From ioprio_set(2): class 3 (idle) in the upper bits.
const IOPRIO_IDLE: libc::c_int = 3 << 13;

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_can_go_idle() {
        let result = std::thread::spawn(super::set_idle_priority).join();
        assert!(result.expect("because it does not panic").is_ok());
    }
}
