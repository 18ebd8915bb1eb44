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

/// Like `write`, with seeded weights that differ from row to row and are finite.
pub(crate) fn write_seeded(path: &Path, tensors: &[(&str, &str, &[u64])], seed: u64) {
    let draft = Draft {
        metadata: vec![Entry {
            key: "general.architecture".into(),
            value: Value::String("llama".into()),
        }],
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
    for (index, tensor) in (0u64..).zip(&draft.tensors) {
        let bytes = tensor.ggml_type.tensor_bytes(&tensor.dims);
        let bytes = usize::try_from(bytes.expect("because dims are small")).unwrap();
        writer
            .put(&seeded(tensor.ggml_type, bytes, seed + index))
            .expect("because memory takes it");
    }
    std::fs::write(path, writer.finish().expect("because all bytes are there")).unwrap();
}

/// Seeded bytes of a tensor.
pub(crate) fn seeded(ty: GgmlType, bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let block_bytes = usize::try_from(ty.block_bytes()).unwrap();
    let mut content = vec![0; bytes];
    for block in content.chunks_exact_mut(block_bytes) {
        for word in block.chunks_mut(8) {
            word.copy_from_slice(&next()[..word.len()]);
        }
        // Floats, and the 16-bit scales of blocks, get an exponent near that of one hundredth.
        let scale_at = match ty.name() {
            "F32" => {
                block[3] = block[3] & 0x80 | 0x3c;
                continue;
            }
            "F16" | "Q4_0" | "Q8_0" => 1,
            "Q6_K" => 209,
            "I8" => continue,
            other => panic!("tests seed no {other}"),
        };
        block[scale_at] = block[scale_at] & 0x83 | 0x20;
    }
    content
}
