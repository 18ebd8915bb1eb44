//! `lab experiment`: a preregistration to edit, and the list of experiments, drafted ones too.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::{Opened, Told};
use crate::lab_page::Read;
use crate::lab_words::{LabExperimentCommand, LabExperimentNewArgs};
use crate::{hints, lab_templates};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_lab::freeze::prereg_path;
use packhouse_lab::name::is_experiment_id;
use packhouse_lab::nearest::nearest;
use packhouse_lab::{DOCUMENT_BYTES_MAX, Prereg};
use packhouse_ledger::State;
use packhouse_ledger::act::Name;
use packhouse_ledger::page::{Packet, Page};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use serde_json::{Value, json};

/// Executes one command on experiments.
pub(crate) fn execute(command: &LabExperimentCommand, place: &Place) -> Result<Answer, Failure> {
    match command {
        LabExperimentCommand::New(args) => new(args, place),
        LabExperimentCommand::Ls => list(place),
    }
}

/// An experiment that has a preregistration and no packet.
pub(crate) struct Draft {
    /// The name of its folder.
    pub(crate) id: String,
    /// Its lane; else why its preregistration is none yet.
    pub(crate) lane: Result<String, String>,
}

impl Draft {
    /// What it is, in words.
    pub(crate) fn words(&self) -> String {
        match &self.lane {
            Ok(lane) => format!("in lane {lane}, not registered"),
            Err(why) => format!("can't be registered yet: {why}"),
        }
    }
}

