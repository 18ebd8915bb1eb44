//! `worker stop`: stops workers and waits until they are gone.

use crate::answer::{Answer, say};
use crate::failure::{Exit, Failure};
use crate::places::Lookup;
use crate::worker_devices::tools;
use crate::worker_scope::{Scope, procfs, way_out};
use crate::worker_status::doubtful;
use crate::worker_words::WorkerStopArgs;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_proc::devices::Roots;
use packhouse_proc::fleet::WorkerName;
use packhouse_proc::group::Unproven;
use packhouse_proc::records::{
    EndedProcess, ReleasedDevice, ReleasedMemory, ReleasedPort, Step, StopMember,
};
use packhouse_proc::release::HostReadings;
use packhouse_proc::runs::{DAMAGED, Run, Runs, RunsError};
use packhouse_proc::stop::{self, Damaged, Preview, Progress, Scene, StopError, Stopped, Timeouts};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::memory::available_bytes;
use packhouse_sys::signal::{catch_once, was_caught};
use serde_json::{Value, json};
use std::io::IsTerminal as _;

/// Answers the command. Ends with 1 when something is held still, with 3 when a worker could not be
/// stopped.
pub(crate) fn stop(args: &WorkerStopArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let scope = Scope::find(&args.fleet, "stop", lookup)?;
    let procfs = procfs()?;
    let tools = tools(lookup);
    let roots = Roots::default();
    let readings = HostReadings {
        tools: &tools,
        roots: &roots,
    };
    let scene = Scene {
        procfs: &procfs,
        clock: &RealClock,
        readings: &readings,
        available_bytes: &available_bytes,
    };
    if args.execute {
        // Where this fails, a signal ends the command as any.
        let _ = catch_once();
    }
    let lock_ns = args.lock_timeout.saturating_mul(1_000_000_000);
    let one = &|name: &WorkerName| match args.execute {
        true => execute(&scope, &scene, name, lock_ns),
        false => preview(&scope, &scene, name),
    };
    // One that takes its time does not keep the others.
    let reports: Vec<Report> = std::thread::scope(|threads| {
        let spawn = |name| threads.spawn(move || one(name));
        let running: Vec<_> = scope.names.iter().map(spawn).collect();
        while args.execute && !running.iter().all(|thread| thread.is_finished()) {
            if was_caught() {
                cut_short(&scope, |index| running[index].is_finished());
            }
            RealClock.sleep_ns(PAUSE_NS);
        }
        let joined = running.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    });
    Ok(answer(&scope, &reports, args.execute))
}

/// Ends the command where the user asked for it, and says what goes on. A stop may be ended at any
/// instruction: its record is written before its first signal, and the next one goes on from there.
#[expect(
    clippy::disallowed_methods,
    reason = "threads that wait for engines can't be asked to end"
)]
fn cut_short(scope: &Scope, is_over: impl Fn(usize) -> bool) -> ! {
    let names = scope.names.iter().enumerate();
    let names = names.filter(|(index, _)| !is_over(*index));
    let names: Vec<String> = names.map(|(_, name)| name.to_string()).collect();
    let failure = Failure::new("stop cut short", names.join(", "))
        .cause("what lives still goes on; the next stop goes on with this one")
        .hint(format!("packhouse worker stop {} --execute", scope.which()));
    say(&failure);
    std::process::exit(failure.exit() as i32)
}

const PAUSE_NS: u64 = 20_000_000;

/// What is told of one worker.
struct Report {
    name: String,
    result: Result<Told, StopError>,
    /// Processes that no record knows.
    strays: Vec<String>,
}

enum Told {
    NeverStarted,
    Would(Box<Preview>),
    Did(Box<Stopped>),
}

fn preview(scope: &Scope, scene: &Scene<'_>, name: &WorkerName) -> Report {
    let look = || -> Result<Told, StopError> {
        match newest(scope, name)? {
            None => Ok(Told::NeverStarted),
            Some((_, run)) => Ok(Told::Would(Box::new(stop::preview(scene, &run)?))),
        }
    };
    Report {
        name: name.to_string(),
        result: look(),
        strays: scope.strays(scene.procfs, name),
    }
}

fn execute(scope: &Scope, scene: &Scene<'_>, name: &WorkerName, lock_ns: u64) -> Report {
    let act = || -> Result<Told, StopError> {
        let Some((runs, _)) = newest(scope, name)? else {
            return Ok(Told::NeverStarted);
        };
        let me = scene.procfs.own_key()?;
        let _lock = runs.lock(scene.clock, &me, lock_ns)?;
        // Another start may have made a newer one before the lock was had.
        let Some(run) = runs.newest()? else {
            return Ok(Told::NeverStarted);
        };
        let timeouts = Timeouts::of(&run.order()?.stop_timeouts);
        let mut tell = |progress: Progress| show(name, &progress);
        let stopped = stop::stop(scene, &run, &me, &timeouts, &mut tell)?;
        Ok(Told::Did(Box::new(stopped)))
    };
    Report {
        name: name.to_string(),
        result: act(),
        strays: scope.strays(scene.procfs, name),
    }
}

