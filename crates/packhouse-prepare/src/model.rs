//! A model as open files: what they were when they were opened, and their tensor directories.
//!
//! Invariants:
//! - every file is opened by the caller, once; everything is read through that descriptor;
//! - the stat identity is taken before the first byte is read, and asked again at the end;
//! - the directories are a container: shards in order, complete, of one model.
//!
//! Never: opens a path.

use packhouse_base::Blame;
use packhouse_container::{Container, ContainerError, GgufError, ReadAt, TensorDirectory};
use packhouse_sys::fs::{File, FsError};
use packhouse_sys::stat::{FileKind, FsTrust, StatIdentity};
use std::io;
use std::path::{Path, PathBuf};

/// A model whose files are open.
pub struct Model {
    files: Vec<ModelFile>,
    container: Container,
}

/// One open file of a model.
pub struct ModelFile {
    file: File,
    identity: StatIdentity,
    fs_trust: FsTrust,
}

/// Why files are no model that can be read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Something else than a regular file.
    #[error("{} is a {kind}, expected a regular file", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// No GGUF file, or a damaged one.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<GgufError>,
    },
    /// The files are not the shards of one model.
    #[error("{}: {source}", path.display())]
    Shards {
        /// The first file.
        path: PathBuf,
        /// What is wrong with them together.
        source: ContainerError,
    },
    /// The file changed between its opening and now.
    #[error("{} changed while it was read: its {field} differs", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The first field of its stat identity that differs.
        field: &'static str,
    },
    /// The file ends before what its directory promised.
    #[error("{} ends at byte {actual}, expected {expected}", path.display())]
    EndsEarly {
        /// The file.
        path: PathBuf,
        /// Where the read was to end.
        expected: u64,
        /// Where the file ends.
        actual: u64,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Model {
    /// Reads the directories of files given in the order of shards. Errors when one can't be read,
    /// is no GGUF, changes meanwhile, or when they are not one whole model.
    pub fn open(files: Vec<File>) -> Result<Self, ModelError> {
        let mut opened = Vec::new();
        let mut directories = Vec::new();
        for file in files {
            let (file, directory) = ModelFile::open(file)?;
            opened.push(file);
            directories.push(directory);
        }
        let first = opened.first().map(|file| file.path().to_owned());
        let container = Container::new(directories).map_err(|source| ModelError::Shards {
            path: first.unwrap_or_default(),
            source,
        })?;
        Ok(Self {
            files: opened,
            container,
        })
    }

    /// The files, shards in order.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// What the files are together.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.identity.size).sum()
    }

    /// Whether the files are still what they were when they were opened.
    pub fn unchanged(&self) -> Result<(), ModelError> {
        self.files.iter().try_for_each(ModelFile::unchanged)
    }
}

impl ModelFile {
    fn open(file: File) -> Result<(Self, TensorDirectory), ModelError> {
        let stat = file.stat()?;
        if stat.kind != FileKind::Regular {
            let path = file.path().to_owned();
            let kind = stat.kind;
            return Err(ModelError::Kind { path, kind });
        }
        let identity = file.identity()?;
        let fs_trust = file.fs_stat()?.kind.trust();
        let opened = Self {
            file,
            identity,
            fs_trust,
        };
        let directory = TensorDirectory::parse(&opened);
        // Of a file that changed meanwhile, that is what is to be said.
        opened.unchanged()?;
        let directory = directory.map_err(|source| ModelError::Directory {
            path: opened.path().to_owned(),
            source: Box::new(source),
        })?;
        Ok((opened, directory))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Its stat identity when it was opened.
    pub fn identity(&self) -> &StatIdentity {
        &self.identity
    }

    /// Whether its stat identity proves that it did not change.
    pub fn fs_trust(&self) -> FsTrust {
        self.fs_trust
    }

    /// Whether somebody is known to be able to write to it now.
    pub(crate) fn has_writer(&self) -> bool {
        self.file.has_writer() == Some(true)
    }

    /// Whether it is still what it was when it was opened.
    pub fn unchanged(&self) -> Result<(), ModelError> {
        match self.identity.difference(&self.file.identity()?) {
            None => Ok(()),
            Some(field) => Err(ModelError::Changed {
                path: self.path().to_owned(),
                field,
            }),
        }
    }

    /// Fills a buffer. Errors when the file ends before.
    pub(crate) fn read_exact_at(&self, offset: u64, target: &mut [u8]) -> Result<(), ModelError> {
        let filled = self.file.read_full_at(offset, target)?;
        if filled < target.len() {
            return Err(ModelError::EndsEarly {
                path: self.path().to_owned(),
                expected: offset + target.len() as u64,
                actual: self.file.stat()?.size,
            });
        }
        Ok(())
    }
}

impl ReadAt for ModelFile {
    fn len(&self) -> u64 {
        self.identity.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(offset, buffer)
            .map_err(|error| match error {
                ModelError::EndsEarly { .. } => io::ErrorKind::UnexpectedEof.into(),
                other => io::Error::other(other),
            })
    }
}

impl ModelError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Kind { .. }
            | Self::Directory { .. }
            | Self::Shards { .. }
            | Self::Changed { .. }
            | Self::EndsEarly { .. } => Blame::Source,
            Self::Fs(error) => error.blame(),
        }
    }
}