/// What is drafted: folders of experiments that the ledger does not know, by name.
pub(crate) fn drafts(root: &Dir, state: &State) -> Result<Vec<Draft>, FsError> {
    let folder = match root.open_dir("experiments") {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut ids: Vec<String> = folder
        .list()?
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect();
    ids.sort();
    let is_known = |id: &String| {
        let name = Name::parse(id).ok();
        name.is_some_and(|name| state.experiments().contains_key(&name))
    };
    let mut drafts = Vec::new();
    for id in ids.into_iter().filter(|id| !is_known(id)) {
        let Ok(own) = folder.open_dir(&id) else {
            continue;
        };
        let lane = match own.read_small("prereg.toml", DOCUMENT_BYTES_MAX as u64) {
            Err(error) if error.kind == FsErrorKind::NotFound => continue,
            Err(error) => Err(error.to_string()),
            Ok(bytes) => lane_of(&id, &bytes),
        };
        drafts.push(Draft { id, lane });
    }
    Ok(drafts)
}

fn lane_of(id: &str, bytes: &[u8]) -> Result<String, String> {
    let prereg = Prereg::parse(bytes).map_err(|error| error.to_string())?;
    match prereg.id == id {
        true => Ok(prereg.lane),
        false => Err(format!("its id is {}, its folder's name {id}", prereg.id)),
    }
}

fn list(place: &Place) -> Result<Answer, Failure> {
    let Read {
        opened,
        ledger,
        page,
    } = Read::lab(place)?;
    let state = ledger.state();
    let drafts = drafts(&opened.root, state).map_err(|error| {
        Failure::new("cannot list the experiments", error.path.display())
            .because(&error)
            .hint(hints::of(&error, &error.path))
    })?;
    let mut rows = vec![row(["experiment", "state", "lane", "next act"])];
    let mut documents = Vec::new();
    let mut add = |id: &str, (standing, reason): (&str, Option<&str>), lane: &str, next: String| {
        rows.push(row([id, standing, lane, &next]));
        documents.push(json!({
            "experiment": id,
            "state": standing,
            "reason": reason,
            "lane": lane,
            "next": next,
        }));
    };
    for draft in &drafts {
        let next = match &draft.lane {
            Ok(_) => place.hint(&format!("register {}", quoted(&draft.id))),
            Err(why) => why.clone(),
        };
        let lane = draft.lane.as_deref().unwrap_or("-");
        add(&draft.id, ("drafted", None), lane, next);
    }
    for packet in page.packets.iter().rev() {
        let reason = Some(packet.reason.as_str()).filter(|reason| !reason.is_empty());
        let next = next_act(place, &page, packet);
        let (id, word) = (&packet.experiment, packet.state.word());
        add(id, (word, reason), &packet.lane, next);
    }
    let text = match documents.is_empty() {
        true => format!(
            "no experiment; make one: {}\n",
            place.hint("experiment new ID")
        ),
        false => fitted_table(&[Column::Left; 4], &rows),
    };
    Ok(Answer::done(
        text,
        json!({ "experiments": Value::from(documents) }),
    ))
}

/// What `lab state` gives as next act; where nothing can follow, a look at what there is.
fn next_act(place: &Place, page: &Page, packet: &Packet) -> String {
    match page.next_on_packet(packet) {
        None => place.hint(&format!("report {}", quoted(&packet.experiment))),
        Some(act) => match act.strip_prefix("packhouse lab ") {
            Some(words) => place.hint(words),
            None => act,
        },
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn new(args: &LabExperimentNewArgs, place: &Place) -> Result<Answer, Failure> {
    let id = &args.id;
    if !is_experiment_id(id) {
        return Err(Failure::usage("no id of an experiment", id)
            .cause("an id has up to 64 of a-z, 0-9, dot, dash and underscore, and is not only 8")
            .cause("or more hex digits, which abbreviate packets")
            .hint(place.hint("experiment new my-experiment")));
    }
    let path = prereg_path(id);
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let taken = || {
        let file = place.root.join(&path);
        Failure::new("an experiment's document is there already", file.display())
            .cause("nothing was written")
            .hint(format!("cat {}", quoted(&file)))
    };
    let is_registered =
        Name::parse(id).is_ok_and(|name| ledger.state().experiments().contains_key(&name));
    if is_registered || place.root.join(&path).symlink_metadata().is_ok() {
        return Err(taken());
    }
    let draft = drafted(args, &opened, ledger.state())?;
    let told = Told {
        lines: std::iter::once(format!("{path}: {}", draft.words))
            .chain(draft.notes)
            .collect(),
        irreversible: "nothing: the experiment is not registered before the ledger says so",
        json: json!({ "experiment": id, "lane": draft.lane, "path": path }),
    };
    if !args.execute {
        let from = args.from.iter().map(|from| format!(" --from {from}"));
        let lane = args.lane.iter().map(|lane| format!(" --lane {lane}"));
        let options: String = from.chain(lane).collect();
        let command = format!("experiment new {id}{options} --execute");
        return Ok(told.planned(&place.hint(&command)));
    }
    let folder = open_or_make_dir(&opened.root, "experiments");
    let folder = folder.and_then(|all| open_or_make_dir(&all, id));
    let placed = folder.and_then(|own| lab_templates::place(&own, "prereg.toml", &draft.text));
    match placed {
        Ok(true) => {}
        Ok(false) => return Err(taken()),
        Err(error) => {
            return Err(Failure::new("cannot write a preregistration", &path)
                .because(&error)
                .hint(hints::of(&error, &place.root)));
        }
    }
    let mut answer = told.done();
    let register = place.hint(&format!("register {id} --execute"));
    answer.text += &format!("next: edit {path}, then {register}\n");
    Ok(answer)
}

/// What is to be written.
struct Drafted {
    text: String,
    lane: String,
    words: String,
    notes: Vec<String>,
}

fn drafted(
    args: &LabExperimentNewArgs,
    opened: &Opened<'_>,
    state: &State,
) -> Result<Drafted, Failure> {
    let id = &args.id;
    let Some(from) = &args.from else {
        let lane = lane(args.lane.as_deref(), opened, state)?;
        return Ok(Drafted {
            text: lab_templates::prereg(id, &lane),
            words: format!("a preregistration in lane {lane}, to edit"),
            lane,
            notes: Vec::new(),
        });
    };
    let (text, prereg) = source(from, opened, state)?;
    let lane = match &args.lane {
        Some(given) => self::lane(Some(given), opened, state)?,
        None => prereg.lane.clone(),
    };
    let text = lab_templates::renamed(&text, id, &lane);
    let is_its = |made: &Prereg| {
        let expected = Prereg {
            id: id.clone(),
            lane: lane.clone(),
            ..prereg.clone()
        };
        *made == expected
    };
    let Some(text) = text.filter(|text| Prereg::parse(text.as_bytes()).is_ok_and(|it| is_its(&it)))
    else {
        let path = opened.place.root.join(prereg_path(from));
        return Err(
            Failure::new("cannot copy a preregistration", path.display())
                .cause("its id and its lane are not each alone on a line of their own")
                .hint(format!("cat {}", quoted(&path))),
        );
    };
    let own = format!("experiments/{from}");
    let note = format!("it names {own} still, which is the folder of the experiment it is from");
    Ok(Drafted {
        words: format!("the preregistration of {from} in lane {lane}, to edit"),
        notes: names(&text, &own).then_some(note).into_iter().collect(),
        text,
        lane,
    })
}

/// Whether a document names something in what it says, and not only in a comment.
fn names(text: &str, what: &str) -> bool {
    let mut said = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    said.any(|line| line.contains(what))
}

/// The preregistration that is copied.
fn source(from: &str, opened: &Opened<'_>, state: &State) -> Result<(String, Prereg), Failure> {
    let read = packhouse_lab::freeze::file(&opened.lab(), &prereg_path(from));
    let absent = |failure: Failure| {
        let drafts = drafts(&opened.root, state).unwrap_or_default();
        let known = state.experiments().keys().map(|name| name.as_str());
        let known: Vec<&str> = known
            .chain(drafts.iter().map(|one| one.id.as_str()))
            .collect();
        match nearest(from, known) {
            Some(meant) => failure.cause(format!("did you mean {meant}?")),
            None => failure,
        }
    };
    let path = opened.place.root.join(prereg_path(from));
    let bytes = match is_experiment_id(from).then_some(read) {
        Some(Ok(Some(bytes))) => bytes,
        Some(Err(error)) => {
            return Err(
                Failure::new("cannot read a preregistration", path.display())
                    .because(&error)
                    .hint(format!("cat {}", quoted(&path))),
            );
        }
        Some(Ok(None)) | None => {
            let failure = Failure::usage("no such experiment for --from", from);
            return Err(absent(failure).hint(opened.place.hint("experiment ls")));
        }
    };
    let prereg = Prereg::parse(&bytes).map_err(|error| {
        Failure::new("no preregistration to copy", path.display())
            .because(&error)
            .hint(format!("${{EDITOR:-vi}} {}", quoted(&path)))
    })?;
    let text = String::from_utf8(bytes).expect("because it is TOML");
    Ok((text, prereg))
}

/// The lane of a new experiment: as given, else the only one that is not closed.
fn lane(given: Option<&str>, opened: &Opened<'_>, state: &State) -> Result<String, Failure> {
    let place = opened.place;
    let live: Vec<&str> = state
        .lanes()
        .iter()
        .filter(|(_, lane)| lane.phase != packhouse_ledger::state::LanePhase::Closed)
        .map(|(name, _)| name.as_str())
        .collect();
    match (given, &live[..]) {
        (Some(given), _) if live.contains(&given) => Ok(given.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(
            Failure::new("no lane is open for the experiment", place.root.display())
                .hint(place.hint("lane open ID --reason TEXT --execute")),
        ),
        (None, several) => Err(Failure::usage("more than one lane", several.join(", "))
            .hint(place.hint(&format!("experiment new ID --lane {}", several[0])))),
        (Some(given), _) if state.lanes().keys().any(|name| name.as_str() == given) => {
            Err(Failure::new("the lane is closed", given).hint(place.hint("lane ls")))
        }
        (Some(given), _) => {
            let mut failure = Failure::usage("no such lane", given);
            if let Some(meant) = nearest(given, live.iter().copied()) {
                failure = failure.cause(format!("did you mean {meant}?"));
            }
            Err(failure.hint(place.hint("lane ls")))
        }
    }
}
