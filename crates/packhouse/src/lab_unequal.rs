//! Where tensors are other ones than a fixture's: computed of a bag for whoever reads it, since an
//! analysis has only counts.

use packhouse_bag::Contents;
use packhouse_base::shown::Shown;
use packhouse_lab::Analysis;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::unequal::{Unequal, unequal};
use packhouse_sys::fs::Dir;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The first tensors of an analysis that are not equal. A bag is read only where there are any; one
/// that can't be read tells nothing.
pub(crate) fn of_folder(root: &Dir, steps: &[&str], analysis: &Analysis) -> Vec<Unequal> {
    if analysis.rows.iter().all(|row| row.equal) {
        return Vec::new();
    }
    let opened = steps
        .iter()
        .try_fold(root.clone(), |dir, name| dir.open_dir(name));
    match opened.ok().and_then(|bag| Contents::read(&bag).ok()) {
        Some(bag) => of_bag(&bag, analysis),
        None => Vec::new(),
    }
}

/// The same of a bag in memory.
pub(crate) fn of_bag(bag: &Contents, analysis: &Analysis) -> Vec<Unequal> {
    if analysis.rows.iter().all(|row| row.equal) {
        return Vec::new();
    }
    unequal(bag, analysis, &Recipes::default(), TOLD_MAX)
}

/// A line for each; none where there are none.
pub(crate) fn lines(all: &[Unequal]) -> String {
    let mut text = String::new();
    for one in all {
        let _ = writeln!(text, "unequal: {}", Shown(&one.to_string()));
    }
    text
}

/// The same for programs.
pub(crate) fn document(all: &[Unequal]) -> Value {
    let document = |one: &Unequal| {
        json!({
            "leg": one.row.leg,
            "device": one.row.device,
            "treatment": one.row.treatment,
            "index": one.row.index,
            "fixture": one.row.fixture,
            "arm": one.row.arm,
            "width": one.row.width,
            "repeat": one.row.repeat,
            "boundary": one.row.boundary,
            "dtype": one.dtype.id(),
            "row": one.at_row,
            "column": one.at.column,
            "expected_bits": one.at.expected,
            "actual_bits": one.at.actual,
            "ulps": one.at.ulps,
            "different": one.elements.0,
            "elements": one.elements.1,
            "rows_failed": one.rows.0,
            "rows": one.rows.1,
        })
    };
    all.iter().map(document).collect()
}

/// How many tensors are told; one is what somebody mends first.
const TOLD_MAX: usize = 8;
