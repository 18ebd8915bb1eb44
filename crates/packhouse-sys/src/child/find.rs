//! A program by the name that a user typed, in a search path that the caller gives.

use super::StartError;
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Finds a program as a shell does: a name with a slash is taken from `folder`, any other from the
/// folders of `search` (`PATH`'s form; relative ones are passed over). The answer is an absolute
/// path that was an executable file a moment ago.
///
/// # Errors
/// When no folder has it, or what is named is no file that may be executed.
pub fn find(program: &OsStr, search: &OsStr, folder: &Path) -> Result<PathBuf, StartError> {
    let missing = || StartError::NotFound {
        program: PathBuf::from(program),
    };
    if program.is_empty() {
        return Err(missing());
    }
    if program.as_bytes().contains(&b'/') {
        let path = folder.join(program);
        if !path.is_absolute() {
            return Err(StartError::Relative { program: path });
        }
        return match is_executable(&path) {
            Ok(true) => Ok(path),
            Ok(false) => Err(refused(path, "not a file that may be executed")),
            Err(errno) => Err(refused(path, &std::io::Error::from(errno).to_string())),
        };
    }
    let folders = search.as_bytes().split(|byte| *byte == b':');
    folders
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|path| is_executable(path) == Ok(true))
        .ok_or_else(missing)
}

fn refused(program: PathBuf, reason: &str) -> StartError {
    StartError::Program {
        program,
        reason: reason.to_owned(),
    }
}

fn is_executable(path: &Path) -> Result<bool, rustix::io::Errno> {
    let stat = stat(path)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(is_file && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok())
}
