//! The quantiser at every level, value by value: every value that rounding can meet, and values
//! that tell the contract from what looks like it.

use crate::levels;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::quantise_column;
use packhouse_pack::Packers;

/// Columns of all kinds by turns.
pub(crate) fn values(seed: u64, depth: u64, count: u64) -> Vec<f32> {
    let mut stream = SplitMix64::new(seed);
    let mut all = Vec::new();
    for column in 0..count {
        let largest = 1.0 + fraction(stream.next()).abs();
        for place in 0..depth {
            let draw = stream.next();
            all.push(match (column % KINDS, place) {
                (0, _) => fraction(draw),
                (1, _) => f32::from_bits((draw >> 32) as u32),
                // Exact halves: the largest value makes the inverse 1.
                (2, 0) => -127.0,
                (2, _) => half(draw),
                (3, _) => fraction(draw) * 1e-12,
                (4, 1..) if draw.is_multiple_of(7) => f32::NAN,
                (4, _) => fraction(draw) * f32::MAX,
                // Beside halves, where other ways to scale give other codes.
                (5, 0) => largest,
                (5, _) => beside(half(draw) / (127.0 / largest), draw),
                (6, _) if draw & 1 == 1 => f32::INFINITY,
                (6, _) => f32::from_bits((draw >> 32) as u32 & 0x807f_ffff),
                (_, _) => -0.0,
            });
        }
    }
    all
}

const KINDS: u64 = 8;

