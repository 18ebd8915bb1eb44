//! Exactness and statistics: pure functions of evidence.
//!
//! - Integers in, rates out. Every figure that a decision hangs on is an exact rational, or a
//!   formula of binary64 in the order that the page writes; nothing is summed in an order of
//!   convenience.
//! - No type divides tokens by time: a rate needs a named window, with its intervals and its span.
//! - A probability is given with its unit of analysis, or not at all.
//! - Nothing here reads a file, a clock or an environment, draws at random, or keeps state.
//!
//! Formulas, random numbers and vectors: `docs/format/statistics.md`.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod bootstrap;
pub mod counts;
pub mod crossover;
pub mod exact;
pub mod held_out;
pub mod idle;
mod natural;
pub mod permutation;
pub mod portfolio;
pub mod random;
pub mod rate;
pub mod rational;
pub mod recorded;
pub mod screening;
pub mod sequential;
pub mod sign;
pub mod speculation;
pub mod suite;
pub mod text;
pub mod wilcoxon;

pub use blocks::{Noise, Paired, Spans, Unpaired};
pub use rational::Rational;
