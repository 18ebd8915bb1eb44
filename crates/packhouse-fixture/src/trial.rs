//! One kernel on one case, and what is judged of it.
//!
//! - What is judged is what was declared: a boundary that is missing, doubled or invented ends in
//!   an error, not in a shorter list of verdicts.

use crate::{Case, Expected, Fixture, Inputs, Kernel, KernelError, Output, RowVerdict, Unjudged};
use crate::{Tolerance, judge};
use packhouse_base::Blame;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Layout, NoJudge, Refusal, pack_scalar};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What a kernel promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The fixture's own tolerance.
    Exact,
    /// To be near the exact result, at boundaries that have one; the others keep their tolerance.
    Near,
}

/// What became of one boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundaryVerdict {
    /// Its name.
    pub boundary: String,
    /// The tensor that it was compared with.
    pub tensor: String,
    /// The bound on each row.
    pub tolerance: Tolerance,
    /// A verdict for each row; never empty.
    pub rows: Vec<RowVerdict>,
}

/// Why a kernel gave nothing to judge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// The kernel refused its inputs.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The layout does not take the fixture's weights.
    #[error(transparent)]
    Layout(#[from] Refusal),
    /// Only an engine packs the layout.
    #[error(transparent)]
    Packer(#[from] NoJudge),
    /// What the kernel gave cannot be judged.
    #[error(transparent)]
    Unjudged(#[from] Unjudged),
}

impl BoundaryVerdict {
    /// Whether every row passed.
    pub fn passed(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.passed)
    }
}

impl TrialError {
    /// Whose side the failure is on: our kernels and recipes, or what another program gave.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Kernel(_) | Self::Layout(_) | Self::Packer(_) => Blame::Bug,
            Self::Unjudged(error) => error.blame(),
        }
    }
}

/// Runs a kernel on a case of a fixture that it can run.
///
/// # Errors
/// When the kernel refuses it, or its weights cannot be packed as the kernel wants them.
pub fn run_case(
    fixture: &Fixture,
    case: &Case,
    kernel: &dyn Kernel,
) -> Result<Vec<Output>, TrialError> {
    let mut parameters = Cow::Borrowed(&fixture.parameters);
    let packed;
    let tensor = |(role, name): (&String, &String)| {
        let tensor = fixture.tensors.get(name)?;
        Some((role.clone(), tensor.bytes.as_slice()))
    };
    let mut tensors: BTreeMap<String, &[u8]> = case.inputs.iter().filter_map(tensor).collect();
    if let Some(layout) = kernel.packs() {
        packed = pack(fixture, layout, tensors.get(WEIGHTS).copied())?;
        tensors.insert(WEIGHTS.to_owned(), &packed.bytes);
        parameters.to_mut().extend(packed.parameters.clone());
    }
    let inputs = Inputs {
        width: case.width,
        parameters: &parameters,
        tensors: &tensors,
    };
    Ok(kernel.run(&inputs)?)
}

/// Judges all boundaries of a case.
///
/// # Errors
/// When one is missing, twice there or not declared, and when one cannot be judged.
pub fn judge_case(
    fixture: &Fixture,
    case: &Case,
    promise: Promise,
    outputs: &[Output],
) -> Result<Vec<BoundaryVerdict>, Unjudged> {
    let is_known = |output: &&Output| {
        let mut expected = case.expected.iter();
        expected.any(|expected| expected.boundary == output.boundary)
    };
    if let Some(stranger) = outputs.iter().find(|output| !is_known(output)) {
        return Err(Unjudged::Undeclared {
            boundary: stranger.boundary.clone(),
        });
    }
    if case.expected.is_empty() {
        return Err(Unjudged::Empty {
            boundary: "any boundary".to_owned(),
        });
    }
    let judged = case.expected.iter().map(|exact| {
        let boundary = &exact.boundary;
        let mut found = outputs.iter().filter(|output| output.boundary == *boundary);
        let (output, None) = (found.next(), found.next()) else {
            return Err(Unjudged::Twice {
                boundary: boundary.clone(),
            });
        };
        let Some(output) = output else {
            return Err(Unjudged::Missing {
                boundary: boundary.clone(),
            });
        };
        let verdicts = promised(case, exact, promise).into_iter();
        let verdicts = verdicts.map(|expected| judge_output(fixture, case, expected, output));
        let mut verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
        // The first that is kept by all rows; else what the first one says.
        let kept = verdicts.iter().position(BoundaryVerdict::passed);
        Ok(verdicts.swap_remove(kept.unwrap_or(0)))
    });
    judged.collect()
}

fn judge_output(
    fixture: &Fixture,
    case: &Case,
    expected: &Expected,
    output: &Output,
) -> Result<BoundaryVerdict, Unjudged> {
    let boundary = &expected.boundary;
    let tensor = fixture.tensors.get(&expected.tensor);
    let limit = expected.tolerance.limit(&fixture.tensors);
    let (Some(tensor), Some(limit)) = (tensor, limit) else {
        return Err(Unjudged::Missing {
            boundary: boundary.clone(),
        });
    };
    Ok(BoundaryVerdict {
        boundary: boundary.clone(),
        tensor: expected.tensor.clone(),
        tolerance: expected.tolerance.clone(),
        rows: judge(boundary, tensor, &case.edge_rows, limit, &output.bytes)?,
    })
}

/// What a boundary may be under a promise, one of it as a whole; never empty.
fn promised<'c>(case: &'c Case, exact: &'c Expected, promise: Promise) -> Vec<&'c Expected> {
    let near = case.near.iter();
    let near = near.filter(|near| near.boundary == exact.boundary);
    match promise {
        Promise::Near if near.clone().next().is_some() => near.collect(),
        Promise::Near | Promise::Exact => vec![exact],
    }
}

/// Weights in a kernel's order, and the parameters of that order.
struct Packed {
    bytes: Vec<u8>,
    parameters: BTreeMap<String, u64>,
}

fn pack(fixture: &Fixture, layout: &str, source: Option<&[u8]>) -> Result<Packed, TrialError> {
    let source = source.ok_or_else(|| KernelError::Missing {
        role: WEIGHTS.to_owned(),
    })?;
    let size = |name: &str| {
        let found = fixture.parameters.get(name).copied();
        found.ok_or_else(|| KernelError::Parameter {
            name: name.to_owned(),
        })
    };
    let layout = Layout::from_id(layout).expect("because our own kernels name it");
    let ty = GgmlType::from_name("Q4_0").expect("because ggml has it");
    let admitted = layout.admit(ty, &[size("k")?, size("n")?], &BTreeMap::new())?;
    let expected = admitted.source_bytes();
    let actual = source.len() as u64;
    if actual != expected {
        let role = WEIGHTS.to_owned();
        return Err(TrialError::Kernel(KernelError::Length {
            role,
            expected,
            actual,
        }));
    }
    let payload_bytes = usize::try_from(admitted.payload_bytes());
    let mut bytes = vec![0; payload_bytes.expect("because the source is in memory")];
    pack_scalar(&admitted, source, &mut bytes)?;
    Ok(Packed {
        bytes,
        parameters: admitted.parameters().clone(),
    })
}

const WEIGHTS: &str = "weights";