/// A multiple of 2^-23 from -1 to below 1.
fn fraction(draw: u64) -> f32 {
    (draw >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// A half from -126.5 to 126.5.
fn half(draw: u64) -> f32 {
    ((draw >> 32) % 254) as f32 - 126.5
}

/// The value, or one beside it on either side.
fn beside(value: f32, draw: u64) -> f32 {
    f32::from_bits(value.to_bits() + (draw % 3) as u32 - 1)
}

type Quantise = fn(&[f32], &mut [i8]) -> f32;

/// Quantisers that are wrong in one thing each.
const MUTANTS: [(&str, Quantise); 9] = [
    ("halves to even", |values, codes| {
        by(values, codes, |value, inverse| {
            (value * inverse).round_ties_even()
        })
    }),
    ("halves up", |values, codes| {
        by(values, codes, |value, inverse| {
            (value * inverse + 0.5).floor()
        })
    }),
    ("0.5 added and cut off", |values, codes| {
        by(values, codes, |value, inverse| {
            let scaled = value * inverse;
            (scaled + 0.5f32.copysign(scaled)).trunc()
        })
    }),
    ("cut off", |values, codes| {
        by(values, codes, |value, inverse| (value * inverse).trunc())
    }),
    ("divided by the scale", |values, codes| {
        let scale = scale(largest(values));
        by(values, codes, |value, _| (value / scale).round())
    }),
    ("by the reciprocal of the scale", |values, codes| {
        let reciprocal = 1.0 / scale(largest(values));
        by(values, codes, |value, _| (value * reciprocal).round())
    }),
    ("in f64", |values, codes| {
        let largest = f64::from(largest(values));
        by(values, codes, |value, _| {
            (f64::from(value) * (127.0 / largest)).round() as f32
        })
    }),
    ("from -128", |values, codes| {
        let scale = by(values, codes, |value, inverse| (value * inverse).round());
        for (value, code) in values.iter().zip(codes) {
            *code -= i8::from(*code == -127 && *value == -largest(values));
        }
        scale
    }),
    ("not a number among the largest", |values, codes| {
        let scale = by(values, codes, |value, inverse| (value * inverse).round());
        let is_number = values.iter().all(|value| !value.is_nan());
        if is_number { scale } else { f32::NAN }
    }),
];

fn largest(values: &[f32]) -> f32 {
    let finite = values.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0f32, |most, value| most.max(value.abs()));
    if largest < 1e-12 { 1.0 } else { largest }
}

fn scale(largest: f32) -> f32 {
    largest / 127.0
}

/// The contract, but for how a value and the inverse become a whole number.
fn by(values: &[f32], codes: &mut [i8], whole: impl Fn(f32, f32) -> f32) -> f32 {
    let largest = largest(values);
    for (value, code) in values.iter().zip(codes) {
        let value = if value.is_finite() { *value } else { 0.0 };
        *code = whole(value, 127.0 / largest).clamp(-127.0, 127.0) as i8;
    }
    scale(largest)
}

fn quantised(quantise: impl Fn(&[f32], &mut [i8]) -> f32, column: &[f32]) -> (u32, Vec<i8>) {
    let mut codes = vec![0x55; column.len()];
    let scale = quantise(column, &mut codes);
    (scale.to_bits(), codes)
}

#[test]
fn the_values_tell_each_mutant_from_the_contract_and_no_level() {
    let depth = 301;
    let values = values(3, depth as u64, 16 * KINDS);
    let columns = || values.chunks_exact(depth);
    let right = |column: &&[f32]| quantised(quantise_column, column);
    let contract = |values: &[f32], codes: &mut [i8]| {
        by(values, codes, |value, inverse| (value * inverse).round())
    };
    assert!(columns().all(|column| quantised(contract, column) == right(&column)));
    for (name, mutant) in MUTANTS {
        let differs = columns().any(|column| quantised(mutant, column) != right(&column));
        assert!(differs, "nothing tells the contract from {name}");
    }
    for packers in levels() {
        for column in columns() {
            let packed = quantised(|v, c| packers.pack_column(v, c), column);
            assert!(packed == right(&column), "{}", packers.level().name());
        }
    }
}

/// 127 makes the inverse 1, so each value is rounded as it is. Beyond 127 there is none to be
/// rounded, since the largest value has code 127. Values below 0.25 are taken a few of many: the
/// sum of a value and the one below 0.5 grows with the value, and is below 1 for the greatest of
/// these.
#[test]
fn every_value_is_rounded_as_the_standard_library_rounds() {
    let (first, last) = (0.25f32.to_bits(), 127.0f32.to_bits());
    let mut rounding = Rounding::new();
    for sign in [0, 1 << 31] {
        for start in (first..=last).step_by(Rounding::LENGTH) {
            rounding.assert(|offset| sign | (start + offset).min(last));
        }
        for start in (0..first).step_by(64 * Rounding::LENGTH) {
            rounding.assert(|offset| sign | (start + offset * 64).min(first));
        }
    }
}

/// A column whose last value makes the inverse 1.
struct Rounding {
    levels: Vec<Packers>,
    values: Vec<f32>,
    rounded: Vec<i8>,
    codes: Vec<i8>,
}

impl Rounding {
    const LENGTH: usize = 1 << 16;

    fn new() -> Self {
        Self {
            levels: levels(),
            values: vec![127.0; Self::LENGTH + 1],
            rounded: vec![127; Self::LENGTH + 1],
            codes: vec![0; Self::LENGTH + 1],
        }
    }

    /// Compares the codes of the values of some bits.
    fn assert(&mut self, bits: impl Fn(u32) -> u32) {
        let places = self.values.iter_mut().zip(&mut self.rounded);
        for (offset, (value, rounded)) in (0..Self::LENGTH as u32).zip(places) {
            *value = f32::from_bits(bits(offset));
            *rounded = value.round() as i8;
        }
        for packers in &self.levels {
            let scale = packers.pack_column(&self.values, &mut self.codes);
            assert_eq!(scale.to_bits(), 1.0f32.to_bits());
            let level = packers.level().name();
            assert!(self.codes == self.rounded, "{level}: {:?}", self.wrong());
        }
    }

    fn wrong(&self) -> Option<(f32, i8)> {
        let codes = self.codes.iter().zip(&self.rounded);
        let mut places = self.values.iter().zip(codes);
        let wrong = places.find(|(_, (code, rounded))| code != rounded);
        wrong.map(|(value, (code, _))| (*value, *code))
    }
}

/// Largest values where the divisions end: where one counts as none, and at the ends of f32.
#[test]
fn every_level_has_the_judges_scale_at_the_ends_of_its_range() {
    let least = 1e-12f32.to_bits();
    let ends = [0, 1, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x3f80_0000];
    let largest = (least - 2..least + 3).chain(ends).map(f32::from_bits);
    for largest in largest {
        for sign in [1.0f32, -1.0] {
            let factors = [1.0f32, 0.5, -0.25, 0.003_937_008, 0.0, 0.996, -0.999_999_94];
            let column = factors.map(|factor| factor * largest * sign);
            let right = quantised(quantise_column, &column);
            for packers in levels() {
                let packed = quantised(|v, c| packers.pack_column(v, c), &column);
                assert_eq!(packed, right, "{column:?} {}", packers.level().name());
            }
        }
    }
}

/// A host may have told the CPU to take subnormals for zeros: their codes are those of zeros.
#[test]
fn subnormals_have_the_codes_and_scales_of_zeros() {
    let depth = 199;
    let values = values(11, depth as u64, 20 * KINDS);
    let flushed = |value: &f32| if value.is_subnormal() { 0.0 } else { *value };
    let count = values.iter().filter(|value| value.is_subnormal()).count();
    assert!(count > 1000, "{count}");
    for column in values.chunks_exact(depth) {
        let zeros: Vec<_> = column.iter().map(flushed).collect();
        for packers in levels() {
            let pack = |column| quantised(|v, c| packers.pack_column(v, c), column);
            assert!(pack(column) == pack(&zeros), "{}", packers.level().name());
        }
    }
}

#[test]
fn a_column_without_values_has_the_scale_of_zeros() {
    for packers in levels() {
        let scale = packers.pack_column(&[], &mut []);
        assert_eq!(scale.to_bits(), 0x3c01_0204, "{}", packers.level().name());
    }
}

#[test]
#[should_panic(expected = "codes of a column")]
fn a_column_of_another_length_is_not_packed() {
    Packers::detect().pack_column(&[1.0; 65], &mut [0; 64]);
}
