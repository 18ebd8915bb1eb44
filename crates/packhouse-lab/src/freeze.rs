//! What an experiment hangs on, measured: at registration to freeze it, and again before each act.
//!
//! - `files`: frozen files and folders;
//! - `held`: whether they were touched between two measures;
//! - `named`: files of the lab that a program is told of, and that must be frozen;
//! - `compare`: what differs from a packet.
//!
//! Invariants:
//! - identity is content: a program is its file and all that its loader would load;
//! - Git that fails is an error, never a clean tree; so is anything that can't be read;
//! - what differs is named: file, frozen digest, digest now.
//!
//! Never: executes a program of the experiment. Specified in `docs/format/lab.md`, section 4.

mod compare;
mod files;
mod fixtures;
mod held;
mod named;

pub use compare::{Difference, differences};
pub use fixtures::FixtureFault;
pub use held::{Held, held};
pub use named::{NotFrozen, Unfrozen};

use crate::document::DocumentError;
use crate::lane::Lane;
use crate::packet::{FrozenCommit, FrozenProgram, LaneRef, Object, Packet, Programs};
use crate::prereg::{LAB_WORD, Prereg, Program};
use crate::recipes::Recipes;
use crate::world::{BASE_ENVIRONMENT, HostError, Lab, Launch};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{FsError, FsErrorKind};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// An experiment's documents, with the bytes that they were parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    /// The preregistration.
    pub prereg: Prereg,
    /// Its bytes.
    pub prereg_bytes: Vec<u8>,
    /// The lane.
    pub lane: Lane,
    /// Its bytes.
    pub lane_bytes: Vec<u8>,
}

