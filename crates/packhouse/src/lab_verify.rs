//! `lab verify`: evidence, judged by the second implementation and by our own analyzer.
//!
//! Invariants: the answer is no as soon as one thing does not hold, and all of them are listed;
//! what can't be read, or is still written, is no answer; nothing is written. A candidate that
//! failed is no reason against its evidence.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure, quoted};
use crate::files::read_at_most;
use crate::hints;
use crate::lab::LEDGER;
use crate::lab_open::counted;
use crate::lab_unequal;
use crate::lab_words::LabVerifyArgs;
use packhouse_bag::{BAG_DIR, OPEN_DIR};
use packhouse_bagcheck::{Finding, PublicKey, ReadError, Report, Tree};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::unequal::Unequal;
use packhouse_lab::{Analysis, DOCUMENT_BYTES_MAX};
use packhouse_ledger::state::Standing;
use packhouse_ledger::{LEDGER_BYTES_MAX, Ledger};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Verifies evidence offline.
pub(crate) fn execute(args: &LabVerifyArgs, lab: Option<&Path>) -> Result<Answer, Failure> {
    let path = place(&args.path, lab)?;
    let root = lab_of(&path, lab);
    let (ledger, about) = match (&args.ledger, &root) {
        (Some(ledger), _) => (Some(ledger.clone()), None),
        (None, Some(root)) if !args.no_ledger => (Some(root.join(LEDGER)), None),
        (None, _) => (
            None,
            Some("no ledger: what only it could tell was left out"),
        ),
    };
    let ledger = ledger.map(|ledger| bytes(&ledger, LEDGER_BYTES_MAX));
    let ledger = ledger.transpose()?;
    let key = args.public_key.as_deref().map(public_key).transpose()?;
    // After the ledger is read: a bag that it says is closed was closed before.
    demand_closed(&path, root.as_deref(), ledger.as_deref())?;
    let tree = tree(&path)?;
    if args.tampers {
        crate::lab_tampers::demand_folder(&path, &tree)?;
    }
    let mut report = packhouse_bagcheck::check(&tree, ledger.as_deref(), key.as_ref());
    crate::lab_judges::join(&mut report, &tree, ledger.as_deref(), &Recipes::default());
    report.notes.extend(about.map(str::to_owned));
    if args.tampers && report.is_valid() {
        let mut answer = crate::lab_tampers::verify(&tree, ledger.as_deref());
        answer.text += &about.map_or_else(String::new, |about| format!("note: {about}\n"));
        return Ok(answer);
    }
    if args.tampers {
        let note = "no copy was tampered with: the evidence itself does not hold";
        report.notes.push(note.to_owned());
    }
    // Of other bytes than were sealed nobody can say what a candidate did.
    if report.is_damaged() && !report.failures.is_empty() {
        report.failures.clear();
        let note = "what gates say of the candidate was left out: the bag is damaged";
        report.notes.push(note.to_owned());
    }
    let mut answer = answer(&report, &path);
    // Of a bag that does not hold nothing is said of the candidate.
    if report.is_valid() {
        let unequal = unequal(&tree);
        answer.text += &lab_unequal::lines(&unequal);
        answer.json["unequal"] = lab_unequal::document(&unequal);
    }
    Ok(answer)
}

/// Demands evidence that is written to its end: an open bag is that of a run that goes on or was
/// killed, and nobody can judge it yet. What the ledger says is closed is judged as it is.
fn demand_closed(path: &Path, root: Option<&Path>, ledger: Option<&[u8]>) -> Result<(), Failure> {
    let Some(open) = open_bag(path) else {
        return Ok(());
    };
    let packet = read_at_most(&open.join("data/packet.json"), DOCUMENT_BYTES_MAX);
    let ledger = ledger.and_then(|bytes| Ledger::parse(bytes).ok());
    let state = packet.ok().zip(ledger).and_then(|(packet, ledger)| {
        let state = ledger.state().packets().get(&Digest::of(&packet))?;
        Some((state.standing, state.experiment.to_string()))
    });
    let act = match state {
        Some((Standing::Nonce | Standing::Consumed, experiment)) => format!("seal {experiment}"),
        Some((
            Standing::Closed | Standing::SealedPass | Standing::SealedFail | Standing::SealedAbort,
            _,
        )) => return Ok(()),
        Some((
            Standing::Registered
            | Standing::Rehearsed
            | Standing::Reviewed
            | Standing::Armed
            | Standing::Withdrawn,
            _,
        ))
        | None => "state --live".to_owned(),
    };
    let lab = root.map_or_else(|| "DIR".to_owned(), quoted);
    Err(Failure::new("not verified: an open bag", open.display())
        .cause("it is not closed: its run goes on, or was killed and is not finished")
        .hint(format!("packhouse lab {act} --lab {lab}")))
}

/// The open bag that a path is, or that lies there alone (`docs/format/bag.md`).
fn open_bag(path: &Path) -> Option<PathBuf> {
    if path.file_name().is_some_and(|name| name == OPEN_DIR) {
        return is_folder(path).then(|| path.to_owned());
    }
    let beside = crate::files::entries(path).ok()?;
    let is_alone = beside.iter().all(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name != BAG_DIR && !name.starts_with("analysis-") && !name.starts_with("seal-")
    });
    let open = path.join(OPEN_DIR);
    let is_open = open.symlink_metadata().is_ok_and(|entry| entry.is_dir());
    (is_alone && is_open).then_some(open)
}

