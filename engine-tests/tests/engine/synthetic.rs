//! Small models of the llama architecture, loaded and never run: all types, experts, shards.

use super::choice::directory;
use engine_tests::{Model, Sandbox};
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_container::synth::{Spec, WeightType};
use packhouse_layout::golden::SplitMix64;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A model of the llama architecture that is never run, so its weights are any bytes.
pub(crate) struct Synthetic {
    pub(crate) ffn: u32,
    pub(crate) experts: Option<u64>,
}

/// Types with a packed order and without, dealt out in turn.
const TYPES: [&str; 9] = [
    "Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4", "Q6_K", "Q8_0", "Q5_K", "F16",
];

impl Synthetic {
    fn draft(&self) -> Draft {
        let (_, tokenizer) = directory(&Model::SmolLm2.path());
        let spec = Spec {
            layers: 4,
            width: 256,
            heads: 4,
            kv_heads: 2,
            ffn: self.ffn,
            context: 512,
            weights: WeightType::F32,
            separate_output: true,
        };
        let mut draft = spec
            .draft(tokenizer.metadata())
            .expect("because the shape fits");
        if let Some(count) = self.experts {
            let count_32 = u32::try_from(count).expect("because it is small");
            for (key, value) in [("count", count_32), ("used_count", 1)] {
                draft.metadata.push(Entry {
                    key: format!("llama.expert_{key}"),
                    value: Value::U32(value),
                });
            }
            draft.tensors = draft
                .tensors
                .into_iter()
                .flat_map(|t| experts(t, count))
                .collect();
        }
        let mut turn = 0;
        for tensor in draft
            .tensors
            .iter_mut()
            .filter(|tensor| tensor.dims.len() > 1)
        {
            tensor.ggml_type = (turn..)
                .map(|at| ty(TYPES[at % TYPES.len()]))
                .find(|ty| {
                    turn += 1;
                    tensor.dims[0].is_multiple_of(ty.block_elements())
                })
                .expect("because F16 takes any row");
        }
        draft
    }

    /// Writes the model into the sandbox.
    pub(crate) fn write(&self, sandbox: &Sandbox) -> PathBuf {
        let path = sandbox.path().join("synthetic.gguf");
        write(&self.draft(), &path, 0);
        path
    }

    /// Writes the model in three shards into the sandbox, the first without a tensor; returns the
    /// path of the first.
    pub(crate) fn write_shards(&self, sandbox: &Sandbox) -> PathBuf {
        let Draft { metadata, tensors } = self.draft();
        let total = i32::try_from(tensors.len()).expect("because they are few");
        let (second, third) = tensors.split_at(tensors.len() / 3);
        let parts = [&[], second, third];
        let paths = [1, 2, 3].map(|number| {
            sandbox
                .path()
                .join(format!("synthetic-0000{number}-of-00003.gguf"))
        });
        for (number, (path, tensors)) in (0..).zip(paths.iter().zip(parts)) {
            let split = [
                ("split.no", Value::U16(number)),
                ("split.count", Value::U16(3)),
                ("split.tensors.count", Value::I32(total)),
            ];
            let split = split.map(|(key, value)| Entry {
                key: key.to_owned(),
                value,
            });
            let of_model = metadata.iter().filter(|_| number == 0).cloned();
            let draft = Draft {
                metadata: of_model.chain(split).collect(),
                tensors: tensors.to_vec(),
            };
            write(&draft, path, u64::from(number) << 32);
        }
        let [first, ..] = paths;
        first
    }
}

/// Writes tensors of random bytes.
fn write(draft: &Draft, path: &Path, seed: u64) {
    let file = File::create_new(path).expect("the sandbox is writable");
    let mut writer = draft.begin(file).expect("because the directory is sound");
    for (seed, tensor) in (seed..).zip(&draft.tensors) {
        let bytes = tensor
            .ggml_type
            .tensor_bytes(&tensor.dims)
            .expect("because rows are whole");
        let mut bytes = vec![0; usize::try_from(bytes).expect("because it is small")];
        SplitMix64::new(seed).fill(&mut bytes);
        writer.put(&bytes).expect("the sandbox has room");
    }
    writer.finish().expect("because every tensor was written");
}

fn ty(name: &str) -> GgmlType {
    GgmlType::from_name(name).expect("because the test names known types")
}

/// A feed-forward matrix becomes a stack of them, and the first brings the router along.
fn experts(tensor: DraftTensor, count: u64) -> Vec<DraftTensor> {
    let Some(stem) = tensor.name.strip_suffix(".weight").filter(|stem| {
        ["ffn_gate", "ffn_up", "ffn_down"]
            .iter()
            .any(|part| stem.ends_with(part))
    }) else {
        return vec![tensor];
    };
    let mut dims = tensor.dims.clone();
    dims.push(count);
    let stack = DraftTensor {
        name: format!("{stem}_exps.weight"),
        ggml_type: tensor.ggml_type,
        dims,
    };
    let router = stem.strip_suffix("ffn_gate").map(|block| DraftTensor {
        name: format!("{block}ffn_gate_inp.weight"),
        ggml_type: tensor.ggml_type,
        dims: vec![tensor.dims[0], count],
    });
    [Some(stack), router].into_iter().flatten().collect()
}
