//! `packhouse-hash` against the `sha2` crate, with every choice of kernels that this CPU has.

mod differential;
mod vectors;
