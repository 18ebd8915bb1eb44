//! The golden head of a tile order: small, of two tiles, and frozen with the layouts' version 1.
//!
//! Its geometry does not follow the one that is asked for, so the fingerprint says nothing of kd,
//! nd, kpad and t; the pack key has them anyway. Of F32 it hits every rule of the quantiser; of
//! other types it is the recipe of `crate::golden`. Specified in `docs/format/layouts.md`,
//! section 8.

use crate::golden::{self, SplitMix64};
use crate::int8_tile::{LARGEST_MIN, TileGeometry, TileOrder, TileSizes, head};
use crate::{Admitted, GoldenWeight};
use packhouse_base::ggml_type::GgmlType;
use std::collections::BTreeMap;

/// The golden head of F32, as columns that a packer can be given.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenHead {
    /// Its geometry.
    pub geometry: TileGeometry,
    /// Its columns.
    pub vocabulary: u64,
    /// Values of a column; less than `kpad`.
    pub width: u64,
    /// The columns one after the other, each `width` long.
    pub values: Vec<f32>,
    /// The same as a tensor; its `fingerprint` is the one of the packer that made its payload.
    pub admitted: Admitted,
}

/// Makes the golden head of F32.
pub fn golden_head(order: TileOrder) -> GoldenHead {
    let f32 = GgmlType::from_name("F32").expect("because F32 is current");
    GoldenHead {
        geometry: geometry(order, WIDTH),
        vocabulary: VOCABULARY,
        width: WIDTH,
        values: values(),
        admitted: admitted(order, f32),
    }
}

/// The golden weight of a type.
pub(crate) fn weight(order: TileOrder, ty: GgmlType) -> GoldenWeight {
    let source = if is_f32(ty) {
        let bytes = values().into_iter().flat_map(f32::to_le_bytes);
        bytes.collect()
    } else {
        golden::weight(ty, VOCABULARY, f16_offsets(ty)).1
    };
    GoldenWeight {
        admitted: admitted(order, ty),
        source,
    }
}

/// The parameters of the golden weight of a type, which its fingerprint has.
pub(crate) fn parameters(order: TileOrder, ty: GgmlType) -> BTreeMap<String, u64> {
    head::parameters_of(&geometry(order, width(ty)))
}

fn admitted(order: TileOrder, ty: GgmlType) -> Admitted {
    let dims = [width(ty), VOCABULARY];
    let admitted = order.layout().admit(ty, &dims, &parameters(order, ty));
    admitted.expect("because the golden geometry holds three blocks of each type")
}

/// Two tiles, the last ragged; room below the columns, below `kpad`, and beside the columns.
fn geometry(order: TileOrder, width: u64) -> TileGeometry {
    let kpad = width + 6;
    let (kd, nd) = match order {
        TileOrder::RowMajor => (kpad + 4, COLUMNS + 7),
        TileOrder::Blocked => ((kpad + 1).next_multiple_of(64), 256),
    };
    let t = COLUMNS;
    let geometry = TileGeometry::new(order, TileSizes { kd, nd, kpad, t });
    geometry.expect("because these sizes fit each other")
}

fn width(ty: GgmlType) -> u64 {
    if is_f32(ty) {
        WIDTH
    } else {
        3 * ty.block_elements()
    }
}

fn is_f32(ty: GgmlType) -> bool {
    ty.name() == "F32"
}

/// Values of a column of the F32 head: more than one block of 64 rows.
const WIDTH: u64 = 77;
/// Columns of a full tile: more than one block of 128 columns, and no multiple of 8.
const COLUMNS: u64 = 150;
/// Columns of the head: 37 are left for the last tile.
const VOCABULARY: u64 = 187;

/// Where the blocks of a type have f16 scales, as far as those are whole 16-bit fields. Source: the
/// block structs of ggml 0.26.0's `ggml-common.h`.
fn f16_offsets(ty: GgmlType) -> &'static [usize] {
    let row = F16_OFFSETS.iter().find(|(name, _)| *name == ty.name());
    row.map_or(&[], |(_, offsets)| offsets)
}

