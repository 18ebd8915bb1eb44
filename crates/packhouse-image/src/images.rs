//! A folder of images that engines are served from, or the reason why there is none.

use crate::folder::{Folder, FolderError};
use crate::head::Head;
use crate::owner::Owner;
use crate::serve::Serve;
use crate::served::RequestRefusal;
use crate::settings::{Mode, Settings};
use packhouse_base::Blame;
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_pack::Packers;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Images as configured. Clones share one folder.
#[derive(Clone)]
pub struct Images {
    shared: Arc<Shared>,
}

/// What all serves of one `Images` share.
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// What rotates the samples: given or drawn.
    pub(crate) seed: u64,
    pub(crate) folder: Result<Folder, Off>,
}

/// Why images are off: everything is packed, and no file is read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Off {
    /// `Mode::Off`.
    #[error("switched off")]
    Switch,
    /// The caller knows no folder.
    #[error("no folder is known")]
    NoFolder,
    /// There is no folder, and none is made in `Mode::ReadOnly`.
    #[error("{} is not there, and read-only makes none", .root.display())]
    Absent {
        /// The folder.
        root: PathBuf,
    },
    /// The folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl Images {
    /// Opens a folder of images, and makes it in `Mode::ReadWrite`. Never fails: whatever is in the
    /// way, tiles are packed, and `why_off` says why.
    pub fn open(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        root: Option<&Path>,
        settings: Settings,
    ) -> Self {
        let folder = open_folder(fs.as_ref(), root, settings.mode);
        let seed = settings.seed.unwrap_or_else(|| drawn(&*fs, &*clock));
        let shared = Shared {
            fs,
            clock,
            settings,
            seed,
            folder,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Why no image is used, if none is.
    pub fn why_off(&self) -> Option<&Off> {
        self.shared.folder.as_ref().err()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The seed of the samples, given or drawn.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// The folder, unless images are off.
    pub fn folder(&self) -> Option<&Folder> {
        self.shared.folder.as_ref().ok()
    }

    /// Starts serving the tiles of one head. Opens no file. The first serve with some packers takes
    /// their fingerprint in the geometry's order, some milliseconds: share them between serves.
    ///
    /// # Errors
    /// When the head has no tiles in this geometry, or was never hashed while images are on.
    pub fn serve(
        &self,
        packers: Arc<Packers>,
        head: Head,
        geometry: TileGeometry,
        owner: Owner,
    ) -> Result<Serve, RequestRefusal> {
        Serve::new(self.shared.clone(), packers, head, geometry, owner)
    }
}

/// A seed that differs from start to start.
fn drawn(fs: &dyn Fs, clock: &dyn Clock) -> u64 {
    let mut bytes = [0; 8];
    match fs.random(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        // Any other number moves the samples too.
        Err(_) => clock.wall_ns().unsigned_abs(),
    }
}

fn open_folder(fs: &dyn Fs, root: Option<&Path>, mode: Mode) -> Result<Folder, Off> {
    if mode == Mode::Off {
        return Err(Off::Switch);
    }
    let root = root.ok_or(Off::NoFolder)?;
    let opened = match mode {
        Mode::ReadWrite => match Folder::open(fs, root, true) {
            // Nothing can be made, as on a disk mounted read-only: what is there still serves.
            Err(error) => match Folder::open(fs, root, false) {
                Ok(Some(folder)) => Some(folder),
                Ok(None) | Err(_) => return Err(error.into()),
            },
            Ok(folder) => folder,
        },
        Mode::Off | Mode::ReadOnly => Folder::open(fs, root, false)?,
    };
    opened.ok_or_else(|| Off::Absent {
        root: root.to_owned(),
    })
}

impl Off {
    /// Says whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Switch | Self::NoFolder | Self::Absent { .. } => Blame::Caller,
            Self::Folder(error) => error.blame(),
        }
    }
}
