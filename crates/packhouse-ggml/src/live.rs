//! An engine's own packer, hosted in this process: what our twins are compared with.
//!
//! Never packs by itself: every byte comes from the engine's CPU_REPACK buffer type.

use crate::equivalence::{EquivalenceError, load_engine};
use crate::host::Host;
use crate::packer::EnginePacker;
use packhouse_base::digest::Fingerprint;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::ggml_cpu_repack as layout;
use std::path::Path;
use std::sync::Arc;

/// The packer of one engine. One engine per process: its libraries stay.
pub struct LivePacker {
    packer: EnginePacker,
}

impl LivePacker {
    /// Loads the engine whose libraries lie in a folder. Errors when they can't be loaded or are of
    /// no engine that this build knows.
    pub fn load(folder: &Path) -> Result<Self, EquivalenceError> {
        load_engine(folder)?;
        let host = Host::find().map_err(|error| EquivalenceError::engine(folder, error))?;
        Ok(Self {
            packer: EnginePacker::new(Arc::new(host)),
        })
    }

    /// The fingerprint of the engine's packing of a type at a unit size; `None` when it has none.
    pub fn fingerprint(&self, ty: GgmlType, unit_rows: u64) -> Option<Fingerprint> {
        let traits = self.packer.traits(ty, unit_rows).ok()?;
        Some(traits.fingerprint)
    }

    /// Tells whether the engine has a packing for a type and dims.
    pub fn packs(&self, ty: GgmlType, dims: &[u64]) -> bool {
        !self.packer.choice(ty, dims).is_null()
    }

    /// Packs a whole tensor over what `target` holds; false when the engine has no packing for it.
    pub fn pack(&self, ty: GgmlType, dims: &[u64], source: &[u8], target: &mut [u8]) -> bool {
        let Ok(geometry) = layout::admit(ty, dims) else {
            return false;
        };
        let packed = self.packer.pack(ty, dims, &geometry, source, target);
        packed.is_ok()
    }
}
