//! Sixteen streams in the lanes of AVX-512 registers: register i holds word i of all sixteen.

use super::{Avx512, ROUND};
use crate::BLOCK_BYTES;
use crate::compress::LANES;
use std::arch::x86_64::{
    __m512i, _mm_set_epi8, _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_ror_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi32,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// Compresses the same number of whole blocks into each state. Panics on blocks of other lengths.
pub(crate) fn compress(_: Avx512, states: &mut [[u32; 8]; LANES], blocks: &[&[u8]; LANES]) {
    let bytes = blocks[0].len();
    assert!(bytes.is_multiple_of(BLOCK_BYTES) && blocks.iter().all(|b| b.len() == bytes));
    let sources = blocks.map(<[u8]>::as_ptr);
    // SAFETY: the token says that the CPU has the features; each source points to `bytes` readable
    // bytes, asserted above.
    unsafe { compress_blocks(states, &sources, bytes / BLOCK_BYTES) }
}

/// # Safety
///
/// The CPU has the features, and each source points to `block_count` readable blocks.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn compress_blocks(
    states: &mut [[u32; 8]; LANES],
    sources: &[*const u8; LANES],
    block_count: usize,
) {
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    ));
    let mut columns = [[0u32; LANES]; 8];
    for (lane, state) in states.iter().enumerate() {
        for (column, word) in columns.iter_mut().zip(state) {
            column[lane] = *word;
        }
    }
    let mut state = [_mm512_setzero_si512(); 8];
    for (register, column) in state.iter_mut().zip(&columns) {
        // SAFETY: a column is sixteen words, 64 readable bytes.
        *register = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
    }
    for block in 0..block_count {
        let mut words = [_mm512_setzero_si512(); LANES];
        for (word, source) in words.iter_mut().zip(sources) {
            // SAFETY: the caller promises `block_count` blocks of 64 bytes.
            let bytes = unsafe { _mm512_loadu_si512(source.add(block * BLOCK_BYTES).cast()) };
            *word = _mm512_shuffle_epi8(bytes, swap);
        }
        state = rounds(state, transpose(words));
    }
    for (register, column) in state.iter().zip(&mut columns) {
        // SAFETY: a column is sixteen words, 64 writable bytes.
        unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast(), *register) };
    }
    for (lane, state) in states.iter_mut().enumerate() {
        for (word, column) in state.iter_mut().zip(&columns) {
            *word = column[lane];
        }
    }
}

/// The 64 rounds of one block; FIPS 180-4 section 6.2.2. A ternary logic of 0x96 is exclusive or,
/// 0xca is Ch, 0xe8 is Maj.
#[target_feature(enable = "avx512f,avx512bw")]
fn rounds(before: [__m512i; 8], mut words: [__m512i; LANES]) -> [__m512i; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = before;
    macro_rules! round {
        ($index:expr) => {{
            let index: usize = $index;
            if index >= LANES {
                let (w15, w2) = (words[(index + 1) % LANES], words[(index + 14) % LANES]);
                let (p, q) = (_mm512_ror_epi32(w15, 7), _mm512_ror_epi32(w15, 18));
                let small0 = _mm512_ternarylogic_epi32(p, q, _mm512_srli_epi32(w15, 3), 0x96);
                let (p, q) = (_mm512_ror_epi32(w2, 17), _mm512_ror_epi32(w2, 19));
                let small1 = _mm512_ternarylogic_epi32(p, q, _mm512_srli_epi32(w2, 10), 0x96);
                let w7 = words[(index + 9) % LANES];
                words[index % LANES] = _mm512_add_epi32(
                    _mm512_add_epi32(words[index % LANES], small0),
                    _mm512_add_epi32(w7, small1),
                );
            }
            let constant = _mm512_set1_epi32(ROUND[index].cast_signed());
            let sum = _mm512_add_epi32(words[index % LANES], constant);
            let (p, q) = (_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11));
            let big1 = _mm512_ternarylogic_epi32(p, q, _mm512_ror_epi32(e, 25), 0x96);
            let choice = _mm512_ternarylogic_epi32(e, f, g, 0xca);
            let sum = _mm512_add_epi32(_mm512_add_epi32(h, sum), choice);
            let sum = _mm512_add_epi32(sum, big1);
            let (p, q) = (_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13));
            let big0 = _mm512_ternarylogic_epi32(p, q, _mm512_ror_epi32(a, 22), 0x96);
            let majority = _mm512_ternarylogic_epi32(a, b, c, 0xe8);
            (h, g, f) = (g, f, e);
            e = _mm512_add_epi32(d, sum);
            (d, c, b) = (c, b, a);
            a = _mm512_add_epi32(sum, _mm512_add_epi32(big0, majority));
        }};
    }
    macro_rules! eight_rounds {
        ($($first:literal)*) => {$(
            round!($first);
            round!($first + 1);
            round!($first + 2);
            round!($first + 3);
            round!($first + 4);
            round!($first + 5);
            round!($first + 6);
            round!($first + 7);
        )*};
    }
    eight_rounds!(0 8 16 24 32 40 48 56);
    let mut after = [a, b, c, d, e, f, g, h];
    for (after, before) in after.iter_mut().zip(before) {
        *after = _mm512_add_epi32(*after, before);
    }
    after
}

/// Transposes 16 x 16 words: rows are streams before, words after.
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(mut rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut other = [_mm512_setzero_si512(); LANES];
    for pair in 0..8 {
        let (one, two) = (rows[2 * pair], rows[2 * pair + 1]);
        other[2 * pair] = _mm512_unpacklo_epi32(one, two);
        other[2 * pair + 1] = _mm512_unpackhi_epi32(one, two);
    }
    for four in 0..4 {
        let at = 4 * four;
        rows[at] = _mm512_unpacklo_epi64(other[at], other[at + 2]);
        rows[at + 1] = _mm512_unpackhi_epi64(other[at], other[at + 2]);
        rows[at + 2] = _mm512_unpacklo_epi64(other[at + 1], other[at + 3]);
        rows[at + 3] = _mm512_unpackhi_epi64(other[at + 1], other[at + 3]);
    }
    // Row 4 r + c now has in its lane q the word 4 q + c of the streams 4 r to 4 r + 3.
    for word in 0..4 {
        let (one, two) = (rows[word], rows[4 + word]);
        let (three, four) = (rows[8 + word], rows[12 + word]);
        let even = _mm512_shuffle_i32x4(one, two, 0x88);
        let odd = _mm512_shuffle_i32x4(one, two, 0xdd);
        let even_high = _mm512_shuffle_i32x4(three, four, 0x88);
        let odd_high = _mm512_shuffle_i32x4(three, four, 0xdd);
        other[word] = _mm512_shuffle_i32x4(even, even_high, 0x88);
        other[4 + word] = _mm512_shuffle_i32x4(odd, odd_high, 0x88);
        other[8 + word] = _mm512_shuffle_i32x4(even, even_high, 0xdd);
        other[12 + word] = _mm512_shuffle_i32x4(odd, odd_high, 0xdd);
    }
    other
}
