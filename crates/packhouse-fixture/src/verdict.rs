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
use crate::{EdgeRow, Tensor, Tolerance};
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
    /// The element furthest from what is expected; none where all bits are equal.
    pub worst: Option<Worst>,
    /// For `Nmse`: the smallest power of two that the row's error does not exceed, as its
    /// exponent; none where the error is zero or not a number.
    pub nmse_log2: Option<i32>,
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
    /// The expected tensor's bytes are not what its shape says.
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
    tolerance: Tolerance,
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
    if !is_float && tolerance != Tolerance::BitEqual {
        return Err(Unjudged::Inapplicable {
            boundary: boundary.to_owned(),
            dtype: expected.dtype.id(),
        });
    }
    let label = |of: &str, row: u64| {
        let found = edge_rows
            .iter()
            .find(|edge| edge.of == of && edge.row == row);
        found.map(|edge| edge.label.clone())
    };
    let rows = expected.bytes.chunks_exact(shape.row_bytes);
    let rows = rows.zip(actual.chunks_exact(shape.row_bytes));
    let verdicts = rows.zip(0_u64..).map(|((expected_row, actual_row), row)| {
        let mut verdict = judge_row(expected.dtype, tolerance, expected_row, actual_row);
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

fn judge_row(dtype: Dtype, tolerance: Tolerance, expected: &[u8], actual: &[u8]) -> RowVerdict {
    let width = usize::try_from(dtype.bytes()).expect("because it is 4 at most");
    let pairs = expected.chunks_exact(width).zip(actual.chunks_exact(width));
    let elements = pairs.map(|(expected, actual)| Element {
        dtype,
        expected: bits(expected),
        actual: bits(actual),
    });
    let elements: Vec<Element> = elements.collect();
    let different = elements.iter().filter(|element| !element.is_equal());
    let worst = elements
        .iter()
        .zip(0_u64..)
        .filter(|(element, _)| !element.is_equal());
    // The first of the furthest.
    let worst = worst.max_by_key(|(element, column)| (element.badness(), u64::MAX - column));
    let (passed, nmse_log2) = match tolerance {
        Tolerance::BitEqual => (elements.iter().all(Element::is_equal), None),
        Tolerance::Ulp { max } => {
            let is_near = |element: &Element| element.badness() <= u64::from(max);
            (elements.iter().all(is_near), None)
        }
        Tolerance::Nmse { max_log2 } => nmse(&elements, max_log2),
    };
    RowVerdict {
        row: 0,
        label: None,
        passed,
        elements: bytes(elements.len()),
        different: bytes(different.count()),
        worst: worst.map(|(element, column)| Worst {
            column,
            label: None,
            expected: element.expected,
            actual: element.actual,
            ulps: element.ulps(),
        }),
        nmse_log2,
    }
}

/// Whether a row's squared error is within `2^max_log2` of its squared size, and the exponent of
/// the smallest power of two that is enough. Sums in binary64, in the order of the columns; squares
/// of binary32 values neither overflow nor vanish there.
fn nmse(elements: &[Element], max_log2: i32) -> (bool, Option<i32>) {
    let (mut error, mut size) = (0.0_f64, 0.0_f64);
    for element in elements {
        let (expected, actual) = (
            element.value(element.expected),
            element.value(element.actual),
        );
        if expected.is_finite() && actual.is_finite() {
            error += (actual - expected) * (actual - expected);
            size += expected * expected;
        } else if !element.is_equal() {
            return (false, None);
        }
    }
    if error == 0.0 {
        return (true, None);
    }
    if size == 0.0 {
        return (false, None);
    }
    let (mut exponent, ratio) = (0, error / size);
    while power_of_two(exponent) < ratio {
        exponent += 1;
    }
    while power_of_two(exponent - 1) >= ratio && exponent > LEAST_EXPONENT {
        exponent -= 1;
    }
    (error <= size * power_of_two(max_log2), Some(exponent))
}

/// A power of two as binary64; beyond its normal numbers zero or infinity.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        ..=-1023 => 0.0,
        1024.. => f64::INFINITY,
        _ => f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52),
    }
}

/// One element, expected and actual.
struct Element {
    dtype: Dtype,
    expected: u32,
    actual: u32,
}

impl Element {
    fn is_equal(&self) -> bool {
        self.expected == self.actual
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

fn bytes(count: usize) -> u64 {
    u64::try_from(count).expect("because a usize has 64 bits at most")
}

/// Below the smallest ratio of two sums that are not zero.
const LEAST_EXPONENT: i32 = -1022;
