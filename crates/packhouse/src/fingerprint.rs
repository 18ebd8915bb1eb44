//! `fingerprint`: the identity of a build, and in which facts two builds differ.

use crate::answer::{Answer, Column, table};
use crate::failure::{Failure, quoted};
use crate::files::read_at_most;
use crate::fingerprint_explain::explain;
use crate::fingerprint_words::FingerprintArgs;
use crate::hints;
use crate::places::{self, Lookup};
use crate::worker_devices;
use packhouse_base::canonical::RECORD_BYTES_MAX;
use packhouse_build::fingerprint::{
    Fingerprint, FingerprintError, KeptFingerprints, Request, World, fingerprint,
};
use packhouse_build::focused::Environment;
use packhouse_proc::devices::Roots;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Answers the command.
pub(crate) fn execute(args: &FingerprintArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    if let Some([one, other]) = args.explain.as_deref() {
        let given = [
            ("--source", args.source.is_some()),
            ("--with", !args.with.is_empty()),
            ("--env", !args.env.is_empty()),
        ];
        let given = given.iter().find(|(_, is_given)| *is_given);
        if let Some((word, _)) = given.filter(|_| !is_folder(one) && !is_folder(other)) {
            let (one, other) = (one.display(), other.display());
            return Err(Failure::usage("only a folder takes it", word)
                .cause(format!("neither {one} nor {other} is a folder"))
                .hint("packhouse fingerprint --help"));
        }
        let environment = environment(Path::new("DIR"), &args.env)?;
        let wanted = |build| args.wanted(build, &environment);
        let one = named(one, wanted, lookup)?;
        let other = named(other, wanted, lookup)?;
        return Ok(explain(&one, &other));
    }
    let build = args.build.as_deref().unwrap_or(Path::new("."));
    let environment = environment(build, &args.env)?;
    let wanted = args.wanted(build, &environment);
    let fingerprint = wanted.compute(lookup)?;
    if let Some(path) = &args.save {
        save(path, &fingerprint)?;
    }
    let kept = keep(&fingerprint, lookup);
    let json = json!({
        "facts": fingerprint.facts(),
        "kept": kept.is_ok(),
        "places": fingerprint.places(),
        "saved": args.save.as_ref().map(|path| path.display().to_string()),
        "sha256": fingerprint.digest().to_string(),
        "unknown": unknown(&fingerprint).iter().map(|gap| json!({
            "fact": gap.fact,
            "kind": gap.word,
            "why": gap.why,
        })).collect::<Vec<_>>(),
    });
    let mut text = text(&fingerprint);
    if let Some(path) = &args.save {
        text += &format!("written to {}\n", path.display());
    }
    match kept {
        Ok(0) => {}
        Ok(1) => text += "the oldest fingerprint that was kept went\n",
        Ok(count) => text += &format!("the {count} oldest fingerprints that were kept went\n"),
        Err(failure) => text += &format!("not kept for --explain: {}\n", failure.reason()),
    }
    Ok(Answer::done(text, json))
}

impl FingerprintArgs {
    fn wanted<'a>(
        &'a self,
        build: &'a Path,
        environment: &'a [(OsString, OsString)],
    ) -> Wanted<'a> {
        Wanted {
            build,
            source: self.source.as_deref(),
            with: &self.with,
            environment,
        }
    }
}

/// A build, and what its programs will have.
pub(crate) struct Wanted<'a> {
    pub(crate) build: &'a Path,
    pub(crate) source: Option<&'a Path>,
    pub(crate) with: &'a [PathBuf],
    pub(crate) environment: &'a [(OsString, OsString)],
}

impl Wanted<'_> {
    /// Computes the fingerprint on this host.
    pub(crate) fn compute(&self, lookup: Lookup<'_>) -> Result<Fingerprint, Failure> {
        for path in [Some(self.build), self.source].into_iter().flatten() {
            if is_file(path) {
                return Err(
                    Failure::new("cannot identify the build", self.build.display())
                        .cause(format!(
                            "{}: is a file, and a folder is wanted",
                            path.display()
                        ))
                        .hint(format!("ls -ld {}", quoted(path))),
                );
            }
        }
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let tools = worker_devices::tools(lookup);
        let state = places::state(lookup).ok();
        let request = Request {
            build: self.build,
            source: self.source,
            with: self.with,
            environment: self.environment,
        };
        let world = World {
            fs: &fs,
            clock: &clock,
            state: state.as_deref(),
            tools: &tools,
            roots: &Roots::default(),
            own: &places::whole_environment(),
        };
        fingerprint(&request, &world).map_err(|error| not_identified(self.build, &error))
    }
}

