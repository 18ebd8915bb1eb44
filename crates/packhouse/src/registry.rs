//! `registry`: packs that others made, bound to what they were made of and by.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::failure::{Failure, quoted};
use crate::folders;
use crate::hints;
use crate::model_source::{self, ModelSource};
use crate::places::{self, Lookup};
use crate::registry_look;
use crate::registry_words::{RegistryCommand, RegistryRegisterArgs};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_prepare::registry::{
    Artifact, ArtifactRefusal, Binding, Look, LookError, Outcome, PublishError, ReadError, Record,
    Registry, RegistryError, RegistryKey,
};
use packhouse_stage::models::ModelKey;
use packhouse_store::percent::encode_path;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Executes one command on registered packs.
pub(crate) fn execute(command: RegistryCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        RegistryCommand::Register(args) => register(&args, lookup),
        RegistryCommand::Verify(args) => registry_look::verify(&args, lookup),
        RegistryCommand::Ls => registry_look::list(lookup),
        RegistryCommand::Rm { keys } => remove(&keys, lookup),
    }
}

fn register(args: &RegistryRegisterArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = &args.path;
    let bind = |model| {
        let texts = [&args.packer_revision, &args.layout, &args.kernel_abi].map(String::clone);
        let [revision, layout, abi] = texts;
        Binding::new(model, revision, layout, abi).map_err(|error| {
            Failure::usage("cannot bind the pack", path.display())
                .because(&error)
                .hint("packhouse registry register --help")
        })
    };
    // Words are judged before anything is hashed.
    bind(Digest::of(b""))?;
    let given = args.model_sha256.iter().map(|text| digest(text));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let real = folders::resolve(path).map_err(|error| {
        Failure::new("cannot register", path.display())
            .because(&error)
            .hint(hints::of(&error, path))
    })?;
    let registry = make(lookup)?;
    let look = Look::take(&RealFs, &real).map_err(|error| unlooked(path, &error))?;
    let (model, model_path) = match &args.model {
        Some(model) => {
            let source = ModelSource::named(model)?;
            (model_digest(&source, lookup)?, Some(source.path))
        }
        None => (ModelKey::of(&given).0, None),
    };
    let bar = Bar::new();
    bar.start("hashing the pack", look.bytes());
    let survey = look.hash(&RealFs, &RealClock, threads(args.threads), &|bytes| {
        bar.done(bytes);
    });
    drop(bar);
    let survey = survey.map_err(|error| unlooked(path, &error))?;
    let artifact = Artifact::of(&survey).map_err(|refusal| unfit(path, &refusal))?;
    let record = Record::new(bind(model)?, artifact, &survey, model_path)
        .map_err(|error| Failure::new("cannot register", path.display()).because(&error))?;
    let (record, outcome) = registry
        .publish(record)
        .map_err(|error| unwritten(&registry, &error))?;
    let others = others_at(&registry, &record)?;
    Ok(registered(&record, &outcome, &others))
}

/// Other packs that were registered at this path: what it held before, or under another binding.
fn others_at(registry: &Registry, record: &Record) -> Result<Vec<RegistryKey>, Failure> {
    let (mut keys, _) = listed(registry)?;
    keys.retain(|key| {
        let other = registry.read(*key);
        *key != record.key() && other.is_ok_and(|other| other.path() == record.path())
    });
    Ok(keys)
}

fn registered(record: &Record, outcome: &Outcome, others: &[RegistryKey]) -> Answer {
    let key = record.key();
    let (word, note) = match outcome {
        Outcome::New => ("registered", String::new()),
        Outcome::Same => ("was registered", String::new()),
        Outcome::Renewed => ("registered anew", String::new()),
        Outcome::Moved { from } => ("moved", format!("it was in {}\n", Shown(&text(from)))),
        Outcome::Repaired { why } => ("repaired", format!("its record was damaged: {why}\n")),
    };
    let binding = record.binding();
    let others_text: String = others
        .iter()
        .map(|other| format!("{} is registered at this path too\n", short(*other)))
        .collect();
    let text = format!(
        "{} {word}: {}\n{note}layout {}, packer {}, kernels {}, model {}\n{others_text}\
         next: packhouse registry verify {}\n",
        short(key),
        Shown(&what(record)),
        binding.layout(),
        binding.packer_revision(),
        binding.kernel_abi(),
        &binding.model().to_string()[..SHOWN],
        short(key),
    );
    let mut json = document(record);
    json["others_at_path"] = others.iter().map(RegistryKey::to_string).collect();
    json["outcome"] = outcome_word(outcome).into();
    if let Outcome::Moved { from } = outcome {
        json["moved_from"] = encode_path(from.as_os_str()).into();
    }
    if let Outcome::Repaired { why } = outcome {
        json["damage"] = why.to_string().into();
    }
    Answer::done(text, json)
}

