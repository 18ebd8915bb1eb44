//! What can be wrong with a bag: one variant per reason code of `docs/format/bag.md`.

use crate::info::Oxum;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_sys::stat::FileKind;

/// One thing that is wrong with a bag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BagFault {
    /// A file that makes a folder a bag is missing or not of its form.
    #[error("{}: {fault}", Shown(path))]
    NotBagit {
        /// Which file.
        path: String,
        /// What is wrong with it.
        fault: FormFault,
    },
    /// A name on disk or a path in a list breaks the rule of paths.
    #[error("{}: not a path of a bag", Shown(path))]
    Path {
        /// The path, what is no UTF-8 in it replaced.
        path: String,
    },
    /// Something that is neither a regular file nor a folder.
    #[error("{}: {}, not a regular file", Shown(path), kind_word(*kind))]
    Link {
        /// Where.
        path: String,
        /// What it is.
        kind: FileKind,
    },
    /// A payload file is listed and not there.
    #[error("{}: listed and not there", Shown(path))]
    ListedMissing {
        /// Which file.
        path: String,
    },
    /// A file is there that no list names, or a folder without any file.
    #[error("{}: there and not listed", Shown(path))]
    Unlisted {
        /// Which file or folder.
        path: String,
    },
    /// A file of 0 bytes.
    #[error("{}: 0 bytes", Shown(path))]
    EmptyFile {
        /// Which file.
        path: String,
    },
    /// A file has other bytes than its list says.
    #[error("{}: SHA-256 {actual}, listed as {listed}", Shown(path))]
    Digest {
        /// Which file.
        path: String,
        /// Digest in the list.
        listed: Digest,
        /// Digest of its bytes.
        actual: Digest,
    },
    /// The payload is not as many bytes and files as said.
    #[error("bag-info.txt: Payload-Oxum {said}, but data/ holds {actual}")]
    Oxum {
        /// What `bag-info.txt` says.
        said: Oxum,
        /// What lies in `data/`.
        actual: Oxum,
    },
    /// A limit of the format is passed.
    #[error("{}: {bound}", Shown(path))]
    Limit {
        /// The file that passes it.
        path: String,
        /// Which limit.
        bound: Bound,
    },
}

/// A limit of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bound {
    /// Bytes of one file.
    #[error("more than {FILE_BYTES_MAX} bytes in a file")]
    File,
    /// Bytes of all files.
    #[error("more than {ALL_BYTES_MAX} bytes in all files")]
    All,
    /// Number of files.
    #[error("more than {FILES_MAX} files")]
    Count,
}

/// Why a file beside `data/` is not of its form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It is not there.
    #[error("missing")]
    Missing,
    /// It is no UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// Its last line has no end.
    #[error("ends within a line")]
    Unended,
    /// A line is not what stands there in every bag of this format.
    #[error("line {line}: not as the format has it, {expected}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What belongs there.
        expected: String,
    },
    /// A list's line does not come behind the one before it by its path: out of order, or twice.
    #[error("line {line}: its path does not come behind that of the line before")]
    Order {
        /// The line's number, from 1.
        line: usize,
    },
}

impl BagFault {
    /// The reason code, as in `docs/format/bag.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotBagit { .. } => "bag.not-bagit",
            Self::Path { .. } => "bag.path",
            Self::Link { .. } => "bag.link",
            Self::ListedMissing { .. } => "bag.listed-missing",
            Self::Unlisted { .. } => "bag.unlisted",
            Self::EmptyFile { .. } => "bag.empty-file",
            Self::Digest { .. } => "bag.digest",
            Self::Oxum { .. } => "bag.oxum",
            Self::Limit { .. } => "bag.limits",
        }
    }

    /// The path that it is about, from the folder that was read.
    pub fn path(&self) -> &str {
        match self {
            Self::NotBagit { path, .. }
            | Self::Path { path }
            | Self::Link { path, .. }
            | Self::ListedMissing { path }
            | Self::Unlisted { path }
            | Self::EmptyFile { path }
            | Self::Digest { path, .. }
            | Self::Limit { path, .. } => path,
            Self::Oxum { .. } => crate::INFO_FILE,
        }
    }

    /// Says whose side the fault is on: always that of the bytes that were kept.
    pub fn blame(&self) -> Blame {
        Blame::Store
    }
}

/// Several faults in one line, as far as anybody reads.
pub(crate) fn joined(faults: &[BagFault]) -> String {
    let words = faults.iter().take(FAULTS_SHOWN).map(ToString::to_string);
    let words = words.collect::<Vec<_>>().join("; ");
    match faults.len().saturating_sub(FAULTS_SHOWN) {
        0 => words,
        more => format!("{words}; and {more} more"),
    }
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "a regular file",
        FileKind::Directory => "a folder",
        FileKind::Symlink => "a symbolic link",
        FileKind::Special => "a device, socket or pipe",
    }
}

const FAULTS_SHOWN: usize = 20;

/// The longest file of a bag, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// All files of a bag together, in bytes.
pub const ALL_BYTES_MAX: u64 = 4 << 30;
/// The most files of a bag.
pub const FILES_MAX: usize = 65_536;
