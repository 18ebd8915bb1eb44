//! `lab register`: an experiment is frozen by digest.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_experiment::drafts;
use crate::lab_lane;
use crate::lab_open::{Opened, Told, counted};
use crate::lab_refused::{BYTECODE, NO_BYTECODE, edit, of_freeze, of_host};
use crate::lab_withdraw::{another, told_withdrawn};
use crate::lab_words::LabRegisterArgs;
use packhouse_build::focused::head_of;
use packhouse_lab::contrast::contrast;
use packhouse_lab::freeze::{FreezeError, packet_path, prereg_path};
use packhouse_lab::nearest::nearest;
use packhouse_lab::packet::FrozenProgram;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::register::{self, RegisterError, Registration};
use serde_json::json;
use std::path::Path;

/// Freezes an experiment.
pub(crate) fn execute(args: &LabRegisterArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let lab = opened.lab();
    let recipes = Recipes::default();
    let refused = |error: RegisterError| refused(&opened, &args.experiment, error);
    if !args.execute {
        let ledger = opened.ledger()?;
        let plan = register::plan(&lab, &ledger, &args.experiment, &recipes).map_err(refused)?;
        let command = format!("register {} --execute", args.experiment);
        return Ok(told(&plan, &place.root).planned(&place.hint(&command)));
    }
    let mut writer = opened.writer()?;
    let plan = register::plan(&lab, writer.ledger(), &args.experiment, &recipes);
    let plan = plan.map_err(refused)?;
    register::write(&lab, &plan).map_err(refused)?;
    let entered = opened.append(&mut writer, plan.act.clone())?;
    let rehearse = place.hint(&format!("rehearse {} --execute", args.experiment));
    Ok(entered.answer(told(&plan, &place.root), Some(&rehearse)))
}

fn told(plan: &Registration, root: &Path) -> Told {
    let packet = &plan.packet;
    let path = packet_path(&packet.experiment);
    let digest = plan.act.packet;
    let mut lines = vec![
        format!(
            "packet {digest} in lane {}: {}",
            packet.lane.id, plan.act.treatment
        ),
        format!("prereg.toml {}", packet.prereg),
        format!("lane {} {}", packet.lane.id, packet.lane.sha256),
    ];
    for (word, program) in packet.programs.all() {
        lines.extend(of_program((word, program), plan, root));
    }
    let differences = contrast(packet);
    lines.push(match differences.len() {
        0 => "control and candidate differ in nothing that is frozen".to_owned(),
        count => format!("control and candidate differ in {count}, as computed:"),
    });
    lines.extend(differences.iter().map(|one| format!("  {one}")));
    if plan.documents.prereg.matrix.repeats == 1 {
        lines.push(
            "no case is drawn (repeats = 1): a program that kept the published answers would pass, \
             and no record can cite this packet"
                .to_owned(),
        );
    }
    let counts = [
        ("frozen files", packet.frozen.len()),
        ("commits", packet.commits.len()),
        ("fixtures", packet.fixtures.len()),
    ];
    let counts: Vec<String> = counts
        .iter()
        .map(|(what, count)| format!("{what}: {count}"))
        .collect();
    lines.push(counts.join(", "));
    lines.push(format!(
        "this program {}, {}",
        packet.analyzer, packet.checker
    ));
    lines.push(match plan.replaces {
        None => path.clone(),
        Some(left) => format!("{path}, in the place of {left}, which no entry names"),
    });
    Told {
        lines,
        irreversible: "the experiment's id is used up; nothing that its packet names may change",
        json: json!({
            "experiment": packet.experiment,
            "packet": digest.to_string(),
            "path": path,
            "treatment": plan.act.treatment,
            "differs": differences,
        }),
    }
}

/// What is told of a program: what is frozen of it, and what nobody can see from here.
fn of_program(
    (word, program): (&str, &FrozenProgram),
    plan: &Registration,
    root: &Path,
) -> Vec<String> {
    let mut lines = Vec::new();
    let (name, digest) = (&program.program.name, program.program.sha256);
    let loaded = counted(program.objects.len() as u64, "file", "files");
    lines.push(format!(
        "{word}: {name} {digest}, and {loaded} that it loads"
    ));
    // Nothing that a registration may ask tells what an interpreter opens by itself.
    if head_of(&root.join(name)).starts_with(b"#!") {
        lines.push(format!(
            "{word} is a script: whatever its interpreter loads by itself (extension modules) \
             must be frozen too, as copies below the lab, or `identities` fails; so must what \
             it only reads (modules in source), which no gate sees"
        ));
    }
    if writes_bytecode(program, plan) {
        lines.push(format!(
            "{word} is run by Python, which writes {BYTECODE} into a frozen folder that it \
             imports from, and spoils it: {NO_BYTECODE} = \"1\" in its environment prevents it"
        ));
    }
    lines
}

