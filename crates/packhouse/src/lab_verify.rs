//! `lab verify`: evidence, judged by the second implementation alone.
//!
//! Invariants: the answer is no as soon as one thing does not hold, and all of them are listed;
//! what can't be read is no answer; nothing is written. A candidate that failed is no reason
//! against its evidence.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure};
use crate::files::read_at_most;
use crate::hints;
use crate::lab_words::LabVerifyArgs;
use packhouse_bagcheck::{Finding, PublicKey, ReadError, Report, Tree};
use packhouse_base::shown::Shown;
use packhouse_ledger::LEDGER_BYTES_MAX;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Verifies evidence offline. A relative path is also looked for below the lab that was given.
pub(crate) fn execute(args: &LabVerifyArgs, lab: Option<&Path>) -> Result<Answer, Failure> {
    let path = place(&args.path, lab);
    let ledger = match &args.ledger {
        Some(ledger) => Some(bytes(ledger, LEDGER_BYTES_MAX)?),
        None => None,
    };
    let key = args.public_key.as_deref().map(public_key).transpose()?;
    let tree = tree(&path)?;
    if args.tampers {
        return crate::lab_tampers::verify(&path, &tree, ledger.as_deref());
    }
    let report = packhouse_bagcheck::check(&tree, ledger.as_deref(), key.as_ref());
    Ok(answer(&report, &path))
}

/// The folder that a path names: as it is, else below the lab.
fn place(path: &Path, lab: Option<&Path>) -> PathBuf {
    match lab.map(|lab| lab.join(path)) {
        Some(below) if !is_folder(path) && is_folder(&below) => below,
        Some(_) | None => path.to_owned(),
    }
}

fn is_folder(path: &Path) -> bool {
    crate::files::entries(path).is_ok()
}

fn tree(path: &Path) -> Result<Tree, Failure> {
    let refused = |error: &ReadError| {
        Failure::new("cannot read the evidence", error.path.display())
            .because(&error.cause)
            .hint(hints::of(&error.cause, &error.path))
    };
    let tree = packhouse_bagcheck::read(path).map_err(|error| refused(&error))?;
    if tree.is_empty() {
        return Err(Failure::new(
            "no evidence in an empty folder",
            path.display(),
        ));
    }
    Ok(tree)
}

fn bytes(path: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    read_at_most(path, max).map_err(|error| {
        Failure::new("cannot read", path.display())
            .because(&error)
            .hint(hints::of(&error, path))
    })
}

fn public_key(path: &Path) -> Result<PublicKey, Failure> {
    let bytes = bytes(path, KEY_BYTES_MAX)?;
    PublicKey::from_pem(&String::from_utf8_lossy(&bytes)).map_err(|error| {
        Failure::new("no public key", path.display())
            .because(&error)
            .hint("openssl pkey -in KEY.pem -pubout -out PUBLIC.pem")
    })
}

/// More than any key is long.
const KEY_BYTES_MAX: u64 = 65_536;

fn answer(report: &Report, path: &Path) -> Answer {
    let verdict = report.verdict.map_or("unknown", |verdict| verdict.name());
    let mut text = String::new();
    let mut said = |name: &str, findings: &[Finding]| {
        if !findings.is_empty() {
            let rows = findings.iter().map(row).collect::<Vec<_>>();
            let _ = write!(text, "{name}\n{}\n", table(&[Column::Left; 3], &rows));
        }
    };
    said("what does not hold:", &report.findings);
    said("what the candidate failed at:", &report.failures);
    for note in &report.notes {
        let _ = writeln!(text, "note: {}", Shown(note));
    }
    let counts: Vec<String> = report
        .checked
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    let _ = writeln!(text, "checked: {}", counts.join(", "));
    let _ = match report.findings.len() {
        0 => writeln!(text, "valid; verdict {verdict}"),
        count => writeln!(
            text,
            "NOT valid: {count} findings; verdict as recomputed {verdict}"
        ),
    };
    let mut json: Value =
        serde_json::from_str(&report.to_json()).expect("because it renders canonical JSON");
    json["path"] = json!(path.display().to_string());
    Answer {
        text,
        json,
        exit: match report.is_valid() {
            true => Exit::Done,
            false => Exit::Negative,
        },
    }
}

fn row(finding: &Finding) -> Vec<String> {
    let shown = |text: &str| Shown(text).to_string();
    vec![
        finding.code.to_owned(),
        shown(&finding.path),
        shown(&finding.words),
    ]
}
