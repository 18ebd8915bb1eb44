//! `packhouse-bagcheck PATH [--ledger FILE] [--public-key PEM] [--json]`: verifies a bag, or an
//! evidence folder, and nothing else. Exit: 0 valid, 1 findings, 2 usage, 3 could not read.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program of its own: it reads its arguments and files, and prints"
)]

use packhouse_bagcheck::{PublicKey, Report, check, has_evidence, read};
use std::ffi::OsString;
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
            eprint!("error: {words}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(report) => {
            show(&report, arguments.json);
            ExitCode::from(u8::from(!report.is_valid()))
        }
        Err(words) => {
            eprintln!("error: {words}");
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
    let bytes = |path: &Path| {
        std::fs::read(path).map_err(|cause| format!("cannot read {}: {cause}", path.display()))
    };
    let path = arguments
        .path
        .as_deref()
        .expect("because parse demands one");
    let ledger = arguments.ledger.as_deref().map(bytes).transpose()?;
    let key = match arguments.key.as_deref() {
        Some(path) => {
            let text = String::from_utf8_lossy(&bytes(path)?).into_owned();
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

fn show(report: &Report, json: bool) {
    if json {
        println!("{}", report.to_json());
        return;
    }
    for finding in &report.findings {
        println!("{finding}");
    }
    for failure in &report.failures {
        println!("candidate: {failure}");
    }
    for note in &report.notes {
        println!("note: {note}");
    }
    let counts: Vec<String> = report
        .checked
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    println!("checked: {}", counts.join(", "));
    let verdict = report.verdict.map_or("unknown", |verdict| verdict.name());
    match report.findings.len() {
        0 if report.is_rehearsal => println!("valid rehearsal; verdict {verdict}"),
        0 => println!("valid; verdict {verdict}"),
        count => println!("NOT VALID: {count} findings; verdict as recomputed: {verdict}"),
    }
}
