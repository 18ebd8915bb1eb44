//! `lab lane`: a lane's document becomes a lane, waits until a day, goes on, and ends.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_enter::{Entering, enter, name, words};
use crate::lab_lane_new;
use crate::lab_open::Opened;
use crate::lab_refused::of_freeze;
use crate::lab_words::{LabLaneCommand, LabLaneReasonArgs, LabLaneWaitArgs};
use packhouse_base::digest::Digest;
use packhouse_lab::freeze::{self, FreezeError};
use packhouse_lab::name::is_id;
use packhouse_lab::nearest::nearest;
use packhouse_ledger::act::{Date, Lane, LaneAction, Name};
use packhouse_ledger::state::{LanePhase, LaneState};
use packhouse_sys::fs::Dir;
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
    let entered = enter(&opened, args.execute, entering);
    let mut answer = entered.map_err(|failure| unknown(&opened, &args.id, failure))?;
    if args.execute && action == LaneAction::Open {
        let new = format!("experiment new ID --lane {} --execute", args.id);
        answer.text += &format!("next: {}\n", place.hint(&new));
    }
    Ok(answer)
}

fn waits(args: &LabLaneWaitArgs, action: LaneAction, place: &Place) -> Result<Answer, Failure> {
    let (lane, reason) = (name("a lane", &args.id)?, words("--reason", &args.reason)?);
    let until = Date::parse(&args.until).map_err(|error| {
        let words = format!("lane {action} {lane} --reason TEXT --until YYYY-MM-DD");
        Failure::usage("no day for --until", &args.until)
            .because(&error)
            .hint(place.hint(&words))
    })?;
    let opened = Opened::of(place)?;
    let today = day_of(opened.lab().clock.wall_ns());
    if until.as_str() < today.as_str() {
        return Err(Failure::usage("a day that is over for --until", &until)
            .cause(format!("today is {today}, by UTC"))
            .hint(place.hint(&format!("lane resume {lane} --reason TEXT"))));
    }
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
    let entered = enter(&opened, args.execute, entering);
    entered.map_err(|failure| unknown(&opened, &args.id, failure))
}

/// Where the ledger knows no such lane, the refusal names the one that may be meant.
fn unknown(opened: &Opened<'_>, id: &str, failure: Failure) -> Failure {
    let Ok(ledger) = opened.ledger() else {
        return failure;
    };
    let lanes = ledger.state().lanes().keys();
    let lanes: Vec<&str> = lanes.map(|lane| lane.as_str()).collect();
    if lanes.contains(&id) {
        return failure;
    }
    let failure = failure.hint(opened.place.hint("lane ls"));
    match nearest(id, lanes) {
        Some(meant) => failure.cause(format!("did you mean {meant}?")),
        None => failure,
    }
}

/// The lane whose document is there and whose id is nearly so.
pub(crate) fn meant(root: &Dir, id: &str) -> Option<String> {
    let names = root.open_dir("lanes").and_then(|lanes| lanes.list());
    let names = names.unwrap_or_default();
    let names = names.iter().filter_map(|name| name.to_str());
    let lanes = names.filter_map(|name| name.strip_suffix(".toml"));
    nearest(id, lanes.filter(|lane| is_id(lane))).map(str::to_owned)
}

/// The day of a wall time as YYYY-MM-DD, by UTC. Source: proleptic Gregorian calendar of ISO 8601,
/// whose years begin with March here, so that a leap day is a year's last.
fn day_of(wall_ns: i64) -> String {
    const DAY_NS: i64 = 86_400_000_000_000;
    const ERA_DAYS: i64 = 146_097;
    let days = wall_ns.div_euclid(DAY_NS) + 719_468;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + later)
}

/// Digest of a lane's document, which must be as its format has it.
fn document(opened: &Opened<'_>, id: &str) -> Result<Digest, Failure> {
    let read = freeze::lane(&opened.lab(), id);
    let (_, bytes) = read.map_err(|error| {
        let failure = Failure::new("no lane can be opened by this document", id);
        match error {
            FreezeError::Absent { .. } => {
                let failure = failure.because(&error);
                match meant(&opened.root, id) {
                    Some(meant) => failure
                        .cause(format!("did you mean {meant}?"))
                        .hint(format!("ls {}", quoted(opened.place.root.join("lanes")))),
                    None => failure.hint(opened.place.hint(&format!("lane new {id} --execute"))),
                }
            }
            other => of_freeze(failure, opened.place, &other),
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
        let edited = edited(&opened, lane, state);
        let reason = match edited {
            true => format!(
                "{} (its document was edited since: register refuses it)",
                state.reason
            ),
            false => state.reason.clone(),
        };
        rows.push(row([
            lane.as_str(),
            state.phase.as_str(),
            until,
            &state.since.to_string(),
            &count.to_string(),
            &reason,
        ]));
        list.push(json!({
            "lane": lane.as_str(),
            "state": state.phase.as_str(),
            "until": self::until(state),
            "since": state.since,
            "opened": state.opened,
            "reason": state.reason,
            "document": state.document.to_string(),
            "edited": edited,
            "packets": count,
        }));
    }
    let text = match lanes.is_empty() {
        true => "no lane was opened\n".to_owned(),
        false => fitted_table(&COLUMNS, &rows),
    };
    Ok(Answer::done(text, json!({ "lanes": Value::from(list) })))
}

/// Whether a lane's document is another one than it was opened with.
fn edited(opened: &Opened<'_>, lane: &Name, state: &LaneState) -> bool {
    let bytes = freeze::file(&opened.lab(), &freeze::lane_path(lane.as_str()));
    bytes.is_ok_and(|bytes| bytes.is_none_or(|bytes| Digest::of(&bytes) != state.document))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        const DAY_NS: i64 = 86_400_000_000_000;
        for (days, day) in [
            (-1, "1969-12-31"),
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_787, "2026-11-30"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(day_of(days * DAY_NS), day);
            assert_eq!(day_of(days * DAY_NS + DAY_NS - 1), day);
        }
    }
}
