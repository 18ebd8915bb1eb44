//! Containers of any names, types and shapes, without the bytes of their tensors.

use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_container::{Container, ReadAt, TensorDirectory};
use packhouse_layout::stock_x86::Features;
use packhouse_pack::{IsaLevel, Packers};
use packhouse_prepare::plan::{Plan, SelectContext, Selection, SelectionError};

/// One tensor of a made-up model: name, type, dims.
pub(crate) type Made = (String, &'static str, Vec<u64>);

/// A file whose directory is written and whose tensors are holes.
struct Sparse {
    directory: Vec<u8>,
    bytes: u64,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        buffer.fill(0);
        let start = usize::try_from(offset).unwrap().min(self.directory.len());
        let known = &self.directory[start..];
        let length = known.len().min(buffer.len());
        buffer[..length].copy_from_slice(&known[..length]);
        Ok(())
    }
}

/// A container in one file.
pub(crate) fn container(architecture: Option<&str>, tensors: &[Made]) -> Container {
    Container::new(vec![directory(architecture, tensors, None)]).unwrap()
}

/// A container of two shards, cut before the tensor at `cut`.
pub(crate) fn sharded(architecture: &str, tensors: &[Made], cut: usize) -> Container {
    let shard = |no, part| directory(Some(architecture), part, Some((no, tensors.len())));
    let shards = vec![shard(0, &tensors[..cut]), shard(1, &tensors[cut..])];
    Container::new(shards).unwrap()
}

/// Selects with every feature and plain loops, which pack whatever a stock x86-64 build does.
pub(crate) fn select(plan: &Plan, container: &Container) -> Result<Selection, SelectionError> {
    select_with(plan, container, true)
}

/// Like `select`, on a host with or without AVX2 and AVX-512.
pub(crate) fn select_with(
    plan: &Plan,
    container: &Container,
    is_new: bool,
) -> Result<Selection, SelectionError> {
    let packers = Packers::at(IsaLevel::Scalar).expect("because plain loops run everywhere");
    let context = SelectContext {
        features: Features {
            avx2: is_new,
            avx512: is_new,
        },
        packers: &packers,
    };
    plan.select(container, &context)
}

fn directory(
    architecture: Option<&str>,
    tensors: &[Made],
    split: Option<(u16, usize)>,
) -> TensorDirectory {
    let entry = |key: &str, value| Entry {
        key: key.into(),
        value,
    };
    let mut metadata = Vec::new();
    if let Some(name) = architecture {
        metadata.push(entry("general.architecture", Value::String(name.into())));
    }
    if let Some((no, total)) = split {
        metadata.push(entry("split.no", Value::U16(no)));
        metadata.push(entry("split.count", Value::U16(2)));
        let total = i32::try_from(total).unwrap();
        metadata.push(entry("split.tensors.count", Value::I32(total)));
    }
    let tensors = tensors.iter().map(|(name, ty, dims)| DraftTensor {
        name: name.clone(),
        ggml_type: GgmlType::from_name(ty).expect("because tests name known types"),
        dims: dims.clone(),
    });
    let draft = Draft {
        metadata,
        tensors: tensors.collect(),
    };
    let mut directory = Vec::new();
    draft
        .begin(&mut directory)
        .expect("because the draft is sound");
    let bytes = draft.file_bytes().expect("because sizes fit");
    TensorDirectory::parse(&Sparse { directory, bytes }).expect("because the writer is ours")
}
