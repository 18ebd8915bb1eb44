//! What kind of object a file is, by its ELF headers alone.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};
use packhouse_sys::fs::File;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// What an ELF file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// A program, and no library.
    pub(super) is_program: bool,
    /// The dynamic loader that it names.
    pub(super) interpreter: Option<PathBuf>,
    /// Whether it has a dynamic section: without one it loads nothing.
    pub(super) is_dynamic: bool,
    /// Its machine and class: a loader loads only its own.
    pub(super) machine: (u16, bool),
    /// The name that a library gives itself.
    pub(super) name: Option<OsString>,
    /// `RPATH` and `RUNPATH`: where it searches for what it loads.
    pub(super) search: [Option<OsString>; 2],
}

/// Reads an object's headers. `None`: the file is no program and no shared library, as far as its
/// headers can be read at all; what can't be parsed can't be loaded either.
pub(super) fn object(file: &File) -> io::Result<Option<Object>> {
    let mut magic = [0; IDENT_BYTES];
    let read = file.read_full_at(0, &mut magic).map_err(io::Error::other)?;
    if read < magic.len() || magic[..4] != elf::ELFMAG {
        return Ok(None);
    }
    let Some(fd) = file.as_fd() else {
        return Ok(None);
    };
    let cache = ReadCache::new(std::fs::File::from(fd.try_clone_to_owned()?));
    Ok(match magic[CLASS_AT] {
        CLASS_32 => parse::<FileHeader32<Endianness>, _>(&cache),
        CLASS_64 => parse::<FileHeader64<Endianness>, _>(&cache),
        _ => None,
    })
}

fn parse<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    data: R,
) -> Option<Object> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let kind = header.e_type(endian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return None;
    }
    let (mut interpreter, mut is_dynamic, mut is_pie) = (None, false, false);
    let (mut name, mut search, mut texts) = (None, [None, None], (0, 0));
    let segments = header.program_headers(endian, data).ok()?;
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, data).ok()? {
            interpreter = Some(PathBuf::from(OsStr::from_bytes(path)));
        }
        for entry in segment.dynamic(endian, data).ok()?.unwrap_or_default() {
            is_dynamic = true;
            match entry.tag(endian) {
                elf::DT_NULL => break,
                elf::DT_SONAME => name = Some(entry.val(endian)),
                elf::DT_RPATH => search[0] = Some(entry.val(endian)),
                elf::DT_RUNPATH => search[1] = Some(entry.val(endian)),
                elf::DT_STRTAB => texts.0 = entry.val(endian),
                elf::DT_STRSZ => texts.1 = entry.val(endian),
                elf::DT_FLAGS_1 => is_pie |= entry.val(endian) & FLAG_PIE != 0,
                _ => {}
            }
        }
    }
    // Linkers before 2.26 did not mark programs that may lie anywhere.
    let is_unmarked = interpreter.is_some() && name.is_none();
    let text = |at: u64| text::<Elf, R>(segments, endian, data, texts, at);
    Some(Object {
        is_program: kind == elf::ET_EXEC || is_pie || is_unmarked,
        interpreter,
        is_dynamic,
        machine: (header.e_machine(endian).0, header.is_class_64()),
        name: name.and_then(text),
        search: search.map(|at| at.and_then(text)),
    })
}

/// A text of the dynamic section. `None`: it lies outside of the file or of the texts, or is longer
/// than a path.
fn text<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    segments: &[Elf::ProgramHeader],
    endian: Endianness,
    data: R,
    (texts, texts_bytes): (u64, u64),
    at: u64,
) -> Option<OsString> {
    let address = texts.checked_add(at)?;
    let holding = segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let mut holding = holding.filter_map(|segment| {
        let start: u64 = segment.p_vaddr(endian).into();
        let below = address.checked_sub(start)?;
        let left = segment.p_filesz(endian).into().checked_sub(below)?;
        Some((segment.p_offset(endian).into().checked_add(below)?, left))
    });
    let (offset, left) = holding.find(|(_, left)| *left > 0)?;
    let length = left.min(texts_bytes.checked_sub(at)?).min(TEXT_BYTES_MAX);
    let bytes = data.read_bytes_at(offset, length).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(OsStr::from_bytes(&bytes[..end]).to_owned())
}

/// `DF_1_PIE` of `DT_FLAGS_1`.
const FLAG_PIE: u64 = 0x0800_0000;
/// The first bytes of a header: magic, class, byte order and so on.
const IDENT_BYTES: usize = 16;
/// Bytes of the longest text that is read.
const TEXT_BYTES_MAX: u64 = 64 << 10;
const CLASS_AT: usize = 4;
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;
