//! Where a tensor that is not as it must be is another one: what a gate's count of rows leaves out
//! and what somebody who mends a kernel asks first. Computed again from a bag and the fixtures'
//! recipes for whoever reads it; no record holds it and nothing is decided by it.

use crate::Prereg;
use crate::analysis::{Analysis, Row};
use crate::evidence::Reading;
use crate::recipes::Recipes;
use crate::schedule::case_of;
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;
use packhouse_component::Dtype;
use packhouse_fixture::half::{bf16_to_f64, f16_to_f64};
use packhouse_fixture::{
    BoundaryVerdict, Limit, Output, RowVerdict, Tensor, Tolerance, Worst, judge, judge_case,
};
use std::fmt;

/// One tensor that is not near enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unequal {
    /// Whose it is: the row of the analysis.
    pub row: Row,
    /// Its elements' type.
    pub dtype: Dtype,
    /// Rows that fail, and all rows.
    pub rows: (u64, u64),
    /// Elements of all rows with other bits than expected, and all elements.
    pub elements: (u64, u64),
    /// The first row that fails.
    pub at_row: u64,
    /// What is special about that row, where the fixture says so.
    pub label: Option<String>,
    /// Its first element with other bits; where a tolerance is given, its furthest one.
    pub at: Worst,
}

/// The first tensors of an analysis that are not equal, at most so many, in its order. One whose
/// bytes or fixture are not here is left out.
pub fn unequal(bag: &Contents, analysis: &Analysis, recipes: &Recipes, max: usize) -> Vec<Unequal> {
    let reading = Reading::of(bag);
    let (Some(prereg), Some(run)) = (&reading.prereg, &reading.run) else {
        return Vec::new();
    };
    let source = Source {
        payload: &reading.payload,
        analysis,
        prereg,
        drawn_from: reading.source().unwrap_or(run.nonce),
        recipes,
    };
    let rows = analysis.rows.iter().filter(|row| !row.equal);
    rows.filter_map(|row| source.found(row)).take(max).collect()
}

struct Source<'a> {
    payload: &'a Contents,
    analysis: &'a Analysis,
    prereg: &'a Prereg,
    drawn_from: Digest,
    recipes: &'a Recipes,
}

impl Source<'_> {
    fn found(&self, row: &Row) -> Option<Unequal> {
        let recipes = self.recipes;
        let made = recipes.repeat(&row.fixture, row.repeat, self.drawn_from)?;
        let case = case_of(&made.fixture, &row.arm, row.width)?;
        let of_case = |one: &&Row| {
            (one.leg, &one.treatment, one.index) == (row.leg, &row.treatment, row.index)
        };
        let outputs = self.analysis.rows.iter().filter(of_case);
        let outputs: Vec<Output> = outputs
            .map(|one| {
                Some(Output {
                    boundary: one.boundary.clone(),
                    bytes: self.bytes(one.sha256)?,
                })
            })
            .collect::<Option<_>>()?;
        let promise = self.prereg.matrix.promise.into();
        let verdicts = judge_case(&made.fixture, case, promise, &outputs).ok()?;
        let is_its = |verdict: &BoundaryVerdict| verdict.boundary == row.boundary;
        let verdict = verdicts.into_iter().find(is_its)?;
        let output = outputs.iter().find(|one| one.boundary == row.boundary)?;
        let expected = made.fixture.tensors.get(&verdict.tensor)?;
        let first = verdict.rows.iter().find(|one| !one.passed)?;
        Some(Unequal {
            row: row.clone(),
            dtype: expected.dtype,
            rows: (
                count(verdict.rows.iter().filter(|one| !one.passed)),
                count(verdict.rows.iter()),
            ),
            elements: (
                verdict.rows.iter().map(|one| one.different).sum(),
                verdict.rows.iter().map(|one| one.elements).sum(),
            ),
            at_row: first.row,
            label: first.label.clone(),
            at: element(&verdict.tolerance, first, expected, &output.bytes)?,
        })
    }

    /// An output's bytes, where the bag has just those.
    fn bytes(&self, sha256: Digest) -> Option<Vec<u8>> {
        let bytes = self.payload.get(&format!("outputs/{sha256}"));
        let bytes = bytes.unwrap_or_default();
        (Digest::of(bytes) == sha256).then(|| bytes.to_vec())
    }
}

