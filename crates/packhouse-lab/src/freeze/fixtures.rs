//! Fixtures that an experiment uses: made from their recipes, and fit for what it asks of them.

use super::FreezeError;
use crate::packet::FixtureRef;
use crate::prereg::{Prereg, Promise};
use crate::recipes::{Made, Recipes};
use crate::schedule::case_of;
use std::sync::Arc;

/// Why a fixture can't serve an experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FixtureFault {
    /// There is none of that id.
    #[error("no such fixture in this program")]
    Unknown,
    /// It has no case of any width and arm of the matrix.
    #[error("has no case of any width and arm of the matrix; it has {has}")]
    NoCell {
        /// Widths and arms that it has.
        has: String,
    },
    /// Near is promised, and a case has no bound for it.
    #[error("width {width}, arm {arm}: has no bound for near")]
    NoBound {
        /// The case's width.
        width: u64,
        /// The case's arm.
        arm: String,
    },
    /// Times are compared on a case that it has not.
    #[error("width {width}, arm {arm}: no such case to time")]
    NoTimed {
        /// The case's width.
        width: u64,
        /// The case's arm.
        arm: String,
    },
}

/// Each fixture by its digest.
pub(super) fn all(prereg: &Prereg, recipes: &Recipes) -> Result<Vec<FixtureRef>, FreezeError> {
    let mut fixtures = Vec::new();
    for id in prereg.fixtures() {
        let refuse = |fault| FreezeError::Fixture {
            id: id.to_owned(),
            fault,
        };
        let made = recipes.published(id);
        let made = made.ok_or_else(|| refuse(FixtureFault::Unknown))?;
        fit(prereg, id, &made).map_err(refuse)?;
        fixtures.push(FixtureRef {
            id: id.to_owned(),
            sha256: made.bag.digest(),
        });
    }
    Ok(fixtures)
}

fn fit(prereg: &Prereg, id: &str, made: &Arc<Made>) -> Result<(), FixtureFault> {
    let (matrix, fixture) = (&prereg.matrix, &made.fixture);
    if !matrix.fixtures.iter().any(|asked| asked == id) {
        return Ok(());
    }
    let cells = matrix.arms.iter().flat_map(|arm| {
        let widths = matrix.widths.iter();
        widths.filter_map(|width| case_of(fixture, arm, *width))
    });
    let cells: Vec<_> = cells.collect();
    if cells.is_empty() {
        let has = fixture.cases.iter();
        let has: Vec<String> = has
            .map(|case| format!("{} {}", case.width, case.arm))
            .collect();
        return Err(FixtureFault::NoCell {
            has: has.join(", "),
        });
    }
    if matrix.promise == Promise::Near
        && let Some(case) = cells.iter().find(|case| case.near.is_empty())
    {
        let (width, arm) = (case.width, case.arm.clone());
        return Err(FixtureFault::NoBound { width, arm });
    }
    match &prereg.timing {
        Some(timing) if timing.fixture == id => case_of(fixture, &timing.arm, timing.width)
            .map(|_| ())
            .ok_or_else(|| FixtureFault::NoTimed {
                width: timing.width,
                arm: timing.arm.clone(),
            }),
        Some(_) | None => Ok(()),
    }
}
