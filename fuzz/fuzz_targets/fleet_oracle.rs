//! Fleet files, judged a second time: from their values alone, without places; and rendered
//! workers, judged by a reader of shell words that knows nothing of the writer.
//!
//! An input's first byte says what the rest is:
//! - `T`, a file;
//! - `E` and `M`, changes of the example and of a file full of mistakes: each is an offset of two
//!   bytes, how many bytes go, and what comes in their place up to a byte 255.

use crate::cards::{card, inventory};
use packhouse_proc::cores::CpuSet;
use packhouse_proc::devices::{Device, Inventory, Observation, Vendor};
use packhouse_proc::fleet::{self, Fleet, FleetCommand, Reading, Worker};
use packhouse_proc::masks::VARIABLES;
use packhouse_proc::render::{Given, Rendered, render};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes no place behind the last letter of a line.
    Column,
}

type Verdict = Result<(), String>;

/// Gives an input to the reader. Errors, in words, when it and the judge disagree.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    let Some((kind, rest)) = input.split_first() else {
        return Ok(());
    };
    match kind {
        b'T' => judge(rest, mutant),
        b'E' => judge(&changed(EXAMPLE, rest), mutant),
        b'M' => judge(&changed(MISTAKES, rest), mutant),
        _ => Ok(()),
    }
}

const EXAMPLE: &[u8] = include_bytes!("../../examples/fleet.toml");
const MISTAKES: &[u8] =
    include_bytes!("../../crates/packhouse-proc/tests/data/fleet/mistakes.toml");

fn changed(file: &[u8], mut changes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    while let [high, low, gone, rest @ ..] = changes {
        let end = rest.iter().position(|byte| *byte == 255);
        let (put, next) = rest.split_at(end.unwrap_or(rest.len()));
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (file.len() + 1);
        let to = file.len().min(at + usize::from(*gone));
        file.splice(at..to, put.iter().copied());
        changes = next.get(1..).unwrap_or_default();
    }
    file
}

fn judge(bytes: &[u8], mutant: Option<Mutant>) -> Verdict {
    let reading = fleet::read(bytes);
    let text = String::from_utf8_lossy(bytes);
    places(&reading, &text, mutant)?;
    // The same text a second time, by the strict form where it is one.
    let is_same = match std::str::from_utf8(bytes) {
        Ok(text) => match fleet::parse(text) {
            Ok(fleet) => reading.mistakes.is_empty() && reading.fleet.as_ref() == Some(&fleet),
            Err(mistakes) => !mistakes.is_empty() && reading.mistakes == mistakes,
        },
        Err(_) => !reading.mistakes.is_empty() && fleet::read(bytes) == reading,
    };
    if !is_same {
        return Err("another reading the second time".into());
    }
    values(&reading, &text)?;
    let Some(fleet) = &reading.fleet else {
        return Ok(());
    };
    for worker in &fleet.workers {
        let blocking = reading.blocking(FleetCommand::Render, worker.name.as_str());
        if blocking.is_empty() {
            rendered(worker)?;
        }
    }
    Ok(())
}

/// Each mistake stands in the text, in the order of the text, in one line of words.
fn places(reading: &Reading, text: &str, mutant: Option<Mutant>) -> Verdict {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = (0, 0);
    for mistake in &reading.mistakes {
        let line = mistake.line.checked_sub(1).and_then(|line| lines.get(line));
        let letters = line.map(|line| line.chars().count());
        let behind = match mutant {
            Some(Mutant::Column) => 0,
            None => 1,
        };
        let is_there =
            letters.is_some_and(|letters| (1..=letters + behind).contains(&mistake.column));
        if !is_there {
            return Err(format!("a place that is not there: {mistake}"));
        }
        if (mistake.line, mistake.column) < last {
            return Err(format!("told too late: {mistake}"));
        }
        last = (mistake.line, mistake.column);
        if mistake.to_string().contains('\n') {
            return Err(format!("several lines: {mistake}"));
        }
    }
    Ok(())
}

/// What is right is what the values say; what is no TOML is not right.
fn values(reading: &Reading, text: &str) -> Verdict {
    if !reading.mistakes.is_empty() {
        return Ok(());
    }
    let value: toml::Table = toml::from_str(text).map_err(|error| format!("no TOML: {error}"))?;
    let fleet = reading.fleet.as_ref().ok_or("right, and no fleet")?;
    let workers = value.get("worker").and_then(|workers| workers.as_array());
    let workers = workers.ok_or("right, and no list of workers")?;
    if value.get("schema").and_then(|schema| schema.as_str()) != Some("packhouse/fleet/1")
        || value.get("name").and_then(|name| name.as_str()) != Some(fleet.name.as_str())
        || workers.len() != fleet.workers.len()
        || workers.is_empty()
    {
        return Err(format!("read otherwise: {fleet:?}"));
    }
    let pairs = fleet.workers.iter().zip(workers);
    pairs
        .map(|(read, told)| worker(read, told))
        .collect::<Verdict>()?;
    distinct(fleet)
}

fn worker(read: &Worker, told: &toml::Value) -> Verdict {
    let devices = match told.get("device") {
        Some(toml::Value::Array(list)) => list.len(),
        Some(_) => 1,
        None => 0,
    };
    let number = |key: &str, default: Option<i64>| {
        let own = told.get(key).and_then(|value| value.as_integer());
        own.or(default)
    };
    let is_same = told.get("name").and_then(|name| name.as_str()) == Some(read.name.as_str())
        && number("port", None) == Some(i64::from(read.port))
        && devices == read.devices.len()
        && devices > 0
        && number("ready_timeout_s", None)
            .is_none_or(|seconds| u64::try_from(seconds) == Ok(read.ready_timeout_s))
        && number("threads", None).is_none_or(|count| {
            read.threads
                .is_some_and(|threads| i64::from(threads) == count)
        });
    match is_same {
        true => Ok(()),
        false => Err(format!("read otherwise: {read:?}")),
    }
}

