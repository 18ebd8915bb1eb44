//! The packings of stock x86-64 builds, done by ourselves: scalar judges with exact inverses.
//!
//! Specified in `docs/format/ggml-cpu-repack.md`. In all of them eight rows are packed together,
//! block column by block column: a packed block holds the scale fields of eight blocks that lie
//! under each other, then their quants in chunks of eight bytes, row after row. A stack of matrices
//! is packed matrix by matrix, which is the same as all its rows in order, since eight divides the
//! rows of each.
//!
//! Invariants:
//! - a packed block has as many bytes as its eight blocks, so groups lie where their rows lay;
//! - unpacking what was packed gives the source back, whatever its bytes;
//! - unit sizes 16 and 8 pack to the same bytes: the family is the same, two groups or one.
//!
//! Never says whether an engine would pack so: `stock_x86` does.

use super::{iq4_nl, mxfp4, q2_k, q4_0, q4_k};
use packhouse_base::ggml_type::GgmlType;

/// Rows that are packed together.
pub const GROUP_ROWS: usize = 8;

/// Bytes of quants that stay together.
pub const CHUNK_BYTES: usize = 8;

/// A packing of a stock x86-64 build that we make too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Twin {
    /// `q4_0`, 8 rows by 8 bytes, sign bits flipped.
    Q4_0,
    /// `iq4_nl`, 8 rows by 8 bytes.
    Iq4Nl,
    /// `mxfp4`, 8 rows by 8 bytes.
    Mxfp4,
    /// `q4_K`, 8 rows by 8 bytes, scales packed again by sub-block.
    Q4K,
    /// `q2_K`, 8 rows by 8 bytes, scales by pairs of sub-blocks.
    Q2K,
}

impl Twin {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Q4_0, Self::Iq4Nl, Self::Mxfp4, Self::Q4K, Self::Q2K];

    /// The twin for a type at a unit size. `None` when stock x86-64 has no such packing: other
    /// types, and units of 4 rows.
    pub fn of(ty: GgmlType, unit_rows: u64) -> Option<Self> {
        if !unit_rows.is_multiple_of(GROUP_ROWS as u64) || unit_rows == 0 {
            return None;
        }
        Self::ALL
            .into_iter()
            .find(|twin| twin.type_name() == ty.name())
    }

    /// Name of the type it packs.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Iq4Nl => "IQ4_NL",
            Self::Mxfp4 => "MXFP4",
            Self::Q4K => "Q4_K",
            Self::Q2K => "Q2_K",
        }
    }

    /// The type it packs.
    pub fn ty(self) -> GgmlType {
        GgmlType::from_name(self.type_name()).expect("because its types are current")
    }

    /// Bytes of one source block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => q4_0::BLOCK_BYTES,
            Self::Iq4Nl => iq4_nl::BLOCK_BYTES,
            Self::Mxfp4 => mxfp4::BLOCK_BYTES,
            Self::Q4K => q4_k::BLOCK_BYTES,
            Self::Q2K => q2_k::BLOCK_BYTES,
        }
    }

    /// Packs whole groups of rows.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of eight rows, or a row is no whole number of
    /// blocks.
    pub fn pack_scalar(self, row_bytes: usize, source: &[u8], target: &mut [u8]) {
        match self {
            Self::Q4_0 => pack(row_bytes, source, target, q4_0::pack),
            Self::Iq4Nl => pack(row_bytes, source, target, iq4_nl::pack),
            Self::Mxfp4 => pack(row_bytes, source, target, mxfp4::pack),
            Self::Q4K => pack(row_bytes, source, target, q4_k::pack),
            Self::Q2K => pack(row_bytes, source, target, q2_k::pack),
        }
    }

    /// Gives the source of a payload back. Panics as `pack_scalar` does.
    pub fn unpack_scalar(self, row_bytes: usize, payload: &[u8], target: &mut [u8]) {
        match self {
            Self::Q4_0 => unpack(row_bytes, payload, target, q4_0::unpack),
            Self::Iq4Nl => unpack(row_bytes, payload, target, iq4_nl::unpack),
            Self::Mxfp4 => unpack(row_bytes, payload, target, mxfp4::unpack),
            Self::Q4K => unpack(row_bytes, payload, target, q4_k::unpack),
            Self::Q2K => unpack(row_bytes, payload, target, q2_k::unpack),
        }
    }
}

/// Blocks of `B` bytes that lie under each other in eight rows.
pub(super) type Stack<const B: usize> = [[u8; B]; GROUP_ROWS];

fn pack<const B: usize>(
    row_bytes: usize,
    source: &[u8],
    target: &mut [u8],
    pack_stack: fn(&Stack<B>, &mut [u8]),
) {
    let group_bytes = group_bytes::<B>(row_bytes, source.len(), target.len());
    let groups = source
        .chunks_exact(group_bytes)
        .zip(target.chunks_exact_mut(group_bytes));
    for (source, target) in groups {
        for (column, target) in target.chunks_exact_mut(GROUP_ROWS * B).enumerate() {
            let stack = std::array::from_fn(|row| block(source, row * row_bytes + column * B));
            pack_stack(&stack, target);
        }
    }
}

