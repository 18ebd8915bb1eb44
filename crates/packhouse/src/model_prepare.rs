//! `model prepare`: makes sure that verified copies of models are in RAM.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::failure::{Failure, quoted};
use crate::model::{Place, digest, short};
use crate::model_source::{ModelSource, digests};
use crate::model_words::ModelPrepareArgs;
use crate::places::{Lookup, Places};
use crate::{ram, stage};
use packhouse_base::digest::Digest;
use packhouse_base::units;
use packhouse_stage::models::{
    self, ModelEvent, ModelFiles, ModelOptions, ModelOutcome, ModelPrepareError, ModelWatcher,
    PreparedModel,
};
use packhouse_stage::{MIN_FREE_BYTES, StageRoot};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::path::Path;

/// Copies models in the order given; the first that can't be copied ends it.
pub(crate) fn prepare(args: &ModelPrepareArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    if let ([_, second, ..], false) = (args.models.as_slice(), args.sha256.is_empty()) {
        return Err(
            Failure::usage("--sha256 with more than one model", second.display())
                .cause("the digests are those of one model's files")
                .hint(place.hint(&format!("prepare {} --sha256 HEX", quoted(second)))),
        );
    }
    let expected = args.sha256.iter().map(|text| digest(text));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;
    if let Ok(places) = Places::find(lookup) {
        let hint = "packhouse model prepare MODEL --root DIR";
        stage::not_in_store(&place.path, &places.store, hint)?;
    }
    let root = stage::open_root(&place.path, true);
    let root = root.map_err(|error| stage::unusable(&place.path, &error))?;
    // Without it a signal ends the process at once, and the next one clears up.
    let _ = signal::catch_once();
    let (mut text, mut documents) = (String::new(), Vec::new());
    for model in &args.models {
        let began_ns = RealClock.steady_ns();
        let source = ModelSource::named(model)?;
        let prepared = prepare_one(args, &place, &root, &source, &expected, lookup)?;
        let duration_ns = RealClock.steady_ns().saturating_sub(began_ns);
        text += &line(&place, &source.path, &prepared, duration_ns);
        documents.push(document(&source.path, &prepared, duration_ns));
    }
    text += &ram::note(&root);
    let json = json!({ "models": documents, "in_ram": ram::is_ram(&root) });
    Ok(Answer::done(text, json))
}

fn prepare_one(
    args: &ModelPrepareArgs,
    place: &Place,
    root: &StageRoot,
    source: &ModelSource,
    expected: &[Digest],
    lookup: Lookup<'_>,
) -> Result<PreparedModel, Failure> {
    let files = source.open()?;
    let defaults = ModelOptions::default();
    let options = ModelOptions {
        min_free_bytes: args.min_free.unwrap_or(MIN_FREE_BYTES),
        threads: args.threads.unwrap_or(defaults.threads),
        wait_ns: args.lock_timeout.saturating_mul(1_000_000_000),
        ..defaults
    };
    let bar = Bar::new();
    let tell = |event: ModelEvent| match event {
        ModelEvent::Waits => bar.note("another process copies it; waiting"),
        ModelEvent::Hash { bytes } => bar.start("hash", bytes),
        ModelEvent::Copy { bytes } => bar.start("copy", bytes),
        ModelEvent::Done { bytes } => bar.done(bytes),
        ModelEvent::Settle { .. } => bar.note("waiting until times of files tell"),
    };
    let watcher = ModelWatcher {
        tell: &tell,
        cancel: &signal::was_caught,
    };
    let wanted = ModelFiles {
        path: &source.path,
        files: &files,
        expected,
    };
    let digests = digests(lookup);
    models::prepare(root, digests.as_ref(), wanted, &options, watcher)
        .map_err(|error| not_copied(place, &source.path, &error))
}

