//! The rotation table: YaRN's cosines and sines, made by integers alone and rounded once.
//!
//! Specified in `docs/format/kernels.md`, section 7. Fixed point with [`BITS`] fraction bits;
//! roots, products and Taylor series leave an error below 2^-40, and a test in another language,
//! with 100 digits, finds every element rounded rightly. So no CPU's and no library's cosine takes
//! part.
//!
//! Source of the formulas: Peng and others 2023, "YaRN: Efficient Context Window Extension of Large
//! Language Models", section 3.2 and 3.4, with the usual `beta_fast` 32 and `beta_slow` 1.

/// Pairs of a row.
pub(super) const PAIRS: usize = 16;

/// The base of the frequencies.
pub(super) const BASE: u64 = 1_000_000;

/// How many times the context is longer than the one that the model was first made for, 32,768.
pub(super) const FACTOR: u64 = 4;

/// First pair whose frequency is lowered at all, and first that is lowered by the whole factor:
/// `floor` and `ceil` of `32 ln(32768 / (2 pi b)) / (2 ln BASE)` for b = 32 and b = 1.
pub(super) const RAMP: [u64; 2] = [5, 10];

/// Rows of `2 * PAIRS` bfloat16 elements, position 0 first: all cosines, then all sines, each times
/// YaRN's attention factor `0.1 ln FACTOR + 1`.
pub(super) fn rows(positions: u64) -> Vec<u16> {
    let frequencies = frequencies();
    let mut rows = Vec::new();
    for position in 0..positions {
        let angles = frequencies.map(|frequency| i128::from(position) * frequency);
        let pairs = angles.map(|angle| cos_sin(reduced(angle)));
        rows.extend(pairs.map(|(cosine, _)| rounded(times(cosine, ATTENTION))));
        rows.extend(pairs.map(|(_, sine)| rounded(times(sine, ATTENTION))));
    }
    rows
}

/// `BASE^(-i / PAIRS)` for each pair, lowered along the ramp to a `FACTOR`th.
fn frequencies() -> [i128; PAIRS] {
    // Four square roots give the sixteenth root, with 53 fraction bits.
    let mut root = u128::from(BASE) << 53;
    for _ in 0..PAIRS.ilog2() {
        root = (root << 53).isqrt();
    }
    let inverse = i128::try_from((1 << (53 + BITS)) / root).expect("because it is below 1");
    let mut power = ONE;
    let [first, last] = RAMP.map(i128::from);
    let factor = i128::from(FACTOR);
    std::array::from_fn(|pair| {
        let along = i128::try_from(pair).expect("because pairs are few");
        let along = along.clamp(first, last) - first;
        let parts = (last - first) * factor;
        let lowered = power * (parts - along * (factor - 1)) / parts;
        power = times(power, inverse);
        lowered
    })
}

/// An angle less whole turns, between minus and plus half a turn.
fn reduced(angle: i128) -> i128 {
    let turns = (angle + TURN / 2).div_euclid(TURN);
    angle - turns * TURN
}

/// Cosine and sine by Taylor's series, for angles of at most half a turn.
fn cos_sin(angle: i128) -> (i128, i128) {
    let (mut cosine, mut sine, mut term) = (0, 0, ONE);
    for n in 0..TERMS {
        match n % 4 {
            0 => cosine += term,
            1 => sine += term,
            2 => cosine -= term,
            _ => sine -= term,
        }
        term = times(term, angle) / (n + 1);
    }
    (cosine, sine)
}

/// A product of fixed-point numbers of at most 16 and 4.
fn times(left: i128, right: i128) -> i128 {
    (left * right) >> BITS
}

/// Bfloat16 bits of a fixed-point number below 2 in magnitude, to nearest even.
fn rounded(value: i128) -> u16 {
    let sign = if value < 0 { 0x8000 } else { 0 };
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return sign;
    }
    let exponent = magnitude.ilog2();
    // Eight significant bits are kept. None of these numbers is as small as 2^-52.
    let dropped = exponent - 7;
    let half = 1 << (dropped - 1);
    let mut kept = magnitude >> dropped;
    let rest = magnitude & ((1 << dropped) - 1);
    if rest > half || (rest == half && kept & 1 == 1) {
        kept += 1;
    }
    let biased = u128::from(127 + exponent - BITS);
    let bits = u16::try_from((biased << 7) + kept - 128).expect("because it is below 2");
    sign | bits
}

/// Fraction bits.
const BITS: u32 = 60;

/// 1.
const ONE: i128 = 1 << BITS;

/// A whole turn, 2 pi, rounded.
const TURN: i128 = 7_244_019_458_077_122_842;

/// `0.1 ln 4 + 1`, rounded.
const ATTENTION: i128 = 1_312_750_362_671_880_172;

/// Terms of the series; the last is below 2^-60.
const TERMS: i128 = 40;
