//! Which inodes the processes of this host have mapped, as far as this user may see.
//!
//! Invariants:
//! - a match is by inode number alone, since some file systems show another device number in a
//!   process's map than in stat: it may call an object held that isn't, never the reverse;
//! - whether every process could be seen is part of the answer.
//!
//! Never: an error; what can't be read was not seen.

use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::fs::{DirAccess, Fs};
use std::collections::BTreeSet;

/// Inodes that are mapped somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    inodes: BTreeSet<u64>,
    /// Whether the maps of every process could be read.
    pub(crate) complete: bool,
}

impl Holders {
    /// Reads the maps of all processes.
    pub(crate) fn read(fs: &dyn Fs) -> Self {
        let mut holders = Self::default();
        let proc = fs.root().and_then(|root| root.open_dir("proc"));
        let Ok(names) = proc.as_ref().map_err(Clone::clone).and_then(Dir::list) else {
            return holders;
        };
        let Ok(proc) = proc else {
            return holders;
        };
        holders.complete = true;
        for name in names {
            let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
            if !is_process {
                continue;
            }
            let maps = proc
                .open_dir_for(&name, DirAccess::Lookup)
                .and_then(|dir| dir.open_file("maps"))
                .and_then(|file| read_to_end(&file));
            match maps {
                Ok(text) => holders.add(&text),
                // It ended meanwhile.
                Err(error) if error.kind == FsErrorKind::NotFound => {}
                Err(error) if error.kind == FsErrorKind::Errno(ESRCH) => {}
                Err(_) => holders.complete = false,
            }
        }
        holders
    }

    /// Whether some process that could be seen has the inode mapped.
    pub(crate) fn hold(&self, inode: u64) -> bool {
        self.inodes.contains(&inode)
    }

    /// Adds the inodes of one `/proc/PID/maps`: the fifth field of each line, 0 for none.
    fn add(&mut self, maps: &[u8]) {
        for line in maps.split(|byte| *byte == b'\n') {
            let fields = line.split(|byte| *byte == b' ').filter(|f| !f.is_empty());
            let inode = fields
                .into_iter()
                .nth(INODE_FIELD)
                .and_then(|field| std::str::from_utf8(field).ok())
                .and_then(|text| text.parse().ok());
            match inode {
                Some(0) | None => {}
                Some(inode) => {
                    self.inodes.insert(inode);
                }
            }
        }
    }
}

/// Reads a file of the process file system, whose length stat doesn't tell.
pub(crate) fn read_to_end(file: &File) -> Result<Vec<u8>, FsError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let filled = file.read_full_at(bytes.len() as u64, &mut chunk)?;
        bytes.extend_from_slice(&chunk[..filled]);
        if filled < chunk.len() || bytes.len() >= MAPS_BYTES_MAX {
            return Ok(bytes);
        }
    }
}

const INODE_FIELD: usize = 4;
const CHUNK_BYTES: usize = 64 << 10;
const MAPS_BYTES_MAX: usize = 64 << 20;
const ESRCH: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_of_each_mapped_file_is_read() {
        let mut holders = Holders::default();
        holders.add(
            b"7f00-7f01 r--s 00000000 fd:01 1234                       /store/a b\n\
              7f01-7f02 rw-p 00000000 00:00 0\n\
              7f02-7f03 r--s 00000000 fd:01 99 /x (deleted)\nshort\n",
        );
        assert!(holders.hold(1234) && holders.hold(99));
        assert!(!holders.hold(0) && !holders.hold(1));
    }
}
