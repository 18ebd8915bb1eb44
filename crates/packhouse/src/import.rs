//! `import`: a bundle, or another program's directory, into the store.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::cli::ImportArgs;
use crate::export::format_of;
use crate::failure::{Failure, quoted};
use crate::files::open_regular;
use crate::folders;
use crate::places::Lookup;
use crate::prepare;
use crate::registry_import;
use crate::stores::{self, short};
use crate::verify::{proofs_document, unproven_text};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::units;
use packhouse_pack::Packers;
use packhouse_prepare::bundle::{self, BundleError};
use packhouse_prepare::foreign::ForeignFormat;
use packhouse_prepare::foreign::xe2_m6_v2::{self, ForeignImportError};
use packhouse_prepare::prepare::{Event, Phase, Progress as _};
use packhouse_store::reserve::RoomError;
use packhouse_store::root::Store;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::Dir;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Takes what the path leads to: a folder is another program's, anything else a bundle.
pub(crate) fn import(args: &ImportArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    if let Some(key) = &args.registered {
        return registry_import::import(args, key, lookup);
    }
    let path = args.path.as_deref().unwrap_or(Path::new("-"));
    let model = args.model.as_deref();
    if let Some(name) = &args.format {
        return match format_of(name)? {
            ForeignFormat::Xe2M6V2 => from_xe2(path, model, lookup),
        };
    }
    let is_stream = path == Path::new("-");
    if !is_stream && is_folder(path) {
        return from_xe2(path, model, lookup);
    }
    if let Some(model) = model {
        return Err(
            Failure::usage("--model with something else than a folder", model.display())
                .cause("a bundle has its own record of the model")
                .hint(format!("packhouse import {}", quoted(path))),
        );
    }
    if is_stream {
        return from_bundle(path, &mut io::stdin().lock(), lookup);
    }
    from_bundle(path, &mut open_bundle(path)?, lookup)
}

/// Opens the file of a bundle.
pub(crate) fn open_bundle(path: &Path) -> Result<File, Failure> {
    open_regular(path).map_err(|error| {
        Failure::new("cannot open the bundle", path.display())
            .because(&error)
            .hint(format!("ls -l {}", quoted(path)))
    })
}

/// Takes a bundle into the store.
pub(crate) fn from_bundle(
    path: &Path,
    source: &mut dyn Read,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let store = writable(lookup, path)?;
    let bar = Bar::new();
    let imported = bundle::import(&store, &Packers::detect(), source, &mut copied(&bar));
    drop(bar);
    let imported = imported.map_err(|error| untaken(path, &error))?;
    let text = format!(
        "set {} {}: {} tensors; {} objects new ({}), {} reused ({})\n{}\
         next: packhouse verify {}\n",
        short(&imported.set),
        word(imported.outcome),
        imported.tensor_count,
        imported.new_object_count,
        units::bytes(imported.new_bytes),
        imported.reused_object_count,
        units::bytes(imported.reused_bytes),
        unproven_text(&imported.proofs),
        short(&imported.set),
    );
    let json = json!({
        "set": imported.set.to_string(),
        "outcome": word(imported.outcome),
        "tensor_count": imported.tensor_count,
        "new_object_count": imported.new_object_count,
        "new_bytes": imported.new_bytes,
        "reused_object_count": imported.reused_object_count,
        "reused_bytes": imported.reused_bytes,
        "new_pack_count": imported.new_pack_count,
        "receipt_count": imported.receipt_count,
        "proofs": proofs_document(&imported.proofs),
    });
    Ok(Answer::done(text, json))
}

/// Takes a folder of the Xe2 verifier into the store.
pub(crate) fn from_xe2(
    path: &Path,
    model: Option<&Path>,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let model = model.map(prepare::open_model).transpose()?;
    let store = writable(lookup, path)?;
    let (dir, name) = set_folder(&store, path)?;
    let bar = Bar::new();
    let packers = Packers::detect();
    let mut told = copied(&bar);
    let place = (&dir, name.as_str());
    let imported = xe2_m6_v2::import(&store, &packers, place, model.as_ref(), &mut told);
    drop(told);
    drop(bar);
    let imported = imported.map_err(|error| foreign_untaken(path, &error))?;
    let text = format!(
        "set {} {} under plan {}: {} tensors; {} objects new ({}), {} reused ({})\n\
         next: packhouse verify {}\n",
        short(&imported.set),
        word(imported.outcome),
        imported.plan,
        imported.tensor_count,
        imported.new_object_count,
        units::bytes(imported.new_bytes),
        imported.reused_object_count,
        units::bytes(imported.reused_bytes),
        short(&imported.set),
    );
    let json: Value = json!({
        "set": imported.set.to_string(),
        "format": ForeignFormat::Xe2M6V2.name(),
        "foreign_set": imported.foreign_key.to_string(),
        "plan": imported.plan,
        "outcome": word(imported.outcome),
        "tensor_count": imported.tensor_count,
        "new_object_count": imported.new_object_count,
        "new_bytes": imported.new_bytes,
        "reused_object_count": imported.reused_object_count,
        "reused_bytes": imported.reused_bytes,
        "new_pack_count": imported.new_pack_count,
        "receipt_count": imported.receipt_count,
    });
    Ok(Answer::done(text, json))
}

