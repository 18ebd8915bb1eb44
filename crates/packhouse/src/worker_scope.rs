//! Which workers a command is about that works from records: those that starts recorded, and those
//! of the fleet file where that can be read.

use crate::failure::{Failure, quoted};
use crate::fleets::{self, FleetFile};
use crate::places::{self, Lookup};
use crate::worker_words::FleetArgs;
use packhouse_proc::fleet::{Worker, WorkerName};
use packhouse_proc::group::strays::{Stray, strays};
use packhouse_proc::identity::RunId;
use packhouse_proc::procfs::{Procfs, ProcfsError};
use packhouse_proc::records::Order;
use packhouse_proc::runs::{Runs, RunsError};
use packhouse_proc::state::observe::{Place, listening_at, place_of};
use packhouse_store::small::SmallRefusal;
use packhouse_sys::real::RealFs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The workers of one fleet that a command is about.
pub(crate) struct Scope {
    /// The fleet's name.
    pub(crate) fleet: String,
    /// Its file, where it was read.
    pub(crate) file: Option<FleetFile>,
    /// The workers, those of the file first and in its order.
    pub(crate) names: Vec<WorkerName>,
    /// The folder of private state.
    pub(crate) state: PathBuf,
}

impl Scope {
    /// Finds the workers that are asked for. No more of a fleet file is needed than its name, and
    /// with `--fleet` no file.
    pub(crate) fn find(
        args: &FleetArgs,
        command: &str,
        lookup: Lookup<'_>,
    ) -> Result<Self, Failure> {
        let state = places::state(lookup)?;
        let without = |failure| recorded(failure, command, &state);
        let chosen = fleets::choose(args, lookup).map_err(without)?;
        let fleet = chosen.name.as_str().to_owned();
        let mut names = match &chosen.file {
            Some(file) => file.reading.declared.clone(),
            None => Vec::new(),
        };
        let started =
            Runs::workers(&RealFs, &state, &fleet).map_err(|error| unreadable(&state, &error))?;
        for name in started {
            if let Ok(name) = WorkerName::parse(&name)
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Err(match &chosen.file {
                Some(file) => file.without_workers(),
                None => without(Failure::usage("no start of this fleet is recorded", &fleet)),
            });
        }
        let which = which(chosen.file.as_ref(), &fleet);
        let hint = format!("packhouse worker status {which}");
        Ok(Self {
            names: fleets::among(&names, &args.worker, &hint)?,
            fleet,
            file: chosen.file,
            state,
        })
    }

    /// The option that names this fleet, for hints.
    pub(crate) fn which(&self) -> String {
        which(self.file.as_ref(), &self.fleet)
    }

    /// The runs of a worker; `None` when it was never started.
    pub(crate) fn runs(&self, name: &WorkerName) -> Result<Option<Runs>, RunsError> {
        Runs::open(Arc::new(RealFs), &self.state, &self.fleet, name.as_str())
    }

    /// Processes that look like this worker's, and that no record knows, in words. They are left
    /// alone by all commands.
    pub(crate) fn strays(&self, procfs: &Procfs, name: &WorkerName) -> Vec<String> {
        match self.find_strays(procfs, name) {
            Ok(found) => found.iter().map(stray).collect(),
            Err(error) => vec![format!("processes without records are unknown: {error}")],
        }
    }

    fn find_strays(&self, procfs: &Procfs, name: &WorkerName) -> Result<Vec<Stray>, ProcfsError> {
        let declared = self.declared(name).map(|worker| Place {
            host: worker.host,
            port: worker.port,
            health_path: worker.health_path.clone(),
        });
        let own = self.runs(name).ok().flatten();
        let place = orders(own).last().map(place_of).or(declared);
        let listening = match &place {
            Some(place) => listening_at(procfs, place, &BTreeSet::new())?,
            None => Vec::new(),
        };
        let on_port = listening.into_iter().flat_map(|found| found.owners);
        let fleet = self.state.join("fleets").join(&self.fleet);
        strays(
            procfs,
            &fleet.join(name.as_str()),
            &self.recorded_runs(),
            &on_port.collect(),
        )
    }