/// What the programs of a build will have: what a focused run's tests have.
fn environment(build: &Path, given: &[OsString]) -> Result<Vec<(OsString, OsString)>, Failure> {
    let environment = Environment::new(&places::whole_environment(), given);
    let environment = environment.map_err(|error| {
        Failure::usage("not a variable for the build", &error).hint(format!(
            "packhouse fingerprint {} --env LD_LIBRARY_PATH=/opt/lib",
            quoted(build)
        ))
    })?;
    Ok(environment.variables())
}

fn not_identified(build: &Path, error: &FingerprintError) -> Failure {
    let word = quoted(build);
    let failure = Failure::new("cannot identify the build", build.display()).because(error);
    match error {
        FingerprintError::Folder { path, .. } => failure.hint(hints::listed(path)),
        FingerprintError::NoPrograms { .. } => {
            failure.hint(format!("find {word} -type f -perm -u+x"))
        }
        FingerprintError::TooMany { .. } => failure.hint(format!(
            "packhouse fingerprint {}",
            quoted(build.join("bin"))
        )),
        FingerprintError::File { path, .. } => failure.hint(format!("ls -l {}", quoted(path))),
        FingerprintError::Git { folder, advice, .. } => match advice {
            Some(command) => failure.hint(command),
            None => failure.hint(format!("git -C {} status", quoted(folder))),
        },
        FingerprintError::Loader { path, .. } => failure.hint(format!("ldd {}", quoted(path))),
    }
}

/// The fingerprint that a word of `--explain` names.
fn named<'a>(
    word: &'a Path,
    wanted: impl Fn(&'a Path) -> Wanted<'a>,
    lookup: Lookup<'_>,
) -> Result<Fingerprint, Failure> {
    if is_folder(word) {
        return wanted(word).compute(lookup);
    }
    let read = read_at_most(word, RECORD_BYTES_MAX);
    if let Ok(bytes) = &read {
        return Fingerprint::parse(bytes).map_err(|error| {
            Failure::new("not a fingerprint", word.display())
                .because(&error)
                .hint("packhouse fingerprint --help")
        });
    }
    let digits = word.to_str().filter(|text| is_digits(text));
    let Some(digits) = digits else {
        let failure = Failure::new("no such fingerprint", word.display());
        let failure = match read {
            Err(error) => failure.because(&error),
            Ok(_) => failure,
        };
        return Err(failure
            .cause("a fingerprint is a folder, a saved file, or 8 or more hex digits")
            .hint("packhouse fingerprint --help"));
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let kept = KeptFingerprints::make(&fs, &places::state(lookup)?);
    kept.and_then(|kept| kept.find(digits)).map_err(|error| {
        Failure::new("no such fingerprint", digits)
            .because(&error)
            .hint("packhouse fingerprint --help")
    })
}

fn is_digits(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (DIGITS_MIN..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(is_digit)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tells what the user's word means; what it names is opened later"
)]
fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

#[expect(
    clippy::disallowed_methods,
    reason = "tells what the user's word means; what it names is opened later"
)]
fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Keeps a fingerprint for `--explain`; answers how many others went.
fn keep(fingerprint: &Fingerprint, lookup: Lookup<'_>) -> Result<usize, Failure> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let state = places::state(lookup)?;
    let kept = KeptFingerprints::make(&fs, &state).and_then(|kept| kept.keep(fingerprint));
    kept.map_err(|error| Failure::new("not kept", state.display()).because(&error))
}

fn save(path: &Path, fingerprint: &Fingerprint) -> Result<(), Failure> {
    crate::index::write_new(path, &fingerprint.render()).map_err(|error| {
        Failure::new("cannot write the fingerprint", path.display())
            .because(&error)
            .hint(hints::of(&error, path))
    })
}

