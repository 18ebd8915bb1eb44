//! What a descriptor says about its file, and how far that word is good.
//!
//! `StatIdentity` is the guard of receipts and of the source ledger (`docs/format/store.md`): equal
//! identities on a trusted file system mean unchanged bytes.

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Special,
}

/// What fstat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type of the file.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits: the lower 12 bits of st_mode.
    pub mode: u32,
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of names.
    pub link_count: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes allocated on disk.
    pub allocated_bytes: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of content, names, owner or mode; no interface sets it.
    pub ctime_ns: i64,
}

/// The file system of a file, in the most durable form that the host gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FsId {
    /// The file system's UUID; survives reboots and mounts.
    Uuid([u8; 16]),
    /// The device number; changes at reboots, mounts and container starts.
    Device(u64),
}

/// Stat identity: equal values on a trusted file system mean the same, unchanged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatIdentity {
    /// The file system.
    pub file_system: FsId,
    /// Inode number.
    pub inode: u64,
    /// Inode generation where the file system has one; tells a reused inode from its predecessor.
    pub generation: Option<u32>,
    /// Length in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Owner.
    pub uid: u32,
    /// Permission bits: the lower 12 bits of st_mode.
    pub mode: u32,
}

/// The kind of a file system, by statfs magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// ext2, ext3, ext4 (one magic).
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// tmpfs, huge-page tmpfs too.
    Tmpfs,
    /// overlayfs.
    Overlay,
    /// NFS.
    Nfs,
    /// FUSE, which virtiofs shares.
    Fuse,
    /// 9p.
    NineP,
    /// Any other, with its magic.
    Unknown(u64),
}

/// What a file system's stat and mappings are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsTrust {
    /// Local: equal stat identities mean unchanged bytes, and its files may be mapped.
    Local,
    /// Served from elsewhere or not known: each use hashes the bytes into private memory; never
    /// mapped.
    Remote,
}

/// What the stat identities of one file system's files share: asked once of one file, so that each
/// other one costs an fstat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    device: u64,
    file_system: FsId,
    has_generations: bool,
    kind: FsKind,
}

/// Size and kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    /// Kind.
    pub kind: FsKind,
    /// Whole size in bytes.
    pub total_bytes: u64,
    /// Bytes that this user may still fill.
    pub free_bytes: u64,
    /// Mounted read-only.
    pub read_only: bool,
}

impl StatIdentity {
    /// Names the first field in which two identities differ, `None` when they are equal.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let fields = [
            (self.file_system != other.file_system, "file system"),
            (self.inode != other.inode, "inode"),
            (self.generation != other.generation, "inode generation"),
            (self.size != other.size, "size"),
            (self.mtime_ns != other.mtime_ns, "mtime"),
            (self.ctime_ns != other.ctime_ns, "ctime"),
            (self.uid != other.uid, "owner"),
            (self.mode != other.mode, "mode"),
        ];
        fields
            .into_iter()
            .find_map(|(differs, name)| differs.then_some(name))
    }
}

impl Volume {
    /// Takes it from one file's stat, identity and file system.
    pub fn new(stat: &Stat, identity: &StatIdentity, kind: FsKind) -> Self {
        Self {
            device: stat.device,
            file_system: identity.file_system,
            has_generations: identity.generation.is_some(),
            kind,
        }
    }

    /// The file system's identity.
    pub fn file_system(&self) -> FsId {
        self.file_system
    }

    /// The kind of the file system.
    pub fn kind(&self) -> FsKind {
        self.kind
    }

    /// The identity of a file with this stat. `None` for one of another file system, and where
    /// inodes have generations, which stat does not tell.
    pub fn identity_of(&self, stat: &Stat) -> Option<StatIdentity> {
        if stat.device != self.device || self.has_generations {
            return None;
        }
        Some(StatIdentity {
            file_system: self.file_system,
            inode: stat.inode,
            generation: None,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            uid: stat.uid,
            mode: stat.mode,
        })
    }
}

