//! `lab state`: the state of a lab at a glance, as a page, and compared with the kept page.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::{Exit, Failure};
use crate::lab::Place;
use crate::lab_open::counted;
use crate::lab_page::{Read, Target, replace};
use crate::lab_words::LabStateArgs;
use crate::places::Lookup;
use crate::{hints, lab_live};
use packhouse_base::shown::Shown;
use packhouse_ledger::page::{Lane, Live, Observation, Packet, Page, Record, utc};
use packhouse_sys::fs::{Dir, FsErrorKind};
use serde_json::{Value, json};

/// Shows the state of the lab, writes its page or compares it.
pub(crate) fn execute(
    args: &LabStateArgs,
    place: &Place,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let mut lab = Read::lab(place)?;
    if args.check {
        return compare(&lab, place);
    }
    if args.execute {
        return write(&lab);
    }
    if args.live {
        lab.page.live = Some(lab_live::observe(&lab, place, lookup));
    }
    match args.html.as_deref().or(args.md.as_deref()) {
        Some(path) => {
            let target = Target::of(path);
            let prefix = target.prefix(place)?;
            target.give(match args.html {
                Some(_) => lab.page.html(&prefix),
                None => lab.page.markdown(&prefix),
            })
        }
        None => Ok(Answer::done(text(&lab.page), document(&lab.page))),
    }
}

