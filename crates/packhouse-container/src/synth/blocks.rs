//! Random weights in ggml's block formats (`ggml-common.h` at 0.26.0), made fast: no float
//! arithmetic, no branch per weight. Quants are random bits; scales are random mantissas under a
//! fixed exponent, with a random sign so that the weights' mean is near zero where quants are
//! lopsided.
//!
//! Exponents are chosen so that weights deviate by about 1 / sqrt(width), and so that every f16
//! scale is a normal number for widths up to 2^14.

use super::random::Random;
use packhouse_base::ggml_type::GgmlType;

/// The type of a synthetic model's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// 16-bit brain floats.
    Bf16,
    /// 4 bits, scale per 32.
    Q4_0,
    /// 4 bits, scale and minimum per 32.
    Q4_1,
    /// 8 bits, scale per 32.
    Q8_0,
    /// 2 bits, K blocks of 256.
    Q2K,
    /// 4 bits, K blocks of 256.
    Q4K,
    /// 5 bits, K blocks of 256.
    Q5K,
    /// 6 bits, K blocks of 256.
    Q6K,
    /// 4 bits into a fixed table, scale per 32.
    Iq4Nl,
    /// 4-bit floats, power-of-two scale per 32.
    Mxfp4,
}

impl WeightType {
    /// All types.
    pub const ALL: [Self; 12] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Mxfp4,
    ];

    /// Finds a type by its ggml name, e.g. `Q4_0`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|ty| ty.ggml_type().name() == name)
    }

    /// The ggml type.
    pub fn ggml_type(self) -> GgmlType {
        GgmlType::from_id(self.ids().0).expect("because these ids are current")
    }

    /// The value of `general.file_type` for a model of this type.
    pub const fn file_type(self) -> u32 {
        self.ids().1
    }

    /// ggml type id and llama.cpp's file type id.
    const fn ids(self) -> (u32, u32) {
        match self {
            Self::F32 => (0, 0),
            Self::F16 => (1, 1),
            Self::Bf16 => (30, 32),
            Self::Q4_0 => (2, 2),
            Self::Q4_1 => (3, 3),
            Self::Q8_0 => (8, 7),
            Self::Q2K => (10, 10),
            Self::Q4K => (12, 14),
            Self::Q5K => (13, 16),
            Self::Q6K => (14, 18),
            Self::Iq4Nl => (20, 25),
            Self::Mxfp4 => (39, 38),
        }
    }

    /// Fills whole blocks for a model of this width. Panics when `target` is not whole blocks.
    pub(super) fn fill(self, width: u32, random: &mut Random, target: &mut [u8]) {
        // 2^-small is about 1 / sqrt(width).
        let small = width.max(1).ilog2().div_ceil(2);
        match self {
            Self::F32 => each::<4>(target, |block| {
                let exponent = (F32_BIAS - (small + 1)) << 23;
                let bits = u32::try_from(random.next() >> 32).unwrap_or(0);
                *block = (bits & 0x807f_ffff | exponent).to_le_bytes();
            }),
            Self::F16 => each::<2>(target, |block| *block = scale(random.next(), small + 1)),
            Self::Bf16 => each::<2>(target, |block| {
                let exponent = (F32_BIAS - (small + 1)) << 7;
                let [low, high, ..] = (random.next() & 0x807f | u64::from(exponent)).to_le_bytes();
                *block = [low, high];
            }),
            Self::Q4_0 => each::<18>(target, |block| {
                put(block, 0, &scale(random.next(), small + 3));
                quants(block, 2, 2, random, |bits| bits);
            }),
            Self::Iq4Nl => each::<18>(target, |block| {
                put(block, 0, &scale(random.next(), small + 7));
                quants(block, 2, 2, random, |bits| bits);
            }),
            Self::Q4_1 => each::<20>(target, |block| {
                let draw = random.next();
                put(block, 0, &scale(draw, small + 3));
                put(block, 2, &scale(draw ^ SIGN, small));
                quants(block, 4, 2, random, |bits| bits);
            }),
            Self::Q8_0 => each::<34>(target, |block| {
                put(block, 0, &scale(random.next(), small + 6));
                quants(block, 2, 4, random, signed::<0x40>);
            }),
            Self::Mxfp4 => each::<17>(target, |block| {
                block[0] = u8::try_from(F32_BIAS - small - 2).unwrap_or(0);
                quants(block, 1, 2, random, |bits| bits);
            }),
            Self::Q2K | Self::Q4K | Self::Q5K | Self::Q6K => {
                self.fill_k(small, random, target);
            }
        }
    }

    fn fill_k(self, small: u32, random: &mut Random, target: &mut [u8]) {
        match self {
            Self::Q2K => each::<84>(target, |block| {
                quants(block, 0, 10, random, |bits| bits);
                let draw = random.next();
                put(block, 80, &scale(draw, small + 5));
                put(block, 82, &scale(draw, small + 4));
            }),
            Self::Q4K => each::<144>(target, |block| {
                let draw = random.next();
                put(block, 0, &scale(draw, small + 7));
                put(block, 2, &scale(draw, small + 4));
                // Eight scales and eight minima of 6 bits, kept below 16.
                quants(block, 4, 1, random, |bits| bits & 0x0f0f_0f0f_0f0f_0f0f);
                quants(block, 12, 16, random, |bits| bits);
                put(block, 136, &random.next().to_le_bytes());
            }),
            Self::Q5K => each::<176>(target, |block| {
                let draw = random.next();
                put(block, 0, &scale(draw, small + 7));
                put(block, 2, &scale(draw, small + 3));
                // As in Q4_K, kept below 8.
                quants(block, 4, 1, random, |bits| bits & 0x0707_0707_0707_0707);
                quants(block, 8, 1, random, |bits| bits & 0x7777_7777_0707_0707);
                quants(block, 16, 20, random, |bits| bits);
            }),
            Self::Q6K => each::<210>(target, |block| {
                quants(block, 0, 24, random, |bits| bits);
                quants(block, 192, 2, random, signed::<0x08>);
                put(block, 208, &scale(random.next(), small + 7));
            }),
            Self::F32
            | Self::F16
            | Self::Bf16
            | Self::Q4_0
            | Self::Q4_1
            | Self::Q8_0
            | Self::Iq4Nl
            | Self::Mxfp4 => {}
        }
    }
}

