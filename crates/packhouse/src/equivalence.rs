//! `equivalence`: the stored payloads of a model against what an engine's own libraries pack now.
//!
//! The engine's libraries are loaded into a child process: whatever they do there, this process
//! tells what became of it.

use crate::answer::{Answer, Column, say, table};
use crate::cli::EquivalenceArgs;
use crate::failure::{Exit, Failure, quoted};
use crate::files::open_regular;
use crate::inspect;
use crate::places::Lookup;
use crate::run::own_binary;
use crate::stores::{self, Purpose, short};
use packhouse_base::units;
use packhouse_container::shard_name;
use packhouse_ggml::equivalence::{self, EquivalenceError};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs the comparison in a child that answers on our stdout. Of its stderr only its own error is
/// passed on: an engine prints a line per tensor there. Returns how the program ends.
pub(crate) fn host(
    args: &EquivalenceArgs,
    as_json: bool,
    lookup: Lookup<'_>,
) -> Result<Exit, Failure> {
    let engine = match &args.engine {
        Some(folder) => folder.clone(),
        None => engine_of_path(lookup)?,
    };
    // The child would say the same, but only after it loaded an engine.
    inspect::open(&args.model)?;
    let mut child = Command::new(own_binary()?);
    child
        .arg("equivalence")
        .args(["--here", "--engine"])
        .args([engine.as_os_str(), args.model.as_os_str()])
        .env_remove("GGML_BACKEND_PATH")
        .stdin(Stdio::null());
    if as_json {
        child.arg("--json");
    }
    let output = child.stdout(Stdio::inherit()).output().map_err(|error| {
        Failure::new("cannot start the comparing process", engine.display()).because(&error)
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let exit = match output.status.code() {
        Some(0) => return Ok(Exit::Done),
        Some(1) => return Ok(Exit::Negative),
        Some(2) => Exit::Usage,
        Some(3) => Exit::NotExecuted,
        Some(_) | None => {
            let what = "the engine's libraries ended the comparing process";
            return Err(Failure::new(what, output.status)
                .cause(format!("libraries of {}", engine.display()))
                .cause(format!(
                    "last line: {}",
                    said.lines().last().unwrap_or_default()
                ))
                .hint(format!("ls -l {}", quoted(engine))));
        }
    };
    let own = said.lines().skip_while(|line| !line.starts_with("error: "));
    own.for_each(|line| say(format_args!("{line}\n")));
    Ok(exit)
}

/// Compares, in this very process. The answer is negative unless every payload is equal and is one
/// that the engine would use.
pub(crate) fn compare(args: &EquivalenceArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let engine = args.engine.as_deref().unwrap_or(Path::new("."));
    let store = stores::open(Purpose::Change, lookup)?;
    let files = open_shards(&args.model)?;
    let answer = equivalence::compare(engine, &files, &store, &mut |_| {})
        .map_err(|error| failure(args, engine, &error))?;
    let is_equal = answer.differences.is_empty()
        && answer.equal_count == answer.payload_count
        && answer.foreign_fingerprint_count == 0;
    let rows: Vec<Vec<String>> = answer
        .differences
        .iter()
        .map(|difference| vec![difference.tensor.clone(), difference.what.clone()])
        .collect();
    let mut text = table(&[Column::Left, Column::Left], &rows);
    if answer.foreign_fingerprint_count > 0 {
        text += &format!(
            "{} packs have another fingerprint than this engine, which would not use them\n",
            answer.foreign_fingerprint_count
        );
    }
    text += &format!(
        "set {}: {} of {} payloads equal ({}), packed by {} (ggml {})\n",
        short(&answer.set),
        answer.equal_count,
        answer.payload_count,
        units::bytes(answer.compared_bytes),
        answer.cpu_library,
        answer.engine_version,
    );
    let exit = if is_equal { Exit::Done } else { Exit::Negative };
    let json = document(&answer, is_equal);
    Ok(Answer { text, json, exit })
}

fn document(answer: &equivalence::Answer, is_equal: bool) -> Value {
    let differences: Vec<Value> = answer
        .differences
        .iter()
        .map(|difference| json!({"tensor": difference.tensor, "what": difference.what}))
        .collect();
    json!({
        "set": answer.set.to_string(),
        "equal": is_equal,
        "payload_count": answer.payload_count,
        "equal_count": answer.equal_count,
        "compared_bytes": answer.compared_bytes,
        "foreign_fingerprint_count": answer.foreign_fingerprint_count,
        "engine_version": answer.engine_version,
        "cpu_library": answer.cpu_library,
        "differences": differences,
    })
}

/// Opens the model's files in the order of shards, each with its name.
fn open_shards(model: &Path) -> Result<Vec<(String, File)>, Failure> {
    let is_split = inspect::open(model)?.shards().len() > 1;
    let paths = if is_split {
        shard_name::sibling_paths(model).map_err(|error| {
            Failure::new("cannot find the other shards of", model.display()).because(&error)
        })?
    } else {
        vec![model.to_owned()]
    };
    let open = |path: &PathBuf| {
        let file = open_regular(path).map_err(|error| inspect::unreadable(path, &error))?;
        Ok((path.display().to_string(), file))
    };
    paths.iter().map(open).collect()
}

/// The folder of the `llama-server` that a shell would start, behind symlinks.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI finds what the user would start"
)]
fn engine_of_path(lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    let path = lookup("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .filter_map(|folder| folder.join("llama-server").canonicalize().ok())
        .find_map(|program| Some(program.parent()?.to_owned()));
    found.ok_or_else(|| {
        Failure::usage("no engine to compare with", "llama-server is not in PATH")
            .cause("--engine names the folder of its libraries (libggml-base, libggml-cpu)")
            .hint("packhouse equivalence MODEL --engine llama.cpp/build/bin")
    })
}

fn failure(args: &EquivalenceArgs, engine: &Path, error: &EquivalenceError) -> Failure {
    let model = args.model.display().to_string();
    let of_model = |what, hint: String| Failure::new(what, &model).because(error).hint(hint);
    match error {
        EquivalenceError::NoLibrary { .. }
        | EquivalenceError::Load { .. }
        | EquivalenceError::Engine { .. } => {
            let engine = engine.display().to_string();
            Failure::new("cannot use the engine", &engine)
                .because(error)
                .hint(format!("ls -l {engine}"))
        }
        EquivalenceError::Model { .. } | EquivalenceError::Read { .. } => {
            of_model("cannot read the model", format!("ls -l {model}"))
        }
        EquivalenceError::NoSet { .. } => of_model(
            "nothing is stored of the model",
            format!("packhouse run -- llama-server -m {model}"),
        ),
        EquivalenceError::Store(_) => of_model("cannot compare", "packhouse doctor".to_owned()),
    }
}
