//! What the loader needs of an engine: its packer, and a way to map and to speak.

use packhouse_base::digest::Fingerprint;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Geometry;
use packhouse_store::object::VerifiedObject;
use packhouse_sys::map::Region;
use std::io;

/// The engine's side of a load.
pub trait Engine: Send + Sync {
    /// Packs the golden weight of a type and unit size: the packer's fingerprint, and whether units
    /// of rows pack alone. Errors when the engine has no packing for it.
    fn traits(&self, ty: GgmlType, unit_rows: u64) -> Result<PackerTraits, PackerRefusal>;

    /// Packs a run of whole units. `source` and `target` have the same length, a multiple of the
    /// geometry's unit bytes. Errors when the engine has no packing for the tensor.
    fn pack(
        &self,
        ty: GgmlType,
        dims: &[u64],
        geometry: &Geometry,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), PackerRefusal>;

    /// Maps a verified object over a region. Errors as mmap does.
    fn attach(&self, region: &Region, object: &VerifiedObject) -> io::Result<()>;

    /// Tells the user one line.
    fn say(&self, level: Level, line: &str);

    /// Takes the report of a load, when it is served and again when its fill has ended.
    fn report(&self, report: &serde_json::Value);
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is wrong with our own bytes or the host.
    Error,
    /// Time was lost.
    Warn,
    /// The line per load.
    Info,
    /// For those who look closely.
    Debug,
}

/// What a packer showed on its golden weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackerTraits {
    /// Hash of the packed golden weight.
    pub fingerprint: Fingerprint,
    /// Whether units of rows pack alone to the bytes they have in the whole.
    pub by_units: bool,
    /// The fewest rows that pack alone: the unit's rows or fewer. Samples are of so many rows.
    pub sample_rows: u64,
}

/// Why a packer does not pack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackerRefusal {
    /// The engine has no packing for this type and shape.
    #[error("the engine has no packing for {name} {dims:?}")]
    NoPacking {
        /// Type name.
        name: &'static str,
        /// Dims, ne0 first.
        dims: Vec<u64>,
    },
    /// The golden weight packed twice to different bytes.
    #[error("the engine's packing of {name} is not deterministic")]
    NotDeterministic {
        /// Type name.
        name: &'static str,
    },
}
