//! `model`: byte-identical copies of whole model files in RAM.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::model_source::{self, ModelSource, NoCopy};
use crate::model_words::{ModelCommand, ModelFolderArgs, ModelPathArgs};
use crate::places::Lookup;
use crate::{model_drop, model_look, model_prepare, ram, stage};
use packhouse_base::digest::Digest;
use packhouse_stage::StageRoot;
use packhouse_stage::models::{self, ModelKey, ModelMiss};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Executes one command on copies of models.
pub(crate) fn execute(command: ModelCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        ModelCommand::Prepare(args) => model_prepare::prepare(&args, lookup),
        ModelCommand::Status(args) => model_look::status(&args, lookup),
        ModelCommand::Verify(args) => model_look::verify(&args, lookup),
        ModelCommand::Warm(args) => model_look::warm(&args, lookup),
        ModelCommand::Path(args) => path(&args, lookup),
        ModelCommand::Drop(args) => model_drop::drop_copies(&args, lookup),
    }
}

/// A model as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// By the first digits of its key.
    Key(String),
    /// By a file that was copied.
    Source(ModelSource),
}

impl Named {
    /// Hex digits are a key's, anything else is a path: a file of such a name is `./deadbeef`.
    pub(crate) fn parse(model: &Path) -> Result<Self, Failure> {
        let text = model.to_str().unwrap_or_default();
        let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if (DIGITS_MIN..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(is_hex) {
            return Ok(Self::Key(text.to_owned()));
        }
        ModelSource::named(model).map(Self::Source)
    }
}

/// The folder of copies, and what hints call it.
pub(crate) struct Place {
    /// The folder of stages.
    pub(crate) path: PathBuf,
    given: Option<PathBuf>,
}

impl Place {
    /// The folder of stages: as given, else of the environment, else the user's own in RAM.
    pub(crate) fn of(folder: &ModelFolderArgs, lookup: Lookup<'_>) -> Result<Self, Failure> {
        Ok(Self {
            path: stage::root_path(folder.root.as_deref(), lookup)?,
            given: folder.root.clone(),
        })
    }

