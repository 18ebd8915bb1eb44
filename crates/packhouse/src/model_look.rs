//! `model status`, `model verify` and `model warm`: what is there of copies, and whether it holds.

use crate::answer::{Answer, Column, table};
use crate::bar::Bar;
use crate::failure::{Exit, Failure};
use crate::model::{Place, keys, short};
use crate::model_source::{self, ModelSource};
use crate::model_words::{ModelFolderArgs, ModelSelectArgs, ModelVerifyArgs};
use crate::places::Lookup;
use crate::ram;
use packhouse_base::Blame;
use packhouse_base::units;
use packhouse_stage::models::{
    self, CopyRefusal, ModelKey, ModelListing, ModelMiss, ModelVerification, SourceState,
};
use packhouse_stage::{Condemned, StageRoot};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::signal;
use packhouse_sys::stat::FsKind;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::Path;

/// One copy as one path finds it.
struct Row {
    listing: ModelListing,
    path: Option<String>,
    found: Result<SourceState, ModelMiss>,
}

/// Lists copies; a negative answer when any is not admitted.
pub(crate) fn status(args: &ModelSelectArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    let root = place.open()?;
    let keys = keys(&place, root.as_ref(), &args.models)?;
    let listed = match &root {
        Some(root) => models::list(root).map_err(|error| place.unreadable(&error))?,
        None => Vec::new(),
    };
    let mut rows = Vec::new();
    for listing in listed {
        if let Some(root) = &root
            && keys.contains(&listing.key)
            && !listing.superseded
        {
            rows.extend(rows_of(root, listing));
        }
    }
    let is_good = rows.iter().all(|row| row.found.is_ok());
    let left = root.as_ref().map(left);
    let json = json!({
        "root": place.path.display().to_string(),
        "in_ram": root.as_ref().map(ram::is_ram),
        "unfinished_bytes": left.as_ref().and_then(|left| left.as_ref().ok()),
        "good": is_good,
        "copies": rows.iter().map(row_document).collect::<Vec<_>>(),
    });
    let mut text = match rows.is_empty() {
        true => format!("no model is copied to {}\n", place.path.display()),
        false => status_text(&rows),
    };
    text += &left.as_ref().map(left_line).unwrap_or_default();
    text += &root.as_ref().map(ram::note).unwrap_or_default();
    let exit = if is_good { Exit::Done } else { Exit::Negative };
    Ok(Answer { text, json, exit })
}

/// Bytes that dead processes left in the folder, or why nobody knows.
fn left(root: &StageRoot) -> Result<u64, String> {
    let left = packhouse_stage::unfinished(root).map_err(|error| error.to_string());
    left.map(|left| left.bytes)
}

fn left_line(left: &Result<u64, String>) -> String {
    match left {
        Ok(0) => String::new(),
        Ok(bytes) => format!(
            "unfinished, of processes that ended: {}; packhouse gc removes it\n",
            units::bytes(*bytes)
        ),
        Err(why) => format!("what ended processes left unfinished is unknown: {why}\n"),
    }
}

/// A copy has one row for each path that it was copied from or found for.
fn rows_of(root: &StageRoot, listing: ModelListing) -> Vec<Row> {
    if listing.paths.is_empty() {
        let found = match models::find_key(root, listing.key) {
            Ok(Some(_)) => Ok(SourceState::NotAsked),
            Ok(None) => Err(ModelMiss::NoSuchContent {
                digest: listing.key.0,
            }),
            Err(miss) => Err(miss),
        };
        return vec![Row {
            listing,
            path: None,
            found,
        }];
    }
    let paths = listing.paths.clone().into_iter();
    let rows = paths.map(|path| {
        let found = match ModelSource::named(Path::new(&path)) {
            Ok(source) => model_source::find(root, &source, None).map(|model| model.source),
            Err(_) => Ok(SourceState::NotAsked),
        };
        Row {
            listing: listing.clone(),
            path: Some(path),
            found,
        }
    });
    rows.collect()
}

