//! Embedded fixtures against the packet and their recipes, and outputs against the exchange.

use super::sessions::Session;
use crate::analysis::Status;
use crate::evidence::{Failure, Reading, SeenOutput};
use crate::recipes::{Recipes, draws};
use crate::schedule::LegPlan;
use packhouse_base::digest::Digest;
use packhouse_fixture::Bag;
use std::collections::{BTreeMap, BTreeSet};

/// Judges the published fixtures.
pub(crate) fn published(reading: &Reading, recipes: &Recipes, failures: &mut Vec<Failure>) {
    let folders = folders(reading, "fixtures");
    let Some(packet) = &reading.packet else {
        return;
    };
    if let Some(prereg) = &reading.prereg
        && !packet
            .fixtures
            .iter()
            .map(|one| one.id.as_str())
            .eq(prereg.fixtures())
    {
        let words = "fixtures: not those of the preregistration";
        failures.push(Failure::new(
            "packet.fixture",
            crate::evidence::reading::PACKET,
            words,
        ));
    }
    for fixture in &packet.fixtures {
        let path = format!("fixtures/{}", fixture.id);
        let Some(files) = folders.get(&fixture.id) else {
            failures.push(Failure::new("fixture.missing", path, "not there"));
            continue;
        };
        let made = recipes.published(&fixture.id);
        folder(
            &path,
            files,
            made.as_ref().map(|made| &made.bag),
            "fixture.recipe",
            failures,
        );
        let digest = files.get(TAG_MANIFEST).map(|bytes| Digest::of(bytes));
        if let Some(digest) = digest.filter(|digest| *digest != fixture.sha256) {
            let words = format!("digest {digest}, frozen was {}", fixture.sha256);
            failures.push(Failure::new("packet.fixture", path, words));
        }
    }
    for id in folders.keys() {
        if !packet.fixtures.iter().any(|fixture| fixture.id == *id) {
            let path = format!("fixtures/{id}");
            failures.push(Failure::new(
                "fixture.unused",
                path,
                "not one of the packet",
            ));
        }
    }
}

/// Judges the drawn fixtures. What was asked must be there, and nothing that is not planned.
pub(crate) fn drawn(
    reading: &Reading,
    recipes: &Recipes,
    plans: &[LegPlan],
    sessions: &[&Session],
    failures: &mut Vec<Failure>,
) {
    let Some(source) = reading.source() else {
        return;
    };
    let planned: BTreeSet<(&str, u64)> = plans
        .iter()
        .flat_map(|plan| &plan.asks)
        .filter(|ask| ask.repeat > 0 && draws(&ask.fixture))
        .map(|ask| (ask.fixture.as_str(), ask.repeat))
        .collect();
    let asked: BTreeSet<(&str, u64)> = sessions
        .iter()
        .flat_map(|session| &session.turns)
        .map(|turn| (turn.order.fixture.as_str(), turn.order.repeat))
        .collect();
    let folders = folders(reading, "drawn");
    for (id, repeat) in &planned {
        let name = format!("{id}-{repeat}");
        let path = format!("drawn/{name}");
        let Some(files) = folders.get(&name) else {
            if asked.contains(&(*id, *repeat)) {
                failures.push(Failure::new("fixture.missing", path, "not there"));
            }
            continue;
        };
        let made = recipes.repeat(id, *repeat, source);
        folder(
            &path,
            files,
            made.as_ref().map(|made| &made.bag),
            "fixture.drawn",
            failures,
        );
    }
    for name in folders.keys() {
        if !planned
            .iter()
            .any(|(id, repeat)| format!("{id}-{repeat}") == *name)
        {
            let path = format!("drawn/{name}");
            failures.push(Failure::new(
                "fixture.unused",
                path,
                "no planned case needs it",
            ));
        }
    }
}

