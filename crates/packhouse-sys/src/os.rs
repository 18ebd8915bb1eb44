//! The system calls that `rustix` has no safe form for: OFD locks, two ioctls, sync_file_range.
//!
//! Never: keeps a raw descriptor beyond one call.

#![expect(unsafe_code, reason = "each block says why it holds")]

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tries an OFD lock on a byte range; false when another open file description holds it.
pub(crate) fn try_ofd_lock(
    fd: BorrowedFd<'_>,
    lock_type: i32,
    offset: u64,
    length: u64,
) -> Result<bool, Errno> {
    let lock = libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?,
        l_len: libc::off_t::try_from(length).map_err(|_| Errno::INVAL)?,
        // The kernel refuses an OFD request whose pid is not 0.
        l_pid: 0,
    };
    loop {
        // SAFETY: `fd` is open for this call by its borrow; F_OFD_SETLK only reads the struct,
        // which lives on this stack frame.
        let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if result != -1 {
            return Ok(true);
        }
        match last_errno() {
            Errno::AGAIN | Errno::ACCESS => return Ok(false),
            Errno::INTR => {}
            other => return Err(other),
        }
    }
}

/// Whether anybody has a file open for writing, or mapped so; `None` where the kernel does not
/// tell: of files of other users, and on file systems without leases.
pub(crate) fn has_writer(fd: BorrowedFd<'_>) -> Option<bool> {
    let raw = fd.as_raw_fd();
    // Who opens the file between the two leases sends a signal, and SIGIO would end this process.
    // SAFETY: `fd` is open for this call by its borrow; F_SETSIG takes an integer.
    if unsafe { libc::fcntl(raw, F_SETSIG, libc::SIGURG) } == -1 {
        return None;
    }
    // A read lease is given only while nobody can write; it is given back at once.
    // SAFETY: `fd` is open for this call by its borrow; F_SETLEASE takes an integer.
    if unsafe { libc::fcntl(raw, libc::F_SETLEASE, libc::F_RDLCK) } == -1 {
        return (last_errno() == Errno::AGAIN).then_some(true);
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(raw, libc::F_SETLEASE, libc::F_UNLCK) };
    Some(false)
}

/// From fcntl(2): which signal a lease's end sends.
const F_SETSIG: libc::c_int = 10;

/// Starts write-out of a range and, when asked, waits for it.
pub(crate) fn sync_file_range(
    fd: BorrowedFd<'_>,
    offset: u64,
    length: u64,
    wait: bool,
) -> Result<(), Errno> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    let length = libc::off64_t::try_from(length).map_err(|_| Errno::INVAL)?;
    let flags = if wait {
        libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER
    } else {
        libc::SYNC_FILE_RANGE_WRITE
    };
    // SAFETY: `fd` is open for this call by its borrow; no memory is passed.
    let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, length, flags) };
    if result == -1 {
        return Err(last_errno());
    }
    Ok(())
}

/// Asks for the file system's UUID (FS_IOC_GETFSUUID, Linux 6.9). `None` where it has none.
pub(crate) fn fs_uuid(fd: BorrowedFd<'_>) -> Option<[u8; 16]> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct FsUuid2 {
        length: u8,
        uuid: [u8; 16],
    }
    const { assert!(size_of::<FsUuid2>() == 17) };
    const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<FsUuid2>(0x15, 0);
    // SAFETY: FS_IOC_GETFSUUID writes one `struct fsuuid2`, of 17 bytes by the assert above, and
    // only on success; each bit pattern of it is valid.
    let answer =
        unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<OPCODE, FsUuid2>::new()) };
    answer
        .ok()
        .filter(|answer| answer.length == 16 && answer.uuid != [0; 16])
        .map(|answer| answer.uuid)
}

/// Asks for the inode's generation (FS_IOC_GETVERSION). `None` where the file system has none.
pub(crate) fn inode_generation(fd: BorrowedFd<'_>) -> Option<u32> {
    const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<libc::c_long>(b'v', 1);
    let mut value: [u32; 2] = [0; 2];
    const { assert!(size_of::<[u32; 2]>() >= size_of::<libc::c_long>()) };
    // SAFETY: the request is named for a C long, and file systems write an int or a long; the
    // updater passes a buffer of at least a long that is zeroed before.
    let answer = unsafe {
        rustix::ioctl::ioctl(
            fd,
            rustix::ioctl::Updater::<OPCODE, [u32; 2]>::new(&mut value),
        )
    };
    answer.ok().map(|()| value[0])
}

/// Asks whether the file system can seal files by fs-verity (FS_IOC_MEASURE_VERITY on a file that
/// isn't sealed). The file must be regular.
pub(crate) fn has_fs_verity(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    // struct fsverity_digest: algorithm and size of 2 bytes each, then the digest.
    const DIGEST_BYTES: u16 = 64;
    const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<[u16; 2]>(b'f', 134);
    let mut digest = [0u16; 2 + DIGEST_BYTES as usize / 2];
    digest[1] = DIGEST_BYTES;
    // SAFETY: the kernel reads the size field and writes at most that many digest bytes behind the
    // four of the head; the buffer holds both, and each bit pattern of it is valid.
    let answer = unsafe {
        rustix::ioctl::ioctl(
            fd,
            rustix::ioctl::Updater::<OPCODE, [u16; 34]>::new(&mut digest),
        )
    };
    match answer {
        Ok(()) | Err(Errno::NODATA) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(other) => Err(other),
    }
}

fn last_errno() -> Errno {
    let raw = std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    Errno::from_raw_os_error(raw)
}
