//! One process: what was read of it once, and what can be read of it now.
//!
//! Invariants:
//! - each question holds the process' folder, proves that it is still the process of the key, and
//!   reads below that folder only: an answer never comes from another process;
//! - what could not be read is an error with its reason, never an empty list.

use super::parse;
use super::read;
use crate::cores::CpuSet;
use crate::identity::ProcessKey;
use packhouse_base::Blame;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A process as it was when it was read. Its first thread's state and cores stand for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What names it.
    pub key: ProcessKey,
    /// The pid of its parent.
    pub parent: u32,
    /// Its session.
    pub session: i32,
    /// Its process group.
    pub group: i32,
    /// Its state's letter, of proc_pid_stat(5).
    pub state: char,
    /// The user whose rights it has.
    pub uid: u32,
    /// Its name, of at most 15 bytes, which it may change; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// The cores on which it may run.
    pub affinity: CpuSet,
    /// Whether it is a thread of the kernel.
    pub is_kernel_thread: bool,
    /// Whether it is in a pid namespace below ours, as in a container.
    pub is_below: bool,
    pub(super) folder: PathBuf,
}

/// The program of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its path when it was started, or where it was moved to since.
    pub path: PathBuf,
    /// Its device number.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Whether no name leads to it any more.
    pub deleted: bool,
}

/// An open file of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The descriptor's number.
    pub fd: u32,
    /// What it stands for, as the kernel says it.
    pub target: PathBuf,
    /// The inode of the socket that it is.
    pub socket_inode: Option<u64>,
    /// The device number of the device node that it is.
    pub rdev: Option<u64>,
}

/// A file that a process maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Its path, as the kernel says it.
    pub path: PathBuf,
    /// Whether no name leads to it any more.
    pub deleted: bool,
    /// Its device number, which some file systems give otherwise than stat does.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// First address of its first mapping.
    pub start: u64,
    /// One past the last address of its first mapping.
    pub end: u64,
}

/// Why something of a process could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The kernel gives it to others only.
    #[error("permission denied")]
    Permission,
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// It has no program: it is a thread of the kernel, or in the middle of an exec.
    #[error("the process has no program at this moment")]
    NoProgram,
    /// The process has no such descriptor: it closed it.
    #[error("descriptor {fd} is closed")]
    Closed {
        /// The descriptor's number.
        fd: u32,
    },
    /// The kernel's text is in no known form.
    #[error("{file}: in no known form")]
    Malformed {
        /// Which file of the process.
        file: &'static str,
    },
    /// Another file lies at the path by now.
    #[error("{}: another file by now", path.display())]
    Replaced {
        /// The path.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("{file}: {source}")]
    Io {
        /// Which file of the process.
        file: &'static str,
        /// Why.
        source: Errno,
    },
}

impl Unreadable {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Host
    }
}

impl Process {
    /// The words with which it was started, as it may have changed them since.
    pub fn command(&self) -> Result<Vec<OsString>, Unreadable> {
        let bytes = self.read("cmdline")?;
        if bytes.is_empty() {
            return Err(Unreadable::NoProgram);
        }
        Ok(parse::words_of(&bytes))
    }

    /// The environment with which its program was started; what it set itself since is not in it.
    pub fn environment(&self) -> Result<Vec<(OsString, OsString)>, Unreadable> {
        if self.is_kernel_thread {
            return Err(Unreadable::NoProgram);
        }
        for _ in 0..EXEC_TRIES {
            let bytes = self.read("environ")?;
            // It reads as empty until an exec is over.
            if !bytes.is_empty() || self.has_empty_environment()? {
                return Ok(parse::environment_of(&bytes));
            }
            std::thread::yield_now();
        }
        Err(Unreadable::NoProgram)
    }

    /// Its program.
    pub fn executable(&self) -> Result<Executable, Unreadable> {
        let folder = self.open()?;
        let target = read::link(&folder, "exe").map_err(|errno| self.explain("exe", errno))?;
        let stat = read::stat_at(&folder, "exe").map_err(|errno| self.explain("exe", errno))?;
        let (path, named_deleted) = parse::path_of(target.as_bytes());
        Ok(Executable {
            path,
            device: stat.st_dev,
            inode: stat.st_ino,
            deleted: named_deleted || stat.st_nlink == 0,
        })
    }

    /// Opens its program's file, deleted or not.
    pub fn open_executable(&self) -> Result<File, Unreadable> {
        let folder = self.open()?;
        read::open_at(&folder, "exe").map_err(|errno| self.explain("exe", errno))
    }

    /// Its open files, by descriptor.
    pub fn open_files(&self) -> Result<Vec<OpenFile>, Unreadable> {
        let folder = self.open()?;
        let names = read::names(&folder, "fd").map_err(|errno| self.explain("fd", errno))?;
        let files = read::folder_at(&folder, "fd").map_err(|errno| self.explain("fd", errno))?;
        let mut open = Vec::new();
        for name in names {
            let fd = name.to_str().and_then(|name| name.parse().ok());
            let fd = fd.ok_or(Unreadable::Malformed { file: "fd" })?;
            match read::link(&files, &name) {
                Ok(target) => open.push(OpenFile {
                    fd,
                    socket_inode: parse::inode_of(&target, "socket"),
                    rdev: (target.as_bytes().starts_with(b"/"))
                        .then(|| read::device_number_at(&files, &name))
                        .flatten(),
                    target: PathBuf::from(target),
                }),
                // Closed since it was listed.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.explain("fd", errno)),
            }
        }
        self.open()?;
        open.sort_by_key(|file| file.fd);
        Ok(open)
    }

