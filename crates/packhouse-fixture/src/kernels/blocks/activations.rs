//! Activations as ggml quantises them for its CPU kernels: `Q8_0` blocks of 32, `Q8_K` blocks of
//! 256.
//!
//! The rules are those of ggml's reference functions, `quantize_row_q8_0_ref` and
//! `quantize_row_q8_K_ref` (ggml 0.26.0, `ggml-quants.c`), every operation in binary32. Its SIMD
//! forms of `Q8_0` round halves to even and divide once, so their codes differ beside halves; the
//! reference is the rule here. Specified in `docs/format/kernels.md`, section 5.

use crate::half::{f16_from_f32, f16_to_f32};

/// The blocks that activations are quantised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    /// 32 elements: binary16 scale, 32 signed codes.
    Q8_0,
    /// 256 elements: binary32 scale, 256 signed codes, 16 sums of 16 codes.
    Q8K,
}

impl Activations {
    /// Name of ggml's type.
    pub(crate) const fn type_name(self) -> &'static str {
        match self {
            Self::Q8_0 => "Q8_0",
            Self::Q8K => "Q8_K",
        }
    }

    /// Elements of a block.
    pub(crate) const fn elements(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q8K => 256,
        }
    }

    /// Bytes of a block.
    pub(crate) const fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => SCALE_Q8_0_BYTES + 32,
            Self::Q8K => CODES_Q8K + 256 + 2 * SUMS,
        }
    }

    /// Quantises whole blocks of values.
    ///
    /// # Panics
    /// When the values are no whole number of blocks.
    pub(crate) fn quantise(self, values: &[f32]) -> Vec<u8> {
        let blocks = values.chunks_exact(self.elements());
        assert!(blocks.remainder().is_empty(), "whole blocks of activations");
        let mut bytes = Vec::with_capacity(blocks.len() * self.block_bytes());
        for block in blocks {
            match self {
                Self::Q8_0 => q8_0(block, &mut bytes),
                Self::Q8K => q8_k(block, &mut bytes),
            }
        }
        bytes
    }

    /// Scale and codes of one block.
    pub(crate) fn read(self, block: &[u8]) -> (f32, &[u8]) {
        match self {
            Self::Q8_0 => {
                let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
                (scale, &block[SCALE_Q8_0_BYTES..])
            }
            Self::Q8K => {
                let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
                (scale, &block[CODES_Q8K..][..256])
            }
        }
    }
}

/// Scale `largest / 127`, rounded to binary16 only where it is stored; codes are the values times
/// the reciprocal of the unrounded scale, halves away from zero.
fn q8_0(values: &[f32], bytes: &mut Vec<u8>) {
    let largest = furthest(values).abs();
    let scale = largest / CODE_MAX;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    bytes.extend(f16_from_f32(scale).to_le_bytes());
    bytes.extend(values.iter().map(|value| code((value * inverse).round())));
}

/// The inverse is `-127 / furthest`, so that the value furthest from zero gets the code -127, and
/// the scale is the inverse's reciprocal, with its sign. Halves go to the even code.
fn q8_k(values: &[f32], bytes: &mut Vec<u8>) {
    let furthest = furthest(values);
    let (scale, inverse) = match furthest {
        0.0 => (0.0, 0.0),
        _ => {
            let inverse = -CODE_MAX / furthest;
            (1.0 / inverse, inverse)
        }
    };
    let codes = values.iter();
    let codes = codes.map(|value| code((inverse * value).round_ties_even()));
    let codes: Vec<u8> = codes.collect();
    let sums = codes.chunks_exact(codes.len() / SUMS).map(|codes| {
        let codes = codes.iter().map(|code| i16::from(code.cast_signed()));
        codes.sum::<i16>()
    });
    bytes.extend(scale.to_le_bytes());
    bytes.extend(&codes);
    bytes.extend(sums.flat_map(i16::to_le_bytes));
}

/// The first of the values that are furthest from zero.
fn furthest(values: &[f32]) -> f32 {
    let further = |furthest: f32, value: &f32| match value.abs() > furthest.abs() {
        true => *value,
        false => furthest,
    };
    values.iter().fold(0.0, further)
}

/// An integer of at most 127 as a signed byte.
fn code(integer: f32) -> u8 {
    (integer as i8).cast_unsigned()
}

const CODE_MAX: f32 = 127.0;
/// Bytes of the scale before the codes of `Q8_0`.
const SCALE_Q8_0_BYTES: usize = 2;
/// Where the codes of `Q8_K` begin.
const CODES_Q8K: usize = 4;
/// Sums of codes in a block of `Q8_K`.
const SUMS: usize = 16;

const _: () = assert!(Activations::Q8_0.block_bytes() == 34);
const _: () = assert!(Activations::Q8K.block_bytes() == 292);
