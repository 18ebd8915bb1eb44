//! A bag with what lies beside it: analyses, seals, and their places in the ledger.

use crate::analysis::{self, Stored};
use crate::bagit;
use crate::content::{self, Content};
use crate::gates::{self, Judgement};
use crate::ledger::{Entry, Ledger, Packet, Seal};
use crate::report::{Finding, Report};
use crate::seal::{self, PublicKey, Said, Sealed};
use crate::shape::{file, sha256};
use crate::tree::{Entry as Node, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Returns whether a tree is a bag, and not the folder of a packet, whose bag may be gone.
pub(crate) fn is_alone(tree: &Tree) -> bool {
    let has = |begins: &str| tree.keys().any(|path| path.starts_with(begins));
    let is_beside = has("analysis-") || has("seal-");
    let is_other = has("bagit.txt") || has("data/") || has("bag.open/");
    !has("bag/") && (!is_beside || is_other)
}

/// Returns the path of what a ledger is refused for.
pub(crate) fn refused_at(code: &str, line: u64) -> String {
    match code {
        "ledger.no-entries" => "ledger.jsonl".to_owned(),
        _ => format!("ledger.jsonl:{line}"),
    }
}

/// Judges everything that there is.
pub(crate) fn check(
    report: &mut Report,
    tree: &Tree,
    ledger: Option<&[u8]>,
    key: Option<&PublicKey>,
) {
    let is_alone = is_alone(tree);
    let prefix = if is_alone { "" } else { "bag/" };
    if is_alone && tree.keys().any(|path| path.starts_with("bag.open/")) {
        let words = "not closed: its run goes on, or was killed and is not finished";
        report.find("bag.not-bagit", "bag.open", words);
        return;
    }
    bagit::check(report, tree, prefix);
    let data = format!("{prefix}data/");
    let payload: Tree = tree
        .iter()
        .filter_map(|(path, node)| Some((path.strip_prefix(&data)?.to_owned(), node.clone())))
        .collect();
    let named = bagit::packet_of(tree, prefix);
    let mut content = content::read(&payload, named.as_deref());
    let judgement = gates::judge(&mut content);
    counts(report, &content, &judgement);
    let tags = file(tree, &format!("{prefix}tagmanifest-sha256.txt"));
    let bag = tags.map_or_else(String::new, |bytes| sha256(bytes));
    let mut evidence = Evidence {
        tree,
        bag,
        content: &content,
        judgement: &judgement,
        analyses: BTreeMap::new(),
        seals: BTreeMap::new(),
    };
    if is_alone {
        evidence.alone(report);
    } else {
        evidence.beside(report, key);
    }
    if let Some(bytes) = ledger {
        evidence.ledger(report, bytes, is_alone);
    }
    report.failures = content.report.findings.clone();
    report.is_rehearsal = content.is_rehearsal();
    report.verdict = content.run.as_ref().map(|_| judgement.verdict);
    notes(report, &content, ledger.is_some());
}

struct Evidence<'a> {
    tree: &'a Tree,
    bag: String,
    content: &'a Content,
    judgement: &'a Judgement,
    analyses: BTreeMap<u64, Stored>,
    seals: BTreeMap<u64, Said>,
}

/// What lies beside a bag, by number.
#[derive(Default)]
struct Numbers {
    analyses: BTreeSet<u64>,
    seals: BTreeSet<u64>,
    envelopes: BTreeSet<u64>,
}

