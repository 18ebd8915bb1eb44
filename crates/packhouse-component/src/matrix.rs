//! All rows of a component's gate, declared once: devices x arms x widths x repeats x boundaries.

use crate::form::{Boundary, Form, FormError};
use crate::name::{is_device, is_name};
use packhouse_base::Blame;
use std::collections::BTreeSet;

/// The matrix. Who produces and who judges share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    devices: Vec<String>,
    arms: Vec<String>,
    widths: Vec<u64>,
    repeats: u64,
    boundaries: Vec<Boundary>,
}

/// One case of a matrix: a run that gives every boundary once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Which device runs it.
    pub device: String,
    /// Which treatment.
    pub arm: String,
    /// Rows of its input.
    pub width: u64,
    /// Which repeat of it, from 0.
    pub repeat: u64,
}

/// Why there is no such matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// An axis has nothing on it.
    #[error("matrix: no {axis}")]
    Empty {
        /// The axis.
        axis: &'static str,
    },
    /// Something is on an axis twice.
    #[error("matrix: {axis} {value} twice")]
    Twice {
        /// The axis.
        axis: &'static str,
        /// What is there twice.
        value: String,
    },
    /// A name that can't cross the protocol, or a width of 0.
    #[error("matrix: {axis} {value:?}: not one that an axis can have")]
    Name {
        /// The axis.
        axis: &'static str,
        /// The name.
        value: String,
    },
    /// A boundary has no form at a width.
    #[error(transparent)]
    Form(#[from] FormError),
}

impl MatrixError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty { .. } | Self::Twice { .. } | Self::Name { .. } => Blame::Caller,
            Self::Form(error) => error.blame(),
        }
    }
}

impl Matrix {
    /// Declares a matrix.
    ///
    /// # Errors
    /// When an axis is empty or has something twice, a name is not plain, or a boundary has no form
    /// at one of the widths.
    pub fn new(
        devices: Vec<String>,
        arms: Vec<String>,
        widths: Vec<u64>,
        repeats: u64,
        boundaries: Vec<Boundary>,
    ) -> Result<Self, MatrixError> {
        axis("device", devices.iter(), |device| is_device(device))?;
        axis("arm", arms.iter(), |arm| is_name(arm))?;
        axis("width", widths.iter(), |width| **width > 0)?;
        axis("repeat", 0..repeats.min(1), |_| true)?;
        let names = boundaries.iter().map(|boundary| &boundary.name);
        axis("boundary", names, |name| is_name(name))?;
        let storages = boundaries.iter().map(|boundary| &boundary.storage);
        if let Some(storage) = storages.into_iter().find(|storage| !is_name(storage)) {
            return Err(MatrixError::Name {
                axis: "storage",
                value: storage.clone(),
            });
        }
        for width in &widths {
            for boundary in &boundaries {
                boundary.form(*width)?;
            }
        }
        Ok(Self {
            devices,
            arms,
            widths,
            repeats,
            boundaries,
        })
    }

    /// The boundaries of every case.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// Every case: devices outermost, then arms, widths and repeats.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.devices.iter().flat_map(move |device| {
            self.arms.iter().flat_map(move |arm| {
                self.widths.iter().flat_map(move |width| {
                    (0..self.repeats).map(move |repeat| Cell {
                        device: device.clone(),
                        arm: arm.clone(),
                        width: *width,
                        repeat,
                    })
                })
            })
        })
    }

    /// Tensors that are compared: cases times boundaries.
    pub fn row_count(&self) -> u64 {
        let axes = [
            self.devices.len() as u64,
            self.arms.len() as u64,
            self.widths.len() as u64,
            self.repeats,
            self.boundaries.len() as u64,
        ];
        axes.into_iter().fold(1, u64::saturating_mul)
    }

    /// Each boundary with its form at a width.
    ///
    /// # Errors
    /// When the width is none of the matrix, and a boundary has no form there.
    pub fn forms(&self, width: u64) -> Result<Vec<(&Boundary, Form)>, FormError> {
        let formed = |boundary| Boundary::form(boundary, width).map(|form| (boundary, form));
        self.boundaries.iter().map(formed).collect()
    }
}

