//! The closed list of layouts, and the one door to all of them: `Layout::admit`.

use crate::admitted::{Admitted, Form};
use crate::int8_tile::{self, TileOrder, head};
use crate::{
    Refusal, ggml_cpu_repack, identity_v1, q4_0_joint_n_v1, q4_0_reordered_v1, q4_0_xe2_dpas_v2,
};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::canonical_dims;
use std::collections::BTreeMap;

/// A named, versioned order of a tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// What a ggml CPU library's CPU_REPACK makes; the fingerprint says which.
    GgmlCpuRepack,
    /// The bytes as they are.
    Identity,
    /// Columns of a head as int8 with a scale each, in blocked tiles.
    Int8TileB8,
    /// Columns of a head as int8 with a scale each, in row-major tiles.
    Int8TileRm,
    /// Q4_0, K block outer, N tile inner, zero-padded rows.
    Q4_0JointN,
    /// Q4_0, all quants, then all scales.
    Q4_0Reordered,
    /// Q4_0 as signed nibbles in the order of Xe2's matrix engine.
    Q4_0Xe2DpasV2,
}

/// One parameter of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, as in pack keys.
    pub name: &'static str,
    /// The value when none is given; `None` where it follows from the tensor.
    pub default: Option<u64>,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
}

impl Layout {
    /// Every layout, by id.
    pub const ALL: [Self; 7] = [
        Self::GgmlCpuRepack,
        Self::Identity,
        Self::Int8TileB8,
        Self::Int8TileRm,
        Self::Q4_0JointN,
        Self::Q4_0Reordered,
        Self::Q4_0Xe2DpasV2,
    ];