/// Why an experiment can't be frozen, or is not what was frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// A document is not there.
    #[error("{path}: not there")]
    Absent {
        /// Its path below the lab's folder.
        path: String,
    },
    /// A document is not as its format has it.
    #[error("{path}: {error}")]
    Document {
        /// Its path below the lab's folder.
        path: String,
        /// What is wrong.
        error: DocumentError,
    },
    /// A document is in another one's place.
    #[error("{path}: its id is {id}")]
    Misplaced {
        /// Its path below the lab's folder.
        path: String,
        /// The id in it.
        id: String,
    },
    /// A frozen path leads over a link, or to what is neither a folder nor a file.
    #[error("{path}: is {kind}, and only folders and regular files can be frozen")]
    NotFile {
        /// The path below the lab's folder.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// A frozen folder has nothing in it, or a name that can't be in a packet.
    #[error("{path}: {why}")]
    Folder {
        /// The path below the lab's folder.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A work tree differs from its commit.
    #[error("{path}: differs from commit {commit}: {}", listed(changed))]
    Dirty {
        /// The folder, below the lab's.
        path: String,
        /// HEAD.
        commit: String,
        /// What differs.
        changed: Vec<String>,
    },
    /// A program is told of files of the lab that are not frozen.
    #[error("{path}: {}", listed(unfrozen))]
    Unfrozen {
        /// The preregistration, below the lab's folder.
        path: String,
        /// Each of them.
        unfrozen: Vec<Unfrozen>,
    },
    /// A fixture can't serve this experiment.
    #[error("fixture {id}: {fault}")]
    Fixture {
        /// Its id.
        id: String,
        /// Why.
        fault: FixtureFault,
    },
    /// Something is not what the packet froze.
    #[error("not what was frozen: {}", listed(differences))]
    Changed {
        /// All that differs.
        differences: Vec<Difference>,
    },
    /// The host can't say something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Reading failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl FreezeError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. }
            | Self::Document { .. }
            | Self::Misplaced { .. }
            | Self::NotFile { .. }
            | Self::Folder { .. }
            | Self::Dirty { .. }
            | Self::Unfrozen { .. }
            | Self::Fixture { .. }
            | Self::Changed { .. } => Blame::Source,
            Self::Host(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Path of an experiment's preregistration below the lab's folder.
pub fn prereg_path(experiment: &str) -> String {
    format!("experiments/{experiment}/prereg.toml")
}

/// Path of an experiment's packet below the lab's folder.
pub fn packet_path(experiment: &str) -> String {
    format!("experiments/{experiment}/packet.json")
}

/// Path of a lane's document below the lab's folder.
pub fn lane_path(lane: &str) -> String {
    format!("lanes/{lane}.toml")
}

/// Reads an experiment's preregistration and the document of its lane.
///
/// # Errors
/// When one is not there, is not as its format has it, or has another id than its place.
pub fn documents(lab: &Lab<'_>, experiment: &str) -> Result<Documents, FreezeError> {
    let path = prereg_path(experiment);
    let prereg_bytes = document(lab, &path)?;
    let prereg = parsed(&path, Prereg::parse(&prereg_bytes))?;
    if prereg.id != experiment {
        let id = prereg.id;
        return Err(FreezeError::Misplaced { path, id });
    }
    let (lane, lane_bytes) = lane(lab, &prereg.lane)?;
    Ok(Documents {
        prereg,
        prereg_bytes,
        lane,
        lane_bytes,
    })
}

/// Reads a lane's document.
///
/// # Errors
/// As [`documents`].
pub fn lane(lab: &Lab<'_>, id: &str) -> Result<(Lane, Vec<u8>), FreezeError> {
    let path = lane_path(id);
    let bytes = document(lab, &path)?;
    let lane = parsed(&path, Lane::parse(&bytes))?;
    if lane.id != id {
        return Err(FreezeError::Misplaced { path, id: lane.id });
    }
    Ok((lane, bytes))
}

/// Reads the packet that `register` wrote, and its bytes. `None`: there is none.
///
/// # Errors
/// When it is not as its format has it, or can't be read.
pub fn packet(lab: &Lab<'_>, experiment: &str) -> Result<Option<(Packet, Vec<u8>)>, FreezeError> {
    let path = packet_path(experiment);
    match file(lab, &path)? {
        Some(bytes) => Ok(Some((parsed(&path, Packet::parse(&bytes))?, bytes))),
        None => Ok(None),
    }
}

/// Reads the packet that is registered under a digest.
///
/// # Errors
/// When it is not there, or is another one by now.
pub fn registered(lab: &Lab<'_>, experiment: &str, digest: Digest) -> Result<Packet, FreezeError> {
    let path = packet_path(experiment);
    let bytes = document(lab, &path)?;
    let now = Digest::of(&bytes);
    if let Some(difference) = Difference::of(&path, &digest, &now) {
        return Err(FreezeError::Changed {
            differences: vec![difference],
        });
    }
    parsed(&path, Packet::parse(&bytes))
}

/// The bytes of a small file of the lab. `None`: it is not there.
///
/// # Errors
/// When it is there and is no small regular file, or can't be read.
pub fn file(lab: &Lab<'_>, path: &str) -> Result<Option<Vec<u8>>, FreezeError> {
    match document(lab, path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FreezeError::Absent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Measures all that an experiment hangs on.
///
/// # Errors
/// When something is not there, can't be read, is not committed, or can't be executed as the
/// preregistration has it.
pub fn freeze(
    lab: &Lab<'_>,
    documents: &Documents,
    recipes: &Recipes,
) -> Result<Packet, FreezeError> {
    let prereg = &documents.prereg;
    named::all(&lab.root, prereg)?;
    let fixtures = fixtures::all(prereg, recipes)?;
    let mut commits = Vec::new();
    for path in &prereg.commits {
        commits.push(commit(lab, path)?);
    }
    let control = prereg.control.as_ref();
    let control = control.map(|control| program(lab, control)).transpose()?;
    let null = match control {
        Some(_) => None,
        None => Some(program(lab, &Program::null())?),
    };
    Ok(Packet {
        experiment: prereg.id.clone(),
        kind: prereg.kind,
        lane: LaneRef {
            id: documents.lane.id.clone(),
            sha256: Digest::of(&documents.lane_bytes),
        },
        prereg: Digest::of(&documents.prereg_bytes),
        programs: Programs {
            control,
            candidate: program(lab, &prereg.candidate)?,
            null,
        },
        frozen: files::all(&lab.root, &prereg.frozen)?,
        commits,
        fixtures,
        analyzer: lab.host.analyzer()?,
        checker: lab.host.checker(),
    })
}

/// Measures all of a packet again.
///
/// # Errors
/// When anything is not what was frozen, each by its name; and as [`freeze`].
pub fn unchanged(
    lab: &Lab<'_>,
    frozen: &Packet,
    recipes: &Recipes,
) -> Result<Documents, FreezeError> {
    // The documents first: one that was edited is a change, whatever it says now.
    let own = [
        (prereg_path(&frozen.experiment), frozen.prereg),
        (lane_path(&frozen.lane.id), frozen.lane.sha256),
    ];
    let mut changed = Vec::new();
    for (path, digest) in own {
        let now = Digest::of(&document(lab, &path)?);
        changed.extend(Difference::of(&path, &digest, &now));
    }
    if !changed.is_empty() {
        return Err(FreezeError::Changed {
            differences: changed,
        });
    }
    let documents = documents(lab, &frozen.experiment)?;
    let now = freeze(lab, &documents, recipes)?;
    let differences = differences(frozen, &now);
    match differences.is_empty() {
        true => Ok(documents),
        false => Err(FreezeError::Changed { differences }),
    }
}

/// The command that a program is started with, on this host.
///
/// # Errors
/// When the program is not found.
pub fn launch(lab: &Lab<'_>, program: &Program) -> Result<Launch, FreezeError> {
    let folder = lab.root.path().to_path_buf();
    Ok(Launch {
        program: find(lab, program)?,
        arguments: program
            .arguments
            .iter()
            .map(|word| expanded(lab, word))
            .collect(),
        environment: environment(lab, program),
        folder,
    })
}

fn program(lab: &Lab<'_>, program: &Program) -> Result<FrozenProgram, FreezeError> {
    let name = program
        .program
        .strip_prefix("./")
        .unwrap_or(&program.program);
    if name.contains('/') || name != program.program {
        files::no_link(&lab.root, name)?;
    }
    let path = find(lab, program)?;
    let mut objects = lab.host.objects(&path, &environment(lab, program))?;
    objects.sort();
    objects.dedup();
    Ok(FrozenProgram {
        program: Object {
            name: name.to_owned(),
            sha256: lab.host.content(&path)?,
        },
        objects,
        arguments: program.arguments.clone(),
        environment: program.environment.clone(),
    })
}

fn find(lab: &Lab<'_>, program: &Program) -> Result<PathBuf, FreezeError> {
    Ok(lab.host.resolve(lab.root.path(), &program.program)?)
}

fn environment(lab: &Lab<'_>, program: &Program) -> Vec<(OsString, OsString)> {
    let base = BASE_ENVIRONMENT.iter();
    let base = base.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let own = program.environment.iter();
    let own = own.map(|(name, value)| (OsString::from(name), expanded(lab, value)));
    let all: BTreeMap<OsString, OsString> = base.chain(own).collect();
    all.into_iter().collect()
}

/// A word with the lab's folder in the place of `${lab}`.
fn expanded(lab: &Lab<'_>, word: &str) -> OsString {
    let mut expanded = OsString::new();
    for (index, part) in word.split(LAB_WORD).enumerate() {
        if index > 0 {
            expanded.push(lab.root.path());
        }
        expanded.push(part);
    }
    expanded
}

fn commit(lab: &Lab<'_>, path: &str) -> Result<FrozenCommit, FreezeError> {
    files::open_folder(&lab.root, path)?;
    let found = lab.host.commit(&lab.root.path().join(path))?;
    if !found.changed.is_empty() {
        return Err(FreezeError::Dirty {
            path: path.to_owned(),
            commit: found.commit,
            changed: found.changed,
        });
    }
    Ok(FrozenCommit {
        path: path.to_owned(),
        commit: found.commit,
    })
}

fn document(lab: &Lab<'_>, path: &str) -> Result<Vec<u8>, FreezeError> {
    let limit = crate::DOCUMENT_BYTES_MAX as u64;
    files::open_file(&lab.root, path)?
        .read_small(limit)
        .map_err(|error| match error.kind {
            FsErrorKind::TooLong { .. } => FreezeError::Document {
                path: path.to_owned(),
                error: DocumentError::Syntax {
                    form: "a document",
                    reason: format!("no regular file of at most {limit} bytes"),
                },
            },
            _ => FreezeError::Fs(error),
        })
}

fn parsed<T>(path: &str, parsed: Result<T, DocumentError>) -> Result<T, FreezeError> {
    parsed.map_err(|error| FreezeError::Document {
        path: path.to_owned(),
        error,
    })
}

/// The first of a list in words, and how many more there are.
fn listed<T: std::fmt::Display>(list: &[T]) -> String {
    let first: Vec<String> = list.iter().take(SAID_MAX).map(T::to_string).collect();
    match list.len().saturating_sub(SAID_MAX) {
        0 => first.join("; "),
        more => format!("{}; and {more} more", first.join("; ")),
    }
}

const SAID_MAX: usize = 8;
