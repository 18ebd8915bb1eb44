//! SHA-256 of one stream, and of many at once on one core.
//!
//! A stream's rounds depend on each other, so a core that hashes one stream waits most of the time.
//! With many streams at hand their blocks are compressed side by side: sixteen in the lanes of
//! AVX-512 registers, or two in turns through the SHA instructions. The digests are SHA-256 of each
//! stream; only the time differs.
//!
//! - `Sha256` is one stream; `Sha256::update_many` feeds several at once;
//! - `compress` chooses the kernels once per process; `x86_64` holds them.
//!
//! Invariants:
//! - what a stream answers does not depend on how it was cut or which others ran beside it;
//! - the single-block compression of every machine without the SHA instructions is `sha2`'s.
//!
//! Never: allocates per block, prints, chooses an instruction that the CPU was not asked for.
//! Source: FIPS 180-4, sections 5.1.1, 5.3.3 and 6.2.

#![deny(unsafe_code)]

mod compress;
mod many;
mod stream;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "vector intrinsics on raw block pointers")]
mod x86_64;

pub use compress::{Kernels, detected};
pub use many::{digest_many, update_many_with};
pub use stream::Sha256;

/// Bytes of one block.
pub const BLOCK_BYTES: usize = 64;
