//! The right to look at devices and start something on them: one lock per device.
//!
//! Invariants:
//! - a device is locked for this user in the state folder, and for the whole machine on its own
//!   sysfs file, where that can be opened; both go with their descriptors, at death too;
//! - everybody takes locks in one order: this user's by device, then the machine's by file; so
//!   nobody waits in a circle;
//! - sets of cores are locked core by core, as they overlap, and a part of a card with its card.
//!
//! Never: waits without a bound, or believes a note about its holder that no living process proves.
//! Design: `docs/design/holders.md`.

use crate::devices::{Device, DeviceId, Vendor};
use crate::identity::{AgedKey, ProcessKey};
use crate::procfs::{Presence, Process, Procfs, ProcfsError};
use packhouse_base::digest::Digest;
use packhouse_base::{Blame, canonical};
use packhouse_store::folders::{Links, MakeModes, open_or_make, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where locks are, and who takes them.
#[derive(Clone, Copy)]
pub struct LockSite<'a> {
    /// The file system.
    pub fs: &'a dyn Fs,
    /// The clock that waits.
    pub clock: &'a dyn Clock,
    /// The processes, to name a holder.
    pub procfs: &'a Procfs,
    /// The root of this user's private state.
    pub state: &'a Path,
    /// `/sys`, for the files of cores.
    pub sys: &'a Path,
}

/// Locks on devices; given back when dropped, at death too.
#[derive(Debug)]
pub struct DeviceLocks {
    users: Vec<File>,
    machines: Vec<OwnedFd>,
    user_only: Vec<UserOnly>,
}

/// A device whose lock holds among this user's processes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserOnly {
    /// Which.
    pub device: DeviceId,
    /// Why there is none for the whole machine.
    pub why: String,
}

/// Whom a lock keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockScope {
    /// Other processes of this user.
    User,
    /// Processes of every user.
    Machine,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// This process.
    Process {
        /// Its key.
        key: AgedKey,
        /// Its name.
        name: String,
    },
    /// Somebody who can't be named: the reason.
    Unnamed {
        /// Why.
        why: String,
    },
}

/// Why devices could not be locked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody else has the lock, and did not give it back in time.
    #[error("{device} is locked {scope} by {holder}; waited {} s", waited_ns / 1_000_000_000)]
    Held {
        /// The device.
        device: DeviceId,
        /// Whom the lock keeps out.
        scope: LockScope,
        /// Who has it.
        holder: LockHolder,
        /// How long was waited.
        waited_ns: u64,
    },
    /// The folder of locks can't be opened or is not trusted.
    #[error(transparent)]
    Folder(Box<OpenError>),
    /// A folder of locks that others can enter.
    #[error("{} has mode {mode:04o}, expected 0700", path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The machine's lock could be neither had nor refused.
    #[error("lock {}: {source}", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// This process can't name itself.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl LockError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Held { .. } | Self::Mode { .. } | Self::Machine { .. } => Blame::Host,
            Self::Folder(error) => error.blame(),
            Self::Procfs(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

impl From<OpenError> for LockError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fs(error) => Self::Fs(error),
            other => Self::Folder(Box::new(other)),
        }
    }
}

impl DeviceLocks {
    /// Waits for the locks of all these devices, and for that of a port among this user's
    /// processes; the bound is for all of them together. Errors name the device and who has it;
    /// what was locked until then is given back.
    pub fn take(
        site: &LockSite<'_>,
        devices: &[Device],
        port: Option<u16>,
        timeout_ns: u64,
    ) -> Result<Self, LockError> {
        let wait = Wait {
            start_ns: site.clock.steady_ns(),
            timeout_ns,
        };
        let wanted = wanted(site.sys, devices);
        let mut locks = Self {
            users: Vec::new(),
            machines: Vec::new(),
            user_only: Vec::new(),
        };
        let me = canonical::render(&site.procfs.own_key()?.to_value());
        let folder = folder(site)?;
        // A port is locked as a device is, after all devices.
        let port = port.map(|port| DeviceId::recorded(&format!("port:{port}")));
        for device in wanted.keys().chain(&port) {
            locks
                .users
                .push(user_lock(site, &folder, device, &me, wait)?);
        }
        let mut files: BTreeMap<&Path, &DeviceId> = BTreeMap::new();
        for (device, file) in &wanted {
            match file {
                Some(file) => {
                    files.entry(file).or_insert(device);
                }
                None => locks.user_only.push(UserOnly {
                    device: device.clone(),
                    why: "it has no file in sysfs".to_owned(),
                }),
            }
        }
        for (path, device) in files {
            match machine_lock(site, path, device, wait)? {
                Ok(held) => locks.machines.push(held),
                Err(errno) => locks.user_only.push(UserOnly {
                    device: device.clone(),
                    why: format!("open {}: {errno}", path.display()),
                }),
            }
        }
        Ok(locks)
    }

    /// The devices that other users' processes are not kept out of.
    pub fn user_only(&self) -> &[UserOnly] {
        &self.user_only
    }
}

