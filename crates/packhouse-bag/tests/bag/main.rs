//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod crash;
mod forms;
mod histories;
mod killed;
mod model;
mod samples;
mod seals;
mod second;
mod signatures;
mod tampered;
mod writing;
