//! What the lab asks of this host: its kernel, programs, loaders, Git.
//!
//! Invariants: what can't be told is an error with its reason, never an empty answer; the program
//! that runs is identified by its own open file, not by its name.

use crate::failure::Failure;
use crate::files::{open_regular, read_at_most};
use crate::lab_mapped;
use crate::run::own_binary;
use crate::{lab_devices, worker_devices};
use packhouse_base::digest::{Digest, Hasher};
use packhouse_build::fingerprint::{FingerprintError, World, objects_of, work_tree};
use packhouse_lab::name::is_relative_path;
use packhouse_lab::packet::Object;
use packhouse_lab::prereg::OWN_PROGRAM;
use packhouse_lab::world::{BASE_ENVIRONMENT, Commit, Host, HostDevice, HostError, Mapped};
use packhouse_proc::devices::Roots;
use packhouse_proc::devices::host_tools::HostTools;
use packhouse_sys::child;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// This host.
pub(crate) struct ThisHost {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    tools: HostTools,
    roots: Roots,
    own: Vec<(OsString, OsString)>,
    analyzer: OnceLock<Digest>,
    hashed: Mutex<BTreeMap<Seen, Digest>>,
}

/// What shows that a file changed: no interface sets its last field back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    device: u64,
    inode: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl ThisHost {
    /// This host, with the user's own environment, of which Git gets a few variables.
    ///
    /// What a program of the lab leaves behind becomes a child of this process, to be looked at.
    pub(crate) fn new(own: Vec<(OsString, OsString)>) -> Self {
        // A kernel that refuses it has no such call: orphans are init's then.
        let _ = child::take_in_orphans();
        Self {
            fs: Arc::new(RealFs),
            clock: Arc::new(RealClock),
            tools: HostTools::new([], 0),
            roots: Roots::default(),
            own,
            analyzer: OnceLock::new(),
            hashed: Mutex::default(),
        }
    }

    /// The digest of a file's content. One that this process has hashed, and that was not touched
    /// for a while before, is not hashed again: a program is looked at for each of its roles.
    fn content_of(&self, path: &Path) -> Result<Digest, HostError> {
        let file = open_regular(path).map_err(|error| unread(path, error))?;
        self.content_of_file(path, file)
    }

    /// The same of an open file; the path is for messages.
    fn content_of_file(&self, path: &Path, mut file: File) -> Result<Digest, HostError> {
        let wrong = |error| unread(path, error);
        let before = seen(&file).map_err(wrong)?;
        let known = |hashed: &BTreeMap<Seen, Digest>| hashed.get(&before).copied();
        if let Some(digest) = known(&self.hashed.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(digest);
        }
        let digest = hashed(&mut file).map_err(wrong)?;
        if seen(&file).map_err(wrong)? != before {
            return Err(wrong(std::io::Error::other("it changes while it is read")));
        }
        // A change within one tick of the file system's clock does not show.
        if self.clock.wall_ns().saturating_sub(before.ctime_ns) > SETTLED_NS {
            let mut all = self.hashed.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(before, digest);
        }
        Ok(digest)
    }

    fn world(&self) -> World<'_> {
        World {
            fs: &self.fs,
            clock: &self.clock,
            state: None,
            tools: &self.tools,
            roots: &self.roots,
            own: &self.own,
        }
    }
}

impl Host for ThisHost {
    fn boot_id(&self) -> Result<String, HostError> {
        kernel_text("/proc/sys/kernel/random/boot_id")
    }

    fn kernel(&self) -> Result<String, HostError> {
        let release = kernel_text("/proc/sys/kernel/osrelease")?;
        let version = kernel_text("/proc/sys/kernel/version")?;
        Ok(format!("{release} {version}"))
    }

