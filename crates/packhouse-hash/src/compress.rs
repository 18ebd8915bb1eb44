//! Which kernels compress: asked of the CPU once per process.

use crate::BLOCK_BYTES;
#[cfg(target_arch = "x86_64")]
use crate::x86_64::{Avx512, ShaNi, avx512, sha_ni};
use std::sync::OnceLock;

/// Lanes of the wide kernel.
pub(crate) const LANES: usize = 16;

/// The kernels in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    #[cfg(target_arch = "x86_64")]
    sha_ni: Option<ShaNi>,
    #[cfg(target_arch = "x86_64")]
    avx512: Option<Avx512>,
}

/// The kernels of this CPU.
pub fn detected() -> Kernels {
    static DETECTED: OnceLock<Kernels> = OnceLock::new();
    *DETECTED.get_or_init(|| Kernels {
        #[cfg(target_arch = "x86_64")]
        sha_ni: ShaNi::detect(),
        #[cfg(target_arch = "x86_64")]
        avx512: Avx512::detect(),
    })
}

impl Kernels {
    /// Every choice that this CPU could have been left with, `sha2`'s own first; for tests and
    /// benches.
    pub fn all() -> Vec<(&'static str, Self)> {
        #[cfg(target_arch = "x86_64")]
        {
            let best = detected();
            let plain = Self {
                sha_ni: None,
                avx512: None,
            };
            let mut all = vec![("sha2", plain)];
            if best.sha_ni.is_some() {
                all.push((
                    "sha-ni",
                    Self {
                        avx512: None,
                        ..best
                    },
                ));
            }
            if best.avx512.is_some() {
                all.push((
                    "avx-512",
                    Self {
                        sha_ni: None,
                        ..best
                    },
                ));
                all.push(("avx-512 and sha-ni", best));
            }
            all
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![("sha2", detected())]
    }

    /// Whether sixteen streams at once are to be had.
    pub(crate) fn is_wide(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            self.avx512.is_some()
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Compresses whole blocks into one state.
    pub(crate) fn compress(self, state: &mut [u32; 8], blocks: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.sha_ni {
            return sha_ni::compress(token, [state], [blocks]);
        }
        let (blocks, rest) = blocks.as_chunks::<BLOCK_BYTES>();
        debug_assert!(rest.is_empty());
        for block in blocks {
            sha2::compress256(state, std::slice::from_ref(block.into()));
        }
    }

    /// Compresses equally many whole blocks into two states.
    pub(crate) fn compress_pair(self, states: [&mut [u32; 8]; 2], blocks: [&[u8]; 2]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.sha_ni {
            return sha_ni::compress(token, states, blocks);
        }
        for (state, blocks) in states.into_iter().zip(blocks) {
            self.compress(state, blocks);
        }
    }

    /// Compresses equally many whole blocks into sixteen states.
    pub(crate) fn compress_wide(self, states: &mut [[u32; 8]; LANES], blocks: &[&[u8]; LANES]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.avx512 {
            return avx512::compress(token, states, blocks);
        }
        for (state, blocks) in states.iter_mut().zip(blocks) {
            self.compress(state, blocks);
        }
    }
}
