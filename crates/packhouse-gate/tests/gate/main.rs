//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod counts;
mod crossovers;
mod exactness;
mod failures;
mod held_out;
mod idle;
mod independent;
mod properties;
mod rates;
mod screening;
mod second;
mod speculation;
mod tests_of_chance;
mod trial;
mod vectors;
