//! Markers: a packet is consumed, on this host and by this user, once and for ever.
//!
//! Invariants:
//! - a marker is whole or not there: it is written under another name, synced, and renamed to a
//!   name that must be free; then the folder is synced and the marker read back;
//! - whatever has a marker's name means consumed, however damaged;
//! - what inputs are drawn from is random, and nobody has it before the packet is consumed;
//! - it is only believed where the file system is known to keep what was synced.
//!
//! Never: removes or replaces a marker. Specified in `docs/format/lab.md`, section 5.

use crate::document::{DocumentError, Fields};
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, FsKind};
use serde_json::json;
use std::path::PathBuf;

/// What a marker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The packet.
    pub packet: Digest,
    /// The nonce of its only run.
    pub nonce: Digest,
    /// Head of the ledger before `consumed`: the digest of the `nonce` entry.
    pub ledger: Digest,
    /// Id of the lab.
    pub lab: Digest,
    /// Kind of the file system that holds it.
    pub file_system: String,
    /// Random, drawn when it was taken: the seeds of drawn inputs follow from it. `None` in one of
    /// the first schema, whose seeds follow from the nonce.
    pub salt: Option<Digest>,
}

/// The folder of a user's markers, held open.
pub struct Markers {
    dir: Dir,
    file_system: &'static str,
}

/// What has the name of a packet's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A marker, with its bytes.
    Marker(Marker, Vec<u8>),
    /// Something that is no marker of this packet. The packet counts as consumed.
    Damaged {
        /// Why it is none.
        reason: String,
    },
}

/// Why a marker can't be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// Others may write in the folder, or it is not this user's.
    #[error("{}: {why}", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file system may lose what was synced, or is not known.
    #[error("{}: is on {kind}, which is not known to keep a marker", path.display())]
    FileSystem {
        /// The folder.
        path: PathBuf,
        /// The kind.
        kind: String,
    },
    /// The name is taken: the packet is consumed.
    #[error("{}: is there, so packet {packet} is consumed", path.display())]
    Taken {
        /// The marker.
        path: PathBuf,
        /// The packet.
        packet: Digest,
    },
    /// What was read back is not what was written. The packet counts as consumed.
    #[error("{}: holds something else than was just written", path.display())]
    NotKept {
        /// The marker.
        path: PathBuf,
    },
    /// The folder's id is none: nobody could tell this folder from another.
    #[error("{}: holds no id of a folder of markers: {why}", path.display())]
    NoId {
        /// The file.
        path: PathBuf,
        /// Why it holds none.
        why: String,
    },
    /// The state folder is the lab's or below it: whoever puts an older copy of the lab back would
    /// put back an older folder of markers with it.
    #[error(
        "{}: is in the lab {}: markers must lie outside it; set XDG_STATE_HOME to another folder",
        path.display(),
        lab.display()
    )]
    InLab {
        /// The state folder.
        path: PathBuf,
        /// The lab.
        lab: PathBuf,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// The schema of markers.
pub const MARKER_SCHEMA: &str = "packhouse/marker/2";
/// The schema of markers without a salt.
pub const MARKER_SCHEMA_1: &str = "packhouse/marker/1";
/// The schema of the id of a folder of markers.
pub const MARKERS_SCHEMA: &str = "packhouse/markers/1";

impl Marker {
    /// Renders in canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let mut fields = json!({
            "file_system": self.file_system,
            "lab": self.lab.to_string(),
            "ledger": self.ledger.to_string(),
            "nonce": self.nonce.to_string(),
            "packet": self.packet.to_string(),
            "schema": MARKER_SCHEMA_1,
        });
        if let Some(salt) = self.salt {
            fields["schema"] = MARKER_SCHEMA.into();
            fields["salt"] = salt.to_string().into();
        }
        canonical::render(&fields)
    }

    /// Parses canonical JSON.
    ///
    /// # Errors
    /// On anything that `render` would not have written for a file system that markers may be on.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let of_first = |bytes| Fields::parse_json(bytes, MARKER_SCHEMA_1).ok();
        let (mut fields, has_salt) = match of_first(bytes) {
            Some(fields) => (fields, false),
            None => (Fields::parse_json(bytes, MARKER_SCHEMA)?, true),
        };
        let marker = Self {
            packet: fields.digest("packet")?,
            nonce: fields.digest("nonce")?,
            ledger: fields.digest("ledger")?,
            lab: fields.digest("lab")?,
            file_system: fields.word("file_system", "a durable file system", |word| {
                DURABLE.iter().any(|(_, durable)| *durable == word)
            })?,
            salt: match has_salt {
                true => Some(fields.digest("salt")?),
                false => None,
            },
        };
        fields.finish()?;
        Ok(marker)
    }
}

