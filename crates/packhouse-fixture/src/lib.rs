//! Golden fixtures: inputs, and what a kernel must make of them, each with its tolerance and why.
//!
//! Specified in `docs/format/fixture.md`. Scalar only: these judge, they don't race.

#![forbid(unsafe_code)]

pub mod bf16_ops;
pub mod families;
pub mod fixture;
pub mod half;
mod inputs;
pub mod kernel;
pub mod kernels;
pub mod mersenne;
pub mod tolerance;
pub mod verdict;

pub use fixture::{Case, EdgeRow, Expected, Fixture, Tensor};
pub use kernel::{Inputs, Kernel, KernelError, Output};
pub use tolerance::Tolerance;
pub use verdict::{RowVerdict, Unjudged, Worst, judge};
