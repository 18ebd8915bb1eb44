//! A whole head as a layout: its tiles one after the other, each of them codes, then scales. A tile
//! in such a payload has the bytes of the payload of its image. A sample group is one column.

use crate::admitted::{Admitted, Form, Split};
use crate::dequant::{dequantise, has_values};
use crate::int8_tile::{
    BLOCK_COLUMNS, BLOCK_ROWS, CODE_MAX, SIZE_MAX, TileGeometry, TileOrder, TileSizes,
    quantise_column,
};
use crate::judge::Judge;
use crate::layout::Parameter;
use crate::{Geometry, Refusal};
use packhouse_base::ggml_type::GgmlType;
use std::collections::BTreeMap;
use std::ops::Range;

/// Layout id of the row-major order.
pub const ID_ROW_MAJOR: &str = "int8-tile-rm-v1";
/// Layout id of the blocked order.
pub const ID_BLOCKED: &str = "int8-tile-b8-v1";
/// Version of both layouts.
pub const VERSION: u64 = 1;
/// Name of the parameter that holds the depth rows of the device's buffer.
pub const KD: &str = "kd";
/// Name of the parameter that holds the columns of the device's buffer.
pub const ND: &str = "nd";
/// Name of the parameter that holds the packed depth rows.
pub const KPAD: &str = "kpad";
/// Name of the parameter that holds the columns of a full tile.
pub const T: &str = "t";

pub(crate) const JUDGE: Judge = Judge { pack, unpack: None };

pub(crate) static PARAMETERS_ROW_MAJOR: [Parameter; 4] = [
    parameter(KD, 1),
    parameter(ND, 1),
    parameter(KPAD, 1),
    parameter(T, 1),
];

pub(crate) static PARAMETERS_BLOCKED: [Parameter; 4] = [
    parameter(KD, BLOCK_ROWS),
    parameter(ND, BLOCK_COLUMNS),
    parameter(KPAD, 1),
    parameter(T, 1),
];

const fn parameter(name: &'static str, min: u64) -> Parameter {
    Parameter {
        name,
        default: None,
        min,
        max: SIZE_MAX,
    }
}

/// The sizes of a geometry as parameters.
pub(crate) fn parameters_of(geometry: &TileGeometry) -> BTreeMap<String, u64> {
    let TileSizes { kd, nd, kpad, t } = geometry.sizes();
    let sizes = [(KD, kd), (ND, nd), (KPAD, kpad), (T, t)];
    sizes.map(|(name, size)| (name.to_owned(), size)).into()
}

/// The geometry of a head that `form` took.
pub(crate) fn geometry_of(order: TileOrder, admitted: &Admitted) -> TileGeometry {
    let sizes = TileSizes {
        kd: admitted.parameter(KD),
        nd: admitted.parameter(ND),
        kpad: admitted.parameter(KPAD),
        t: admitted.parameter(T),
    };
    TileGeometry::new(order, sizes).expect("because admission took these sizes")
}

/// Admits canonical dims and completes the sizes: without any, the whole head is one tile without
/// padding, but for what the blocked order needs.
pub(crate) fn form(
    order: TileOrder,
    ty: GgmlType,
    dims: &[u64],
    parameters: &mut BTreeMap<String, u64>,
) -> Result<Form, Refusal> {
    let layout = order.layout().id();
    let (width, vocabulary) = shape(layout, ty, dims)?;
    let overflow = || Refusal::Overflow {
        dims: dims.to_vec(),
    };
    let source_bytes = ty.tensor_bytes(dims).ok_or_else(overflow)?;
    let mut complete = |name: &str, follows: u64| {
        let size = parameters.entry(name.to_owned()).or_insert(follows);
        *size
    };
    let kpad = complete(KPAD, width);
    let kd = complete(KD, order.whole(kpad, BLOCK_ROWS));
    let t = complete(T, vocabulary);
    let nd = complete(ND, order.whole(t, BLOCK_COLUMNS));
    let geometry = TileGeometry::new(order, TileSizes { kd, nd, kpad, t });
    let geometry = geometry.map_err(|source| Refusal::Tile { layout, source })?;
    if width > kpad {
        return Err(Refusal::Width {
            layout,
            width,
            kpad,
        });
    }
    let tile_count = geometry.tile_count(vocabulary);
    let tile_bytes = geometry.payload_bytes();
    tile_count.checked_mul(tile_bytes).ok_or_else(overflow)?;
    Ok(Form {
        geometry: Geometry {
            row_count: vocabulary,
            row_bytes: source_bytes / vocabulary,
            unit_rows: 1,
        },
        split: Split {
            step_count: tile_count,
            step_bytes: [tile_bytes, 0],
        },
    })
}

/// Width and vocabulary of a head; one of a single row is a vector.
fn shape(layout: &'static str, ty: GgmlType, dims: &[u64]) -> Result<(u64, u64), Refusal> {
    if !has_values(ty) {
        return Err(Refusal::Type {
            layout,
            name: ty.name(),
        });
    }
    let dims_given = || dims.to_vec();
    let (columns, vocabulary) = match *dims {
        [columns] => (columns, 1),
        [columns, vocabulary] => (columns, vocabulary),
        [_, _, _] | [_, _, _, _] if !dims.contains(&0) => {
            let dims = dims_given();
            return Err(Refusal::Stack { layout, dims });
        }
        _ => return Err(Refusal::Shape { dims: dims_given() }),
    };
    if dims.contains(&0) {
        return Err(Refusal::Shape { dims: dims_given() });
    }
    if columns % ty.block_elements() != 0 {
        return Err(Refusal::Columns {
            columns,
            block: ty.block_elements(),
        });
    }
    Ok((columns, vocabulary))
}

