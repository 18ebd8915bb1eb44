//! A made up host with programs and models, and fleet files on it.

use crate::cards::inventory;
use packhouse_proc::devices::{Device, Inventory};
use packhouse_proc::fleet::host::{Host, Models, look};
use packhouse_proc::fleet::{self, Fleet, Worker, host_problems};
use packhouse_proc::render::{RenderError, Rendered};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub(crate) const CARD: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

/// Models where the fleet file says they are.
pub(crate) struct Own;

impl Models for Own {
    fn file(&self, worker: &Worker) -> Option<PathBuf> {
        Some(worker.model.as_ref()?.path.clone())
    }
}

/// A host with some devices, and programs and models in a folder.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) inventory: Inventory,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) first_free_port: u16,
}

impl World {
    pub(crate) fn new(devices: &[Device]) -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            inventory: inventory(devices),
            environment: Vec::new(),
            first_free_port: 1024,
        };
        fs::create_dir(world.path("bin")).unwrap();
        fs::write(world.path("bin/server"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(world.path("bin/server"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(world.path("bin/notes"), "words").unwrap();
        fs::write(world.path("model"), "weights").unwrap();
        fs::write(world.path("empty"), "").unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn host(&self) -> Host<'_> {
        Host {
            inventory: &self.inventory,
            environment: &self.environment,
            packhouse: Path::new("/opt/packhouse"),
            first_free_port: self.first_free_port,
            models: &Own,
        }
    }

    /// A right file with `<tmp>` for the folder: the engine's lines, the common ones, the workers.
    pub(crate) fn fleet(&self, engine: &str, common: &str, workers: &str) -> Fleet {
        let text = format!(
            "schema = \"packhouse/fleet/1\"\nname = \"t\"\n[engine]\n{engine}\n[common]\n{common}\n\
             {workers}\n"
        );
        let own = self.folder.path().to_str().unwrap();
        fleet::parse(&text.replace("<tmp>", own)).unwrap_or_else(|mistakes| {
            let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            panic!("{}", said.join("\n"))
        })
    }

    /// All problems, with `<tmp>` for the folder.
    pub(crate) fn problems(&self, fleet: &Fleet) -> Vec<String> {
        let problems = host_problems(fleet, &self.host());
        let own = self.folder.path().to_str().unwrap();
        let said = problems.iter().map(|p| p.to_string().replace(own, "<tmp>"));
        said.collect()
    }

    pub(crate) fn render(&self, worker: &Worker) -> Result<Rendered, RenderError> {
        let (found, problems) = look(worker, &self.host());
        found
            .unwrap_or_else(|| panic!("not found: {problems:?}"))
            .render(worker, &self.host())
    }
}

pub(crate) const ENGINE: &str = "command = [\"<tmp>/bin/server\", \"{host}\", \"{port}\"]";
pub(crate) const WORKER: &str = "[[worker]]\nname = \"w\"\ndevice = \"cpu:0\"\nport = 8081\n";
