//! `ggml-cpu-repack` twins, the part that all levels share: shapes, and the heads of packed blocks.
//!
//! Specified in `docs/format/ggml-cpu-repack.md`; the judges are in `packhouse-layout`. A packed
//! block is a head, made of the scale fields of eight blocks under each other, and then their
//! quants in chunks of eight bytes, row after row. Heads differ by type; the quants are pieces of
//! 16 bytes, and one piece of each of eight rows becomes 128 packed bytes.
//!
//! Invariants: a form reads its eight blocks and nothing else, and writes every byte of its packed
//! block, or of its eight blocks, and nothing else.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use packhouse_layout::Admitted;
use packhouse_layout::ggml_cpu_repack::twin::GROUP_ROWS;
use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_setr_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_loadu2_m128i, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_storeu2_m128i,
    _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi16,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};
use std::ops::Range;

/// Bytes of quants of one row that are moved at once.
pub(super) const PIECE_BYTES: usize = 16;

/// Where the blocks of a tensor and of its payload lie.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Groups of eight rows.
    pub(super) group_count: usize,
    /// Blocks in a row.
    pub(super) column_count: usize,
    /// Bytes of a row.
    pub(super) row_bytes: usize,
}

impl Shape {
    /// Panics unless both sides have the same whole number of groups of the tensor's rows, and a
    /// row has whole blocks.
    pub(super) fn of<F: Form>(admitted: &Admitted, source: &[u8], target: &[u8]) -> Self {
        let row_bytes = length(admitted.geometry().row_bytes);
        assert_eq!(source.len(), target.len(), "a packing keeps the length");
        assert!(row_bytes > 0 && row_bytes.is_multiple_of(F::BLOCK_BYTES));
        let group_bytes = GROUP_ROWS * row_bytes;
        assert!(
            source.len().is_multiple_of(group_bytes),
            "groups of {group_bytes}"
        );
        Self {
            group_count: source.len() / group_bytes,
            column_count: row_bytes / F::BLOCK_BYTES,
            row_bytes,
        }
    }

    /// Offsets of a stack's first block and of its packed block.
    #[inline(always)]
    pub(super) const fn offsets<F: Form>(&self, group: usize, column: usize) -> (usize, usize) {
        let first = group * GROUP_ROWS * self.row_bytes;
        let block = column * F::BLOCK_BYTES;
        (first + block, first + GROUP_ROWS * block)
    }
}

/// The bytes of a range of units in the whole source, or in the whole payload, which is as long.
///
/// # Panics
/// When the whole has another length than the tensor, or the range ends beyond it.
pub(super) fn of_units<'w>(admitted: &Admitted, units: Range<u64>, whole: &'w [u8]) -> &'w [u8] {
    assert_eq!(whole.len() as u64, admitted.source_bytes(), "whole bytes");
    let unit_bytes = admitted.geometry().unit_bytes();
    &whole[length(units.start * unit_bytes)..length(units.end * unit_bytes)]
}

fn length(byte_count: u64) -> usize {
    usize::try_from(byte_count).expect("because the tensor lies in memory")
}

/// What is different about a type.
///
/// # Safety
/// A block of the form has `BLOCK_BYTES` bytes, `16 * PIECES` of them from `QUANTS` on are quants,
/// and a packed block has a head of `8 * (BLOCK_BYTES - 16 * PIECES)` bytes.
pub(crate) unsafe trait Form {
    /// Name of the type.
    const TYPE_NAME: &'static str;
    /// Bytes of a block.
    const BLOCK_BYTES: usize;
    /// Offset of the quants in a block.
    const QUANTS: usize;
    /// Pieces of quants in a block.
    const PIECES: usize;
    /// What each byte of quants is changed by.
    const FLIP: u8;
    /// Bytes of a packed block before the quants.
    const HEAD_BYTES: usize = GROUP_ROWS * (Self::BLOCK_BYTES - PIECE_BYTES * Self::PIECES);

    /// Makes the head of a packed block.
    ///
    /// # Safety
    /// The CPU has AVX2. Blocks of the form are readable at `blocks` and seven more times
    /// `row_bytes` on; a packed block is writable at `packed`.
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8);

    /// Gives the head's bytes back to the blocks.
    ///
    /// # Safety
    /// The CPU has AVX2. A packed block is readable at `packed`; blocks of the form are writable at
    /// `blocks` and seven more times `row_bytes` on.
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize);
}

