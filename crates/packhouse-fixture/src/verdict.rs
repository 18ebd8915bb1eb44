//! Verdicts, row by row: what a kernel made against what it must make, under a tolerance.
//!
//! - A row is all of the innermost extent at one index of the others, in their order; a tensor of
//!   one extent is one row.
//! - One bad row fails, however good the others are: errors are never averaged over rows.
//! - A NaN equals only the same NaN; under every tolerance an infinity or NaN passes only where the
//!   same bits are expected.
//! - The two zeros differ under `BitEqual` and are one ULP apart.
//! - Nothing to judge is no verdict, and never a pass.

use crate::half::{bf16_to_f64, f16_to_f64};
use crate::{EdgeRow, Limit, Tensor};
use packhouse_base::Blame;
use packhouse_component::Dtype;

/// What became of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowVerdict {
    /// Its index, counted over all extents but the innermost.
    pub row: u64,
    /// What is special about it, where an edge row says so.
    pub label: Option<String>,
    /// Whether it is within the tolerance.
    pub passed: bool,
    /// Elements that were compared.
    pub elements: u64,
    /// Elements with other bits than expected.
    pub different: u64,
    /// The element furthest from what is expected, one that fails first; none where all bits are
    /// equal.
    pub worst: Option<Worst>,
}

/// The element of a row that is furthest from what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worst {
    /// Its index within the row.
    pub column: u64,
    /// What is special about the column, where an edge row of the weights says so.
    pub label: Option<String>,
    /// The bits that are expected.
    pub expected: u32,
    /// The bits that are there.
    pub actual: u32,
    /// Representable values between the two; none for integers, infinities and NaNs.
    pub ulps: Option<u64>,
    /// The bits of its own bound, a binary32, where each element has one.
    pub bound: Option<u32>,
}

/// Why nothing was judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unjudged {
    /// There is nothing to compare.
    #[error("nothing is expected of {boundary}: its tensor is empty")]
    Empty {
        /// The boundary.
        boundary: String,
    },
    /// The kernel gave no such boundary, or the fixture has no tensor for it.
    #[error("there is nothing of {boundary}")]
    Missing {
        /// The boundary.
        boundary: String,
    },
    /// The kernel gave a boundary more than once.
    #[error("{boundary} is there more than once")]
    Twice {
        /// The boundary.
        boundary: String,
    },
    /// The kernel gave a boundary that the fixture doesn't have.
    #[error("the fixture has no boundary {boundary}")]
    Undeclared {
        /// The boundary.
        boundary: String,
    },
    /// The bytes of the expected tensor or of its bounds are not what its shape says.
    #[error("the expected tensor of {boundary} has {actual} bytes, its shape says {expected}")]
    Malformed {
        /// The boundary.
        boundary: String,
        /// Bytes by the shape.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// The kernel gave another number of bytes.
    #[error("{boundary} has {actual} bytes, expected {expected}")]
    Length {
        /// The boundary.
        boundary: String,
        /// Bytes expected.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// The tolerance means nothing for this element type.
    #[error("{boundary} is {dtype}, which has only bit-equality")]
    Inapplicable {
        /// The boundary.
        boundary: String,
        /// Its type.
        dtype: &'static str,
    },
}

impl Unjudged {
    /// Whose side it is on: the kernel's caller gave other bytes, or a fixture is no fixture.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Length { .. }
            | Self::Missing { .. }
            | Self::Twice { .. }
            | Self::Undeclared { .. } => Blame::Caller,
            Self::Empty { .. } | Self::Malformed { .. } | Self::Inapplicable { .. } => Blame::Bug,
        }
    }
}