/// Where tensors are other ones, by the first analysis of a packet's evidence.
fn unequal(tree: &Tree) -> Vec<Unequal> {
    let files = crate::lab_judges::evidence(tree, None).files;
    let analysis = files.get("analysis-1/analysis.json").map(Analysis::parse);
    match analysis {
        Some(Ok(analysis)) => lab_unequal::of_bag(&files.below(BAG_DIR), &analysis),
        Some(Err(_)) | None => Vec::new(),
    }
}

/// The folder that a text names: as it is, else below the lab, else the evidence of a packet.
fn place(path: &Path, lab: Option<&Path>) -> Result<PathBuf, Failure> {
    if is_folder(path) {
        return Ok(path.to_owned());
    }
    let here = std::path::absolute(".").unwrap_or_default();
    let Some(root) = lab.map(Path::to_owned).or_else(|| above(&here)) else {
        if path.symlink_metadata().is_ok() || path.components().count() > 1 {
            return Ok(path.to_owned());
        }
        let shown = quoted(path);
        return Err(Failure::new("no such evidence", path.display())
            .cause("it is no folder here, and no lab is here or above that has a packet of it")
            .hint(format!("packhouse lab verify {shown} --lab DIR")));
    };
    let below = root.join(path);
    if is_folder(&below) {
        return Ok(below);
    }
    match path.to_str().filter(|text| !text.contains('/')) {
        Some(text) => evidence(&root, text),
        None => Ok(path.to_owned()),
    }
}

/// The folder of a packet's evidence.
fn evidence(root: &Path, text: &str) -> Result<PathBuf, Failure> {
    let ledger = Ledger::parse(&bytes(&root.join(LEDGER), LEDGER_BYTES_MAX)?);
    let ledger = ledger.map_err(|error| {
        Failure::new("the ledger is refused", root.join(LEDGER).display())
            .because(&error)
            .hint("packhouse lab ledger verify")
    })?;
    match ledger.state().packets_named(text)[..] {
        [packet] => {
            let folder = root.join(format!("evidence/{packet}"));
            if is_folder(&folder) {
                return Ok(folder);
            }
            let standing = ledger.state().packets()[&packet].standing;
            Err(Failure::new("no evidence of this packet", text)
                .cause(format!("packet {packet} is {standing}"))
                .hint("packhouse lab state"))
        }
        [] => Err(Failure::usage("no evidence and no packet", text)
            .cause(format!(
                "neither a folder nor in {}",
                root.join(LEDGER).display()
            ))
            .hint("packhouse lab state")),
        ref several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Failure::usage("more than one packet", text)
                .cause(several.join(", "))
                .hint("packhouse lab state"))
        }
    }
}

/// The lab that a folder of evidence is in, else the one that was given.
fn lab_of(path: &Path, lab: Option<&Path>) -> Option<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_default();
    above(&path).or_else(|| lab.map(Path::to_owned))
}

/// The nearest folder upwards that is a lab.
fn above(path: &Path) -> Option<PathBuf> {
    let mut folders = path.ancestors();
    let found = folders.find(|folder| folder.join(LEDGER).symlink_metadata().is_ok());
    found.map(Path::to_path_buf)
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok() && crate::files::entries(path).is_ok()
}

fn tree(path: &Path) -> Result<Tree, Failure> {
    let refused = |error: &ReadError| {
        Failure::new("cannot read the evidence", error.path.display())
            .because(&error.cause)
            .hint(hints::of(&error.cause, &error.path))
    };
    let has_any = packhouse_bagcheck::has_evidence(path).map_err(|error| refused(&error))?;
    if !has_any {
        let what = "neither a bag nor a packet's evidence";
        return Err(Failure::new(what, path.display()).hint(hints::listed(path)));
    }
    let tree = packhouse_bagcheck::read(path).map_err(|error| refused(&error))?;
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
            .hint(format!(
                "openssl pkey -in {} -pubout -out PUBLIC.pem",
                quoted(path)
            ))
    })
}

/// More than any key is long.
const KEY_BYTES_MAX: u64 = 65_536;

fn answer(report: &Report, path: &Path) -> Answer {
    let verdict = report.verdict.map_or("unknown", |verdict| verdict.name());
    let mut text = String::new();
    let mut said = |name: &str, findings: &[Finding]| {
        if !findings.is_empty() {
            let rows = findings.iter().take(ROWS_MAX).map(row);
            let rows = rows.collect::<Vec<_>>();
            let _ = write!(text, "{name}\n{}\n", table(&[Column::Left; 3], &rows));
        }
        if let Some(more @ 1..) = findings.len().checked_sub(ROWS_MAX) {
            let _ = writeln!(text, "and {more} more, all of them with --json\n");
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
        .map(|(what, count)| counted(*count, one_of(what), what))
        .collect();
    let _ = writeln!(text, "checked: {}", counts.join(", "));
    let _ = match report.findings.len() {
        0 if report.is_rehearsal => writeln!(text, "valid rehearsal; verdict {verdict}"),
        0 => writeln!(text, "valid; verdict {verdict}"),
        count => writeln!(
            text,
            "NOT valid: {}; verdict as recomputed {verdict}",
            counted(count as u64, "finding", "findings")
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

/// The word for one of what was counted.
fn one_of(several: &str) -> &str {
    match several {
        "analyses" => "analysis",
        "entries" => "entry",
        other => other.strip_suffix('s').unwrap_or(other),
    }
}

/// More than anybody reads.
const ROWS_MAX: usize = 1000;

fn row(finding: &Finding) -> Vec<String> {
    let shown = |text: &str| Shown(text).to_string();
    vec![
        finding.code.to_owned(),
        shown(&finding.path),
        shown(&finding.words),
    ]
}