/// Q4_0: f16 scale, 16 bytes of nibbles whose bit 3 is flipped.
pub(crate) struct Q4_0;
/// IQ4_NL: f16 scale, 16 bytes of nibbles.
pub(crate) struct Iq4Nl;
/// MXFP4: exponent byte, 16 bytes of nibbles.
pub(crate) struct Mxfp4;
/// Q4_K: f16 scale and minimum, 12 bytes of 6-bit codes, 128 bytes of nibbles.
pub(crate) struct Q4K;
/// Q2_K: 16 sub-block bytes, 64 bytes of quants, f16 scale and minimum.
pub(crate) struct Q2K;

// SAFETY: the constants are those of the judge, compared below.
unsafe impl Form for Q4_0 {
    const TYPE_NAME: &'static str = "Q4_0";
    const BLOCK_BYTES: usize = 18;
    const QUANTS: usize = 2;
    const PIECES: usize = 1;
    const FLIP: u8 = 0x88;

    #[inline(always)]
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
        // SAFETY: passed on; the field is the first two bytes of each block.
        unsafe { gather::<2>(blocks, row_bytes, packed) }
    }

    #[inline(always)]
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
        // SAFETY: passed on; the field is the first two bytes of each block.
        unsafe { scatter::<2>(packed, blocks, row_bytes) }
    }
}

// SAFETY: the constants are those of the judge, compared below.
unsafe impl Form for Iq4Nl {
    const TYPE_NAME: &'static str = "IQ4_NL";
    const BLOCK_BYTES: usize = 18;
    const QUANTS: usize = 2;
    const PIECES: usize = 1;
    const FLIP: u8 = 0;

    #[inline(always)]
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
        // SAFETY: passed on; the field is the first two bytes of each block.
        unsafe { gather::<2>(blocks, row_bytes, packed) }
    }

    #[inline(always)]
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
        // SAFETY: passed on; the field is the first two bytes of each block.
        unsafe { scatter::<2>(packed, blocks, row_bytes) }
    }
}

// SAFETY: the constants are those of the judge, compared below.
unsafe impl Form for Mxfp4 {
    const TYPE_NAME: &'static str = "MXFP4";
    const BLOCK_BYTES: usize = 17;
    const QUANTS: usize = 1;
    const PIECES: usize = 1;
    const FLIP: u8 = 0;

    #[inline(always)]
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
        // SAFETY: passed on; the field is the first byte of each block.
        unsafe { gather::<1>(blocks, row_bytes, packed) }
    }

    #[inline(always)]
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
        // SAFETY: passed on; the field is the first byte of each block.
        unsafe { scatter::<1>(packed, blocks, row_bytes) }
    }
}

/// Offset of the 6-bit codes in a Q4_K block, and of the first of eight in a packed one.
const CODES: [usize; 2] = [4, 32];
const CODE_BYTES: usize = 12;