/// Judges one boundary: a verdict for every row, in their order.
///
/// Edge rows `of` the boundary's name label rows; those of `weights` label columns of `output`.
///
/// # Errors
/// When there is nothing to compare, when the lengths differ, or when the tolerance means nothing
/// for the type.
pub fn judge(
    boundary: &str,
    expected: &Tensor,
    edge_rows: &[EdgeRow],
    limit: Limit<'_>,
    actual: &[u8],
) -> Result<Vec<RowVerdict>, Unjudged> {
    let shape = Rows::of(boundary, expected)?;
    if expected.bytes.len() != actual.len() {
        return Err(Unjudged::Length {
            boundary: boundary.to_owned(),
            expected: bytes(expected.bytes.len()),
            actual: bytes(actual.len()),
        });
    }
    let is_float = match expected.dtype {
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 => true,
        Dtype::U8 | Dtype::I8 | Dtype::I32 => false,
    };
    if !is_float && limit != Limit::BitEqual {
        return Err(Unjudged::Inapplicable {
            boundary: boundary.to_owned(),
            dtype: expected.dtype.id(),
        });
    }
    let bounds = bounds(boundary, expected, limit)?;
    let label = |of: &str, row: u64| {
        let found = edge_rows
            .iter()
            .find(|edge| edge.of == of && edge.row == row);
        found.map(|edge| edge.label.clone())
    };
    let rows = expected.bytes.chunks_exact(shape.row_bytes);
    let rows = rows.zip(actual.chunks_exact(shape.row_bytes));
    let verdicts = rows.zip(0_u64..).map(|((expected_row, actual_row), row)| {
        let columns = shape.row_bytes / width_of(expected.dtype);
        let bounds = bounds.chunks_exact(4 * columns).nth(in_memory(row));
        let elements = elements(
            expected.dtype,
            expected_row,
            actual_row,
            bounds.unwrap_or(&[]),
        );
        let mut verdict = judge_row(limit, &elements);
        verdict.row = row;
        verdict.label = label(boundary, row);
        if let Some(worst) = &mut verdict.worst
            && boundary == "output"
        {
            worst.label = label("weights", worst.column);
        }
        verdict
    });
    Ok(verdicts.collect())
}

/// The bytes of the bounds of a limit that has any: of the expected tensor's shape, binary32.
fn bounds<'f>(boundary: &str, expected: &Tensor, limit: Limit<'f>) -> Result<&'f [u8], Unjudged> {
    let Limit::Within { bounds } = limit else {
        return Ok(&[]);
    };
    let all = bytes(expected.bytes.len()) / expected.dtype.bytes() * 4;
    let there = bytes(bounds.bytes.len());
    if bounds.dtype == Dtype::F32 && bounds.shape == expected.shape && there == all {
        return Ok(&bounds.bytes);
    }
    Err(Unjudged::Malformed {
        boundary: boundary.to_owned(),
        expected: all,
        actual: there,
    })
}

/// How a tensor falls into rows.
struct Rows {
    row_bytes: usize,
}

impl Rows {
    fn of(boundary: &str, expected: &Tensor) -> Result<Self, Unjudged> {
        let mut extents = expected.shape.iter().copied();
        let count = extents.try_fold(1_u64, u64::checked_mul);
        let said = count.and_then(|all| all.checked_mul(expected.dtype.bytes()));
        let there = bytes(expected.bytes.len());
        if said != Some(there) {
            return Err(Unjudged::Malformed {
                boundary: boundary.to_owned(),
                expected: said.unwrap_or(u64::MAX),
                actual: there,
            });
        }
        if there == 0 || expected.shape.is_empty() {
            return Err(Unjudged::Empty {
                boundary: boundary.to_owned(),
            });
        }
        let row_count = match expected.shape.as_slice() {
            [] | [_] => 1,
            [rows @ .., _] => rows.iter().product(),
        };
        let row_bytes =
            usize::try_from(there / row_count).expect("because the tensor is in memory");
        Ok(Self { row_bytes })
    }
}

fn elements(dtype: Dtype, expected: &[u8], actual: &[u8], bounds: &[u8]) -> Vec<Element> {
    let width = width_of(dtype);
    let pairs = expected.chunks_exact(width).zip(actual.chunks_exact(width));
    let bounds = bounds.chunks_exact(4).map(|bound| Some(bits(bound)));
    let pairs = pairs.zip(bounds.chain(std::iter::repeat(None)));
    let elements = pairs.map(|((expected, actual), bound)| Element {
        dtype,
        expected: bits(expected),
        actual: bits(actual),
        bound,
    });
    elements.collect()
}

