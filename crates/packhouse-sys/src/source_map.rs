//! Which file a piece of this process' memory is a mapping of, without reading the memory.
//!
//! An engine hands over a pointer into its own mapping of a model. `ProcessMaps` finds the file and
//! the offset behind it, `open_file` finds the engine's own still-open descriptor of exactly that
//! file: the name in the listing may by now belong to another file, so it is never opened.

#![expect(
    clippy::disallowed_methods,
    reason = "/proc is asked by path; it is no stored byte"
)]

use rustix::mm::Advice;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The file mappings of this process, sorted by address; neighbours that continue each other are
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMaps {
    mappings: Vec<FileMapping>,
}

/// One mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// First address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
    /// Offset in the file at `start`.
    pub file_offset: u64,
    /// Whether the memory may hold other bytes than the file: the process may write to the mapping,
    /// or could before, since a private one keeps what was written to it.
    pub own_changes: bool,
    /// The file's device number, as fstat gives it on plain file systems.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
}

impl ProcessMaps {
    /// Reads the listing of this process. Errors when /proc is not mounted or not readable.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/maps")?))
    }

    /// Parses a listing in the form of proc_pid_maps(5); lines of memory without a file, and lines
    /// in no known form, are left out, so that what they cover is treated as memory without a file.
    pub fn parse(listing: &[u8]) -> Self {
        let mut mappings: Vec<FileMapping> = Vec::new();
        for mapping in listing.split(|byte| *byte == b'\n').filter_map(parse_line) {
            match mappings.last_mut() {
                Some(last) if last.continues_with(&mapping) => last.end = mapping.end,
                Some(_) | None => mappings.push(mapping),
            }
        }
        Self { mappings }
    }

    /// Tells whether any byte of the range lies in a file mapping.
    pub fn touches(&self, address: usize, bytes: usize) -> bool {
        let end = address.saturating_add(bytes);
        let first = self
            .mappings
            .partition_point(|mapping| mapping.end <= address);
        self.mappings
            .get(first)
            .is_some_and(|mapping| mapping.start < end)
    }

    /// Finds the mapping that covers the whole range.
    pub fn find(&self, address: usize, bytes: usize) -> Option<&FileMapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        let end = address.checked_add(bytes)?;
        (end <= mapping.end).then_some(mapping)
    }
}

impl FileMapping {
    /// The file offset of an address inside the mapping.
    pub fn offset_of(&self, address: usize) -> u64 {
        let distance = u64::try_from(address - self.start).expect("because usize fits u64 here");
        self.file_offset + distance
    }

    fn continues_with(&self, next: &Self) -> bool {
        next.start == self.end
            && next.file_offset == self.offset_of(self.end)
            && (next.device, next.inode, next.own_changes)
                == (self.device, self.inode, self.own_changes)
    }
}

/// Asks the kernel whether a mapping found earlier still lies behind an address. `None` on kernels
/// before 6.11, which can only give the whole listing again.
pub fn still_maps(found: &FileMapping, address: usize) -> Option<bool> {
    let maps = File::open("/proc/self/maps").ok()?;
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_address: address as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the descriptor is the listing of this process, and the kernel writes no more than the
    // `size` bytes of `query` that it is told.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if result != 0 {
        let error = io::Error::last_os_error();
        return (error.raw_os_error() == Some(libc::ENOENT)).then_some(false);
    }
    let device = rustix::fs::makedev(query.device_major, query.device_minor);
    let offset = query.offset + (query.query_address - query.start);
    Some(
        (device, query.inode) == (found.device, found.inode)
            && offset == found.offset_of(address)
            && query.flags & VMA_SHARED != 0
            && query.flags & VMA_WRITABLE == 0,
    )
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_bytes: u32,
    build_id_bytes: u32,
    name_address: u64,
    build_id_address: u64,
}

const _: () = assert!(size_of::<ProcmapQuery>() == 104);
/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;
const VMA_WRITABLE: u64 = 2;
const VMA_SHARED: u64 = 8;

/// Opens, for reading, the file that some descriptor of this process is open on and that has this
/// device and inode number; `None` when no descriptor is. The new descriptor shares no offset or
/// flags with it.
pub fn open_file(device: u64, inode: u64) -> io::Result<Option<OwnedFd>> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        // Following the link leads to the open file itself, deleted or not; other kinds fail or
        // differ.
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        if !metadata.is_file() || !is(&metadata, device, inode) {
            continue;
        }
        let file = File::open(&path)?;
        // The descriptor may have been closed and its number reused between the two calls.
        if is(&file.metadata()?, device, inode) {
            return Ok(Some(file.into()));
        }
    }
    Ok(None)
}

/// The path that a descriptor was opened by, as the kernel has it now; `None` when it has none any
/// more.
pub fn path_of(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let is_gone = path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
    (path.is_absolute() && !is_gone).then_some(path)
}

