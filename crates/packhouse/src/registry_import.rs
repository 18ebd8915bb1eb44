//! `import --registered`: a registered pack into the store, once it proved to be what it was.
//!
//! Invariants:
//! - every file is hashed and compared with the record first, and the model that the pack says it
//!   was made of is the one that the record binds it to;
//! - what was imported is what was verified: the artifact is looked at before and after both.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::cli::ImportArgs;
use crate::failure::{Failure, quoted};
use crate::import;
use crate::model_source::ModelSource;
use crate::places::Lookup;
use crate::prepare;
use crate::registry::{self, SHOWN, short, threads};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_pack::Packers;
use packhouse_prepare::bundle::{self, BundleError};
use packhouse_prepare::foreign::xe2_m6_v2;
use packhouse_prepare::registry::{
    self as packs, ArtifactKind, Look, LookError, PayloadImport, PayloadImportError, PayloadOf,
    Record, RegistryKey, Verification,
};
use packhouse_stage::models::ModelKey;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Verifies the pack of a key, then imports it as what it is.
pub(crate) fn import(
    args: &ImportArgs,
    digits: &str,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let registry = registry::open(lookup)?;
    let keys = registry::chosen(registry.as_ref(), &[digits.to_owned()], lookup)?;
    let (Some(registry), [key]) = (registry, &keys[..]) else {
        return Err(registry::none(&registry::state(lookup)));
    };
    let record = registry
        .read(*key)
        .map_err(|error| registry::unread(*key, &error))?;
    let path = record.path();
    let unlooked = |error: &LookError| {
        Failure::new("cannot import the registered pack", short(*key))
            .because(error)
            .hint(verify_hint(*key))
    };
    let before = Look::take(&RealFs, path).map_err(|error| unlooked(&error))?;
    verify(&record)?;
    let answer = match (&args.tensor, record.artifact().kind()) {
        (Some(tensor), _) => payload(args, tensor, &record, lookup),
        (None, ArtifactKind::Folder) => folder(args, &record, lookup),
        (None, ArtifactKind::File) => file(args, &record, lookup),
    };
    let mut answer = answer?;
    let after = Look::take(&RealFs, path).map_err(|error| unlooked(&error))?;
    if !after.is_still(&before) {
        return Err(
            Failure::new("the pack changed while it was imported", path.display())
                .cause("the set holds together, but need not be what was registered")
                .hint(verify_hint(*key)),
        );
    }
    answer.json["registered"] = key.to_string().into();
    Ok(answer)
}

fn verify(record: &Record) -> Result<(), Failure> {
    let bar = Bar::new();
    bar.start("hashing the pack", record.artifact().bytes());
    let done = |bytes| bar.done(bytes);
    let found = packs::verify(&RealFs, &RealClock, record, threads(None), &done);
    drop(bar);
    let Verification { findings } = found;
    if findings.is_empty() {
        return Ok(());
    }
    let key = record.key();
    let mut failure = Failure::new("not imported, as it is not what was registered", short(key));
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        failure = failure.cause(match finding.path.is_empty() {
            true => finding.what.to_string(),
            false => format!("{}: {}", finding.path.display(), finding.what),
        });
    }
    Err(failure.hint(verify_hint(key)))
}

/// A folder is another program's pack set.
fn folder(args: &ImportArgs, record: &Record, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = record.path();
    let made_of = {
        let store = import::writable(lookup, path)?;
        let (dir, name) = import::set_folder(&store, path)?;
        xe2_m6_v2::model_of((&dir, &name)).map_err(|error| import::foreign_untaken(path, &error))?
    };
    same_model(record, &[made_of])?;
    import::from_xe2(path, args.model.as_deref(), lookup)
}

/// A file without a tensor is a bundle.
fn file(args: &ImportArgs, record: &Record, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = record.path();
    if let Some(model) = &args.model {
        return Err(Failure::usage("--model without --tensor", model.display())
            .cause("a bundle has its own record of the model")
            .hint(format!(
                "packhouse import --registered {}",
                short(record.key())
            )));
    }
    let head = bundle::read_head(&mut import::open_bundle(path)?);
    let head = head.map_err(|error| match error {
        BundleError::NoBundle { .. } => {
            let key = short(record.key());
            Failure::new(
                "no bundle, so it must be a tensor's payload",
                path.display(),
            )
            .because(&error)
            .cause(format!(
                "import --registered {key} takes --model and --tensor for it"
            ))
            .hint("packhouse import --help")
        }
        error => import::untaken(path, &error),
    })?;
    let containers = head.containers.iter().filter_map(|container| {
        let files = container.files().iter();
        let digests: Option<Vec<Digest>> = files.map(|file| file.digest).collect();
        Some(ModelKey::of(&digests?).0)
    });
    let made_of: Vec<Digest> = containers.collect();
    same_model(record, &made_of)?;
    import::from_bundle(path, &mut import::open_bundle(path)?, lookup)
}

