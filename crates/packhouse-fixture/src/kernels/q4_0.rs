//! The M-row kernels of Q4_0, one for each order of its packed bytes.
//!
//! Specified in `docs/format/kernels.md`, sections 2 and 3.
//!
//! - Each reads packed bytes where they lie; none unpacks first, and none uses a packer's code.
//! - All share one arithmetic, so the orders of one weight give the same bits.

pub(crate) mod activations;
pub(crate) mod contract;
pub(crate) mod packed;
#[cfg(test)]
mod tests;

use crate::{Inputs, Kernel, KernelError, Output};
use activations::{Activations, Form};
use packed::{Order, Packed};

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[&XE2, &JOINT_N, &REORDERED, &IDENTITY, &REPACK];

/// `q4_0-xe2-dpas-v2`.
pub(crate) static XE2: MRow = MRow {
    id: "mrow-q4_0-xe2-dpas-v2",
    fixtures: &["mrow-q4_0-xe2-dpas-v2-v1"],
    order: Order::Xe2,
    form: Form::Dpas,
};

/// `q4_0-joint-n-v1`.
pub(crate) static JOINT_N: MRow = MRow {
    id: "mrow-q4_0-joint-n-v1",
    fixtures: &["mrow-q4_0-joint-n-v1-v1"],
    order: Order::JointN,
    form: Form::Canonical,
};

/// `q4_0-reordered-v1`.
pub(crate) static REORDERED: MRow = MRow {
    id: "mrow-q4_0-reordered-v1",
    fixtures: &["mrow-q4_0-reordered-v1-v1"],
    order: Order::Reordered,
    form: Form::Canonical,
};

/// `identity-v1` of Q4_0.
pub(crate) static IDENTITY: MRow = MRow {
    id: "mrow-identity-v1",
    fixtures: &["mrow-identity-v1-v1"],
    order: Order::Rows,
    form: Form::Canonical,
};

/// `ggml-cpu-repack` of Q4_0, 8 rows by 8 bytes.
pub(crate) static REPACK: MRow = MRow {
    id: "mrow-ggml-cpu-repack",
    fixtures: &["mrow-ggml-cpu-repack-v1"],
    order: Order::Repack8,
    form: Form::Canonical,
};

/// An M-row kernel of one order.
#[derive(Debug)]
pub(crate) struct MRow {
    id: &'static str,
    fixtures: &'static [&'static str],
    /// The order of the packed bytes.
    pub(crate) order: Order,
    /// The form of the boundary `activations`.
    pub(crate) form: Form,
}

impl MRow {
    /// The id of its fixture.
    pub(crate) const fn fixture(&self) -> &'static str {
        self.fixtures[0]
    }
}

impl Kernel for MRow {
    fn id(&self) -> &'static str {
        self.id
    }

    fn fixtures(&self) -> &'static [&'static str] {
        self.fixtures
    }

    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError> {
        let weight = Packed::open(self.order, inputs)?;
        let activations = Activations::of_input(inputs, weight.block_count())?;
        let output = contract::output(&weight, &activations);
        Ok(vec![
            Output {
                boundary: ACTIVATIONS.to_owned(),
                bytes: activations.bytes(self.form),
            },
            Output {
                boundary: OUTPUT.to_owned(),
                bytes: output.iter().flat_map(|y| y.to_le_bytes()).collect(),
            },
        ])
    }
}

/// The boundary that holds what the input is quantised to.
pub(crate) const ACTIVATIONS: &str = "activations";
/// The boundary that holds the products.
pub(crate) const OUTPUT: &str = "output";
/// The role of the packed weight.
pub(crate) const WEIGHTS: &str = "weights";
/// The role of the activations as binary32 numbers.
pub(crate) const INPUT: &str = "input";