fn newest(scope: &Scope, name: &WorkerName) -> Result<Option<(Runs, Run)>, RunsError> {
    let Some(runs) = scope.runs(name)? else {
        return Ok(None);
    };
    Ok(runs.newest()?.map(|run| (runs, run)))
}

/// Says how far a stop is, where somebody looks.
fn show(name: &WorkerName, progress: &Progress) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let said = match progress {
        Progress::Signalled { step, member } => format!("{} to {}", signal(*step), shown(member)),
        // The answer has a line for it.
        Progress::Ended { .. } => return,
        Progress::Releasing => "all processes are gone; looking at port and memory".to_owned(),
    };
    say(format_args!("{name}: {}\n", Shown(&said)));
}

fn answer(scope: &Scope, reports: &[Report], is_executed: bool) -> Answer {
    let mut text = String::new();
    for report in reports {
        for line in lines(report).iter().chain(&report.strays) {
            text += &format!("{}: {}\n", report.name, Shown(line));
        }
    }
    let would = |report: &&Report| match &report.result {
        Ok(Told::Would(preview)) => has_work(preview),
        Ok(Told::NeverStarted | Told::Did(_)) | Err(_) => false,
    };
    if !is_executed && reports.iter().any(|report| would(&report)) {
        text += "nothing was done: add --execute\n";
    }
    Answer {
        text,
        json: json!({
            "fleet": scope.fleet,
            "executed": is_executed,
            "workers": reports.iter().map(document).collect::<Vec<_>>(),
        }),
        exit: exit(reports),
    }
}

fn exit(reports: &[Report]) -> Exit {
    let is_held = |report: &Report| match &report.result {
        Ok(Told::Did(stopped)) => stopped.is_held(),
        Ok(Told::NeverStarted | Told::Would(_)) | Err(_) => false,
    };
    if reports.iter().any(|report| report.result.is_err()) {
        Exit::NotExecuted
    } else if reports
        .iter()
        .any(|report| is_held(report) || !report.strays.is_empty())
    {
        Exit::Negative
    } else {
        Exit::Done
    }
}

/// Whether a stop would have something to do.
fn has_work(preview: &Preview) -> bool {
    preview.released.is_none()
        || preview.main.is_some()
        || preview.keeper.is_some()
        || !preview.others.is_empty()
}

fn lines(report: &Report) -> Vec<String> {
    match &report.result {
        Err(error) => {
            let mut lines = vec![format!("not stopped: {error}")];
            match error {
                StopError::StillAlive { refused, .. } => {
                    lines.extend(refused.iter().map(ToString::to_string));
                }
                StopError::Runs(error) => lines.extend(way_out(error)),
                StopError::Procfs(_)
                | StopError::OtherNamespace { .. }
                | StopError::OtherMachine { .. }
                | StopError::KeeperStays => {}
                StopError::Doubted { processes } => {
                    lines.extend(processes.iter().map(doubtful));
                    lines.push(hint_for(processes));
                }
            }
            lines
        }
        Ok(Told::NeverStarted) if !report.strays.is_empty() => {
            vec!["no start is recorded: nothing that could be stopped".to_owned()]
        }
        Ok(Told::NeverStarted) => vec!["never started, nothing to stop".to_owned()],
        Ok(Told::Would(preview)) => preview_lines(preview),
        Ok(Told::Did(stopped)) => stopped_lines(stopped),
    }
}

/// What to do about processes that only a record says are the worker's.
fn hint_for(processes: &[Unproven]) -> String {
    let pids = processes.iter().map(|one| one.key.pid.to_string());
    let pids = pids.collect::<Vec<_>>().join(" ");
    format!(
        "where they are the worker's: kill -INT {pids}; where not, launched.json was changed: \
         rename it, and stop again"
    )
}

fn damage(damaged: &Damaged, done: &str) -> String {
    let (why, file) = (&damaged.why, damaged.file);
    format!("{why}: {done} as {file}{DAMAGED}")
}

fn preview_lines(preview: &Preview) -> Vec<String> {
    let timeouts = &preview.order.stop_timeouts;
    let damaged = preview.damaged.iter();
    let mut lines: Vec<String> = damaged
        .map(|one| damage(one, "would be set aside"))
        .collect();
    if !has_work(preview) {
        lines.push("over, and all was given back".to_owned());
    }
    if preview.begun.is_some() && (preview.main.is_some() || !preview.others.is_empty()) {
        lines.push("a stop was begun before, and would be continued".to_owned());
    }
    if let Some(main) = &preview.main {
        let wait = timeouts.interrupt_s;
        lines.push(format!(
            "would send SIGINT to {}, and wait {wait} s",
            shown(main)
        ));
    }
    let mut all: Vec<&StopMember> = preview.main.iter().chain(&preview.others).collect();
    if !all.is_empty() {
        all.sort();
        let names = all.iter().map(|member| shown(member));
        let names = names.collect::<Vec<_>>().join(", ");
        let (terminate, kill) = (timeouts.terminate_s, timeouts.kill_s);
        lines.push(format!(
            "then SIGTERM to what lives of {names}, and wait {terminate} s"
        ));
        lines.push(format!("then SIGKILL to what lives, and wait {kill} s"));
    } else if has_work(preview) {
        lines.push("nothing lives; would prove that all was given back".to_owned());
    }
    lines.extend(preview.unproven.iter().map(doubtful));
    lines
}