impl Drop for DeviceLocks {
    fn drop(&mut self) {
        // By hand, as a process that was forked and did not exec yet has copies of the descriptors.
        // What fails here, closing them does.
        for held in &self.machines {
            let _ = rustix::fs::flock(held, FlockOperation::Unlock);
        }
        for held in &self.users {
            let _ = held.set_length(0);
            let _ = held.unlock(0, 1);
        }
    }
}

impl fmt::Display for LockScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "for this user",
            Self::Machine => "for all users",
        })
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { key, name } => write!(f, "{name}, {key}"),
            Self::Unnamed { why } => write!(f, "a process that can't be named ({why})"),
        }
    }
}

/// How long is waited, from when.
#[derive(Clone, Copy)]
struct Wait {
    start_ns: u64,
    timeout_ns: u64,
}

impl Wait {
    fn passed_ns(self, clock: &dyn Clock) -> u64 {
        clock.steady_ns().saturating_sub(self.start_ns)
    }

    fn left_ns(self, clock: &dyn Clock) -> u64 {
        self.timeout_ns.saturating_sub(self.passed_ns(clock))
    }
}

/// The names to lock, each with the file that locks it for the whole machine.
fn wanted(sys: &Path, devices: &[Device]) -> BTreeMap<DeviceId, Option<PathBuf>> {
    let mut wanted = BTreeMap::new();
    for device in devices {
        match (device.vendor, &device.cores) {
            (Vendor::Cpu, Some(cores)) => {
                for core in cores.iter() {
                    let file = sys.join(format!("devices/system/cpu/cpu{core}/uevent"));
                    wanted.insert(DeviceId::recorded(&format!("cpu:{core}")), Some(file));
                }
            }
            (Vendor::Cpu, None)
            | (Vendor::Nvidia | Vendor::Intel | Vendor::Amd | Vendor::Other, _) => {
                let card = device.parent.as_ref().unwrap_or(&device.id);
                let file = device.sysfs.as_ref().map(|folder| folder.join("uevent"));
                let known: &mut Option<PathBuf> = wanted.entry(card.clone()).or_default();
                *known = known.take().or(file);
            }
        }
    }
    wanted
}

/// Opens or makes the folder of locks, by the rules of all our folders.
fn folder(site: &LockSite<'_>) -> Result<Dir, LockError> {
    let uid = site.fs.effective_uid();
    let modes = MakeModes {
        parents: DIR_MODE,
        last: DIR_MODE,
    };
    let owners = Owners::new(uid, &[]);
    let (_, state) = walk(site.fs, &owners, site.state, Some(modes), Links::Follow)?;
    let dir = open_or_make(&state, FOLDER, DIR_MODE, &Owners::only(uid), true)?;
    let mode = dir.stat()?.mode & 0o7777;
    if mode & 0o077 != 0 {
        let path = dir.path().to_owned();
        return Err(LockError::Mode { path, mode });
    }
    Ok(dir)
}

fn user_lock(
    site: &LockSite<'_>,
    folder: &Dir,
    device: &DeviceId,
    me: &[u8],
    wait: Wait,
) -> Result<File, LockError> {
    let file = open_or_create(folder, &file_name(device))?;
    let left_ns = wait.left_ns(site.clock);
    if file.lock_within(site.clock, LockKind::Exclusive, (0, 1), left_ns)? {
        // Only for the error of the next one, so it need not be durable.
        file.set_length(0)?;
        file.write_all_at(0, me)?;
        return Ok(file);
    }
    Err(LockError::Held {
        device: device.clone(),
        scope: LockScope::User,
        holder: noted(site.procfs, &file),
        waited_ns: wait.passed_ns(site.clock),
    })
}

/// The name of a device's lock: a digest, as ids have characters that names have not.
fn file_name(device: &DeviceId) -> String {
    Digest::of(device.as_str().as_bytes()).to_string()
}

fn open_or_create(dir: &Dir, name: &str) -> Result<File, FsError> {
    match dir.open_file_writable(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        other => return other,
    }
    match dir.create_new(name, FILE_MODE) {
        Err(error) if error.kind == FsErrorKind::Exists => dir.open_file_writable(name),
        other => other,
    }
}

/// Who noted itself in a lock, if that process lives: a note outlives its writer.
fn noted(procfs: &Procfs, file: &File) -> LockHolder {
    let unnamed = |why: &str| LockHolder::Unnamed {
        why: why.to_owned(),
    };
    let Ok(bytes) = file.read_small(NOTE_BYTES_MAX) else {
        return unnamed("its note can't be read");
    };
    let Some(key) = canonical::parse(&bytes).ok().and_then(|v| key_of(&v)) else {
        return unnamed("it left no note");
    };
    match procfs.presence(&key) {
        Ok(Presence::Alive) => named(procfs, key),
        Ok(Presence::Gone | Presence::Reused { .. } | Presence::EarlierBoot) => {
            unnamed("the last that noted itself has ended")
        }
        Ok(Presence::OtherNamespace) => unnamed("it is in another container"),
        Err(_) => unnamed("processes can't be read"),
    }
}

