//! Priority of background threads.

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
