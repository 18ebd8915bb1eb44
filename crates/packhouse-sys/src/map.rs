//! Address space that an engine reads by raw pointer: reserved, made private, or attached to a
//! file.
//!
//! Invariants:
//! - a `Reservation` owns its whole range until it is dropped; nothing outside it is ever mapped
//!   over;
//! - a `Region` is a page-aligned part of one reservation, regions of one reservation do not
//!   overlap, and its `RwLock` orders every change of its backing against every reader in this
//!   process' Rust code;
//! - an attached region is read-only: a stray write faults, it can't reach the file.
//!
//! Never: it verifies nothing. Callers attach only what they verified; see `Region::attach`.

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes of a page of this host.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Alignment of a reservation's base: the size of a huge page on x86-64 and aarch64.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A range of address space that holds no memory until a `Region` of it is backed.
pub struct Reservation {
    base: *mut u8,
    bytes: usize,
    /// The mapping as the kernel gave it; it begins up to one huge page before `base`.
    mapping: (*mut u8, usize),
}

/// A page-aligned part of a reservation and what backs it.
pub struct Region {
    reservation: Arc<Reservation>,
    offset: usize,
    bytes: usize,
    backing: RwLock<Backing>,
}

/// What backs a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: it reads as zero, as an engine's own fresh memory may, and a write faults.
    Empty,
    /// Private memory of this process.
    Private,
    /// A shared read-only file mapping.
    Attached,
}

/// The bytes of a backed region, held against changes of the backing.
pub struct RegionBytes<'a> {
    guard: RwLockReadGuard<'a, Backing>,
    region: &'a Region,
}

// SAFETY: the pointers are an address range that this value owns until drop, not shared state; all
// access to the memory goes through `Region`'s lock or through the engine, which orders its own
// threads.
unsafe impl Send for Reservation {}
// SAFETY: as for Send; no method of `&Reservation` reads or writes the memory.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves at least `bytes` of address space, aligned to a huge page. No memory and no
    /// overcommit charge is taken. Errors as mmap does (ENOMEM when the address space is limited).
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(rustix::param::page_size());
        let whole = bytes
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing
        // else.
        let start =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::READ, flags) }?;
        let start = start.cast::<u8>();
        let gap = start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr();
        Ok(Self {
            base: start.wrapping_add(gap),
            bytes,
            mapping: (start, whole),
        })
    }

    /// The first address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length in bytes, whole pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping;
        // SAFETY: the range was mapped by `new` and every `Region` holds an Arc of this value, so
        // none is left; that the engine no longer reads it is the contract of its free_buffer call.
        let result = unsafe { rustix::mm::munmap(start.cast(), bytes) };
        debug_assert!(
            result.is_ok(),
            "because unmapping an own whole mapping can't fail: {result:?}"
        );
    }
}

