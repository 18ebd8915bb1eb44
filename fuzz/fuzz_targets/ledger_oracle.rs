//! Ledgers, judged a second time by bagcheck, which was written from the format's page alone.
//!
//! An input's first byte says what the rest is:
//! - `L`, the bytes of a ledger;
//! - `S`, a story: each line is a kind, a blank and a body, of which a chained line is made. `@`
//!   and a hex digit stand for a digest of 64 such digits, a line `=` and a letter for the story's
//!   line of that place. So a fuzzer that can't guess a SHA-256 reaches the state behind the chain,
//!   and tells an act twice by two bytes.

use packhouse_base::digest::Digest;
use packhouse_ledger::entry::{Entry, NO_ENTRY};
use packhouse_ledger::{Ledger, LedgerError};

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes a lane that is opened twice.
    LaneTwice,
}

type Verdict = Result<(), String>;

/// Gives an input to both readers. Errors, in words, when they disagree, or when what was read is
/// not what is written.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    match input.split_first() {
        Some((b'L', rest)) => judged(rest, mutant),
        Some((b'S', rest)) => judged(&chained(rest), mutant),
        Some(_) | None => Ok(()),
    }
}

/// The first refusal: the entry's index and the reason code. `Ok`: none.
type Refusal = Result<(), (u64, &'static str)>;

fn judged(bytes: &[u8], mutant: Option<Mutant>) -> Verdict {
    let read = Ledger::parse(bytes);
    let ours = match &read {
        Ok(_) => Ok(()),
        Err(LedgerError::Entry { index, fault }) => Err((*index, fault.code())),
        Err(error) => Err((0, error.code().unwrap_or("no code"))),
    };
    let ours = match (ours, mutant) {
        (Err((_, "ledger.lane-exists")), Some(Mutant::LaneTwice)) => Ok(()),
        (ours, _) => ours,
    };
    let theirs = second(bytes)?;
    let is_same = match (ours, theirs) {
        // Of several faults of one line's fields each reader may name another.
        (Err((one, code)), Err((other, second))) => {
            one == other && (code == second || (of_fields(code) && of_fields(second)))
        }
        (ours, theirs) => ours == theirs,
    };
    if !is_same {
        return Err(format!("ours {ours:?}, theirs {theirs:?}"));
    }
    read.map_or(Ok(()), |ledger| {
        withdrawn(&ledger)?;
        written_again(&ledger, bytes)
    })
}

/// What bagcheck says. Its paths are `ledger.jsonl:` and a line's number, from 1; one without any
/// line has no number.
fn second(bytes: &[u8]) -> Result<Refusal, String> {
    let report = packhouse_bagcheck::check_ledger(bytes);
    let Some(found) = report.findings.first() else {
        return Ok(Ok(()));
    };
    let line = match found.path.strip_prefix("ledger.jsonl:") {
        Some(line) => line.parse::<u64>().ok(),
        None => (found.path == "ledger.jsonl").then_some(1),
    };
    let line = line.ok_or_else(|| format!("no line in {found}"))?;
    Ok(Err((line.saturating_sub(1), found.code)))
}

fn of_fields(code: &str) -> bool {
    let codes = [
        "ledger.unknown-field",
        "ledger.missing-field",
        "ledger.type",
        "ledger.schema",
        "ledger.kind",
        "ledger.value",
    ];
    codes.contains(&code)
}

/// A withdrawal is the last that is said of its packet, and that packet was never run: counted from
/// the entries, by no reader's state.
fn withdrawn(ledger: &Ledger) -> Verdict {
    let own = |packet| {
        let entries = ledger.entries().iter();
        entries.filter(move |entry| entry.act.packet() == Some(packet))
    };
    for entry in ledger.entries() {
        let Some(packet) = entry.act.packet() else {
            continue;
        };
        if entry.act.kind() != "withdrawn" {
            continue;
        }
        if own(packet).any(|other| other.index > entry.index) {
            return Err(format!("entry {} withdraws, and more follows", entry.index));
        }
        if own(packet).any(|other| other.act.kind() == "consumed") {
            return Err(format!("entry {} withdraws what was run", entry.index));
        }
    }
    Ok(())
}

/// What was read is written to the same bytes, and goes on from each of its own beginnings.
fn written_again(ledger: &Ledger, bytes: &[u8]) -> Verdict {
    let mut written = Vec::new();
    for entry in ledger.entries() {
        let (at_ns, boot) = (entry.at_ns, entry.boot.as_str());
        let line = Entry::render(&entry.act, entry.index, entry.previous, at_ns, boot);
        if ledger.line(entry.index) != Some(line.as_slice()) {
            return Err(format!("entry {} is written otherwise", entry.index));
        }
        written.extend(line);
    }
    if !bytes.starts_with(&written)
        || written.len() as u64 + ledger.torn_bytes() != bytes.len() as u64
    {
        return Err("the entries are not the file".to_owned());
    }
    ledger
        .continues(bytes)
        .map_err(|error| format!("does not continue itself: {error}"))
}

/// Lines of kinds and bodies as a chain.
fn chained(story: &[u8]) -> Vec<u8> {
    let mut ledger = Vec::new();
    let mut previous = NO_ENTRY;
    let lines: Vec<&[u8]> = story.split(|byte| *byte == b'\n').collect();
    for (index, told) in lines.iter().enumerate().take(64) {
        let told = match told {
            [b'=', place, ..] => lines[usize::from(*place) % lines.len()],
            other => other,
        };
        let Some(blank) = told.iter().position(|byte| *byte == b' ') else {
            continue;
        };
        let (kind, body) = (spelled(&told[..blank]), spelled(&told[blank + 1..]));
        let mut line = format!("{{\"at_ns\":{index},\"body\":").into_bytes();
        line.extend(body);
        line.extend(format!(",\"boot\":\"b\",\"index\":{index},\"kind\":\"").into_bytes());
        line.extend(kind);
        let rest = format!("\",\"previous\":\"{previous}\",\"schema\":\"packhouse/ledger/1\"}}");
        line.extend(rest.into_bytes());
        previous = Digest::of(&line);
        ledger.extend(line);
        ledger.push(b'\n');
    }
    ledger
}

/// Bytes with each `@` and digit made a digest.
fn spelled(bytes: &[u8]) -> Vec<u8> {
    let mut spelled = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match (byte, rest.clone().next()) {
            (b'@', Some(digit @ (b'0'..=b'9' | b'a'..=b'f'))) => {
                rest.next();
                spelled.extend([*digit; 64]);
            }
            _ => spelled.push(*byte),
        }
    }
    spelled
}
