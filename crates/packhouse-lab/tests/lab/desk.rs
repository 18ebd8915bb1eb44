//! A lab on a simulated disk before anything is run: a host whose programs and work trees are what
//! a test says.

use crate::documents::{LANE, PREREG};
use packhouse_base::digest::Digest;
use packhouse_lab::packet::Object;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::world::{Commit, Host, HostDevice, HostError, Lab, Mapped};
use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::stat::FsKind;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

/// Fixtures, made once for all tests.
pub(crate) static RECIPES: LazyLock<Recipes> = LazyLock::new(Recipes::default);

pub(crate) const PREREG_FILE: &str = "/home/user/lab/experiments/one/prereg.toml";
/// The card of the matrix of `documents`.
pub(crate) const CARD: &str = "cuda:GPU-00000000-1111-2222-3333-44444444444f";
pub(crate) const LANE_FILE: &str = "/home/user/lab/lanes/fast.toml";

/// A lab, and a host that says what a test wants.
pub(crate) struct Desk {
    pub(crate) sim: SimFs,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) host: DeskHost,
}

/// A host in memory.
pub(crate) struct DeskHost {
    pub(crate) boot: String,
    pub(crate) analyzer: Digest,
    pub(crate) checker: String,
    /// Content of programs by path; what is not there can't be found.
    pub(crate) programs: Mutex<BTreeMap<PathBuf, String>>,
    /// Libraries of every program, with their content.
    pub(crate) objects: Mutex<Vec<(String, String)>>,
    /// The work tree of `source`, or what git says.
    pub(crate) commit: Mutex<Result<Commit, String>>,
    pub(crate) devices: Devices,
}

/// The devices of a played host, by their names.
pub(crate) type Devices = Mutex<BTreeMap<String, HostDevice>>;

impl Desk {
    /// A lab with the documents of `documents`, and all that they name.
    pub(crate) fn new() -> Self {
        let clock = Arc::new(SimClock::new());
        let sim = SimFs::new(1, clock.clone());
        sim.set_kind(FsKind::Ext);
        sim.make_dirs("/home/user/state", 1000, 0o700);
        let folders = [
            "",
            "lanes",
            "experiments",
            "experiments/one",
            "modules",
            "modules/deep",
            "models",
            "bin",
            "source",
        ];
        for folder in folders {
            let path = format!("/home/user/lab/{folder}");
            sim.make_dirs(path.trim_end_matches('/'), 1000, 0o755);
        }
        sim.replace(LANE_FILE, LANE.as_bytes(), 0o644);
        sim.replace(PREREG_FILE, PREREG.as_bytes(), 0o644);
        sim.replace("/home/user/lab/modules/a.py", b"a", 0o644);
        sim.replace("/home/user/lab/modules/deep/b.py", b"b", 0o600);
        sim.replace("/home/user/lab/models/m.bin", b"m", 0o644);
        let programs = [
            ("/usr/bin/packhouse", "own"),
            ("/home/user/lab/bin/candidate", "candidate"),
        ];
        let programs = programs.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let host = DeskHost {
            boot: "boot-1".to_owned(),
            analyzer: Digest::of(b"own"),
            checker: "checker 1".to_owned(),
            programs: Mutex::new(programs.into_iter().collect()),
            objects: Mutex::new(vec![("libc.so.6".to_owned(), "libc".to_owned())]),
            commit: Mutex::new(Ok(Commit {
                commit: "0123456789".repeat(4),
                changed: Vec::new(),
            })),
            devices: devices(&["cpu", CARD]),
        };
        Self { sim, clock, host }
    }

    /// Changes one text of the preregistration.
    pub(crate) fn edit(&self, good: &str, bad: &str) {
        let text = self.sim.read(PREREG_FILE).expect("because it is there");
        let text = String::from_utf8(text).expect("because it is text");
        assert_eq!(text.matches(good).count(), 1, "{good}");
        self.sim
            .replace(PREREG_FILE, text.replace(good, bad).as_bytes(), 0o644);
    }

    pub(crate) fn dir(&self, path: &str) -> Dir {
        let names = Path::new(path).components().skip(1);
        let root = self.sim.root().expect("because / is there");
        names.fold(root, |dir, name| dir.open_dir(name).expect("because it is"))
    }

    /// Does something with the lab as the library takes it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Lab<'_>) -> T) -> T {
        act(&Lab {
            fs: &self.sim,
            root: self.dir("/home/user/lab"),
            state: self.dir("/home/user/state"),
            clock: self.clock.as_ref(),
            host: &self.host,
        })
    }
}

/// Devices that nobody holds.
pub(crate) fn devices(names: &[&str]) -> Devices {
    let names = names.iter();
    Mutex::new(
        names
            .map(|name| ((*name).to_owned(), HostDevice::default()))
            .collect(),
    )
}

/// What a played host says of a device.
pub(crate) fn device_of(devices: &Devices, name: &str) -> Result<HostDevice, HostError> {
    let devices = devices.lock().expect("because no test panics in it");
    let device = devices.get(name).cloned();
    device.ok_or_else(|| HostError::NoDevice {
        device: name.to_owned(),
        why: "it is not here".to_owned(),
    })
}

impl Host for DeskHost {
    fn boot_id(&self) -> Result<String, HostError> {
        Ok(self.boot.clone())
    }

    fn kernel(&self) -> Result<String, HostError> {
        Ok("kernel".to_owned())
    }

    fn cpu(&self) -> Result<String, HostError> {
        Ok("cpu".to_owned())
    }

    fn analyzer(&self) -> Result<Digest, HostError> {
        Ok(self.analyzer)
    }

    fn checker(&self) -> String {
        self.checker.clone()
    }

    fn random32(&self) -> Result<[u8; 32], HostError> {
        Ok(*Digest::of(b"random").as_bytes())
    }

    fn resolve(&self, lab: &Path, program: &str) -> Result<PathBuf, HostError> {
        let path = match program.contains('/') {
            true => lab.join(program),
            false => Path::new("/usr/bin").join(program),
        };
        let programs = self.programs.lock().expect("because no test panics in it");
        match programs.contains_key(&path) {
            true => Ok(path),
            false => Err(HostError::NoProgram {
                program: program.to_owned(),
                why: "not found".to_owned(),
            }),
        }
    }

    fn content(&self, path: &Path) -> Result<Digest, HostError> {
        let programs = self.programs.lock().expect("because no test panics in it");
        let content = programs.get(path).map(|text| Digest::of(text.as_bytes()));
        content.ok_or_else(|| HostError::Unknown {
            what: path.display().to_string(),
            why: "not found".to_owned(),
        })
    }

    fn objects(&self, _: &Path, _: &[(OsString, OsString)]) -> Result<Vec<Object>, HostError> {
        let objects = self.objects.lock().expect("because no test panics in it");
        let objects = objects.iter().map(|(name, text)| Object {
            name: name.clone(),
            sha256: Digest::of(text.as_bytes()),
        });
        Ok(objects.collect())
    }

    fn commit(&self, folder: &Path) -> Result<Commit, HostError> {
        let commit = self.commit.lock().expect("because no test panics in it");
        commit.clone().map_err(|why| HostError::Git {
            folder: folder.display().to_string(),
            why,
        })
    }

    fn mapped_objects(&self, _: u32) -> Result<Vec<Mapped>, HostError> {
        Ok(Vec::new())
    }

    fn device(&self, name: &str) -> Result<HostDevice, HostError> {
        device_of(&self.devices, name)
    }
}
