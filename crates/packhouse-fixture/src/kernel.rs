//! What a reference kernel is: from named input bytes of one case to the bytes of its boundaries.

use std::collections::BTreeMap;

/// One case as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Rows of activations.
    pub width: u64,
    /// The fixture's parameters: `k`, `n`, the layout's own.
    pub parameters: &'a BTreeMap<String, u64>,
    /// Role to bytes.
    pub tensors: &'a BTreeMap<String, &'a [u8]>,
}

/// What a kernel made of one boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The boundary's name.
    pub boundary: String,
    /// Its elements, little-endian, contiguous.
    pub bytes: Vec<u8>,
}

/// Why a kernel did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// An input is missing.
    #[error("no input {role}")]
    Missing {
        /// Its role.
        role: String,
    },
    /// A parameter is missing.
    #[error("no parameter {name}")]
    Parameter {
        /// Its name.
        name: String,
    },
    /// A parameter that no kernel of this kind can have.
    #[error("parameter {name} is {actual}, expected {expected}")]
    Size {
        /// Its name.
        name: String,
        /// Its value.
        actual: u64,
        /// What it must be: `a multiple of 256`.
        expected: String,
    },
    /// An input has another length than the parameters say.
    #[error("input {role} has {actual} bytes, expected {expected}")]
    Length {
        /// Its role.
        role: String,
        /// Bytes by the parameters.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// An element of an input can't be what it is.
    #[error("input {role}: {why}")]
    Element {
        /// Its role.
        role: String,
        /// Which element, what it is, and what it may be.
        why: String,
    },
}

/// A scalar reference kernel, straight from packed bytes.
pub trait Kernel: Sync {
    /// Its id, `mrow-q4_0-xe2-dpas-v2`.
    fn id(&self) -> &'static str;
    /// Ids of the fixtures it can run.
    fn fixtures(&self) -> &'static [&'static str];
    /// The layout that the fixture's `weights`, which are Q4_0 rows, have to be packed in before
    /// this kernel runs; none where it takes them as they are. The layout's own parameters then
    /// stand beside the fixture's.
    fn packs(&self) -> Option<&'static str> {
        None
    }
    /// Runs one case.
    ///
    /// # Errors
    /// When an input or parameter is missing or has another size.
    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError>;
}
