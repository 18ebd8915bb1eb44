//! Golden fixtures: inputs, and what a kernel must make of them, each with its tolerance and why.
//!
//! Specified in `docs/format/fixture.md`. Scalar only: these judge, they don't race.

#![forbid(unsafe_code)]

pub mod bag;
pub mod bf16_ops;
mod bound;
pub mod families;
pub mod fixture;
pub mod half;
mod inputs;
pub mod kernel;
pub mod kernels;
pub mod mersenne;
pub mod published;
pub mod quantise;
pub mod record;
mod soundness;
pub mod tolerance;
pub mod trial;
pub mod verdict;

pub use bag::Bag;
pub use fixture::{Case, EdgeRow, Expected, Fixture, Tensor};
pub use kernel::{Inputs, Kernel, KernelError, Output};
pub use soundness::Unsound;
pub use tolerance::{Limit, Tolerance};
pub use trial::{BoundaryVerdict, Promise, TrialError, judge_case, run_case};
pub use verdict::{RowVerdict, Unjudged, Worst, judge};
