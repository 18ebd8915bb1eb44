//! The engine's own packer, run on whole tensors and on units of rows.
//!
//! Nothing here restates a packing: every packed byte comes from the engine's CPU_REPACK
//! `set_tensor`. That a run of units packs to the same bytes as inside the whole is proven on the
//! golden weights, per type and unit size, before it is relied on.

use crate::abi::v3;
use crate::host::Host;
use crate::tensor::OwnTensor;
use packhouse_base::digest::Fingerprint;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Geometry;
use packhouse_layout::ggml_cpu_repack::{self as layout, Golden};
use packhouse_loader::{PackerRefusal, PackerTraits};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// The packer of one engine and what its golden weights showed.
pub(crate) struct EnginePacker {
    host: Arc<Host>,
    traits: Mutex<BTreeMap<(u32, u64), Result<PackerTraits, PackerRefusal>>>,
}

impl EnginePacker {
    /// Wraps an identified engine.
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self {
            host,
            traits: Mutex::default(),
        }
    }

    /// Packs the golden weight of a type and unit size, once per process: the fingerprint, and
    /// whether units pack alone. Errors when the engine has no packing for it.
    pub(crate) fn traits(
        &self,
        ty: GgmlType,
        unit_rows: u64,
    ) -> Result<PackerTraits, PackerRefusal> {
        let mut known = self.traits.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .entry((ty.id(), unit_rows))
            .or_insert_with(|| self.examine(ty, unit_rows))
            .clone()
    }

    /// Packs a run of whole units of a tensor: `source` and `target` have the same length, a
    /// multiple of the geometry's unit bytes. Errors when the engine has no packing for the tensor.
    pub(crate) fn pack(
        &self,
        ty: GgmlType,
        dims: &[u64],
        geometry: &Geometry,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), PackerRefusal> {
        let refusal = || PackerRefusal::NoPacking {
            name: ty.name(),
            dims: dims.to_vec(),
        };
        let mut tensor = OwnTensor::new(&self.host, ty, dims).ok_or_else(refusal)?;
        // SAFETY: the tensor is whole; init_tensor reads its type and dims and writes `extra`.
        let extra = unsafe {
            self.host.init_tensor(tensor.as_ptr());
            self.host.extra_of(tensor.as_ptr())
        };
        let rows = u64::try_from(source.len()).unwrap_or(u64::MAX) / geometry.row_bytes;
        if extra.is_null() || source.len() != target.len() {
            return Err(refusal());
        }
        let rows = i64::try_from(rows).map_err(|_| refusal())?;
        let head = tensor.head_mut();
        // A part keeps the parent's `extra`: it is the choice the engine made for the whole tensor.
        // A whole tensor keeps its dims too, so that a stack of matrices is packed as one.
        if u64::try_from(source.len()).ok() != Some(geometry.payload_bytes()) {
            (head.ne[1], head.ne[2], head.ne[3]) = (rows, 1, 1);
            head.nb[2] = head.nb[1] * usize::try_from(rows).map_err(|_| refusal())?;
            head.nb[3] = head.nb[2];
        }
        head.data = target.as_mut_ptr().cast();
        // SAFETY: the tensor is whole and packable, and after the check both ranges have its bytes.
        unsafe {
            if self.host.tensor_bytes(tensor.as_ptr()) != source.len() {
                return Err(refusal());
            }
            self.host
                .pack(tensor.as_ptr(), source.as_ptr(), source.len());
        }
        Ok(())
    }

    /// The packing that the engine chooses for a shape; null when it has none.
    pub(crate) fn choice(&self, ty: GgmlType, dims: &[u64]) -> *mut c_void {
        let Some(mut tensor) = OwnTensor::new(&self.host, ty, dims) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the tensor is whole.
        unsafe {
            self.host.init_tensor(tensor.as_ptr());
            self.host.extra_of(tensor.as_ptr())
        }
    }

    fn examine(&self, ty: GgmlType, unit_rows: u64) -> Result<PackerTraits, PackerRefusal> {
        let refusal = || PackerRefusal::NoPacking {
            name: ty.name(),
            dims: vec![unit_rows],
        };
        let golden = layout::golden(ty, unit_rows).ok_or_else(refusal)?;
        let whole = self.pack_golden(ty, &golden.dims, &golden, GOLDEN_WHOLE)?;
        let again = self.pack_golden(ty, &golden.dims, &golden, GOLDEN_WHOLE)?;
        if whole != again {
            return Err(PackerRefusal::NotDeterministic { name: ty.name() });
        }
        // A stack of matrices of one unit each must pack to the same bytes too, and so must single
        // units.
        let [columns, rows] = golden.dims;
        let stacked = [columns, unit_rows, rows / unit_rows];
        let by_units = self.pack_golden(ty, &golden.dims, &golden, 1)? == whole
            && self.pack_golden(ty, &golden.dims, &golden, 2)? == whole
            && self.pack_golden(ty, &stacked, &golden, GOLDEN_WHOLE)? == whole;
        let sample_rows = self.sample_rows(ty, unit_rows, &golden, &whole)?;
        let fingerprint: Fingerprint = layout::fingerprint(ty, unit_rows, &whole);
        Ok(PackerTraits {
            fingerprint,
            by_units,
            sample_rows,
        })
    }

    /// The fewest rows that the engine's choice for this unit size packs alone. Fewer rows than its
    /// interleave would end the engine, so only rows for which it makes the same choice are tried.
    fn sample_rows(
        &self,
        ty: GgmlType,
        unit_rows: u64,
        golden: &Golden,
        whole: &[u8],
    ) -> Result<u64, PackerRefusal> {
        let [columns, rows] = golden.dims;
        let choice = self.choice(ty, &golden.dims);
        let fewer = layout::UNITS
            .into_iter()
            .rev()
            .filter(|fewer| *fewer < unit_rows);
        for fewer in fewer.filter(|fewer| self.choice(ty, &[columns, *fewer]) == choice) {
            let row_bytes = golden.bytes.len() as u64 / rows;
            let geometry = Geometry {
                row_count: rows,
                row_bytes,
                unit_rows: fewer,
            };
            let run = usize::try_from(geometry.unit_bytes()).unwrap_or(usize::MAX);
            let mut packed = vec![0x5a; whole.len()];
            for (source, target) in golden.bytes.chunks(run).zip(packed.chunks_mut(run)) {
                self.pack(ty, &golden.dims, &geometry, source, target)?;
            }
            if packed == whole {
                return Ok(fewer);
            }
        }
        Ok(unit_rows)
    }

    /// Packs the golden weight in runs of `units` units into memory poisoned beforehand.
    fn pack_golden(
        &self,
        ty: GgmlType,
        dims: &[u64],
        golden: &Golden,
        units: usize,
    ) -> Result<Vec<u8>, PackerRefusal> {
        let refusal = || PackerRefusal::NoPacking {
            name: ty.name(),
            dims: dims.to_vec(),
        };
        let geometry = layout::admit(ty, dims).map_err(|_| refusal())?;
        let unit_bytes = usize::try_from(geometry.unit_bytes()).map_err(|_| refusal())?;
        let run = unit_bytes.saturating_mul(units).min(golden.bytes.len());
        let mut target = vec![0xa5; golden.bytes.len()];
        for (source, target) in golden.bytes.chunks(run).zip(target.chunks_mut(run)) {
            self.pack(ty, dims, &geometry, source, target)?;
        }
        Ok(target)
    }
}

const GOLDEN_WHOLE: usize = usize::MAX;

const _: () = assert!(
    v3::NAME_OFFSET.is_multiple_of(8),
    "because OwnTensor is made of words"
);
