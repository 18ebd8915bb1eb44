//! Seeded synthetic models of the llama architecture that a stock engine loads and runs.
//!
//! Invariants:
//! - the same spec, tokenizer and seed give the same bytes, on every machine;
//! - each tensor's bytes depend only on its name, its type, the width and the seed;
//! - all scales are finite and normal, and weights have a deviation near 1 / sqrt(width), so that a
//!   pass through the model stays finite.
//!
//! The tokenizer is copied from a real file: its text is the only thing here that is not made up.

mod blocks;
mod random;

pub use blocks::WeightType;

use crate::gguf::{Array, Draft, DraftTensor, Entry, Metadata, Value, WriteError, Writer};
use random::Random;
use std::io::Write;

/// The shape of a synthetic model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of layers.
    pub layers: u32,
    /// Length of the hidden state.
    pub width: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key and value heads.
    pub kv_heads: u32,
    /// Inner length of the feed-forward part.
    pub ffn: u32,
    /// Context length that the metadata names.
    pub context: u32,
    /// Type of all matrices; norms are F32.
    pub weights: WeightType,
    /// Whether there is an `output.weight` of its own beside the token embedding.
    pub separate_output: bool,
}

/// Why a synthetic model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The tokenizer's metadata has no list of tokens.
    #[error("the tokenizer source has no string array {key}")]
    NoTokens {
        /// The key.
        key: &'static str,
    },
    /// A dimension of the spec does not fit the others or the weight type.
    #[error("{what} of {value} is no multiple of {multiple}, or is 0")]
    Shape {
        /// The dimension.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What it must be a multiple of.
        multiple: u32,
    },
    /// No shape comes near the size asked for.
    #[error("no shape with {tokens} tokens has {bytes} bytes")]
    Size {
        /// The size asked for.
        bytes: u64,
        /// Tokens in the vocabulary.
        tokens: u64,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl SynthError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> packhouse_base::Blame {
        match self {
            Self::NoTokens { .. } | Self::Shape { .. } | Self::Size { .. } => {
                packhouse_base::Blame::Caller
            }
            Self::Write(error) => error.blame(),
        }
    }
}

impl Spec {
    /// Chooses layers and width for a file of about `bytes`, with proportions like those of real
    /// models. Errors when even the smallest shape is larger, or the tokenizer has no tokens.
    pub fn for_bytes(
        bytes: u64,
        tokenizer: &Metadata,
        weights: WeightType,
    ) -> Result<Self, SynthError> {
        let too_small = SynthError::Size {
            bytes,
            tokens: token_count(tokenizer)?,
        };
        let mut chosen = None;
        for width in WIDTHS {
            let mut spec = Self::of_width(width, weights, bytes >= SEPARATE_OUTPUT_BYTES_MIN);
            if spec.refuse_shape().is_err() {
                continue;
            }
            let one = spec.draft(tokenizer)?.file_bytes()?;
            spec.layers = 2;
            let layer_bytes = spec.draft(tokenizer)?.file_bytes()? - one;
            let Some(room) = bytes.checked_sub(one) else {
                break;
            };
            let layers = (1 + (room + layer_bytes / 2) / layer_bytes).min(LAYERS_MAX);
            if chosen.is_some() && layers < u64::from(width / WIDTH_PER_LAYER) {
                break;
            }
            spec.layers = u32::try_from(layers).expect("because it is at most LAYERS_MAX");
            chosen = Some(spec);
        }
        chosen.ok_or(too_small)
    }

    fn of_width(width: u32, weights: WeightType, separate_output: bool) -> Self {
        let heads = width / if width < 2048 { 64 } else { 128 };
        Self {
            layers: 1,
            width,
            heads,
            kv_heads: if heads.is_multiple_of(4) {
                heads / 4
            } else {
                heads
            },
            ffn: (width * 8 / 3).next_multiple_of(256),
            context: 4096,
            weights,
            separate_output,
        }
    }

    /// Errors when dimensions don't fit each other or the weight type.
    fn refuse_shape(&self) -> Result<(), SynthError> {
        let block = u32::try_from(self.weights.ggml_type().block_elements()).unwrap_or(u32::MAX);
        let head_pair = self.heads.saturating_mul(2);
        for (what, value, multiple) in [
            ("heads", self.heads, self.kv_heads),
            ("width", self.width, head_pair),
            ("width", self.width, block),
            ("feed-forward length", self.ffn, block),
            ("layer count", self.layers, 1),
            ("context length", self.context, 1),
        ] {
            if value == 0 || !value.is_multiple_of(multiple) {
                return Err(SynthError::Shape {
                    what,
                    value,
                    multiple,
                });
            }
        }
        Ok(())
    }

    /// The directory of the model: metadata, the copied tokenizer, and tensors in the order of
    /// layers. Errors when the shape does not fit, or the tokenizer has no tokens.
    pub fn draft(&self, tokenizer: &Metadata) -> Result<Draft, SynthError> {
        self.refuse_shape()?;
        let tokens = token_count(tokenizer)?;
        Ok(Draft {
            metadata: self.metadata(tokenizer),
            tensors: self.tensors(tokens),
        })
    }

