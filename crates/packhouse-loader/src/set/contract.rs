//! What an engine expects of a pack, compared field by field with the pack's record.

use crate::set::packing::{Asked, admit};
use packhouse_base::digest::{Fingerprint, TensorDigest};
use packhouse_base::identity::{PackIdentity, canonical_dims};
use packhouse_layout::ggml_cpu_repack;
use std::collections::BTreeMap;

/// What an engine's kernel reads: the pack must be exactly this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Layout id.
    pub layout: String,
    /// Layout version.
    pub layout_version: u64,
    /// ggml type id of the source tensor.
    pub type_id: u32,
    /// Dims, ne0 first; trailing ones don't matter.
    pub dims: Vec<u64>,
    /// Layout parameters, complete; `None` means the layout's defaults, and what follows from the
    /// tensor. A layout that is not known here has none.
    pub parameters: Option<BTreeMap<String, u64>>,
    /// SHA-256 of the source tensor's bytes; `None` takes any, and then only samples of live
    /// weights tell a pack of another model.
    pub source: Option<TensorDigest>,
    /// The packer's fingerprint; `None` takes any, which a layout whose order depends on its packer
    /// does not allow.
    pub fingerprint: Option<Fingerprint>,
}

/// The first field in which a pack is not what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractMismatch {
    /// Another layout.
    #[error("layout is {actual}, expected {expected}")]
    Layout {
        /// In the contract.
        expected: String,
        /// In the record.
        actual: String,
    },
    /// Another version of the layout.
    #[error("version of layout {layout} is {actual}, expected {expected}")]
    LayoutVersion {
        /// The layout.
        layout: String,
        /// In the contract.
        expected: u64,
        /// In the record.
        actual: u64,
    },
    /// Another type.
    #[error("type id is {actual}, expected {expected}")]
    Type {
        /// In the contract.
        expected: u32,
        /// In the record.
        actual: u32,
    },
    /// Another shape.
    #[error("dims are {actual:?}, expected {expected:?}")]
    Dims {
        /// In the contract, in canonical form.
        expected: Vec<u64>,
        /// In the record.
        actual: Vec<u64>,
    },
    /// Other parameters.
    #[error("parameters are {actual:?}, expected {expected:?}")]
    Parameters {
        /// In the contract.
        expected: BTreeMap<String, u64>,
        /// In the record.
        actual: BTreeMap<String, u64>,
    },
    /// A pack of other weights.
    #[error("source tensor has SHA-256 {actual}, expected {expected}")]
    Source {
        /// In the contract.
        expected: TensorDigest,
        /// In the record.
        actual: TensorDigest,
    },
    /// Another packer.
    #[error("fingerprint is {actual}, expected {expected}")]
    Fingerprint {
        /// In the contract.
        expected: Fingerprint,
        /// In the record.
        actual: Fingerprint,
    },
    /// The layout's name alone does not say which order the bytes have.
    #[error("layout {layout} needs a fingerprint in the contract: its order depends on the packer")]
    FingerprintNeeded {
        /// The layout.
        layout: String,
    },
}

impl Contract {
    /// Compares the contract with a pack's identity. Errors with the first field that differs.
    pub fn agree(&self, identity: &PackIdentity) -> Result<(), ContractMismatch> {
        self.agree_on_layout(identity)?;
        if self.type_id != identity.type_id {
            return Err(ContractMismatch::Type {
                expected: self.type_id,
                actual: identity.type_id,
            });
        }
        let dims = canonical_dims(&self.dims);
        if dims != identity.dims {
            return Err(ContractMismatch::Dims {
                expected: dims,
                actual: identity.dims.clone(),
            });
        }
        let expected = self.complete_parameters();
        if expected != identity.parameters {
            return Err(ContractMismatch::Parameters {
                expected,
                actual: identity.parameters.clone(),
            });
        }
        match self.source {
            Some(expected) if expected != identity.source => Err(ContractMismatch::Source {
                expected,
                actual: identity.source,
            }),
            Some(_) | None => self.agree_on_packer(identity),
        }
    }

    /// The parameters that are meant.
    fn complete_parameters(&self) -> BTreeMap<String, u64> {
        self.parameters.clone().unwrap_or_else(|| {
            let none = BTreeMap::new();
            let admitted = admit("contract", &Asked::by_contract(self, &none));
            admitted.map_or(none, |admitted| admitted.parameters().clone())
        })
    }

    fn agree_on_layout(&self, identity: &PackIdentity) -> Result<(), ContractMismatch> {
        if self.layout != identity.layout {
            return Err(ContractMismatch::Layout {
                expected: self.layout.clone(),
                actual: identity.layout.clone(),
            });
        }
        if self.layout_version != identity.layout_version {
            return Err(ContractMismatch::LayoutVersion {
                layout: self.layout.clone(),
                expected: self.layout_version,
                actual: identity.layout_version,
            });
        }
        Ok(())
    }

