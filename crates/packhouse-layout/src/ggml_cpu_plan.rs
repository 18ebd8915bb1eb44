//! The plan of the sets that hold what a ggml engine repacks on this CPU: its name and bytes.
//!
//! Here because two crates that know nothing of each other make such sets: the loader from a
//! running engine, `prepare` from a container alone. Both sets have one key when they hold the same
//! packs.

/// Name of the plan.
pub const NAME: &str = "ggml-cpu";

/// The plan's bytes, whose digest is part of every set key.
pub const BYTES: &[u8] = include_bytes!("../plans/ggml-cpu.toml");