impl TileOrder {
    /// The size, or the next that whole blocks make. What is beyond 64 bits is left to be refused.
    const fn whole(self, size: u64, multiple: u64) -> u64 {
        match self {
            Self::RowMajor => size,
            Self::Blocked => match size.checked_next_multiple_of(multiple) {
                Some(whole) => whole,
                None => size,
            },
        }
    }
}

/// Where one column of a head lies in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    geometry: TileGeometry,
    /// The payload's offset of its tile.
    tile_at: u64,
    /// Its number in the tile.
    j: u64,
}

impl Column {
    /// The column of a vocabulary row.
    pub(crate) const fn of(geometry: TileGeometry, row: u64) -> Self {
        Self {
            geometry,
            tile_at: row / geometry.t() * geometry.payload_bytes(),
            j: row % geometry.t(),
        }
    }

    /// Its codes, one by one down the depth, then its scale.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Range<u64>> {
        let code = move |i| {
            let at = self.tile_at + self.geometry.position(i, self.j);
            at..at + 1
        };
        let scale_at = self.tile_at + self.geometry.code_bytes() + 4 * self.j;
        let codes = (0..self.geometry.kpad()).map(code);
        codes.chain(std::iter::once(scale_at..scale_at + 4))
    }
}

/// A column as a head of its own: the sizes of a row-major tile of one column.
pub(crate) fn column_parameters(geometry: &TileGeometry) -> BTreeMap<String, u64> {
    let kpad = geometry.kpad();
    let sizes = [(KD, kpad), (ND, 1), (KPAD, kpad), (T, 1)];
    sizes.map(|(name, size)| (name.to_owned(), size)).into()
}

fn pack(admitted: &Admitted, source: &[u8], target: &mut [u8]) {
    let geometry = admitted.tile_geometry();
    let geometry = geometry.expect("because the layout is one of tiles");
    let Geometry {
        row_count,
        row_bytes,
        ..
    } = admitted.geometry();
    let padding = quantise_column(&[], &mut []).to_le_bytes();
    let mut values = vec![0.0; at(geometry.kpad())];
    let mut codes = vec![0; values.len()];
    let tiles = target.chunks_exact_mut(at(geometry.payload_bytes()));
    for (tile, target) in (0..).zip(tiles) {
        let (code_bytes, scale_bytes) = target.split_at_mut(at(geometry.code_bytes()));
        code_bytes.fill(0);
        for scale in scale_bytes.chunks_exact_mut(4) {
            scale.copy_from_slice(&padding);
        }
        let columns = (0..).zip(geometry.tile_columns(row_count, tile));
        for ((j, row), scale) in columns.zip(scale_bytes.chunks_exact_mut(4)) {
            // What lies below the width stays zero.
            let row = &source[at(row * row_bytes)..at((row + 1) * row_bytes)];
            let width = at(admitted.columns());
            dequantise(admitted.ty(), row, &mut values[..width])
                .expect("because admission asks for values");
            scale.copy_from_slice(&quantise_column(&values, &mut codes).to_le_bytes());
            for (i, code) in (0..).zip(&codes) {
                code_bytes[at(geometry.position(i, j))] = code.cast_unsigned();
            }
        }
    }
}

/// The first byte of a payload that no head packs to: of a code beside the columns or below what is
/// packed, of a code -128, of a scale beside the columns, or of the scale of a column whose largest
/// code is neither 127 nor 0 with the scale of zeros.
///
/// # Panics
/// When the length is not the tensor's.
pub(crate) fn first_impossible(admitted: &Admitted, payload: &[u8]) -> Option<u64> {
    let geometry = admitted.tile_geometry();
    let geometry = geometry.expect("because the layout is one of tiles");
    assert_eq!(
        payload.len() as u64,
        admitted.payload_bytes(),
        "payload bytes"
    );
    let tiles = payload.chunks_exact(at(geometry.payload_bytes()));
    (0..).zip(tiles).find_map(|(tile, payload)| {
        let columns = geometry.tile_columns(admitted.geometry().row_count, tile);
        let first = impossible_in_tile(&geometry, columns.end - columns.start, payload);
        first.map(|first| tile * geometry.payload_bytes() + first)
    })
}

fn impossible_in_tile(geometry: &TileGeometry, columns: u64, payload: &[u8]) -> Option<u64> {
    let (codes, scales) = payload.split_at(at(geometry.code_bytes()));
    let mut largest = vec![0; at(geometry.nd())];
    for i in 0..geometry.kd() {
        for (j, largest) in (0..).zip(&mut largest) {
            let place = geometry.position(i, j);
            let code = codes[at(place)].cast_signed();
            let is_packed = i < geometry.kpad() && j < columns;
            if code == i8::MIN || !is_packed && code != 0 {
                return Some(place);
            }
            *largest = code.abs().max(*largest);
        }
    }
    let of_zeros = quantise_column(&[], &mut []).to_bits();
    let scales = scales.chunks_exact(4).zip(largest);
    let impossible = |(scale, largest): (&[u8], i8)| {
        let bits = scale.iter().rev();
        let bits = bits.fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte));
        let scale = f32::from_bits(bits);
        match largest {
            0 => bits != of_zeros,
            largest => f32::from(largest) != CODE_MAX || !scale.is_finite() || scale <= 0.0,
        }
    };
    let first = scales.map(impossible).position(|is_wrong| is_wrong)?;
    Some(geometry.code_bytes() + 4 * first as u64)
}

/// An offset into bytes that lie in memory.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("because the bytes lie in memory")
}
