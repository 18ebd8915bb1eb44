//! `lab lane`: a lane's document becomes a lane, waits until a day, goes on, and ends.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_enter::{Entering, enter, name, words};
use crate::lab_lane_new;
use crate::lab_open::Opened;
use crate::lab_words::{LabLaneCommand, LabLaneReasonArgs, LabLaneWaitArgs};
use packhouse_base::digest::Digest;
use packhouse_lab::freeze;
use packhouse_ledger::act::{Date, Lane, LaneAction, Name};
use packhouse_ledger::state::{LanePhase, LaneState};
use serde_json::{Value, json};

/// Executes one command on lanes.
pub(crate) fn execute(command: &LabLaneCommand, place: &Place) -> Result<Answer, Failure> {
    match command {
        LabLaneCommand::New(args) => lab_lane_new::execute(args, place),
        LabLaneCommand::Open(args) => reasoned(args, LaneAction::Open, place),
        LabLaneCommand::Resume(args) => reasoned(args, LaneAction::Resume, place),
        LabLaneCommand::Close(args) => reasoned(args, LaneAction::Close, place),
        LabLaneCommand::Pause(args) => waits(args, LaneAction::Pause, place),
        LabLaneCommand::Block(args) => waits(args, LaneAction::Block, place),
        LabLaneCommand::Ls => list(place),
    }
}

fn reasoned(
    args: &LabLaneReasonArgs,
    action: LaneAction,
    place: &Place,
) -> Result<Answer, Failure> {
    let (lane, reason) = (name("a lane", &args.id)?, words("--reason", &args.reason)?);
    let opened = Opened::of(place)?;
    let document = match action {
        LaneAction::Open => Some(document(&opened, &args.id)?),
        LaneAction::Pause | LaneAction::Resume | LaneAction::Block | LaneAction::Close => None,
    };
    let said = match document {
        Some(document) => format!("open lane {lane} with document {document}: {reason}"),
        None => format!("{action} lane {lane}: {reason}"),
    };
    let entering = Entering {
        line: said,
        irreversible: irreversible(action),
        command: format!(
            "lane {action} {lane} --reason {}",
            quoted(args.reason.as_str())
        ),
        act: Lane {
            lane,
            action,
            reason,
            document,
            until: None,
        }
        .into(),
    };
    enter(&opened, args.execute, entering)
}

fn waits(args: &LabLaneWaitArgs, action: LaneAction, place: &Place) -> Result<Answer, Failure> {
    let (lane, reason) = (name("a lane", &args.id)?, words("--reason", &args.reason)?);
    let until = Date::parse(&args.until)
        .map_err(|error| Failure::usage("no day for --until", &args.until).because(&error))?;
    let entering = Entering {
        line: format!("{action} lane {lane} until {until}: {reason}"),
        irreversible: irreversible(action),
        command: format!(
            "lane {action} {lane} --reason {} --until {until}",
            quoted(args.reason.as_str())
        ),
        act: Lane {
            lane,
            action,
            reason,
            document: None,
            until: Some(until),
        }
        .into(),
    };
    enter(&Opened::of(place)?, args.execute, entering)
}

/// Digest of a lane's document, which must be as its format has it.
fn document(opened: &Opened<'_>, id: &str) -> Result<Digest, Failure> {
    let read = freeze::lane(&opened.lab(), id);
    let (_, bytes) = read.map_err(|error| {
        let failure = Failure::new("no lane can be opened by this document", id);
        let failure = failure.because(&error);
        match error {
            freeze::FreezeError::Absent { .. } => {
                failure.hint(opened.place.hint(&format!("lane new {id} --execute")))
            }
            _ => failure,
        }
    })?;
    Ok(Digest::of(&bytes))
}

fn irreversible(action: LaneAction) -> &'static str {
    match action {
        LaneAction::Open => {
            "the lane's document is frozen by its digest; a change of its promise is another lane"
        }
        LaneAction::Pause | LaneAction::Block => {
            "the entry stays; until `lane resume` nothing is registered, armed or run in the lane"
        }
        LaneAction::Resume => "the entry stays",
        LaneAction::Close => {
            "the lane is closed for ever: nothing more is done in it, or with a packet of it"
        }
    }
}

fn list(place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let lanes = ledger.state().lanes();
    let packets = |lane: &Name| {
        let packets = ledger.state().packets().values();
        packets.filter(|packet| packet.lane == *lane).count()
    };
    let mut rows = vec![row([
        "lane", "state", "until", "entry", "packets", "reason",
    ])];
    let mut list = Vec::new();
    for (lane, state) in lanes {
        let until = until(state).unwrap_or("-");
        let count = packets(lane);
        rows.push(row([
            lane.as_str(),
            state.phase.as_str(),
            until,
            &state.since.to_string(),
            &count.to_string(),
            &state.reason,
        ]));
        list.push(json!({
            "lane": lane.as_str(),
            "state": state.phase.as_str(),
            "until": self::until(state),
            "since": state.since,
            "opened": state.opened,
            "reason": state.reason,
            "document": state.document.to_string(),
            "packets": count,
        }));
    }
    let text = match lanes.is_empty() {
        true => "no lane was opened\n".to_owned(),
        false => fitted_table(&COLUMNS, &rows),
    };
    Ok(Answer::done(text, json!({ "lanes": Value::from(list) })))
}

const COLUMNS: [Column; 6] = [
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Left,
];

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn until(state: &LaneState) -> Option<&str> {
    match &state.phase {
        LanePhase::Paused { until } | LanePhase::Blocked { until } => Some(until.as_str()),
        LanePhase::Open | LanePhase::Closed => None,
    }
}