    fn metadata(&self, tokenizer: &Metadata) -> Vec<Entry> {
        let text = |key: &str, value: &str| entry(key, Value::String(value.to_owned()));
        let number = |key: &str, value: u32| entry(key, Value::U32(value));
        let mut metadata = vec![
            text("general.architecture", "llama"),
            text("general.name", "packhouse synthetic"),
            number("general.file_type", self.weights.file_type()),
            number("llama.block_count", self.layers),
            number("llama.context_length", self.context),
            number("llama.embedding_length", self.width),
            number("llama.feed_forward_length", self.ffn),
            number("llama.attention.head_count", self.heads),
            number("llama.attention.head_count_kv", self.kv_heads),
            number("llama.rope.dimension_count", self.width / self.heads),
            entry("llama.rope.freq_base", Value::F32(10_000.0)),
            entry("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ];
        let copied = tokenizer.entries().iter();
        metadata.extend(copied.filter(|e| e.key.starts_with("tokenizer.")).cloned());
        metadata
    }

    fn tensors(&self, tokens: u64) -> Vec<DraftTensor> {
        let (width, ffn) = (u64::from(self.width), u64::from(self.ffn));
        let kv_width = width / u64::from(self.heads) * u64::from(self.kv_heads);
        let matrix = |name: String, row: u64, rows: u64| DraftTensor {
            name,
            ggml_type: self.weights.ggml_type(),
            dims: vec![row, rows],
        };
        let norm = |name: String| DraftTensor {
            name,
            ggml_type: WeightType::F32.ggml_type(),
            dims: vec![width],
        };
        let mut tensors = vec![matrix("token_embd.weight".into(), width, tokens)];
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            tensors.extend([
                norm(name("attn_norm")),
                matrix(name("attn_q"), width, width),
                matrix(name("attn_k"), width, kv_width),
                matrix(name("attn_v"), width, kv_width),
                matrix(name("attn_output"), width, width),
                norm(name("ffn_norm")),
                matrix(name("ffn_gate"), width, ffn),
                matrix(name("ffn_up"), width, ffn),
                matrix(name("ffn_down"), ffn, width),
            ]);
        }
        tensors.push(norm("output_norm.weight".into()));
        if self.separate_output {
            tensors.push(matrix("output.weight".into(), width, tokens));
        }
        tensors
    }
}

/// Writes a model. Errors when the shape does not fit, the tokenizer has no tokens, or the target
/// refuses.
pub fn write<W: Write>(
    spec: &Spec,
    tokenizer: &Metadata,
    seed: u64,
    target: &mut W,
) -> Result<(), SynthError> {
    let draft = spec.draft(tokenizer)?;
    let mut writer = draft.begin(target)?;
    for tensor in &draft.tensors {
        let mut random = Random::for_tensor(seed, &tensor.name);
        if tensor.dims.len() == 1 {
            write_norm(&mut writer, tensor.dims[0], &mut random)?;
        } else {
            let bytes = tensor.ggml_type.tensor_bytes(&tensor.dims).unwrap_or(0);
            write_matrix(&mut writer, spec, bytes, &mut random)?;
        }
    }
    writer.finish()?;
    Ok(())
}

/// Writes norm weights from 0.5 to 1.5.
fn write_norm(
    writer: &mut Writer<impl Write>,
    count: u64,
    random: &mut Random,
) -> Result<(), WriteError> {
    let weights: Vec<u8> = (0..count)
        .flat_map(|_| (random.unit_f32() + 0.5).to_le_bytes())
        .collect();
    writer.put(&weights)
}

fn write_matrix(
    writer: &mut Writer<impl Write>,
    spec: &Spec,
    bytes: u64,
    random: &mut Random,
) -> Result<(), WriteError> {
    let block_bytes = usize::try_from(spec.weights.ggml_type().block_bytes()).unwrap_or(1);
    let mut buffer = vec![0; CHUNK_BYTES / block_bytes * block_bytes];
    let mut left = bytes;
    while left > 0 {
        // Both are whole blocks.
        let count = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let chunk = &mut buffer[..count];
        spec.weights.fill(spec.width, random, chunk);
        writer.put(chunk)?;
        left -= u64::try_from(count).unwrap_or(left);
    }
    Ok(())
}

const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
/// Bytes made and written at once: fits in a core's cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Widths that sizes are made of, each a whole number of heads.
const WIDTHS: [u32; 11] = [64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120];
/// A shape has at least one layer for this much width.
const WIDTH_PER_LAYER: u32 = 160;
/// The most layers that llama.cpp allows.
const LAYERS_MAX: u64 = 512;
/// Models of this size and above have an output matrix of their own, like real ones.
const SEPARATE_OUTPUT_BYTES_MIN: u64 = 1 << 30;

fn token_count(tokenizer: &Metadata) -> Result<u64, SynthError> {
    match tokenizer.value(TOKENS_KEY) {
        Some(Value::Array(Array::String(tokens))) if !tokens.is_empty() => {
            Ok(u64::try_from(tokens.len()).unwrap_or(u64::MAX))
        }
        Some(_) | None => Err(SynthError::NoTokens { key: TOKENS_KEY }),
    }
}

fn entry(key: &str, value: Value) -> Entry {
    Entry {
        key: key.to_owned(),
        value,
    }
}