fn unpack<const B: usize>(
    row_bytes: usize,
    payload: &[u8],
    target: &mut [u8],
    unpack_stack: fn(&[u8]) -> Stack<B>,
) {
    let group_bytes = group_bytes::<B>(row_bytes, payload.len(), target.len());
    let groups = payload
        .chunks_exact(group_bytes)
        .zip(target.chunks_exact_mut(group_bytes));
    for (payload, target) in groups {
        for (column, packed) in payload.chunks_exact(GROUP_ROWS * B).enumerate() {
            for (row, block) in unpack_stack(packed).iter().enumerate() {
                target[row * row_bytes + column * B..][..B].copy_from_slice(block);
            }
        }
    }
}

fn group_bytes<const B: usize>(row_bytes: usize, from_bytes: usize, to_bytes: usize) -> usize {
    assert_eq!(from_bytes, to_bytes, "a packing keeps the length");
    assert!(
        row_bytes > 0 && row_bytes.is_multiple_of(B),
        "a row of {row_bytes} bytes is no whole number of blocks of {B}"
    );
    let group_bytes = GROUP_ROWS * row_bytes;
    assert!(
        from_bytes.is_multiple_of(group_bytes),
        "{from_bytes} bytes are no whole number of groups of {group_bytes}"
    );
    group_bytes
}

/// `B` bytes at an offset.
pub(super) fn block<const B: usize>(bytes: &[u8], offset: usize) -> [u8; B] {
    bytes[offset..offset + B]
        .try_into()
        .expect("because the range has that length")
}

/// Copies the field of `width` bytes at `offset` of each block side by side.
pub(super) fn gather<const B: usize>(
    stack: &Stack<B>,
    offset: usize,
    width: usize,
    target: &mut [u8],
) {
    for (block, target) in stack.iter().zip(target.chunks_exact_mut(width)) {
        target.copy_from_slice(&block[offset..offset + width]);
    }
}

/// The inverse of `gather`.
pub(super) fn scatter<const B: usize>(
    packed: &[u8],
    stack: &mut Stack<B>,
    offset: usize,
    width: usize,
) {
    for (block, packed) in stack.iter_mut().zip(packed.chunks_exact(width)) {
        block[offset..offset + width].copy_from_slice(packed);
    }
}

/// Copies the quants from `offset` on in chunks: the first chunk of each row, then the second ...
/// Each byte is changed by `flip`.
pub(super) fn interleave<const B: usize>(
    stack: &Stack<B>,
    offset: usize,
    flip: u8,
    target: &mut [u8],
) {
    for (index, target) in target.chunks_exact_mut(CHUNK_BYTES).enumerate() {
        let (row, chunk) = (index % GROUP_ROWS, index / GROUP_ROWS);
        let source = &stack[row][offset + chunk * CHUNK_BYTES..][..CHUNK_BYTES];
        for (target, source) in target.iter_mut().zip(source) {
            *target = source ^ flip;
        }
    }
}

