//! `doctor`: the state of the store, what this host can do, and what would make it faster, as
//! values.
//!
//! Invariants:
//! - an ability that could not be probed is unknown, with the reason, never absent;
//! - a probe leaves nothing behind: it uses a file without a name.
//!
//! Never: changes a setting.

use crate::holders::read_to_end;
use crate::root::{OpenError, Store, StoreId};
use crate::small::SmallRefusal;
use crate::survey::StoreSurvey;
use packhouse_sys::fs::{DirAccess, Fs, FsError, FsErrorKind};
use packhouse_sys::real::has_fs_verity;
use packhouse_sys::stat::{FsStat, FsTrust};
use std::path::PathBuf;

/// What a doctor's visit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorReport {
    /// The store's root.
    pub root: PathBuf,
    /// The store's id.
    pub store_id: StoreId,
    /// What the store holds.
    pub survey: StoreSurvey,
    /// Pins that can't be read, in words.
    pub damaged_pins: Vec<String>,
    /// Why there is no private state; without it every start hashes what it uses.
    pub state_problem: Option<OpenError>,
    /// What this host can do for the store.
    pub host: HostAbilities,
    /// What would help, most important first.
    pub advice: Vec<Advice>,
}

/// What this host can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAbilities {
    /// The store's file system: kind, size, free space.
    pub file_system: FsStat,
    /// Whether its stat is believed and its files are mapped.
    pub trust: FsTrust,
    /// Files without a name (O_TMPFILE).
    pub unnamed_files: Ability,
    /// Files sealed by fs-verity.
    pub fs_verity: Ability,
    /// Transparent huge pages for private memory, as the kernel prints the setting.
    pub transparent_huge_pages: Option<String>,
    /// Transparent huge pages for shared memory and tmpfs, as the kernel prints the setting.
    pub shmem_huge_pages: Option<String>,
    /// Huge pages set aside by the administrator.
    pub reserved_huge_pages: Option<u64>,
    /// The kernel's release.
    pub kernel_release: Option<String>,
}

/// Whether something can be done here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It can.
    Present,
    /// It can't.
    Absent,
    /// It could not be probed.
    Unknown {
        /// Why not.
        reason: String,
    },
}

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Advice {
    /// No private state: no receipts, so every start hashes what it uses.
    MakeStateUsable,
    /// The store is on a remote or unknown file system: nothing is mapped and everything is hashed.
    MoveToLocalDisk,
    /// The disk has less free space than the store must leave.
    FreeDiskSpace,
    /// Entries are in quarantine: what they named is packed again at the next start, or by
    /// `repair`.
    LookAtQuarantine,
    /// A pin can't be read: gc removes no set.
    RemoveDamagedPin,
    /// Huge pages for shared memory are off: a stage can't use them.
    AllowShmemHugePages,
}

impl Advice {
    /// The advice in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::MakeStateUsable => {
                "make the private state usable: without receipts every start hashes what it uses"
            }
            Self::MoveToLocalDisk => {
                "move the store to a local ext4, xfs, btrfs or tmpfs: here nothing can be mapped"
            }
            Self::FreeDiskSpace => {
                "free disk space or gc: the store may not be filled further on this disk"
            }
            Self::LookAtQuarantine => {
                "entries are in quarantine: the disk or another program damaged them"
            }
            Self::RemoveDamagedPin => "unpin what can't be read: until then gc removes no set",
            Self::AllowShmemHugePages => {
                "allow huge pages for shared memory (shmem_enabled): a stage then gets full speed"
            }
        }
    }
}

impl Ability {
    /// The word for tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Present => "yes",
            Self::Absent => "no",
            Self::Unknown { .. } => "unknown",
        }
    }
}

impl Store {
    /// Examines store and host. Errors when the store's folders can't be trusted or listed.
    pub fn examine(&self) -> Result<DoctorReport, SmallRefusal> {
        let pins = self.pins()?;
        let mut report = DoctorReport {
            root: self.config().root.clone(),
            store_id: self.id(),
            survey: self.survey()?,
            damaged_pins: pins
                .refused
                .iter()
                .map(|(name, refusal)| format!("{name}: {refusal}"))
                .collect(),
            state_problem: self.state().err().cloned(),
            host: self.host_abilities()?,
            advice: Vec::new(),
        };
        report.advice = self.advise(&report);
        Ok(report)
    }

    fn host_abilities(&self) -> Result<HostAbilities, FsError> {
        let file_system = self.objects_dir().fs_stat()?;
        let (unnamed_files, fs_verity) = self.probe_files();
        let fs = self.fs();
        Ok(HostAbilities {
            file_system,
            trust: file_system.kind.trust(),
            unnamed_files,
            fs_verity,
            transparent_huge_pages: read_line(fs, &[&THP[..], &["enabled"]].concat()),
            shmem_huge_pages: read_line(fs, &[&THP[..], &["shmem_enabled"]].concat()),
            reserved_huge_pages: read_line(fs, &["proc", "sys", "vm", "nr_hugepages"])
                .and_then(|text| text.parse().ok()),
            kernel_release: read_line(fs, &["proc", "sys", "kernel", "osrelease"]),
        })
    }

    /// Makes a file without a name and asks it for fs-verity.
    fn probe_files(&self) -> (Ability, Ability) {
        let unknown = |reason: String| Ability::Unknown { reason };
        if self.config().read_only {
            let reason = || unknown("the store was opened read-only".into());
            return (reason(), reason());
        }
        let file = match self.objects_dir().create_unnamed(0o600) {
            Ok(file) => file,
            Err(error) if error.kind == FsErrorKind::Unsupported => {
                let verity = unknown("no file without a name to ask".into());
                return (Ability::Absent, verity);
            }
            Err(error) => return (unknown(error.to_string()), unknown(error.to_string())),
        };
        let verity = match file.as_fd().map(has_fs_verity) {
            Some(Ok(true)) => Ability::Present,
            Some(Ok(false)) => Ability::Absent,
            Some(Err(kind)) => unknown(kind.to_string()),
            None => unknown("no descriptor to ask".into()),
        };
        (Ability::Present, verity)
    }

    fn advise(&self, report: &DoctorReport) -> Vec<Advice> {
        let host = &report.host;
        let shmem = host.shmem_huge_pages.as_deref().unwrap_or_default();
        let wanted = [
            (report.state_problem.is_some(), Advice::MakeStateUsable),
            (host.trust == FsTrust::Remote, Advice::MoveToLocalDisk),
            (
                host.file_system.free_bytes < self.config().min_free_bytes,
                Advice::FreeDiskSpace,
            ),
            (report.survey.quarantine_count > 0, Advice::LookAtQuarantine),
            (!report.damaged_pins.is_empty(), Advice::RemoveDamagedPin),
            (
                shmem.contains("[never]") || shmem.contains("[deny]"),
                Advice::AllowShmemHugePages,
            ),
        ];
        let mut advice: Vec<_> = wanted.into_iter().filter(|w| w.0).map(|w| w.1).collect();
        advice.sort();
        advice
    }
}

/// Reads the first line of a kernel file; `None` where there is no such file.
fn read_line(fs: &dyn Fs, components: &[&str]) -> Option<String> {
    let (name, folders) = components.split_last()?;
    let mut dir = fs.root().ok()?;
    for folder in folders {
        dir = dir.open_dir_for(folder, DirAccess::Lookup).ok()?;
    }
    let bytes = read_to_end(&dir.open_file(name).ok()?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.lines().next().map(str::to_owned)
}

const THP: [&str; 4] = ["sys", "kernel", "mm", "transparent_hugepage"];
