//! The one test binary of the simulator.

#![forbid(unsafe_code)]

mod differential;
mod model;
