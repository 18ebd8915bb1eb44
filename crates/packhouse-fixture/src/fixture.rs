//! A fixture in memory: tensors, the cases that use them, and what each case must give.

use crate::Tolerance;
use packhouse_component::{Boundary, Dtype};
use std::collections::BTreeMap;

/// One fixture. The same recipe gives the same bytes for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixture {
    /// Its id, version included: `mmvq-q4_0-q8_1-v1`.
    pub id: String,
    /// One line: what a kernel that passes has shown.
    pub summary: String,
    /// Id of the layout that the packed weights are in, where there is one.
    pub layout: Option<String>,
    /// What the kernel has to compute, in which order and with which roundings; prose with the
    /// source of each formula.
    pub contract: String,
    /// What the recipe was given, seeds and sizes among it; kernels get the sizes from here.
    pub parameters: BTreeMap<String, u64>,
    /// Every tensor by its file name, `weights.q4_0.bin`.
    pub tensors: BTreeMap<String, Tensor>,
    /// The boundaries of every case, each declared once for all widths.
    pub boundaries: Vec<Boundary>,
    /// The cases, by ascending width and arm; no two have both the same.
    pub cases: Vec<Case>,
}

impl Fixture {
    /// The parameters that a program is told: all but the seed, which would say whether a case was
    /// published or drawn.
    pub fn told_parameters(&self) -> BTreeMap<String, u64> {
        let mut parameters = self.parameters.clone();
        parameters.remove("seed");
        parameters
    }
}

/// Bytes with a type and a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element type; `U8` for blocks and packed bytes.
    pub dtype: Dtype,
    /// Extents in elements, outermost first. Of `U8` blocks: in bytes.
    pub shape: Vec<u64>,
    /// The elements, little-endian, contiguous.
    pub bytes: Vec<u8>,
}

/// One run of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Rows of activations.
    pub width: u64,
    /// Which treatment, [`Case::PLAIN`] where there is only one. Width and arm name a case.
    pub arm: String,
    /// Role to tensor: `weights` -> `weights.q4_0.bin`, `input` -> `input-m4.q8_1.bin`.
    pub inputs: BTreeMap<String, String>,
    /// What each boundary must be, in the order of `Fixture::boundaries`.
    pub expected: Vec<Expected>,
    /// What some boundaries must be near for a kernel that promises no more than that: the exact
    /// result rounded once, and a bound that every sound order of sums keeps. May be empty.
    pub near: Vec<Expected>,
    /// Rows made for an edge.
    pub edge_rows: Vec<EdgeRow>,
}

impl Case {
    /// The arm of fixtures that have only one.
    pub const PLAIN: &str = "plain";
}

/// What a boundary must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The boundary's name.
    pub boundary: String,
    /// The tensor's file name.
    pub tensor: String,
    /// How near is near enough.
    pub tolerance: Tolerance,
    /// Why that tolerance, in a sentence.
    pub why: String,
}

/// A row that is there for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeRow {
    /// Its index in `of`, counted over all extents but the innermost.
    pub row: u64,
    /// A boundary's name, or `weights`: rows of the weights are columns of `output`.
    pub of: String,
    /// What is special: `zeros`, `cancellation`, `midpoints`, `largest magnitudes`.
    pub label: String,
}
