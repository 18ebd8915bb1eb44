//! Fixtures that an experiment uses: made from their recipes, and fit for what it asks of them.

use super::FreezeError;
use crate::packet::FixtureRef;
use crate::prereg::{Prereg, Promise};
use crate::recipes::{Made, Recipes};
use crate::schedule::case_of;
use packhouse_fixture::Fixture;
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
    /// It lacks a cell of the matrix: what is not asked would look as if it had been.
    #[error("width {width}, arm {arm} of the matrix: no such case; it has {has}")]
    NotAll {
        /// The width of the matrix.
        width: u64,
        /// The arm of the matrix.
        arm: String,
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
        return Err(FixtureFault::NoCell { has: has(fixture) });
    }
    if matrix.promise == Promise::Near
        && let Some(case) = cells.iter().find(|case| case.near.is_empty())
    {
        let (width, arm) = (case.width, case.arm.clone());
        return Err(FixtureFault::NoBound { width, arm });
    }
    for arm in &matrix.arms {
        let mut widths = matrix.widths.iter();
        if let Some(width) = widths.find(|width| case_of(fixture, arm, **width).is_none()) {
            return Err(FixtureFault::NotAll {
                width: *width,
                arm: arm.clone(),
                has: has(fixture),
            });
        }
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

/// Widths and arms that a fixture has.
fn has(fixture: &Fixture) -> String {
    let has = fixture.cases.iter();
    let has: Vec<String> = has
        .map(|case| format!("{} {}", case.width, case.arm))
        .collect();
    has.join(", ")
}