fn axis<T: Ord + ToString>(
    axis: &'static str,
    values: impl Iterator<Item = T>,
    is_good: impl Fn(&T) -> bool,
) -> Result<(), MatrixError> {
    let mut seen = BTreeSet::new();
    for value in values {
        let text = value.to_string();
        if !is_good(&value) {
            return Err(MatrixError::Name { axis, value: text });
        }
        if !seen.insert(value) {
            return Err(MatrixError::Twice { axis, value: text });
        }
    }
    if seen.is_empty() {
        return Err(MatrixError::Empty { axis });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dim, Dtype};

    fn matrix(
        devices: &[&str],
        arms: &[&str],
        widths: &[u64],
        repeats: u64,
        names: &[&str],
    ) -> Result<Matrix, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let boundary = |name: &&str| Boundary::new(*name, Dtype::F32, [Dim::Widths(3)]);
        let boundaries = names.iter().map(boundary).collect();
        let widths = widths.to_vec();
        Matrix::new(owned(devices), owned(arms), widths, repeats, boundaries)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_matrix_has_each_case_once_in_its_declared_order() {
        let matrix =
            matrix(&["cpu", "b"], &["x", "a"], &[8, 1], 3, &["k", "v"]).expect("because good");
        let cells: Vec<Cell> = matrix.cells().collect();
        assert_eq!(cells.len(), 24);
        assert_eq!(matrix.row_count(), 48);
        let distinct: BTreeSet<_> = cells.iter().collect();
        assert_eq!(distinct.len(), 24);
        let first = |index: usize| {
            let cell: &Cell = &cells[index];
            (
                cell.device.as_str(),
                cell.arm.as_str(),
                cell.width,
                cell.repeat,
            )
        };
        assert_eq!(first(0), ("cpu", "x", 8, 0));
        assert_eq!(first(4), ("cpu", "x", 1, 1));
        assert_eq!(first(23), ("b", "a", 1, 2));
        assert_eq!(matrix.forms(8).expect("because good")[1].1.bytes, 96);
    }

    #[test]
    fn what_is_no_matrix_is_refused_by_its_axis() {
        let refused = |result: Result<Matrix, String>| result.expect_err("because it is none");
        let cpu = &["cpu"];
        let cases = [
            (
                refused(matrix(&[], &["a"], &[1], 1, &["k"])),
                "matrix: no device",
            ),
            (refused(matrix(cpu, &[], &[1], 1, &["k"])), "matrix: no arm"),
            (
                refused(matrix(cpu, &["a"], &[], 1, &["k"])),
                "matrix: no width",
            ),
            (
                refused(matrix(cpu, &["a"], &[1], 0, &["k"])),
                "matrix: no repeat",
            ),
            (
                refused(matrix(cpu, &["a"], &[1], 1, &[])),
                "matrix: no boundary",
            ),
            (
                refused(matrix(cpu, &["a", "a"], &[1], 1, &["k"])),
                "matrix: arm a twice",
            ),
            (
                refused(matrix(cpu, &["a"], &[2, 2], 1, &["k"])),
                "matrix: width 2 twice",
            ),
            (
                refused(matrix(cpu, &["a"], &[1], 1, &["k", "k"])),
                "matrix: boundary k twice",
            ),
            (
                refused(matrix(cpu, &["A"], &[1], 1, &["k"])),
                "matrix: arm \"A\": not one that an axis can have",
            ),
            (
                refused(matrix(cpu, &["a"], &[0], 1, &["k"])),
                "matrix: width \"0\": not one that an axis can have",
            ),
            (
                refused(matrix(cpu, &["a"], &[u64::MAX], 1, &["k"])),
                "boundary k: too large at width 18446744073709551615",
            ),
        ];
        for (actual, expected) in cases {
            assert_eq!(actual, expected);
        }
    }
}