/// The element of a row that is told.
fn element(
    tolerance: &Tolerance,
    row: &RowVerdict,
    expected: &Tensor,
    actual: &[u8],
) -> Option<Worst> {
    match tolerance {
        Tolerance::BitEqual => {}
        // What differs first may be near enough.
        Tolerance::Ulp { .. } | Tolerance::Within { .. } => return row.worst.clone(),
    }
    let width = usize::try_from(expected.dtype.bytes()).ok()?;
    let columns = usize::try_from(row.elements).ok()?;
    let start = usize::try_from(row.row).ok()?.checked_mul(columns)?;
    let of_row = |bytes: &[u8]| -> Option<Vec<Vec<u8>>> {
        let bytes = bytes.get(start * width..(start + columns) * width)?;
        Some(bytes.chunks_exact(width).map(<[u8]>::to_vec).collect())
    };
    let (expected_row, actual_row) = (of_row(&expected.bytes)?, of_row(actual)?);
    let mut pairs = expected_row.iter().zip(&actual_row).zip(0_u64..);
    let ((one, other), column) = pairs.find(|((one, other), _)| one != other)?;
    let alone = Tensor {
        dtype: expected.dtype,
        shape: vec![1],
        bytes: one.clone(),
    };
    let judged = judge("element", &alone, &[], Limit::BitEqual, other).ok()?;
    let worst = judged.into_iter().next()?.worst?;
    let label = row.worst.as_ref().filter(|worst| worst.column == column);
    Some(Worst {
        column,
        label: label.and_then(|worst| worst.label.clone()),
        ..worst
    })
}

impl fmt::Display for Unequal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row {
            leg,
            treatment,
            index,
            fixture,
            arm,
            width,
            repeat,
            boundary,
            ..
        } = &self.row;
        write!(
            f,
            "leg {leg}, {treatment}, case {index} ({fixture} {arm} width {width} repeat {repeat}), \
             {boundary}: row {}{}, column {}{}: expected {}, found {}",
            self.at_row,
            special(self.label.as_deref()),
            self.at.column,
            special(self.at.label.as_deref()),
            self.shown(self.at.expected),
            self.shown(self.at.actual),
        )?;
        if let Some(ulps) = self.at.ulps {
            write!(f, ", {ulps} ULP apart")?;
        }
        let ((rows, all_rows), (different, all)) = (self.rows, self.elements);
        write!(f, "; {different} of {all} elements differ")?;
        write!(f, "; {rows} of {all_rows} rows fail")
    }
}

impl Unequal {
    /// An element's bits, and its value.
    fn shown(&self, bits: u32) -> String {
        let digits = usize::try_from(2 * self.dtype.bytes()).unwrap_or(8);
        let low = bits.to_le_bytes();
        let half = u16::from_le_bytes([low[0], low[1]]);
        let value = match self.dtype {
            Dtype::U8 => low[0].to_string(),
            Dtype::I8 => i8::from_le_bytes([low[0]]).to_string(),
            Dtype::I32 => i32::from_le_bytes(low).to_string(),
            Dtype::F16 => format!("{:e}", f16_to_f64(half)),
            Dtype::Bf16 => format!("{:e}", bf16_to_f64(half)),
            Dtype::F32 => format!("{:e}", f32::from_bits(bits)),
        };
        format!("{value} (0x{bits:0digits$x})")
    }
}

fn special(label: Option<&str>) -> String {
    label.map_or(String::new(), |label| format!(" ({label})"))
}

fn count<T>(all: impl Iterator<Item = T>) -> u64 {
    all.fold(0, |count, _| count + 1)
}
