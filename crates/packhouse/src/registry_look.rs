//! `registry verify` and `registry ls`: what is bound to what, and what is no longer as it was.

use crate::answer::{Answer, Column, fitted_table};
use crate::bar::Bar;
use crate::failure::{Exit, Failure};
use crate::model_source::ModelSource;
use crate::places::Lookup;
use crate::registry::{self, SHOWN, document, short, text, what};
use crate::registry_words::RegistryVerifyArgs;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_prepare::registry::{self as packs, Finding, Glance, Record, RegistryKey};
use packhouse_stage::models::SourceFile;
use packhouse_store::percent::encode_path;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::ffi::OsStr;

/// Hashes packs and compares them with their records.
pub(crate) fn verify(args: &RegistryVerifyArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let registry = registry::open(lookup)?;
    let keys = registry::chosen(registry.as_ref(), &args.keys, lookup)?;
    let Some(registry) = registry.filter(|_| !keys.is_empty()) else {
        return Err(registry::none(&registry::state(lookup)));
    };
    let mut answer = Answer::done(String::new(), Value::Null);
    let mut documents = Vec::new();
    for key in keys {
        let (lines, document, exit) = match registry.read(key) {
            Ok(record) => verified(&record, args, lookup),
            Err(packs::ReadError::Absent { .. }) => continue,
            Err(error) => {
                let mut document = unread_document(key, &error);
                document["good"] = false.into();
                let exit = match error {
                    packs::ReadError::Damaged { .. } => Exit::Negative,
                    packs::ReadError::Absent { .. } | packs::ReadError::Small(_) => {
                        Exit::NotExecuted
                    }
                };
                (unread_line(key, &error), document, exit)
            }
        };
        answer.text += &lines;
        answer.exit = worse(answer.exit, exit);
        documents.push(document);
    }
    answer.json = json!({ "packs": documents });
    Ok(answer)
}

fn verified(
    record: &Record,
    args: &RegistryVerifyArgs,
    lookup: Lookup<'_>,
) -> (String, Value, Exit) {
    let bar = Bar::new();
    bar.start("hashing the pack", record.artifact().bytes());
    let threads = registry::threads(args.threads);
    let done = |bytes| bar.done(bytes);
    let found = packs::verify(&RealFs, &RealClock, record, threads, &done);
    drop(bar);
    let model = ModelNow::of(record, lookup);
    let exit = if found.has_difference() || matches!(model, ModelNow::Other(_)) {
        Exit::Negative
    } else if !found.is_good() || matches!(model, ModelNow::Unread(_)) {
        Exit::NotExecuted
    } else {
        Exit::Done
    };
    let key = short(record.key());
    let what = what(record);
    let mut lines = match found.findings.len() {
        0 => format!("{key} as it was registered: {}\n", Shown(&what)),
        1 => format!("{key} 1 finding: {}\n", Shown(&what)),
        count => format!("{key} {count} findings: {}\n", Shown(&what)),
    };
    for finding in found.findings.iter().take(FINDINGS_SHOWN) {
        lines += &format!("  {}\n", Shown(&finding_text(finding)));
    }
    if let Some(more) = found.findings.len().checked_sub(FINDINGS_SHOWN + 1) {
        let more = more + 1;
        lines += &format!("  and {more} more; --json has all\n");
    }
    lines += &format!("  {}\n", Shown(&model.text(record)));
    let mut document = document(record);
    document["good"] = (exit == Exit::Done).into();
    document["findings"] = found.findings.iter().map(finding_document).collect();
    document["model"] = model.document();
    (lines, document, exit)
}

fn finding_text(finding: &Finding) -> String {
    match finding.path.is_empty() {
        true => finding.what.to_string(),
        false => format!("{}: {}", finding.path.display(), finding.what),
    }
}

fn finding_document(finding: &Finding) -> Value {
    json!({
        "path": encode_path(&finding.path),
        "certain": finding.what.is_certain(),
        "text": finding.what.to_string(),
    })
}

/// What the model is now that a pack is bound to.
enum ModelNow {
    /// Nobody said where it is.
    NoPath,
    /// It has the key that the pack is bound to.
    Same,
    /// Another model has its path.
    Other(Digest),
    /// It isn't there.
    Gone,
    /// It could not be read.
    Unread(String),
}

impl ModelNow {
    fn of(record: &Record, lookup: Lookup<'_>) -> Self {
        let Some(path) = record.model_path() else {
            return Self::NoPath;
        };
        let source = match ModelSource::named(path) {
            Ok(source) => source,
            Err(failure) => return Self::Unread(failure.reason()),
        };
        let is_gone = |file: &SourceFile| matches!(file, SourceFile::Gone);
        if source.look().iter().any(is_gone) {
            return Self::Gone;
        }
        match registry::model_digest(&source, lookup) {
            Ok(digest) if digest == record.binding().model() => Self::Same,
            Ok(digest) => Self::Other(digest),
            Err(failure) => Self::Unread(failure.reason()),
        }
    }

