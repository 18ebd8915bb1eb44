//! Records of runs, judged by what `docs/format/workers.md` says of all of them: one spelling, and
//! no field more or less.
//!
//! An input's first byte says what the rest is:
//! - `O`, `L`, `I`, `E`, `S` and `R`: an order, launched, identity, exit, stop or released record;
//! - the small letter: JSON in any spelling, which is brought into the canonical one first;
//! - `0` to `5`: JSON, or else a text, that is put in place of a part of a sound record, and before
//!   it a byte that chooses the part.

use packhouse_base::canonical;
use packhouse_proc::records::{Identity, Launched, Order, Record, Released, RunExit, Stop};
use serde_json::{Map, Value};
use std::fmt::Debug;

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes no text with marks that a shell reads.
    Marks,
}

type Verdict = Result<(), String>;

/// Gives an input to the parsers. Errors, in words, when what was read is not written again as it
/// was, or something was read that no record may have.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    let Some((kind, rest)) = input.split_first() else {
        return Ok(());
    };
    match kind {
        b'O' | b'L' | b'I' | b'E' | b'S' | b'R' => judge(*kind, rest, mutant),
        b'o' | b'l' | b'i' | b'e' | b's' | b'r' => match serde_json::from_slice(rest) {
            Ok(value) => judge(
                kind.to_ascii_uppercase(),
                &canonical::render(&value),
                mutant,
            ),
            Err(_) => Ok(()),
        },
        b'0'..=b'5' => {
            let sound = SOUND[usize::from(*kind - b'0')];
            let Some((part, put)) = rest.split_first() else {
                return Ok(());
            };
            judge(sound[0], &grafted(&sound[1..], *part, put), mutant)
        }
        _ => Ok(()),
    }
}

/// Sound records, each after its letter.
const SOUND: [&[u8]; 6] = [
    include_bytes!("../seeds/records/order"),
    include_bytes!("../seeds/records/launched"),
    include_bytes!("../seeds/records/identity"),
    include_bytes!("../seeds/records/exit"),
    include_bytes!("../seeds/records/stop"),
    include_bytes!("../seeds/records/released"),
];

fn judge(kind: u8, bytes: &[u8], mutant: Option<Mutant>) -> Verdict {
    match kind {
        b'O' => record::<Order>(bytes, mutant),
        b'L' => record::<Launched>(bytes, mutant),
        b'I' => record::<Identity>(bytes, mutant),
        b'E' => record::<RunExit>(bytes, mutant),
        b'S' => record::<Stop>(bytes, mutant),
        _ => record::<Released>(bytes, mutant),
    }
}

fn record<R: Record + PartialEq + Debug>(bytes: &[u8], mutant: Option<Mutant>) -> Verdict {
    let record = match R::parse(bytes) {
        Ok(record) => record,
        Err(error) if error.to_string().is_empty() => return Err("an error says nothing".into()),
        Err(_) => return Ok(()),
    };
    let again = record.render();
    if again != bytes {
        let again = String::from_utf8_lossy(&again);
        return Err(format!("written otherwise: {again}"));
    }
    if R::parse(&again).as_ref() != Ok(&record) {
        return Err(format!("read otherwise: {record:?}"));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if value["schema"] != R::SCHEMA {
        return Err("another schema".into());
    }
    sane(&value, mutant)?;
    edits_refused::<R>(&value)
}

/// What holds for every number and every process.
fn sane(value: &Value, mutant: Option<Mutant>) -> Verdict {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::String(text) => match mutant {
            Some(Mutant::Marks) if text.contains(|c| "!#$%&*+;<=>?@^`|~".contains(c)) => {
                Err(format!("marks: {text}"))
            }
            Some(Mutant::Marks) | None => Ok(()),
        },
        Value::Number(number) if number.is_f64() => Err(format!("a fraction: {number}")),
        Value::Number(_) => Ok(()),
        Value::Array(items) => items.iter().try_for_each(|item| sane(item, mutant)),
        Value::Object(fields) => {
            if let Some(Value::Number(pid)) = fields.get("pid") {
                let is_pid = |pid: u64| pid >= 1 && pid < 1 << 31;
                if !pid.as_u64().is_some_and(is_pid) {
                    return Err(format!("no pid: {pid}"));
                }
            }
            fields.values().try_for_each(|field| sane(field, mutant))
        }
    }
}

/// Without one of its fields, or with one more, a record is none. One field is tried, by the length
/// of the record.
fn edits_refused<R: Record + Debug>(value: &Value) -> Verdict {
    let mut paths = Vec::new();
    walk(value, "", &mut paths);
    // Variables have any names, and items of lists have none.
    paths.retain(|path| {
        let (parent, _) = path.rsplit_once('/').unwrap_or_default();
        let is_field = value.pointer(parent).is_some_and(Value::is_object);
        is_field && !path.is_empty() && parent != "/environment"
    });
    let path = &paths[value.to_string().len() % paths.len()];
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let changes: [&dyn Fn(&mut Map<String, Value>); 2] =
        [&|fields| drop(fields.remove(name)), &|fields| {
            drop(fields.insert("zz".into(), Value::Null))
        }];
    for change in changes {
        let mut edited = value.clone();
        if let Some(Value::Object(fields)) = edited.pointer_mut(parent) {
            change(fields);
        }
        if R::parse(&canonical::render(&edited)).is_ok() {
            return Err(format!("taken with another {path:?}: {edited}"));
        }
    }
    Ok(())
}

/// A sound record with one part of it replaced.
fn grafted(sound: &[u8], part: u8, put: &[u8]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(sound).expect("because the record is sound");
    let mut paths = Vec::new();
    walk(&value, "", &mut paths);
    let put = serde_json::from_slice(put)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(put).into_owned()));
    let path = &paths[usize::from(part) % paths.len()];
    *value.pointer_mut(path).expect("because it was walked") = put;
    canonical::render(&value)
}

/// The paths of a value and of all in it.
fn walk(value: &Value, path: &str, paths: &mut Vec<String>) {
    paths.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                // A name with these would need another spelling in a path.
                if !name.contains(['~', '/']) {
                    walk(inner, &format!("{path}/{name}"), paths);
                }
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                walk(inner, &format!("{path}/{index}"), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
