//! Whether a fixture is one: nothing empty, every name there, every shape kept.
//!
//! An empty fixture would pass any kernel, so it is refused before anything is judged by it.

use crate::fixture::{Case, Expected, Fixture, Tensor};
use packhouse_base::Blame;
use packhouse_component::name::is_name;
use packhouse_component::{Dtype, FormError};

/// Why something is no fixture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// There is nothing to run, or nothing to compare.
    #[error("{id} has no {what}")]
    Empty {
        /// The fixture.
        id: String,
        /// What is missing: `cases`, `boundaries`, `inputs at width 4`.
        what: String,
    },
    /// A name that no file or message can have.
    #[error("{id}: {name:?} is no name")]
    Name {
        /// The fixture.
        id: String,
        /// The name.
        name: String,
    },
    /// A case names a tensor that is not there.
    #[error("{id}, width {width}: no tensor {name}")]
    NoTensor {
        /// The fixture.
        id: String,
        /// The case.
        width: u64,
        /// The tensor.
        name: String,
    },
    /// A tensor whose bytes are not what its shape says.
    #[error("{id}: tensor {name} has {actual} bytes, its shape says {expected}")]
    Bytes {
        /// The fixture.
        id: String,
        /// The tensor.
        name: String,
        /// Bytes by the shape.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// A tensor that no case uses.
    #[error("{id}: no case uses tensor {name}")]
    Unused {
        /// The fixture.
        id: String,
        /// The tensor.
        name: String,
    },
    /// A boundary without a form at a width.
    #[error("{id}: {error}")]
    Form {
        /// The fixture.
        id: String,
        /// Why.
        error: FormError,
    },
    /// An expected tensor of another type or shape than its boundary has at the width.
    #[error("{id}, width {width}: {name} is not what boundary {boundary} is")]
    Shape {
        /// The fixture.
        id: String,
        /// The case.
        width: u64,
        /// The tensor.
        name: String,
        /// The boundary.
        boundary: String,
    },
    /// Bounds of another shape than what they bound, or that bound nothing.
    #[error("{id}, width {width}: {name} is no bound for each element of {boundary}")]
    Bounds {
        /// The fixture.
        id: String,
        /// The case.
        width: u64,
        /// The tensor.
        name: String,
        /// The boundary.
        boundary: String,
    },
    /// Widths or arms that are not ascending, or boundaries in another order than declared.
    #[error("{id}, width {width}: out of order: {what}")]
    Order {
        /// The fixture.
        id: String,
        /// The case.
        width: u64,
        /// What.
        what: String,
    },
    /// An edge row that is not there.
    #[error("{id}, width {width}: no row {row} of {of}")]
    EdgeRow {
        /// The fixture.
        id: String,
        /// The case.
        width: u64,
        /// Its index.
        row: u64,
        /// Of what.
        of: String,
    },
}

impl Unsound {
    /// Whose side it is on: whoever wrote the recipe.
    pub const fn blame(&self) -> Blame {
        Blame::Bug
    }
}