/// A payload of one tensor, proven by its layout's inverse.
fn payload(
    args: &ImportArgs,
    tensor: &str,
    record: &Record,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let parameters = args.parameter.iter().map(|text| parameter(text));
    let parameters = parameters.collect::<Result<BTreeMap<_, _>, _>>()?;
    let path = args.model.as_deref().unwrap_or(Path::new(""));
    // Opened before it is hashed: what changes meanwhile shows in the opened file's stat.
    let model = prepare::open_model(path)?;
    let digests = registry::model_digests(&ModelSource::named(path)?, lookup)?;
    same_model(record, &[ModelKey::of(&digests).0])?;
    let store = import::writable(lookup, record.path())?;
    let of = PayloadOf {
        tensor,
        parameters: &parameters,
        files: &digests,
    };
    let imported = packs::import_payload(&store, &Packers::detect(), &RealFs, record, &model, &of);
    let imported = imported.map_err(|error| untaken(record, path, &error))?;
    Ok(imported_answer(tensor, &imported))
}

fn imported_answer(tensor: &str, imported: &PayloadImport) -> Answer {
    let set = &imported.set.to_string()[..SHOWN];
    let text = format!(
        "set {set} {} under plan {}: {} ({}, {})\nnext: packhouse verify {set}\n",
        import::word(imported.outcome),
        packs::REGISTERED_PLAN,
        Shown(tensor),
        units::bytes(imported.bytes),
        if imported.is_new_object {
            "new"
        } else {
            "reused"
        },
    );
    let json = json!({
        "set": imported.set.to_string(),
        "plan": packs::REGISTERED_PLAN,
        "outcome": import::word(imported.outcome),
        "tensor": tensor,
        "object": imported.object.to_string(),
        "bytes": imported.bytes,
        "new_object_count": u64::from(imported.is_new_object),
        "new_pack_count": u64::from(imported.is_new_pack),
    });
    Answer::done(text, json)
}

/// The pack must be made of the model that it is bound to: one of those that it names.
fn same_model(record: &Record, made_of: &[Digest]) -> Result<(), Failure> {
    let expected = record.binding().model();
    if made_of.contains(&expected) {
        return Ok(());
    }
    let mut failure = Failure::new(
        "not imported, as it is of another model",
        short(record.key()),
    )
    .cause(format!("it is registered as made of {expected}"));
    for actual in made_of {
        failure = failure.cause(format!("what is there is {actual}"));
    }
    if made_of.is_empty() {
        failure = failure.cause("it does not say which model it was made of");
    }
    Err(failure.hint("packhouse registry ls --json"))
}

fn parameter(text: &str) -> Result<(String, u64), Failure> {
    let pair = text.split_once('=');
    let pair = pair.and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    pair.ok_or_else(|| {
        Failure::usage("not a parameter", text)
            .cause("expected a name, = and a whole number")
            .hint("packhouse layouts")
    })
}

fn untaken(record: &Record, model: &Path, error: &PayloadImportError) -> Failure {
    let failure = Failure::new("cannot import the payload", record.path().display()).because(error);
    match error {
        PayloadImportError::Room { source, .. } => failure.hint(import::more_room(source)),
        PayloadImportError::Layout { .. } | PayloadImportError::NoInverse(_) => {
            failure.hint("packhouse layouts")
        }
        PayloadImportError::Tensor { .. }
        | PayloadImportError::Refused { .. }
        | PayloadImportError::Wrong { .. }
        | PayloadImportError::Length { .. } => {
            failure.hint(format!("packhouse inspect {} --tensors", quoted(model)))
        }
        other if other.blame() == Blame::Source => failure.hint(verify_hint(record.key())),
        _ => failure.hint("packhouse doctor"),
    }
}

fn verify_hint(key: RegistryKey) -> String {
    format!("packhouse registry verify {}", short(key))
}

const FINDINGS_SHOWN: usize = 5;