const F16_OFFSETS: [(&str, &[usize]); 24] = [
    ("F16", &[0]),
    ("Q4_0", &[0]),
    ("Q4_1", &[0, 2]),
    ("Q5_0", &[0]),
    ("Q5_1", &[0, 2]),
    ("Q8_0", &[0]),
    ("Q8_1", &[0, 2]),
    ("Q2_K", &[80, 82]),
    ("Q3_K", &[108]),
    ("Q4_K", &[0, 2]),
    ("Q5_K", &[0, 2]),
    ("Q6_K", &[208]),
    ("IQ2_XXS", &[0]),
    ("IQ2_XS", &[0]),
    ("IQ3_XXS", &[0]),
    ("IQ1_S", &[0]),
    ("IQ4_NL", &[0]),
    ("IQ3_S", &[0]),
    ("IQ2_S", &[0]),
    ("IQ4_XS", &[0]),
    ("TQ1_0", &[52]),
    ("TQ2_0", &[64]),
    ("Q1_0", &[0]),
    ("Q2_0", &[0]),
];

/// The F32 columns: one draw per value, and a kind of column by turns.
fn values() -> Vec<f32> {
    let mut stream = SplitMix64::new(VOCABULARY);
    let mut values = Vec::new();
    for column in 0..VOCABULARY {
        let draws: Vec<u64> = (0..WIDTH).map(|_| stream.next()).collect();
        let (kind, turn) = (column % KINDS, column / KINDS);
        let first = draws.first().copied().unwrap_or(0);
        let places = (0u64..).zip(&draws);
        values.extend(places.map(|(place, draw)| value(kind, turn, first, place, *draw)));
    }
    values
}

/// Kinds of columns.
const KINDS: u64 = 12;

/// One value of a column; `first` is the column's first draw.
fn value(kind: u64, turn: u64, first: u64, place: u64, draw: u64) -> f32 {
    let largest = 1.0 + fraction(first).abs();
    let is_odd = turn % 2 == 1;
    match kind {
        // One range of values.
        0 => fraction(draw),
        // Exponents from -32 to 31.
        1 => fraction(draw) * f32::from_bits(((draw & 63) as u32 + 127 - 32) << 23),
        // Exact halves of both signs: 127 is the largest, so the inverse is 1.
        2 if place == 0 => signed(127.0, is_odd),
        2 => half(draw),
        // The largest code of both signs, and what is one bit less.
        3 => match place % 4 {
            0 => largest,
            1 => -largest,
            2 => f32::from_bits(largest.to_bits() - 1),
            _ => fraction(draw) * largest,
        },
        // Beside halves, where 127 / largest and 1 / scale give other codes.
        4 if place == 0 => signed(largest, is_odd),
        4 => moved(half(draw) / (127.0 / largest), draw),
        // Any 32 bits.
        5 => f32::from_bits((draw >> 32) as u32),
        6 => f32::from_bits(F32_EDGES[((turn + place) % 16) as usize]),
        // Zeros of both signs.
        7 => signed(0.0, draw & 1 == 1),
        // The last largest value that counts as none, and the first that counts.
        8 => {
            let largest = f32::from_bits(LARGEST_MIN.to_bits() - u32::from(!is_odd));
            match place {
                0 => largest,
                _ => fraction(draw) * largest,
            }
        }
        // Nothing finite.
        9 => f32::from_bits(F32_NOT_FINITE[(draw % 4) as usize]),
        // Subnormals of both signs.
        10 => f32::from_bits((draw >> 32) as u32 & 0x807f_ffff),
        // The largest finite value.
        _ if place == 0 => signed(f32::MAX, is_odd),
        _ => fraction(draw) * f32::MAX,
    }
}

/// A multiple of 2^-23 from -1 to below 1.
fn fraction(draw: u64) -> f32 {
    ((draw >> 40) as i32 - (1 << 23)) as f32 / (1 << 23) as f32
}

/// A half from -126.5 to 126.5.
fn half(draw: u64) -> f32 {
    ((draw >> 32) % 254) as f32 - 126.5
}

/// The value, or the one beside it on either side.
fn moved(value: f32, draw: u64) -> f32 {
    f32::from_bits(value.to_bits() + (draw % 3) as u32 - 1)
}

fn signed(value: f32, is_negative: bool) -> f32 {
    if is_negative { -value } else { value }
}

/// Zeros of both signs, quiet and signalling NaN, infinities, the smallest and the largest
/// subnormals, the smallest normal, one of both signs, a half, one and a bit, 127 of both signs.
const F32_EDGES: [u32; 16] = [
    0x0000_0000,
    0x8000_0000,
    0x7fc0_0000,
    0xff80_0001,
    0x7f80_0000,
    0xff80_0000,
    0x0000_0001,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x3f80_0001,
    0x42fe_0000,
    0xc2fe_0000,
];

/// A quiet and a signalling NaN, and the infinities.
const F32_NOT_FINITE: [u32; 4] = [0xffc0_0001, 0x7f80_0001, 0x7f80_0000, 0xff80_0000];