// SAFETY: the constants are those of the judge, compared below.
unsafe impl Form for Q4K {
    const TYPE_NAME: &'static str = "Q4_K";
    const BLOCK_BYTES: usize = 144;
    const QUANTS: usize = CODES[0] + CODE_BYTES;
    const PIECES: usize = 8;
    const FLIP: u8 = 0;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
        // SAFETY: the first 16 bytes of a block are its halves and its code; 32 + 96 bytes are the
        // head of a packed one.
        unsafe {
            let [halves, codes @ ..] = transpose_words(stack(blocks, row_bytes));
            store_halves(halves, packed);
            for (index, part) in transpose_codes(codes).into_iter().enumerate() {
                let target = packed.add(CODES[1] + index * 16);
                _mm256_storeu2_m128i(target.add(48).cast(), target.cast(), part);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
        let mut codes = [0u8; GROUP_ROWS * CODE_BYTES];
        // SAFETY: the codes of a packed block begin 32 bytes into it, so 16 bytes from 4 before
        // each of them lie in it.
        unsafe {
            let [_, words @ ..] = transpose_words(stack(packed.add(CODES[1] - 4), CODE_BYTES));
            for (index, part) in transpose_codes(words).into_iter().enumerate() {
                let target = codes.as_mut_ptr().add(index * 16);
                _mm256_storeu2_m128i(target.add(48).cast(), target.cast(), part);
            }
            for row in 0..GROUP_ROWS {
                let block = blocks.add(row * row_bytes);
                load_half(packed, row, block);
                load_half(packed.add(16), row, block.add(2));
                let code = codes.as_ptr().add(row * CODE_BYTES);
                block
                    .add(CODES[0])
                    .copy_from_nonoverlapping(code, CODE_BYTES);
            }
        }
    }
}

/// Offset of the f16 scale in a Q2_K block.
const Q2_K_HALVES: usize = 80;

// SAFETY: the constants are those of the judge, compared below.
unsafe impl Form for Q2K {
    const TYPE_NAME: &'static str = "Q2_K";
    const BLOCK_BYTES: usize = 84;
    const QUANTS: usize = 16;
    const PIECES: usize = 4;
    const FLIP: u8 = 0;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pack_head(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
        // SAFETY: the first 16 bytes of a block are its sub-block bytes, the last 4 its halves;
        // 32 + 128 bytes are the head of a packed one.
        unsafe {
            let halves = |row: usize| {
                let at = blocks.add(row * row_bytes + Q2_K_HALVES);
                at.cast::<i32>().read_unaligned()
            };
            let halves = _mm256_setr_epi32(
                halves(0),
                halves(1),
                halves(2),
                halves(3),
                halves(4),
                halves(5),
                halves(6),
                halves(7),
            );
            store_halves(halves, packed);
            for (index, pairs) in transpose_pairs(stack(blocks, row_bytes))
                .into_iter()
                .enumerate()
            {
                _mm256_storeu_si256(packed.add(32 + index * 32).cast(), pairs);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn unpack_head(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
        let mut pairs = [0u8; GROUP_ROWS * PIECE_BYTES];
        // SAFETY: 128 bytes of pairs follow the 32 bytes of halves of a packed block.
        unsafe {
            for (index, rows) in transpose_pairs(stack(packed.add(32), 16))
                .into_iter()
                .enumerate()
            {
                _mm256_storeu_si256(pairs.as_mut_ptr().add(index * 32).cast(), rows);
            }
            for row in 0..GROUP_ROWS {
                let block = blocks.add(row * row_bytes);
                let source = pairs.as_ptr().add(row * 16);
                block.copy_from_nonoverlapping(source, 16);
                load_half(packed, row, block.add(Q2_K_HALVES));
                load_half(packed.add(16), row, block.add(Q2_K_HALVES + 2));
            }
        }
    }
}

/// Copies the first `WIDTH` bytes of each block side by side.
///
/// # Safety
/// As for `Form::pack_head`.
#[inline(always)]
unsafe fn gather<const WIDTH: usize>(blocks: *const u8, row_bytes: usize, packed: *mut u8) {
    for row in 0..GROUP_ROWS {
        // SAFETY: passed on to the caller.
        unsafe {
            let field = blocks.add(row * row_bytes).cast::<[u8; WIDTH]>().read();
            packed.cast::<[u8; WIDTH]>().add(row).write(field);
        }
    }
}

/// The inverse of `gather`.
///
/// # Safety
/// As for `Form::unpack_head`.
#[inline(always)]
unsafe fn scatter<const WIDTH: usize>(packed: *const u8, blocks: *mut u8, row_bytes: usize) {
    for row in 0..GROUP_ROWS {
        // SAFETY: passed on to the caller.
        unsafe {
            let field = packed.cast::<[u8; WIDTH]>().add(row).read();
            blocks
                .add(row * row_bytes)
                .cast::<[u8; WIDTH]>()
                .write(field);
        }
    }
}

/// Copies one of eight halves.
///
/// # Safety
/// 16 bytes are readable at `halves`, two writable at `target`.
#[inline(always)]
unsafe fn load_half(halves: *const u8, row: usize, target: *mut u8) {
    // SAFETY: passed on to the caller.
    unsafe {
        target
            .cast::<[u8; 2]>()
            .write(halves.cast::<[u8; 2]>().add(row).read())
    }
}

/// Loads 16 bytes of each of eight rows: register i holds row i and row i + 4.
///
/// # Safety
/// The CPU has AVX2. 16 bytes are readable at `rows` and seven more times `distance` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn stack(rows: *const u8, distance: usize) -> [__m256i; 4] {
    // SAFETY: passed on to the caller; row i + 4 lies four distances after row i.
    unsafe {
        let low = [
            rows,
            rows.add(distance),
            rows.add(2 * distance),
            rows.add(3 * distance),
        ];
        let high = low.map(|row| row.add(4 * distance));
        [
            _mm256_loadu2_m128i(high[0].cast(), low[0].cast()),
            _mm256_loadu2_m128i(high[1].cast(), low[1].cast()),
            _mm256_loadu2_m128i(high[2].cast(), low[2].cast()),
            _mm256_loadu2_m128i(high[3].cast(), low[3].cast()),
        ]
    }
}

/// Turns rows of four words each into words of four rows each, in both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_words(rows: [__m256i; 4]) -> [__m256i; 4] {
    let low = [
        _mm256_unpacklo_epi32(rows[0], rows[1]),
        _mm256_unpacklo_epi32(rows[2], rows[3]),
    ];
    let high = [
        _mm256_unpackhi_epi32(rows[0], rows[1]),
        _mm256_unpackhi_epi32(rows[2], rows[3]),
    ];
    [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
    ]
}

/// Turns rows of eight byte pairs into byte pairs of eight rows, two in a register.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_pairs(rows: [__m256i; 4]) -> [__m256i; 4] {
    let low = [
        _mm256_unpacklo_epi16(rows[0], rows[1]),
        _mm256_unpacklo_epi16(rows[2], rows[3]),
    ];
    let high = [
        _mm256_unpackhi_epi16(rows[0], rows[1]),
        _mm256_unpackhi_epi16(rows[2], rows[3]),
    ];
    // Each half now has four rows of two pairs; rows 0..4 and 4..8 of a pair belong together.
    [
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi32(low[0], low[1])),
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpackhi_epi32(low[0], low[1])),
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi32(high[0], high[1])),
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpackhi_epi32(high[0], high[1])),
    ]
}

