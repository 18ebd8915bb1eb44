//! `fixture ls` and `fixture verify`: what is published, and whether it is what its recipe makes.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure};
use crate::fixture::{Place, select, sound};
use crate::fixture_words::FixtureSelectArgs;
use crate::places::Lookup;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_fixture::published::{Damaged, Look, Shelf};
use packhouse_fixture::{Bag, Fixture, families};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::{Dir, FsError};
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;

/// One fixture, and what there is of it.
struct Found {
    fixture: Fixture,
    bag: Bag,
    look: Look,
}

/// What was looked at.
struct Findings {
    found: Vec<Found>,
    strangers: Vec<String>,
    unfinished: Vec<String>,
}

/// Lists the fixtures.
pub(crate) fn list(args: &FixtureSelectArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(args, lookup)?;
    let findings = look(args, &place)?;
    let words = ["fixture", "widths", "layout", "bytes", "state"];
    let mut rows = vec![words.map(str::to_owned).to_vec()];
    rows.extend(findings.found.iter().map(|found| {
        let layout = found.fixture.layout.as_deref().unwrap_or("-");
        vec![
            found.fixture.id.clone(),
            widths(&found.fixture),
            layout.to_owned(),
            units::bytes(found.bag.bytes()),
            state(&found.look).to_owned(),
        ]
    }));
    let mut text = table(&COLUMNS, &rows);
    for found in &findings.found {
        if args.ids.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}: {}", found.fixture.id, found.fixture.summary);
        let _ = writeln!(text, "{}", found.fixture.contract);
    }
    text += &others(&findings);
    Ok(Answer::done(text, document(&place, &findings)))
}

/// Compares published fixtures with their recipes.
pub(crate) fn verify(args: &FixtureSelectArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(args, lookup)?;
    let findings = look(args, &place)?;
    let mut text = String::new();
    for found in &findings.found {
        let (id, digest) = (found.bag.id(), found.bag.digest());
        text += &match &found.look {
            Look::Intact => format!("intact: {id}, sha256 {digest}\n"),
            Look::Absent => format!("not published: {id}\n"),
            Look::Damaged(damaged) => damages(id, damaged),
        };
    }
    text += &others(&findings);
    let bad = findings
        .found
        .iter()
        .filter(|found| found.look != Look::Intact);
    let bad: Vec<&str> = bad.map(|found| found.bag.id()).collect();
    if !bad.is_empty() {
        let is_all = args.ids.is_empty() && bad.len() == findings.found.len();
        let ids = if is_all {
            ""
        } else {
            &format!(" {}", bad.join(" "))
        };
        let _ = writeln!(text, "\nhint: {}", place.hint(&format!("prepare{ids}")));
    }
    Ok(Answer {
        text,
        json: document(&place, &findings),
        exit: if bad.is_empty() {
            Exit::Done
        } else {
            Exit::Negative
        },
    })
}

fn look(args: &FixtureSelectArgs, place: &Place) -> Result<Findings, Failure> {
    let families = select(&args.ids)?;
    let folder = place.open()?;
    let open = |folder: &Dir| Shelf::open(&RealFs, &RealClock, folder);
    let shelf = folder.as_ref().map(open).transpose();
    let shelf = shelf.map_err(|error| place.unusable(&error))?.flatten();
    let mut found = Vec::new();
    for family in families {
        let fixture = sound(family)?;
        let bag = Bag::of(&fixture);
        let look = match &shelf {
            None => Look::Absent,
            Some(shelf) => shelf.look(&bag).map_err(|error| place.unusable(&error))?,
        };
        found.push(Found { fixture, bag, look });
    }
    let is_known = |id: &str| families::find(id).is_some();
    let (mut strangers, mut unfinished) = (Vec::new(), Vec::new());
    if let Some(shelf) = shelf.filter(|_| args.ids.is_empty()) {
        let paths = |names: Result<Vec<OsString>, FsError>| {
            let names = names.map_err(|error| place.unusable(&error))?;
            let path = |name: OsString| shelf.path("").join(name).display().to_string();
            Ok::<_, Failure>(names.into_iter().map(path).collect())
        };
        strangers = paths(shelf.strangers(is_known))?;
        unfinished = paths(shelf.unfinished())?;
    }
    Ok(Findings {
        found,
        strangers,
        unfinished,
    })
}

/// Lines for everything that is wrong with a published fixture.
pub(crate) fn damages(id: &str, damaged: &Damaged) -> String {
    let mut text = String::new();
    for line in first_damages(damaged) {
        let _ = writeln!(text, "{}", Shown(&format!("damaged: {id}: {line}")));
    }
    if damaged.lists_agree {
        let _ = writeln!(
            text,
            "damaged: {id}: its own lists agree with it: another recipe made it, or somebody \
             changed both"
        );
    }
    text
}

/// The first things that are wrong, and how many more there are.
pub(crate) fn first_damages(damaged: &Damaged) -> Vec<String> {
    let shown = damaged.damages.iter().take(DAMAGES_SHOWN);
    let more = damaged.damages.len().saturating_sub(DAMAGES_SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown.map(ToString::to_string).chain(more).collect()
}

/// All of them, for programs.
pub(crate) fn own_lists(damaged: &Damaged) -> Value {
    let damages = damaged.damages.iter();
    let damages: Vec<Value> = damages
        .map(|damage| json!({ "path": damage.path, "what": damage.to_string() }))
        .collect();
    json!({ "paths": damages, "own_lists_agree": damaged.lists_agree })
}

/// Lines for what is on the shelf beside fixtures.
fn others(findings: &Findings) -> String {
    let lines = |word: &'static str, paths: &[String]| -> String {
        let line = |path: &String| format!("{}\n", Shown(&format!("{word}: {path}")));
        paths.iter().map(line).collect()
    };
    let unfinished = lines("unfinished, or being made", &findings.unfinished);
    unfinished + &lines("no fixture of this version", &findings.strangers)
}

fn document(place: &Place, findings: &Findings) -> Value {
    let fixtures = findings.found.iter().map(|found| {
        let fixture = &found.fixture;
        let mut document = json!({
            "id": fixture.id,
            "summary": fixture.summary,
            "layout": fixture.layout,
            "cases": fixture.cases.iter().map(|case| {
                json!({ "width": case.width, "arm": case.arm })
            }).collect::<Vec<_>>(),
            "bytes": found.bag.bytes(),
            "sha256": found.bag.digest().to_string(),
            "state": state(&found.look),
        });
        if let Look::Damaged(damaged) = &found.look {
            document["damages"] = own_lists(damaged);
        }
        document
    });
    json!({
        "folder": place.path.display().to_string(),
        "fixtures": fixtures.collect::<Vec<_>>(),
        "strangers": findings.strangers,
        "unfinished": findings.unfinished,
    })
}

fn state(look: &Look) -> &'static str {
    match look {
        Look::Absent => "not published",
        Look::Intact => "intact",
        Look::Damaged(_) => "damaged",
    }
}

/// The widths of a fixture, each once.
fn widths(fixture: &Fixture) -> String {
    let mut widths: Vec<u64> = fixture.cases.iter().map(|case| case.width).collect();
    widths.dedup();
    let widths: Vec<String> = widths.iter().map(u64::to_string).collect();
    widths.join(",")
}

const COLUMNS: [Column; 5] = [
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Left,
];
const DAMAGES_SHOWN: usize = 8;