    /// Opens it for looking; `None` where nothing was ever copied or staged.
    pub(crate) fn open(&self) -> Result<Option<StageRoot>, Failure> {
        match stage::open_root(&self.path, false) {
            Ok(root) => Ok(Some(root)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(stage::unusable(&self.path, &error)),
        }
    }

    /// A command for a hint, on the same folder.
    pub(crate) fn hint(&self, words: &str) -> String {
        match &self.given {
            Some(path) => format!("packhouse model {words} --root {}", quoted(path)),
            None => format!("packhouse model {words}"),
        }
    }

    /// Says that something of the folder could not be read.
    pub(crate) fn unreadable(&self, error: &dyn std::error::Error) -> Failure {
        Failure::new("cannot read the copies", self.path.display())
            .because(error)
            .hint(format!("ls -la {}", quoted(&self.path)))
    }

    /// Says that a model has no copy.
    pub(crate) fn no_copy(&self, model: &Path) -> Failure {
        Failure::negative("no copy of", model.display())
            .cause(format!("nothing of it is in {}", self.path.display()))
            .hint(self.remedy(model))
    }

    /// What makes a copy of a model, or shows those that there are where a key was given.
    fn remedy(&self, model: &Path) -> String {
        match Named::parse(model) {
            Ok(Named::Key(_)) => self.hint("status"),
            Ok(Named::Source(_)) | Err(_) => self.hint(&format!("prepare {}", quoted(model))),
        }
    }
}

/// The keys that the command line names, or all. A model without a copy is a negative answer.
pub(crate) fn keys(
    place: &Place,
    root: Option<&StageRoot>,
    models: &[PathBuf],
) -> Result<Vec<ModelKey>, Failure> {
    let listed = match root {
        Some(root) => models::list(root).map_err(|error| place.unreadable(&error))?,
        None => Vec::new(),
    };
    let mut all: Vec<ModelKey> = listed.iter().map(|listing| listing.key).collect();
    all.dedup();
    if models.is_empty() {
        return Ok(all);
    }
    let mut chosen = Vec::new();
    for model in models {
        let key = match (Named::parse(model)?, root) {
            (Named::Key(digits), _) => by_digits(place, &all, &digits)?,
            (Named::Source(source), Some(root)) => by_source(place, root, &source)?,
            (Named::Source(_), None) => None,
        };
        let key = key.filter(|key| all.contains(key));
        chosen.push(key.ok_or_else(|| place.no_copy(model))?);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn by_digits(place: &Place, all: &[ModelKey], digits: &str) -> Result<Option<ModelKey>, Failure> {
    let matching: Vec<ModelKey> = all
        .iter()
        .copied()
        .filter(|key| key.to_string().starts_with(digits))
        .collect();
    match matching.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => {
            let keys: Vec<String> = several.iter().map(ModelKey::to_string).collect();
            Err(Failure::usage("more than one key begins with", digits)
                .cause(keys.join(", "))
                .hint(place.hint("status")))
        }
    }
}

fn by_source(
    place: &Place,
    root: &StageRoot,
    source: &ModelSource,
) -> Result<Option<ModelKey>, Failure> {
    models::key_of(root, &source.path).map_err(|error| {
        let hint = place.hint(&format!("prepare {}", quoted(&source.path)));
        Failure::new("cannot tell the copy of", source.path.display())
            .because(&error)
            .hint(hint)
    })
}

/// Prints admitted paths, or says of the first model why it has none.
fn path(args: &ModelPathArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    let expected = args.sha256.as_deref().map(digest).transpose()?;
    let root = match place.open()? {
        Some(root) => root,
        None => return Err(place.no_copy(&args.models[0])),
    };
    let (mut text, mut documents) = (String::new(), Vec::new());
    for model in &args.models {
        let found = match Named::parse(model)? {
            Named::Source(source) => model_source::find(&root, &source, expected),
            Named::Key(_) => {
                let keys = keys(&place, Some(&root), std::slice::from_ref(model))?;
                let found = keys.first().map(|key| models::find_key(&root, *key));
                let none = || ModelMiss::Absent {
                    path: model.clone(),
                };
                let found = found.transpose().map(Option::flatten);
                found.and_then(|found| found.ok_or_else(none))
            }
        };
        let found = found.map_err(|miss| not_admitted(&place, model, miss))?;
        text += &format!("{}\n", found.path.display());
        documents.push(json!({
            "path": found.path.display().to_string(),
            "key": found.key.to_string(),
            "sha256": found.digest.to_string(),
            "bytes": found.bytes,
        }));
    }
    ram::complain(&root);
    let json = json!({ "models": documents, "in_ram": ram::is_ram(&root) });
    Ok(Answer::done(text, json))
}

/// Says why a model's copy is not to be used.
fn not_admitted(place: &Place, model: &Path, miss: ModelMiss) -> Failure {
    let failure = match miss {
        ModelMiss::Fs(_) => Failure::new("cannot tell the copy of", model.display()),
        ModelMiss::Absent { .. }
        | ModelMiss::NoSuchContent { .. }
        | ModelMiss::Record { .. }
        | ModelMiss::SourceChanged { .. }
        | ModelMiss::SourceWritten { .. }
        | ModelMiss::SourceRemote { .. }
        | ModelMiss::OtherDigest { .. }
        | ModelMiss::Copy { .. } => Failure::negative("no copy to use of", model.display()),
    };
    let hint = match &miss {
        // Copying again would not help.
        ModelMiss::SourceRemote { .. } => format!("path {} --sha256 HEX", quoted(model)),
        _ if matches!(Named::parse(model), Ok(Named::Key(_))) => "status".to_owned(),
        _ => format!("prepare {}", quoted(model)),
    };
    let hint = match &miss {
        ModelMiss::SourceWritten { path } => format!("fuser -v {}", quoted(path)),
        _ => place.hint(&hint),
    };
    failure.because(&NoCopy::Miss(miss)).hint(hint)
}

/// Reads a SHA-256 of the command line.
pub(crate) fn digest(text: &str) -> Result<Digest, Failure> {
    Digest::parse(text).map_err(|error| {
        Failure::usage("not a SHA-256", text)
            .because(&error)
            .hint("sha256sum model.gguf")
    })
}

/// The digits of a key that tables show.
pub(crate) fn short(key: ModelKey) -> String {
    key.to_string()[..SHOWN].to_owned()
}

const DIGITS_MIN: usize = 8;
const DIGITS_MAX: usize = 64;
const SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_key_and_anything_else_is_a_path() {
        let is_key = |text: &str| matches!(Named::parse(Path::new(text)), Ok(Named::Key(_)));
        let long = "a".repeat(64);
        for key in ["deadbeef", "0123456789", long.as_str()] {
            assert!(is_key(key), "{key}");
        }
        let longer = "a".repeat(65);
        for path in [
            "deadbee",
            "DEADBEEF",
            "./deadbeef",
            "deadbeef.gguf",
            &longer,
        ] {
            assert!(!is_key(path), "{path}");
        }
    }

    #[test]
    fn any_shard_stands_for_its_model() {
        let named = |text: &str| Named::parse(Path::new(text)).map_err(|error| error.to_string());
        let first = named("/m/x-00001-of-00003.gguf");
        assert_eq!(first, named("/m/x-00003-of-00003.gguf"));
        let Ok(Named::Source(source)) = first else {
            panic!("expected a source, found {first:?}");
        };
        assert_eq!(source.paths.len(), 3);
        assert_eq!(source.path, source.paths[0]);
    }
}
