//! Tampered copies of evidence, judged by both: our own analyzer and the second implementation.

use crate::answer::{Answer, Column, table};
use crate::bar;
use crate::failure::{Exit, Failure};
use crate::lab_campaign::{SecondJudge, copies};
use crate::lab_judges::evidence;
use packhouse_bagcheck::Tree;
use packhouse_base::shown::Shown;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::tamper::{Judge, Outcome, OwnJudge, run_unless};
use packhouse_lab::verify::Evidence;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Demands the folder of a packet: what lies beside a bag is tampered with too.
pub(crate) fn demand_folder(path: &Path, tree: &Tree) -> Result<(), Failure> {
    let mut paths = tree.keys();
    match paths.any(|path| path.starts_with("bag/")) {
        true => Ok(()),
        false => Err(Failure::usage("nothing to tamper with", path.display())
            .cause("it is a bag, and not the folder of a packet that has one as bag/")
            .hint("packhouse lab verify PACKET --tampers")),
    }
}

/// Tampers with copies of evidence that both judges found nothing wrong with.
pub(crate) fn verify(tree: &Tree, ledger: Option<&[u8]>) -> Answer {
    let evidence = evidence(tree, ledger);
    answer(&judged(&evidence, &Recipes::default()))
}

fn judged(evidence: &Evidence, recipes: &Recipes) -> Vec<Outcome> {
    let own = OwnJudge(recipes);
    let judges: [&dyn Judge; 2] = [&own, &SecondJudge];
    let progress = |done, total| bar::tick(|| copies(done, total));
    let outcomes = run_unless(evidence, &judges, || false, &progress);
    bar::clear();
    outcomes.unwrap_or_default()
}

fn answer(outcomes: &[Outcome]) -> Answer {
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    let rejected = outcomes
        .iter()
        .filter(|outcome| outcome.is_rejected())
        .count();
    let codes: BTreeSet<&str> = outcomes.iter().filter_map(shared_code).collect();
    let mut text = table(&[Column::Left, Column::Left, Column::Left], &rows);
    text.push_str(&format!(
        "{rejected} of {} tampered copies rejected by both judges, for {} different reasons\n",
        outcomes.len(),
        codes.len(),
    ));
    let documents = outcomes.iter().map(|outcome| {
        let found = outcome.found.iter();
        let found = found.map(|(judge, codes)| ((*judge).to_owned(), json!(codes)));
        json!({
            "tamper": outcome.name,
            "expected": outcome.expected,
            "rejected": outcome.is_rejected(),
            "found": found.collect::<serde_json::Map<_, _>>(),
        })
    });
    Answer {
        text,
        json: json!({
            "tampers": outcomes.len(),
            "rejected": rejected,
            "codes": codes,
            "copies": documents.collect::<Vec<_>>(),
        }),
        exit: match rejected == outcomes.len() {
            true => Exit::Done,
            false => Exit::Negative,
        },
    }
}

/// An expected code that every judge found.
fn shared_code(outcome: &Outcome) -> Option<&'static str> {
    let mut expected = outcome.expected.iter();
    let is_shared = |code: &&&'static str| {
        let mut judges = outcome.found.iter();
        judges.all(|(_, codes)| codes.contains(**code))
    };
    expected.find(is_shared).copied()
}

fn row(outcome: &Outcome) -> Vec<String> {
    let word = if outcome.is_rejected() {
        "rejected"
    } else {
        "NOT REJECTED"
    };
    let expected = outcome.expected.join(" or ");
    let missed = outcome.missed_by().map(|(judge, codes)| {
        let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
        let found = if codes.is_empty() {
            "nothing".to_owned()
        } else {
            codes.join(", ")
        };
        format!("; {judge} found {found}")
    });
    vec![
        word.to_owned(),
        Shown(&outcome.name).to_string(),
        format!("{expected}{}", missed.collect::<String>()),
    ]
}
