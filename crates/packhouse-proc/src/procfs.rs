//! Processes, as the kernel's process files show them.
//!
//! - `parse` has the texts' forms, `process` what can be asked of one process, `read` the reads.
//!
//! Invariants:
//! - a process that has ended but was not waited for yet (a zombie) is gone;
//! - what is absent because it is hidden from us is an error, never gone: mounts with `hidepid`
//!   show a user only their own processes;
//! - a mount that numbers processes otherwise than our system calls do is refused.
//!
//! Never: a pid without the boot, namespace and start time of its process.

mod parse;
mod process;
pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tree;

pub use process::{Executable, MappedFile, OpenFile, Process, Unreadable};

use crate::identity::{AgedKey, BootId, ProcessKey, is_machine_id};
use packhouse_base::Blame;
use rustix::fs::PROC_SUPER_MAGIC;
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The kernel's process files.
#[derive(Clone, Debug)]
pub struct Procfs {
    root: PathBuf,
    boot: BootId,
    machine: Option<String>,
    pid_namespace: u64,
    /// Whether its pids are those of our system calls; not so for a tree of a test.
    is_kernel: bool,
}

/// All processes that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Those that this user may see, by pid.
    pub shown: Vec<Process>,
    /// How many there are whose existence is all that is shown.
    pub hidden_count: u32,
}

/// What became of the process of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It runs.
    Alive,
    /// It has ended, and nobody has its pid.
    Gone,
    /// It has ended, and this process has its pid now.
    Reused {
        /// Who has the pid.
        found: ProcessKey,
    },
    /// It ended with its boot.
    EarlierBoot,
    /// It is of another pid namespace: nothing is known of it here.
    OtherNamespace,
}

/// Why processes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcfsError {
    /// A file of the kernel could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// A file of the kernel is in no known form.
    #[error("{}: in no known form", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
    },
    /// The mount is of another pid namespace than this process.
    #[error("{}: of another pid namespace: we are pid {own}, there {found}", root.display())]
    OtherMount {
        /// Where it is mounted.
        root: PathBuf,
        /// Our pid by system call.
        own: u32,
        /// Our pid by the mount.
        found: u32,
    },
    /// What is asked for is of another pid namespace.
    #[error("of pid namespace {found}, and this process is of {own}")]
    OtherNamespace {
        /// Ours.
        own: u64,
        /// Theirs.
        found: u64,
    },
    /// A process has this pid, and is hidden from us.
    #[error("pid {pid}: a process that this user may not see")]
    Hidden {
        /// The pid.
        pid: u32,
    },
}

impl ProcfsError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Host
    }
}

impl Procfs {
    /// Opens the files at `/proc`, or a tree of a test in the same form. Errors when they can't be
    /// read, and on a mount whose pids are not those of this process' system calls.
    pub fn new(root: &Path) -> Result<Self, ProcfsError> {
        let folder = read::folder(root).map_err(|source| error(root, source))?;
        let stat = rustix::fs::fstatfs(&folder).map_err(|source| error(root, source))?;
        let is_kernel = stat.f_type == PROC_SUPER_MAGIC;
        if is_kernel {
            let path = root.join("self");
            let found = read::link(&folder, "self").map_err(|source| error(&path, source))?;
            let found = found.to_str().and_then(|pid| pid.parse().ok());
            let found = found.ok_or(ProcfsError::Malformed { path })?;
            let own = std::process::id();
            if own != found {
                let root = root.to_owned();
                return Err(ProcfsError::OtherMount { root, own, found });
            }
        }
        let path = root.join("sys/kernel/random/boot_id");
        let boot = read::path(&path).map_err(|source| error(&path, source))?;
        let boot = String::from_utf8_lossy(&boot).trim_end().parse();
        let boot = boot.map_err(|_| ProcfsError::Malformed { path })?;
        let path = root.join("self/ns/pid");
        let namespace =
            read::link(&folder, "self/ns/pid").map_err(|source| error(&path, source))?;
        let pid_namespace =
            parse::inode_of(&namespace, "pid").ok_or(ProcfsError::Malformed { path })?;
        let path = match is_kernel {
            true => PathBuf::from("/etc/machine-id"),
            false => root.join("machine-id"),
        };
        let machine = read::path(&path).ok();
        let machine = machine.and_then(|id| String::from_utf8(id).ok());
        let machine = machine.map(|id| id.trim_end().to_owned());
        Ok(Self {
            root: root.to_owned(),
            boot,
            machine: machine.filter(|id| is_machine_id(id)),
            pid_namespace,
            is_kernel,
        })
    }

