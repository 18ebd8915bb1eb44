//! `worker start`: starts workers and waits until they are ready.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::fleets::{self, FleetFile, Workplace};
use crate::places::Lookup;
use crate::worker_launch::{Desk, InFlight, Refused, Would};
use crate::worker_wait::{self, Waited};
use crate::worker_words::WorkerStartArgs;
use packhouse_base::shown::Shown;
use packhouse_proc::fleet::{FleetCommand, WorkerName};
use packhouse_proc::logs::LogText;
use packhouse_proc::ready::NotReady;
use packhouse_proc::records::{Identity, Record as _};
use packhouse_proc::runs::Run;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// Answers the command. A worker that is refused does not stop the others.
pub(crate) fn start(args: &WorkerStartArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let file = fleets::read(args.fleet.config.as_deref(), lookup)?;
    let names = file.workers(&args.fleet)?;
    if names.is_empty() {
        return Err(file.without_workers());
    }
    let place = Workplace::look(lookup)?;
    let desk = Desk::open(&file, &place, lookup, args.lock_timeout)?;
    let begun = names
        .iter()
        .map(|name| desk.begin(name, args.execute))
        .collect();
    let mut ended = worker_wait::wait(&desk.procfs, &names, begun);
    let mut labels: Vec<Label> = names.iter().map(Label::of).collect();
    for unnamed in file.unnamed(&args.fleet) {
        labels.push(Label {
            id: unnamed.label.clone(),
            shown: format!("worker {unnamed}"),
        });
        let reasons = file.against(FleetCommand::Start, unnamed);
        ended.push(Waited::Refused(reasons.into()));
    }
    let mut report = Report::default();
    report.of_all(&ended);
    for (label, ended) in labels.iter().zip(ended) {
        report.add(label, ended);
    }
    Ok(report.answer(&file, args.execute))
}

/// What a worker is called: by its name, or by its place where that is no name.
struct Label {
    id: String,
    shown: String,
}

impl Label {
    fn of(name: &WorkerName) -> Self {
        Self {
            id: name.to_string(),
            shown: name.to_string(),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        target.write_str(&self.shown)
    }
}

#[derive(Default)]
struct Report {
    text: String,
    /// Reasons by which every worker is refused: told once.
    of_all: BTreeSet<String>,
    workers: Vec<Value>,
    /// Whether anything would be done with --execute.
    would_start: bool,
    is_refused: bool,
    is_not_ready: bool,
}

impl Report {
    /// Tells once what stands against every one of several workers.
    fn of_all(&mut self, ended: &[Waited]) {
        let reasons = |waited: &Waited| match waited {
            Waited::Refused(refused) => refused.reasons.iter().cloned().collect(),
            Waited::Would(_) | Waited::Ended(..) => BTreeSet::new(),
        };
        let [first, second, others @ ..] = ended else {
            return;
        };
        let mut shared: BTreeSet<String> = reasons(first);
        for waited in std::iter::once(second).chain(others) {
            let own = reasons(waited);
            shared.retain(|reason| own.contains(reason));
        }
        let Waited::Refused(first) = first else {
            return;
        };
        // In the order in which they were found.
        for reason in first
            .reasons
            .iter()
            .filter(|reason| shared.contains(*reason))
        {
            self.line(&format!("every worker: refused: {reason}"));
        }
        self.of_all = shared;
    }

    fn add(&mut self, name: &Label, waited: Waited) {
        match waited {
            Waited::Would(would) => self.would(name, &would),
            Waited::Refused(refused) => self.refused(name, &refused),
            Waited::Ended(flight, ended) => match *ended {
                Ok(identity) => self.ready(name, &flight, &identity),
                Err(why) => self.not_ready(name, &flight, &why),
            },
        }
    }

