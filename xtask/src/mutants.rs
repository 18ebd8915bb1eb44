//! Mutants of our own code that must fail: proof that the tests which guard a rule can fail.
//!
//! `xtask/mutants/*.toml` list them: one text in one file replaced by another, and the tests that
//! must then fail. A copy of the tree in `target/mutants` is changed, never the tree itself. A
//! mutant whose text is gone, which does not compile, or which all tests pass, is an error.
//!
//! The first test that fails ends a run, so that most mutants cost little more than their build.

use serde_json::Value;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use toml::Table;

/// One mutant of the list.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    file: String,
    find: String,
    replace: String,
    suite: Suite,
    /// Of the suite, the tests whose names contain one of these; none: all.
    filters: Vec<String>,
}

/// A package's tests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    package: String,
    /// An integration binary; `lib` for the unit tests.
    binary: String,
}

/// How a run of tests ended.
#[derive(Debug)]
enum Run {
    /// The names of all tests.
    Passed(Vec<String>),
    /// The first one that failed.
    Failed(String),
    TimedOut,
}

/// A test program and the folder that it runs in.
struct Built {
    program: PathBuf,
    folder: PathBuf,
}

/// Where mutants are made.
struct Place {
    copy: PathBuf,
    build: PathBuf,
    temp: PathBuf,
}

/// Runs every mutant whose name contains `part`. Answers 1 when one survives or does not compile.
pub(crate) fn mutants(part: &str) -> Result<ExitCode, Box<dyn Error>> {
    let list = read_lists(root())?;
    let list: Vec<_> = list.iter().filter(|m| m.name.contains(part)).collect();
    if list.is_empty() {
        return Err(format!("no mutant's name contains {part:?}").into());
    }
    run_list(&list)
}

/// Runs so many mutants that stand one after the other; where they begin follows from the commit,
/// so that commits take turns and each asks the same ones whenever it is asked.
pub(crate) fn some_mutants(count: &str) -> Result<ExitCode, Box<dyn Error>> {
    let count: usize = count.parse().map_err(|_| format!("no number: {count}"))?;
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .output()?;
    let head = String::from_utf8(head.stdout)?;
    let turn = head.trim().get(..8).ok_or("git names no commit")?;
    let list = read_lists(root())?;
    let some = turned(list.len(), count, u32::from_str_radix(turn, 16)?);
    let some: Vec<_> = some.map(|index| &list[index]).collect();
    println!(
        "mutants: {} of {}, from commit {turn}",
        some.len(),
        list.len()
    );
    run_list(&some)
}

/// The places of `count` of `length` things, from a turn on, around the end.
fn turned(length: usize, count: usize, turn: u32) -> impl Iterator<Item = usize> {
    let start = turn as usize % length.max(1);
    (start..start + count.min(length)).map(move |place| place % length)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("because this crate lies in a folder of the repository")
}

fn run_list(list: &[&Mutant]) -> Result<ExitCode, Box<dyn Error>> {
    let (start, root) = (Instant::now(), root());
    let folder = root.join("target/mutants");
    std::fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.try_lock()
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let place = Place {
        copy: folder.join("tree"),
        build: folder.join("build"),
        // Short, as names of sockets have to be.
        temp: std::env::temp_dir().join(format!("mutants-{}", std::process::id())),
    };
    mirror(root, &place.copy)?;
    try_unchanged(&place, list)?;
    let mut alive_count = 0;
    for mutant in list {
        let verdict = try_mutant(&place, mutant)?;
        alive_count += usize::from(verdict.is_err());
        let (Ok(text) | Err(text)) = verdict;
        println!("mutant: {}: {text}", mutant.name);
    }
    std::fs::remove_dir_all(&place.temp)?;
    let killed_count = list.len() - alive_count;
    let seconds = start.elapsed().as_secs();
    println!("mutants: {killed_count} killed, {alive_count} not, in {seconds} s");
    Ok(ExitCode::from(u8::from(alive_count > 0)))
}

/// Proves that the tests of all these mutants pass without one, and that each filter is of a test.
fn try_unchanged(place: &Place, list: &[&Mutant]) -> Result<(), Box<dyn Error>> {
    let mut suites: Vec<_> = list.iter().map(|mutant| &mutant.suite).collect();
    suites.sort();
    suites.dedup();
    for suite in suites {
        let mutants = || list.iter().filter(|mutant| mutant.suite == *suite);
        let is_whole = mutants().any(|mutant| mutant.filters.is_empty());
        let mut filters: Vec<_> = mutants().flat_map(|mutant| &mutant.filters).collect();
        filters.sort();
        filters.dedup();
        let asked: &[&String] = if is_whole { &[] } else { &filters };
        let built = place.build(suite)?;
        let names = passed(suite, || place.run(&built, asked, UNCHANGED_LIMIT))?;
        for filter in filters {
            if !names.iter().any(|name| name.contains(filter.as_str())) {
                return Err(format!("no test of {suite:?} matches {filter:?}").into());
            }
        }
    }
    Ok(())
}

