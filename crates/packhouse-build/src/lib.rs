//! What a build is, and test runs that are bound to it.
//!
//! - `fingerprint`: source, programs, every library they load, compiler, host, devices, as one
//!   digest;
//! - `focused`: named tests under a key of that digest; a pass is reused only for the same key.
//!
//! Specified in `docs/format/fingerprint.md` and `docs/format/focused.md`.

#![forbid(unsafe_code)]

pub mod fingerprint;
pub mod focused;