/// Drops this process' hold on the pages of a file mapping that lie wholly inside the range; they
/// are read from the file again when touched. The caller knows that the range is a mapping without
/// own changes.
pub fn drop_pages(bytes: &[u8]) -> io::Result<()> {
    let page = rustix::param::page_size();
    let start = bytes.as_ptr().addr().next_multiple_of(page);
    let end = (bytes.as_ptr().addr() + bytes.len()) / page * page;
    if start >= end {
        return Ok(());
    }
    let first = bytes.as_ptr().with_addr(start).cast_mut().cast();
    // SAFETY: the range lies inside the borrowed bytes. On a file mapping without own changes
    // dropping pages changes no byte: the caller established that from `own_changes`.
    unsafe { rustix::mm::madvise(first, end - start, Advice::LinuxDontNeed) }?;
    Ok(())
}

/// Tells whether every page that holds one of these bytes is in memory now.
pub fn is_resident(bytes: &[u8]) -> bool {
    let page = rustix::param::page_size();
    let start = bytes.as_ptr().addr() / page * page;
    let length = bytes.as_ptr().addr() + bytes.len() - start;
    let mut pages = vec![0u8; length.div_ceil(page)];
    let first = bytes.as_ptr().with_addr(start).cast_mut().cast();
    // SAFETY: mincore only asks about the pages of the borrowed range and writes one byte per page
    // into `pages`, which has exactly that many.
    let result = unsafe { libc::mincore(first, length, pages.as_mut_ptr()) };
    result == 0 && pages.iter().all(|page| page & 1 == 1)
}

fn is(metadata: &std::fs::Metadata, device: u64, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.dev() == device && metadata.ino() == inode
}

fn parse_line(line: &[u8]) -> Option<FileMapping> {
    // The five fields before the path are ASCII; the path may hold any byte and is not used.
    let mut fields = line
        .split(|byte| *byte == b' ')
        .map_while(|f| std::str::from_utf8(f).ok());
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
    let major = u32::from_str_radix(major, 16).ok()?;
    let minor = u32::from_str_radix(minor, 16).ok()?;
    Some(FileMapping {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        file_offset,
        own_changes: permissions.get(1) == Some(&b'w') || permissions.get(3) != Some(&b's'),
        device: rustix::fs::makedev(major, minor),
        inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_listing_gives_files_and_joins_what_continues() {
        let listing = b"7f00-8f00 r--s 00001000 08:02 77 /m/a \\012b.gguf (deleted)\n\
            8f00-9f00 r--s 00002000 08:02 77 /m/a\n\
            9f00-af00 rw-p 00003000 08:02 77 /m/a\n\
            af00-bf00 rw-p 00000000 00:00 0 [heap]\n\
            cf00-df00 r--s 00000000 08:02 78 /m/\xff\xfe\n\
            not a line\n";
        let maps = ProcessMaps::parse(listing);
        let first = maps
            .find(0x7f10, 0x1f00)
            .expect("because the two lines continue each other");
        assert_eq!((first.inode, first.device), (77, rustix::fs::makedev(8, 2)));
        assert_eq!(first.offset_of(0x7f10), 0x1010);
        assert!(!first.own_changes);
        assert!(
            maps.find(0x9f00, 1)
                .expect("because it is a file")
                .own_changes
        );
        assert!(maps.find(0xaf00, 1).is_none());
        assert!(maps.touches(0xaeff, 2) && !maps.touches(0xaf00, 0x2000));
        assert!(maps.touches(0xbfff, 0x1002) && !maps.touches(0, 0x7f00));
        assert!(
            maps.find(0x8f00, 0x2000).is_none(),
            "a range over two mappings is in none"
        );
        assert_eq!(maps.find(0xcf00, 1).map(|m| m.inode), Some(78));
        assert!(maps.find(0, 1).is_none());
    }

    #[test]
    fn an_own_mapping_leads_back_to_its_file_even_when_the_name_is_gone() {
        use std::os::unix::fs::MetadataExt as _;
        let mut file = tempfile::tempfile().expect("because a temp folder is there");
        file.write_all(&[3; 20_000])
            .expect("because the disk has room");
        let metadata = file.metadata().expect("because it is open");
        let found = open_file(metadata.dev(), metadata.ino()).expect("because /proc is there");
        let found = File::from(found.expect("because the file is open here"));
        assert_eq!(
            found.metadata().expect("because it is open").ino(),
            metadata.ino()
        );
        drop((file, found));
        let gone = open_file(metadata.dev(), metadata.ino()).expect("because /proc is there");
        assert!(gone.is_none());
    }

    #[test]
    fn a_mapping_that_went_is_known_to_be_gone() {
        let mut file = tempfile::tempfile().expect("because a temp folder is there");
        file.write_all(&[3; 20_000])
            .expect("because the disk has room");
        let flags = rustix::mm::MapFlags::SHARED;
        let read = rustix::mm::ProtFlags::READ;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, read, flags, &file, 4096) }
                .expect("because the file is that long");
        let address = start.addr();
        let maps = ProcessMaps::read().expect("because /proc is there");
        let found = maps
            .find(address, 8192)
            .expect("because it was just mapped")
            .clone();
        assert_eq!(found.offset_of(address), 4096);
        let answers = |address| still_maps(&found, address).unwrap_or(true);
        assert!(answers(address) && answers(address + 8191));
        // SAFETY: nobody uses the mapping.
        unsafe { rustix::mm::munmap(start, 8192) }.expect("because it is mapped");
        assert_ne!(still_maps(&found, address), Some(true));
    }
}