/// Whether Python would write bytecode into a frozen folder.
fn writes_bytecode(program: &FrozenProgram, plan: &Registration) -> bool {
    let is_python = |name: &str| name.starts_with("python");
    let mut objects = program.objects.iter();
    let is_run = is_python(&program.program.name) || objects.any(|one| is_python(&one.name));
    let is_told = program.environment.contains_key(NO_BYTECODE)
        || program.arguments.iter().any(|word| word == "-B");
    // A file that is frozen by its own name has nothing beside it that is.
    let listed = &plan.documents.prereg.frozen;
    let mut frozen = plan.packet.frozen.iter();
    let of_folder = frozen.any(|one| one.path.ends_with(".py") && !listed.contains(&one.path));
    is_run && !is_told && of_folder
}

fn refused(opened: &Opened<'_>, experiment: &str, error: RegisterError) -> Failure {
    let place = opened.place;
    let not = || Failure::new("not registered", experiment);
    match error {
        RegisterError::Freeze(error) => {
            let failure = of_freeze(not(), place, &error);
            let failure = match &error {
                FreezeError::Absent { path } => of_lane(opened, experiment, path, failure),
                _ => failure,
            };
            match meant(opened, experiment) {
                Some(meant) => failure.cause(format!("did you mean {meant}?")),
                None => failure,
            }
        }
        RegisterError::NoLane { ref lane } => {
            let open = format!("lane open {lane} --reason TEXT --execute");
            not().because(&error).hint(place.hint(&open))
        }
        error @ RegisterError::LaneChanged { .. } => not()
            .because(&error)
            .cause("put it back: a lane that changed is a new lane, with an id of its own")
            .hint(place.hint("lane new NEW-ID")),
        RegisterError::Registered { packet, .. } => {
            let ledger = opened.ledger().ok();
            let state = ledger
                .as_ref()
                .and_then(|all| all.state().packets().get(&packet));
            let withdrawn = state.and_then(|state| state.withdrawn.as_ref());
            let failure = not().because(&error);
            let failure = match withdrawn.map(told_withdrawn) {
                Some(told) => failure.cause(format!("it was withdrawn {told}")),
                None => failure,
            };
            let hint = match (withdrawn, state) {
                (Some(_), Some(state)) => another(state),
                (None, _) | (_, None) => format!("report {experiment}"),
            };
            failure
                .cause("another attempt is another experiment, with an id of its own")
                .hint(place.hint(&hint))
        }
        error @ RegisterError::Name(_) => Failure::usage("no id of an experiment", experiment)
            .because(&error)
            .hint(place.hint("experiment ls")),
        RegisterError::Ledger(fault) => not()
            .because(&fault)
            .cause(format!("reason code {}", fault.code()))
            .hint(place.hint("ledger ls")),
        error @ RegisterError::Consumed { .. } => not()
            .because(&error)
            .cause("it was run by this user, of this or another lab, and a packet is run once")
            .hint(place.hint(&format!("experiment new NEW-ID --from {experiment}"))),
        RegisterError::Write(error) => not().because(&error).hint(of_host(place)),
        RegisterError::Fs(error) => not().because(&error).hint(of_host(place)),
    }
}

/// A lane without a document is the preregistration's to name otherwise.
fn of_lane(opened: &Opened<'_>, experiment: &str, path: &str, failure: Failure) -> Failure {
    let lane = path
        .strip_prefix("lanes/")
        .and_then(|name| name.strip_suffix(".toml"));
    let Some(lane) = lane else {
        return failure;
    };
    let prereg = prereg_path(experiment);
    let failure = failure.cause(format!("{prereg} names lane {lane}"));
    match lab_lane::meant(&opened.root, lane) {
        Some(meant) => failure
            .cause(format!("did you mean {meant}?"))
            .hint(edit(opened.place, &prereg)),
        None => failure,
    }
}

/// The drafted experiment that is nearly called so; none where there is a document of that name.
fn meant(opened: &Opened<'_>, experiment: &str) -> Option<String> {
    let document = opened.place.root.join(prereg_path(experiment));
    let ledger = opened.ledger().ok()?;
    let drafts = drafts(&opened.root, ledger.state()).ok()?;
    let is_absent = document.symlink_metadata().is_err();
    let known = drafts.iter().map(|one| one.id.as_str());
    let meant = nearest(experiment, known.filter(|_| is_absent));
    meant.map(str::to_owned)
}
