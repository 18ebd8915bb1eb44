//! Seals, and the entries of the ledger that cite them: each digest is that of what lies there.

use super::analyses::{Beside, Stored};
use super::{Evidence, Finding, Read};
use crate::analysis::Status;
use packhouse_bag::BAG_DIR;
use packhouse_bag::dsse::Envelope;
use packhouse_bag::seal::{Statement, envelope_name, seal_name};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Analysed, Closed, Sealed};
use packhouse_ledger::{Act, Ledger, LedgerError};

/// Judges every seal.
pub(crate) fn seals(
    evidence: &Evidence,
    read: &Read,
    beside: &Beside,
    findings: &mut Vec<Finding>,
) {
    for stored in &beside.stored {
        if !beside.is_rehearsal && !beside.seals.contains(&stored.number) {
            let name = seal_name(stored.number);
            findings.push(Finding::new("seal.missing", name, "not there"));
        }
    }
    for number in &beside.seals {
        let name = seal_name(*number);
        let bytes = evidence.files.get(&name).unwrap_or_default();
        match Statement::parse(bytes) {
            Ok(statement) => {
                subjects(&name, *number, &statement, read, beside, findings);
            }
            Err(error) => findings.push(Finding::new(error.code(), &name, error)),
        }
        let envelope = envelope_name(*number);
        if let Some(signed) = evidence.files.get(&envelope) {
            let held = Envelope::parse(signed).and_then(|it| it.verify(bytes, None));
            if let Err(error) = held {
                findings.push(Finding::new(error.code(), envelope, error));
            }
        }
    }
}

fn subjects(
    name: &str,
    number: u64,
    statement: &Statement,
    read: &Read,
    beside: &Beside,
    findings: &mut Vec<Finding>,
) {
    let stored = beside.stored.iter().find(|stored| stored.number == number);
    let Some(stored) = stored else {
        let words = "no analysis of this number";
        findings.push(Finding::new("analysis.missing", name, words));
        return;
    };
    let packet = Digest::of(read.bag.get("data/packet.json").unwrap_or_default());
    let subjects = [
        ("packet.json", statement.packet, Some(packet)),
        ("bag", statement.bag, read.bag.digest()),
        ("analysis", statement.analysis, Some(stored.digest)),
    ];
    for (what, said, actual) in subjects {
        if Some(said) != actual {
            findings.push(Finding::new(
                "seal.subject",
                name,
                format!("{what}: {said} is sealed"),
            ));
        }
    }
    if statement.number != number {
        let words = format!("number {}", statement.number);
        findings.push(Finding::new("seal.subject", name, words));
    }
    let Some(analysis) = &stored.analysis else {
        return;
    };
    if statement.verdict.word() != analysis.verdict.as_str() {
        let words = format!("verdict {}", statement.verdict.word());
        findings.push(Finding::new("seal.verdict", name, words));
    }
    if statement.analyzer != analysis.analyzer {
        let words = format!("analyzer {}", statement.analyzer);
        findings.push(Finding::new("seal.head", name, words));
    }
    let lab = crate::gates::lab_of(&read.reading);
    if lab.is_some_and(|lab| lab != statement.lab) {
        findings.push(Finding::new(
            "seal.head",
            name,
            format!("lab {}", statement.lab),
        ));
    }
}

/// Judges the ledger, and what it says of this evidence.
pub(crate) fn ledger(
    evidence: &Evidence,
    read: &Read,
    beside: &Beside,
    findings: &mut Vec<Finding>,
) {
    let Some(bytes) = &evidence.ledger else {
        return;
    };
    let ledger = match Ledger::parse(bytes) {
        Ok(ledger) => ledger,
        Err(error) => {
            let code = error.code().unwrap_or("ledger.no-entries");
            let path = match &error {
                LedgerError::Entry { index, .. } => format!("{LEDGER}:{}", index + 1),
                LedgerError::Fs(_) | LedgerError::NoEntries { .. } | LedgerError::Head(_) => {
                    LEDGER.to_owned()
                }
            };
            findings.push(Finding::new(code, path, error));
            return;
        }
    };
    authority(&ledger, read, findings);
    if beside.is_rehearsal {
        return;
    }
    let packet = Digest::of(read.bag.get("data/packet.json").unwrap_or_default());
    let is_closed = ledger.entries().iter().any(|entry| match &entry.act {
        Act::Closed(Closed {
            packet: of,
            bag: closed,
        }) => *of == packet && Some(*closed) == read.bag.digest(),
        _ => false,
    });
    if !is_closed {
        findings.push(Finding::new(
            "ledger.sealed",
            LEDGER,
            "closed: not with this bag",
        ));
    }
    for stored in &beside.stored {
        entry(evidence, &ledger, packet, stored, read, findings);
    }
    words(&ledger, packet, read, findings);
    let cited = ledger
        .entries()
        .iter()
        .filter_map(|entry| cited(&entry.act, packet));
    for cited in cited {
        if !beside
            .stored
            .iter()
            .any(|stored| stored.number == cited.number)
        {
            let words = format!("analysis {} is in the ledger and not here", cited.number);
            findings.push(Finding::new("analysis.missing", LEDGER, words));
        }
    }
}

