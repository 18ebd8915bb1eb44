//! Packers that serve: SIMD forms of the layouts, chosen once per process from one kernel table.

#![deny(unsafe_code)]
