//! Verifies a sealed evidence bag offline, by a second implementation.
//!
//! * Written from `docs/format/*.md` alone: no crate of ours is used and none was read, so a
//!   mistake of the engine that made a bag is not a mistake here too.
//! * Judges bytes in memory (`Tree`). Only `read` and the binary touch a disk, and nothing is
//!   written.
//! * Every finding has a code of `docs/format/evidence.md`, the path it is about, and words.
//! * Never stops at the first finding, and never repairs or guesses.
//!
//! What it can't do is said in the report: make a fixture again from its recipe, draw inputs from
//! the nonce, or know when a preregistration was written.

#![forbid(unsafe_code)]

mod analysis;
mod answers;
mod authority;
mod bagit;
mod content;
mod documents;
mod evidence;
mod exchange;
mod fixture;
mod gates;
mod json;
mod ledger;
mod legs;
mod messages;
mod plan;
mod report;
mod run;
mod seal;
mod shape;
mod timing;
mod tree;

pub use report::{Finding, Report, Verdict, shown};
pub use seal::{KeyError, PublicKey};
pub use tree::{Entry, ReadError, Tree, has_evidence, read};

/// Name and version, as packets freeze them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// Verifies a bag, or an evidence folder that has it as `bag/` beside its analyses and seals.
///
/// With a `ledger`, every seal's place in it is judged too; with a `key`, every seal must have an
/// envelope that this key signed. Never fails: what can't be read is a finding.
pub fn check(tree: &Tree, ledger: Option<&[u8]>, key: Option<&PublicKey>) -> Report {
    let mut report = Report::default();
    evidence::check(&mut report, tree, ledger, key);
    report
}

/// Returns whether a tree is a bag alone, and not the folder of a packet, whose bag may be gone.
pub fn is_bag(tree: &Tree) -> bool {
    evidence::is_alone(tree)
}

/// Verifies a bag as a folder alone: its lists, digests, names and info (`docs/format/bag.md`,
/// sections 1 and 2), whatever its payload means.
pub fn check_bag(tree: &Tree) -> Report {
    let mut report = Report::default();
    bagit::check(&mut report, tree, "");
    report
}

/// Verifies a lane, a preregistration and, where there is one, a packet that froze both, each by
/// its form and against the others (`docs/format/lab.md`, sections 1 to 4). Findings name
/// `lane.toml`, `prereg.toml` and `packet.json`.
pub fn check_documents(lane: &[u8], prereg: &[u8], packet: Option<&[u8]>) -> Report {
    let mut report = Report::default();
    let lane_id = documents::lane(&mut report, "lane.toml", lane);
    let read = documents::prereg(&mut report, "prereg.toml", prereg);
    if let (Some(id), Some(read)) = (lane_id, &read)
        && id != read.lane
    {
        report.find("packet.lane", "prereg.toml", "is of another lane");
    }
    if let Some(bytes) = packet {
        let tree = Tree::from([("packet.json".to_owned(), Entry::file(bytes))]);
        let packet = documents::packet(&mut report, &tree, "packet.json", read.as_ref());
        if let Some(packet) = packet {
            if packet.prereg != shape::sha256(prereg) {
                report.find(
                    "packet.prereg",
                    "packet.json",
                    "froze another preregistration",
                );
            }
            if packet.lane.1 != shape::sha256(lane) {
                report.find("packet.lane", "packet.json", "froze another lane");
            }
        }
    }
    report
}

/// Verifies a whole ledger: lines, chain, and that no entry contradicts those before it. Bytes
/// behind the last newline are a note, not a finding. The code of the one finding is that of
/// `docs/format/ledger.md`.
pub fn check_ledger(bytes: &[u8]) -> Report {
    let mut report = Report::default();
    let read = ledger::Ledger::read(bytes);
    report.count("entries", read.entries.len() as u64);
    if read.torn_bytes > 0 {
        let count = read.torn_bytes;
        let note = format!("ledger.jsonl ends in {count} bytes of an append that was cut short");
        report.notes.push(note);
    }
    if let Some((line, (code, words))) = read.refused {
        report.find(code, &evidence::refused_at(code, line), words);
    }
    report
}
