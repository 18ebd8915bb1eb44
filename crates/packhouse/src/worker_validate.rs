//! `worker validate`: a fleet file against its format and this host.

use crate::answer::Answer;
use crate::failure::{Exit, Failure, quoted};
use crate::fleets::{self, FleetFile, Workplace};
use crate::places::Lookup;
use crate::worker_words::FleetFileArgs;
use packhouse_base::shown::Shown;
use packhouse_proc::fleet::host::{Problem, host_problems, look};
use packhouse_proc::fleet::{Blocks, Commands, FleetCommand, Reach};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Answers the command: 0 when nothing blocks the workers that are asked for, else 1.
pub(crate) fn validate(args: &FleetFileArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let file = fleets::read(args.config.as_deref(), lookup)?;
    let names = file.workers(args)?;
    let place = Workplace::look(lookup)?;
    let lines = lines(&file, &place);
    let is_asked = |line: &&Line| {
        args.worker.is_empty()
            || names
                .iter()
                .any(|name| line.blocks.workers.has(name.as_str()))
    };
    let lines: Vec<&Line> = lines.iter().filter(is_asked).collect();
    let is_right = lines
        .iter()
        .all(|line| line.blocks.commands == Commands::None);
    let mut text = String::new();
    for line in &lines {
        let _ = writeln!(text, "{}", Shown(&line.text));
    }
    let mut workers = Vec::new();
    for name in &names {
        let blocked = |command| {
            let mut blocks = lines.iter().map(|line| &line.blocks);
            blocks.any(|blocks| blocks.include(command, name.as_str()))
        };
        let (render, start) = (blocked(FleetCommand::Render), blocked(FleetCommand::Start));
        let said = match (render, start) {
            (false, false) => "nothing blocks it",
            (false, true) => "start is blocked; render, status, stop and logs are not",
            (true, _) => "render and start are blocked; status, stop and logs are not",
        };
        let _ = writeln!(text, "worker {name}: {said}");
        workers.push(json!({
            "worker": name.as_str(),
            "render": !render,
            "start": !start,
            "status": true,
            "stop": true,
            "logs": true,
        }));
    }
    rest(&file, args, &mut text, &mut workers);
    if file.reading.name.is_none() {
        text += "status, stop and logs need the fleet's name: --fleet NAME\n";
    }
    Ok(Answer {
        text,
        json: json!({
            "file": file.path.display().to_string(),
            "fleet": file.reading.name.as_ref().map(|name| name.as_str()),
            "problems": lines.iter().map(|line| line.document()).collect::<Vec<_>>(),
            "workers": workers,
        }),
        exit: if is_right { Exit::Done } else { Exit::Negative },
    })
}

/// Workers without a right name, and what was not looked at where one could be started.
fn rest(file: &FleetFile, args: &FleetFileArgs, text: &mut String, workers: &mut Vec<Value>) {
    for unnamed in file.unnamed(args) {
        let _ = writeln!(
            text,
            "worker {unnamed}: render and start are blocked; the others need its name"
        );
        workers.push(json!({
            "worker": unnamed.label,
            "render": false,
            "start": false,
            "status": false,
            "stop": false,
            "logs": false,
        }));
    }
    if workers.iter().any(|worker| worker["start"] == true) {
        let _ = writeln!(
            text,
            "not looked at: taken ports, holders of devices, the model's SHA-256\n\
             ports and holders are told by: packhouse worker start --config {}",
            quoted(&file.path)
        );
    }
}

/// One mistake of the file or problem with the host.
struct Line {
    text: String,
    place: Option<(usize, usize, String)>,
    what: String,
    blocks: Blocks,
}

impl Line {
    fn document(&self) -> Value {
        let place = self.place.as_ref();
        json!({
            "line": place.map(|(line, _, _)| line),
            "column": place.map(|(_, column, _)| column),
            "key": place.map(|(_, _, key)| key),
            "what": self.what,
            "blocks": {
                "render": self.blocks.commands == Commands::RenderAndStart,
                "start": self.blocks.commands != Commands::None,
                "workers": match &self.blocks.workers {
                    Reach::All => json!("all"),
                    Reach::These(workers) => json!(workers),
                },
            },
        })
    }

    fn of_problem(problem: &Problem) -> Self {
        Self {
            text: format!("this host: {problem}"),
            place: None,
            what: problem.what.to_string(),
            blocks: problem.blocks.clone(),
        }
    }
}

fn lines(file: &FleetFile, place: &Workplace<'_>) -> Vec<Line> {
    let mistakes = file.reading.mistakes.iter().map(|mistake| Line {
        text: file.say(mistake),
        place: Some((mistake.line, mistake.column, mistake.key.clone())),
        what: mistake.what.to_string(),
        blocks: mistake.blocks.clone(),
    });
    let mut lines: Vec<Line> = mistakes.collect();
    if let Some(fleet) = &file.reading.fleet {
        let problems = host_problems(fleet, &place.host());
        lines.extend(problems.iter().map(Line::of_problem));
        lines.extend(without_plugin(file, place));
    }
    lines
}

/// The workers with packs for which there is no plug-in.
fn without_plugin(file: &FleetFile, place: &Workplace<'_>) -> Option<Line> {
    let fleet = file.reading.fleet.as_ref()?;
    let host = place.host();
    let mut missing = None;
    let mut workers = std::collections::BTreeSet::new();
    for worker in fleet.workers.iter().filter(|worker| worker.packs) {
        let (Some(found), _) = look(worker, &host) else {
            continue;
        };
        let Ok(rendered) = found.render(worker, &host) else {
            continue;
        };
        if let Some(why) = place.lacks_plugin(worker, &rendered) {
            missing.get_or_insert(why);
            workers.insert(worker.name.to_string());
        }
    }
    let what = missing?;
    let blocks = Blocks {
        commands: Commands::Start,
        workers: Reach::These(workers),
    };
    Some(Line {
        text: format!("this host: {what} [{blocks}]"),
        place: None,
        what,
        blocks,
    })
}