/// What an entry cites of a packet's evidence.
struct Cited {
    number: u64,
    bag: Digest,
    analysis: Digest,
    seal: Digest,
    verdict: &'static str,
    analyzer: Option<Digest>,
}

fn cited(act: &Act, packet: Digest) -> Option<Cited> {
    match act {
        Act::Sealed(Sealed {
            packet: of,
            verdict,
            bag,
            analysis,
            seal,
            number,
            ..
        }) if *of == packet => Some(Cited {
            number: *number,
            bag: *bag,
            analysis: *analysis,
            seal: *seal,
            verdict: verdict.as_str(),
            analyzer: None,
        }),
        Act::Analysed(Analysed {
            packet: of,
            number,
            verdict,
            bag,
            analysis,
            seal,
            analyzer,
            ..
        }) if *of == packet => Some(Cited {
            number: *number,
            bag: *bag,
            analysis: *analysis,
            seal: *seal,
            verdict: verdict.as_str(),
            analyzer: Some(*analyzer),
        }),
        _ => None,
    }
}

/// The entry of one analysis cites just what lies there, and its seal a head before it.
fn entry(
    evidence: &Evidence,
    ledger: &Ledger,
    packet: Digest,
    stored: &Stored,
    read: &Read,
    findings: &mut Vec<Finding>,
) {
    let number = stored.number;
    let found = ledger.entries().iter().find_map(|entry| {
        let cited = cited(&entry.act, packet)?;
        (cited.number == number).then_some((entry.index, cited))
    });
    let Some((index, cited)) = found else {
        let words = format!("analysis {number}: no entry cites it");
        findings.push(Finding::new("ledger.sealed", LEDGER, words));
        return;
    };
    let seal = evidence.files.get(&seal_name(number)).unwrap_or_default();
    let analysis = stored.analysis.as_ref();
    let verdict = analysis.map(|analysis| analysis.verdict.as_str());
    let analyzer = analysis.map(|analysis| analysis.analyzer);
    let is_so = Some(cited.bag) == read.bag.digest()
        && cited.analysis == stored.digest
        && cited.seal == Digest::of(seal)
        && verdict.is_none_or(|verdict| verdict == cited.verdict)
        && cited
            .analyzer
            .is_none_or(|cited| analyzer.is_none_or(|analyzer| analyzer == cited));
    if !is_so {
        let words = format!("entry {index} cites another bag, analysis, seal or verdict");
        findings.push(Finding::new("ledger.sealed", LEDGER, words));
    }
    if let Ok(statement) = Statement::parse(seal) {
        let mut before = ledger.entries().iter().filter(|entry| entry.index < index);
        let head = statement.ledger_head;
        if !before.any(|entry| entry.digest == head) || statement.lab != ledger.state().id() {
            let words = format!("ledger head {head}, lab {}", statement.lab);
            findings.push(Finding::new("seal.head", seal_name(number), words));
        }
    }
}

/// An abort is entered with the stage and the reason of the run's own record, all else without any.
fn words(ledger: &Ledger, packet: Digest, read: &Read, findings: &mut Vec<Finding>) {
    let told = match read.reading.run.as_ref() {
        Some(run) if run.status == Status::Aborted => (run.stage, run.reason.as_deref()),
        Some(_) => (None, Some("")),
        None => return,
    };
    let (stage, Some(reason)) = told else {
        return;
    };
    for entry in ledger.entries() {
        let is_other = match &entry.act {
            Act::Sealed(own) if own.packet == packet => {
                (own.stage, own.reason.as_str()) != (stage, reason)
            }
            _ => false,
        };
        if is_other {
            let words = format!(
                "entry {} has another stage or reason than the run",
                entry.index
            );
            findings.push(Finding::new("ledger.sealed", LEDGER, words));
        }
    }
}

/// Every line of the bag's authority is in the ledger, byte for byte.
fn authority(ledger: &Ledger, read: &Read, findings: &mut Vec<Finding>) {
    let reading = &read.reading;
    for (number, (line, entry)) in reading.authority.iter().enumerate() {
        if ledger.line(entry.index) != Some(line) {
            let path = format!("{BAG_DIR}/data/authority.jsonl:{}", number + 1);
            findings.push(Finding::new(
                "ledger.authority",
                path,
                "not a line of the ledger",
            ));
        }
    }
}

const LEDGER: &str = "ledger.jsonl";
