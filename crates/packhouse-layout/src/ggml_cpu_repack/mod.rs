//! `ggml-cpu-repack` version 1: whatever a ggml CPU library's own CPU_REPACK buffer makes of a
//! tensor.
//!
//! The layout's name says who made the bytes, its fingerprint says which: the engine packs the
//! golden weights below and the hash of the result goes into every pack key. So a changed kernel
//! choice, CPU or engine names other packs, and an own packer that makes the same bytes names the
//! same ones.
//!
//! Every known member interleaves whole rows within groups of 4, 8 or 16 rows and keeps groups in
//! order, so a group of `unit_rows` rows packs alone. The engine chooses by ne1's divisibility, so
//! the unit is the largest of 16, 8, 4 that divides ne1 and each unit size has its own golden
//! weight. That packing by units equals packing whole is proven at run time on the golden weights
//! by the code that packs.
//!
//! - `twin`: the members that we make ourselves, one judge per type: `q4_0`, `iq4_nl`, `mxfp4`,
//!   `q4_k`, `q2_k`.

mod iq4_nl;
mod mxfp4;
mod q2_k;
mod q4_0;
mod q4_k;
pub mod twin;

use crate::admitted::{Admitted, Form, Split};
use crate::golden;
use crate::judge::Judge;
use crate::layout::Parameter;
use crate::{Geometry, Refusal};
use packhouse_base::digest::Fingerprint;
use packhouse_base::encode::Sequence;
use packhouse_base::ggml_type::GgmlType;
use std::collections::BTreeMap;
use twin::Twin;

/// Layout id.
pub const ID: &str = "ggml-cpu-repack";
/// Layout version.
pub const VERSION: u64 = 1;
/// Name of the layout parameter that holds the unit's rows.
pub const UNIT_ROWS: &str = "unit_rows";
/// The unit sizes, largest first.
pub const UNITS: [u64; 3] = [16, 8, 4];

pub(crate) static PARAMETERS: [Parameter; 1] = [Parameter {
    name: UNIT_ROWS,
    default: None,
    min: UNITS[2],
    max: UNITS[0],
}];

/// One type that some CPU_REPACK packs, with the offsets of its f16 scale fields in a block.
struct Packable {
    type_id: u32,
    f16_offsets: &'static [usize],
}

/// Source: the instances and the block structs of ggml 0.26.0's `repack.cpp` and `ggml-common.h`.
static PACKABLE: &[Packable] = &[
    Packable {
        type_id: 2,
        f16_offsets: &[0],
    }, // Q4_0
    Packable {
        type_id: 8,
        f16_offsets: &[0],
    }, // Q8_0
    Packable {
        type_id: 10,
        f16_offsets: &[80, 82],
    }, // Q2_K
    Packable {
        type_id: 12,
        f16_offsets: &[0, 2],
    }, // Q4_K
    Packable {
        type_id: 13,
        f16_offsets: &[0, 2],
    }, // Q5_K
    Packable {
        type_id: 14,
        f16_offsets: &[208],
    }, // Q6_K
    Packable {
        type_id: 20,
        f16_offsets: &[0],
    }, // IQ4_NL
    Packable {
        type_id: 39,
        f16_offsets: &[],
    }, // MXFP4: its scale is one byte
    Packable {
        type_id: 41,
        f16_offsets: &[0],
    }, // Q1_0
];

/// A golden weight: a matrix of one type in source order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    /// Dims, ne0 first.
    pub dims: [u64; 2],
    /// Source bytes.
    pub bytes: Vec<u8>,
}