    /// Finds a layout by its id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.id() == id)
    }

    /// The id, as in pack keys.
    pub const fn id(self) -> &'static str {
        match self {
            Self::GgmlCpuRepack => ggml_cpu_repack::ID,
            Self::Identity => identity_v1::ID,
            Self::Int8TileB8 => int8_tile::ID_BLOCKED,
            Self::Int8TileRm => int8_tile::ID_ROW_MAJOR,
            Self::Q4_0JointN => q4_0_joint_n_v1::ID,
            Self::Q4_0Reordered => q4_0_reordered_v1::ID,
            Self::Q4_0Xe2DpasV2 => q4_0_xe2_dpas_v2::ID,
        }
    }

    /// The version, as in pack keys.
    pub const fn version(self) -> u64 {
        match self {
            Self::GgmlCpuRepack => ggml_cpu_repack::VERSION,
            Self::Identity => identity_v1::VERSION,
            Self::Int8TileB8 | Self::Int8TileRm => int8_tile::VERSION,
            Self::Q4_0JointN => q4_0_joint_n_v1::VERSION,
            Self::Q4_0Reordered => q4_0_reordered_v1::VERSION,
            Self::Q4_0Xe2DpasV2 => q4_0_xe2_dpas_v2::VERSION,
        }
    }

    /// One line for people: what it is and who reads it.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::GgmlCpuRepack => "what a ggml CPU library repacks, for stock llama.cpp",
            Self::Identity => "the bytes as they are, for whatever maps them",
            Self::Int8TileB8 => "an lm-head as int8 in tiles of 8 by 8, for NPU engines",
            Self::Int8TileRm => "an lm-head as int8 in row-major tiles, for NPU engines",
            Self::Q4_0JointN => {
                "Q4_0 by K block, rows in zero-padded tiles, for Xe2 registry packs"
            }
            Self::Q4_0Reordered => "Q4_0 quants then scales, the device order of ggml's SYCL",
            Self::Q4_0Xe2DpasV2 => "Q4_0 as signed nibbles for the matrix engine of Intel Xe2",
        }
    }

    /// The order of the payload's bytes, outermost index first.
    pub const fn order(self) -> &'static str {
        match self {
            Self::GgmlCpuRepack => {
                "[unit][bytes as the packer of the fingerprint interleaves them]"
            }
            Self::Identity => "[row][byte]",
            Self::Int8TileB8 => {
                "[tile](codes [band of 128][8 rows][16 microtiles][8][8], f32 scales [column])"
            }
            Self::Int8TileRm => "[tile](codes [depth row][column], f32 scales [column])",
            Self::Q4_0JointN => "[k_block][n_tile](f16 scales [lane], quants [16][lane])",
            Self::Q4_0Reordered => "quants [row][k_block][16], f16 scales [row][k_block]",
            Self::Q4_0Xe2DpasV2 => {
                "s4 quants [k_block][n_tile][4][16 lanes][8], f16 scales [k_block][row]"
            }
        }
    }

    /// The parameters, by name.
    pub const fn parameters(self) -> &'static [Parameter] {
        match self {
            Self::GgmlCpuRepack => &ggml_cpu_repack::PARAMETERS,
            Self::Int8TileB8 => &head::PARAMETERS_BLOCKED,
            Self::Int8TileRm => &head::PARAMETERS_ROW_MAJOR,
            Self::Q4_0JointN => &q4_0_joint_n_v1::PARAMETERS,
            Self::Identity | Self::Q4_0Reordered | Self::Q4_0Xe2DpasV2 => &[],
        }
    }

    /// Whether a payload gives its source back exactly.
    pub const fn is_invertible(self) -> bool {
        match self {
            Self::GgmlCpuRepack
            | Self::Identity
            | Self::Q4_0JointN
            | Self::Q4_0Reordered
            | Self::Q4_0Xe2DpasV2 => true,
            Self::Int8TileB8 | Self::Int8TileRm => false,
        }
    }

    /// Applies the layout to a tensor. Parameters that are not given get their defaults.
    ///
    /// # Errors
    /// The type, shape, size or parameter that is in the way, with its value.
    pub fn admit(
        self,
        ty: GgmlType,
        dims: &[u64],
        parameters: &BTreeMap<String, u64>,
    ) -> Result<Admitted, Refusal> {
        let mut complete = BTreeMap::new();
        for (name, value) in parameters {
            let Some(known) = self.parameters().iter().find(|known| known.name == name) else {
                return Err(Refusal::UnknownParameter {
                    layout: self.id(),
                    name: name.clone(),
                });
            };
            if !(known.min..=known.max).contains(value) {
                return Err(Refusal::Parameter {
                    layout: self.id(),
                    name: known.name,
                    value: *value,
                    min: known.min,
                    max: known.max,
                });
            }
            complete.insert(name.clone(), *value);
        }
        for known in self.parameters() {
            if let Some(default) = known.default {
                complete.entry(known.name.to_owned()).or_insert(default);
            }
        }
        let dims = canonical_dims(dims);
        let form = self.form(ty, &dims, &mut complete)?;
        Ok(Admitted::new(self, ty, dims, complete, form))
    }

    /// Lets the layout's module judge canonical dims; it may add parameters that follow from them.
    fn form(
        self,
        ty: GgmlType,
        dims: &[u64],
        parameters: &mut BTreeMap<String, u64>,
    ) -> Result<Form, Refusal> {
        match self {
            Self::GgmlCpuRepack => ggml_cpu_repack::form(ty, dims, parameters),
            Self::Identity => identity_v1::form(ty, dims),
            Self::Int8TileB8 => head::form(TileOrder::Blocked, ty, dims, parameters),
            Self::Int8TileRm => head::form(TileOrder::RowMajor, ty, dims, parameters),
            Self::Q4_0JointN => q4_0_joint_n_v1::form(ty, dims, parameters),
            Self::Q4_0Reordered => q4_0_reordered_v1::form(ty, dims),
            Self::Q4_0Xe2DpasV2 => q4_0_xe2_dpas_v2::form(ty, dims),
        }
    }
}
