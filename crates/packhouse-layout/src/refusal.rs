//! Why a layout does not take a tensor.

use crate::int8_tile::GeometryError;
use packhouse_base::Blame;
use packhouse_base::shown::Shown;

/// Why a layout does not take a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The layout has no packing of this type.
    #[error("type {name} has no packing in {layout}")]
    Type {
        /// Layout id.
        layout: &'static str,
        /// Type name.
        name: &'static str,
    },
    /// The number of dims is wrong, or one is zero.
    #[error("dims {dims:?} are not a matrix or a stack of matrices with rows")]
    Shape {
        /// Dims as given, ne0 first.
        dims: Vec<u64>,
    },
    /// The layout is of single matrices; no reader of it knows where another would begin.
    #[error("{layout} is an order of one matrix, and dims {dims:?} are a stack of them")]
    Stack {
        /// Layout id.
        layout: &'static str,
        /// Dims as given, ne0 first.
        dims: Vec<u64>,
    },
    /// ne1 is no multiple of the smallest unit.
    #[error("{rows} rows are no multiple of {multiple}")]
    Rows {
        /// ne1.
        rows: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// ne0 is no multiple of the type's block.
    #[error("row of {columns} elements is no whole number of {block}-element blocks")]
    Columns {
        /// ne0.
        columns: u64,
        /// Elements in a block.
        block: u64,
    },
    /// The sizes make no tile.
    #[error("{layout}: {source}")]
    Tile {
        /// Layout id.
        layout: &'static str,
        /// The size in the way.
        source: GeometryError,
    },
    /// A column of the head is longer than what is packed of it.
    #[error("{layout}: columns of {width} values do not fit kpad, which is {kpad}")]
    Width {
        /// Layout id.
        layout: &'static str,
        /// ne0.
        width: u64,
        /// Packed depth rows.
        kpad: u64,
    },
    /// Elements, source bytes or payload bytes do not fit 64 bits.
    #[error("the sizes of a tensor of dims {dims:?} do not fit 64 bits")]
    Overflow {
        /// Dims as given, ne0 first.
        dims: Vec<u64>,
    },
    /// A parameter that the layout does not have was given.
    #[error("{layout} has no parameter {}", Shown(name))]
    UnknownParameter {
        /// Layout id.
        layout: &'static str,
        /// The parameter as given.
        name: String,
    },
    /// A parameter's value is outside what the layout, or this tensor in it, allows.
    #[error("{layout} takes {name} from {min} to {max} here, not {value}")]
    Parameter {
        /// Layout id.
        layout: &'static str,
        /// The parameter.
        name: &'static str,
        /// The value as given.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
}

impl Refusal {
    /// Whose side the refusal is on: the tensor's, or the one who chose parameters.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Type { .. }
            | Self::Shape { .. }
            | Self::Stack { .. }
            | Self::Rows { .. }
            | Self::Columns { .. }
            | Self::Overflow { .. } => Blame::Source,
            Self::UnknownParameter { .. }
            | Self::Parameter { .. }
            | Self::Tile { .. }
            | Self::Width { .. } => Blame::Caller,
        }
    }
}
