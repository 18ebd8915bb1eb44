//! Kernels of an lm-head in int8 tiles, straight from the payload of all tiles: `int8-tile-rm-v1`
//! and `int8-tile-b8-v1`.
//!
//! Sums are exact integers; each is rounded to binary32 once, and its two factors follow in a fixed
//! order, so both layouts of one head give the same bits. Specified in `docs/format/kernels.md`,
//! section 6.

use crate::{Inputs, Kernel, KernelError, Output};

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[
    &Head {
        id: "head-int8-tile-rm",
        fixtures: &["head-int8-tile-rm-v1"],
        order: Order::RowMajor,
    },
    &Head {
        id: "head-int8-tile-b8",
        fixtures: &["head-int8-tile-b8-v1"],
        order: Order::Blocked,
    },
];

/// The order of a tile's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Depth row after depth row.
    RowMajor,
    /// Blocks of 64 by 128 codes, made of microtiles of 8 by 8.
    Blocked,
}

/// Multiplies rows of activations with a head in one order.
struct Head {
    id: &'static str,
    fixtures: &'static [&'static str],
    order: Order,
}

impl Kernel for Head {
    fn id(&self) -> &'static str {
        self.id
    }

    fn fixtures(&self) -> &'static [&'static str] {
        self.fixtures
    }

    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError> {
        let case = Case::of(self.order, inputs)?;
        let bytes = |floats: Vec<f32>| floats.into_iter().flat_map(f32::to_le_bytes).collect();
        let outputs = [
            (CODES, case.codes().collect()),
            (SCALES, bytes(case.scales().collect())),
            (OUTPUT, bytes(case.each_output(product))),
        ];
        let outputs = outputs.map(|(boundary, bytes)| Output {
            boundary: boundary.to_owned(),
            bytes,
        });
        Ok(outputs.into())
    }
}

/// What an output is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Term {
    /// Codes times codes.
    pub(crate) sum: i32,
    /// The factor of the activations' row.
    pub(crate) activation_scale: f32,
    /// The factor of the head's column.
    pub(crate) column_scale: f32,
}

/// The sum as binary32, times the row's factor, times the column's.
pub(crate) fn product(term: &Term) -> f32 {
    (term.sum as f32 * term.activation_scale) * term.column_scale
}

/// One case, its inputs of the lengths that the parameters say.
pub(crate) struct Case<'a> {
    order: Order,
    sizes: Sizes,
    /// The tiles, one after the other: codes, then scales.
    tiles: &'a [u8],
    rows: Vec<Row>,
}

/// A row of activations.
struct Row {
    scale: f32,
    codes: Vec<i8>,
}

impl<'a> Case<'a> {
    /// Judges the lengths and quantises the activations.
    pub(crate) fn of(order: Order, inputs: &Inputs<'a>) -> Result<Self, KernelError> {
        let sizes = Sizes::of(order, inputs)?;
        let Sizes { k, n, kd, nd, t } = sizes;
        let tile_bytes = kd.saturating_mul(nd).saturating_add(nd.saturating_mul(4));
        let tiles = inputs.bytes("weights", n.div_ceil(t).saturating_mul(tile_bytes))?;
        let values = inputs.floats("input", inputs.width.saturating_mul(k))?;
        let rows = values.chunks_exact(in_memory(k)).map(Row::of).collect();
        Ok(Self {
            order,
            sizes,
            tiles,
            rows,
        })
    }

    /// The codes of all rows.
    pub(crate) fn codes(&self) -> impl Iterator<Item = u8> {
        let codes = self.rows.iter().flat_map(|row| &row.codes);
        codes.map(|code| code.cast_unsigned())
    }

    /// The scales of all rows.
    pub(crate) fn scales(&self) -> impl Iterator<Item = f32> {
        self.rows.iter().map(|row| row.scale)
    }

    /// Gives what each output is made of to `reduce`; outputs follow each other column by column,
    /// for each row of activations.
    pub(crate) fn each_output<T>(&self, reduce: impl Fn(&Term) -> T) -> Vec<T> {
        let columns: Vec<_> = (0..self.sizes.n)
            .map(|column| self.column(column))
            .collect();
        let outputs = self.rows.iter().flat_map(|row| {
            let reduce = &reduce;
            columns.iter().map(move |(codes, column_scale)| {
                let products = row.codes.iter().zip(codes);
                let products = products.map(|(x, w)| i32::from(*x) * i32::from(*w));
                reduce(&Term {
                    sum: products.sum(),
                    activation_scale: row.scale,
                    column_scale: *column_scale,
                })
            })
        });
        outputs.collect()
    }

