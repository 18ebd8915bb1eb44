//! What a boundary's tensor must look like at a width: declared once, shared by who makes it and
//! who judges it. Shape, stride, offset and size are derived from it, never typed twice.

use crate::Dtype;
use packhouse_base::Blame;

/// One extent of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// The same at every width.
    Fixed(u64),
    /// The case's width, this many times.
    Widths(u64),
}

/// A named tensor that is compared: a boundary of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Its name, `[a-z0-9][a-z0-9_.-]{0,63}`.
    pub name: String,
    /// The storage that it lies in: boundaries of one storage share its base, those of different
    /// storages have no byte in common. Its own name where it has one for itself.
    pub storage: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, outermost first.
    pub shape: Vec<Dim>,
    /// Elements before its first one in its storage: a product of extents, empty for none.
    pub offset: Vec<Dim>,
}

/// A boundary at one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Elements from one index to the next, per extent: contiguous.
    pub stride: Vec<u64>,
    /// Elements before its first one in its storage.
    pub storage_offset: u64,
    /// Bytes of all its elements.
    pub bytes: u64,
}

/// Why a boundary has no form at a width.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// It has no extent, or one of 0.
    #[error("boundary {boundary}: no elements at width {width}")]
    Empty {
        /// The boundary.
        boundary: String,
        /// The width.
        width: u64,
    },
    /// Its bytes or those before it are more than 64 bits can count.
    #[error("boundary {boundary}: too large at width {width}")]
    TooLarge {
        /// The boundary.
        boundary: String,
        /// The width.
        width: u64,
    },
}

impl FormError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty { .. } | Self::TooLarge { .. } => Blame::Caller,
        }
    }
}

impl Dim {
    /// The extent at a width; `None` when 64 bits can't count it.
    pub fn at(self, width: u64) -> Option<u64> {
        match self {
            Self::Fixed(extent) => Some(extent),
            Self::Widths(times) => times.checked_mul(width),
        }
    }
}

impl Boundary {
    /// A boundary with a storage of its own.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<Dim>>) -> Self {
        let name = name.into();
        Self {
            storage: name.clone(),
            name,
            dtype,
            shape: shape.into(),
            offset: Vec::new(),
        }
    }

    /// The same boundary in a storage that others lie in too, this many elements from its base.
    #[must_use]
    pub fn within(mut self, storage: impl Into<String>, offset: impl Into<Vec<Dim>>) -> Self {
        self.storage = storage.into();
        self.offset = offset.into();
        self
    }

    /// What it must look like at a width.
    ///
    /// # Errors
    /// When it has no elements there, or more than can be counted.
    pub fn form(&self, width: u64) -> Result<Form, FormError> {
        let too_large = || FormError::TooLarge {
            boundary: self.name.clone(),
            width,
        };
        let extents = |dims: &[Dim]| dims.iter().map(|dim| dim.at(width)).collect();
        let shape: Option<Vec<u64>> = extents(&self.shape);
        let shape = shape.ok_or_else(too_large)?;
        if shape.is_empty() || shape.contains(&0) {
            return Err(FormError::Empty {
                boundary: self.name.clone(),
                width,
            });
        }
        let offset: Option<Vec<u64>> = extents(&self.offset);
        let storage_offset = match offset.ok_or_else(too_large)?.as_slice() {
            [] => Some(0),
            extents => product(extents),
        };
        let storage_offset = storage_offset.ok_or_else(too_large)?;
        let element_count = product(&shape).ok_or_else(too_large)?;
        let bytes = element_count.checked_mul(self.dtype.bytes());
        let end = element_count
            .checked_add(storage_offset)
            .and_then(|elements| elements.checked_mul(self.dtype.bytes()));
        match (bytes, end) {
            (Some(bytes), Some(_)) => Ok(Form {
                dtype: self.dtype,
                stride: contiguous(&shape),
                shape,
                storage_offset,
                bytes,
            }),
            (Some(_) | None, Some(_) | None) => Err(too_large()),
        }
    }
}

/// Strides in elements of a contiguous tensor whose element count fits 64 bits.
pub fn contiguous(shape: &[u64]) -> Vec<u64> {
    let mut stride = vec![1; shape.len()];
    for index in (1..shape.len()).rev() {
        stride[index - 1] = stride[index] * shape[index];
    }
    stride
}

fn product(extents: &[u64]) -> Option<u64> {
    extents
        .iter()
        .try_fold(1u64, |product, extent| product.checked_mul(*extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_stride_offset_and_bytes_follow_from_the_width() {
        // The value half of the packed projection: [layers, width, heads, size] behind the keys.
        let shape = [
            Dim::Fixed(6),
            Dim::Widths(1),
            Dim::Fixed(2),
            Dim::Fixed(128),
        ];
        let values = Boundary::new("projected-v", Dtype::Bf16, shape).within("packed", shape);
        let form = values.form(3).expect("because it is small");
        assert_eq!(form.shape, [6, 3, 2, 128]);
        assert_eq!(form.stride, [768, 256, 128, 1]);
        assert_eq!((form.storage_offset, form.bytes), (1536 * 3, 1536 * 3 * 2));
        let flat = Boundary::new("x", Dtype::I8, [Dim::Widths(5)]);
        assert_eq!((flat.storage.as_str(), flat.offset.len()), ("x", 0));
        let form = flat.form(2).expect("because it is small");
        assert_eq!(
            (form.shape, form.stride, form.bytes),
            (vec![10], vec![1], 10)
        );
    }

    #[test]
    fn nothing_and_too_much_are_refused_by_name() {
        let refused =
            |boundary: Boundary, width| boundary.form(width).expect_err("refused").to_string();
        let empty = "boundary x: no elements at width 0";
        assert_eq!(
            refused(Boundary::new("x", Dtype::F32, [Dim::Widths(4)]), 0),
            empty
        );
        let none: [Dim; 0] = [];
        let empty = "boundary x: no elements at width 1";
        assert_eq!(refused(Boundary::new("x", Dtype::F32, none), 1), empty);
        let large = "boundary x: too large at width 2";
        let dims = [Dim::Fixed(1 << 61), Dim::Widths(1)];
        assert_eq!(refused(Boundary::new("x", Dtype::F32, dims), 2), large);
        let dims = [Dim::Widths(u64::MAX)];
        assert_eq!(refused(Boundary::new("x", Dtype::U8, dims), 2), large);
        let behind = Boundary::new("x", Dtype::U8, [Dim::Fixed(1)]);
        assert_eq!(
            refused(behind.within("s", [Dim::Fixed(u64::MAX)]), 2),
            large
        );
        // One element less fits.
        let form =
            Boundary::new("x", Dtype::U8, [Dim::Fixed(1)]).within("s", [Dim::Fixed(u64::MAX - 1)]);
        assert!(form.form(2).is_ok());
    }
}
