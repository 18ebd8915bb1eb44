//! `lab record`: a sealed pass becomes the record of its lane's key.
//!
//! Invariants: the evidence is verified again before it is cited, by the second implementation; the
//! widths that a record claims have rows of the candidate in the sealed analysis that it cites,
//! all of them equal; inputs were drawn, which nobody could have published answers of; the key is
//! the lane's.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_enter::{Entering, enter, words};
use crate::lab_open::Opened;
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabRecordArgs;
use packhouse_bagcheck::{Entry, Tree};
use packhouse_base::digest::Digest;
use packhouse_lab::Lane;
use packhouse_lab::analysis::Analysis;
use packhouse_lab::prereg::{Prereg, Treatment};
use packhouse_ledger::Ledger;
use packhouse_ledger::act::{Record, Verdict};
use packhouse_ledger::state::{PacketState, Standing};
use std::collections::BTreeSet;

/// Names a record.
pub(crate) fn execute(args: &LabRecordArgs, place: &Place) -> Result<Answer, Failure> {
    let key = words("KEY", &args.key)?;
    let claim = words("--claim", &args.claim)?;
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    not_withdrawn(&opened, &ledger, packet)?;
    let state = opened.standing(&ledger, packet)?;
    let seal = passed(place, state, &args.packet)?;
    let tree = verified(place, &ledger, packet)?;
    let again = place.hint(&format!(
        "experiment new NEW-ID --from {}",
        state.experiment
    ));
    drawn(&tree, state.prereg, (&args.packet, &again))?;
    let mut widths = args.width.clone();
    widths.sort_unstable();
    widths.dedup();
    gated((&widths, place), &tree, state, &args.packet)?;
    of_lane((args, place), (&tree, &ledger), state, &key)?;
    let option: String = widths
        .iter()
        .map(|width| format!(" --width {width}"))
        .collect();
    let mut command = format!("record {} {}", quoted(key.as_str()), args.packet);
    command += &format!(" --claim {}{option}", quoted(claim.as_str()));
    if let Some(entry) = args.supersedes {
        command += &format!(" --supersedes {entry}");
    }
    let current = ledger
        .state()
        .records()
        .get(&key)
        .map(|record| record.entry);
    if let (Some(entry), None) = (current, args.supersedes) {
        let words = format!("entry {entry} is the current record of {key}");
        return Err(Failure::new("a key has one record", &key)
            .cause(words)
            .hint(place.hint(&format!("{command} --supersedes {entry}"))));
    }
    let entering = Entering {
        line: format!(
            "record {key} at widths {}: {claim}, by packet {packet} and seal {seal}",
            listed(&widths)
        ),
        irreversible: "the entry stays; another record can take its place, and says so",
        command,
        act: Record {
            key,
            packet,
            seal,
            claim,
            widths,
            supersedes: args.supersedes,
        }
        .into(),
    };
    let mut answer = enter(&opened, args.execute, entering)?;
    if args.execute {
        answer.text += &format!("next: {}\n", place.hint("state --execute"));
    }
    Ok(answer)
}

/// The newest seal of a packet that passed.
fn passed(place: &Place, state: &PacketState, text: &str) -> Result<Digest, Failure> {
    let failure = |words: String| {
        Err(Failure::new("no record without a sealed pass", text)
            .cause(words)
            .hint(place.hint(&format!("report {text}"))))
    };
    if state.standing != Standing::SealedPass {
        return failure(format!("the packet is {}", state.standing));
    }
    match state.analyses.last() {
        Some(newest) if newest.verdict == Verdict::Pass => Ok(newest.seal),
        Some(newest) => {
            let (number, verdict) = (newest.number, newest.verdict);
            failure(format!("analysis {number} says {verdict}"))
        }
        None => failure("it has no analysis".to_owned()),
    }
}

/// The packet's evidence, once the second implementation found nothing wrong with it.
fn verified(place: &Place, ledger: &Ledger, packet: Digest) -> Result<Tree, Failure> {
    let path = place.root.join(format!("evidence/{packet}"));
    let tree = packhouse_bagcheck::read(&path).map_err(|error| {
        Failure::new("cannot read evidence", path.display())
            .because(&error)
            .hint(place.hint("ledger verify"))
    })?;
    let report = packhouse_bagcheck::check(&tree, Some(ledger.bytes()), None);
    if report.is_valid() {
        return Ok(tree);
    }
    let mut failure = Failure::new("evidence that does not hold", path.display());
    for finding in report.findings.iter().take(FINDINGS_SHOWN) {
        failure = failure.cause(finding.to_string());
    }
    Err(failure.hint(place.hint("ledger verify")))
}

const FINDINGS_SHOWN: usize = 3;

/// Inputs were drawn in each cell: else whoever kept the published answers passed.
fn drawn(tree: &Tree, prereg: Digest, (text, again): (&str, &str)) -> Result<(), Failure> {
    if draws(tree, prereg)? {
        return Ok(());
    }
    Err(Failure::new("no record of published inputs alone", text)
        .cause(NOT_DRAWN)
        .cause("another experiment can have `repeats` of 2 or more in its [matrix]")
        .hint(again))
}