impl Evidence<'_> {
    /// Judges a bag that has nothing beside it: what its records get wrong is a finding. An aborted
    /// run's may be cut short.
    fn alone(&self, report: &mut Report) {
        if self.content.is_aborted() && self.content.run.is_some() {
            return;
        }
        let records = self
            .judgement
            .gates
            .iter()
            .filter(|gate| gate.name == "records");
        let wrong = records.flat_map(|gate| &gate.failures);
        let wrong: BTreeSet<(&str, &str)> = wrong.map(|(code, path)| (*code, &**path)).collect();
        let is_wrong = |finding: &&Finding| wrong.contains(&(finding.code, &*finding.path));
        let found = self.content.report.findings.iter().filter(is_wrong);
        for finding in found {
            report.find(
                finding.code,
                &format!("data/{}", finding.path),
                finding.words.clone(),
            );
        }
    }

    fn beside(&mut self, report: &mut Report, key: Option<&PublicKey>) {
        let numbers = self.numbers(report);
        let all: BTreeSet<u64> = numbers.analyses.union(&numbers.seals).copied().collect();
        if !all.iter().copied().eq(1..=all.len() as u64) {
            let mut numbers = (1..).zip(&all);
            let wrong = numbers.find(|(expected, number)| expected != *number);
            let path = wrong.map_or(String::new(), |(_, number)| format!("analysis-{number}"));
            let words = format!("has the numbers {all:?}");
            report.find("analysis.number", &path, words);
        }
        if numbers.analyses.is_empty() {
            report.find("analysis.missing", "analysis-1", "nothing was analysed");
            for finding in &self.content.report.findings {
                let path = format!("bag/data/{}", finding.path);
                report.find(finding.code, &path, &*finding.words);
            }
        }
        for number in numbers.seals.difference(&numbers.analyses) {
            let path = format!("seal-{number}.json");
            report.find("analysis.missing", &path, "its analysis is not there");
        }
        let newest = numbers.analyses.last().copied();
        for number in &numbers.analyses {
            self.analysis(report, *number, newest == Some(*number));
        }
        let is_rehearsal = self.content.is_rehearsal();
        for number in all {
            let path = format!("seal-{number}.json");
            match (numbers.seals.contains(&number), is_rehearsal) {
                (true, true) => report.find("bag.unlisted", &path, "a rehearsal has no seal"),
                (false, true) => {}
                (false, false) => report.find("seal.missing", &path, "an analysis without a seal"),
                (true, false) => self.seal(report, number, key),
            }
        }
        for number in numbers.envelopes.difference(&numbers.seals) {
            let path = format!("seal-{number}.dsse.json");
            report.find("seal.missing", &path, "an envelope without its seal");
        }
    }

    /// Finds the numbers of what lies beside the bag, and what should not.
    fn numbers(&self, report: &mut Report) -> Numbers {
        let mut numbers = Numbers::default();
        for (path, node) in self.tree {
            if path.starts_with("bag/") {
                continue;
            }
            match node {
                Node::File(bytes) if bytes.is_empty() => {
                    report.find("bag.empty-file", path, "a file of 0 bytes");
                }
                Node::File(_) => {}
                Node::EmptyFolder => report.find("bag.unlisted", path, "a folder without a file"),
                Node::Link(_) | Node::Other(_) => {
                    report.find("bag.link", path, "no regular file");
                    continue;
                }
            }
            let between = |before: &str, after: &str| {
                let text = path.strip_prefix(before)?.strip_suffix(after)?;
                let number: u64 = text.parse().ok()?;
                (number > 0 && number.to_string() == text).then_some(number)
            };
            if let Some(number) = between("analysis-", "/analysis.json") {
                numbers.analyses.insert(number);
            } else if let Some(number) = between("seal-", ".dsse.json") {
                numbers.envelopes.insert(number);
            } else if let Some(number) = between("seal-", ".json") {
                numbers.seals.insert(number);
            } else if !bagit::is_path(path) {
                report.find("bag.path", path, "no path that evidence may have");
            } else if *node != Node::EmptyFolder {
                report.find("bag.unlisted", path, "is no part of evidence");
            }
        }
        numbers
    }

    /// Judges an analysis. That an earlier one says other things than the bag gives is what a
    /// later one is for.
    fn analysis(&mut self, report: &mut Report, number: u64, is_newest: bool) {
        let path = format!("analysis-{number}/analysis.json");
        let mut own = Report::default();
        let (content, judgement) = (self.content, self.judgement);
        let stored = analysis::judge(&mut own, self.tree, &path, &self.bag, content, judgement);
        let is_judgement = |finding: &Finding| {
            let codes = [
                "analysis.gate",
                "analysis.row",
                "analysis.timing",
                "analysis.verdict",
            ];
            codes.contains(&finding.code) || finding.path.starts_with("bag/data/")
        };
        let before = own.findings.len();
        own.findings
            .retain(|finding| is_newest || !is_judgement(finding));
        if own.findings.len() < before {
            let words = "says other things than the bag gives; a later analysis stands";
            report.notes.push(format!("{path} {words}"));
        }
        report.findings.extend(own.findings);
        report.count("analyses", 1);
        if let Some(stored) = stored {
            let packet = self.content.packet.as_ref();
            if number == 1 && packet.is_some_and(|packet| packet.analyzer != stored.analyzer) {
                let words = "not by the program that the packet froze";
                report.find("analysis.analyzer", &path, words);
            }
            let mut earlier = self.analyses.values();
            if earlier.any(|earlier| earlier.analyzer == stored.analyzer) {
                report.find(
                    "analysis.number",
                    &path,
                    "by the analyzer of an earlier one",
                );
            }
            self.analyses.insert(number, stored);
        }
    }

    fn seal(&mut self, report: &mut Report, number: u64, key: Option<&PublicKey>) {
        let genesis = self.content.authority.first();
        let lab = genesis.filter(|entry| entry.kind == "genesis");
        let sealed = Sealed {
            number,
            packet: &self.content.digest,
            bag: &self.bag,
            analysis: self.analyses.get(&number),
            lab: lab.map(|entry| entry.body.text("id")),
        };
        let said = seal::judge(report, self.tree, &sealed);
        seal::envelope(report, self.tree, number, key);
        report.count("seals", 1);
        self.seals.extend(said.map(|said| (number, said)));
    }

    /// Holds bag, analyses and seals against the ledger.
    fn ledger(&self, report: &mut Report, bytes: &[u8], is_alone: bool) {
        let ledger = Ledger::read(bytes);
        report.count("entries", ledger.entries.len() as u64);
        if ledger.torn_bytes > 0 {
            let note = "the ledger ends in bytes of an append that was cut short";
            report.notes.push(note.to_owned());
        }
        if let Some((line, (code, words))) = ledger.refused {
            report.find(code, &refused_at(code, line), words);
            return;
        }
        self.authority(report, &ledger);
        let mut refuse = |words: String| report.find("ledger.sealed", "ledger.jsonl", words);
        let Some(packet) = ledger.state.packets.get(&self.content.digest) else {
            refuse("does not know the packet".to_owned());
            return;
        };
        if self.content.is_rehearsal() {
            let analysis = file(self.tree, "analysis-1/analysis.json").map(|own| sha256(own));
            let cited = packet.rehearsals.iter().filter(|own| own.bag == self.bag);
            let cited: Vec<&Option<String>> = cited.map(|own| &own.analysis).collect();
            if cited.is_empty() {
                let note = "the ledger does not cite this rehearsal";
                report.notes.push(note.to_owned());
            } else if !is_alone && !cited.contains(&&analysis) {
                refuse("cites this rehearsal with another analysis".to_owned());
            }
            return;
        }
        if packet.bag.as_ref() != Some(&self.bag) {
            let closed = packet.bag.as_deref().unwrap_or("none");
            refuse(format!("the packet was closed with the bag {closed}"));
        }
        if is_alone {
            return;
        }
        self.sealed(report, &ledger, packet);
    }

    /// Holds each seal against the entry that cites it, and each entry against its seal.
    fn sealed(&self, report: &mut Report, ledger: &Ledger, packet: &Packet) {
        let mut refuse = |words: String| report.find("ledger.sealed", "ledger.jsonl", words);
        for (number, entry) in &packet.seals {
            let own = |path: String| file(self.tree, &path).map(|bytes| sha256(bytes));
            let seal = own(format!("seal-{number}.json"));
            let analysis = own(format!("analysis-{number}/analysis.json"));
            let stored = self.analyses.get(number);
            let is_so = seal.as_ref() == Some(&entry.seal)
                && analysis.as_ref() == Some(&entry.analysis)
                && stored.is_none_or(|stored| {
                    stored.verdict == entry.verdict
                        && (entry.analyzer.is_empty() || stored.analyzer == entry.analyzer)
                });
            if !is_so {
                refuse(format!(
                    "entry {} seals other things as number {number}",
                    entry.index
                ));
            }
        }
        if let Some(entry) = packet.seals.get(&1).filter(|entry| !self.is_told(entry)) {
            let index = entry.index;
            refuse(format!(
                "entry {index} has another stage or reason than the run"
            ));
        }
        for (number, said) in &self.seals {
            let path = format!("seal-{number}.json");
            let entry = packet.seals.get(number);
            if entry.is_none() {
                report.find(
                    "ledger.sealed",
                    "ledger.jsonl",
                    format!("does not have {path}"),
                );
            }
            let head = ledger.find(&said.head).map(|entry| entry.index);
            let is_before = head
                .zip(entry)
                .is_some_and(|(head, entry)| head < entry.index);
            if entry.is_some() && !is_before {
                let words = "the head is not in the ledger before the entry that cites the seal";
                report.find("seal.head", &path, words);
            }
            if ledger.state.lab.as_ref() != Some(&said.lab) {
                report.find("seal.head", &path, "is of another lab than the ledger");
            }
        }
    }

    /// Returns whether an entry has the stage and reason of an aborted run, and none of another.
    fn is_told(&self, entry: &Seal) -> bool {
        let Some(run) = &self.content.run else {
            return true;
        };
        match (run.status == "aborted", &run.words) {
            (true, Some(words)) => entry.words == *words,
            (true, None) => true,
            (false, _) => entry.words.0.is_empty() && entry.words.1.is_empty(),
        }
    }

    /// Holds the lines in the bag against the ledger: all are there, and none of the packet was
    /// left out.
    fn authority(&self, report: &mut Report, ledger: &Ledger) {
        let mut refuse = |words: String| {
            report.find("ledger.authority", "bag/data/authority.jsonl", words);
        };
        let lines = &self.content.authority;
        for entry in lines {
            let index = usize::try_from(entry.index).unwrap_or(usize::MAX);
            let own = ledger.entries.get(index);
            if own.map(|own| &own.digest) != Some(&entry.digest) {
                refuse(format!("entry {} is another in the ledger", entry.index));
            }
        }
        let Some(last) = lines.last().map(|entry| entry.index) else {
            return;
        };
        let known: BTreeSet<u64> = lines.iter().map(|entry| entry.index).collect();
        let lane = self.content.packet.as_ref().map(|packet| &packet.lane.0);
        let names_this = |entry: &&Entry| {
            let is_lane =
                entry.kind == "lane" && Some(entry.body.text("lane")) == lane.map(|x| &**x);
            is_lane || entry.body.text("packet") == self.content.digest
        };
        let before = ledger.entries.iter().filter(|entry| entry.index <= last);
        for entry in before.filter(names_this) {
            if !known.contains(&entry.index) {
                refuse(format!("entry {} of the ledger was left out", entry.index));
            }
        }
    }
}

