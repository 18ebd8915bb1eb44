//! Tools for tests that drive the stock engine, with and without the plug-in.
//!
//! Invariants:
//! - Every run has its own home, cache, state, store and report folders: nothing of the user's is
//!   read or written, and no two tests share anything but the engine and the models.
//! - Every engine is ended by the end of its test, also when the test fails.
//! - What is missing (engine, model, plug-in) fails a test; it never skips one.
//!
//! It never links the engine or the plug-in: both are only started, as a user starts them.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "test tools live outside the product: they start programs and damage files on purpose"
)]

pub mod http;
pub mod logits;
pub mod mutant;
pub mod places;
pub mod procfs;
pub mod report;
pub mod sandbox;
pub mod server;
pub mod store_files;

pub use places::Model;
pub use report::Load;
pub use sandbox::{Mode, Sandbox};
pub use server::Server;

/// The prompts every comparison uses: prose, code, and a list that invites repetition.
pub const PROMPTS: [&str; 3] = [
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time there were three",
];

/// Greedy tokens asked for per prompt.
pub const TOKENS: usize = 64;
