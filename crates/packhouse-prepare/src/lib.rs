//! Plans, and containers to sets under a plan: prepare, repair, foreign set layouts, bundles, and a
//! registry of packs that others made.

#![forbid(unsafe_code)]

pub mod head;
pub mod model;
pub mod plan;
pub mod prepare;
pub mod proof;
pub mod repair;
mod rounded;

pub mod beside;
pub mod bundle;
pub mod foreign;
pub mod registry;