fn counts(report: &mut Report, content: &Content, judgement: &Judgement) {
    let sessions = content
        .legs
        .iter()
        .flat_map(|leg| leg.exchange.sessions.values());
    let cases: usize = sessions.map(|session| session.asked.len()).sum();
    report.count(
        "legs",
        content.legs.iter().filter(|leg| leg.has_lines).count() as u64,
    );
    report.count("cases", cases as u64);
    report.count("rows", judgement.rows.len() as u64);
    report.count("gates", judgement.gates.len() as u64);
}

fn notes(report: &mut Report, content: &Content, has_ledger: bool) {
    let mut say = |words: &str| report.notes.push(words.to_owned());
    say("fixtures are those that the packet froze; they were not made again from their recipes");
    let all = content.legs.iter().flat_map(|leg| leg.plan.cases.iter());
    let repeated: BTreeSet<&String> = all
        .filter(|(_, planned)| planned.key.repeat > 0)
        .map(|(_, planned)| &planned.key.fixture)
        .collect();
    if !repeated.is_empty() {
        say("drawn fixtures are the controller's word; they were not drawn again");
    }
    for fixture in repeated.difference(&content.drawing.iter().collect()) {
        say(&format!(
            "nothing was drawn of {fixture}: each repeat had the published inputs"
        ));
    }
    if content.is_rehearsal() {
        say("this is a rehearsal: a null program played the candidate");
    }
    if !has_ledger {
        say("without the ledger nothing is known of what was done before and after this run");
    }
}
