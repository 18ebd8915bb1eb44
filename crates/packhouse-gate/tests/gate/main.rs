//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod crossovers;
mod exactness;
mod failures;
mod held_out;
mod properties;
mod rates;
mod second;
mod speculation;
mod tests_of_chance;
mod vectors;
