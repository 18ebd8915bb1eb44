//! Each entry of a ledger in a few words, for the timeline and for a packet's history.

use super::values::{Mark, MarkKind};
use crate::act::{Act, Lane, LaneAction, Review, Stage, Verdict};
use crate::{Entry, Ledger};

/// All entries.
pub(super) fn of(ledger: &Ledger) -> Vec<Mark> {
    let went_back = ledger.state().clock_went_back();
    let entries = ledger.entries().iter();
    let marks = entries.map(|entry| {
        let (lane, experiment) = place(ledger, entry);
        Mark {
            index: entry.index,
            at_ns: entry.at_ns,
            kind: kind(&entry.act),
            lane,
            experiment,
            words: words(&entry.act),
            went_back: went_back.contains(&entry.index),
        }
    });
    marks.collect()
}

/// The lane and the experiment that an entry is about.
fn place(ledger: &Ledger, entry: &Entry) -> (Option<String>, Option<String>) {
    let packet = entry.act.packet();
    if let Some(packet) = packet.and_then(|packet| ledger.state().packets().get(&packet)) {
        let (lane, experiment) = (packet.lane.as_str(), packet.experiment.as_str());
        return (Some(lane.to_owned()), Some(experiment.to_owned()));
    }
    let mut lane = None;
    if let Act::Lane(body) = &entry.act {
        lane = Some(&body.lane);
    }
    if let Act::Note(body) = &entry.act {
        lane = body.lane.as_ref();
    }
    (lane.map(|lane| lane.as_str().to_owned()), None)
}

fn kind(act: &Act) -> MarkKind {
    match act {
        Act::Rehearsed(body) if body.green => MarkKind::Pass,
        Act::Rehearsed(_) => MarkKind::Fail,
        Act::Reviewed(body) if body.verdict == Review::Reject => MarkKind::Fail,
        Act::Released(_) | Act::Withdrawn(_) => MarkKind::Abort,
        Act::Consumed(_) => MarkKind::Consumed,
        Act::Sealed(body) => of_verdict(body.verdict),
        Act::Analysed(body) => of_verdict(body.verdict),
        Act::Record(_) => MarkKind::Record,
        Act::Corrected(_) | Act::Note(_) => MarkKind::Note,
        Act::Genesis(_)
        | Act::Lane(_)
        | Act::Registered(_)
        | Act::Reviewed(_)
        | Act::Armed(_)
        | Act::Nonce(_)
        | Act::Closed(_) => MarkKind::Act,
    }
}

fn of_verdict(verdict: Verdict) -> MarkKind {
    match verdict {
        Verdict::Pass => MarkKind::Pass,
        Verdict::Fail => MarkKind::Fail,
        Verdict::Abort => MarkKind::Abort,
    }
}

fn words(act: &Act) -> String {
    match act {
        Act::Genesis(body) => format!("the lab {} began", body.lab),
        Act::Lane(body) => of_lane(body),
        Act::Registered(body) => format!("{} registered", body.experiment.as_str()),
        Act::Rehearsed(body) if body.green => {
            format!("rehearsal green, {} tamper cases rejected", body.rejected)
        }
        Act::Rehearsed(body) => format!("rehearsal red: {}", staged(body.stage, &body.reason)),
        Act::Reviewed(body) => match body.verdict {
            Review::Approve => noted(format!("approved by {}", body.reviewer), &body.note),
            Review::Reject => noted(format!("rejected by {}", body.reviewer), &body.note),
        },
        Act::Armed(_) => "armed".to_owned(),
        Act::Nonce(_) => "nonce taken".to_owned(),
        Act::Released(body) => format!("released: {}", staged(Some(body.stage), &body.reason)),
        Act::Withdrawn(body) => noted("withdrawn".to_owned(), &body.reason),
        Act::Consumed(_) => "consumed: the marker is taken".to_owned(),
        Act::Closed(_) => "bag closed".to_owned(),
        Act::Sealed(body) => {
            let verdict = format!("sealed, {}", body.verdict.as_str());
            noted(verdict, &staged(body.stage, &body.reason))
        }
        Act::Analysed(body) => {
            let (number, verdict) = (body.number, body.verdict.as_str());
            noted(format!("analysis {number}, {verdict}"), &body.why)
        }
        Act::Record(body) => format!("record of {}: {}", body.key, body.claim),
        Act::Corrected(body) => format!("entry {} corrected: {}", body.entry, body.text),
        Act::Note(body) => format!("note: {}", body.text),
    }
}

fn of_lane(body: &Lane) -> String {
    let word = match body.action {
        LaneAction::Open => "opened",
        LaneAction::Pause => "paused",
        LaneAction::Resume => "resumed",
        LaneAction::Block => "blocked",
        LaneAction::Close => "closed",
    };
    let until = body.until.as_ref();
    let until = until.map_or(String::new(), |day| format!(" until {}", day.as_str()));
    noted(format!("lane {word}{until}"), &body.reason)
}

/// A stage and its reason.
pub(super) fn staged(stage: Option<Stage>, reason: &str) -> String {
    match stage {
        Some(stage) => noted(stage.as_str().to_owned(), reason),
        None => reason.to_owned(),
    }
}

fn noted(what: String, why: &str) -> String {
    match why.is_empty() {
        true => what,
        false => format!("{what}: {why}"),
    }
}