fn text(fingerprint: &Fingerprint) -> String {
    let (facts, places) = (fingerprint.facts(), fingerprint.places());
    let count = |kind: &str| facts[kind].as_object().map_or(0, serde_json::Map::len);
    let host = &facts["host"];
    let files = places["files"].as_object().map_or(0, serde_json::Map::len);
    let word = |value: &Value| match value {
        Value::String(text) => text.lines().next().unwrap_or_default().to_owned(),
        Value::Array(items) => {
            let words = items.iter().filter_map(Value::as_str);
            words.collect::<Vec<_>>().join(", ")
        }
        _ => "unknown".to_owned(),
    };
    let mut rows = vec![
        ("fingerprint", fingerprint.digest().to_string()),
        (
            "build",
            format!(
                "{} ({})",
                word(&places["build"]),
                word(&facts["build_system"]["kind"])
            ),
        ),
        ("source", source(&facts["source"])),
        (
            "files",
            format!(
                "{}, {}, {}; {} hashed with what they load",
                several(count("programs"), "program", "programs"),
                several(count("libraries"), "library", "libraries"),
                several(count("scripts"), "script", "scripts"),
                several(files, "file", "files"),
            ),
        ),
    ];
    let compilers = facts["build_system"]["compilers"].as_object();
    for (language, compiler) in compilers.into_iter().flatten() {
        rows.push((
            "compiler",
            format!("{language}: {}", word(&compiler["version"])),
        ));
    }
    rows.push(("kernel", word(&host["kernel"]["release"])));
    let microcode = word(&host["cpu"]["microcode"]);
    rows.push((
        "processor",
        format!("{}, microcode {microcode}", word(&host["cpu"]["model"])),
    ));
    let devices = host["devices"].as_object();
    for (id, device) in devices.into_iter().flatten() {
        rows.push(("device", format!("{id} {}", word(&device["name"]))));
    }
    let mut cells: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    let unknown = unknown(fingerprint);
    cells.extend(unknown.iter().take(UNKNOWN_SHOWN).map(|gap| {
        let why = gap.why.lines().next().unwrap_or_default();
        vec![gap.word.to_owned(), format!("{}: {why}", gap.fact)]
    }));
    if unknown.len() > UNKNOWN_SHOWN {
        let more = unknown.len() - UNKNOWN_SHOWN;
        cells.push(vec!["unknown".to_owned(), format!("{more} more: --json")]);
    }
    table(&[Column::Left, Column::Left], &cells)
}

/// `1 library`, `2 libraries`.
fn several(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

fn source(facts: &Value) -> String {
    let count = |field: &str| facts[field].as_object().map_or(0, serde_json::Map::len);
    match facts["kind"].as_str() {
        Some("git") => {
            let commit = facts["commit"].as_str().unwrap_or("without a commit");
            let changed = match count("changed") {
                0 => "clean".to_owned(),
                1 => "1 file differs".to_owned(),
                count => format!("{count} files differ"),
            };
            let submodules = match count("submodules") {
                0 => String::new(),
                count => format!(", {count} submodules"),
            };
            format!("git {commit}, {changed}{submodules}")
        }
        Some("tree") => {
            let folders = facts["folders"].as_object();
            let files = folders.into_iter().flatten();
            let files = files.filter_map(|(_, folder)| folder["files"].as_u64());
            format!("{} files without version control", files.sum::<u64>())
        }
        _ => {
            let why = facts["why"].as_str().unwrap_or_default();
            let more = match why {
                NOT_NAMED => " (--source DIR does)",
                _ => "",
            };
            format!("unknown: {why}{more}")
        }
    }
}

/// A fact that could not be had, or something that can't be loaded.
struct Gap {
    word: &'static str,
    fact: String,
    why: String,
}

/// What is missing in a fingerprint, each with the reason.
fn unknown(fingerprint: &Fingerprint) -> Vec<Gap> {
    let mut found = Vec::new();
    search(fingerprint.facts(), &mut Vec::new(), &mut found);
    found
}

fn search<'a>(value: &'a Value, fact: &mut Vec<&'a str>, found: &mut Vec<Gap>) {
    let Value::Object(fields) = value else {
        return;
    };
    for (name, value) in fields {
        let word = match name.as_str() {
            "unknown" | "loads_unknown" => Some("unknown"),
            "refused" => Some("not loadable"),
            _ => None,
        };
        if let (Some(word), Value::String(why)) = (word, value) {
            let (fact, why) = (fact.join(" "), why.clone());
            found.push(Gap { word, fact, why });
            continue;
        }
        fact.push(name);
        search(value, fact, found);
        fact.pop();
    }
}

const NOT_NAMED: &str = "no build system names it";
const DIGITS_MIN: usize = 8;
const DIGITS_MAX: usize = 64;
const UNKNOWN_SHOWN: usize = 10;
