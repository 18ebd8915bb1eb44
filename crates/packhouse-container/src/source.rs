//! Where a parser reads its bytes from: memory, or a file that the caller opened.

use std::io;

/// Random access to a source of known length.
pub trait ReadAt {
    /// Length of the source in bytes, fixed for the life of this value.
    fn len(&self) -> u64;

    /// Fills `buffer` from `offset`. Errors when the source ends before the buffer is full, or as
    /// the operating system does.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Whether the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        u64::try_from(<[u8]>::len(self)).unwrap_or(u64::MAX)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..))
            .and_then(|rest| rest.get(..buffer.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl<S: ReadAt + ?Sized> ReadAt for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_at(buffer, offset)
    }
}

/// A regular file that the caller opened, with the length that fstat gave when this was made.
///
/// Reads don't move the file's position. A file that shrinks later gives read errors; whoever
/// needs to know that it did not change compares its stat identity before and after.
#[derive(Debug)]
pub struct FileSource<'a> {
    file: &'a std::fs::File,
    bytes: u64,
}

impl<'a> FileSource<'a> {
    /// Takes the length by fstat. Errors when fstat fails and, with `InvalidInput`, when the file
    /// is not a regular one (a pipe, a device, a folder).
    pub fn new(file: &'a std::fs::File) -> io::Result<Self> {
        let stat = file.metadata()?;
        if !stat.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(Self {
            file,
            bytes: stat.len(),
        })
    }
}

impl ReadAt for FileSource<'_> {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self.file, buffer, offset)
    }
}