/// The inverse of `interleave`.
pub(super) fn part<const B: usize>(packed: &[u8], stack: &mut Stack<B>, offset: usize, flip: u8) {
    for (index, packed) in packed.chunks_exact(CHUNK_BYTES).enumerate() {
        let (row, chunk) = (index % GROUP_ROWS, index / GROUP_ROWS);
        let target = &mut stack[row][offset + chunk * CHUNK_BYTES..][..CHUNK_BYTES];
        for (target, packed) in target.iter_mut().zip(packed) {
            *target = packed ^ flip;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ggml_cpu_repack::golden;

    /// A byte that tells row, block column and offset in the block apart.
    fn tag(row: usize, column: usize, offset: usize) -> u8 {
        u8::try_from((row * 89 + column * 37 + offset * 7) % 251).expect("because 250 is a byte")
    }

    /// Two groups of rows, three blocks wide, each byte by its place.
    fn tagged(twin: Twin) -> Vec<u8> {
        let block = twin.block_bytes();
        let places = (0..16 * 3 * block).map(|at| (at / (3 * block), at % (3 * block)));
        places
            .map(|(row, at)| tag(row, at / block, at % block))
            .collect()
    }

    fn packed(twin: Twin, source: &[u8]) -> Vec<u8> {
        let mut target = vec![0xa5; source.len()];
        twin.pack_scalar(3 * twin.block_bytes(), source, &mut target);
        target
    }

    #[test]
    fn only_five_types_and_units_of_whole_groups_have_a_twin() {
        for ty in GgmlType::all() {
            let has = ["Q4_0", "IQ4_NL", "MXFP4", "Q4_K", "Q2_K"].contains(&ty.name());
            for unit in [8, 16] {
                assert_eq!(Twin::of(*ty, unit).is_some(), has, "{} {unit}", ty.name());
            }
            for unit in [0, 1, 4, 12] {
                assert_eq!(Twin::of(*ty, unit), None, "{} {unit}", ty.name());
            }
        }
        for twin in Twin::ALL {
            assert_eq!(Twin::of(twin.ty(), 8), Some(twin));
            assert_eq!(twin.ty().block_bytes(), twin.block_bytes() as u64);
        }
    }

    #[test]
    fn fields_and_chunks_lie_where_the_specification_says() {
        // (twin, bytes of quants, their offset in the block, flip, fields (offset, width) in
        // packed order before the quants; 12 packed bytes per sub-block are Q4_K's own test)
        let pairs: Vec<(usize, usize)> = (0..8).map(|pair| (pair * 2, 2)).collect();
        let q2_k = [&[(80, 2), (82, 2)], pairs.as_slice()].concat();
        let cases = [
            (Twin::Q4_0, 16, 2, 0x88, vec![(0, 2)]),
            (Twin::Iq4Nl, 16, 2, 0, vec![(0, 2)]),
            (Twin::Mxfp4, 16, 1, 0, vec![(0, 1)]),
            (Twin::Q2K, 64, 16, 0, q2_k),
        ];
        for (twin, quant_bytes, quants, flip, fields) in cases {
            let mut expected = Vec::new();
            for (group, column) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
                for (offset, width) in &fields {
                    for row in 0..8 {
                        let bytes = *offset..offset + width;
                        expected.extend(bytes.map(|at| tag(group * 8 + row, column, at)));
                    }
                }
                for chunk in 0..quant_bytes / 8 {
                    for row in 0..8 {
                        let bytes = quants + chunk * 8..quants + chunk * 8 + 8;
                        expected.extend(bytes.map(|at| tag(group * 8 + row, column, at) ^ flip));
                    }
                }
            }
            assert_eq!(packed(twin, &tagged(twin)), expected, "{twin:?}");
        }
    }

    #[test]
    fn six_bit_scales_change_places_with_rows() {
        // Row r has scale 8r+k and minimum 63-(8r+k) in sub-block k, written out bit by bit.
        let mut source = vec![0u8; 8 * 144];
        let value = |row: usize, sub: usize| u8::try_from(row * 8 + sub).expect("because 63 is");
        let code = |at: &dyn Fn(usize) -> u8| {
            let mut bytes = [0u8; 12];
            for i in 0..4 {
                bytes[i] = at(i) + (at(i + 4) & 0x30) * 4;
                bytes[i + 4] = 63 - at(i) + ((63 - at(i + 4)) & 0x30) * 4;
                bytes[i + 8] = at(i + 4) % 16 + (63 - at(i + 4)) % 16 * 16;
            }
            bytes
        };
        for row in 0..8 {
            source[row * 144 + 4..][..12].copy_from_slice(&code(&|sub| value(row, sub)));
        }
        let mut target = vec![0xa5; source.len()];
        Twin::Q4K.pack_scalar(144, &source, &mut target);
        for sub in 0..8 {
            let expected = code(&|row| value(row, sub));
            assert_eq!(target[32 + sub * 12..][..12], expected, "sub-block {sub}");
        }
        let tagged = tagged(Twin::Q4K);
        let whole = packed(Twin::Q4K, &tagged);
        for row in 0..8 {
            for (at, byte) in [(0, 0), (16, 2)] {
                assert_eq!(whole[at + row * 2], tag(row, 0, byte));
                assert_eq!(whole[at + row * 2 + 1], tag(row, 0, byte + 1));
            }
            for at in 0..128 {
                let place = 128 + at / 8 * 64 + row * 8 + at % 8;
                assert_eq!(whole[place], tag(row, 0, 16 + at), "row {row} quant {at}");
            }
        }
    }

    #[test]
    fn unpacking_gives_the_source_back() {
        for twin in Twin::ALL {
            for unit in [16, 8] {
                let golden = golden(twin.ty(), unit).expect("because the type is packable");
                for source in [tagged(twin), golden.bytes] {
                    let payload = packed(twin, &source);
                    assert_ne!(payload, source, "{twin:?}");
                    let mut back = vec![0x5a; source.len()];
                    twin.unpack_scalar(3 * twin.block_bytes(), &payload, &mut back);
                    assert_eq!(back, source, "{twin:?} {unit}");
                }
            }
        }
    }

    #[test]
    fn groups_pack_alone_as_they_do_together() {
        for twin in Twin::ALL {
            let source = tagged(twin);
            let whole = packed(twin, &source);
            let half = source.len() / 2;
            assert_eq!(packed(twin, &source[..half]), whole[..half], "{twin:?}");
            assert_eq!(packed(twin, &source[half..]), whole[half..], "{twin:?}");
        }
    }

    #[test]
    #[should_panic(expected = "a row of 20 bytes is no whole number of blocks of 18")]
    fn a_row_that_is_no_whole_number_of_blocks_is_a_bug_of_the_caller() {
        Twin::Q4_0.pack_scalar(20, &[0; 160], &mut [0; 160]);
    }

    #[test]
    #[should_panic(expected = "216 bytes are no whole number of groups of 144")]
    fn rows_beyond_a_group_are_a_bug_of_the_caller() {
        Twin::Q4_0.unpack_scalar(18, &[0; 216], &mut [0; 216]);
    }
}
