//! A layout applied to one tensor: every length, where each sample group lies, and how the payload
//! divides for several threads.

use crate::golden;
use crate::int8_tile::head::{self, Column};
use crate::int8_tile::{self, TileGeometry, TileOrder};
use crate::{
    Geometry, Layout, ggml_cpu_repack, identity_v1, q4_0_joint_n_v1, q4_0_reordered_v1,
    q4_0_xe2_dpas_v2,
};
use packhouse_base::digest::{Fingerprint, TensorDigest};
use packhouse_base::encode::Sequence;
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use std::collections::BTreeMap;
use std::ops::Range;

/// A layout applied to one type, shape and parameters. Made by `Layout::admit` only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    layout: Layout,
    ty: GgmlType,
    dims: Vec<u64>,
    parameters: BTreeMap<String, u64>,
    form: Form,
}

/// How a payload divides along one axis: region 0 is `step_count` steps of `step_bytes[0]`, and
/// region 1, right after it, as many of `step_bytes[1]`. Any range of steps can be packed alone,
/// given the whole source, and fills one slice of each region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Steps in the payload.
    pub step_count: u64,
    /// Payload bytes of one step in each region; 0 where there is no second region.
    pub step_bytes: [u64; 2],
}

/// The golden weight of a layout, type and parameters, ready to pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoldenWeight {
    /// The weight as a tensor of the same layout, type and parameters.
    pub admitted: Admitted,
    /// Its source bytes.
    pub source: Vec<u8>,
}

/// What a layout's module says about a tensor that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) geometry: Geometry,
    pub(crate) split: Split,
}

/// Equal pieces of the payload at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) length: u64,
    pub(crate) distance: u64,
    pub(crate) count: u64,
}

impl Run {
    /// No pieces.
    pub(crate) const NONE: Self = Self::one(0..0);

    /// One piece, or none if it is empty.
    pub(crate) const fn one(piece: Range<u64>) -> Self {
        Self {
            first: piece.start,
            length: piece.end - piece.start,
            distance: 0,
            count: if piece.end > piece.start { 1 } else { 0 },
        }
    }

    fn pieces(self) -> impl Iterator<Item = Range<u64>> {
        (0..self.count).map(move |index| {
            let start = self.first + index * self.distance;
            start..start + self.length
        })
    }
}

impl Admitted {
    pub(crate) const fn new(
        layout: Layout,
        ty: GgmlType,
        dims: Vec<u64>,
        parameters: BTreeMap<String, u64>,
        form: Form,
    ) -> Self {
        Self {
            layout,
            ty,
            dims,
            parameters,
            form,
        }
    }

    /// The layout.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The source's type.
    pub const fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Canonical dims, ne0 first.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// All parameters of the layout, as in the pack key.
    pub const fn parameters(&self) -> &BTreeMap<String, u64> {
        &self.parameters
    }

    /// A parameter's value, which the layout's module knows to be there.
    pub(crate) fn parameter(&self, name: &str) -> u64 {
        *self
            .parameters
            .get(name)
            .expect("because admission completed the parameters")
    }

    /// ne0.
    pub(crate) fn columns(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Bytes of the source tensor.
    pub const fn source_bytes(&self) -> u64 {
        self.form.geometry.row_count * self.form.geometry.row_bytes
    }

    /// Bytes of the payload.
    pub const fn payload_bytes(&self) -> u64 {
        let [first, second] = self.form.split.step_bytes;
        self.form.split.step_count * (first + second)
    }

    /// Rows and sample groups, as pack records have them.
    pub const fn geometry(&self) -> Geometry {
        self.form.geometry
    }

    /// How the payload divides for several threads.
    pub const fn split(&self) -> Split {
        self.form.split
    }

    /// The geometry of the tiles; `None` where the layout is not one of tiles.
    pub fn tile_geometry(&self) -> Option<TileGeometry> {
        TileOrder::of(self.layout).map(|order| head::geometry_of(order, self))
    }

    /// Sample groups in the tensor.
    pub const fn group_count(&self) -> u64 {
        self.form.geometry.unit_count()
    }

    /// The rows of a group. The last group may have fewer than the others.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn group_rows(&self, index: u64) -> Range<u64> {
        let Geometry {
            row_count,
            unit_rows,
            ..
        } = self.form.geometry;
        assert!(
            index < self.group_count(),
            "group {index} of {}",
            self.group_count()
        );
        // A tensor without bytes may have more rows than whole groups of them fit 64 bits.
        let start = index * unit_rows;
        start..start.saturating_add(unit_rows).min(row_count)
    }