    /// The runs of all workers of all fleets whose orders can be read: what can't be knows nobody.
    fn recorded_runs(&self) -> BTreeSet<RunId> {
        let mut known = BTreeSet::new();
        for fleet in Runs::fleets(&RealFs, &self.state).unwrap_or_default() {
            let workers = Runs::workers(&RealFs, &self.state, &fleet);
            for worker in workers.unwrap_or_default() {
                let runs = Runs::open(Arc::new(RealFs), &self.state, &fleet, &worker);
                known.extend(orders(runs.ok().flatten()).iter().map(|order| order.run));
            }
        }
        known
    }

    /// What the fleet file says of a worker, where it says all.
    pub(crate) fn declared(&self, name: &WorkerName) -> Option<&Worker> {
        self.file.as_ref()?.worker(name).ok()
    }
}

fn which(file: Option<&FleetFile>, fleet: &str) -> String {
    match file {
        Some(file) => format!("--config {}", quoted(&file.path)),
        None => format!("--fleet {fleet}"),
    }
}

/// What a person can do about records that no command mends.
pub(crate) fn way_out(error: &RunsError) -> Option<String> {
    let away = |path: &Path| format!("mv {} /tmp", quoted(path));
    match error {
        RunsError::NoOrder { path } => Some(format!(
            "move it away, and the run before it counts: {}",
            away(path)
        )),
        RunsError::Mode { path, .. } => Some(format!("to close it: chmod 700 {}", quoted(path))),
        RunsError::NoFile { path } => Some(format!("move it away: {}", away(path))),
        RunsError::Unread(refusal) => match refusal.as_ref() {
            SmallRefusal::Writable { path, .. } => {
                Some(format!("to close it: chmod 600 {}", quoted(path)))
            }
            SmallRefusal::Kind { path, .. } => Some(damaged(path)),
            SmallRefusal::Absent { .. }
            | SmallRefusal::Owner { .. }
            | SmallRefusal::Folder(_)
            | SmallRefusal::Fs(_) => None,
        },
        RunsError::Record { path, .. } | RunsError::OtherRun { path, .. } => Some(damaged(path)),
        RunsError::Name { .. }
        | RunsError::Folder(_)
        | RunsError::Busy { .. }
        | RunsError::NumbersEnd { .. }
        | RunsError::Fs(_) => None,
    }
}

/// Without its order nothing is proven of a run; other records a stop sets aside.
fn damaged(path: &Path) -> String {
    match path.parent() {
        Some(run) if path.ends_with("order.json") => format!(
            "`packhouse worker status` names what is left of the run; once nothing is, move it \
             away: mv {} /tmp",
            quoted(run)
        ),
        Some(_) | None => "`packhouse worker stop --execute` sets it aside".to_owned(),
    }
}

/// The processes of this host.
pub(crate) fn procfs() -> Result<Procfs, Failure> {
    let path = Path::new("/proc");
    Procfs::new(path).map_err(|error| {
        Failure::new("cannot read processes", path.display())
            .because(&error)
            .hint("mount | grep ' /proc '")
    })
}

/// The orders of a worker's runs that can be read, oldest first.
fn orders(runs: Option<Runs>) -> Vec<Order> {
    let runs = runs.and_then(|runs| runs.list().ok()).unwrap_or_default();
    runs.iter().filter_map(|run| run.order().ok()).collect()
}

fn stray(stray: &Stray) -> String {
    let (pid, name, run) = (stray.key.pid, &stray.name, stray.run);
    format!(
        "pid {pid} ({name}) is of run {run}, whose records are gone: left alone; to end it: \
         kill -INT {pid}"
    )
}

/// Adds which fleets have records: their names are what `--fleet` takes.
fn recorded(failure: Failure, command: &str, state: &Path) -> Failure {
    let hint = |fleet: &str| format!("packhouse worker {command} --fleet {fleet}");
    match Runs::fleets(&RealFs, state) {
        Ok(fleets) => match fleets.first() {
            None => failure
                .cause("no start of any fleet is recorded")
                .hint("packhouse worker validate --config FILE"),
            Some(first) => failure
                .cause(format!("starts are recorded of {}", fleets.join(", ")))
                .hint(hint(first)),
        },
        Err(error) => failure.because(&error).hint(hint("NAME")),
    }
}

fn unreadable(state: &Path, error: &RunsError) -> Failure {
    Failure::new("cannot read what starts recorded", state.display())
        .because(error)
        .hint(format!("ls -la {}", crate::failure::quoted(state)))
}