impl Region {
    /// Cuts a region out of a reservation. The caller cuts no two that share a page.
    ///
    /// Errors with `InvalidInput` when the offset is not page-aligned or the range leaves the
    /// reservation.
    pub fn new(reservation: Arc<Reservation>, offset: usize, bytes: usize) -> io::Result<Self> {
        let end = offset.checked_add(bytes.next_multiple_of(rustix::param::page_size()));
        let inside = end.is_some_and(|end| end <= reservation.bytes);
        if bytes == 0 || !inside || !offset.is_multiple_of(rustix::param::page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            reservation,
            offset,
            bytes,
            backing: RwLock::new(Backing::Empty),
        })
    }

    /// The first address.
    pub fn address(&self) -> *mut u8 {
        self.reservation.base.wrapping_add(self.offset)
    }

    /// Length in bytes, without the padding of the last page.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What backs the region now.
    pub fn backing(&self) -> Backing {
        *self.read_guard()
    }

    /// Makes the region private memory and lets `fill` write it. Bytes keep their values when the
    /// region was backed before; fresh memory is zero. Errors as mmap does; the backing is then
    /// unchanged.
    pub fn with_private<R>(&self, fill: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let mut backing = self.write_guard();
        match *backing {
            Backing::Private => {}
            Backing::Empty => self.protect_read_write()?,
            Backing::Attached => {
                // SAFETY: an attached region is readable for its whole length (`attach` checked the
                // file's size) and the write guard keeps the backing as it is.
                let kept =
                    unsafe { std::slice::from_raw_parts(self.address(), self.bytes) }.to_vec();
                self.map_private_over()?;
                // SAFETY: the range was just mapped readable and writable and is at least this
                // long.
                unsafe { ptr::copy_nonoverlapping(kept.as_ptr(), self.address(), self.bytes) };
            }
        }
        *backing = Backing::Private;
        // SAFETY: the range is mapped readable and writable, the write guard excludes other Rust
        // access, and the engine reads a tensor only after the call that sets it returned.
        let target = unsafe { std::slice::from_raw_parts_mut(self.address(), self.bytes) };
        Ok(fill(target))
    }

    /// Maps the first `bytes()` bytes of a file read-only and shared over the region. What the
    /// region held is gone, after an error too: it is then zeroed private memory. Errors as mmap
    /// does, and with `UnexpectedEof` when the file is shorter than the region.
    ///
    /// # Safety
    /// The file must be one that nobody truncates while the region lives: truncation from outside
    /// means SIGBUS. Its bytes must have been verified by the caller, through this very descriptor.
    pub unsafe fn attach(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut backing = self.write_guard();
        let address = self.address().cast();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: MAP_FIXED lands inside the live reservation (`new` checked the range), in pages
        // that no other region shares, and the write guard excludes other users of this one.
        let mapped =
            unsafe { rustix::mm::mmap(address, self.bytes, ProtFlags::READ, flags, file, 0) };
        let outcome = mapped
            .map_err(io::Error::from)
            .and_then(|_| self.reaches(file));
        if let Err(error) = outcome {
            // A failed MAP_FIXED may have taken the old pages with it: the range must stay ours.
            self.map_private_over()?;
            *backing = Backing::Private;
            return Err(error);
        }
        *backing = Backing::Attached;
        if self.bytes >= HUGE_PAGE_BYTES {
            // Advice only: file systems with large folios then read, and map, huge pages.
            // SAFETY: the range was just mapped and advice changes no byte.
            let _ = unsafe { rustix::mm::madvise(address, self.bytes, Advice::LinuxHugepage) };
        }
        Ok(())
    }

    /// Gives the memory of a region back unless somebody is reading it; it is empty then. Errors as
    /// mmap does.
    pub fn give_back(&self) -> io::Result<()> {
        let Ok(mut backing) = self.backing.try_write() else {
            return Ok(());
        };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let address = self.address().cast();
        // SAFETY: as in `attach`; the caller's engine no longer reads the region.
        unsafe { rustix::mm::mmap_anonymous(address, self.bytes, ProtFlags::READ, flags) }?;
        *backing = Backing::Empty;
        Ok(())
    }

    /// Returns the bytes of a backed region; `None` while it is empty. Holding them blocks changes.
    pub fn read(&self) -> Option<RegionBytes<'_>> {
        let guard = self.read_guard();
        (*guard != Backing::Empty).then_some(RegionBytes {
            guard,
            region: self,
        })
    }

    /// Faults an attached region's pages in. Errors as madvise does; EINVAL on kernels before 5.14.
    pub fn populate(&self) -> io::Result<()> {
        let backing = self.read_guard();
        if *backing != Backing::Attached {
            return Ok(());
        }
        let advice = Advice::LinuxPopulateRead;
        // SAFETY: the range is a live mapping held by the guard; populating changes no byte.
        unsafe { rustix::mm::madvise(self.address().cast(), self.bytes, advice) }?;
        Ok(())
    }

    /// Errors when a file is shorter than the region.
    fn reaches(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let file_bytes = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let is_short = file_bytes < u64::try_from(self.bytes).unwrap_or(u64::MAX);
        if is_short {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }

    fn protect_read_write(&self) -> io::Result<()> {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies inside the live reservation and belongs to this region alone.
        unsafe { rustix::mm::mprotect(self.address().cast(), self.bytes, flags) }?;
        Ok(())
    }

    fn map_private_over(&self) -> io::Result<()> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: as in `attach`.
        unsafe {
            rustix::mm::mmap_anonymous(self.address().cast(), self.bytes, protection, flags)
        }?;
        Ok(())
    }

    fn read_guard(&self) -> RwLockReadGuard<'_, Backing> {
        self.backing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_guard(&self) -> RwLockWriteGuard<'_, Backing> {
        self.backing.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::Deref for RegionBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert_ne!(
            *self.guard,
            Backing::Empty,
            "because `Region::read` made this value"
        );
        // SAFETY: a backed region is readable for its whole length and the guard keeps it backed.
        unsafe { std::slice::from_raw_parts(self.region.address(), self.region.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    fn region(bytes: usize) -> Region {
        let reservation = Arc::new(Reservation::new(bytes * 3).expect("because space is there"));
        assert_eq!(reservation.base().addr() % HUGE_PAGE_BYTES, 0);
        Region::new(reservation, rustix::param::page_size(), bytes).expect("because it fits")
    }

    #[test]
    fn a_region_goes_from_empty_to_private_to_attached_and_keeps_bytes_on_the_way_back() {
        let region = region(5000);
        assert!(region.read().is_none());
        region
            .with_private(|bytes| bytes.fill(7))
            .expect("because memory is there");
        let mut file = tempfile::tempfile().expect("because a temp folder is there");
        file.write_all(&[9; 5000])
            .expect("because the disk has room");
        // SAFETY: the file is this test's own and is not truncated.
        unsafe { region.attach(file.as_fd()) }.expect("because the file is long enough");
        assert_eq!(region.backing(), Backing::Attached);
        region
            .populate()
            .expect("because the kernel knows populate");
        assert!(
            region
                .read()
                .expect("because it is attached")
                .iter()
                .all(|byte| *byte == 9)
        );
        region
            .with_private(|bytes| bytes[0] = 1)
            .expect("because memory is there");
        let bytes = region.read().expect("because it is private");
        assert_eq!((bytes[0], bytes[1], bytes[4999]), (1, 9, 9));
        let mut on_disk = [0; 1];
        std::os::unix::fs::FileExt::read_at(&file, &mut on_disk, 0).expect("because it is open");
        assert_eq!(on_disk, [9]);
    }

    #[test]
    fn a_file_shorter_than_its_region_is_refused_before_anyone_reads_it() {
        let region = region(8192);
        let mut file = tempfile::tempfile().expect("because a temp folder is there");
        file.write_all(&[9; 4000])
            .expect("because the disk has room");
        // SAFETY: the file is this test's own and is not truncated.
        let error = unsafe { region.attach(file.as_fd()) }.expect_err("because it is too short");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(
            region
                .read()
                .expect("because it is private now")
                .iter()
                .all(|byte| *byte == 0)
        );
    }

    #[test]
    fn a_region_stays_inside_its_reservation() {
        let page = rustix::param::page_size();
        let reservation = Arc::new(Reservation::new(page).expect("because space is there"));
        for (offset, bytes) in [(0, page + 1), (page, 1), (1, 1), (0, 0)] {
            assert!(
                Region::new(reservation.clone(), offset, bytes).is_err(),
                "{offset} {bytes}"
            );
        }
    }
}