fn status_text(rows: &[Row]) -> String {
    let mut cells = vec![
        ["model", "bytes", "admitted", "source", "path"]
            .map(str::to_owned)
            .to_vec(),
    ];
    cells.extend(rows.iter().map(|row| {
        let admitted = if row.found.is_ok() { "yes" } else { "no" };
        vec![
            short(row.listing.key),
            units::bytes(row.listing.bytes),
            admitted.to_owned(),
            source_word(&row.found).to_owned(),
            row.path.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }));
    let columns = [
        Column::Left,
        Column::Right,
        Column::Left,
        Column::Left,
        Column::Left,
    ];
    let mut text = table(&columns, &cells);
    let mut said = Vec::new();
    for row in rows {
        match &row.found {
            Err(miss) => {
                // One bad copy of several paths is bad once.
                let line = format!("not admitted: {miss}\n");
                if !said.contains(&line) {
                    text += &line;
                    said.push(line);
                }
            }
            Ok(SourceState::Unreadable { why }) => {
                let path = row.path.clone().unwrap_or_default();
                text += &format!("source {path}: {why}\n");
            }
            Ok(_) => {}
        }
    }
    text
}

fn source_word(found: &Result<SourceState, ModelMiss>) -> &'static str {
    match found {
        Ok(SourceState::Unchanged) => "unchanged",
        Ok(SourceState::Gone) => "gone",
        Ok(SourceState::Unreadable { .. }) => "unreadable",
        Ok(SourceState::Changed { .. }) | Err(ModelMiss::SourceChanged { .. }) => "changed",
        Ok(SourceState::Written) | Err(ModelMiss::SourceWritten { .. }) => "written",
        Ok(SourceState::Remote { .. }) | Err(ModelMiss::SourceRemote { .. }) => "remote",
        Ok(SourceState::NotAsked) | Err(_) => "-",
    }
}

fn row_document(row: &Row) -> Value {
    json!({
        "key": row.listing.key.to_string(),
        "generation": row.listing.generation,
        "bytes": row.listing.bytes,
        "files": row.listing.files,
        "path": row.path,
        "admitted": row.found.is_ok(),
        "source": source_word(&row.found),
        "reason": row.found.as_ref().err().map(ModelMiss::reason),
        "problem": row.found.as_ref().err().map(ToString::to_string),
    })
}

/// Hashes copies; a negative answer when any is wrong.
pub(crate) fn verify(args: &ModelVerifyArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.select.folder, lookup)?;
    let root = place.open()?;
    let keys = keys(&place, root.as_ref(), &args.select.models)?;
    let Some(root) = root else {
        return Ok(verified(&place, &[]));
    };
    let every = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = Bar::new();
    bar.start("verify", bytes_of(&place, &root, &keys)?);
    let threads = args.threads.unwrap_or_else(every);
    let found = models::verify(&root, &keys, threads, &|bytes| bar.done(bytes));
    drop(bar);
    let found = found.map_err(|error| place.unreadable(&error))?;
    if let Some(refusal) = unread(&found) {
        return Err(place.unreadable(refusal));
    }
    Ok(verified(&place, &found))
}

/// What could not be read, where nothing is known to be wrong.
fn unread(found: &[ModelVerification]) -> Option<&CopyRefusal> {
    let files = found.iter().flat_map(|model| &model.files);
    let mut bad = files.filter_map(|file| file.problem.as_ref()).peekable();
    let first = *bad.peek()?;
    let wholes = found.iter().all(|model| model.problem.is_none());
    (wholes && bad.all(|refusal| refusal.blame() == Blame::Host)).then_some(first)
}

fn verified(place: &Place, found: &[ModelVerification]) -> Answer {
    let is_good = found.iter().all(ModelVerification::is_good);
    let mut text = String::new();
    for model in found {
        let key = short(model.key);
        if let Some(problem) = &model.problem {
            text += &format!("model {key}: {problem}\n");
        }
        for file in model.files.iter().filter(|file| file.problem.is_some()) {
            let problem = file.problem.as_ref().map(ToString::to_string);
            text += &format!("model {key}: {}\n", problem.unwrap_or_default());
        }
        match &model.condemned {
            Condemned::No => {}
            Condemned::Yes => text += &format!("model {key}: the copy is out of service\n"),
            Condemned::Failed(error) => {
                let remedy = place.hint(&format!("drop {key} --execute"));
                text += &format!(
                    "model {key}: the copy could not be taken out of service: {error}\n\
                     remove it with: {remedy}\n"
                );
            }
        }
    }
    let good = found.iter().filter(|model| model.is_good()).count();
    let files = found.iter().flat_map(|model| &model.files);
    let bytes = files
        .filter(|file| file.problem.is_none())
        .map(|file| file.bytes);
    let bytes = units::bytes(bytes.sum());
    text += &format!("{good} of {} models good; {bytes} hashed\n", found.len());
    if !is_good {
        text += &format!("heal with: {}\n", place.hint("prepare MODEL"));
    }
    let json = json!({
        "good": is_good,
        "models": found.iter().map(verified_document).collect::<Vec<_>>(),
    });
    let exit = if is_good { Exit::Done } else { Exit::Negative };
    Answer { text, json, exit }
}

