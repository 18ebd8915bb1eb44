//! The stock engine with packs, beside itself without them: one interleaved run.

mod leg;
mod table;

pub use leg::{Leg, Mode, Plan, fill_store, run_leg};
pub use table::render;
