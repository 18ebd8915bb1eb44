//! The host's binary interface: struct layouts, one module each, and the probe that tells which one the
//! host at hand has.

pub(crate) mod probe;
#[expect(
    missing_docs,
    reason = "fields carry the host's own names; the host documents them"
)]
pub(crate) mod v3;