/// Tells whether some CPU_REPACK could take the tensor and how it is cut. Whether the engine at
/// hand does is the engine's word. Errors name the type or the dims that are in the way.
pub fn admit(ty: GgmlType, dims: &[u64]) -> Result<Geometry, Refusal> {
    if packable(ty).is_none() {
        return Err(Refusal::Type {
            layout: ID,
            name: ty.name(),
        });
    }
    let shape = || Refusal::Shape {
        dims: dims.to_vec(),
    };
    let [columns, rows, rest @ ..] = dims else {
        return Err(shape());
    };
    if rest.len() > 2 || dims.contains(&0) || rest.get(1).is_some_and(|ne3| *ne3 != 1) {
        return Err(shape());
    }
    let unit_rows = UNITS.into_iter().find(|unit| rows % unit == 0);
    let unit_rows = unit_rows.ok_or(Refusal::Rows {
        rows: *rows,
        multiple: UNITS[2],
    })?;
    if !columns.is_multiple_of(ty.block_elements()) {
        return Err(Refusal::Columns {
            columns: *columns,
            block: ty.block_elements(),
        });
    }
    let overflow = || Refusal::Overflow {
        dims: dims.to_vec(),
    };
    let bytes = ty.tensor_bytes(dims).ok_or_else(overflow)?;
    let stacked = rest
        .iter()
        .try_fold(*rows, |rows, dim| rows.checked_mul(*dim));
    let row_count = stacked.ok_or_else(overflow)?;
    Ok(Geometry {
        row_count,
        row_bytes: bytes / row_count,
        unit_rows,
    })
}

/// Returns the golden weight of a type and unit size: three blocks wide, and a row count that the
/// unit divides and the next larger unit does not. `None` for types that no CPU_REPACK packs.
pub fn golden(ty: GgmlType, unit_rows: u64) -> Option<Golden> {
    let packable = packable(ty)?;
    let rows = match unit_rows {
        16 => 48,
        8 => 40,
        4 => 20,
        _ => return None,
    };
    let (dims, bytes) = golden::weight(ty, rows, packable.f16_offsets);
    Some(Golden { dims, bytes })
}

/// Admits canonical dims for `Layout::admit`, and completes or compares the unit's rows.
pub(crate) fn form(
    ty: GgmlType,
    dims: &[u64],
    parameters: &mut BTreeMap<String, u64>,
) -> Result<Form, Refusal> {
    let geometry = admit(ty, dims)?;
    let unit_rows = parameters
        .entry(UNIT_ROWS.to_owned())
        .or_insert(geometry.unit_rows);
    if *unit_rows != geometry.unit_rows {
        return Err(Refusal::Parameter {
            layout: ID,
            name: UNIT_ROWS,
            value: *unit_rows,
            min: geometry.unit_rows,
            max: geometry.unit_rows,
        });
    }
    Ok(Form {
        geometry,
        split: Split {
            step_count: geometry.unit_count(),
            step_bytes: [geometry.unit_bytes(), 0],
        },
    })
}

/// Finds the scalar packer whose bytes are those of an engine's own packer. `None` for types that
/// only an engine packs.
pub(crate) fn judge(admitted: &Admitted) -> Option<Judge> {
    Some(match twin_of(admitted)? {
        Twin::Q4_0 => Judge {
            pack: |a, source, target| Twin::Q4_0.pack_scalar(row_bytes(a), source, target),
            unpack: Some(|a, payload, target| {
                Twin::Q4_0.unpack_scalar(row_bytes(a), payload, target)
            }),
        },
        Twin::Iq4Nl => Judge {
            pack: |a, source, target| Twin::Iq4Nl.pack_scalar(row_bytes(a), source, target),
            unpack: Some(|a, payload, target| {
                Twin::Iq4Nl.unpack_scalar(row_bytes(a), payload, target)
            }),
        },
        Twin::Mxfp4 => Judge {
            pack: |a, source, target| Twin::Mxfp4.pack_scalar(row_bytes(a), source, target),
            unpack: Some(|a, payload, target| {
                Twin::Mxfp4.unpack_scalar(row_bytes(a), payload, target)
            }),
        },
        Twin::Q4K => Judge {
            pack: |a, source, target| Twin::Q4K.pack_scalar(row_bytes(a), source, target),
            unpack: Some(|a, payload, target| {
                Twin::Q4K.unpack_scalar(row_bytes(a), payload, target)
            }),
        },
        Twin::Q2K => Judge {
            pack: |a, source, target| Twin::Q2K.pack_scalar(row_bytes(a), source, target),
            unpack: Some(|a, payload, target| {
                Twin::Q2K.unpack_scalar(row_bytes(a), payload, target)
            }),
        },
    })
}

/// The twin that packs an admitted tensor as stock x86-64 builds do.
fn twin_of(admitted: &Admitted) -> Option<Twin> {
    Twin::of(admitted.ty(), admitted.parameter(UNIT_ROWS))
}

