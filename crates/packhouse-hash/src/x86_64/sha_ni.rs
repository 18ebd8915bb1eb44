//! One or two streams through the SHA instructions. Two in turns fill the gaps that the latency of
//! `sha256rnds2` leaves.

use super::{ROUND, ShaNi};
use crate::BLOCK_BYTES;
use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi8,
    _mm_setzero_si128, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
    _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_storeu_si128,
};

/// Compresses the same number of whole blocks into each state. Panics on blocks of other lengths.
pub(crate) fn compress<const N: usize>(_: ShaNi, states: [&mut [u32; 8]; N], blocks: [&[u8]; N]) {
    let bytes = blocks[0].len();
    assert!(bytes.is_multiple_of(BLOCK_BYTES) && blocks.iter().all(|b| b.len() == bytes));
    let sources = blocks.map(<[u8]>::as_ptr);
    // SAFETY: the token says that the CPU has the features; each source points to `bytes` readable
    // bytes, asserted above.
    unsafe { compress_blocks(states, sources, bytes / BLOCK_BYTES) }
}

/// # Safety
///
/// The CPU has the features, and each source points to `block_count` readable blocks.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
unsafe fn compress_blocks<const N: usize>(
    states: [&mut [u32; 8]; N],
    sources: [*const u8; N],
    block_count: usize,
) {
    let swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    let mut abef = [_mm_setzero_si128(); N];
    let mut cdgh = abef;
    for n in 0..N {
        (abef[n], cdgh[n]) = load_state(states[n]);
    }
    for block in 0..block_count {
        let before = (abef, cdgh);
        let mut words = [[_mm_setzero_si128(); 4]; N];
        for n in 0..N {
            for (quarter, word) in words[n].iter_mut().enumerate() {
                // SAFETY: the caller promises `block_count` blocks of four times 16 bytes.
                let bytes = unsafe {
                    let at = sources[n].add(block * BLOCK_BYTES + quarter * 16);
                    _mm_loadu_si128(at.cast())
                };
                *word = _mm_shuffle_epi8(bytes, swap);
            }
        }
        // Sixteen times four rounds; the first twelve also extend the schedule.
        macro_rules! rounds {
            ($($group:literal)*) => {$({
                // SAFETY: 16 bytes at word 4 * group lie within the 64 words.
                let constant = unsafe { _mm_loadu_si128(ROUND.as_ptr().add($group * 4).cast()) };
                for n in 0..N {
                    let words = &mut words[n];
                    let (now, next) = (words[$group % 4], words[($group + 1) % 4]);
                    let (third, last) = (words[($group + 2) % 4], words[($group + 3) % 4]);
                    let sum = _mm_add_epi32(now, constant);
                    cdgh[n] = _mm_sha256rnds2_epu32(cdgh[n], abef[n], sum);
                    if $group < 12 {
                        let early = _mm_sha256msg1_epu32(now, next);
                        let early = _mm_add_epi32(early, _mm_alignr_epi8(last, third, 4));
                        words[$group % 4] = _mm_sha256msg2_epu32(early, last);
                    }
                    let high = _mm_shuffle_epi32(sum, 0x0e);
                    abef[n] = _mm_sha256rnds2_epu32(abef[n], cdgh[n], high);
                }
            })*};
        }
        rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for n in 0..N {
            abef[n] = _mm_add_epi32(abef[n], before.0[n]);
            cdgh[n] = _mm_add_epi32(cdgh[n], before.1[n]);
        }
    }
    for (n, state) in states.into_iter().enumerate() {
        store_state(state, abef[n], cdgh[n]);
    }
}

/// Brings a state into the order of the instructions: a b e f and c d g h, high lanes first.
#[target_feature(enable = "sse2,ssse3,sse4.1")]
fn load_state(state: &[u32; 8]) -> (__m128i, __m128i) {
    // SAFETY: the eight words are 32 readable bytes.
    let (low, high) = unsafe {
        let at = state.as_ptr().cast::<__m128i>();
        (_mm_loadu_si128(at), _mm_loadu_si128(at.add(1)))
    };
    let (low, high) = (_mm_shuffle_epi32(low, 0xb1), _mm_shuffle_epi32(high, 0x1b));
    (
        _mm_alignr_epi8(low, high, 8),
        _mm_blend_epi16(high, low, 0xf0),
    )
}

#[target_feature(enable = "sse2,ssse3,sse4.1")]
fn store_state(state: &mut [u32; 8], abef: __m128i, cdgh: __m128i) {
    let (low, high) = (_mm_shuffle_epi32(abef, 0x1b), _mm_shuffle_epi32(cdgh, 0xb1));
    // SAFETY: the eight words are 32 writable bytes.
    unsafe {
        let at = state.as_mut_ptr().cast::<__m128i>();
        _mm_storeu_si128(at, _mm_blend_epi16(low, high, 0xf0));
        _mm_storeu_si128(at.add(1), _mm_alignr_epi8(high, low, 8));
    }
}