fn not_copied(place: &Place, model: &Path, error: &ModelPrepareError) -> Failure {
    let (shown, word) = (model.display(), quoted(model));
    match error {
        ModelPrepareError::Room(source) => Failure::new("no room to copy the model", shown)
            .because(source)
            .hint(place.hint("status")),
        ModelPrepareError::Cancelled => Failure::new("stopped while copying the model", shown)
            .cause("what was copied is removed")
            .hint(place.hint(&format!("prepare {word}"))),
        ModelPrepareError::Busy { .. } => Failure::new("another process copies the model", shown)
            .because(error)
            .hint(place.hint(&format!("prepare {word} --lock-timeout 3600"))),
        ModelPrepareError::WrongDigest { path, .. } => {
            Failure::new("not the model that was demanded", path.display())
                .because(error)
                .hint(format!("sha256sum {}", quoted(path)))
        }
        ModelPrepareError::ExpectedCount { .. } => {
            Failure::usage("wrong number of --sha256", shown)
                .because(error)
                .hint(format!("packhouse inspect {word}"))
        }
        ModelPrepareError::Writer { path } => Failure::new("cannot copy the model", shown)
            .because(error)
            .hint(format!("fuser -v {}", quoted(path))),
        ModelPrepareError::Differs { .. } => {
            Failure::new("the copy is not what was read from", shown)
                .because(error)
                .cause("memory, or the way to the disk, loses bits; nothing was kept")
                .hint(place.hint(&format!("prepare {word}")))
        }
        ModelPrepareError::NoFiles
        | ModelPrepareError::Kind { .. }
        | ModelPrepareError::Name { .. }
        | ModelPrepareError::Source(_)
        | ModelPrepareError::Changed { .. }
        | ModelPrepareError::Clock { .. }
        | ModelPrepareError::Miss(_)
        | ModelPrepareError::Fs(_) => Failure::new("cannot copy the model", shown)
            .because(error)
            .hint(format!("ls -l {word}")),
    }
}

fn line(place: &Place, source: &Path, prepared: &PreparedModel, duration_ns: u64) -> String {
    let model = &prepared.model;
    let took = units::duration_ns(duration_ns);
    let (from, to) = (source.display(), model.path.display());
    let what = format!("{from} ({})", units::bytes(model.bytes));
    let mut text = match &prepared.outcome {
        ModelOutcome::Reused => format!("{what} copied already: {to}\n"),
        ModelOutcome::Found { hashed_bytes: 0 } => {
            format!("{what} has the bytes of a copy: {to}\n")
        }
        ModelOutcome::Found { .. } => {
            format!("{what} hashed in {took}, has the bytes of a copy: {to}\n")
        }
        ModelOutcome::Rehashed { why, .. } => {
            format!("{what} copy hashed anew in {took}: {to}\nbefore: {why}\n")
        }
        ModelOutcome::Copied { .. } => {
            format!("{what} copied, hashed and read back in {took}: {to}\n")
        }
        ModelOutcome::Replaced { why, .. } => {
            format!("{what} copied anew, hashed and read back in {took}: {to}\nbefore: {why}\n")
        }
    };
    if let Some(key) = prepared.previous {
        let drop = place.hint(&format!("drop {}", short(key)));
        text += &format!("the copy of what it was before stays: {drop}\n");
    }
    text
}

fn document(source: &Path, prepared: &PreparedModel, duration_ns: u64) -> Value {
    let (outcome, copied_bytes, hashed_bytes, why) = match &prepared.outcome {
        ModelOutcome::Reused => ("reused", 0, 0, None),
        ModelOutcome::Found { hashed_bytes } => ("found", 0, *hashed_bytes, None),
        ModelOutcome::Rehashed { bytes, why } => ("rehashed", 0, *bytes, Some(why)),
        ModelOutcome::Copied { bytes } => ("copied", *bytes, *bytes, None),
        ModelOutcome::Replaced { bytes, why } => ("replaced", *bytes, *bytes, Some(why)),
    };
    let model = &prepared.model;
    let files = model.files.iter().map(|file| {
        json!({
            "path": file.path.display().to_string(),
            "sha256": file.digest.to_string(),
            "bytes": file.bytes,
        })
    });
    json!({
        "source": source.display().to_string(),
        "path": model.path.display().to_string(),
        "key": model.key.to_string(),
        "generation": model.generation,
        "outcome": outcome,
        "why": why.map(ToString::to_string),
        "bytes": model.bytes,
        "copied_bytes": copied_bytes,
        "hashed_bytes": hashed_bytes,
        "files": files.collect::<Vec<_>>(),
        "previous": prepared.previous.map(|key| key.to_string()),
        "duration_ns": duration_ns,
    })
}