    /// The codes down the depth of a column of the head, and its scale.
    fn column(&self, column: u64) -> (Vec<i8>, f32) {
        let Sizes { k, kd, nd, t, .. } = self.sizes;
        let tile = &self.tiles[in_memory(column / t * (kd * nd + 4 * nd))..];
        let j = column % t;
        let codes = (0..k).map(|i| {
            let place = match self.order {
                Order::RowMajor => i * nd + j,
                Order::Blocked => {
                    let block = j / 128 * (kd / 64) + i / 64;
                    let microtile = i % 64 / 8 * 16 + j % 128 / 8;
                    8192 * block + 64 * microtile + i % 8 * 8 + j % 8
                }
            };
            tile[in_memory(place)].cast_signed()
        });
        let scale = &tile[in_memory(kd * nd + 4 * j)..][..4];
        let scale = scale.try_into().expect("because the range has that length");
        (codes.collect(), f32::from_le_bytes(scale))
    }
}

impl Row {
    /// Quantises a row as a head's column is, but that the scale of zeros is 1: the scale is
    /// `largest / 127`, codes are the values times `127 / largest`, halves away from zero.
    fn of(values: &[f32]) -> Self {
        let largest = values
            .iter()
            .fold(0.0f32, |most, value| most.max(value.abs()));
        let (scale, inverse) = match largest {
            0.0 => (1.0, 0.0),
            _ => (largest / CODE_MAX, CODE_MAX / largest),
        };
        let code = |value: &f32| (value * inverse).round().clamp(-CODE_MAX, CODE_MAX) as i8;
        Self {
            scale,
            codes: values.iter().map(code).collect(),
        }
    }
}

/// The sizes of a case.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Activations in a row.
    k: u64,
    /// Columns of the head.
    n: u64,
    /// Depth rows of a tile.
    kd: u64,
    /// Columns of a tile.
    nd: u64,
    /// Columns of the head in a full tile.
    t: u64,
}

impl Sizes {
    fn of(order: Order, inputs: &Inputs<'_>) -> Result<Self, KernelError> {
        let (rows, columns) = match order {
            Order::RowMajor => (1, 1),
            Order::Blocked => (64, 128),
        };
        let kd = inputs.multiple("kd", rows)?;
        let nd = inputs.multiple("nd", columns)?;
        let kpad = at_most(inputs, "kpad", ("kd", kd))?;
        let k = at_most(inputs, "k", ("kpad", kpad))?;
        at_most(inputs, "k", ("the depth whose sums fit 32 bits", DEPTH_MAX))?;
        let t = at_most(inputs, "t", ("nd", nd))?;
        let n = inputs.multiple("n", 1)?;
        Ok(Self { k, n, kd, nd, t })
    }
}

/// A size that must fit another.
fn at_most(inputs: &Inputs<'_>, name: &str, most: (&str, u64)) -> Result<u64, KernelError> {
    let actual = inputs.multiple(name, 1)?;
    if actual > most.1 {
        return Err(KernelError::Size {
            name: name.to_owned(),
            actual,
            expected: format!("at most {}, which is {}", most.0, most.1),
        });
    }
    Ok(actual)
}

/// A length of something that lies in memory.
fn in_memory(length: u64) -> usize {
    usize::try_from(length).expect("because what it measures lies in memory")
}

/// The boundary that holds the activations' codes.
pub(crate) const CODES: &str = "activations";
/// The boundary that holds the activations' scales.
pub(crate) const SCALES: &str = "activation-scales";
/// The boundary that holds the products.
pub(crate) const OUTPUT: &str = "output";

const CODE_MAX: f32 = 127.0;

/// So many products of 127 and -128, the largest that any bytes make, fit 32 bits.
const DEPTH_MAX: u64 = 1 << 17;

const _: () = assert!(DEPTH_MAX * 127 * 128 < 1 << 31);