fn verified_document(model: &ModelVerification) -> Value {
    let files = model.files.iter().map(|file| {
        json!({
            "name": file.name,
            "bytes": file.bytes,
            "sha256": file.digest.to_string(),
            "reason": file.problem.as_ref().map(CopyRefusal::reason),
            "problem": file.problem.as_ref().map(ToString::to_string),
        })
    });
    json!({
        "key": model.key.to_string(),
        "generation": model.generation,
        "good": model.is_good(),
        "problem": model.problem.as_ref().map(ToString::to_string),
        "condemned": model.condemned == Condemned::Yes,
        "files": files.collect::<Vec<_>>(),
    })
}

/// Brings copies to memory.
pub(crate) fn warm(args: &ModelSelectArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    let root = place.open()?;
    let keys = keys(&place, root.as_ref(), &args.models)?;
    let began_ns = RealClock.steady_ns();
    let _ = signal::catch_once();
    let mut bytes = 0;
    if let Some(root) = &root {
        let bar = Bar::new();
        bar.start("warm", bytes_of(&place, root, &keys)?);
        for key in &keys {
            let progress = |bytes| bar.done(bytes);
            let warmed = models::warm(root, *key, &progress, &signal::was_caught);
            bytes += warmed
                .map_err(|problem| not_warmed(&place, *key, &problem))?
                .unwrap_or(0);
        }
    }
    if signal::was_caught() {
        return Err(
            Failure::new("stopped while warming", place.path.display()).hint(place.hint("warm"))
        );
    }
    let duration_ns = RealClock.steady_ns().saturating_sub(began_ns);
    let took = units::duration_ns(duration_ns);
    let kind = root.as_ref().map(StageRoot::file_system);
    let text = format!("{} {} ({took})\n", units::bytes(bytes), ram::place(kind));
    let keys: Vec<String> = keys.iter().map(ModelKey::to_string).collect();
    let json = json!({
        "models": keys,
        "bytes": bytes,
        "in_ram": root.as_ref().map(ram::is_ram),
        "duration_ns": duration_ns,
    });
    Ok(Answer::done(text, json))
}

fn not_warmed(place: &Place, key: ModelKey, problem: &models::CopyProblem) -> Failure {
    let what = "no copy to use of model";
    let failure = match problem.blame() {
        Blame::Host => Failure::new(what, key),
        Blame::Source | Blame::Store | Blame::Caller | Blame::Bug => Failure::negative(what, key),
    };
    failure.because(problem).hint(place.hint("status"))
}

fn bytes_of(place: &Place, root: &StageRoot, keys: &[ModelKey]) -> Result<u64, Failure> {
    let listed = models::list(root).map_err(|error| place.unreadable(&error))?;
    let ours = listed
        .iter()
        .filter(|listing| keys.contains(&listing.key) && !listing.superseded);
    Ok(ours.map(|listing| listing.bytes).sum())
}

/// The copies of the environment's folder, for the commands that look at all that is kept. What
/// can't be read is said to be so and stops nothing.
#[derive(Debug, Default)]
pub(crate) struct CopiesAtAGlance {
    count: u64,
    bytes: u64,
    broken_count: u64,
    kind: Option<FsKind>,
    problem: Option<String>,
}

impl CopiesAtAGlance {
    pub(crate) fn of(lookup: Lookup<'_>) -> Self {
        let listed = || -> Result<(Vec<ModelListing>, Option<FsKind>), Failure> {
            let place = Place::of(&ModelFolderArgs { root: None }, lookup)?;
            match place.open()? {
                None => Ok((Vec::new(), None)),
                Some(root) => {
                    let listed = models::list(&root).map_err(|error| place.unreadable(&error));
                    Ok((listed?, Some(root.file_system())))
                }
            }
        };
        match listed() {
            Err(failure) => Self {
                problem: Some(failure.reason()),
                ..Self::default()
            },
            Ok((listed, kind)) => Self {
                count: listed.len() as u64,
                bytes: listed.iter().map(|listing| listing.bytes).sum(),
                broken_count: listed
                    .iter()
                    .filter(|listing| listing.problem.is_some())
                    .count() as u64,
                kind,
                problem: None,
            },
        }
    }

    /// What there is, in one line.
    pub(crate) fn summary(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!("unknown: {problem}");
        }
        let bytes = units::bytes(self.bytes);
        let broken = match self.broken_count {
            0 => String::new(),
            count => format!(", {count} broken: packhouse model status"),
        };
        format!("{} {} ({bytes}){broken}", self.count, ram::place(self.kind))
    }

    /// A line where there are any: they stay.
    pub(crate) fn line(&self) -> String {
        match self.count {
            0 => String::new(),
            _ => format!("copies of models stay: {}\n", self.summary()),
        }
    }

    /// All of it, for `--json`.
    pub(crate) fn document(&self) -> Value {
        json!({
            "count": self.count,
            "bytes": self.bytes,
            "broken_count": self.broken_count,
            "in_ram": self.kind.map(FsKind::is_ram),
            "problem": self.problem,
        })
    }
}
