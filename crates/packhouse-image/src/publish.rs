//! Making files visible: whole or not at all, durably.
//!
//! Each publish is the same proof: a file under a name that no other writer has, in the same
//! folder, written, synced and measured, renamed over the final name, its folder synced. A crash at
//! any step leaves the old file or the whole new one, and at worst a temporary name, which the next
//! claim or collection removes: its writer has it locked for as long as it lives.
//!
//! Invariants:
//! - no two writers share a temporary file, so none can truncate or extend what another renames;
//! - after a failed write or sync the file is given up and its name removed;
//! - a file has its final mode before it has its final name;
//! - what can't come to be is refused before anything is written: a file longer than this process
//!   may write, which the system would end for trying, and one whose name a folder has.

use crate::folder::Folder;
use crate::key::ImageName;
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::path::PathBuf;

/// Why a file was not made visible, or not durably.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The system said no: no space, quota, read-only, no permission, EIO.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A folder has the name.
    #[error("{} is a folder, and an image or record would get its name", path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// The system would send SIGXFSZ, which ends a process that does not expect it.
    #[error(
        "{} would have {bytes} bytes, and this process may write files of {limit_bytes} bytes \
         (RLIMIT_FSIZE)",
        path.display()
    )]
    FileSizeLimit {
        /// The file.
        path: PathBuf,
        /// Bytes that it would have.
        bytes: u64,
        /// The process's limit.
        limit_bytes: u64,
    },
    /// The file that was written has another length than what was written.
    #[error("{} has {actual} bytes after {expected} were written", path.display())]
    Length {
        /// The temporary file.
        path: PathBuf,
        /// Bytes written.
        expected: u64,
        /// Its length by fstat.
        actual: u64,
    },
}

impl Folder {
    /// Writes an image and puts it in the place of the one of that name, if any. Returns its bytes.
    ///
    /// # Errors
    /// Names the step that failed; nothing is left under the temporary name then. When only the
    /// folder's sync failed, the image is there, but may not outlive a power cut.
    pub fn publish(
        &self,
        fs: &dyn Fs,
        name: &ImageName,
        header: &[u8],
        codes: &[i8],
        scales: &[f32],
    ) -> Result<u64, PublishError> {
        self.anchor()?;
        let bytes = header.len() as u64 + codes.len() as u64 + 4 * scales.len() as u64;
        let temp = Temp::create(fs, self.images(), &name.to_string(), bytes)?;
        temp.file.write_all_at(0, header)?;
        let mut written_bytes = header.len() as u64;
        let mut scratch = Vec::with_capacity(CHUNK_BYTES.min(codes.len().max(4 * scales.len())));
        for chunk in codes.chunks(CHUNK_BYTES) {
            scratch.clear();
            scratch.extend(chunk.iter().map(|code| code.to_le_bytes()[0]));
            written_bytes = temp.append(written_bytes, &scratch)?;
        }
        for chunk in scales.chunks(CHUNK_BYTES / 4) {
            scratch.clear();
            scratch.extend(chunk.iter().flat_map(|scale| scale.to_le_bytes()));
            written_bytes = temp.append(written_bytes, &scratch)?;
        }
        temp.publish(&name.to_string(), written_bytes, FILE_MODE)?;
        Ok(written_bytes)
    }
}

impl PublishError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Fs(error) => error.blame(),
            Self::Taken { .. } | Self::FileSizeLimit { .. } | Self::Length { .. } => Blame::Host,
        }
    }
}

/// Writes a small file in the place of another of that name.
pub(crate) fn write_small(
    fs: &dyn Fs,
    dir: &Dir,
    name: &str,
    bytes: &[u8],
    mode: u32,
) -> Result<(), PublishError> {
    let temp = Temp::create(fs, dir, name, bytes.len() as u64)?;
    temp.file.write_all_at(0, bytes)?;
    temp.publish(name, bytes.len() as u64, mode)
}

/// The name that a temporary file is to have; `None` for names that are no temporary file's.
pub(crate) fn temp_target(name: &str) -> Option<&str> {
    let (rest, random) = name
        .strip_prefix('.')?
        .strip_suffix(TEMP_SUFFIX)?
        .rsplit_once('-')?;
    let (target, process) = rest.rsplit_once('.')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let ours = random.len() == 2 * RANDOM_BYTES
        && random.bytes().all(is_hex)
        && !process.is_empty()
        && process.bytes().all(|byte| byte.is_ascii_digit())
        && !target.is_empty();
    ours.then_some(target)
}

/// Mode of images and owner records.
pub(crate) const FILE_MODE: u32 = 0o400;

const TEMP_MODE: u32 = 0o600;
const TEMP_SUFFIX: &str = ".tmp";
const RANDOM_BYTES: usize = 8;
/// A write; also how much is handed to the disk at once.
const CHUNK_BYTES: usize = 4 << 20;

/// Refuses what can't come to be.
fn judge(fs: &dyn Fs, dir: &Dir, target: &str, bytes: u64) -> Result<(), PublishError> {
    let path = || dir.path().join(target);
    if let Some(limit_bytes) = fs.file_size_limit_bytes().filter(|limit| bytes > *limit) {
        return Err(PublishError::FileSizeLimit {
            path: path(),
            bytes,
            limit_bytes,
        });
    }
    match dir.stat_entry(target) {
        Ok(stat) if stat.kind == FileKind::Directory => Err(PublishError::Taken { path: path() }),
        Err(error) if error.kind != FsErrorKind::NotFound => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A file that has no name of its own yet; dropped before `publish` is done, it leaves nothing.
struct Temp<'d> {
    dir: &'d Dir,
    name: String,
    file: File,
    renamed: bool,
}

impl<'d> Temp<'d> {
    fn create(fs: &dyn Fs, dir: &'d Dir, target: &str, bytes: u64) -> Result<Self, PublishError> {
        judge(fs, dir, target, bytes)?;
        let mut random = [0; RANDOM_BYTES];
        fs.random(&mut random)?;
        let process = std::process::id();
        let random = u64::from_be_bytes(random);
        let name = format!(".{target}.{process}-{random:016x}{TEMP_SUFFIX}");
        let file = dir.create_new(&name, TEMP_MODE)?;
        // Where files can't be locked, others go by its age.
        let _ = file.try_lock(LockKind::Exclusive, 0, 1);
        Ok(Self {
            dir,
            name,
            file,
            renamed: false,
        })
    }

    /// Writes at the end and starts the write-out, so that the sync at the end is short.
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<u64, FsError> {
        let length = bytes.len() as u64;
        self.file.write_all_at(offset, bytes)?;
        self.file.write_out(offset, length, false)?;
        Ok(offset + length)
    }

    fn publish(mut self, target: &str, expected: u64, mode: u32) -> Result<(), PublishError> {
        self.file.set_mode(mode)?;
        self.file.sync()?;
        let actual = self.file.stat()?.size;
        if actual != expected {
            return Err(PublishError::Length {
                path: self.file.path().to_owned(),
                expected,
                actual,
            });
        }
        self.dir.rename_over(&self.name, target)?;
        self.renamed = true;
        self.dir.sync()?;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // The failure that led here is the one that is told.
            let _ = self.dir.unlink(&self.name);
        }
        // Closing the file would do, but for a child that the host forked meanwhile.
        let _ = self.file.unlock(0, 1);
    }
}