/// No two workers have a name, or a port of one address.
fn distinct(fleet: &Fleet) -> Verdict {
    for (index, one) in fleet.workers.iter().enumerate() {
        for other in &fleet.workers[..index] {
            let is_port = one.port == other.port && one.host == other.host;
            if one.name == other.name || is_port {
                return Err(format!("doubled: {} and {}", one.name, other.name));
            }
        }
    }
    Ok(())
}

/// A host with 16 cores and a card or two of every vendor.
fn host() -> Inventory {
    let cards = [
        card(
            Vendor::Nvidia,
            0,
            Some("GPU-8168be1d-f407-f5b6-7c7f-317c92fe49e6"),
        ),
        card(
            Vendor::Nvidia,
            1,
            Some("GPU-ac641bfa-f407-f5b6-7c7f-317c92fe49e6"),
        ),
        card(Vendor::Intel, 0, None),
        card(Vendor::Intel, 1, None),
        card(Vendor::Amd, 0, Some("GPU-8168be1dd00df00d")),
        card(Vendor::Other, 0, None),
    ];
    let mut host = inventory(&cards);
    let online = CpuSet::of(0..16).expect("because these are few");
    host.online = Observation::Known(online);
    host
}

fn rendered(worker: &Worker) -> Verdict {
    let host = host();
    let found = worker.devices.iter().map(|spec| host.find(spec));
    let devices: Vec<Device> = match found.collect::<Result<_, _>>() {
        Ok(devices) => devices,
        Err(error) if error.to_string().is_empty() => return Err("no reason".into()),
        Err(_) => return Ok(()),
    };
    let environment =
        ["PATH", "HOME", "LANG", "SECRET"].map(|name| (name.into(), OsString::from("a 'b\\\n")));
    let given = Given {
        devices: &devices,
        all: &host.devices,
        program: Path::new("/opt/engine"),
        model: worker.model.as_ref().map(|model| model.path.as_path()),
        environment: &environment,
        packhouse: Path::new("/bin/packhouse"),
    };
    let rendered = match render(worker, &given) {
        Ok(rendered) => rendered,
        Err(error) if error.to_string().is_empty() => return Err("no reason".into()),
        Err(_) => return Ok(()),
    };
    if render(worker, &given).as_ref() != Ok(&rendered) {
        return Err("rendered otherwise the second time".into());
    }
    for (name, value) in &rendered.environment {
        let is_told = name.to_str().is_some_and(|name| {
            let is_own = worker.environment.contains_key(name) || VARIABLES.contains(&name);
            let is_given = environment.contains(&(name.into(), value.clone()));
            is_own || is_given && worker.inherit.contains(name)
        });
        if !is_told {
            return Err(format!("nobody asked for {name:?}"));
        }
    }
    shell(&rendered)
}

/// The text for a shell has the words of the command.
fn shell(rendered: &Rendered) -> Verdict {
    let mut expected: Vec<OsString> = vec!["cd".into(), rendered.working_folder.clone().into()];
    expected.extend(["&&".into(), "exec".into()]);
    if let Some(cores) = &rendered.cores {
        expected.extend(["taskset".into(), "-c".into(), cores.to_string().into()]);
    }
    expected.extend(["env".into(), "-i".into()]);
    for (name, value) in &rendered.environment {
        let mut word = name.clone();
        word.push("=");
        word.push(value);
        expected.push(word);
    }
    expected.extend(rendered.command.iter().cloned());
    let text = rendered.to_string();
    match words(text.as_bytes()) {
        Some(words) if words == expected => Ok(()),
        words => Err(format!("for a shell: {text:?} is {words:?}")),
    }
}

/// Reads words as bash does: bare, `'...'`, `$'...'` with octal numbers, and a line that goes on.
fn words(text: &[u8]) -> Option<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b' ' => words.extend(word.take().map(OsString::from_vec)),
            b'\\' => match rest.next()? {
                b'\n' => {}
                byte => word.get_or_insert_default().push(byte),
            },
            b'\'' => {
                let word = word.get_or_insert_default();
                word.extend(rest.by_ref().take_while(|byte| *byte != b'\''));
            }
            b'$' => {
                let word = word.get_or_insert_default();
                (rest.next()? == b'\'').then_some(())?;
                loop {
                    match rest.next()? {
                        b'\'' => break,
                        b'\\' => word.push(match rest.next()? {
                            high @ b'0'..=b'3' => {
                                let (middle, low) = (rest.next()?, rest.next()?);
                                let digits = [high, middle, low];
                                let digits = std::str::from_utf8(&digits).ok()?;
                                u8::from_str_radix(digits, 8).ok()?
                            }
                            letter @ (b'\'' | b'\\') => letter,
                            _ => return None,
                        }),
                        byte => word.push(byte),
                    }
                }
            }
            b'\n' | b'"' | b'`' | b';' | b'|' | b'<' | b'>' | b'(' | b')' | b'*' | b'?' => {
                return None;
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.take().map(OsString::from_vec));
    // Bytes, as they were given.
    words
        .iter()
        .all(|word| !OsStr::as_bytes(word).contains(&0))
        .then_some(words)
}