/// The folder itself, or the only set in it: what `export` wrote to can be imported by that name.
pub(crate) fn set_folder(store: &Store, path: &Path) -> Result<(Dir, String), Failure> {
    let unreadable = |error: &dyn std::error::Error| {
        Failure::new("cannot read the folder", path.display())
            .because(error)
            .hint(format!("ls -la {}", quoted(path)))
    };
    let dir = folders::open(store.fs(), path).map_err(|error| unreadable(&error))?;
    let names = dir.list().map_err(|error| unreadable(&error))?;
    if names.iter().any(|name| name == "manifest.json") {
        let name = dir.path().file_name().map(|name| name.to_string_lossy());
        return Ok((dir.clone(), name.unwrap_or_default().into_owned()));
    }
    let sets: Vec<&str> = names
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| Digest::parse(name).is_ok())
        .collect();
    match sets[..] {
        [only] => {
            let set = dir.open_dir(only).map_err(|error| unreadable(&error))?;
            Ok((set, only.to_owned()))
        }
        [] => Err(Failure::usage("no set in the folder", path.display())
            .cause("it has no manifest.json, and no folder named by a set key")
            .hint(format!("ls -la {}", quoted(path)))),
        ref several => Err(
            Failure::usage("which set of the folder", several.len()).hint(format!(
                "packhouse import {}",
                path.join(several[0]).display()
            )),
        ),
    }
}

pub(crate) fn writable(lookup: Lookup<'_>, path: &Path) -> Result<Store, Failure> {
    let store = stores::make(lookup)?;
    if store.config().read_only {
        return Err(Failure::new("cannot import", path.display())
            .cause(format!("{} is read-only", store.config().root.display()))
            .hint("unset PACKHOUSE_READONLY"));
    }
    Ok(store)
}

/// Tells the bar what an import tells.
fn copied(bar: &Bar) -> impl FnMut(u64, u64) {
    let mut told = None;
    move |done, total| {
        if told.is_none() {
            bar.begin(Phase::Copy, total);
        }
        let bytes = done - told.unwrap_or(0);
        told = Some(done);
        bar.hear(Event::Done { bytes });
    }
}

pub(crate) fn untaken(path: &Path, error: &BundleError) -> Failure {
    let failure = Failure::new("cannot import the bundle", path.display()).because(error);
    match error {
        BundleError::Room { source, .. } => failure.hint(more_room(source)),
        _ if path == Path::new("-") => failure.hint("packhouse import FILE"),
        BundleError::NoBundle { .. } => failure.hint("packhouse export --bundle FILE"),
        other if other.blame() == Blame::Source => {
            failure.hint(format!("sha256sum {}", quoted(path)))
        }
        _ => failure.hint("packhouse doctor"),
    }
}

pub(crate) fn foreign_untaken(path: &Path, error: &ForeignImportError) -> Failure {
    let failure = Failure::new("cannot import the folder", path.display()).because(error);
    match error {
        ForeignImportError::Room { source, .. } => failure.hint(more_room(source)),
        other if other.blame() == Blame::Source => failure.hint(format!("ls -la {}", quoted(path))),
        _ => failure.hint("packhouse doctor"),
    }
}

pub(crate) fn more_room(error: &RoomError) -> &'static str {
    if error.is_full() {
        "packhouse gc"
    } else {
        "packhouse doctor"
    }
}

pub(crate) fn word(outcome: SetOutcome) -> &'static str {
    match outcome {
        SetOutcome::Created => "made",
        SetOutcome::Equal => "was there",
        SetOutcome::Repaired => "repaired",
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "only chooses between two readers; each opens what it reads itself"
)]
fn is_folder(path: &Path) -> bool {
    path.is_dir()
}