    fn text(&self, record: &Record) -> String {
        let expected = record.binding().model();
        let path = record.model_path().map(text).unwrap_or_default();
        match self {
            Self::NoPath => format!("model {expected}: not compared, as its path is not known"),
            Self::Same => format!("model {path}: the same"),
            Self::Other(actual) => format!("model {path}: key {actual}, expected {expected}"),
            Self::Gone => format!("model {path}: not compared, as it is not there"),
            Self::Unread(why) => format!("model {path}: {why}"),
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::NoPath => json!({"state": "no_path"}),
            Self::Same => json!({"state": "same"}),
            Self::Other(actual) => json!({"state": "other", "key": actual.to_string()}),
            Self::Gone => json!({"state": "gone"}),
            Self::Unread(why) => json!({"state": "unread", "why": why}),
        }
    }
}

/// Lists packs by stat alone.
pub(crate) fn list(lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let registry = registry::open(lookup)?;
    let (keys, strays) = match &registry {
        Some(registry) => registry::listed(registry)?,
        None => Default::default(),
    };
    let words = [
        "key", "layout", "kernels", "packer", "model", "bytes", "now", "pack",
    ];
    let mut rows = vec![words.map(str::to_owned).to_vec()];
    let (mut damaged, mut documents) = (String::new(), Vec::new());
    for key in keys {
        let record = registry.as_ref().map(|registry| registry.read(key));
        match record {
            Some(Ok(record)) => {
                let glance = packs::glance(&RealFs, &record);
                rows.push(row(&record, &glance));
                let mut document = document(&record);
                document["now"] = glance_word(&glance).into();
                document["detail"] = glance_detail(&glance).into();
                documents.push(document);
            }
            Some(Err(packs::ReadError::Absent { .. })) | None => {}
            Some(Err(error)) => {
                damaged += &unread_line(key, &error);
                documents.push(unread_document(key, &error));
            }
        }
    }
    let mut text = String::new();
    if rows.len() > 1 {
        text += &fitted_table(&COLUMNS, &rows);
    }
    text += &damaged;
    for stray in &strays {
        text += &format!("not ours: {}\n", Shown(&stray.display().to_string()));
    }
    if documents.is_empty() {
        let place = registry::state(lookup);
        text += &format!(
            "no pack is registered in {}\n",
            Shown(&place.display().to_string())
        );
    }
    let strays: Vec<String> = strays.iter().map(|name| encode_path(name)).collect();
    let json = json!({ "packs": documents, "not_ours": strays });
    Ok(Answer::done(text, json))
}

fn row(record: &Record, glance: &Glance) -> Vec<String> {
    let binding = record.binding();
    vec![
        short(record.key()),
        binding.layout().to_owned(),
        binding.kernel_abi().to_owned(),
        binding.packer_revision().to_owned(),
        model_name(record),
        units::bytes(record.artifact().bytes()),
        match glance_detail(glance) {
            detail if detail.is_empty() => glance_word(glance).to_owned(),
            detail => format!("{}: {detail}", glance_word(glance)),
        },
        text(record.path()),
    ]
}

/// The model's file name, else the first digits of its key.
fn model_name(record: &Record) -> String {
    let name = record.model_path().and_then(|path| path.file_name());
    match name {
        Some(name) => name.display().to_string(),
        None => record.binding().model().to_string()[..SHOWN].to_owned(),
    }
}

/// A record that says nothing: it is damaged, or could not be read.
fn unread_line(key: RegistryKey, error: &packs::ReadError) -> String {
    let word = unread_word(error);
    format!("{} {word}: {}\n", short(key), Shown(&error.to_string()))
}

/// The same for programs.
pub(crate) fn unread_document(key: RegistryKey, error: &packs::ReadError) -> Value {
    json!({"key": key.to_string(), "record": unread_word(error), "why": error.to_string()})
}

fn unread_word(error: &packs::ReadError) -> &'static str {
    match error {
        packs::ReadError::Damaged { .. } => "damaged",
        packs::ReadError::Absent { .. } | packs::ReadError::Small(_) => "unread",
    }
}

fn glance_word(glance: &Glance) -> &'static str {
    match glance {
        Glance::Same => "same",
        Glance::Changed(_) => "changed",
        Glance::Gone => "gone",
        Glance::Remote { .. } | Glance::Unproven { .. } => "not known",
        Glance::Unread(_) => "unread",
    }
}

fn glance_detail(glance: &Glance) -> String {
    let named = |path: &OsStr, said: String| match path.is_empty() {
        true => said,
        false => format!("{}: {said}", path.display()),
    };
    match glance {
        Glance::Same | Glance::Gone => String::new(),
        Glance::Changed(finding) => finding_text(finding),
        Glance::Remote { path, kind } => named(path, format!("stat proves nothing on {kind}")),
        Glance::Unproven { path } => named(path, "its stat was not settled".to_owned()),
        Glance::Unread(error) => error.to_string(),
    }
}

/// The exit of several: a negative answer before what could not be done, that before a yes.
fn worse(one: Exit, other: Exit) -> Exit {
    let rank = |exit| match exit {
        Exit::Done => 0,
        Exit::NotExecuted => 1,
        Exit::Usage => 2,
        Exit::Negative => 3,
    };
    match rank(other) > rank(one) {
        true => other,
        false => one,
    }
}

const COLUMNS: [Column; 8] = [
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Left,
    Column::Left,
];
const FINDINGS_SHOWN: usize = 20;