/// The pages that a lab keeps, each with its name.
fn pages(page: &Page) -> [(&'static str, String); 2] {
    [
        ("state.md", page.markdown("")),
        ("state.html", page.html("")),
    ]
}

fn write(lab: &Read<'_>) -> Result<Answer, Failure> {
    let mut text = String::new();
    let mut written = Vec::new();
    for (name, page) in pages(&lab.page) {
        let path = lab.opened.root.path().join(name);
        replace(&lab.opened.root, name, &page).map_err(|error| {
            Failure::new("cannot write the page", path.display())
                .because(&error)
                .hint(hints::of(&error, &path))
        })?;
        text += &format!("written: {}\n", Shown(&path.display().to_string()));
        written.push(json!({ "path": path.display().to_string(), "bytes": page.len() }));
    }
    Ok(Answer::done(text, json!({ "written": written })))
}

fn compare(lab: &Read<'_>, place: &Place) -> Result<Answer, Failure> {
    let mut text = String::new();
    let mut pages_json = Vec::new();
    let mut exit = Exit::Done;
    for (name, page) in pages(&lab.page) {
        let difference = difference(&lab.opened.root, name, &page)?;
        let word = match &difference {
            None => "is what the ledger gives".to_owned(),
            Some(why) => {
                exit = Exit::Negative;
                format!("differs: {why}")
            }
        };
        text += &format!("{name}: {}\n", Shown(&word));
        let same = difference.is_none();
        pages_json.push(json!({ "page": name, "same": same, "difference": difference }));
    }
    if exit == Exit::Negative {
        text += &format!("write them again: {}\n", place.hint("state --execute"));
    }
    Ok(Answer {
        text,
        json: json!({ "pages": pages_json }),
        exit,
    })
}

/// Where a page differs from what it should be; `None` where it does not.
fn difference(root: &Dir, name: &str, page: &str) -> Result<Option<String>, Failure> {
    let limit = (page.len() as u64).saturating_add(1);
    let found = match root.open_file(name).and_then(|file| {
        let stat = file.stat()?;
        match stat.size > limit {
            true => Ok(None),
            false => file.read_small(limit).map(Some),
        }
    }) {
        Err(error) if error.kind == FsErrorKind::NotFound => {
            return Ok(Some("it is not there".to_owned()));
        }
        Err(error) => {
            let path = root.path().join(name);
            return Err(Failure::new("cannot read the page", path.display())
                .because(&error)
                .hint(hints::of(&error, &path)));
        }
        Ok(found) => found,
    };
    let Some(found) = found else {
        return Ok(Some("it is longer".to_owned()));
    };
    if found == page.as_bytes() {
        return Ok(None);
    }
    let lines = page.as_bytes().split(|byte| *byte == b'\n');
    let same = lines.zip(found.split(|byte| *byte == b'\n'));
    let line = same.take_while(|(one, other)| one == other).count();
    Ok(Some(format!("first in line {}", line + 1)))
}

/// The state at a glance.
fn text(page: &Page) -> String {
    let mut text = format!(
        "lab {}: {} up to {}, head {}\n",
        Shown(&page.lab),
        counted(page.entry_count, "entry", "entries"),
        utc(page.last_at_ns),
        start(&page.head)
    );
    for doubt in &page.doubts {
        text += &format!("{}: {}\n", Shown(&doubt.what), Shown(&doubt.text));
    }
    text += &part("lanes", &LANE_HEAD, lane_rows(page));
    text += &part("current records", &RECORD_HEAD, record_rows(page));
    text += &part("packets", &PACKET_HEAD, packet_rows(page));
    if let Some(live) = &page.live {
        text += &part("observed on this host", &LIVE_HEAD, live_rows(live));
    }
    text
}

/// A table under its title.
fn part(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("\n{title}: none\n");
    }
    let head = head.iter().map(|word| (*word).to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = vec![Column::Left; all[0].len()];
    format!("\n{title}\n{}", fitted_table(&columns, &all))
}

const LANE_HEAD: [&str; 6] = [
    "lane",
    "state",
    "until",
    "reason",
    "current record",
    "next act",
];

fn lane_rows(page: &Page) -> Vec<Vec<String>> {
    let row = |lane: &Lane| {
        let record = page.record_of(lane).map(|record| record.claim.clone());
        vec![
            lane.lane.clone(),
            lane.state.word().to_owned(),
            or_dash(lane.until.clone()),
            lane.reason.clone(),
            or_dash(record),
            or_dash(page.next_on_lane(lane)),
        ]
    };
    page.lanes.iter().map(row).collect()
}

const RECORD_HEAD: [&str; 4] = ["key", "claim", "widths", "packet"];

fn record_rows(page: &Page) -> Vec<Vec<String>> {
    let row = |record: &Record| {
        let widths: Vec<String> = record.widths.iter().map(ToString::to_string).collect();
        let claim = match record.disputed_by {
            None => record.claim.clone(),
            Some(entry) => format!("{} (disputed by entry {entry})", record.claim),
        };
        let (key, packet) = (record.key.clone(), start(&record.packet).to_owned());
        vec![key, claim, widths.join(","), packet]
    };
    page.current_records().map(row).collect()
}

const PACKET_HEAD: [&str; 6] = [
    "experiment",
    "packet",
    "lane",
    "state",
    "reason",
    "next act",
];

fn packet_rows(page: &Page) -> Vec<Vec<String>> {
    let row = |packet: &Packet| {
        let reason = Some(packet.reason.clone());
        vec![
            packet.experiment.clone(),
            start(&packet.packet).to_owned(),
            packet.lane.clone(),
            packet.state.word().to_owned(),
            or_dash(reason.filter(|text| !text.is_empty())),
            or_dash(page.next_on_packet(packet)),
        ]
    };
    page.packets.iter().rev().map(row).collect()
}

const LIVE_HEAD: [&str; 4] = ["what", "seen", "how", "when"];

fn live_rows(live: &Live) -> Vec<Vec<String>> {
    let row = |one: &Observation| {
        let unknown = if one.known { "" } else { "unknown: " };
        let seen = format!("{unknown}{}", one.seen);
        vec![one.subject.clone(), seen, one.how.clone(), utc(one.at_ns)]
    };
    live.observations.iter().map(row).collect()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// As much of a digest as commands take.
fn start(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

fn document(page: &Page) -> Value {
    json!({
        "lab": page.lab,
        "lab_id": page.lab_id,
        "entries": page.entry_count,
        "head": page.head,
        "last_at_ns": page.last_at_ns,
        "doubts": page.doubts.iter().map(|doubt| json!({
            "what": doubt.what,
            "text": doubt.text,
            "entry": doubt.entry,
        })).collect::<Vec<_>>(),
        "lanes": page.lanes.iter().map(|lane| lane_json(page, lane)).collect::<Vec<_>>(),
        "records": page.current_records().map(record_json).collect::<Vec<_>>(),
        "packets": page.packets.iter().map(|one| packet_json(page, one)).collect::<Vec<_>>(),
        "observed": page.live.as_ref().map(live_json),
    })
}

fn lane_json(page: &Page, lane: &Lane) -> Value {
    json!({
        "lane": lane.lane,
        "state": lane.state.word(),
        "reason": lane.reason,
        "until": lane.until,
        "entry": lane.entry,
        "record": page.record_of(lane).map(record_json),
        "next_act": page.next_on_lane(lane),
    })
}

fn record_json(record: &Record) -> Value {
    json!({
        "key": record.key,
        "claim": record.claim,
        "widths": record.widths,
        "packet": record.packet,
        "entry": record.entry,
        "disputed_by": record.disputed_by,
        "corrections": record.corrections,
    })
}

/// A packet for programs.
pub(crate) fn packet_json(page: &Page, packet: &Packet) -> Value {
    let seals = packet.seals.iter().map(|sealed| {
        json!({
            "number": sealed.number,
            "verdict": sealed.verdict.as_str(),
            "seal": sealed.seal,
            "bag": sealed.bag,
            "entry": sealed.entry,
        })
    });
    json!({
        "packet": packet.packet,
        "experiment": packet.experiment,
        "lane": packet.lane,
        "treatment": packet.treatment,
        "state": packet.state.word(),
        "reason": packet.reason,
        "entry": packet.entry,
        "rehearsals": packet.rehearsals.count,
        "green_rehearsals": packet.rehearsals.green_count,
        "seals": seals.collect::<Vec<_>>(),
        "next_act": page.next_on_packet(packet),
    })
}

fn live_json(live: &Live) -> Value {
    let observations = live.observations.iter().map(|one| {
        json!({
            "topic": one.topic.word(),
            "subject": one.subject,
            "seen": one.seen,
            "known": one.known,
            "how": one.how,
            "at_ns": one.at_ns,
        })
    });
    json!({ "at_ns": live.at_ns, "observations": observations.collect::<Vec<_>>() })
}