fn key_of(value: &serde_json::Value) -> Option<ProcessKey> {
    Some(ProcessKey {
        boot: value["boot"].as_str()?.parse().ok()?,
        pid_namespace: value["pid_namespace"].as_u64()?,
        pid: u32::try_from(value["pid"].as_u64()?).ok()?,
        start_ticks: value["start_ticks"].as_u64()?,
    })
}

fn named(procfs: &Procfs, key: ProcessKey) -> LockHolder {
    let process = procfs.process(key.pid).ok().flatten();
    match process.filter(|process| process.key == key) {
        Some(process) => LockHolder::Process {
            key: procfs.aged(key),
            name: whose(&process, rustix::process::geteuid().as_raw()),
        },
        None => LockHolder::Unnamed {
            why: format!("{key} has just ended"),
        },
    }
}

/// A process' name, and its user where that is another: only that user or root can end it.
fn whose(process: &Process, own_uid: u32) -> String {
    match process.uid == own_uid {
        true => process.name.clone(),
        false => format!("{} of user {}", process.name, process.uid),
    }
}

/// Takes the machine's lock; the inner error says that there is none to take.
fn machine_lock(
    site: &LockSite<'_>,
    path: &Path,
    device: &DeviceId,
    wait: Wait,
) -> Result<Result<OwnedFd, Errno>, LockError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(errno) => return Ok(Err(errno)),
    };
    let mut pause_ns = PAUSE_MIN_NS;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Ok(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(source) => {
                let path = path.to_owned();
                return Err(LockError::Machine { path, source });
            }
        }
        let left_ns = wait.left_ns(site.clock);
        if left_ns == 0 {
            return Err(LockError::Held {
                device: device.clone(),
                scope: LockScope::Machine,
                holder: listed(site.procfs, &file),
                waited_ns: wait.passed_ns(site.clock),
            });
        }
        site.clock.sleep_ns(pause_ns.min(left_ns));
        pause_ns = (pause_ns * 2).min(PAUSE_MAX_NS);
    }
}

/// Who has the lock by the kernel's list.
fn listed(procfs: &Procfs, file: &OwnedFd) -> LockHolder {
    let unnamed = |why: &str| LockHolder::Unnamed {
        why: why.to_owned(),
    };
    let Ok(stat) = rustix::fs::fstat(file) else {
        return unnamed("its lock can't be looked at");
    };
    let path = procfs.root().join("locks");
    let Ok(bytes) = crate::procfs::read::path(&path) else {
        return unnamed("the kernel's list of locks can't be read");
    };
    let text = String::from_utf8_lossy(&bytes);
    let device = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let pids = flock_pids(&text, device, stat.st_ino);
    for pid in pids {
        if let Ok(Some(key)) = procfs.key_of(pid) {
            return named(procfs, key);
        }
    }
    unnamed("the kernel's list does not show it here")
}

/// The pids that have or share a lock of flock(2) on a file, by the text of `/proc/locks`; who
/// waits for one is listed with an arrow and is none of them.
fn flock_pids(text: &str, device: (u32, u32), inode: u64) -> BTreeSet<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let is_flock = fields.next()? == "FLOCK";
            let pid = fields.nth(2)?.parse().ok()?;
            (is_flock && fields.next()? == place).then_some(pid)
        })
        .collect()
}

/// The folder of locks in the private state.
const FOLDER: &str = "locks";
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const NOTE_BYTES_MAX: u64 = 4096;
const PAUSE_MIN_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_locks_for_all_is_named_with_another_user() {
        let tree = crate::procfs::tree::Tree::new();
        tree.put(&crate::procfs::tree::Fake::new(41, 9000));
        let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
        let process = procfs.process(41).expect("because it can be read");
        let process = process.expect("because it is there");
        assert_eq!(whose(&process, 1000), "server");
        assert_eq!(whose(&process, 0), "server of user 1000");
    }

    #[test]
    fn the_kernels_list_is_read_by_kind_file_and_holder() {
        let text = "\
1: OFDLCK ADVISORY  WRITE -1 00:16:4567 0 0
2: FLOCK  ADVISORY  WRITE 71 00:16:4567 0 EOF
2: -> FLOCK  ADVISORY  WRITE 72 00:16:4567 0 EOF
3: FLOCK  ADVISORY  READ 73 00:17:4567 0 EOF
4: FLOCK  ADVISORY  WRITE 74 00:16:456 0 EOF
5: POSIX  ADVISORY  WRITE 75 00:16:4567 0 EOF
6: FLOCK  ADVISORY  READ 76 fd:00:4567 0 EOF
7: FLOCK  ADVISORY  READ 77 103:02:4567 0 EOF
";
        let pids = |device| {
            flock_pids(text, device, 4567)
                .into_iter()
                .collect::<Vec<u32>>()
        };
        assert_eq!(pids((0, 0x16)), [71]);
        assert_eq!(pids((0, 0x17)), [73]);
        assert_eq!(pids((0xfd, 0)), [76]);
        assert_eq!(pids((0x103, 2)), [77]);
        assert_eq!(pids((0, 0x18)), [0; 0]);
    }
}
