//! The families of fixtures, one table: what makes each, from its recipe alone.

mod blocks;
mod context_kv;
mod int8_tile;
mod mmvq;
mod q4_0;

use crate::Fixture;

/// What makes one fixture.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The fixture's id.
    pub id: &'static str,
    /// Makes it; pure.
    pub generate: fn() -> Fixture,
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