    /// The kernel's text about one open file.
    pub fn fdinfo(&self, fd: u32) -> Result<String, Unreadable> {
        let folder = self.open()?;
        let read = read::at(&folder, format!("fdinfo/{fd}"));
        let bytes = read.map_err(|errno| match self.explain("fdinfo", errno) {
            Unreadable::NoProgram => Unreadable::Closed { fd },
            other => other,
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The files that it maps: its program, its libraries, models, devices. Each once.
    pub fn mapped_files(&self) -> Result<Vec<MappedFile>, Unreadable> {
        let bytes = self.read("maps")?;
        if bytes.is_empty() {
            return Err(Unreadable::NoProgram);
        }
        parse::mapped_of(&bytes).ok_or(Unreadable::Malformed { file: "maps" })
    }

    /// Opens a file that it maps: through the mapping where the kernel lets us, or else by path if
    /// that still leads to the same device and inode.
    pub fn open_mapped(&self, mapped: &MappedFile) -> Result<File, Unreadable> {
        let folder = self.open()?;
        let name = format!("map_files/{:x}-{:x}", mapped.start, mapped.end);
        let file = match read::open_at(&folder, name) {
            Ok(file) => file,
            // The kernel gives these to the administrator only; a map may be split or gone by now.
            Err(Errno::PERM | Errno::ACCESS | Errno::NOENT) => {
                read::open_at(rustix::fs::CWD, &mapped.path).map_err(|errno| match errno {
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Unreadable::Replaced {
                        path: mapped.path.clone(),
                    },
                    other => self.explain("maps", other),
                })?
            }
            Err(errno) => return Err(self.explain("map_files", errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.explain("maps", errno))?;
        if (stat.st_dev, stat.st_ino) == (mapped.device, mapped.inode) {
            return Ok(file);
        }
        Err(Unreadable::Replaced {
            path: mapped.path.clone(),
        })
    }

    /// Bytes of memory that are its own: resident pages that nobody else maps, and swapped ones.
    pub fn private_bytes(&self) -> Result<u64, Unreadable> {
        match self.read("smaps_rollup") {
            Ok(bytes) => parse::private_of_rollup(&String::from_utf8_lossy(&bytes)).ok_or(
                Unreadable::Malformed {
                    file: "smaps_rollup",
                },
            ),
            // Kernels before 4.14 have no such file.
            Err(Unreadable::NoProgram) => {
                let bytes = self.read("status")?;
                parse::private_of_status(&String::from_utf8_lossy(&bytes))
                    .ok_or(Unreadable::NoProgram)
            }
            Err(other) => Err(other),
        }
    }

    /// Its control group, from the root that this process sees.
    pub fn cgroup(&self) -> Result<Option<PathBuf>, Unreadable> {
        Ok(parse::cgroup_of(&self.read("cgroup")?))
    }

    fn has_empty_environment(&self) -> Result<bool, Unreadable> {
        let stat = parse::Stat::parse(&self.read("stat")?);
        let stat = stat.ok_or(Unreadable::Malformed { file: "stat" })?;
        Ok(stat.environment_is_empty)
    }

    fn read(&self, file: &'static str) -> Result<Vec<u8>, Unreadable> {
        let folder = self.open()?;
        read::at(&folder, file).map_err(|errno| self.explain(file, errno))
    }

    /// Holds the folder in which its files are, if it is still the process of the key: that of
    /// another thread where the first one has ended.
    fn open(&self) -> Result<OwnedFd, Unreadable> {
        let gone = |errno: Errno| match errno {
            Errno::NOENT | Errno::SRCH => Unreadable::Gone,
            Errno::ACCESS | Errno::PERM => Unreadable::Permission,
            source => Unreadable::Io {
                file: "stat",
                source,
            },
        };
        let folder = read::folder(&self.folder).map_err(gone)?;
        let stat = read::at(&folder, "stat").map_err(gone)?;
        let stat = parse::Stat::parse(&stat).ok_or(Unreadable::Malformed { file: "stat" })?;
        if stat.start_ticks != self.key.start_ticks || stat.has_ended() {
            return Err(Unreadable::Gone);
        }
        if !stat.leader_has_ended() {
            return Ok(folder);
        }
        for thread in read::names(&folder, "task").map_err(gone)? {
            let Ok(thread) = read::folder_at(&folder, PathBuf::from("task").join(thread)) else {
                continue;
            };
            let stat = read::at(&thread, "stat").ok();
            let stat = stat.and_then(|bytes| parse::Stat::parse(&bytes));
            if stat.is_some_and(|stat| stat.state != 'Z' && stat.state != 'X') {
                return Ok(thread);
            }
        }
        Err(Unreadable::Gone)
    }

    /// What an errno says about the process: a file that is absent is one thing while it lives and
    /// another once it has ended.
    fn explain(&self, file: &'static str, errno: Errno) -> Unreadable {
        match errno {
            Errno::ACCESS | Errno::PERM => Unreadable::Permission,
            Errno::NOENT | Errno::SRCH => match self.open() {
                Ok(_) => Unreadable::NoProgram,
                Err(error) => error,
            },
            source => Unreadable::Io { file, source },
        }
    }
}

/// How often an environment is asked for while the process is in the middle of an exec.
const EXEC_TRIES: u32 = 100;
