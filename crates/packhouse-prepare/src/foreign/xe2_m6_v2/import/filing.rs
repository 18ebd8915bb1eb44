//! Under which plan a foreign set is filed, and as made of which model.
//!
//! Invariant: `hashed` is only said of a model file that was compared with the records here.

use super::super::keys::slot_of;
use super::super::records::ForeignSet;
use super::super::source::{self, Source};
use super::ForeignImportError;
use crate::model::Model;
use crate::plan::{DimRule, Plan, builtin};
use packhouse_base::digest::Digest;
use packhouse_base::identity::canonical_dims;
use packhouse_store::container_record::{
    Admission, ContainerFile, ContainerRecord, ContainerRecordError,
};
use packhouse_store::root::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the set is filed as made of.
pub(super) struct MadeOf {
    pub(super) container: ContainerRecord,
    pub(super) path: Option<PathBuf>,
}

impl MadeOf {
    pub(super) fn new(
        store: &Store,
        set: &ForeignSet,
        model: Option<&Model>,
    ) -> Result<Self, ForeignImportError> {
        let Some(model) = model else {
            let container = container(set)?;
            return Ok(Self {
                container,
                path: None,
            });
        };
        let file = source::one_file(model)
            .map_err(|(path, count)| ForeignImportError::Shards { path, count })?;
        let path = || file.path().to_owned();
        let source = Source::new(store, model, file);
        let (expected, size) = (set.model.sha256, file.identity().size);
        let actual = source.sha256(0, size)?;
        if actual != expected {
            return Err(ForeignImportError::OtherModel {
                path: path(),
                expected,
                actual,
            });
        }
        for tensor in &set.tensors {
            let name = &tensor.identity.tensor_name;
            let found = model.container().shards()[0].tensor(name);
            let is_there = found.is_some_and(|found| {
                let shape = canonical_dims(&tensor.identity.tensor_shape);
                let place = (tensor.gguf_offset, tensor.source_bytes);
                (found.offset, found.bytes) == place && canonical_dims(&found.dims) == shape
            });
            let offset = tensor.gguf_offset;
            if !is_there || source.sha256(offset, tensor.source_bytes)? != tensor.source_sha256 {
                return Err(ForeignImportError::OtherTensor {
                    tensor: name.clone(),
                    path: path(),
                    offset,
                });
            }
        }
        model.unchanged()?;
        let name = file.path().file_name().unwrap_or_default();
        let container = ContainerFile {
            name: name.to_string_lossy().into_owned(),
            size,
            digest: Some(actual),
        };
        Ok(Self {
            container: ContainerRecord::new(vec![container], Admission::Hashed)?,
            path: file.path().is_absolute().then(path),
        })
    }
}

/// The model as the directory records it; nobody here hashed it.
fn container(foreign: &ForeignSet) -> Result<ContainerRecord, ContainerRecordError> {
    let last = foreign.model.path.rsplit('/').next().unwrap_or_default();
    let name = match last {
        "" | "." | ".." => "model.gguf",
        plain => plain,
    };
    let file = ContainerFile {
        name: name.replace('\0', "_"),
        size: foreign.model.size_bytes,
        digest: Some(foreign.model.sha256),
    };
    ContainerRecord::new(vec![file], Admission::Skipped)
}

/// The built-in plan whose tensors these are, all and no other, else the plan of the format.
pub(super) fn plan_of(foreign: &ForeignSet) -> (String, Digest) {
    if let Some(builtin) = builtin::find(BUILTIN_PLAN) {
        let plan = builtin.plan();
        if fits(&plan, foreign) {
            return (plan.name().to_owned(), plan.digest());
        }
    }
    (FORMAT_PLAN.to_owned(), Digest::of(b"xe2-m6-v2\n"))
}

fn fits(plan: &Plan, foreign: &ForeignSet) -> bool {
    let mut expected = BTreeMap::new();
    for rule in plan.rules() {
        for tensor in rule.expected() {
            expected.insert(&tensor.name, (tensor.slot, rule.dims()));
        }
    }
    expected.len() == foreign.tensors.len()
        && foreign.tensors.iter().all(|tensor| {
            let identity = &tensor.identity;
            let wanted = expected.get(&identity.tensor_name);
            wanted.is_some_and(|(slot, dims)| {
                *slot == slot_of(&identity.tensor_name) && has_dims(dims, &identity.tensor_shape)
            })
        })
}

fn has_dims(rules: &[DimRule], dims: &[u64]) -> bool {
    rules.len() == dims.len()
        && rules.iter().zip(dims).all(|(rule, dim)| match *rule {
            DimRule::Exact(exact) => exact == *dim,
            DimRule::Within { min, max, multiple } => {
                (min..=max).contains(dim) && dim.is_multiple_of(multiple)
            }
        })
}

const BUILTIN_PLAN: &str = "qwen27-xe2-m6";
const FORMAT_PLAN: &str = "xe2-m6-v2";

#[cfg(test)]
mod tests {
    use super::super::super::records::{ForeignTensor, SourceModel};
    use super::super::super::{Revision, TensorIdentity};
    use super::*;

    /// The 187 tensors, of no bytes that anybody has.
    fn whole() -> ForeignSet {
        let sha256 = Digest::of(b"model");
        let tensor = |name: String, shape| ForeignTensor {
            identity: TensorIdentity {
                target_model_sha256: sha256,
                tensor_name: name,
                tensor_shape: shape,
            },
            gguf_offset: 0,
            source_bytes: 0,
            source_sha256: sha256,
            payload_bytes: 0,
            payload_sha256: sha256,
        };
        let gate_up = (0..65).flat_map(|layer| {
            ["gate", "up"].map(|family| format!("blk.{layer}.ffn_{family}.weight"))
        });
        let down = (8..65).map(|layer| format!("blk.{layer}.ffn_down.weight"));
        ForeignSet {
            revision: Revision::Three,
            model: SourceModel {
                path: "/models/model.gguf".into(),
                sha256,
                size_bytes: 1,
                hash_validated: true,
            },
            tensors: gate_up
                .map(|name| tensor(name, [5120, 17408]))
                .chain(down.map(|name| tensor(name, [17408, 5120])))
                .collect(),
        }
    }

    #[test]
    fn the_187_tensors_are_filed_under_the_plan_that_prepare_uses_and_no_others_are() {
        let plan = builtin::find(BUILTIN_PLAN).map(builtin::BuiltinPlan::plan);
        let digest = plan.expect("because it is built in").digest();
        assert_eq!(plan_of(&whole()), (BUILTIN_PLAN.to_owned(), digest));
        let changes: [fn(&mut ForeignSet); 3] = [
            |set| {
                set.tensors.pop();
            },
            |set| set.tensors[3].identity.tensor_shape = [5120, 5120],
            |set| set.tensors[186].identity.tensor_name = "blk.65.ffn_down.weight".into(),
        ];
        for change in changes {
            let mut set = whole();
            change(&mut set);
            assert_eq!(plan_of(&set).0, FORMAT_PLAN);
        }
    }

    #[test]
    fn the_recorded_path_gives_a_file_name_and_never_a_folder() {
        let mut set = whole();
        for (path, name) in [
            ("/models/a.gguf", "a.gguf"),
            ("../../x", "x"),
            ("..", "model.gguf"),
            ("/models/", "model.gguf"),
            ("", "model.gguf"),
            ("a\0b", "a_b"),
        ] {
            set.model.path = path.into();
            let record = container(&set).expect("because the name is plain");
            assert_eq!(record.files()[0].name, name, "{path:?}");
            assert_eq!(record.admission(), Admission::Skipped);
        }
    }
}
