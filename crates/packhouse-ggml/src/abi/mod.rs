//! The host's binary interface: struct layouts, one module each, and the probe that tells which one
//! the host at hand has.

pub(crate) mod probe;
pub(crate) mod v3;
