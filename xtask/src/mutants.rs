//! Mutants of our own code that must fail: proof that the tests which guard a rule can fail.
//!
//! `xtask/mutants.toml` lists them: one text in one file replaced by another, and the tests that
//! must then fail. A copy of the tree in `target/mutants` is changed, never the tree itself. A
//! mutant whose text is gone, which does not compile, or which all tests pass, is an error.

use std::error::Error;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use toml::Table;

/// One mutant of the list.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    file: String,
    find: String,
    replace: String,
    tests: Tests,
}

/// What must fail: a package's tests of one kind, and of those what the filter matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tests {
    package: String,
    /// An integration binary; `lib` for the unit tests.
    binary: String,
    filter: Option<String>,
}

/// How a run of tests ended.
enum Run {
    Passed(usize),
    Failed(Vec<String>),
    TimedOut,
}

/// Runs every mutant whose name contains `part`. Answers 1 when one survives.
pub(crate) fn mutants(part: &str) -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("because this crate lies in a folder of the repository");
    let list = parse(&std::fs::read_to_string(root.join("xtask/mutants.toml"))?)?;
    let list: Vec<_> = list.iter().filter(|m| m.name.contains(part)).collect();
    if list.is_empty() {
        return Err(format!("no mutant's name contains {part:?}").into());
    }
    let copy = root.join("target/mutants/tree");
    mirror(root, &copy)?;
    let mut kinds: Vec<_> = list.iter().map(|mutant| &mutant.tests).collect();
    kinds.sort();
    kinds.dedup();
    for tests in kinds {
        match run(&copy, tests)? {
            Run::Passed(0) => return Err(format!("no test matches {tests:?}").into()),
            Run::Passed(_) => {}
            Run::Failed(names) => return Err(format!("without a mutant: {names:?}").into()),
            Run::TimedOut => return Err(format!("without a mutant: {tests:?} hangs").into()),
        }
    }
    let mut survivor_count = 0;
    for mutant in &list {
        let verdict = try_mutant(root, &copy, mutant)?;
        survivor_count += usize::from(verdict.is_none());
        let verdict = verdict.unwrap_or_else(|| "SURVIVED: all tests passed".to_owned());
        println!("mutant: {}: {verdict}", mutant.name);
    }
    let killed_count = list.len() - survivor_count;
    println!("mutants: {killed_count} killed, {survivor_count} survived");
    Ok(ExitCode::from(u8::from(survivor_count > 0)))
}

/// Applies one mutant to the copy, runs its tests and takes it back. `None`: it survived.
fn try_mutant(root: &Path, copy: &Path, mutant: &Mutant) -> Result<Option<String>, Box<dyn Error>> {
    let original = std::fs::read_to_string(root.join(&mutant.file))?;
    let mutated = mutate(&original, mutant)?;
    let path = copy.join(&mutant.file);
    std::fs::write(&path, mutated)?;
    let outcome = run(copy, &mutant.tests);
    std::fs::write(&path, original)?;
    Ok(
        match outcome.map_err(|error| format!("{}: {error}", mutant.name))? {
            Run::Passed(_) => None,
            Run::TimedOut => Some("killed: the tests hung".to_owned()),
            Run::Failed(names) => {
                let first = names.first().map_or("", String::as_str);
                Some(format!("killed by {}: {first}", names.len()))
            }
        },
    )
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
    let mutant = Mutant {
        name: needed("name")?,
        file: needed("file")?,
        find: needed("find")?,
        replace: needed("replace")?,
        tests: Tests {
            package: needed("package")?,
            binary: needed("tests")?,
            filter: text("filter"),
        },
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

/// Builds and runs tests of the copy. Errors when they do not compile.
fn run(copy: &Path, tests: &Tests) -> Result<Run, Box<dyn Error>> {
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", copy.with_file_name("build"))
            .env("CARGO_TERM_COLOR", "never")
            .args(["test", "--locked", "-p", &tests.package]);
        match tests.binary.as_str() {
            "lib" => command.arg("--lib"),
            binary => command.args(["--test", binary]),
        };
        command
    };
    let built = cargo().args(["--quiet", "--no-run"]).output()?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        return Err(format!("does not compile: {said}").into());
    }
    let mut command = cargo();
    command.args(tests.filter.as_deref().map(OsStr::new));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = child.stdout.take().ok_or("a piped output")?;
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        output.read_to_string(&mut said).map(|_| said)
    });
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let Some(status) = status else {
        return Ok(Run::TimedOut);
    };
    let said = reader.join().map_err(|_| "the reader panicked")??;
    let failed = said.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(name.to_owned())
    });
    let failed: Vec<String> = failed.collect();
    match (status.success(), failed.is_empty()) {
        (true, _) => Ok(Run::Passed(said.matches(" ... ok\n").count())),
        (false, false) => Ok(Run::Failed(failed)),
        // An abort names no test.
        (false, true) => Ok(Run::Failed(vec![format!("the process: {status}")])),
    }
}

/// Longest that the tests of one mutant may take.
const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(find: &str) -> Mutant {
        Mutant {
            name: "m".to_owned(),
            file: "f".to_owned(),
            find: find.to_owned(),
            replace: "z".to_owned(),
            tests: Tests {
                package: "p".to_owned(),
                binary: "lib".to_owned(),
                filter: None,
            },
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
        let text = include_str!("../mutants.toml");
        let list = parse(text).expect("because the list is well-formed");
        let mut names: Vec<_> = list.iter().map(|mutant| &mutant.name).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        for mutant in &list {
            let path = root.expect("because it has one").join(&mutant.file);
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
