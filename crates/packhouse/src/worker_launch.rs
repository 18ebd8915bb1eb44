//! The first half of `worker start`: what would be started, what stands against it, and the launch
//! under the locks of the worker and of its devices.

use crate::failure::Failure;
use crate::fleets::{FleetFile, Workplace};
use crate::model_source::NoCopy;
use crate::places::{Lookup, Places};
use crate::worker_scope::way_out;
use crate::{ram, worker_devices, worker_edits, worker_order};
use packhouse_proc::devices::{Device, Inventory, Vendor};
use packhouse_proc::fleet::host::{Found, look, shared_devices};
use packhouse_proc::fleet::{self, FleetCommand, Worker, WorkerName};
use packhouse_proc::holders::{Context, Processes};
use packhouse_proc::identity::{ProcessKey, RUN_ID_VARIABLE};
use packhouse_proc::locks::{DeviceLocks, LockSite};
use packhouse_proc::managed::managed;
use packhouse_proc::procfs::Procfs;
use packhouse_proc::records::{Backend, Order, OrderModel, Timestamp};
use packhouse_proc::render::Rendered;
use packhouse_proc::runs::{Run, Runs, RunsError, WaitSign, WorkerLock};
use packhouse_proc::start::{Before, LaunchError, Launcher, Underway};
use packhouse_stage::models::{AdmittedModel, ModelMiss};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::Fs;
use packhouse_sys::memory::available_bytes;
use packhouse_sys::real::RealFs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What starts of one command share.
pub(crate) struct Desk<'a> {
    pub(crate) file: &'a FleetFile,
    pub(crate) place: &'a Workplace<'a>,
    pub(crate) procfs: Procfs,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) state: PathBuf,
    lookup: Lookup<'a>,
    lock_timeout_ns: u64,
    backend: Result<Backend, String>,
}

/// What became of one worker's start before its readiness is waited for.
pub(crate) enum Begun {
    /// A dry run found nothing against it.
    Would(Box<Would>),
    /// Something is against it.
    Refused(Refused),
    /// It is launched.
    Launched(Box<InFlight>),
}

/// What a start would do.
pub(crate) struct Would {
    pub(crate) rendered: Rendered,
    pub(crate) devices: Vec<Device>,
    pub(crate) resumes: Option<u32>,
    pub(crate) notes: Vec<String>,
}

/// Why a worker is not started.
pub(crate) struct Refused {
    /// Each reason in a line.
    pub(crate) reasons: Vec<String>,
    /// What the engine wrote, where it was tried.
    pub(crate) run: Option<Run>,
    /// What is worth knowing.
    pub(crate) notes: Vec<String>,
}

/// A worker that was launched.
pub(crate) struct InFlight {
    pub(crate) underway: Underway,
    pub(crate) notes: Vec<String>,
    /// Whether it was launched by an earlier start.
    pub(crate) resumed: bool,
    pub(crate) runs: Runs,
    pub(crate) me: ProcessKey,
    _sign: WaitSign,
}

impl InFlight {
    /// Gives the worker's lock back for the wait, with a sign that it is waited for.
    fn new(
        underway: Underway,
        (runs, lock): (Runs, WorkerLock),
        me: ProcessKey,
        notes: Vec<String>,
        resumed: bool,
    ) -> Result<Box<Self>, RunsError> {
        let sign = runs.wait_sign(&RealClock, &me)?;
        drop(lock);
        Ok(Box::new(Self {
            underway,
            notes,
            resumed,
            runs,
            me,
            _sign: sign,
        }))
    }
}

impl From<Vec<String>> for Refused {
    fn from(reasons: Vec<String>) -> Self {
        Self {
            reasons,
            run: None,
            notes: Vec::new(),
        }
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        vec![reason].into()
    }
}

/// Refuses because of records that can't be read, with what helps.
fn unreadable(error: &RunsError) -> Refused {
    let mut refused = Refused::from(error.to_string());
    refused.notes.extend(way_out(error));
    refused
}

/// A worker that can be rendered, and what it would be started with.
struct Ready<'f> {
    worker: &'f Worker,
    found: Found,
    rendered: Rendered,
}

