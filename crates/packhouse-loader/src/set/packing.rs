//! The packers that serve, for a tensor that a contract describes: what an engine falls back on
//! when a pack is refused, and what samples are compared with.

use crate::set::contract::{Contract, ContractMismatch};
use crate::set::refusal::Refusal;
use packhouse_base::digest::{Digest, Fingerprint, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use packhouse_layout::{Admitted, Layout, ggml_cpu_repack};
use packhouse_pack::{Kernel, Packers};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread;

/// A layout applied to a tensor, and the packer of this CPU for it.
pub struct Packing {
    packers: Packers,
    kernel: Kernel,
    contract: Contract,
}

impl Packing {
    /// Applies a contract's layout and finds its packer, whatever fingerprint the contract has:
    /// for those who ask for the fingerprint here. Errors when the layout is unknown, does not take
    /// the tensor, when parameters are given and not all of them, or when only an engine packs it.
    pub fn of_layout(contract: &Contract) -> Result<Self, Refusal> {
        let none = BTreeMap::new();
        let what = format!("contract of layout {}", contract.layout);
        let admitted = admit(&what, &Asked::by_contract(contract, &none))?;
        let packers = Packers::detect();
        let kernel = packers.kernel(&admitted);
        let packing = Self {
            kernel: kernel.map_err(|source| Refusal::NoKernel { what, source })?,
            packers,
            contract: contract.clone(),
        };
        match &contract.parameters {
            Some(actual) if actual != admitted.parameters() => {
                Err(packing.handed(ContractMismatch::Parameters {
                    expected: admitted.parameters().clone(),
                    actual: actual.clone(),
                }))
            }
            Some(_) | None => Ok(packing),
        }
    }

    /// The same, by the very packer of the contract's fingerprint. Errors also when that is not at
    /// hand, or not named for a layout whose order depends on it.
    pub fn of_contract(contract: &Contract) -> Result<Self, Refusal> {
        let packing = Self::of_layout(contract)?;
        let layout = contract.layout.clone();
        match contract.fingerprint {
            None if layout == ggml_cpu_repack::ID => {
                Err(packing.handed(ContractMismatch::FingerprintNeeded { layout }))
            }
            None => Ok(packing),
            Some(expected) => {
                let actual = packing.fingerprint()?;
                if actual == expected {
                    return Ok(packing);
                }
                Err(Refusal::ContractPacker {
                    layout,
                    expected,
                    actual,
                })
            }
        }
    }

    /// The tensor.
    pub fn admitted(&self) -> &Admitted {
        self.kernel.admitted()
    }

    /// Packs the golden weight and hashes what comes of it: the packer's fingerprint. Errors where
    /// only an engine packs that.
    pub fn fingerprint(&self) -> Result<Fingerprint, Refusal> {
        let fingerprint = self.packers.fingerprint(self.admitted());
        fingerprint.map_err(|source| Refusal::NoKernel {
            what: "the golden weight".to_owned(),
            source,
        })
    }

    /// Packs on up to so many threads, the calling one among them, but on no more than the process
    /// may run at once; writes every byte of `target`. Errors, and writes nothing, when the source
    /// is not the contract's.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn pack(
        &self,
        source: &[u8],
        target: &mut [u8],
        thread_count: NonZeroUsize,
    ) -> Result<(), Refusal> {
        self.agree_on_source(source)?;
        let thread_count = bounded(thread_count, || {
            thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
        });
        self.kernel.pack_parallel(source, target, thread_count);
        Ok(())
    }

    /// Gives the source of a payload back; writes every byte of `target`. Errors when the layout
    /// has no inverse, and nothing is written; or when what came of it is not the contract's
    /// source, and the target is zeroed.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn unpack(&self, payload: &[u8], target: &mut [u8]) -> Result<(), Refusal> {
        self.kernel.inverse()?.unpack(payload, target);
        let agreed = self.agree_on_source(target);
        if agreed.is_err() {
            target.fill(0);
        }
        agreed
    }

    fn agree_on_source(&self, source: &[u8]) -> Result<(), Refusal> {
        let Some(expected) = self.contract.source else {
            return Ok(());
        };
        let actual = TensorDigest(Digest::of(source));
        if actual == expected {
            return Ok(());
        }
        Err(self.handed(ContractMismatch::Source { expected, actual }))
    }

    fn handed(&self, mismatch: ContractMismatch) -> Refusal {
        Refusal::Handed {
            layout: self.contract.layout.clone(),
            mismatch: Box::new(mismatch),
        }
    }
}

/// So many threads, but no more than there are.
fn bounded(thread_count: NonZeroUsize, every: impl FnOnce() -> NonZeroUsize) -> NonZeroUsize {
    if thread_count == NonZeroUsize::MIN {
        return thread_count;
    }
    thread_count.min(every())
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
    /// Of a contract; `none` are the parameters of one that has none.
    pub(crate) fn by_contract(contract: &'a Contract, none: &'a BTreeMap<String, u64>) -> Self {
        Self {
            layout: &contract.layout,
            version: contract.layout_version,
            type_id: contract.type_id,
            dims: &contract.dims,
            parameters: contract.parameters.as_ref().unwrap_or(none),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_are_started_than_there_are() {
        let count = |value: usize| NonZeroUsize::new(value).expect("because it is not 0");
        let of_eight = |value: usize| bounded(count(value), || count(8)).get();
        let asked = [1, 2, 8, 9, 4_294_967_295];
        assert_eq!(asked.map(of_eight), [1, 2, 8, 8, 8]);
        assert_eq!(bounded(count(1), || panic!("one asks nobody")).get(), 1);
    }
}