impl Fixture {
    /// Says whether it is sound.
    ///
    /// # Errors
    /// With the first thing that is not.
    pub fn sound(&self) -> Result<(), Unsound> {
        let names = [&self.id].into_iter().chain(self.tensors.keys());
        let names = names.chain(self.boundaries.iter().map(|boundary| &boundary.name));
        let names = names.chain(self.cases.iter().map(|case| &case.arm));
        if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
            return Err(Unsound::Name {
                id: self.id.clone(),
                name: name.clone(),
            });
        }
        self.demand(!self.cases.is_empty(), "cases")?;
        self.demand(!self.boundaries.is_empty(), "boundaries")?;
        self.demand(!self.tensors.is_empty(), "tensors")?;
        self.demand(!self.contract.is_empty(), "contract")?;
        self.demand(!self.summary.is_empty(), "summary")?;
        for (name, tensor) in &self.tensors {
            let mut extents = tensor.shape.iter().copied();
            let bytes = extents.try_fold(tensor.dtype.bytes(), u64::checked_mul);
            let (expected, actual) = (bytes.unwrap_or(u64::MAX), tensor.bytes.len() as u64);
            self.demand(actual > 0, &format!("bytes in tensor {name}"))?;
            if expected != actual {
                return Err(Unsound::Bytes {
                    id: self.id.clone(),
                    name: name.clone(),
                    expected,
                    actual,
                });
            }
        }
        for case in &self.cases {
            self.sound_case(case)?;
        }
        self.sound_whole()
    }

    fn sound_whole(&self) -> Result<(), Unsound> {
        for pair in self.cases.windows(2) {
            let [earlier, later] = [0, 1].map(|index: usize| (pair[index].width, &pair[index].arm));
            if earlier >= later {
                return Err(self.out_of_order(&pair[1], "widths ascend, and arms at each"));
            }
        }
        let is_used = |name: &String| {
            self.cases.iter().any(|case| {
                let expected = case.expected.iter().chain(&case.near);
                let mut expected =
                    expected.flat_map(|it| [&it.tensor].into_iter().chain(it.tolerance.tensor()));
                case.inputs.values().any(|input| input == name)
                    || expected.any(|expected| expected == name)
            })
        };
        match self.tensors.keys().find(|name| !is_used(name)) {
            None => Ok(()),
            Some(name) => Err(Unsound::Unused {
                id: self.id.clone(),
                name: name.clone(),
            }),
        }
    }

    fn sound_case(&self, case: &Case) -> Result<(), Unsound> {
        let at = |what: &str| format!("{what} at width {}", case.width);
        self.demand(!case.inputs.is_empty(), &at("inputs"))?;
        self.demand(!case.expected.is_empty(), &at("expected boundaries"))?;
        for name in case.inputs.values() {
            if !self.tensors.contains_key(name) {
                return Err(self.no_tensor(case, name));
            }
        }
        let expected = case.expected.iter().map(|expected| &expected.boundary);
        let declared = self.boundaries.iter().map(|boundary| &boundary.name);
        if !expected.eq(declared) {
            return Err(self.out_of_order(case, "every boundary once, as declared"));
        }
        for expected in case.expected.iter().chain(&case.near) {
            self.sound_expected(case, expected)?;
        }
        for edge in &case.edge_rows {
            let known = self.rows_of(case, &edge.of);
            if known.is_none_or(|rows| edge.row >= rows) || edge.label.is_empty() {
                return Err(Unsound::EdgeRow {
                    id: self.id.clone(),
                    width: case.width,
                    row: edge.row,
                    of: edge.of.clone(),
                });
            }
        }
        Ok(())
    }

    fn sound_expected(&self, case: &Case, expected: &Expected) -> Result<(), Unsound> {
        let tensor = self.tensors.get(&expected.tensor);
        let tensor = tensor.ok_or_else(|| self.no_tensor(case, &expected.tensor))?;
        let boundary = self.boundaries.iter().find(|b| b.name == expected.boundary);
        let form = boundary
            .map(|boundary| boundary.form(case.width))
            .transpose();
        let form = form.map_err(|error| Unsound::Form {
            id: self.id.clone(),
            error,
        })?;
        let is_same =
            form.is_some_and(|form| form.dtype == tensor.dtype && form.shape == tensor.shape);
        self.demand(!expected.why.is_empty(), "reason for a tolerance")?;
        if is_same {
            return self.sound_bounds(case, expected, tensor);
        }
        Err(Unsound::Shape {
            id: self.id.clone(),
            width: case.width,
            name: expected.tensor.clone(),
            boundary: expected.boundary.clone(),
        })
    }

    /// Bounds are binary32, one for each element, finite and not negative.
    fn sound_bounds(&self, case: &Case, of: &Expected, tensor: &Tensor) -> Result<(), Unsound> {
        let Some(name) = of.tolerance.tensor() else {
            return Ok(());
        };
        let bounds = self.tensors.get(name);
        let bounds = bounds.ok_or_else(|| self.no_tensor(case, name))?;
        let is_bound = |bytes: &[u8; 4]| {
            let bound = f32::from_le_bytes(*bytes);
            bound.is_finite() && bound.is_sign_positive()
        };
        let are_bounds = bounds.dtype == Dtype::F32
            && bounds.shape == tensor.shape
            && bounds.bytes.as_chunks().0.iter().all(is_bound);
        if are_bounds {
            return Ok(());
        }
        Err(Unsound::Bounds {
            id: self.id.clone(),
            width: case.width,
            name: name.clone(),
            boundary: of.boundary.clone(),
        })
    }

    /// Rows that edge rows may name: of a boundary, or columns of the output for `weights`.
    fn rows_of(&self, case: &Case, of: &str) -> Option<u64> {
        let boundary = if of == WEIGHTS { OUTPUT } else { of };
        let boundary = self.boundaries.iter().find(|b| b.name == boundary)?;
        let shape = boundary.form(case.width).ok()?.shape;
        match shape.as_slice() {
            [.., columns] if of == WEIGHTS => Some(*columns),
            [rows @ .., _] if !rows.is_empty() => Some(rows.iter().product()),
            [] | [..] => Some(1),
        }
    }

    fn demand(&self, is_there: bool, what: &str) -> Result<(), Unsound> {
        if is_there {
            return Ok(());
        }
        Err(Unsound::Empty {
            id: self.id.clone(),
            what: what.to_owned(),
        })
    }

    fn no_tensor(&self, case: &Case, name: &str) -> Unsound {
        Unsound::NoTensor {
            id: self.id.clone(),
            width: case.width,
            name: name.to_owned(),
        }
    }

    fn out_of_order(&self, case: &Case, what: &str) -> Unsound {
        Unsound::Order {
            id: self.id.clone(),
            width: case.width,
            what: what.to_owned(),
        }
    }
}

const WEIGHTS: &str = "weights";
const OUTPUT: &str = "output";
