//! `worker render`: the exact environment and command of each worker.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fleets::{self, FleetFile, Workplace};
use crate::places::Lookup;
use crate::worker_words::FleetFileArgs;
use packhouse_base::shown::Shown;
use packhouse_proc::fleet::host::{Found, Problem, look};
use packhouse_proc::fleet::{FleetCommand, Worker, WorkerName};
use packhouse_proc::render::Rendered;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;

/// Answers the command. Workers that can't be rendered are named and do not stop the others.
pub(crate) fn render(args: &FleetFileArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let file = fleets::read(args.config.as_deref(), lookup)?;
    let names = file.workers(args)?;
    if names.is_empty() {
        return Err(file.without_workers());
    }
    let place = Workplace::look(lookup)?;
    // Each text replaces the shell that executes it: of several, a shell would execute the first.
    let is_together = names.len() > 1;
    let mut text = match names.len() {
        0 | 1 => String::new(),
        count => {
            format!("# {count} workers, each in the background; for one alone: --worker NAME\n")
        }
    };
    let mut workers = Vec::new();
    let mut is_refused = false;
    for name in names {
        let separator = if text.is_empty() { "" } else { "\n" };
        match one(&file, &name, &place) {
            Ok((worker, found, rendered)) => {
                let _ = writeln!(text, "{separator}# worker {name}{}", copy(worker, &found));
                let _ = match is_together {
                    true => writeln!(text, "({rendered}) &"),
                    false => writeln!(text, "{rendered}"),
                };
                workers.push(document(&name, &found, &rendered));
            }
            Err(why) => {
                is_refused = true;
                let _ = writeln!(text, "{separator}# worker {name} can't be rendered:");
                for line in &why {
                    let _ = writeln!(text, "# {}", Shown(line));
                }
                workers.push(json!({ "worker": name.as_str(), "problems": why }));
            }
        }
    }
    for unnamed in file.unnamed(args) {
        is_refused = true;
        let why = file.against(FleetCommand::Render, unnamed);
        let _ = writeln!(text, "\n# worker {unnamed} can't be rendered:");
        for line in &why {
            let _ = writeln!(text, "# {}", Shown(line));
        }
        workers.push(json!({ "worker": unnamed.label, "problems": why }));
    }
    if is_together {
        text += "\nwait\n";
    }
    Ok(Answer {
        text,
        json: json!({
            "file": file.path.display().to_string(),
            "fleet": file.reading.name.as_ref().map(|name| name.as_str()),
            "workers": workers,
        }),
        exit: fleets::exit(is_refused),
    })
}

/// One worker, or what blocks it.
fn one<'f>(
    file: &'f FleetFile,
    name: &WorkerName,
    place: &Workplace<'_>,
) -> Result<(&'f Worker, Found, Rendered), Vec<String>> {
    let mistakes = file.reading.blocking(FleetCommand::Render, name.as_str());
    if !mistakes.is_empty() {
        return Err(mistakes
            .into_iter()
            .map(|mistake| file.say(mistake))
            .collect());
    }
    let worker = file.worker(name)?;
    let host = place.host();
    let (found, problems) = look(worker, &host);
    let blocks = |problem: &&Problem| problem.blocks(FleetCommand::Render, name.as_str());
    match found {
        Some(found) if !problems.iter().any(|problem| blocks(&problem)) => {
            let rendered = found.render(worker, &host);
            let rendered = rendered.map_err(|error| vec![error.to_string()])?;
            Ok((worker, found, rendered))
        }
        Some(_) | None => {
            let problems = problems.iter().filter(blocks);
            Err(problems.map(|problem| problem.what.to_string()).collect())
        }
    }
}

/// Says that the model is a copy in RAM, where it is.
fn copy(worker: &Worker, found: &Found) -> &'static str {
    match (&worker.model, &found.model) {
        (Some(own), Some(file)) if own.path != *file => ", its model a copy in RAM",
        (Some(_) | None, _) => "",
    }
}

fn document(name: &WorkerName, found: &Found, rendered: &Rendered) -> Value {
    let text = |word: &OsString| Value::from(word.to_string_lossy());
    let environment = rendered.environment.iter();
    let environment: Map<String, Value> = environment
        .map(|(name, value)| (name.to_string_lossy().into_owned(), text(value)))
        .collect();
    let devices = found.devices.iter().map(|device| device.id.as_str());
    json!({
        "worker": name.as_str(),
        "devices": devices.collect::<Vec<_>>(),
        "command": rendered.command.iter().map(text).collect::<Vec<_>>(),
        "environment": environment,
        "cores": rendered.cores.as_ref().map(ToString::to_string),
        "working_folder": rendered.working_folder.display().to_string(),
        "model": found.model.as_ref().map(|model| model.display().to_string()),
        "shell": rendered.to_string(),
    })
}
