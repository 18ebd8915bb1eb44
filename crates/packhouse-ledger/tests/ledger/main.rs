//! The integration tests of packhouse-ledger: one binary, one module per subject.

#![forbid(unsafe_code)]

mod chain;
mod continues;
mod contradictions;
mod crash;
mod heads;
mod lines;
mod page;
mod page_browser;
mod page_samples;
mod prose;
mod random;
mod standing;
mod story;
mod writer;
