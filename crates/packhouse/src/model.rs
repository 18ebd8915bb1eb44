//! `model`: byte-identical copies of whole model files in RAM.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::model_source::{self, ModelSource, NoCopy};
use crate::model_words::{ModelCommand, ModelPathArgs};
use crate::places::Lookup;
use crate::stage;
use serde_json::json;
use std::path::Path;

/// Executes one command on copies of models.
pub(crate) fn execute(command: ModelCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        ModelCommand::Path(args) => path(&args, lookup),
    }
}

/// Prints admitted paths, or says of the first model why it has none.
fn path(args: &ModelPathArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let folder = stage::root_path(args.folder.root.as_deref(), lookup)?;
    let mut text = String::new();
    let mut documents = Vec::new();
    for model in &args.models {
        let source = ModelSource::named(model)?;
        let root = model_source::open_root(&folder).map_err(|error| no_copy(model, &error))?;
        let found = model_source::find(&root, &source, None);
        let found = found.map_err(|miss| no_copy(model, &NoCopy::Miss(miss)))?;
        text += &format!("{}\n", found.path.display());
        documents.push(json!({
            "path": found.path.display().to_string(),
            "sha256": found.digest.to_string(),
            "bytes": found.bytes,
        }));
    }
    Ok(Answer::done(text, json!({ "models": documents })))
}

fn no_copy(model: &Path, error: &NoCopy) -> Failure {
    Failure::new("no copy to use", model.display())
        .because(error)
        .hint(format!("packhouse model prepare {}", quoted(model)))
}