/// Stores eight pairs of scale and minimum as eight scales and eight minima.
///
/// # Safety
/// 32 bytes are writable at `packed`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_halves(halves: __m256i, packed: *mut u8) {
    let apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let halves = _mm256_shuffle_epi8(halves, _mm256_broadcastsi128_si256(apart));
    let halves = _mm256_permute4x64_epi64::<0b11_01_10_00>(halves);
    // SAFETY: passed on to the caller.
    unsafe { _mm256_storeu_si256(packed.cast(), halves) }
}

/// Transposes the matrix of 6-bit scales and minima.
///
/// The three words of a code come as three registers, rows 0..4 in their low halves. What goes out
/// are 48 bytes, four codes, per half: three registers of 16 each, columns 0..4 in the low halves.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_codes([scales, minima, low_bits]: [__m256i; 3]) -> [__m256i; 3] {
    let (six, four) = (_mm256_set1_epi8(0x3f), _mm256_set1_epi8(0x0f));
    let two = _mm256_set1_epi8(0x30);
    // Columns 0..4 have their own bytes, columns 4..8 two bits in those and four in `low_bits`.
    let first = |bytes| _mm256_and_si256(bytes, six);
    let second = |bytes, low| {
        let high = _mm256_and_si256(_mm256_srli_epi16::<2>(bytes), two);
        _mm256_or_si256(high, _mm256_and_si256(low, four))
    };
    let scales = [first(scales), second(scales, low_bits)];
    let minima = [
        first(minima),
        second(minima, _mm256_srli_epi16::<4>(low_bits)),
    ];
    // From halves of rows to halves of columns.
    let rows_0_4 = |[a, b]: [__m256i; 2]| _mm256_permute2x128_si256::<0x20>(a, b);
    let rows_4_8 = |[a, b]: [__m256i; 2]| _mm256_permute2x128_si256::<0x31>(a, b);
    let (scales, more_scales) = (rows_0_4(scales), rows_4_8(scales));
    let (minima, more_minima) = (rows_0_4(minima), rows_4_8(minima));
    let joined = |own, other| {
        let high = _mm256_slli_epi16::<2>(_mm256_and_si256(other, two));
        _mm256_or_si256(own, high)
    };
    let low_bits = _mm256_or_si256(
        _mm256_and_si256(more_scales, four),
        _mm256_slli_epi16::<4>(_mm256_and_si256(more_minima, four)),
    );
    place_codes([
        joined(scales, more_scales),
        joined(minima, more_minima),
        low_bits,
    ])
}

/// Puts words of four rows by four columns in the order of four codes, column by column.
#[inline]
#[target_feature(enable = "avx2")]
fn place_codes(words: [__m256i; 3]) -> [__m256i; 3] {
    // Word w of code c is bytes c, c + 4, c + 8, c + 12 of register w, at 3 c + w of twelve words.
    [
        placed(words, &PLACES[0]),
        placed(words, &PLACES[1]),
        placed(words, &PLACES[2]),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn placed(words: [__m256i; 3], places: &[[u8; 16]; 3]) -> __m256i {
    let mut all = _mm256_setzero_si256();
    for (word, place) in words.into_iter().zip(places) {
        // SAFETY: a place is 16 readable bytes.
        let place = unsafe { _mm_loadu_si128(place.as_ptr().cast()) };
        let part = _mm256_shuffle_epi8(word, _mm256_broadcastsi128_si256(place));
        all = _mm256_or_si256(all, part);
    }
    all
}

/// For each 16 of 48 bytes and each of three registers: which byte goes where; bit 7 for none.
static PLACES: [[[u8; 16]; 3]; 3] = places();

const fn places() -> [[[u8; 16]; 3]; 3] {
    let mut places = [[[0x80; 16]; 3]; 3];
    let mut at = 0;
    while at < 48 {
        let (word, byte) = (at / 4, at % 4);
        let (code, register) = (word / 3, word % 3);
        places[at / 16][register][at % 16] = (code + byte * 4) as u8;
        at += 1;
    }
    places
}

#[cfg(test)]
mod tests;