    fn answer(mut self, file: &FleetFile, execute: bool) -> Answer {
        if !execute && self.would_start {
            self.text += "Nothing was started: add --execute\n";
        }
        let exit = match (self.is_refused, self.is_not_ready) {
            (true, _) => Exit::NotExecuted,
            (false, true) => Exit::Negative,
            (false, false) => Exit::Done,
        };
        Answer {
            text: self.text,
            json: json!({
                "file": file.path.display().to_string(),
                "fleet": file.reading.name.as_ref().map(|name| name.as_str()),
                "executed": execute,
                "workers": self.workers,
            }),
            exit,
        }
    }

    fn would(&mut self, name: &Label, would: &Would) {
        self.would_start = true;
        let devices = would.devices.iter().map(|device| device.id.to_string());
        let devices: Vec<String> = devices.collect();
        match would.resumes {
            Some(run) => self.line(&format!("{name}: would wait on for run {run}")),
            None => {
                self.line(&format!("{name}: would start on {}", devices.join(", ")));
                for line in would.rendered.to_string().lines() {
                    self.line(&format!("  {line}"));
                }
            }
        }
        self.notes(&would.notes);
        self.workers.push(json!({
            "worker": name.id,
            "outcome": "would_start",
            "resumes": would.resumes,
            "devices": devices,
            "shell": would.rendered.to_string(),
            "notes": would.notes,
        }));
    }

    fn refused(&mut self, name: &Label, refused: &Refused) {
        self.is_refused = true;
        let is_own = |reason: &&String| !self.of_all.contains(*reason);
        let own: Vec<&String> = refused.reasons.iter().filter(is_own).collect();
        for reason in own {
            self.line(&format!("{name}: refused: {reason}"));
        }
        let log = self.log(refused.run.as_ref());
        self.notes(&refused.notes);
        self.workers.push(json!({
            "worker": name.id,
            "outcome": "refused",
            "reasons": refused.reasons,
            "notes": refused.notes,
            "log": log,
        }));
    }

    fn ready(&mut self, name: &Label, flight: &InFlight, identity: &Identity) {
        let after = identity.ready_after_ns;
        let after = after.map_or_else(String::new, |ns| format!(" after {}", seconds(ns)));
        self.line(&format!(
            "{name}: ready{after}: pid {}, {}, run {}",
            identity.worker.pid,
            identity.listener.address,
            flight.underway.run.number(),
        ));
        self.notes(&flight.notes);
        self.workers.push(json!({
            "worker": name.id,
            "outcome": "ready",
            "run": flight.underway.run.number(),
            "resumed": flight.resumed,
            "identity": identity.to_value(),
            "notes": flight.notes,
        }));
    }

    fn not_ready(&mut self, name: &Label, flight: &InFlight, why: &NotReady) {
        self.is_not_ready = true;
        // What was asked for was not carried through.
        self.is_refused |= matches!(why, NotReady::Interrupted { .. });
        self.line(&format!("{name}: not ready: {why}"));
        let log = self.log(Some(&flight.underway.run));
        self.notes(&flight.notes);
        self.workers.push(json!({
            "worker": name.id,
            "outcome": "not_ready",
            "run": flight.underway.run.number(),
            "reason": why.to_string(),
            "notes": flight.notes,
            "log": log,
        }));
    }

    /// Shows the last lines that an engine wrote.
    fn log(&mut self, run: Option<&Run>) -> Vec<String> {
        let Some(run) = run else {
            return Vec::new();
        };
        let text = match LogText::read(run, Some(LOG_LINES)) {
            Ok(Some(log)) => log.text,
            Ok(None) => Vec::new(),
            Err(error) => error.to_string().into_bytes(),
        };
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            self.line("  it wrote nothing");
        }
        for line in &lines {
            self.line(&format!("  | {line}"));
        }
        lines
    }

    fn notes(&mut self, notes: &[String]) {
        for note in notes {
            self.line(&format!("  note: {note}"));
        }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", Shown(line));
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:02} s", ns / 1_000_000_000, ns / 10_000_000 % 100)
}

/// Lines of a log that are shown where a worker did not become ready.
const LOG_LINES: usize = 20;
