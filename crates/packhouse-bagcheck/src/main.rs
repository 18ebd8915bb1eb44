//! `packhouse-bagcheck PATH [--ledger FILE] [--public-key PEM] [--json]`: verifies a bag, or an
//! evidence folder, and nothing else. Exit: 0 valid, 1 findings, 2 usage, 3 could not read.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program of its own: it reads its arguments and files, and prints"
)]

use packhouse_bagcheck::{Finding, PublicKey, Report, check, has_evidence, read, shown};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: packhouse-bagcheck PATH [--ledger FILE] [--public-key PEM] [--json]

Verifies PATH, a bag or an evidence folder (bag/ with its analyses and seals), and writes nothing.

  --ledger FILE     the lab's ledger: every seal must have its place in it
  --public-key PEM  an Ed25519 public key: every seal must be signed by it
  --json            one JSON document on stdout
  --version         name and version

exit: 0 valid (whatever its verdict), 1 findings, 2 usage, 3 could not read
";

#[derive(Default)]
struct Arguments {
    path: Option<PathBuf>,
    ledger: Option<PathBuf>,
    key: Option<PathBuf>,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [word] = words.as_slice() {
        match word.to_str() {
            Some("--help" | "-h") => {
                print!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            Some("--version" | "-V") => {
                println!("packhouse-bagcheck {}", env!("CARGO_PKG_VERSION"));
                return ExitCode::SUCCESS;
            }
            Some(_) | None => {}
        }
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprint!("error: {}\n\n{USAGE}", shown(&words));
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(report) => {
            show(&report, arguments.json);
            ExitCode::from(u8::from(!report.is_valid()))
        }
        Err(words) => {
            eprintln!("error: {}", shown(&words));
            ExitCode::from(3)
        }
    }
}

fn parse(words: Vec<OsString>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = |name: &str, place: &mut Option<PathBuf>| {
            let value = words.next().ok_or(format!("{name} needs a value"))?;
            match place.replace(PathBuf::from(value)) {
                Some(_) => Err(format!("{name} is there twice")),
                None => Ok(()),
            }
        };
        match word.to_str() {
            Some("--json") => arguments.json = true,
            Some("--ledger") => value("--ledger", &mut arguments.ledger)?,
            Some("--public-key") => value("--public-key", &mut arguments.key)?,
            Some(text) if text.starts_with('-') && text.len() > 1 => {
                return Err(format!("unknown option: {text}"));
            }
            Some(_) | None if arguments.path.is_some() => {
                return Err(format!("a second path: {}", word.to_string_lossy()));
            }
            Some(_) | None => arguments.path = Some(PathBuf::from(word)),
        }
    }
    match arguments.path {
        Some(_) => Ok(arguments),
        None => Err("a path is missing".to_owned()),
    }
}

fn run(arguments: &Arguments) -> Result<Report, String> {
    let path = arguments
        .path
        .as_deref()
        .expect("because parse demands one");
    let ledger = arguments.ledger.as_deref();
    let ledger = ledger.map(|path| bytes(path, LEDGER_BYTES_MAX));
    let ledger = ledger.transpose()?;
    let key = match arguments.key.as_deref() {
        Some(path) => {
            let text = String::from_utf8_lossy(&bytes(path, KEY_BYTES_MAX)?).into_owned();
            let key = PublicKey::from_pem(&text);
            Some(key.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    if !has_evidence(path).map_err(|error| error.to_string())? {
        return Err(format!(
            "neither a bag nor a packet's evidence: {}",
            path.display()
        ));
    }
    let tree = read(path).map_err(|error| error.to_string())?;
    Ok(check(&tree, ledger.as_deref(), key.as_ref()))
}

/// Reads a regular file. One byte more than a ledger can have is enough to refuse it.
fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let failed = |cause: std::io::Error| format!("cannot read {}: {cause}", path.display());
    // Looked at before it is opened: opening a pipe waits for whoever writes it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(failed(std::io::Error::other(format!(
            "more than {most} bytes"
        ))));
    }
    Ok(bytes)
}

/// The longest ledger, and more than any key is long.
const LEDGER_BYTES_MAX: u64 = 64 << 20;
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Prints findings, each on a line, up to more than anybody reads.
fn list(before: &str, findings: &[Finding]) {
    for finding in findings.iter().take(LINES_MAX) {
        println!("{before}{finding}");
    }
    if let Some(more @ 1..) = findings.len().checked_sub(LINES_MAX) {
        println!("{before}and {more} more, all of them with --json");
    }
}

const LINES_MAX: usize = 1000;

fn show(report: &Report, json: bool) {
    if json {
        println!("{}", report.to_json());
        return;
    }
    list("", &report.findings);
    if report.is_damaged() {
        println!("note: nothing is said of the candidate: the bag is damaged");
    } else {
        list("candidate: ", &report.failures);
    }
    for note in &report.notes {
        println!("note: {}", shown(note));
    }
    let counts: Vec<String> = report
        .checked
        .iter()
        .map(|(what, count)| counted(*count, what))
        .collect();
    println!("checked: {}", counts.join(", "));
    let verdict = report.verdict.map_or("unknown", |verdict| verdict.name());
    match report.findings.len() {
        0 if report.is_rehearsal => println!("valid rehearsal; verdict {verdict}"),
        0 => println!("valid; verdict {verdict}"),
        count => println!(
            "NOT VALID: {}; verdict as recomputed: {verdict}",
            counted(count as u64, "findings")
        ),
    }
}

/// A count with its noun, which is given as of several.
fn counted(count: u64, several: &str) -> String {
    let one = match several {
        "analyses" => "analysis",
        "entries" => "entry",
        other => other.strip_suffix('s').unwrap_or(other),
    };
    let noun = if count == 1 { one } else { several };
    format!("{count} {noun}")
}
