//! Hashes the program and the libraries of a process, through the process itself.
//!
//! A file is found by what the process executes and has mapped, not by a name: one that was
//! replaced since has another inode, and then it is the mapped one that is hashed.

use crate::procfs::{MappedFile, Process, Unreadable};
use crate::records::{LoadedContent, LoadedFile};
use packhouse_base::digest::Digest;
use packhouse_hash::Sha256;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;

/// The program, and every other mapped file that is a library.
pub(super) fn files(process: &Process) -> (LoadedFile, Vec<LoadedFile>) {
    let mapped = process.mapped_files();
    let executable = process.executable();
    let path = match &executable {
        Ok(executable) => executable.path.clone(),
        Err(_) => PathBuf::new(),
    };
    let program = LoadedFile {
        path,
        content: content(process.open_executable()),
    };
    let mapped = match mapped {
        Ok(mapped) => mapped,
        Err(why) => {
            let unknown = LoadedFile {
                path: PathBuf::from("maps"),
                content: LoadedContent::Unknown {
                    why: why.to_string(),
                },
            };
            return (program, vec![unknown]);
        }
    };
    let program_inode = executable
        .ok()
        .map(|executable| (executable.device, executable.inode));
    let mut code = BTreeMap::new();
    for file in mapped {
        let inode = (file.device, file.inode);
        if is_library(&file) && program_inode != Some(inode) {
            code.entry((file.path.clone(), inode)).or_insert(file);
        }
    }
    let libraries = code.into_values().filter_map(|file| {
        let content = library(process.open_mapped(&file), &file)?;
        Some(LoadedFile {
            path: file.path,
            content,
        })
    });
    (program, libraries.collect())
}

/// What is mapped and may hold code. Device nodes are never opened: that may do something.
fn is_library(file: &MappedFile) -> bool {
    let apart = ["/dev", "/proc", "/sys"];
    file.path.is_absolute() && !apart.iter().any(|folder| file.path.starts_with(folder))
}

/// Hashes a library; `None` for a model or anything else that begins otherwise. One that can't be
/// opened is a library by its name.
fn library(file: Result<File, Unreadable>, mapped: &MappedFile) -> Option<LoadedContent> {
    let Ok(mut file) = file else {
        let name = mapped.path.file_name()?.to_string_lossy();
        return name.contains(".so").then(|| content(file));
    };
    let mut magic = [0; ELF_MAGIC.len()];
    let is_elf = file.read_exact(&mut magic).is_ok() && magic == *ELF_MAGIC;
    let file = file.rewind().map(|()| file);
    is_elf.then(|| match file {
        Ok(file) => content(Ok(file)),
        Err(error) => LoadedContent::Unknown {
            why: error.to_string(),
        },
    })
}

/// Hashes a whole file.
fn content(file: Result<File, Unreadable>) -> LoadedContent {
    let hashed = file
        .map_err(|why| why.to_string())
        .and_then(|mut file| hash(&mut file).map_err(|error| error.to_string()));
    match hashed {
        Ok((sha256, bytes)) => LoadedContent::Hashed { sha256, bytes },
        Err(why) => LoadedContent::Unknown { why },
    }
}

fn hash(file: &mut File) -> io::Result<(Digest, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Digest::from_bytes(hash.finish()), bytes))
}

const ELF_MAGIC: &[u8; 4] = b"\x7fELF";
const BUFFER_BYTES: usize = 1 << 20;