/// Judges the outputs: what was seen is there, under its own name, and nothing else is.
pub(crate) fn outputs(reading: &Reading, sessions: &[&Session], failures: &mut Vec<Failure>) {
    let seen = sessions
        .iter()
        .flat_map(|session| &session.turns)
        .filter_map(|turn| turn.seen.as_ref())
        .flat_map(|seen| seen.outputs.values());
    let mut lengths: BTreeMap<Digest, BTreeSet<u64>> = BTreeMap::new();
    for output in seen {
        match output {
            SeenOutput::File { bytes, sha256 } if *bytes > 0 => {
                lengths.entry(*sha256).or_default().insert(*bytes);
            }
            SeenOutput::File { .. } | SeenOutput::Refused(_) => {}
        }
    }
    let outputs = reading.payload.below("outputs");
    let contents: Vec<&[u8]> = outputs.files().values().map(AsRef::as_ref).collect();
    let digests = Digest::of_many(&contents);
    for ((name, bytes), digest) in outputs.files().iter().zip(digests) {
        let path = format!("outputs/{name}");
        if digest.to_string() != *name {
            failures.push(Failure::new(
                "output.digest",
                &path,
                format!("SHA-256 {digest}"),
            ));
        }
        let Some(lengths) = Digest::parse(name).ok().and_then(|name| lengths.get(&name)) else {
            failures.push(Failure::new(
                "output.unused",
                &path,
                "no line of an exchange names it",
            ));
            continue;
        };
        if let Some(said) = lengths.iter().find(|said| **said != bytes.len() as u64) {
            let words = format!("{} bytes, seen were {said}", bytes.len());
            failures.push(Failure::new("output.digest", &path, words));
        }
    }
    // The control's outputs are in memory alone until every program is gone: a kill loses them.
    let is_excused = reading.status() == Status::Aborted;
    for sha256 in lengths.keys() {
        let name = sha256.to_string();
        if outputs.get(&name).is_none() && !is_excused {
            failures.push(Failure::new(
                "output.missing",
                format!("outputs/{name}"),
                "not there",
            ));
        }
    }
}

type Folder<'a> = BTreeMap<&'a str, &'a [u8]>;

/// The folders below one, each with its files.
fn folders<'a>(reading: &'a Reading, above: &str) -> BTreeMap<String, Folder<'a>> {
    let mut folders: BTreeMap<String, Folder<'a>> = BTreeMap::new();
    for (path, bytes) in reading.payload.files() {
        let rest = path
            .strip_prefix(above)
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some((name, file)) = rest.and_then(|rest| rest.split_once('/')) {
            folders
                .entry(name.to_owned())
                .or_default()
                .insert(file, bytes);
        }
    }
    folders
}

/// Compares a folder with what its recipe makes; where it differs, first by its own lists.
fn folder(
    path: &str,
    files: &Folder<'_>,
    made: Option<&Bag>,
    other: &'static str,
    failures: &mut Vec<Failure>,
) {
    if let Some(made) = made {
        let expected = made.files().iter();
        let expected = expected.map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        if files
            .iter()
            .map(|(name, bytes)| (*name, *bytes))
            .eq(expected)
        {
            return;
        }
    }
    let broken = unlisted(files);
    if broken.is_empty() {
        failures.push(Failure::new(
            other,
            path,
            "its recipe makes another, or is not known here",
        ));
    }
    for (name, words) in broken {
        failures.push(Failure::new(
            "fixture.digest",
            format!("{path}/{name}"),
            words,
        ));
    }
}

/// Files that are not as a fixture's own lists have them.
fn unlisted(files: &Folder<'_>) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    listed.insert(TAG_MANIFEST.to_owned());
    for list in [TAG_MANIFEST, MANIFEST] {
        let text = files
            .get(list)
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        for line in text.unwrap_or_default().lines() {
            let entry = line.split_once("  ");
            let Some((digest, name)) = entry else {
                wrong.push((list.to_owned(), format!("no line of a list: {line:?}")));
                continue;
            };
            listed.insert(name.to_owned());
            let actual = files.get(name).map(|bytes| Digest::of(bytes).to_string());
            if actual.as_deref() != Some(digest) {
                let actual = actual.unwrap_or_else(|| "nothing".to_owned());
                wrong.push((name.to_owned(), format!("{actual}, listed was {digest}")));
            }
        }
    }
    let extra = files.keys().filter(|name| !listed.contains(**name));
    wrong.extend(extra.map(|name| ((*name).to_owned(), "in no list".to_owned())));
    wrong
}

const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";
const MANIFEST: &str = "manifest-sha256.txt";
