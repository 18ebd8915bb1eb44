//! The families of fixtures, one table: what makes each, from its recipe alone.

mod blocks;
mod context_kv;
mod int8_tile;
pub(crate) mod mmvq;
mod q4_0;

use crate::Fixture;

/// What makes one fixture.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The fixture's id.
    pub id: &'static str,
    /// Makes it; pure.
    pub generate: fn() -> Fixture,
    /// Makes one of the same shapes with data drawn from a seed, expected by our own kernel, so
    /// that nobody can answer with what was published. It has the same id and is never published.
    pub drawn: Option<fn(u64) -> Fixture>,
}

/// Finds a family by its fixture's id.
pub fn find(id: &str) -> Option<&'static Family> {
    all().find(|family| family.id == id)
}

/// Every family, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Family> {
    [
        mmvq::FAMILIES,
        q4_0::FAMILIES,
        blocks::FAMILIES,
        int8_tile::FAMILIES,
        context_kv::FAMILIES,
    ]
    .into_iter()
    .flatten()
}