fn judge_row(limit: Limit<'_>, elements: &[Element]) -> RowVerdict {
    let different = elements.iter().filter(|element| !element.is_equal());
    let passes = |element: &Element| match limit {
        Limit::BitEqual => element.is_equal(),
        Limit::Ulp { max } => element.badness() <= u64::from(max),
        Limit::Within { .. } => element.is_within(),
    };
    let worst = elements
        .iter()
        .zip(0_u64..)
        .filter(|(element, _)| !element.is_equal());
    // The first of the furthest.
    let worst = worst.max_by_key(|(element, column)| {
        let fails = !passes(element);
        (fails, element.badness(), u64::MAX - column)
    });
    RowVerdict {
        row: 0,
        label: None,
        passed: elements.iter().all(passes),
        elements: bytes(elements.len()),
        different: bytes(different.count()),
        worst: worst.map(|(element, column)| Worst {
            column,
            label: None,
            expected: element.expected,
            actual: element.actual,
            ulps: element.ulps(),
            bound: element.bound,
        }),
    }
}

/// One element, expected and actual.
struct Element {
    dtype: Dtype,
    expected: u32,
    actual: u32,
    bound: Option<u32>,
}

impl Element {
    fn is_equal(&self) -> bool {
        self.expected == self.actual
    }

    /// Whether it is the same bits, or both are finite and their distance in binary64 is within the
    /// element's bound. A bound that is no number is kept by nothing.
    fn is_within(&self) -> bool {
        let (expected, actual) = (self.value(self.expected), self.value(self.actual));
        let bound = self
            .bound
            .map_or(f64::NAN, |bits| f64::from(f32::from_bits(bits)));
        let is_finite = expected.is_finite() && actual.is_finite();
        self.is_equal() || is_finite && (actual - expected).abs() <= bound
    }

    /// How far off it is, to find the worst: beyond every distance where there is none.
    fn badness(&self) -> u64 {
        if self.is_equal() {
            return 0;
        }
        self.ulps().unwrap_or(u64::MAX)
    }

    /// Representable values from one to the other; none where one is an infinity or a NaN, and for
    /// integers.
    fn ulps(&self) -> Option<u64> {
        let sign = match self.dtype {
            Dtype::U8 | Dtype::I8 | Dtype::I32 => return None,
            Dtype::F16 | Dtype::Bf16 => 15,
            Dtype::F32 => 31,
        };
        let ordered = |bits: u32| {
            let is_finite = self.value(bits).is_finite();
            let magnitude = i64::from(bits & ((1 << sign) - 1));
            let ordered = if bits >> sign == 1 {
                -1 - magnitude
            } else {
                magnitude
            };
            is_finite.then_some(ordered)
        };
        Some(ordered(self.expected)?.abs_diff(ordered(self.actual)?))
    }

    fn value(&self, bits: u32) -> f64 {
        let half = || u16::try_from(bits).expect("because two bytes were read");
        match self.dtype {
            Dtype::U8 | Dtype::I8 | Dtype::I32 => f64::from(bits),
            Dtype::F16 => f16_to_f64(half()),
            Dtype::Bf16 => bf16_to_f64(half()),
            Dtype::F32 => f64::from(f32::from_bits(bits)),
        }
    }
}

fn bits(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |bits, byte| bits << 8 | u32::from(*byte))
}

/// Bytes of an element.
fn width_of(dtype: Dtype) -> usize {
    usize::try_from(dtype.bytes()).expect("because it is 4 at most")
}

/// An index into something that lies in memory.
fn in_memory(index: u64) -> usize {
    usize::try_from(index).expect("because it indexes what is in memory")
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).expect("because a usize has 64 bits at most")
}
