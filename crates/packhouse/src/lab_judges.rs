//! Evidence judged twice: what our own analyzer finds joins what the second implementation found.
//!
//! Invariant: one of the two is enough for a no. Ours makes fixtures again, published and drawn, so
//! a tensor that somebody changed and hashed again is found, which no list of digests can tell.

use packhouse_bag::Contents;
use packhouse_bagcheck::{Entry, Finding, Report, Tree};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::{Analysis, Status};
use packhouse_lab::evidence::Reading;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::verify::{self, Evidence};
use packhouse_lab::{Packet, gates};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The evidence of a tree.
pub(crate) fn evidence(tree: &Tree, ledger: Option<&[u8]>) -> Evidence {
    let mut evidence = Evidence {
        ledger: ledger.map(Into::into),
        ..Evidence::default()
    };
    for (path, entry) in tree {
        match entry {
            Entry::File(bytes) => {
                evidence.files.insert(path.clone(), Arc::clone(bytes));
            }
            Entry::Link(_) | Entry::Other(_) => {
                evidence.links.insert(path.clone());
            }
            Entry::EmptyFolder => {}
        }
    }
    evidence
}

/// Adds to a report what our own analyzer finds beyond it, and takes away what it says of fixtures
/// that nobody made again where ours made all of them.
pub(crate) fn join(report: &mut Report, tree: &Tree, ledger: Option<&[u8]>, recipes: &Recipes) {
    let evidence = evidence(tree, ledger);
    let bag = evidence.files.below(packhouse_bag::BAG_DIR);
    let (bag, found) = match packhouse_bagcheck::is_bag(tree) {
        true => {
            let found = alone(&evidence.files, recipes);
            (evidence.files, found)
        }
        false => {
            let found = verify::findings(&evidence, recipes).into_iter();
            let found = found.map(|found| Finding {
                code: found.code,
                path: found.path,
                words: found.words,
            });
            (bag, found.collect())
        }
    };
    let known: BTreeSet<(&str, String)> = report
        .findings
        .iter()
        .map(|finding| (finding.code, finding.path.clone()))
        .collect();
    let new = |finding: &Finding| !known.contains(&(finding.code, finding.path.clone()));
    let found: Vec<Finding> = found.into_iter().filter(new).collect();
    report.findings.extend(found);
    if are_made_again(&bag, recipes) {
        report
            .notes
            .retain(|note| !note.contains(NOT_MADE) && !note.contains(NOT_DRAWN));
    }
}

/// What a bag's records get wrong, where nothing lies beside it. An aborted run's may be cut short.
fn alone(bag: &Contents, recipes: &Recipes) -> Vec<Finding> {
    let reading = Reading::of(bag);
    if reading.run.is_none() || reading.status() == Status::Aborted {
        return Vec::new();
    }
    let judged = gates::judge(bag, Digest::of(b""), recipes);
    let wrong = records(&judged.analysis);
    let failures = judged.failures.into_iter();
    let of_records = failures.filter(|failure| wrong.contains(&failure.to_string()));
    of_records
        .map(|failure| Finding {
            code: failure.code,
            path: format!("data/{}", failure.path),
            words: failure.words,
        })
        .collect()
}

fn records(analysis: &Analysis) -> BTreeSet<String> {
    let gate = analysis.gate("records");
    gate.into_iter()
        .flat_map(|gate| gate.failures.iter().cloned())
        .collect()
}

/// Whether this program has the recipe of every fixture of the packet.
fn are_made_again(bag: &Contents, recipes: &Recipes) -> bool {
    let packet = bag.get("data/packet.json").map(Packet::parse);
    let Some(Ok(packet)) = packet else {
        return false;
    };
    let mut fixtures = packet.fixtures.iter();
    fixtures.all(|fixture| recipes.published(&fixture.id).is_some())
}

const NOT_MADE: &str = "they were not made again from their recipes";
const NOT_DRAWN: &str = "they were not drawn again";