fn row_bytes(admitted: &Admitted) -> usize {
    usize::try_from(admitted.geometry().row_bytes).expect("because the tensor lies in memory")
}

/// Returns the fingerprint of a packer from what it made of the golden weight: SHA-256 of
/// {`packhouse/fingerprint/1`, layout id, layout version, type, unit rows, packed bytes}.
pub fn fingerprint(ty: GgmlType, unit_rows: u64, packed: &[u8]) -> Fingerprint {
    let mut sequence = Sequence::new("packhouse/fingerprint/1");
    sequence
        .text(ID)
        .integer(VERSION)
        .integer(u64::from(ty.id()))
        .integer(unit_rows);
    sequence.bytes(packed);
    Fingerprint(sequence.finish())
}

fn packable(ty: GgmlType) -> Option<&'static Packable> {
    PACKABLE.iter().find(|entry| entry.type_id == ty.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::F16_EDGES;
    use packhouse_base::digest::Digest;

    fn q4_0() -> GgmlType {
        GgmlType::from_name("Q4_0").expect("because Q4_0 is a type")
    }

    #[test]
    fn the_unit_is_the_largest_that_divides_the_rows() {
        for (rows, unit) in [(16, 16), (8, 8), (24, 8), (4, 4), (20, 4), (48, 16)] {
            assert_eq!(
                admit(q4_0(), &[64, rows]).map(|g| g.unit_rows),
                Ok(unit),
                "{rows}"
            );
        }
        assert_eq!(
            admit(q4_0(), &[64, 6]),
            Err(Refusal::Rows {
                rows: 6,
                multiple: 4
            })
        );
    }

    #[test]
    fn a_stack_of_matrices_counts_all_its_rows() {
        let geometry = admit(q4_0(), &[64, 8, 3, 1]).expect("because 8 rows are one unit");
        assert_eq!(
            (geometry.row_count, geometry.row_bytes, geometry.unit_rows),
            (24, 36, 8)
        );
        assert_eq!(geometry.payload_bytes(), 864);
        assert_eq!(geometry.unit_count() * geometry.unit_bytes(), 864);
    }

    #[test]
    fn what_can_not_be_packed_is_refused_by_name() {
        let f32_type = GgmlType::from_name("F32").expect("because F32 is a type");
        assert!(matches!(
            admit(f32_type, &[64, 8]),
            Err(Refusal::Type { name: "F32", .. })
        ));
        assert!(matches!(admit(q4_0(), &[64]), Err(Refusal::Shape { .. })));
        assert!(matches!(
            admit(q4_0(), &[64, 0]),
            Err(Refusal::Shape { .. })
        ));
        assert!(matches!(
            admit(q4_0(), &[64, 8, 2, 2]),
            Err(Refusal::Shape { .. })
        ));
        assert!(matches!(
            admit(q4_0(), &[33, 8]),
            Err(Refusal::Columns {
                columns: 33,
                block: 32
            })
        ));
    }

    #[test]
    fn golden_weights_are_frozen_and_hit_the_edges() {
        let mut all = Vec::new();
        for entry in PACKABLE {
            let ty =
                GgmlType::from_id(entry.type_id).expect("because the table holds current types");
            for unit in UNITS {
                let golden = golden(ty, unit).expect("because the type is in the table");
                assert_eq!(
                    ty.tensor_bytes(&golden.dims),
                    Some(golden.bytes.len() as u64)
                );
                assert_eq!(admit(ty, &golden.dims).map(|g| g.unit_rows), Ok(unit));
                all.extend_from_slice(Digest::of(&golden.bytes).as_bytes());
            }
        }
        // A change here changes every pack key: it needs a new layout version, not a new constant.
        assert_eq!(Digest::of(&all).to_string(), GOLDEN_DIGEST);
        let golden = golden(q4_0(), 8).expect("because Q4_0 is in the table");
        for edge in F16_EDGES {
            let bytes = edge.to_le_bytes();
            assert!(
                golden.bytes.chunks_exact(18).any(|b| b[..2] == bytes),
                "{edge:#06x}"
            );
        }
    }

    const GOLDEN_DIGEST: &str = "5f275d1160e517075f1107a96b8153f20fa7a6c2c7a0e6ea999648639323b8c2";
}
