//! Small containers, made and damaged.

use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use std::path::Path;

/// Writes a container with these (name, type, dims), all bytes zero.
pub(crate) fn write(path: &Path, tensors: &[(&str, &str, &[u64])], metadata: &[(&str, Value)]) {
    let entry = |(key, value): &(&str, Value)| Entry {
        key: (*key).into(),
        value: value.clone(),
    };
    let architecture = ("general.architecture", Value::String("llama".into()));
    let draft = Draft {
        metadata: std::iter::once(&architecture)
            .chain(metadata)
            .map(entry)
            .collect(),
        tensors: tensors
            .iter()
            .map(|(name, ty, dims)| DraftTensor {
                name: (*name).into(),
                ggml_type: GgmlType::from_name(ty).expect("because tests name known types"),
                dims: dims.to_vec(),
            })
            .collect(),
    };
    let mut writer = draft.begin(Vec::new()).expect("because the draft is sound");
    for tensor in &draft.tensors {
        let bytes = tensor
            .ggml_type
            .tensor_bytes(&tensor.dims)
            .expect("because dims are small");
        writer
            .put(&vec![0; usize::try_from(bytes).unwrap()])
            .expect("because memory takes it");
    }
    std::fs::write(path, writer.finish().expect("because all bytes are there")).unwrap();
}