    fn cpu(&self) -> Result<String, HostError> {
        let path = "/proc/cpuinfo";
        let text = kernel_text(path)?;
        let named = |wanted: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(name, _)| name.trim() == wanted);
            found
                .map(|(_, value)| value.trim())
                .filter(|value| !value.is_empty())
        };
        // Kernels of other architectures name implementer and part, and no model.
        let part = || {
            Some(format!(
                "{} {}",
                named("CPU implementer")?,
                named("CPU part")?
            ))
        };
        let model = named("model name").map(str::to_owned);
        model
            .or_else(part)
            .ok_or_else(|| unknown("the CPU", format!("{path} names no model")))
    }

    fn analyzer(&self) -> Result<Digest, HostError> {
        if let Some(digest) = self.analyzer.get() {
            return Ok(*digest);
        }
        let digest = self.content_of(Path::new("/proc/self/exe"))?;
        Ok(*self.analyzer.get_or_init(|| digest))
    }

    fn checker(&self) -> String {
        packhouse_bagcheck::VERSION.to_owned()
    }

    fn random32(&self) -> Result<[u8; 32], HostError> {
        let mut bytes = [0; 32];
        let filled = self.fs.random(&mut bytes);
        filled.map_err(|error| unknown("a random number", error.to_string()))?;
        Ok(bytes)
    }

    fn resolve(&self, lab: &Path, program: &str) -> Result<PathBuf, HostError> {
        let no_program = |why: String| HostError::NoProgram {
            program: program.to_owned(),
            why,
        };
        if program == OWN_PROGRAM {
            let path = own_binary().map_err(|failure: Failure| no_program(failure.reason()))?;
            // Its name may lead to another build by now.
            if self.content_of(&path)? != self.analyzer()? {
                let why = format!("{} was replaced while it runs", path.display());
                return Err(no_program(why));
            }
            return Ok(path);
        }
        let search = BASE_ENVIRONMENT.iter().find(|(name, _)| *name == "PATH");
        let search = search.map_or("", |(_, value)| value);
        child::find(OsStr::new(program), OsStr::new(search), lab)
            .map_err(|error| no_program(error.to_string()))
    }

    fn content(&self, path: &Path) -> Result<Digest, HostError> {
        self.content_of(path)
    }

    fn objects(
        &self,
        program: &Path,
        environment: &[(OsString, OsString)],
    ) -> Result<Vec<Object>, HostError> {
        let shown = || program.display().to_string();
        let loaded = objects_of(program, environment, &self.world());
        let loaded = loaded.map_err(|error| match error {
            FingerprintError::Loader { why, .. } => HostError::NotLoaded {
                program: shown(),
                why,
            },
            other => unknown(&format!("what {} loads", shown()), other.to_string()),
        })?;
        let named = loaded
            .into_iter()
            .map(|object| named(&object.path, object.sha256));
        sorted(named.collect::<Result<Vec<_>, _>>()?)
    }

    fn commit(&self, folder: &Path) -> Result<Commit, HostError> {
        let tree = work_tree(folder, &self.world()).map_err(|error| HostError::Git {
            folder: folder.display().to_string(),
            why: match error {
                FingerprintError::Git { why, .. } | FingerprintError::Folder { why, .. } => why,
                other => other.to_string(),
            },
        })?;
        let changed = tree.changed.iter();
        Ok(Commit {
            commit: tree.commit,
            changed: changed.map(|path| path.display().to_string()).collect(),
        })
    }

    fn mapped_objects(&self, pid: u32) -> Result<Vec<Mapped>, HostError> {
        let wrong = |why| unknown(&format!("what process {pid} has loaded"), why);
        let files = lab_mapped::by_family(pid).map_err(wrong)?;
        let files = files.into_iter().map(|file| {
            let opened = file.open().map_err(wrong)?;
            let sha256 = self.content_of_file(&file.path, opened)?;
            Ok(Mapped {
                object: named(&file.path, sha256)?,
                path: file.path,
            })
        });
        let mut mapped = files.collect::<Result<Vec<_>, HostError>>()?;
        mapped.sort();
        Ok(mapped)
    }

    fn device(&self, name: &str) -> Result<HostDevice, HostError> {
        let path = self.own.iter().find(|(name, _)| name == "PATH");
        let lookup = |_: &str| path.map(|(_, value)| value.clone());
        lab_devices::of(name, &worker_devices::tools(&lookup), &self.roots)
    }
}

fn sorted(mut objects: Vec<Object>) -> Result<Vec<Object>, HostError> {
    objects.sort();
    objects.dedup();
    Ok(objects)
}

fn named(path: &Path, sha256: Digest) -> Result<Object, HostError> {
    let name = path.file_name().and_then(OsStr::to_str);
    let name = name.filter(|name| is_relative_path(name) && !name.trim().is_empty());
    let name = name.ok_or_else(|| unknown("a file's name", path.display().to_string()))?;
    Ok(Object {
        name: name.to_owned(),
        sha256,
    })
}

fn seen(file: &File) -> std::io::Result<Seen> {
    let stat = file.metadata()?;
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Ok(Seen {
        device: stat.dev(),
        inode: stat.ino(),
        size: stat.size(),
        mtime_ns: ns(stat.mtime(), stat.mtime_nsec()),
        ctime_ns: ns(stat.ctime(), stat.ctime_nsec()),
    })
}

fn hashed(file: &mut File) -> std::io::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn kernel_text(path: &str) -> Result<String, HostError> {
    let bytes = read_at_most(Path::new(path), TEXT_BYTES_MAX);
    let bytes = bytes.map_err(|error| unknown(path, error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    match text.is_empty() {
        true => Err(unknown(path, "it is empty".to_owned())),
        false => Ok(text),
    }
}

fn unread(path: &Path, error: std::io::Error) -> HostError {
    unknown(
        &format!("the content of {}", path.display()),
        error.to_string(),
    )
}

fn unknown(what: &str, why: String) -> HostError {
    HostError::Unknown {
        what: what.to_owned(),
        why,
    }
}

/// Longer than any file system's clock ticks.
const SETTLED_NS: i64 = 2_000_000_000;
const PIECE_BYTES: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 4 << 20;