impl<'a> Desk<'a> {
    /// Opens what all starts need.
    pub(crate) fn open(
        file: &'a FleetFile,
        place: &'a Workplace<'a>,
        lookup: Lookup<'a>,
        lock_timeout_s: u64,
    ) -> Result<Self, Failure> {
        let procfs = Procfs::new(Path::new("/proc"))
            .map_err(|error| Failure::new("cannot see processes", "/proc").because(&error))?;
        let wanted = file.reading.fleet.as_ref().map(|fleet| fleet.backend);
        Ok(Self {
            file,
            place,
            procfs,
            fs: Arc::new(RealFs),
            state: Places::find(lookup)?.state,
            lookup,
            lock_timeout_ns: lock_timeout_s.saturating_mul(1_000_000_000),
            backend: worker_order::backend(wanted.unwrap_or(fleet::Backend::Plain)),
        })
    }

    /// Starts one worker as far as its launch, or says what would be done.
    pub(crate) fn begin(&self, name: &WorkerName, execute: bool) -> Begun {
        let begun = self.ready(name).map_err(Refused::from).and_then(|ready| {
            if execute {
                self.launch(name, &ready)
            } else {
                self.would(name, ready)
            }
        });
        begun.unwrap_or_else(Begun::Refused)
    }

    /// Everything that can be judged without a lock.
    fn ready(&self, name: &WorkerName) -> Result<Ready<'a>, Vec<String>> {
        let mistakes = self
            .file
            .reading
            .blocking(FleetCommand::Start, name.as_str());
        if !mistakes.is_empty() {
            let mistakes = mistakes.into_iter();
            return Err(mistakes.map(|mistake| self.file.say(mistake)).collect());
        }
        let worker = self.file.worker(name)?;
        let host = self.place.host();
        let (found, mut problems) = look(worker, &host);
        let fleet = self.file.reading.fleet.as_ref();
        problems.extend(fleet.map_or_else(Vec::new, |fleet| shared_devices(fleet, &host)));
        let blocking: Vec<String> = problems
            .iter()
            .filter(|problem| problem.blocks(FleetCommand::Start, name.as_str()))
            .map(|problem| problem.what.to_string())
            .collect();
        match found {
            Some(found) if blocking.is_empty() => {
                let rendered = found.render(worker, &host);
                let rendered = rendered.map_err(|error| vec![error.to_string()])?;
                if let Some(why) = self.place.lacks_plugin(worker, &rendered) {
                    return Err(vec![why]);
                }
                Ok(Ready {
                    worker,
                    found,
                    rendered,
                })
            }
            Some(_) | None => Err(blocking),
        }
    }

    fn would(&self, name: &WorkerName, ready: Ready<'_>) -> Result<Begun, Refused> {
        let (_, mut notes) = self.copy(ready.worker);
        let runs = Runs::open(
            Arc::clone(&self.fs),
            &self.state,
            self.fleet_name(),
            name.as_str(),
        );
        let runs = runs.map_err(|error| unreadable(&error))?;
        let before = match &runs {
            None => Before::Free,
            Some(runs) => self
                .launcher(&self.place.packhouse)
                .look(runs)
                .map_err(|error| self.stands(name, runs, &error))?,
        };
        let resumes = match &before {
            Before::Free => None,
            Before::Unfinished(underway) => {
                notes.extend(self.edited(name, &underway.order));
                Some(underway.run.number())
            }
        };
        if resumes.is_none() {
            self.backend.clone()?;
            notes.extend(self.free(&ready, &self.place.inventory)?);
        }
        Ok(Begun::Would(Box::new(Would {
            rendered: ready.rendered,
            devices: ready.found.devices,
            resumes,
            notes,
        })))
    }

    fn launch(&self, name: &WorkerName, ready: &Ready<'_>) -> Result<Begun, Refused> {
        let said = |error: &dyn std::error::Error| Refused::from(error.to_string());
        let me = self.procfs.own_key().map_err(|error| said(&error))?;
        let (fs, fleet) = (Arc::clone(&self.fs), self.fleet_name());
        let runs = Runs::make(fs, &self.state, fleet, name.as_str())
            .map_err(|error| unreadable(&error))?;
        let lock = runs
            .lock(&RealClock, &me, self.lock_timeout_ns)
            .map_err(|error| unreadable(&error))?;
        let backend = self.backend.clone()?;
        // A unit names its program; a child is this very file, whatever became of its name.
        let program = match backend {
            Backend::Systemd => self.place.packhouse.as_path(),
            Backend::Plain => Path::new("/proc/self/exe"),
        };
        let launcher = self.launcher(program);
        let before = launcher
            .before(&runs, &lock)
            .map_err(|error| self.stands(name, &runs, &error))?;
        if let Before::Unfinished(underway) = before {
            let number = underway.run.number();
            let mut notes = vec![format!(
                "run {number} was launched before, and goes on with its own settings"
            )];
            notes.extend(self.edited(name, &underway.order));
            let flight = InFlight::new(*underway, (runs, lock), me, notes, true);
            return Ok(Begun::Launched(flight.map_err(|error| said(&error))?));
        }
        let (copy, mut notes) = self.copy(ready.worker);
        let model = match &ready.found.model {
            None => None,
            Some(path) => worker_order::model(ready.worker, path, copy.as_ref(), self.lookup)?,
        };
        let devices = &ready.found.devices;
        let locks = self.lock(devices, ready.worker.port, &mut notes)?;
        let fresh = self.inventory_under_locks(devices);
        let inventory = fresh.as_ref().unwrap_or(&self.place.inventory);
        notes.extend(self.free(ready, inventory)?);
        let order = self.order(name, ready, model, backend, inventory)?;
        let launched = launcher.launch(&runs, &lock, &order);
        drop(locks);
        if let Err(error) = runs.prune(&lock, self.keep_runs()) {
            notes.push(format!("old runs stay: {error}"));
        }
        match launched {
            Ok(underway) => {
                let flight = InFlight::new(underway, (runs, lock), me, notes, false);
                Ok(Begun::Launched(flight.map_err(|error| said(&error))?))
            }
            Err(error) => Err(Refused {
                reasons: vec![error.to_string()],
                run: runs.newest().ok().flatten(),
                notes,
            }),
        }
    }

    /// Says in what the file differs from what a run was started with.
    fn edited(&self, name: &WorkerName, order: &Order) -> Option<String> {
        let edits = worker_edits::edits(self.file, self.place, name, order);
        worker_edits::say(self.file, name, &edits)
    }

    /// Refuses because of the run before, with what helps or explains.
    fn stands(&self, name: &WorkerName, runs: &Runs, error: &LaunchError) -> Refused {
        if let LaunchError::Records(error) = error {
            return unreadable(error);
        }
        let mut refused = Refused::from(error.to_string());
        if matches!(error, LaunchError::Runs { .. })
            && let Ok(Some(run)) = runs.newest()
            && let Ok(order) = run.order()
        {
            refused.notes.extend(self.edited(name, &order));
        }
        refused
    }

    fn lock(
        &self,
        devices: &[Device],
        port: u16,
        notes: &mut Vec<String>,
    ) -> Result<DeviceLocks, String> {
        let site = LockSite {
            fs: self.fs.as_ref(),
            clock: &RealClock,
            procfs: &self.procfs,
            state: &self.state,
            sys: Path::new("/sys"),
        };
        let locks = DeviceLocks::take(&site, devices, Some(port), self.lock_timeout_ns);
        let locks = locks.map_err(|error| error.to_string())?;
        for held in locks.user_only() {
            let (device, why) = (&held.device, &held.why);
            notes.push(format!(
                "{device} is locked among this user's processes only: {why}"
            ));
        }
        Ok(locks)
    }

    fn keep_runs(&self) -> usize {
        let fleet = self.file.reading.fleet.as_ref();
        let keep = fleet.map_or(10, |fleet| fleet.keep_runs);
        usize::try_from(keep).unwrap_or(usize::MAX)
    }

    fn launcher<'s>(&'s self, program: &'s Path) -> Launcher<'s> {
        Launcher {
            fs: self.fs.as_ref(),
            clock: &RealClock,
            procfs: &self.procfs,
            program,
        }
    }

    fn fleet_name(&self) -> &str {
        let name = self.file.reading.name.as_ref();
        name.map_or("", |name| name.as_str())
    }

    /// Cards are looked at again under their locks; cores have nothing that a look would tell.
    fn inventory_under_locks(&self, devices: &[Device]) -> Option<Inventory> {
        let is_card = |device: &Device| device.vendor != Vendor::Cpu;
        let has_card = devices.iter().any(is_card);
        has_card.then(|| worker_devices::look(self.lookup))
    }

    /// The copy of the model in RAM, and what is worth saying where there is one that is not used.
    fn copy(&self, worker: &Worker) -> (Option<AdmittedModel>, Vec<String>) {
        match self.place.copy(worker) {
            None | Some(Err(NoCopy::Nothing { .. } | NoCopy::Miss(ModelMiss::Absent { .. }))) => {
                (None, Vec::new())
            }
            Some(Ok(copy)) => {
                let of = worker.model.as_ref().map(|model| model.path.display());
                let of = of.map_or_else(String::new, |of| format!(" of {of}"));
                let note = format!("its model is the copy in RAM{of}: {}", copy.path.display());
                let disk = ram::note_of_own(self.lookup);
                (Some(copy), std::iter::once(note).chain(disk).collect())
            }
            Some(Err(why)) => (None, vec![format!("no copy in RAM is used: {why}")]),
        }
    }

    /// What is in the way of a worker, or else what is worth knowing.
    fn free(&self, ready: &Ready<'_>, inventory: &Inventory) -> Result<Vec<String>, Refused> {
        let name = ready.worker.name.as_str();
        let managed = managed(&self.fs, &self.procfs, &self.state);
        let managed = managed.map_err(|error| error.to_string())?;
        let is_self = |fleet: &str, worker: &str| fleet == self.fleet_name() && worker == name;
        let mut notes = Vec::new();
        for worker in managed.unreadable {
            let (fleet, name, why) = (worker.fleet, worker.worker, worker.why);
            notes.push(format!(
                "whether worker {name} of fleet {fleet} lives is unknown: {why}"
            ));
        }
        let others = managed.workers.into_iter();
        let others: Vec<_> = others
            .filter(|other| !is_self(&other.fleet, &other.worker))
            .collect();
        let own = self.procfs.own_key().map_err(|error| error.to_string())?;
        let context = Context {
            inventory,
            managed: &others,
            exclude: &BTreeSet::from([own]),
        };
        let mut reasons = worker_order::port_taken(&self.procfs, ready.worker)
            .map_err(|error| error.to_string())?;
        // One that loads still does not listen.
        if reasons.is_empty() {
            reasons = worker_order::port_promised(&others, ready.worker);
        }
        let seen = Processes::look(&self.procfs).map_err(|error| error.to_string())?;
        for device in &ready.found.devices {
            // A card as it is now: its vendor's list was asked for under the lock.
            let now = inventory.devices.iter().find(|now| now.id == device.id);
            let device = now.unwrap_or(device);
            let found = seen.holders(device, &context);
            let found = found.map_err(|error| error.to_string())?;
            worker_order::say_holders(device, &found, &mut reasons, &mut notes);
        }
        if reasons.is_empty() {
            return Ok(notes);
        }
        Err(Refused {
            reasons,
            run: None,
            notes,
        })
    }

    fn order(
        &self,
        name: &WorkerName,
        ready: &Ready<'_>,
        model: Option<OrderModel>,
        backend: Backend,
        inventory: &Inventory,
    ) -> Result<Order, String> {
        let said = |error: &dyn std::error::Error| error.to_string();
        let launcher = self.launcher(Path::new("/"));
        let run = launcher.new_run_id().map_err(|error| said(&error))?;
        let mut words = worker_order::words(&ready.rendered)?;
        words
            .environment
            .insert(RUN_ID_VARIABLE.to_owned(), run.to_string());
        let worker = ready.worker;
        let fleet = self.file.reading.fleet.as_ref();
        Ok(Order {
            run,
            fleet: self.fleet_name().to_owned(),
            worker: name.as_str().to_owned(),
            role: worker.role.clone().unwrap_or_default(),
            at: Timestamp::now(&self.procfs.boot_id(), &RealClock),
            at_ticks: self.procfs.now_ticks().map_err(|error| said(&error))?,
            machine: self.procfs.machine_id().map(str::to_owned),
            controller: self.procfs.own_key().map_err(|error| said(&error))?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backend,
            command: words.command,
            environment: words.environment,
            inherit: worker.inherit.iter().cloned().collect(),
            working_folder: Some(ready.rendered.working_folder.clone()),
            cores: ready.rendered.cores.clone(),
            devices: worker_order::devices(&ready.found.devices, inventory),
            host: worker.host,
            port: worker.port,
            health_path: worker.health_path.clone(),
            ready_timeout_s: worker.ready_timeout_s,
            stop_timeouts: worker_order::stop_timeouts(worker.stop_timeouts),
            log_max_bytes: fleet.map_or(64 << 20, |fleet| fleet.log_max_bytes),
            model,
            available_bytes: available_bytes(),
        })
    }
}
