//! Timings of the products: interleaved runs, integers as evidence, rates only when rendered.
//!
//! Invariants:
//! - Modes alternate within each round, and every figure is a ratio within its round, so what else
//!   the machine does hits all modes alike.
//! - Evidence holds counts, bytes and nanoseconds. A rate is made when a table is rendered.
//! - n tokens have n - 1 gaps: the first token ends the prompt's window and starts the decode's.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the world from outside: clocks, files and processes are its subject"
)]

pub mod cache;
pub mod engine;
pub mod host;
pub mod image_serve;
pub mod intervals;
pub mod peer;
pub mod stream;