    /// The boot that runs.
    pub fn boot_id(&self) -> BootId {
        self.boot
    }

    /// The id of this machine, the same after every boot; none where it has none, as in some
    /// containers.
    pub fn machine_id(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The pid namespace whose pids these are.
    pub fn pid_namespace(&self) -> u64 {
        self.pid_namespace
    }

    /// The folder of the files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The pids of all processes that are shown, rising.
    pub fn pids(&self) -> Result<Vec<u32>, ProcfsError> {
        let names =
            read::names(rustix::fs::CWD, &self.root).map_err(|source| error(&self.root, source))?;
        let pid_of = |name: &std::ffi::OsString| name.to_str()?.parse().ok();
        let mut pids: Vec<u32> = names.iter().filter_map(pid_of).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// The key of this process itself.
    pub fn own_key(&self) -> Result<ProcessKey, ProcfsError> {
        let path = self.root.join("self/stat");
        let bytes = read::path(&path).map_err(|source| error(&path, source))?;
        let stat = parse::Stat::parse(&bytes).ok_or(ProcfsError::Malformed { path })?;
        Ok(self.key(&stat))
    }

    /// Clock ticks from boot to now: what starts later has no smaller start time.
    pub fn now_ticks(&self) -> Result<u64, ProcfsError> {
        let path = self.root.join("uptime");
        let bytes = read::path(&path).map_err(|source| error(&path, source))?;
        let text = String::from_utf8_lossy(&bytes);
        parse::ticks_of(&text, rustix::param::clock_ticks_per_second())
            .ok_or(ProcfsError::Malformed { path })
    }

    /// A key of this boot with the age of its process, for people.
    pub fn aged(&self, key: ProcessKey) -> AgedKey {
        let now_ticks = self.now_ticks().ok().filter(|_| key.boot == self.boot_id());
        AgedKey { key, now_ticks }
    }

    /// The key of the process that has a pid now; `None` when nobody has it or it has ended.
    pub fn key_of(&self, pid: u32) -> Result<Option<ProcessKey>, ProcfsError> {
        let found = self.stat(pid)?.filter(|(_, stat)| !stat.has_ended());
        Ok(found.map(|(_, stat)| self.key(&stat)))
    }

    /// The process that has a pid now; `None` when nobody has it or it has ended.
    pub fn process(&self, pid: u32) -> Result<Option<Process>, ProcfsError> {
        let Some((folder, stat)) = self.stat(pid)? else {
            return Ok(None);
        };
        if stat.has_ended() {
            return Ok(None);
        }
        let path = self.root.join(format!("{pid}/status"));
        let status = match read::at(&folder, "status") {
            Ok(status) => status,
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return Err(ProcfsError::Hidden { pid }),
            Err(source) => return Err(ProcfsError::Read { path, source }),
        };
        let status = String::from_utf8_lossy(&status);
        let (Some(uid), Some(affinity)) = (parse::user_of(&status), parse::cores_of(&status))
        else {
            return Err(ProcfsError::Malformed { path });
        };
        Ok(Some(Process {
            key: self.key(&stat),
            parent: stat.parent,
            session: stat.session,
            group: stat.group,
            state: stat.state,
            uid,
            name: String::from_utf8_lossy(&stat.name).into_owned(),
            affinity,
            is_kernel_thread: stat.is_kernel_thread(),
            is_below: parse::is_below(&status),
            folder: self.root.join(pid.to_string()),
        }))
    }

    /// All processes. Who is born meanwhile is looked for too, so that a process which goes on
    /// under another pid while this reads is not missed.
    pub fn processes(&self) -> Result<Processes, ProcfsError> {
        let mut processes = Processes::default();
        let mut asked = BTreeSet::new();
        for _ in 0..LISTINGS_MAX {
            let mut pids = self.pids()?;
            pids.retain(|pid| asked.insert(*pid));
            if pids.is_empty() {
                break;
            }
            for pid in pids {
                match self.process(pid) {
                    Ok(Some(process)) => processes.shown.push(process),
                    Ok(None) => {}
                    Err(ProcfsError::Hidden { .. }) => processes.hidden_count += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        processes.shown.sort_by_key(|process| process.key.pid);
        Ok(processes)
    }

    /// What became of the process of a key.
    pub fn presence(&self, key: &ProcessKey) -> Result<Presence, ProcfsError> {
        if key.boot != self.boot {
            return Ok(Presence::EarlierBoot);
        }
        if key.pid_namespace != self.pid_namespace {
            return Ok(Presence::OtherNamespace);
        }
        Ok(match self.key_of(key.pid)? {
            None => Presence::Gone,
            Some(found) if found == *key => Presence::Alive,
            Some(found) => Presence::Reused { found },
        })
    }

    /// Whether a process still has its pid: it runs, or has ended and was not waited for. As long
    /// as it has, the numbers of its session and group are not given again.
    pub fn has_its_pid(&self, key: &ProcessKey) -> Result<bool, ProcfsError> {
        let found = self.stat(key.pid)?;
        Ok(found.is_some_and(|(_, stat)| self.key(&stat) == *key))
    }

    fn key(&self, stat: &parse::Stat) -> ProcessKey {
        ProcessKey {
            boot: self.boot,
            pid_namespace: self.pid_namespace,
            pid: stat.pid,
            start_ticks: stat.start_ticks,
        }
    }

    /// Holds a process' folder and reads its `stat`; `None` when nobody has the pid.
    fn stat(&self, pid: u32) -> Result<Option<(rustix::fd::OwnedFd, parse::Stat)>, ProcfsError> {
        let path = self.root.join(pid.to_string());
        for _ in 0..APPEARANCE_TRIES {
            let found = read::folder(&path)
                .and_then(|folder| read::at(&folder, "stat").map(|bytes| (folder, bytes)));
            match found {
                Ok((folder, bytes)) => {
                    let path = path.join("stat");
                    let stat = parse::Stat::parse(&bytes).filter(|stat| stat.pid == pid);
                    let stat = stat.ok_or(ProcfsError::Malformed { path })?;
                    return Ok(Some((folder, stat)));
                }
                Err(Errno::NOENT | Errno::SRCH) if !self.exists(pid) => return Ok(None),
                // Somebody has the pid: born since the read, or hidden.
                Err(Errno::NOENT | Errno::SRCH) => {}
                Err(Errno::ACCESS | Errno::PERM) => return Err(ProcfsError::Hidden { pid }),
                Err(source) => {
                    let path = path.join("stat");
                    return Err(ProcfsError::Read { path, source });
                }
            }
        }
        Err(ProcfsError::Hidden { pid })
    }

    /// Asks the kernel itself, which tells of hidden processes too.
    fn exists(&self, pid: u32) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| self.is_kernel) else {
            return false;
        };
        rustix::process::test_kill_process(pid) != Err(Errno::SRCH)
    }
}

fn error(path: &Path, source: Errno) -> ProcfsError {
    let path = path.to_owned();
    ProcfsError::Read { path, source }
}

/// How often the pids are listed again for those that are new.
const LISTINGS_MAX: u32 = 32;
/// How often a process is read that the kernel knows and the files do not show.
const APPEARANCE_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::tree::{BOOT, Fake, OBSERVER_PID, PID_NAMESPACE, Tree};
    use super::*;

    fn procfs(tree: &Tree) -> Procfs {
        Procfs::new(tree.root()).expect("because the tree is whole")
    }

    fn process(procfs: &Procfs, pid: u32) -> Process {
        let found = procfs.process(pid).expect("because the tree is whole");
        found.expect("because it is in the tree")
    }

    #[test]
    fn a_process_is_read_with_its_key() {
        let tree = Tree::new();
        tree.put(&Fake {
            name: b"a) Z 1\n(b".to_vec(),
            parent: 7,
            session: 40,
            cores: "0-2,5",
            command: b"/opt/x\0--port\0\x38\0".to_vec(),
            environment: b"A=1\0B=2=3\0".to_vec(),
            ..Fake::new(41, 9000)
        });
        let procfs = procfs(&tree);
        assert_eq!(procfs.boot_id().to_string(), BOOT);
        assert_eq!(procfs.pid_namespace(), PID_NAMESPACE);
        assert_eq!(procfs.now_ticks(), Ok(12_345));
        assert_eq!(procfs.pids(), Ok(vec![41, OBSERVER_PID]));
        let own = procfs.own_key().expect("because the tree is whole");
        assert_eq!((own.pid, own.start_ticks), (OBSERVER_PID, 500));
        let found = process(&procfs, 41);
        assert_eq!(found.name, "a) Z 1\n(b");
        assert_eq!((found.parent, found.session, found.uid), (7, 40, 1000));
        assert_eq!(found.affinity.to_string(), "0-2,5");
        assert_eq!(procfs.key_of(41), Ok(Some(found.key)));
        assert_eq!(found.key.to_string(), "pid 41 (started 90.00 s after boot)");
        let command = found.command().expect("because it has one");
        assert_eq!(command, ["/opt/x", "--port", "8"]);
        let environment = found.environment().expect("because it has one");
        assert_eq!(environment[1], ("B".into(), "2=3".into()));
        let program = found.executable().expect("because it has one");
        assert_eq!(program.path, tree.root().join("bin/server"));
        assert!(!program.deleted);
        // A map's device and inode are not those of what lies at its path now.
        let mapped = found.mapped_files().expect("because it maps");
        let replaced = found
            .open_mapped(&mapped[0])
            .expect_err("because it is not there");
        assert_eq!(replaced.to_string(), "/bin/server: another file by now");
    }

    #[test]
    fn each_end_of_a_process_is_told_from_the_others() {
        let tree = Tree::new();
        tree.put(&Fake::new(41, 9000));
        let procfs = procfs(&tree);
        let key = process(&procfs, 41).key;
        let presence = |key: ProcessKey| procfs.presence(&key).expect("because it can be read");
        assert_eq!(presence(key), Presence::Alive);
        assert_eq!(procfs.has_its_pid(&key), Ok(true));
        let boot = "11111111-2222-3333-4444-555555555556".parse();
        let boot = boot.expect("because it is an id");
        assert_eq!(presence(ProcessKey { boot, ..key }), Presence::EarlierBoot);
        let elsewhere = ProcessKey {
            pid_namespace: 1,
            ..key
        };
        assert_eq!(presence(elsewhere), Presence::OtherNamespace);

        tree.put(&Fake {
            state: 'Z',
            ..Fake::new(41, 9000)
        });
        assert_eq!(presence(key), Presence::Gone, "a zombie has ended");
        assert_eq!(procfs.process(41), Ok(None));
        assert_eq!(procfs.has_its_pid(&key), Ok(true), "and keeps its pid");

        tree.put(&Fake {
            state: 'Z',
            threads: 2,
            ..Fake::new(41, 9000)
        });
        assert_eq!(presence(key), Presence::Alive, "its other thread runs");

        tree.put(&Fake::new(41, 9001));
        let found = process(&procfs, 41).key;
        assert_eq!(presence(key), Presence::Reused { found });
        assert_eq!(procfs.has_its_pid(&key), Ok(false));

        tree.end(41);
        assert_eq!(presence(key), Presence::Gone);
        assert_eq!(procfs.has_its_pid(&key), Ok(false));
    }

    #[test]
    fn no_answer_is_taken_from_the_process_that_has_the_pid_by_now() {
        let tree = Tree::new();
        let fake = |start_ticks| Fake {
            files: vec![(3, "socket:[77]".into())],
            fdinfo: vec![(3, "pos:\t0\n".into())],
            ..Fake::new(41, start_ticks)
        };
        tree.put(&fake(9000));
        let procfs = procfs(&tree);
        let before = process(&procfs, 41);
        let files = before.open_files().expect("because it has some");
        assert_eq!((files[0].fd, files[0].socket_inode), (3, Some(77)));
        assert_eq!(before.fdinfo(3), Ok("pos:\t0\n".into()));
        assert_eq!(before.fdinfo(4), Err(Unreadable::Closed { fd: 4 }));
        tree.put(&fake(9001));
        let gone = Unreadable::Gone;
        assert_eq!(before.command(), Err(gone.clone()));
        assert_eq!(before.environment(), Err(gone.clone()));
        assert_eq!(before.executable(), Err(gone.clone()));
        assert_eq!(before.open_files(), Err(gone.clone()));
        assert_eq!(before.fdinfo(3), Err(gone.clone()));
        assert_eq!(before.mapped_files(), Err(gone.clone()));
        assert_eq!(before.private_bytes(), Err(gone.clone()));
        assert_eq!(before.cgroup(), Err(gone.clone()));
        assert_eq!(before.open_executable().err(), Some(gone));
    }

    #[test]
    fn a_process_in_the_middle_of_an_exec_has_no_environment_rather_than_an_empty_one() {
        let tree = Tree::new();
        let put = |command: &[u8]| {
            tree.put(&Fake {
                command: command.to_vec(),
                environment: Vec::new(),
                maps: String::new(),
                program: None,
                ..Fake::new(41, 9000)
            });
        };
        put(b"");
        let procfs = procfs(&tree);
        let found = process(&procfs, 41);
        assert_eq!(found.environment(), Err(Unreadable::NoProgram));
        assert_eq!(found.command(), Err(Unreadable::NoProgram));
        assert_eq!(found.mapped_files(), Err(Unreadable::NoProgram));
        assert_eq!(found.executable(), Err(Unreadable::NoProgram));
        put(b"\0");
        assert_eq!(found.environment(), Ok(Vec::new()));
    }

    #[test]
    fn private_memory_is_read_where_the_kernel_has_no_sum() {
        let tree = Tree::new();
        tree.put(&Fake::new(41, 9000));
        let procfs = procfs(&tree);
        let found = process(&procfs, 41);
        assert_eq!(found.private_bytes(), Ok(104 * 1024));
        tree.write(
            "41/smaps_rollup",
            "Private_Clean: 1 kB\nPrivate_Dirty: 2 kB\n",
        );
        let malformed = found.private_bytes().expect_err("because a line is absent");
        assert_eq!(malformed.to_string(), "smaps_rollup: in no known form");
        let whole = "Private_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwap: 4 kB\n";
        tree.write("41/smaps_rollup", whole);
        assert_eq!(found.private_bytes(), Ok(7 * 1024));
    }

    #[test]
    fn what_is_no_tree_of_processes_is_refused_by_file() {
        let refused = |tree: &Tree| {
            let error = Procfs::new(tree.root()).expect_err("because the tree is not whole");
            let root = tree.root().to_string_lossy().into_owned();
            error.to_string().replace(&root, "")
        };
        let tree = Tree::new();
        tree.write("sys/kernel/random/boot_id", "0\n");
        assert_eq!(
            refused(&tree),
            "/sys/kernel/random/boot_id: in no known form"
        );
        let tree = Tree::new();
        tree.end(OBSERVER_PID);
        assert_eq!(
            refused(&tree),
            "/self/ns/pid: No such file or directory (os error 2)"
        );

        let tree = Tree::new();
        let procfs = procfs(&tree);
        let path = tree.write("uptime", "1");
        assert_eq!(procfs.now_ticks(), Err(ProcfsError::Malformed { path }));
        for (file, text) in [("41/stat", "41 (x) S"), ("41/status", "Name:\tx\n")] {
            tree.put(&Fake::new(41, 9000));
            let path = tree.write(file, text);
            assert_eq!(procfs.process(41), Err(ProcfsError::Malformed { path }));
        }
        tree.put(&Fake::new(41, 9000));
        // The line of another pid is no line of this one.
        tree.put(&Fake::new(42, 9000));
        std::fs::copy(tree.root().join("42/stat"), tree.root().join("41/stat"))
            .expect("because the tree is ours");
        assert!(matches!(
            procfs.key_of(41),
            Err(ProcfsError::Malformed { .. })
        ));
    }
}
