//! The packers that serve, for a tensor that a contract describes: what an engine falls back on
//! when a pack is refused, and what samples are compared with.

use crate::set::contract::Contract;
use crate::set::refusal::Refusal;
use packhouse_base::digest::Fingerprint;
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{Kernel, Packers};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// A layout applied to a tensor, and the packer of this CPU for it.
pub struct Packing {
    kernel: Kernel,
}

impl Packing {
    /// Applies a contract's layout; parameters that it leaves out get their defaults. Errors when
    /// the layout is unknown, does not take the tensor, or when only an engine packs it.
    pub fn of_contract(contract: &Contract) -> Result<Self, Refusal> {
        let none = BTreeMap::new();
        let admitted = admit(
            &format!("contract of layout {}", contract.layout),
            &Asked {
                layout: &contract.layout,
                version: contract.layout_version,
                type_id: contract.type_id,
                dims: &contract.dims,
                parameters: contract.parameters.as_ref().unwrap_or(&none),
            },
        )?;
        Self::of_admitted(&Packers::detect(), &admitted, "contract")
    }

    pub(crate) fn of_admitted(
        packers: &Packers,
        admitted: &Admitted,
        what: &str,
    ) -> Result<Self, Refusal> {
        let no_kernel = |source| Refusal::NoKernel {
            what: what.to_owned(),
            source,
        };
        Ok(Self {
            kernel: packers.kernel(admitted).map_err(no_kernel)?,
        })
    }

    /// The tensor.
    pub fn admitted(&self) -> &Admitted {
        self.kernel.admitted()
    }

    /// Packs the golden weight and hashes what comes of it: the packer's fingerprint. Errors where
    /// only an engine packs that.
    pub fn fingerprint(&self) -> Result<Fingerprint, Refusal> {
        let fingerprint = Packers::detect().fingerprint(self.admitted());
        fingerprint.map_err(|source| Refusal::NoKernel {
            what: "the golden weight".to_owned(),
            source,
        })
    }

    /// Packs on up to so many threads, the calling one among them; writes every byte of `target`.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn pack(&self, source: &[u8], target: &mut [u8], thread_count: NonZeroUsize) {
        self.kernel.pack_parallel(source, target, thread_count);
    }

    /// Gives the source of a payload back; writes every byte of `target`.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn unpack(&self, payload: &[u8], target: &mut [u8]) {
        self.kernel.unpack(payload, target);
    }
}

/// What names a packing.
pub(crate) struct Asked<'a> {
    pub(crate) layout: &'a str,
    pub(crate) version: u64,
    pub(crate) type_id: u32,
    pub(crate) dims: &'a [u64],
    pub(crate) parameters: &'a BTreeMap<String, u64>,
}

impl<'a> Asked<'a> {
    pub(crate) fn by(identity: &'a PackIdentity) -> Self {
        Self {
            layout: &identity.layout,
            version: identity.layout_version,
            type_id: identity.type_id,
            dims: &identity.dims,
            parameters: &identity.parameters,
        }
    }
}

/// Applies a layout by its name. Errors when it is unknown or does not take the tensor.
pub(crate) fn admit(what: &str, asked: &Asked<'_>) -> Result<Admitted, Refusal> {
    let layout = Layout::from_id(asked.layout);
    let layout = layout.filter(|layout| layout.version() == asked.version);
    let layout = layout.ok_or_else(|| Refusal::LayoutUnknown {
        what: what.to_owned(),
        layout: asked.layout.to_owned(),
        version: asked.version,
    })?;
    let ty = GgmlType::from_id(asked.type_id).map_err(|source| Refusal::TypeUnknown {
        what: what.to_owned(),
        source,
    })?;
    let admitted = layout.admit(ty, asked.dims, asked.parameters);
    admitted.map_err(|source| Refusal::NotAdmitted {
        what: what.to_owned(),
        source,
    })
}
