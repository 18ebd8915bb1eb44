//! Dropping files from the page cache, and proving it.

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes `files` back and drops them from the page cache.
///
/// # Errors
/// Whatever the system says, and `Other` with the number of bytes that stayed: `fincore` asks the
/// kernel by mincore.
pub fn drop_files(files: &[PathBuf]) -> io::Result<()> {
    for path in files {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let resident = resident_bytes(files)?;
    if resident == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "{resident} bytes stayed in the page cache"
        )))
    }
}

/// Reads `files` once, so that all of them are in the page cache.
///
/// # Errors
/// Whatever the system says.
pub fn warm_files(files: &[PathBuf]) -> io::Result<()> {
    for path in files {
        io::copy(&mut File::open(path)?, &mut io::sink())?;
    }
    Ok(())
}

/// Bytes of `files` in the page cache.
///
/// # Errors
/// Whatever the system says; `InvalidData` when `fincore` says no number.
pub fn resident_bytes(files: &[PathBuf]) -> io::Result<u64> {
    let mut total = 0;
    for some in files.chunks(256) {
        let output = Command::new("fincore")
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .args(some)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for word in text.split_ascii_whitespace() {
            let bytes: u64 = word.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            total += bytes;
        }
    }
    Ok(total)
}

/// All files below `folder`; none when there is no such folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_file_is_proven_cold_and_a_read_one_warm() {
        // Beside the test program: a file system whose pages can be dropped, unlike tmpfs.
        let program = std::env::current_exe().expect("it runs");
        let folder = program.parent().expect("a file has a folder");
        let file = tempfile::NamedTempFile::new_in(folder).expect("the build folder is writable");
        fs::write(file.path(), vec![1; 1 << 20]).expect("the build folder is writable");
        let files = [file.path().to_owned()];
        assert_eq!(resident_bytes(&files).expect("fincore works"), 1 << 20);
        drop_files(&files).expect("nothing else holds its pages");
        warm_files(&files).expect("it can be read");
        assert_eq!(resident_bytes(&files).expect("fincore works"), 1 << 20);
    }
}