/// The names of the tests of a suite that all pass. One that fails is named, and they are run once
/// more: a machine that stands still for a while must not keep every mutant from being tried.
fn passed(
    suite: &Suite,
    mut run: impl FnMut() -> Result<Run, Box<dyn Error>>,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut ended = run()?;
    if let Run::Failed(name) = &ended {
        println!("mutants: run again, since without a mutant there failed: {name}");
        ended = run()?;
    }
    match ended {
        Run::Passed(names) => Ok(names),
        Run::Failed(_) | Run::TimedOut => {
            Err(format!("without a mutant, {suite:?}: {ended:?}").into())
        }
    }
}

/// Applies one mutant to the copy, runs its tests and takes it back. An `Err` inside: it is not
/// killed.
fn try_mutant(place: &Place, mutant: &Mutant) -> Result<Result<String, String>, Box<dyn Error>> {
    let path = place.copy.join(&mutant.file);
    let original = std::fs::read_to_string(&path)?;
    let mutated = mutate(&original, mutant)?;
    std::fs::write(&path, mutated)?;
    let filters: Vec<_> = mutant.filters.iter().collect();
    let outcome = place
        .build(&mutant.suite)
        .map_err(|error| error.to_string());
    let outcome = outcome.map(|built| place.run(&built, &filters, LIMIT));
    std::fs::write(&path, original)?;
    let run = match outcome {
        Err(why) => return Ok(Err(why)),
        Ok(run) => run?,
    };
    Ok(match run {
        Run::Passed(_) => Err("SURVIVED: all tests passed".to_owned()),
        Run::TimedOut => Ok("killed: the tests hung".to_owned()),
        Run::Failed(name) => Ok(format!("killed by {name}")),
    })
}

fn mutate(original: &str, mutant: &Mutant) -> Result<String, String> {
    let count = original.matches(&mutant.find).count();
    if count != 1 {
        let Mutant { name, file, .. } = mutant;
        return Err(format!(
            "{name}: its text is {count} times in {file}, not once"
        ));
    }
    Ok(original.replace(&mutant.find, &mutant.replace))
}

fn read_lists(root: &Path) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let entries = std::fs::read_dir(root.join("xtask/mutants"))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths?;
    paths.push(root.join("xtask/mutants.toml"));
    paths.sort();
    let mut list = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let mutants = parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        list.extend(mutants);
    }
    Ok(list)
}

fn parse(text: &str) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let list: Table = text.parse()?;
    let rows = list.get("mutant").and_then(|value| value.as_array());
    let rows = rows.ok_or("the list has no [[mutant]]")?;
    rows.iter().map(|row| parse_row(row.as_table())).collect()
}

fn parse_row(row: Option<&Table>) -> Result<Mutant, Box<dyn Error>> {
    let row = row.ok_or("a mutant is a table")?;
    let known = [
        "name", "file", "find", "replace", "package", "tests", "filter",
    ];
    if let Some(unknown) = row.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("a mutant has no field {unknown}").into());
    }
    let text = |field: &str| row.get(field)?.as_str().map(str::to_owned);
    let needed = |field: &str| text(field).ok_or_else(|| format!("a mutant needs {field}"));
    let filter = text("filter").unwrap_or_default();
    let mutant = Mutant {
        name: needed("name")?,
        file: needed("file")?,
        find: needed("find")?,
        replace: needed("replace")?,
        suite: Suite {
            package: needed("package")?,
            binary: needed("tests")?,
        },
        filters: filter.split_whitespace().map(str::to_owned).collect(),
    };
    if mutant.find == mutant.replace {
        return Err(format!("{}: nothing is replaced", mutant.name).into());
    }
    Ok(mutant)
}

/// Makes `copy` what git knows or would add of the tree. Files that are equal keep their times, so
/// that cargo builds only what changed.
fn mirror(root: &Path, copy: &Path) -> Result<(), Box<dyn Error>> {
    let listing = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    let listing = String::from_utf8(listing.stdout)?;
    let names: std::collections::BTreeSet<&str> = listing
        .split('\0')
        .filter(|name| !name.is_empty())
        .collect();
    for name in &names {
        let (from, to) = (root.join(name), copy.join(name));
        let Ok(bytes) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).ok().as_ref() == Some(&bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().ok_or("a file has a folder")?)?;
        std::fs::write(&to, bytes)?;
    }
    remove_others(copy, copy, &|name| {
        names.contains(name) && root.join(name).exists()
    })
}

