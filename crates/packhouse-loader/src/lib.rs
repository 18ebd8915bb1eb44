//! From a source tensor in an engine's memory to a mapped payload: a hit, or pack and publish.
//!
//! - `engine`: what the loader needs of an engine; `settings`: what the user chose;
//! - `source`: which bytes are these, without reading them;
//! - `load`: one engine load, tensor by tensor; `hit` and `pack`: its two ways; `stages`: where a
//!   hit is sought first; `tally`: its counters;
//! - `fill`: the background thread that stores what a load packed;
//! - `set`: sets for engines that map packs by name and contract, without a load of their own.
//!
//! Invariants:
//! - after `Load::serve` the region holds what the engine's own packer makes of the source, or the
//!   answer is `NotFilled`;
//! - only verified objects are attached; every tensor that is not has a counted, named reason;
//! - nothing is written before a load's tensors are all served, and nothing live is re-mapped
//!   after.
//!
//! Never: prints, reads the environment, knows ggml. Errors of the store end in a reason, not in a
//! failure.

#![forbid(unsafe_code)]

mod engine;
mod fill;
mod hit;
mod load;
mod pack;
pub mod set;
mod settings;
mod source;
mod stages;
mod tally;

pub use engine::{Engine, Level, PackerRefusal, PackerTraits};
pub use hit::sample_groups;
pub use load::{Load, Loader, Request, Served};
pub use packhouse_stage::default_root as default_stage_root;
pub use settings::{Settings, Trust};
pub use tally::Count;

use packhouse_layout::ggml_cpu_plan;

/// Name of the plan that the loader's sets follow.
pub const PLAN: &str = ggml_cpu_plan::NAME;
/// The plan's bytes, whose digest is part of every set key.
pub const PLAN_BYTES: &[u8] = ggml_cpu_plan::BYTES;