impl FsKind {
    /// Names a statfs magic.
    pub fn from_magic(magic: u64) -> Self {
        match magic {
            0xEF53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x9123_683E => Self::Btrfs,
            0x0102_1994 => Self::Tmpfs,
            0x794C_7630 => Self::Overlay,
            0x6969 => Self::Nfs,
            0x6573_5546 => Self::Fuse,
            0x0102_1997 => Self::NineP,
            other => Self::Unknown(other),
        }
    }

    /// Says whether write-out of a range reaches the disk. overlayfs takes the call and does
    /// nothing, since the pages belong to another file.
    pub fn writes_out(self) -> bool {
        match self {
            Self::Ext | Self::Xfs | Self::Btrfs | Self::Tmpfs => true,
            Self::Overlay | Self::Nfs | Self::Fuse | Self::NineP | Self::Unknown(_) => false,
        }
    }

    /// Says whether its files are in RAM, or in swap. ramfs and hugetlbfs are not among the known.
    pub fn is_ram(self) -> bool {
        match self {
            Self::Tmpfs => true,
            Self::Ext
            | Self::Xfs
            | Self::Btrfs
            | Self::Overlay
            | Self::Nfs
            | Self::Fuse
            | Self::NineP
            | Self::Unknown(_) => false,
        }
    }

    /// Says what its stat and mappings are good for.
    ///
    /// overlayfs counts as local: it passes on size, mtime and ctime of the real file, refuses a
    /// remote upper layer, and asks that lower layers never change under it. It has no UUID of its
    /// own by default, so an identity there holds by device number, until the next mount. A file
    /// system that is not listed is remote: a new one costs hashing, never a wrong byte.
    pub fn trust(self) -> FsTrust {
        match self {
            Self::Ext | Self::Xfs | Self::Btrfs | Self::Tmpfs | Self::Overlay => FsTrust::Local,
            Self::Nfs | Self::Fuse | Self::NineP | Self::Unknown(_) => FsTrust::Remote,
        }
    }
}

impl std::fmt::Display for FsKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ext => f.write_str("ext4"),
            Self::Xfs => f.write_str("xfs"),
            Self::Btrfs => f.write_str("btrfs"),
            Self::Tmpfs => f.write_str("tmpfs"),
            Self::Overlay => f.write_str("overlay"),
            Self::Nfs => f.write_str("nfs"),
            Self::Fuse => f.write_str("fuse"),
            Self::NineP => f.write_str("9p"),
            Self::Unknown(magic) => write!(f, "file system {magic:#x}"),
        }
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Regular => "regular file",
            Self::Directory => "folder",
            Self::Symlink => "symlink",
            Self::Special => "device, socket or pipe",
        })
    }
}

/// Joins seconds and nanoseconds; saturates beyond the years 1677 and 2262.
pub fn time_ns(seconds: i64, nanoseconds: i64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_local_file_systems_are_trusted() {
        for magic in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(FsKind::from_magic(magic).trust(), FsTrust::Local);
        }
        for magic in [0x6969, 0x6573_5546, 0x0102_1997, 0xFF53_4D42, 0] {
            assert_eq!(FsKind::from_magic(magic).trust(), FsTrust::Remote);
        }
    }

    #[test]
    fn only_tmpfs_is_known_to_be_ram() {
        let magics = [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630, 0x6969, 0];
        assert!(
            !magics
                .iter()
                .any(|magic| FsKind::from_magic(*magic).is_ram())
        );
        assert!(FsKind::from_magic(0x0102_1994).is_ram());
    }

    #[test]
    fn a_difference_is_named() {
        let identity = StatIdentity {
            file_system: FsId::Device(1),
            inode: 2,
            generation: None,
            size: 3,
            mtime_ns: 4,
            ctime_ns: 5,
            uid: 6,
            mode: 0o444,
        };
        assert_eq!(identity.difference(&identity), None);
        let touched = StatIdentity {
            ctime_ns: 6,
            ..identity
        };
        assert_eq!(identity.difference(&touched), Some("ctime"));
    }
}
