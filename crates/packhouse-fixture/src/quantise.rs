//! Quantisers of the published recipe, in binary64, as CPython computes them.
//!
//! These are not what ggml's own quantisers do: its Q4_0 divides the signed maximum by -8. What a
//! kernel is given are blocks, and any block is a good one.

use crate::half::{f16_from_f64, f16_to_f64};

/// A row-major run of values as blocks, and what the blocks say as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The blocks.
    pub bytes: Vec<u8>,
    /// The scale of each block as it was stored.
    pub scales: Vec<f64>,
    /// The code of each value.
    pub codes: Vec<i8>,
}

/// Bytes of a Q4_0 block: a binary16 scale, 16 bytes of two codes each.
pub const Q4_0_BYTES: u64 = 18;

/// Bytes of a Q8_1 block: a binary16 scale, the binary16 product of scale and sum, 32 codes.
pub const Q8_1_BYTES: u64 = 36;

/// Quantises to Q4_0: `d = max|v| / 7`, 1 where all are zero; codes `v / d` rounded to nearest even
/// with the unrounded `d`, between -8 and 7; low nibbles are the first 16 of a block, plus 8.
///
/// `values` are whole blocks of 32.
pub fn q4_0(values: &[f64]) -> Quantised {
    quantised(values, 7.0, (-8.0, 7.0), |scale, codes, bytes| {
        bytes.extend(scale.to_le_bytes());
        let (low, high) = codes.split_at(16);
        let nibble = |code: i8| (code + 8).cast_unsigned();
        let pairs = low.iter().zip(high);
        bytes.extend(pairs.map(|(low, high)| nibble(*low) | nibble(*high) << 4));
    })
}

/// Quantises to Q8_1: `d = max|v| / 127`, 1 where all are zero; codes `v / d` rounded to nearest
/// even with the unrounded `d`, between -128 and 127; the second half is the stored `d` times the
/// sum of the codes.
///
/// `values` are whole blocks of 32.
pub fn q8_1(values: &[f64]) -> Quantised {
    quantised(values, 127.0, (-128.0, 127.0), |scale, codes, bytes| {
        let sum: i32 = codes.iter().map(|code| i32::from(*code)).sum();
        let product = f16_from_f64(f16_to_f64(scale) * f64::from(sum));
        bytes.extend(scale.to_le_bytes());
        bytes.extend(product.to_le_bytes());
        bytes.extend(codes.iter().map(|code| code.cast_unsigned()));
    })
}

fn quantised(
    values: &[f64],
    steps: f64,
    (least, most): (f64, f64),
    write: fn(u16, &[i8], &mut Vec<u8>),
) -> Quantised {
    let (blocks, rest) = values.as_chunks::<32>();
    assert!(rest.is_empty(), "whole blocks of 32 values");
    let mut quantised = Quantised {
        bytes: Vec::new(),
        scales: Vec::with_capacity(blocks.len()),
        codes: Vec::with_capacity(values.len()),
    };
    for block in blocks {
        let largest = block
            .iter()
            .fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let step = if largest == 0.0 { 1.0 } else { largest / steps };
        let code = |value: &f64| {
            let code = (value / step).round_ties_even().clamp(least, most);
            #[expect(clippy::cast_possible_truncation, reason = "an integer of eight bits")]
            let code = code as i8;
            code
        };
        let codes: Vec<i8> = block.iter().map(code).collect();
        let scale = f16_from_f64(step);
        write(scale, &codes, &mut quantised.bytes);
        quantised.scales.push(f16_to_f64(scale));
        quantised.codes.extend(codes);
    }
    quantised
}
