//! A read-only mapping with its own address: a file's bytes, or private memory that was filled
//! once.
//!
//! Invariants:
//! - the bytes can't be written through it, by Rust or by C: the pages are mapped read-only;
//! - its address is page-aligned and stays until it is dropped;
//! - a file is asked for its size again after it was mapped, and must reach to the end.
//!
//! Never: it verifies nothing. Callers map only what they verified; see `ReadMap::of_file`.

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

/// Bytes at an address of their own, read-only.
#[derive(Debug)]
pub struct ReadMap {
    /// Start and length of the mapping; `None` when there are no bytes.
    mapping: Option<(*mut u8, usize)>,
}

// SAFETY: the mapping is owned by this value until drop and its pages are read-only, so that any
// thread may read them and drop them.
unsafe impl Send for ReadMap {}
// SAFETY: as for Send; no method of `&ReadMap` changes anything.
unsafe impl Sync for ReadMap {}

impl ReadMap {
    /// Maps the first `bytes` bytes of a file, shared with every process that maps it. Errors as
    /// mmap does, and with `UnexpectedEof` when the file is shorter.
    ///
    /// # Safety
    /// The file must be one that nobody truncates or writes while the mapping lives: truncation
    /// from outside means SIGBUS. Its bytes must have been verified by the caller, through this
    /// very descriptor.
    pub unsafe fn of_file(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self { mapping: None });
        }
        let (flags, read) = (MapFlags::SHARED, ProtFlags::READ);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, read, flags, file, 0) }?;
        let map = Self {
            mapping: Some((start.cast(), bytes)),
        };
        let file_bytes = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if file_bytes < u64::try_from(bytes).unwrap_or(u64::MAX) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes >= crate::map::HUGE_PAGE_BYTES {
            // Advice only: file systems with large folios then read, and map, huge pages.
            // SAFETY: the range was just mapped and advice changes no byte.
            let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxHugepage) };
        }
        Ok(map)
    }

    /// Takes private memory, lets `fill` write it, and makes it read-only. The outer error is the
    /// system's (ENOMEM), the inner one is `fill`'s; nothing is left of the memory then.
    pub fn filled<E>(
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> io::Result<Result<Self, E>> {
        if bytes == 0 {
            return Ok(fill(&mut []).map(|()| Self { mapping: None }));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        let map = Self {
            mapping: Some((start.cast(), bytes)),
        };
        // SAFETY: the range was just mapped readable and writable, and nobody else knows of it.
        let target = unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) };
        if let Err(error) = fill(target) {
            return Ok(Err(error));
        }
        // SAFETY: the range is the mapping made above and `target` is used no more.
        unsafe { rustix::mm::mprotect(start, bytes, MprotectFlags::READ) }?;
        Ok(Ok(map))
    }
}

/// Brings a range of a file to memory by mapping it for a moment; `offset` is a multiple of the
/// page size. No byte is looked at. Errors as mmap and madvise do: `EINVAL` before Linux 5.14,
/// `EFAULT` where the file does not reach.
pub fn populate(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (flags, read) = (MapFlags::SHARED, ProtFlags::READ);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing else.
    let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, read, flags, file, offset) }?;
    let map = ReadMap {
        mapping: Some((start.cast(), bytes)),
    };
    // SAFETY: the range was just mapped, and populating it changes no byte; a page that the file
    // does not have is an error of the call and no signal.
    let populated = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxPopulateRead) };
    drop(map);
    Ok(populated?)
}

impl std::ops::Deref for ReadMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.mapping {
            // SAFETY: the constructors mapped the range readable for its whole length and checked
            // that the file reaches to its end; it stays until drop.
            Some((start, bytes)) => unsafe { std::slice::from_raw_parts(start, bytes) },
            None => &[],
        }
    }
}

impl Drop for ReadMap {
    fn drop(&mut self) {
        let Some((start, bytes)) = self.mapping else {
            return;
        };
        // SAFETY: the range was mapped by a constructor, and every borrow of it ended with this
        // value's.
        let result = unsafe { rustix::mm::munmap(start.cast(), bytes) };
        debug_assert!(
            result.is_ok(),
            "because unmapping an own whole mapping can't fail: {result:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    fn file_of(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("because a temp folder is there");
        file.write_all(bytes).expect("because the disk has room");
        file
    }

    #[test]
    fn a_file_is_read_through_its_map_and_a_shorter_one_is_refused() {
        let file = file_of(&[9; 5000]);
        for bytes in [0, 1, 4096, 5000] {
            // SAFETY: the file is this test's own and is not truncated.
            let map = unsafe { ReadMap::of_file(file.as_fd(), bytes) }.expect("because it reaches");
            assert_eq!(&map[..], &[9; 5000][..bytes]);
        }
        // SAFETY: as above.
        let error = unsafe { ReadMap::of_file(file.as_fd(), 5001) }.expect_err("because it ends");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_range_is_brought_to_memory_and_one_that_the_file_lacks_is_an_error() {
        let page = crate::map::page_bytes();
        let file = file_of(&vec![9; 3 * page]);
        for (offset, bytes) in [(0, 0), (0, 3 * page), (page, 1), (2 * page, page)] {
            populate(file.as_fd(), offset as u64, bytes).expect("because the file reaches");
        }
        for (offset, bytes) in [(0, 4 * page), (3 * page, page), (1, page)] {
            assert!(
                populate(file.as_fd(), offset as u64, bytes).is_err(),
                "{offset}"
            );
        }
    }

    #[test]
    fn private_memory_is_filled_once_and_then_read_only() {
        let map = ReadMap::filled(5000, |target| {
            target.fill(7);
            Ok::<(), ()>(())
        })
        .expect("because memory is there")
        .expect("because the fill says so");
        assert_eq!(&map[..], &[7; 5000]);
        assert_eq!(map.as_ptr().addr() % crate::map::page_bytes(), 0);
        let listing = std::fs::read_to_string("/proc/self/maps").expect("because /proc is there");
        let start = format!("{:x}-", map.as_ptr().addr());
        let line = listing.lines().find(|line| line.starts_with(&start));
        assert!(
            line.is_some_and(|line| line.contains(" r--p ")),
            "{start} {line:?}"
        );
        let failed = ReadMap::filled(5000, |_| Err("no")).expect("because memory is there");
        assert_eq!(failed.expect_err("because the fill failed"), "no");
        let empty = ReadMap::filled(0, |_| Ok::<(), ()>(())).expect("because none is needed");
        assert!(empty.expect("because the fill says so").is_empty());
    }
}