fn remove(words: &[String], lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let registry = open(lookup)?;
    let keys = chosen(registry.as_ref(), words, lookup)?;
    let registry = registry.ok_or_else(|| none(&state(lookup)))?;
    let (mut text, mut documents) = (String::new(), Vec::new());
    for key in keys {
        let record = registry.read(key);
        let removed = registry
            .remove(key)
            .map_err(|error| unwritten(&registry, &error))?;
        if !removed {
            // Another process was faster.
            continue;
        }
        match record {
            Ok(record) => {
                let stays = Shown(&what(&record)).to_string();
                text += &format!("{} forgotten; its files stay: {stays}\n", short(key));
                documents.push(document(&record));
            }
            Err(error) => {
                text += &format!("{} forgotten; {}\n", short(key), Shown(&error.to_string()));
                documents.push(registry_look::unread_document(key, &error));
            }
        }
    }
    Ok(Answer::done(text, json!({ "removed": documents })))
}

/// The keys that words name, each by its first digits; all where there are none.
pub(crate) fn chosen(
    registry: Option<&Registry>,
    words: &[String],
    lookup: Lookup<'_>,
) -> Result<Vec<RegistryKey>, Failure> {
    let all = match registry {
        Some(registry) => listed(registry)?.0,
        None => Vec::new(),
    };
    if words.is_empty() {
        return Ok(all);
    }
    let mut keys = Vec::new();
    for word in words {
        let key = key_of(&all, word, lookup)?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn key_of(all: &[RegistryKey], digits: &str, lookup: Lookup<'_>) -> Result<RegistryKey, Failure> {
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !digits.bytes().all(is_hex) || !(DIGITS_MIN..=64).contains(&digits.len()) {
        return Err(Failure::usage("not a registry key", digits)
            .cause(format!(
                "a registry key is given by {DIGITS_MIN} to 64 digits of 0-9 and a-f"
            ))
            .hint("packhouse registry ls"));
    }
    let matching = all.iter().filter(|key| key.to_string().starts_with(digits));
    match matching.copied().collect::<Vec<_>>()[..] {
        [only] => Ok(only),
        [] => Err(Failure::new("no such pack is registered", digits)
            .cause(format!("none in {} begins so", state(lookup).display()))
            .hint("packhouse registry ls")),
        ref several => {
            let keys: Vec<String> = several.iter().map(RegistryKey::to_string).collect();
            Err(Failure::usage("more than one key begins with", digits)
                .cause(keys.join(", "))
                .hint("packhouse registry ls"))
        }
    }
}

/// Keys and strays of the registry.
pub(crate) fn listed(
    registry: &Registry,
) -> Result<(Vec<RegistryKey>, Vec<std::ffi::OsString>), Failure> {
    registry.list().map_err(|error| {
        let path = registry.path();
        Failure::new("cannot list the registry", path.display())
            .because(&error)
            .hint(hints::of(&error, path))
    })
}

/// Says that there is no registry, or nothing in it.
pub(crate) fn none(path: &Path) -> Failure {
    Failure::new("no pack is registered", path.display()).hint("packhouse registry register --help")
}

/// Where the registry is, for messages.
pub(crate) fn state(lookup: Lookup<'_>) -> PathBuf {
    let state = places::state(lookup).unwrap_or_default();
    state.join("registry/v1")
}

/// Opens the registry for looking; `None` where nobody registered anything.
pub(crate) fn open(lookup: Lookup<'_>) -> Result<Option<Registry>, Failure> {
    let state = places::state(lookup)?;
    Registry::open_if_there(Arc::new(RealFs), Arc::new(RealClock), &state)
        .map_err(|error| unusable(&state, &error))
}

fn make(lookup: Lookup<'_>) -> Result<Registry, Failure> {
    let state = places::state(lookup)?;
    Registry::make(Arc::new(RealFs), Arc::new(RealClock), &state)
        .map_err(|error| unusable(&state, &error))
}

fn unusable(state: &Path, error: &RegistryError) -> Failure {
    let path = state.join("registry/v1");
    Failure::new("cannot use the registry", path.display())
        .because(error)
        .hint(hints::of(error, state))
}

fn unlooked(path: &Path, error: &LookError) -> Failure {
    Failure::new("cannot register", path.display())
        .because(error)
        .hint(hints::listed(path))
}

fn unfit(path: &Path, refusal: &ArtifactRefusal) -> Failure {
    let at = match refusal {
        ArtifactRefusal::NoFile { path }
        | ArtifactRefusal::NoBytes { path }
        | ArtifactRefusal::Special { path }
        | ArtifactRefusal::Link { path, .. } => path,
        ArtifactRefusal::Changed { path, .. } => path,
        ArtifactRefusal::Unread(error) => &error.path,
    };
    Failure::new("cannot register", path.display())
        .because(refusal)
        .hint(format!("ls -la {}", quoted(at)))
}

fn unwritten(registry: &Registry, error: &PublishError) -> Failure {
    let path = registry.path();
    let hint = match error {
        PublishError::Busy { path } => format!("fuser -v {}", quoted(path)),
        PublishError::Taken(_) | PublishError::Fs(_) => hints::of(error, path),
    };
    Failure::new("cannot change the registry", path.display())
        .because(error)
        .hint(hint)
}

/// Says why a record could not be read.
pub(crate) fn unread(key: RegistryKey, error: &ReadError) -> Failure {
    let hint = match error {
        ReadError::Damaged { .. } => format!("packhouse registry rm {}", short(key)),
        ReadError::Absent { .. } | ReadError::Small(_) => "packhouse registry ls".to_owned(),
    };
    Failure::new("cannot read the record of", short(key))
        .because(error)
        .hint(hint)
}

/// The key of a model's files as they are now; hashed where nobody remembers them.
pub(crate) fn model_digest(source: &ModelSource, lookup: Lookup<'_>) -> Result<Digest, Failure> {
    let digests = model_digests(source, lookup)?;
    Ok(ModelKey::of(&digests).0)
}

/// The SHA-256 of each of a model's files.
pub(crate) fn model_digests(
    source: &ModelSource,
    lookup: Lookup<'_>,
) -> Result<Vec<Digest>, Failure> {
    let files = source.open()?;
    let sizes = files
        .iter()
        .map(|file| file.stat().map_or(0, |stat| stat.size));
    let bar = Bar::new();
    bar.start("hashing the model", sizes.sum());
    let told = |bytes| bar.done(bytes);
    let paths = source.paths.iter();
    let found = paths.map(|path| model_source::file_digest(path, lookup, &told, &|| false));
    found.map(|found| Ok(found?.digest)).collect()
}

fn digest(text: &str) -> Result<Digest, Failure> {
    Digest::parse(text).map_err(|_| {
        Failure::usage("not a SHA-256", text)
            .cause("a SHA-256 is 64 digits of 0-9 and a-f")
            .hint("sha256sum model.gguf")
    })
}

/// An artifact in one line.
pub(crate) fn what(record: &Record) -> String {
    let artifact = record.artifact();
    let files = match artifact.file_count() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let bytes = units::bytes(artifact.bytes());
    format!("{} ({files}, {bytes})", text(record.path()))
}

/// A record for programs. Paths are percent-encoded as in the record.
pub(crate) fn document(record: &Record) -> Value {
    let (binding, artifact) = (record.binding(), record.artifact());
    let model_path = record
        .model_path()
        .map(|path| encode_path(path.as_os_str()));
    json!({
        "key": record.key().to_string(),
        "model_key": binding.model().to_string(),
        "model_path": model_path,
        "packer_revision": binding.packer_revision(),
        "layout": binding.layout(),
        "kernel_abi": binding.kernel_abi(),
        "path": encode_path(record.path().as_os_str()),
        "kind": artifact.kind().word(),
        "sha256": artifact.digest().to_string(),
        "bytes": artifact.bytes(),
        "file_count": artifact.file_count(),
        "entry_count": artifact.entries().count(),
    })
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::New => "new",
        Outcome::Same => "same",
        Outcome::Renewed => "renewed",
        Outcome::Moved { .. } => "moved",
        Outcome::Repaired { .. } => "repaired",
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn threads(given: Option<NonZeroUsize>) -> NonZeroUsize {
    let own = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    given.unwrap_or_else(own)
}

/// The digits of a key that tables show.
pub(crate) fn short(key: RegistryKey) -> String {
    key.to_string()[..SHOWN].to_owned()
}

pub(crate) const SHOWN: usize = 12;
const DIGITS_MIN: usize = 8;