/// Exponent bias of f32 and of MXFP4's scales.
const F32_BIAS: u32 = 127;
/// Exponent bias of f16.
const F16_BIAS: u32 = 15;
/// The bit of a draw that becomes a scale's sign.
const SIGN: u64 = 0x8000;

fn each<const N: usize>(target: &mut [u8], mut fill: impl FnMut(&mut [u8; N])) {
    let (blocks, rest) = target.as_chunks_mut::<N>();
    assert!(rest.is_empty(), "a target of whole blocks");
    blocks.iter_mut().for_each(&mut fill);
}

/// An f16 from 2^-small up to twice that, with the draw's sign and mantissa.
#[inline]
fn scale(draw: u64, small: u32) -> [u8; 2] {
    let exponent = F16_BIAS.saturating_sub(small).max(1) << 10;
    let [low, high, ..] = (draw & 0x83ff | u64::from(exponent)).to_le_bytes();
    [low, high]
}

/// Turns each byte into a signed number from -HALF to HALF - 1, for a HALF that is a power of two.
#[inline]
fn signed<const HALF: u64>(bits: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // With the top bit set in each byte, the subtraction can't borrow from the next one.
    let low = bits & (ONES * (2 * HALF - 1));
    ((low | (ONES * 0x80)) - ONES * HALF) ^ (ONES * 0x80)
}

/// Writes `words` draws of eight bytes from `start`.
#[inline]
fn quants<const N: usize>(
    block: &mut [u8; N],
    start: usize,
    words: usize,
    random: &mut Random,
    shape: impl Fn(u64) -> u64,
) {
    let (chunks, _) = block[start..start + words * 8].as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = shape(random.next()).to_le_bytes();
    }
}

#[inline]
fn put<const N: usize>(block: &mut [u8; N], start: usize, bytes: &[u8]) {
    block[start..start + bytes.len()].copy_from_slice(bytes);
}