/// Whether a packet's preregistration, as its bag has it, has cells with drawn inputs.
pub(crate) fn draws(tree: &Tree, prereg: Digest) -> Result<bool, Failure> {
    let prereg = document(tree, "bag/data/prereg.toml", prereg, Prereg::parse)?;
    Ok(prereg.matrix.repeats > 1)
}

pub(crate) const NOT_DRAWN: &str =
    "its repeats is 1: no case was drawn, so a program that kept the published answers passes";

/// Every width was asked of the candidate, and answered as it must be.
fn gated(
    (widths, place): (&[u64], &Place),
    tree: &Tree,
    state: &PacketState,
    text: &str,
) -> Result<(), Failure> {
    let number = state.analyses.last().map_or(1, |newest| newest.number);
    let asked = gated_widths(tree, number)?;
    match widths.iter().find(|width| !asked.contains(width)) {
        None => Ok(()),
        Some(width) => {
            let words = format!("packet {text} gated widths {}", listed(&asked));
            let failure = Failure::new("a width that was not gated", width).cause(words);
            Err(failure.hint(place.hint(&format!("report {text}"))))
        }
    }
}

/// The widths that an analysis has rows of the candidate for, all of them equal.
pub(crate) fn gated_widths(tree: &Tree, number: u64) -> Result<BTreeSet<u64>, Failure> {
    let path = format!("analysis-{number}/analysis.json");
    let Some(Entry::File(bytes)) = tree.get(&path) else {
        return Err(Failure::new("not in the evidence", path));
    };
    let analysis = Analysis::parse(bytes);
    let analysis =
        analysis.map_err(|error| Failure::new("cannot be read", path).because(&error))?;
    let rows = analysis.rows.iter();
    let rows = rows.filter(|row| row.treatment == Treatment::Candidate.word());
    let (equal, others): (Vec<_>, Vec<_>) = rows.partition(|row| row.equal);
    let others: BTreeSet<u64> = others.iter().map(|row| row.width).collect();
    let widths = equal.iter().map(|row| row.width);
    Ok(widths.filter(|width| !others.contains(width)).collect())
}

/// Widths as they are told.
pub(crate) fn listed<'w>(widths: impl IntoIterator<Item = &'w u64>) -> String {
    let widths: Vec<String> = widths.into_iter().map(u64::to_string).collect();
    widths.join(", ")
}

/// The key is that of the packet's lane.
fn of_lane(
    (args, place): (&LabRecordArgs, &Place),
    (tree, ledger): (&Tree, &Ledger),
    state: &PacketState,
    key: &str,
) -> Result<(), Failure> {
    let lane = &ledger.state().lanes()[&state.lane];
    let lane = document(tree, "bag/data/lane.toml", lane.document, Lane::parse)?;
    if lane.record_key == key {
        return Ok(());
    }
    let words = format!("the record key of lane {} is {}", lane.id, lane.record_key);
    let (key_of, claim) = (quoted(&lane.record_key), quoted(&args.claim));
    let widths = args.width.iter().map(|width| format!(" --width {width}"));
    let widths: String = widths.collect();
    let command = format!("record {key_of} {} --claim {claim}{widths}", args.packet);
    Err(Failure::new("not the key of the packet's lane", key)
        .cause(words)
        .hint(place.hint(&command)))
}

/// A document in the bag, which must be the one that the ledger knows by digest.
pub(crate) fn document<T, E: std::error::Error + 'static>(
    tree: &Tree,
    path: &str,
    expected: Digest,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<T, Failure> {
    let Some(Entry::File(bytes)) = tree.get(path) else {
        return Err(Failure::new("not in the evidence", path));
    };
    let actual = Digest::of(bytes);
    if actual != expected {
        let words = format!("it has digest {actual}, and the ledger says {expected}");
        return Err(Failure::new("not the document of the ledger", path).cause(words));
    }
    parse(bytes).map_err(|error| Failure::new("cannot be read", path).because(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that kept the published answers passed where nothing was drawn.
    #[test]
    fn no_record_cites_a_packet_of_which_nothing_was_drawn() {
        let template = include_str!("lab_templates/prereg.toml").replace("@ID@", "one");
        let template = template.replace("@LANE@", "fast");
        for (repeats, is_drawn) in [("repeats = 2", true), ("repeats = 1", false)] {
            let document = template.replace("repeats = 2", repeats);
            assert!(document.contains(repeats), "{document}");
            let digest = Digest::of(document.as_bytes());
            let mut tree = Tree::new();
            let file = Entry::file(document.as_bytes());
            tree.insert("bag/data/prereg.toml".to_owned(), file);
            let judged = drawn(&tree, digest, ("one", "packhouse lab experiment new"));
            assert_eq!(judged.is_ok(), is_drawn, "{repeats}");
            assert!(drawn(&tree, Digest::of(b"another"), ("one", "x")).is_err());
        }
    }
}