fn stopped_lines(stopped: &Stopped) -> Vec<String> {
    let mut lines: Vec<String> = stopped.ended.iter().map(ended).collect();
    lines.extend(stopped.damaged.iter().map(|one| damage(one, "set aside")));
    lines.extend(stopped.unproven.iter().map(doubtful));
    if let Some(outcome) = &stopped.outcome {
        lines.push(format!("engine: {outcome}"));
    }
    lines.push(match &stopped.port {
        ReleasedPort::Free => "port: free".to_owned(),
        ReleasedPort::Taken { by } => format!("port: held by {by}"),
        ReleasedPort::Unknown { why } => format!("port: unknown: {why}"),
    });
    lines.extend(stopped.devices.iter().map(device_line));
    if let Some(bytes) = stopped.private_bytes {
        lines.push(format!("private memory that went: {}", units::bytes(bytes)));
    }
    if let (Some(before), Some(after)) = stopped.available_bytes {
        let (before, after) = (units::bytes(before), units::bytes(after));
        lines.push(format!("memory available: {after}, before {before}"));
    }
    lines.push(match (stopped.is_released, stopped.was_over) {
        (true, true) => "was over, and all was given back".to_owned(),
        (true, false) => "stopped, and all was given back".to_owned(),
        (false, _) => "stopped, and something is held still".to_owned(),
    });
    lines
}

fn device_line(device: &ReleasedDevice) -> String {
    let id = &device.id;
    match &device.memory {
        ReleasedMemory::Returned {
            target_bytes,
            used_bytes,
        } => {
            let (used, target) = (units::bytes(*used_bytes), units::bytes(*target_bytes));
            format!("{id}: memory came back, {used} in use, {target} before")
        }
        ReleasedMemory::Held {
            target_bytes,
            used_bytes,
        } => {
            let (used, target) = (units::bytes(*used_bytes), units::bytes(*target_bytes));
            format!("{id}: memory did not come back, {used} in use, {target} before")
        }
        ReleasedMemory::WithProcesses => {
            format!("{id}: no memory of its own, that of the processes went with them")
        }
        ReleasedMemory::Unknown { why } => {
            format!("{id}: whether memory came back is unknown: {why}")
        }
    }
}

fn document(report: &Report) -> Value {
    let name = &report.name;
    match &report.result {
        Err(error) => json!({"worker": name, "outcome": "failed", "error": error.to_string()}),
        Ok(Told::NeverStarted) => json!({
            "worker": name, "outcome": "never_started", "strays": report.strays,
        }),
        Ok(Told::Would(preview)) => json!({
            "worker": name,
            "outcome": "would_stop",
            "has_work": has_work(preview),
            "main": preview.main.as_ref().map(member),
            "others": preview.others.iter().map(member).collect::<Vec<_>>(),
            "keeper": preview.keeper.as_ref().map(member),
            "unproven": preview.unproven.iter().map(doubtful).collect::<Vec<_>>(),
            "is_begun": preview.begun.is_some(),
            "is_released": preview.released.is_some(),
            "damaged": preview.damaged.iter().map(|one| one.why.to_string()).collect::<Vec<_>>(),
            "strays": report.strays,
        }),
        Ok(Told::Did(stopped)) => json!({
            "worker": name,
            "outcome": if stopped.is_released { "released" } else { "held" },
            "was_over": stopped.was_over,
            "ended": stopped.ended.iter().map(|process| json!({
                "pid": process.member.key.pid,
                "name": process.member.name,
                "after": process.after.map(Step::word),
            })).collect::<Vec<_>>(),
            "exit": stopped.outcome.as_ref().map(ToString::to_string),
            "port": stopped.port.to_value(),
            "devices": stopped.devices.iter().map(ReleasedDevice::to_value).collect::<Vec<_>>(),
            "private_bytes": stopped.private_bytes,
            "available_before_bytes": stopped.available_bytes.0,
            "available_after_bytes": stopped.available_bytes.1,
            "unproven": stopped.unproven.iter().map(doubtful).collect::<Vec<_>>(),
            "damaged": stopped.damaged.iter().map(|one| one.why.to_string()).collect::<Vec<_>>(),
            "strays": report.strays,
        }),
    }
}

fn member(member: &StopMember) -> Value {
    json!({"pid": member.key.pid, "name": member.name})
}

fn shown(member: &StopMember) -> String {
    format!("pid {} ({})", member.key.pid, member.name)
}

fn ended(process: &EndedProcess) -> String {
    let after = match process.after {
        None => "with no signal of this stop".to_owned(),
        Some(step) => format!("after {}", signal(step)),
    };
    format!("{} ended {after}", shown(&process.member))
}

fn signal(step: Step) -> &'static str {
    match step {
        Step::Interrupt => "SIGINT",
        Step::Terminate => "SIGTERM",
        Step::Kill => "SIGKILL",
    }
}