    fn agree_on_packer(&self, identity: &PackIdentity) -> Result<(), ContractMismatch> {
        match self.fingerprint {
            Some(expected) if expected != identity.fingerprint => {
                Err(ContractMismatch::Fingerprint {
                    expected,
                    actual: identity.fingerprint,
                })
            }
            None if self.layout == ggml_cpu_repack::ID => {
                Err(ContractMismatch::FingerprintNeeded {
                    layout: self.layout.clone(),
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;

    fn identity(layout: &str) -> PackIdentity {
        PackIdentity {
            layout: layout.to_owned(),
            layout_version: 2,
            parameters: [("n_tile".to_owned(), 8)].into(),
            fingerprint: Fingerprint(Digest::of(b"packer")),
            type_id: 2,
            dims: vec![64, 32],
            source: TensorDigest(Digest::of(b"weights")),
        }
    }

    fn contract_of(identity: &PackIdentity) -> Contract {
        Contract {
            layout: identity.layout.clone(),
            layout_version: identity.layout_version,
            type_id: identity.type_id,
            dims: identity.dims.clone(),
            parameters: Some(identity.parameters.clone()),
            source: Some(identity.source),
            fingerprint: Some(identity.fingerprint),
        }
    }

    #[test]
    fn a_contract_agrees_with_what_it_was_made_of_and_with_less() {
        let identity = identity("a");
        let mut contract = contract_of(&identity);
        assert_eq!(contract.agree(&identity), Ok(()));
        contract.dims.extend([1, 1]);
        assert_eq!(contract.agree(&identity), Ok(()));
        (contract.source, contract.fingerprint) = (None, None);
        assert_eq!(contract.agree(&identity), Ok(()));
    }

    /// What packs with the defaults must find what was packed with them, and nothing else.
    #[test]
    fn no_parameters_mean_the_defaults_of_the_layout() {
        let joint = |n_tile: u64| PackIdentity {
            layout_version: 1,
            parameters: [("n_tile".to_owned(), n_tile)].into(),
            ..identity("q4_0-joint-n-v1")
        };
        let mut contract = contract_of(&joint(8));
        contract.parameters = None;
        assert_eq!(contract.agree(&joint(8)), Ok(()));
        let refused = |mismatch: Result<(), ContractMismatch>| {
            let mismatch = mismatch.expect_err("because the parameters differ");
            assert!(
                matches!(mismatch, ContractMismatch::Parameters { .. }),
                "{mismatch}"
            );
        };
        refused(contract.agree(&joint(16)));
        contract.parameters = Some(BTreeMap::new());
        refused(contract.agree(&joint(8)));
        // The rows of a unit follow from the tensor's: 32 are units of 16.
        let repack = |unit_rows: u64| PackIdentity {
            layout_version: 1,
            parameters: [("unit_rows".to_owned(), unit_rows)].into(),
            ..identity(ggml_cpu_repack::ID)
        };
        let mut contract = contract_of(&repack(16));
        contract.parameters = None;
        assert_eq!(contract.agree(&repack(16)), Ok(()));
        refused(contract.agree(&repack(8)));
        // A layout that is not known here has no defaults.
        let mut contract = contract_of(&identity("a"));
        contract.parameters = None;
        refused(contract.agree(&identity("a")));
        let mut plain = identity("a");
        plain.parameters.clear();
        assert_eq!(contract.agree(&plain), Ok(()));
    }

    /// A field that is not compared would let a pack of another order or other weights through.
    #[test]
    fn each_field_that_differs_is_a_mismatch_of_its_own_with_both_values() {
        let identity = identity("a");
        let other = Digest::of(b"other");
        let expected_and_actual = |change: fn(&mut Contract)| {
            let mut contract = contract_of(&identity);
            change(&mut contract);
            contract
                .agree(&identity)
                .map_err(|mismatch| mismatch.to_string())
        };
        let refused = [
            expected_and_actual(|c| c.layout = "b".to_owned()),
            expected_and_actual(|c| c.layout_version = 3),
            expected_and_actual(|c| c.type_id = 8),
            expected_and_actual(|c| c.dims = vec![32, 64]),
            expected_and_actual(|c| c.parameters = Some([("n_tile".to_owned(), 16)].into())),
            expected_and_actual(|c| c.parameters = Some(BTreeMap::new())),
            expected_and_actual(|c| c.source = Some(TensorDigest(Digest::of(b"other")))),
            expected_and_actual(|c| c.fingerprint = Some(Fingerprint(Digest::of(b"other")))),
        ];
        let words = [
            "layout is a, expected b".to_owned(),
            "version of layout a is 2, expected 3".to_owned(),
            "type id is 2, expected 8".to_owned(),
            "dims are [64, 32], expected [32, 64]".to_owned(),
            "parameters are {\"n_tile\": 8}, expected {\"n_tile\": 16}".to_owned(),
            "parameters are {\"n_tile\": 8}, expected {}".to_owned(),
            format!(
                "source tensor has SHA-256 {}, expected {other}",
                identity.source
            ),
            format!("fingerprint is {}, expected {other}", identity.fingerprint),
        ];
        assert_eq!(refused.map(Result::unwrap_err), words);
    }

    #[test]
    fn a_layout_whose_order_depends_on_its_packer_needs_a_fingerprint() {
        let identity = identity(ggml_cpu_repack::ID);
        let mut contract = contract_of(&identity);
        assert_eq!(contract.agree(&identity), Ok(()));
        contract.fingerprint = None;
        let layout = ggml_cpu_repack::ID.to_owned();
        let needed = ContractMismatch::FingerprintNeeded { layout };
        assert_eq!(contract.agree(&identity), Err(needed));
    }
}