impl Markers {
    /// Opens the folder of markers below a user's state folder, and makes it where it is missing.
    ///
    /// # Errors
    /// When it is not this user's alone, or on a file system that may lose a marker.
    pub fn open(fs: &dyn Fs, state: &Dir) -> Result<Self, MarkerError> {
        let mut dir = state.clone();
        for name in FOLDERS {
            match dir.make_dir(name, 0o700) {
                Ok(()) => dir.sync()?,
                Err(error) if error.kind == FsErrorKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            dir = dir.open_dir(name)?;
        }
        Self::of(fs, dir)
    }

    /// Looks whether the folder of markers could be used; makes nothing. `None`: it is not there,
    /// and would be made on a file system that keeps markers.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn look(fs: &dyn Fs, state: &Dir) -> Result<Option<Self>, MarkerError> {
        let mut dir = state.clone();
        for name in FOLDERS {
            match dir.open_dir(name) {
                Ok(found) => dir = found,
                Err(error) if error.kind == FsErrorKind::NotFound => {
                    durable(&dir)?;
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Self::of(fs, dir).map(Some)
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The kind of its file system.
    pub fn file_system(&self) -> &'static str {
        self.file_system
    }

    /// Demands that a user's state folder is outside a lab, by the identity of each folder above
    /// it.
    ///
    /// # Errors
    /// When it is the lab's folder or below it, and when a folder above it can't be looked at.
    pub fn outside(state: &Dir, lab: &Dir) -> Result<(), MarkerError> {
        let identity = |dir: &Dir| dir.stat().map(|stat| (stat.device, stat.inode));
        let (root, mut here, mut above) = (identity(lab)?, identity(state)?, state.parent()?);
        loop {
            if here == root {
                return Err(MarkerError::InLab {
                    path: state.path().to_path_buf(),
                    lab: lab.path().to_path_buf(),
                });
            }
            let next = identity(&above)?;
            if next == here {
                return Ok(());
            }
            here = next;
            above = above.parent()?;
        }
    }

    /// The folder's id, if it has one.
    ///
    /// # Errors
    /// When what has its name is no id.
    pub fn id(&self) -> Result<Option<Digest>, MarkerError> {
        let no_id = |why: String| MarkerError::NoId {
            path: self.dir.path().join(ID),
            why,
        };
        let bytes = match self.dir.read_small(ID, MARKER_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(no_id(error.kind.to_string())),
        };
        let read = || {
            let mut fields = Fields::parse_json(&bytes, MARKERS_SCHEMA)?;
            let id = fields.digest("id")?;
            fields.finish().map(|()| id)
        };
        let id = read().map_err(|error: DocumentError| no_id(error.to_string()))?;
        Ok(Some(id))
    }

    /// The folder's id. Made where it has none: random, whole, and durable before it is told.
    ///
    /// # Errors
    /// As [`Self::id`], and when it can't be made.
    pub fn identify(&self, fs: &dyn Fs) -> Result<Digest, MarkerError> {
        if let Some(id) = self.id()? {
            // Whoever made it may have been stopped before its name was durable.
            self.dir.sync()?;
            return Ok(id);
        }
        let mut random = [0; 32];
        fs.random(&mut random)?;
        let id = Digest::from_bytes(random);
        let part = format!(".{ID}-{id}");
        let file = self.dir.create_new(&part, 0o400)?;
        let record = json!({ "id": id.to_string(), "schema": MARKERS_SCHEMA });
        let placed = fill(&file, &canonical::render(&record))
            .and_then(|()| self.dir.rename_new(&part, &self.dir, ID));
        if let Err(error) = placed {
            let _ = self.dir.unlink(&part);
            // Another process may have been faster: then its id is the folder's.
            if error.kind != FsErrorKind::Exists {
                return Err(error.into());
            }
        }
        self.dir.sync()?;
        self.id()?.ok_or_else(|| MarkerError::NoId {
            path: self.dir.path().join(ID),
            why: "it is gone again".to_owned(),
        })
    }

    /// What has the name of a packet's marker.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn find(&self, packet: Digest) -> Result<Found, MarkerError> {
        let damaged = |reason: String| Ok(Found::Damaged { reason });
        let file = match self.dir.open_file(name_of(packet)) {
            Ok(file) => file,
            Err(error) => {
                return match error.kind {
                    FsErrorKind::NotFound => Ok(Found::Nothing),
                    FsErrorKind::Symlink | FsErrorKind::IsDirectory => {
                        damaged(error.kind.to_string())
                    }
                    _ => Err(error.into()),
                };
            }
        };
        let stat = file.stat()?;
        if stat.kind != FileKind::Regular || stat.size > MARKER_BYTES_MAX {
            return damaged("no small regular file".to_owned());
        }
        let bytes = file.read_small(MARKER_BYTES_MAX)?;
        match Marker::parse(&bytes) {
            Ok(marker) if marker.packet == packet => Ok(Found::Marker(marker, bytes)),
            Ok(marker) => damaged(format!("it is of packet {}", marker.packet)),
            Err(error) => damaged(error.to_string()),
        }
    }

    /// Takes a packet's marker: from when the name is there the packet is consumed. Returns the
    /// bytes.
    ///
    /// # Errors
    /// With `Taken` where the name is taken, whoever took it. With `NotKept`, and after a failed
    /// sync of the folder or reading back, the marker may be there: [`Self::find`] tells.
    pub fn take(&self, fs: &dyn Fs, marker: &Marker) -> Result<Vec<u8>, MarkerError> {
        let (name, bytes) = (name_of(marker.packet), marker.render());
        let mut random = [0; 8];
        fs.random(&mut random)?;
        let part = format!(".{}-{:016x}", marker.packet, u64::from_le_bytes(random));
        let file = self.dir.create_new(&part, 0o400)?;
        let placed =
            fill(&file, &bytes).and_then(|()| self.dir.rename_new(&part, &self.dir, &name));
        if let Err(error) = placed {
            // A name that nobody looks at; what is left of it means nothing.
            let _ = self.dir.unlink(&part);
            return Err(match error.kind {
                FsErrorKind::Exists => MarkerError::Taken {
                    path: self.path(marker.packet),
                    packet: marker.packet,
                },
                _ => error.into(),
            });
        }
        self.dir.sync()?;
        match self.find(marker.packet)? {
            Found::Marker(_, back) if back == bytes => Ok(bytes),
            Found::Marker(..) | Found::Nothing | Found::Damaged { .. } => {
                Err(MarkerError::NotKept {
                    path: self.path(marker.packet),
                })
            }
        }
    }

    /// Path of a packet's marker, for messages.
    pub fn path(&self, packet: Digest) -> PathBuf {
        self.dir.path().join(name_of(packet))
    }

    fn of(fs: &dyn Fs, dir: Dir) -> Result<Self, MarkerError> {
        let stat = dir.stat()?;
        let not_ours = |why: String| MarkerError::NotOurs {
            path: dir.path().to_path_buf(),
            why,
        };
        if stat.uid != fs.effective_uid() {
            let uid = fs.effective_uid();
            return Err(not_ours(format!("belongs to user {}, not {uid}", stat.uid)));
        }
        if stat.mode != 0o700 {
            return Err(not_ours(format!("has mode {:04o}, not 0700", stat.mode)));
        }
        let file_system = durable(&dir)?;
        Ok(Self { dir, file_system })
    }
}

impl MarkerError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotOurs { .. } | Self::FileSystem { .. } | Self::NotKept { .. } => Blame::Host,
            Self::NoId { .. } | Self::InLab { .. } => Blame::Host,
            Self::Taken { .. } => Blame::Caller,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// The name of a file system's kind: of those that markers may be on, and of the others.
pub fn file_system_name(kind: FsKind) -> String {
    if let Some((_, name)) = DURABLE.iter().find(|(durable, _)| *durable == kind) {
        return (*name).to_owned();
    }
    match kind {
        FsKind::Tmpfs => "tmpfs".to_owned(),
        FsKind::Nfs => "nfs".to_owned(),
        FsKind::Fuse => "fuse".to_owned(),
        FsKind::NineP => "9p".to_owned(),
        FsKind::Unknown(magic) => format!("an unknown file system (magic {magic:#x})"),
        // In the table above.
        FsKind::Ext | FsKind::Xfs | FsKind::Btrfs | FsKind::Overlay => format!("{kind:?}"),
    }
}

fn fill(file: &File, bytes: &[u8]) -> Result<(), FsError> {
    file.write_all_at(0, bytes)?;
    file.sync()
}

/// The name of a folder's file system, where it keeps what was synced.
fn durable(dir: &Dir) -> Result<&'static str, MarkerError> {
    let stat = dir.fs_stat()?;
    let refuse = |kind: String| MarkerError::FileSystem {
        path: dir.path().to_path_buf(),
        kind,
    };
    if stat.read_only {
        return Err(refuse(format!(
            "a read-only {}",
            file_system_name(stat.kind)
        )));
    }
    let found = DURABLE.iter().find(|(kind, _)| *kind == stat.kind);
    let found = found.map(|(_, name)| *name);
    found.ok_or_else(|| refuse(file_system_name(stat.kind)))
}

fn name_of(packet: Digest) -> String {
    format!("{packet}.json")
}

/// The id of the folder of markers, in it.
const ID: &str = "id.json";
/// Below the user's state folder.
const FOLDERS: [&str; 2] = ["lab", "markers"];
const MARKER_BYTES_MAX: u64 = 4096;
/// File systems that keep what was synced. The magics of f2fs, zfs and bcachefs are those of their
/// sources. What overlayfs keeps is what its upper layer keeps, which it does not tell.
const DURABLE: [(FsKind, &str); 7] = [
    (FsKind::Ext, "ext4"),
    (FsKind::Xfs, "xfs"),
    (FsKind::Btrfs, "btrfs"),
    (FsKind::Overlay, "overlayfs"),
    (FsKind::Unknown(0xF2F5_2010), "f2fs"),
    (FsKind::Unknown(0x2FC1_2FC1), "zfs"),
    (FsKind::Unknown(0xCA45_1A4E), "bcachefs"),
];