fn remove_others(
    copy: &Path,
    folder: &Path,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            remove_others(copy, &path, is_known)?;
        } else if !is_known(path.strip_prefix(copy)?.to_str().unwrap_or("")) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Place {
    /// Builds tests of the copy. Errors when they do not compile.
    fn build(&self, suite: &Suite) -> Result<Built, Box<dyn Error>> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .args(["test", "--locked", "--quiet", "--no-run", "-p"])
            .args([&suite.package, "--message-format=json-render-diagnostics"]);
        match suite.binary.as_str() {
            "lib" => command.arg("--lib"),
            binary => command.args(["--test", binary]),
        };
        let built = command.output()?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            return Err(format!("does not compile: {said}").into());
        }
        let said = String::from_utf8(built.stdout)?;
        let program = said.lines().find_map(test_program);
        Ok(program.ok_or("cargo names no test program")?)
    }

    /// Runs tests until one fails or the time is over.
    fn run(
        &self,
        built: &Built,
        filters: &[&String],
        limit: Duration,
    ) -> Result<Run, Box<dyn Error>> {
        // What a test leaves there that was stopped goes with the folder.
        if self.temp.exists() {
            std::fs::remove_dir_all(&self.temp)?;
        }
        std::fs::create_dir(&self.temp)?;
        let mut child = Command::new(&built.program)
            .current_dir(&built.folder)
            .env("CARGO_MANIFEST_DIR", &built.folder)
            .env("TMPDIR", &self.temp)
            .args(filters)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or("a piped output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                // Nobody listens any more once a test failed.
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let run = watch(&mut child, &lines, limit);
        child.kill()?;
        child.wait()?;
        run
    }
}

/// Follows tests to their end or to the first failure.
fn watch(
    child: &mut Child,
    lines: &Receiver<String>,
    limit: Duration,
) -> Result<Run, Box<dyn Error>> {
    let end = Instant::now() + limit;
    let mut passed = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(Run::TimedOut),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let Some(line) = line.strip_prefix("test ") else {
            continue;
        };
        if let Some(name) = line.strip_suffix(" ... FAILED") {
            return Ok(Run::Failed(name.to_owned()));
        }
        passed.extend(line.strip_suffix(" ... ok").map(str::to_owned));
    }
    let status = child.wait()?;
    Ok(match status.success() {
        true => Run::Passed(passed),
        // An abort names no test.
        false => Run::Failed(format!("the process: {status}")),
    })
}

/// The test program that a message of cargo's tells of.
fn test_program(message: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["profile"]["test"]
        .as_bool()
        .filter(|is_test| *is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Built {
        program: message["executable"].as_str()?.into(),
        folder: manifest.parent()?.to_owned(),
    })
}

/// Longest that the tests of one mutant may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Longest that the tests of all asked mutants of a suite may take without one.
const UNCHANGED_LIMIT: Duration = Duration::from_secs(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_every_mutant_and_none_twice() {
        let places = |length, count, turn| turned(length, count, turn).collect::<Vec<_>>();
        assert_eq!(places(5, 2, 0), [0, 1]);
        assert_eq!(places(5, 3, 4), [4, 0, 1]);
        assert_eq!(places(5, 9, u32::MAX), [0, 1, 2, 3, 4]);
        assert_eq!(places(0, 3, 7), [0; 0]);
    }

    #[test]
    fn unchanged_tests_that_fail_once_are_run_again_and_twice_are_an_error() {
        let suite = mutant("a").suite;
        let told = |runs: [Run; 2]| {
            let mut runs = runs.into_iter();
            let found = passed(&suite, || Ok(runs.next().expect("because it is run twice")));
            (found.map_err(|error| error.to_string()), runs.count())
        };
        let failed = || Run::Failed("one".to_owned());
        let whole = || Run::Passed(vec!["one".to_owned()]);
        let names = Ok(vec!["one".to_owned()]);
        assert_eq!(told([whole(), failed()]), (names.clone(), 1));
        assert_eq!(told([failed(), whole()]), (names, 0));
        let (error, _) = told([failed(), failed()]);
        assert!(error.is_err_and(|text| text.contains("without a mutant")));
        let (error, left) = told([Run::TimedOut, whole()]);
        assert!(error.is_err_and(|text| text.contains("TimedOut")) && left == 1);
    }

    fn mutant(find: &str) -> Mutant {
        Mutant {
            name: "m".to_owned(),
            file: "f".to_owned(),
            find: find.to_owned(),
            replace: "z".to_owned(),
            suite: Suite {
                package: "p".to_owned(),
                binary: "lib".to_owned(),
            },
            filters: Vec::new(),
        }
    }

    #[test]
    fn a_text_that_is_not_there_once_is_refused() {
        assert_eq!(mutate("abc", &mutant("b")), Ok("azc".to_owned()));
        for (text, count) in [("abcb", 2), ("ac", 0)] {
            let error = mutate(text, &mutant("b")).expect_err("because it is not there once");
            assert!(error.contains(&format!("{count} times in f")), "{error}");
        }
    }

    #[test]
    fn the_list_is_whole() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.expect("because it has one");
        let list = read_lists(root).expect("because all lists are well-formed");
        let mut names: Vec<_> = list.iter().map(|mutant| &mutant.name).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for mutant in &list {
            let path = root.join(&mutant.file);
            let text = std::fs::read_to_string(path).expect("because the file is there");
            mutate(&text, mutant).expect("because the list follows the code");
        }
        for bad in [
            "",
            "[[mutant]]\nname = 'a'",
            "[[mutant]]\nname = 'a'\nfile = 'f'\nfind = 'x'\nreplace = 'x'\npackage = 'p'\n\
             tests = 'lib'",
            "[[mutant]]\nnmae = 'a'",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
