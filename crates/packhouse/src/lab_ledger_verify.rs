//! `lab ledger verify`: the chain, and that all that it cites is there and holds.
//!
//! Invariants: the answer is no as soon as one thing is not as the ledger says, and all of them are
//! listed; what can't be read is no answer. Nothing is written, but that this user saw the head.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure};
use crate::files::{self, read_at_most};
use crate::lab::{LEDGER, Place};
use crate::lab_enter::torn;
use crate::lab_open::Opened;
use crate::lab_record::{NOT_DRAWN, document, draws, gated_widths, listed};
use crate::lab_words::LabLedgerVerifyArgs;
use crate::{hints, lab_frozen};
use packhouse_bagcheck::Tree;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::freeze::{lane_path, packet_path, prereg_path};
use packhouse_lab::{DOCUMENT_BYTES_MAX, Lane};
use packhouse_ledger::state::{PacketState, Standing};
use packhouse_ledger::{Act, LEDGER_BYTES_MAX, LEDGER_FILE, Ledger, LedgerError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// Verifies the ledger and what it cites.
pub(crate) fn execute(args: &LabLedgerVerifyArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let mut report = Report::default();
    // Before the ledger is read: a run that begins meanwhile is in the ledger before its evidence.
    let had = evidence(&place.root)?;
    let bytes = opened.root.read_small(LEDGER_FILE, LEDGER_BYTES_MAX);
    let bytes = bytes.map_err(|error| opened.refused(&error))?;
    for found in packhouse_bagcheck::check_ledger(&bytes).findings {
        report.find(found.code, &found.path, found.words);
    }
    match Ledger::parse(&bytes) {
        Err(error) => report.refused(&error),
        Ok(ledger) => {
            if let Err(error) = opened.heads.admit(&ledger) {
                let error = LedgerError::Head(error);
                match error.blame() {
                    packhouse_base::Blame::Source => report.refused(&error),
                    packhouse_base::Blame::Store
                    | packhouse_base::Blame::Host
                    | packhouse_base::Blame::Caller
                    | packhouse_base::Blame::Bug => return Err(opened.refused(&error)),
                }
            }
            if let Some(previous) = &args.previous {
                report.continues(&ledger, &read(previous, LEDGER_BYTES_MAX)?);
            }
            report.documents(&ledger, &place.root)?;
            report.evidence(&ledger, &place.root, &had)?;
            report.frozen(&opened, &ledger);
            report.count("entries", ledger.entries().len());
            report.head = Some(ledger.head());
            report.notes.extend(
                torn(&ledger).map(|torn| format!("the next command that appends will {torn}")),
            );
            for index in ledger.state().clock_went_back() {
                report
                    .notes
                    .push(format!("clock went back at entry {index}"));
            }
        }
    }
    Ok(report.answer())
}

/// What is in the lab's folder of evidence with anything in it, or with what nobody can tell.
fn evidence(root: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let home = root.join("evidence");
    let paths = files::entries(&home).map_err(|error| unread(&home, &error))?;
    let may_have = |path: &PathBuf| !matches!(has_any(path), Ok(false));
    Ok(paths.into_iter().filter(may_have).collect())
}

/// Whether a path has anything in it, or is itself something in the place of a folder.
fn has_any(path: &Path) -> io::Result<bool> {
    match files::entries(path) {
        Ok(below) => Ok(!below.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(error),
    }
}

fn unread(path: &Path, error: &io::Error) -> Failure {
    Failure::new("cannot read evidence", path.display())
        .because(error)
        .hint(hints::of(error, path))
}

/// What is not as the ledger says, and how much was looked at.
#[derive(Default)]
struct Report {
    findings: Vec<[String; 3]>,
    notes: Vec<String>,
    changed: Vec<(String, String)>,
    counts: BTreeMap<&'static str, usize>,
    head: Option<Digest>,
}

impl Report {
    fn find(&mut self, code: &str, path: &str, words: impl Into<String>) {
        let finding = [code.to_owned(), path.to_owned(), words.into()];
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn count(&mut self, what: &'static str, count: usize) {
        *self.counts.entry(what).or_default() += count;
    }

    /// A ledger that our own reader refuses; the other reader's words stand there already.
    fn refused(&mut self, error: &LedgerError) {
        let code = error.code().unwrap_or("ledger.head");
        if !self.findings.iter().any(|[known, ..]| known == code) {
            self.find(code, LEDGER, error.to_string());
        }
    }

    fn continues(&mut self, ledger: &Ledger, earlier: &[u8]) {
        if let Err(error) = ledger.continues(earlier) {
            self.find("ledger.continues", LEDGER, error.to_string());
        }
    }

    /// Documents are what their digests in the ledger say.
    fn documents(&mut self, ledger: &Ledger, root: &Path) -> Result<(), Failure> {
        for (lane, state) in ledger.state().lanes() {
            self.document(root, &lane_path(lane.as_str()), state.document)?;
            self.count("lanes", 1);
        }
        for (packet, state) in ledger.state().packets() {
            let experiment = state.experiment.as_str();
            self.document(root, &prereg_path(experiment), state.prereg)?;
            self.document(root, &packet_path(experiment), *packet)?;
            self.count("packets", 1);
        }
        Ok(())
    }

    fn document(&mut self, root: &Path, path: &str, expected: Digest) -> Result<(), Failure> {
        match file(&root.join(path), DOCUMENT_BYTES_MAX as u64)? {
            None => self.find("ledger.document", path, "not there"),
            Some(bytes) if Digest::of(&bytes) != expected => {
                let actual = Digest::of(&bytes);
                let words = format!("has digest {actual}, and the ledger says {expected}");
                self.find("ledger.document", path, words);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// What packets froze that wait to be run: what differs makes no ledger invalid, since another
    /// host has other libraries; it makes their runs impossible, and is listed.
    fn frozen(&mut self, opened: &Opened<'_>, ledger: &Ledger) {
        for measured in lab_frozen::measure(opened, ledger) {
            self.count("waiting packets", 1);
            let word = if measured.known {
                "changed"
            } else {
                "can't be told"
            };
            for line in &measured.differences {
                let (experiment, line) = (&measured.experiment, line.clone());
                self.notes.push(format!("{experiment}: {word}: {line}"));
                self.changed.push((experiment.clone(), line));
            }
        }
    }

    /// Each closed bag is there, has the digest that the ledger says, and holds; each analysis and
    /// seal too.
    fn evidence(
        &mut self,
        ledger: &Ledger,
        root: &Path,
        had: &BTreeSet<PathBuf>,
    ) -> Result<(), Failure> {
        for (packet, state) in ledger.state().packets() {
            let experiment = &state.experiment;
            match state.standing {
                Standing::Nonce | Standing::Consumed => self.notes.push(format!(
                    "{experiment} is {}: a run is under way, or was killed (`lab seal`)",
                    state.standing
                )),
                Standing::Closed
                | Standing::SealedPass
                | Standing::SealedFail
                | Standing::SealedAbort => self.packet(ledger, root, *packet, state)?,
                // Of a spent one the ledger itself says that another run has its marker.
                Standing::Registered
                | Standing::Rehearsed
                | Standing::Reviewed
                | Standing::Armed => {
                    if ledger.spent(*packet).is_none() {
                        self.not_run((root, had), *packet, "was not run")?;
                    }
                }
                Standing::Withdrawn => {
                    self.not_run((root, had), *packet, "was withdrawn before one")?;
                }
            }
        }
        Ok(())
    }

    /// There is no evidence of a packet that was not run: neither before the ledger was read nor
    /// after it, for a run that is released meanwhile takes its bag away.
    fn not_run(
        &mut self,
        (root, had): (&Path, &BTreeSet<PathBuf>),
        packet: Digest,
        why: &str,
    ) -> Result<(), Failure> {
        let folder = format!("evidence/{packet}");
        let path = root.join(&folder);
        if had.contains(&path) && has_any(&path).map_err(|error| unread(&path, &error))? {
            let words = format!("is of a run, and the ledger says that the packet {why}");
            self.find("ledger.evidence", &folder, words);
        }
        Ok(())
    }

    fn packet(
        &mut self,
        ledger: &Ledger,
        root: &Path,
        packet: Digest,
        state: &PacketState,
    ) -> Result<(), Failure> {
        let folder = format!("evidence/{packet}");
        let path = root.join(&folder);
        if path
            .symlink_metadata()
            .is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        {
            self.find("ledger.evidence", &folder, "not there");
            return Ok(());
        }
        let tree =
            packhouse_bagcheck::read(&path).map_err(|error| unread(&error.path, &error.cause))?;
        let bag = state
            .bag
            .map(|digest| ("bag/tagmanifest-sha256.txt".to_owned(), digest));
        let analyses = state.analyses.iter().flat_map(|one| {
            let analysis = format!("analysis-{}/analysis.json", one.number);
            [
                (analysis, one.analysis),
                (format!("seal-{}.json", one.number), one.seal),
            ]
        });
        for (name, expected) in bag.into_iter().chain(analyses) {
            self.content(&tree, &folder, &name, expected);
        }
        self.count("bags", 1);
        self.count("seals", state.analyses.len());
        if state.standing == Standing::Closed {
            let words = "is closed and not sealed (`lab seal` finishes it)";
            self.notes.push(format!("{} {words}", state.experiment));
            return Ok(());
        }
        let found = packhouse_bagcheck::check(&tree, Some(ledger.bytes()), None);
        let is_sound = found.is_valid();
        for finding in found.findings {
            let path = format!("{folder}/{}", finding.path);
            self.find(finding.code, &path, finding.words);
        }
        if is_sound {
            self.records(ledger, packet, state, &tree)?;
        }
        Ok(())
    }

    /// Each record of a packet claims widths that were gated, under the key of its lane. Evidence
    /// that does not hold can't say so.
    fn records(
        &mut self,
        ledger: &Ledger,
        packet: Digest,
        state: &PacketState,
        tree: &Tree,
    ) -> Result<(), Failure> {
        for (at, entry) in ledger.entries().iter().enumerate() {
            let Act::Record(record) = &entry.act else {
                continue;
            };
            let cited = state.analyses.iter().find(|one| one.seal == record.seal);
            let Some(cited) = cited.filter(|_| record.packet == packet) else {
                continue;
            };
            self.count("records", 1);
            let path = format!("{LEDGER}:{}", at + 1);
            let gated = gated_widths(tree, cited.number)?;
            if let Some(width) = record.widths.iter().find(|width| !gated.contains(width)) {
                let words = format!("width {width} was not gated; {} were", listed(&gated));
                self.find("ledger.record-width", &path, words);
            }
            if !draws(tree, state.prereg)? {
                self.find("ledger.record-drawn", &path, NOT_DRAWN);
            }
            let lane = &ledger.state().lanes()[&state.lane];
            let lane = document(tree, "bag/data/lane.toml", lane.document, Lane::parse)?;
            if lane.record_key != record.key {
                let words = format!("the key of lane {} is {}", lane.id, lane.record_key);
                self.find("ledger.record-key", &path, words);
            }
        }
        Ok(())
    }

    fn content(&mut self, tree: &Tree, folder: &str, name: &str, expected: Digest) {
        let path = format!("{folder}/{name}");
        match tree.get(name) {
            Some(packhouse_bagcheck::Entry::File(bytes)) => {
                let actual = Digest::of(bytes);
                if actual != expected {
                    let words = format!("has digest {actual}, and the ledger says {expected}");
                    self.find("ledger.evidence", &path, words);
                }
            }
            Some(
                packhouse_bagcheck::Entry::Link(_)
                | packhouse_bagcheck::Entry::EmptyFolder
                | packhouse_bagcheck::Entry::Other(_),
            ) => self.find("ledger.evidence", &path, "is no file"),
            None => self.find("ledger.evidence", &path, "not there"),
        }
    }

    fn answer(self) -> Answer {
        let is_valid = self.findings.is_empty();
        let mut text = String::new();
        if !is_valid {
            let rows: Vec<Vec<String>> = self.findings.iter().map(|row| row.to_vec()).collect();
            text += &table(&[Column::Left, Column::Left, Column::Left], &rows);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", Shown(note));
        }
        let counts: Vec<_> = self
            .counts
            .iter()
            .map(|(what, n)| format!("{what} {n}"))
            .collect();
        let word = if is_valid { "valid" } else { "NOT VALID" };
        let _ = match counts.is_empty() {
            true => writeln!(text, "{word}"),
            false => writeln!(text, "{word}: {}", counts.join(", ")),
        };
        if let Some(head) = self.head {
            let _ = writeln!(text, "head {head}");
        }
        let found =
            |[code, path, words]: &[String; 3]| json!({"code": code, "path": path, "words": words});
        let json = json!({
            "valid": is_valid,
            "findings": self.findings.iter().map(found).collect::<Vec<Value>>(),
            "notes": self.notes,
            "changed": self.changed.iter().map(|(experiment, what)| json!({
                "experiment": experiment,
                "what": what,
            })).collect::<Vec<Value>>(),
            "checked": self.counts,
            "head": self.head.map(|head| head.to_string()),
        });
        let exit = if is_valid { Exit::Done } else { Exit::Negative };
        Answer { text, json, exit }
    }
}

/// The bytes of a file that must be there. Errors with why it can't be read.
fn read(path: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    file(path, max)?.ok_or_else(|| Failure::new("cannot read", path.display()).cause("not found"))
}

/// The bytes of a regular file; `None` where there is none.
fn file(path: &Path, max: u64) -> Result<Option<Vec<u8>>, Failure> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    match read_at_most(path, max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new("cannot read", path.display())
            .because(&error)
            .hint(hints::of(&error, path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that is released between two looks was told as one that the ledger denies.
    #[test]
    fn a_bag_that_went_away_meanwhile_is_no_contradiction() {
        let root = tempfile::tempdir().expect("because tests have a temporary folder");
        let root = root.path();
        let packet = Digest::of(b"a packet");
        let had = BTreeSet::from([root.join(format!("evidence/{packet}"))]);
        let mut report = Report::default();
        let told = report.not_run((root, &had), packet, "was not run");
        assert!(told.is_ok() && report.findings.is_empty());
    }
}