    /// The source bytes of a group.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn group_source(&self, index: u64) -> Range<u64> {
        let rows = self.group_rows(index);
        let row_bytes = self.form.geometry.row_bytes;
        rows.start * row_bytes..rows.end * row_bytes
    }

    /// The payload bytes of a group, piece by piece, in the order in which the group packed alone
    /// has them.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn group_payload(&self, index: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let rows = self.group_rows(index);
        let column = self.tile_geometry();
        let column = column.map(|geometry| Column::of(geometry, rows.start));
        let runs = match self.layout {
            Layout::Int8TileB8 | Layout::Int8TileRm => [Run::NONE; 2],
            Layout::GgmlCpuRepack | Layout::Identity => {
                [Run::one(self.group_source(index)), Run::NONE]
            }
            Layout::Q4_0JointN => q4_0_joint_n_v1::runs(self, index),
            Layout::Q4_0Reordered => q4_0_reordered_v1::runs(self, rows),
            Layout::Q4_0Xe2DpasV2 => q4_0_xe2_dpas_v2::runs(self, index),
        };
        let pieces = runs.into_iter().flat_map(Run::pieces);
        pieces.chain(column.into_iter().flat_map(Column::pieces))
    }

    /// A group as a tensor of its own, in the same layout with the same parameters. A column of a
    /// head is a row-major tile of one column, whatever the order and the sizes of the head's.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn group(&self, index: u64) -> Self {
        let rows = self.group_rows(index);
        let dims = [self.columns(), rows.end - rows.start];
        let group = match self.tile_geometry() {
            None => self.layout.admit(self.ty, &dims, &self.parameters),
            Some(geometry) => {
                let parameters = head::column_parameters(&geometry);
                Layout::Int8TileRm.admit(self.ty, &dims, &parameters)
            }
        };
        group.expect("because a group of an admitted tensor is admitted")
    }

    /// The identity of the pack of a source tensor by a packer of this fingerprint.
    pub fn identity(&self, fingerprint: Fingerprint, source: TensorDigest) -> PackIdentity {
        PackIdentity {
            layout: self.layout.id().to_owned(),
            layout_version: self.layout.version(),
            parameters: self.parameters.clone(),
            fingerprint,
            type_id: self.ty.id(),
            dims: self.dims.clone(),
            source,
        }
    }

    /// The golden weight that belongs to this layout, type and parameters, whatever the dims. Tiles
    /// of a head have one geometry here, whatever the parameters.
    pub fn golden(&self) -> GoldenWeight {
        let (dims, source) = match self.layout {
            Layout::GgmlCpuRepack => {
                let unit_rows = self.parameter(ggml_cpu_repack::UNIT_ROWS);
                let golden = ggml_cpu_repack::golden(self.ty, unit_rows)
                    .expect("because admission took the type and the unit");
                (golden.dims, golden.bytes)
            }
            Layout::Identity => golden::weight(self.ty, identity_v1::GOLDEN_ROWS, &[]),
            Layout::Int8TileB8 => {
                return int8_tile::golden_weight(TileOrder::Blocked, self.ty);
            }
            Layout::Int8TileRm => {
                return int8_tile::golden_weight(TileOrder::RowMajor, self.ty);
            }
            Layout::Q4_0JointN => {
                let tile = self.parameter(q4_0_joint_n_v1::N_TILE);
                golden::weight(self.ty, q4_0_joint_n_v1::golden_rows(tile), &[0])
            }
            Layout::Q4_0Reordered => golden::weight(self.ty, q4_0_reordered_v1::GOLDEN_ROWS, &[0]),
            Layout::Q4_0Xe2DpasV2 => golden::weight(self.ty, q4_0_xe2_dpas_v2::GOLDEN_ROWS, &[0]),
        };
        let admitted = self
            .layout
            .admit(self.ty, &dims, &self.parameters)
            .expect("because each layout admits its golden weights");
        GoldenWeight { admitted, source }
    }

    /// The fingerprint of a packer from what it made of the golden weight: SHA-256 of
    /// {`packhouse/fingerprint/2`, layout id, layout version, type, the golden weight's parameters,
    /// packed bytes}; `ggml-cpu-repack` keeps the form that it had.
    pub fn fingerprint(&self, packed: &[u8]) -> Fingerprint {
        if self.layout == Layout::GgmlCpuRepack {
            let unit_rows = self.parameter(ggml_cpu_repack::UNIT_ROWS);
            return ggml_cpu_repack::fingerprint(self.ty, unit_rows, packed);
        }
        let mut sequence = Sequence::new("packhouse/fingerprint/2");
        sequence
            .text(self.layout.id())
            .integer(self.layout.version())
            .integer(u64::from(self.ty.id()));
        let of_tiles = TileOrder::of(self.layout);
        let of_tiles = of_tiles.map(|order| int8_tile::golden_parameters(order, self.ty));
        let parameters = of_tiles.as_ref().unwrap_or(&self.parameters);
        let parameters: Vec<_> = parameters.iter().collect();
        sequence.list(&parameters, |s, (name, value)| {
            s.text(name).integer(**value);
        });
        sequence.bytes(packed);
        Fingerprint(sequence.finish())
    }
}
