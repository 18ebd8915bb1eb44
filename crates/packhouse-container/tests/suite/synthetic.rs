//! Synthetic models: legal files, the same bytes for the same seed, and scales that are finite.

use packhouse_base::digest::Digest;
use packhouse_container::gguf::{Array, Draft, Entry, Metadata, TensorDirectory, Value};
use packhouse_container::synth::{self, Spec, SynthError, WeightType};

fn tokenizer() -> Metadata {
    let tokens = (0..300u32)
        .map(|index| format!("t{index}"))
        .collect::<Vec<_>>();
    let tokens = tokens.iter().map(String::as_str).collect();
    let entry = |key: &str, value| Entry {
        key: key.into(),
        value,
    };
    let draft = Draft {
        metadata: vec![
            entry("general.architecture", Value::String("other".into())),
            entry("tokenizer.ggml.model", Value::String("gpt2".into())),
            entry("tokenizer.ggml.tokens", Value::Array(Array::String(tokens))),
        ],
        tensors: Vec::new(),
    };
    let file = draft.begin(Vec::new()).and_then(|writer| writer.finish());
    let file = file.expect("because memory takes all");
    parsed(&file).metadata().clone()
}

fn parsed(file: &[u8]) -> TensorDirectory {
    TensorDirectory::parse(&file).expect("because it was written")
}

fn spec(weights: WeightType) -> Spec {
    Spec {
        layers: 2,
        width: 256,
        heads: 4,
        kv_heads: 2,
        ffn: 512,
        context: 128,
        weights,
        separate_output: true,
    }
}

fn model(spec: &Spec, seed: u64) -> Vec<u8> {
    let mut file = Vec::new();
    synth::write(spec, &tokenizer(), seed, &mut file).expect("because memory takes all");
    file
}

#[test]
fn a_model_is_a_legal_file_with_the_copied_tokenizer() {
    for weights in WeightType::ALL {
        let spec = spec(weights);
        let directory = parsed(&model(&spec, 1));
        let metadata = directory.metadata();
        assert_eq!(metadata.text("general.architecture"), Some("llama"));
        let copied = |key| (metadata.value(key), tokenizer().value(key).cloned());
        for key in ["tokenizer.ggml.model", "tokenizer.ggml.tokens"] {
            let (written, given) = copied(key);
            assert_eq!(written, given.as_ref());
        }
        assert_eq!(directory.tensors().len(), 1 + 2 * 9 + 2);
        let key = directory
            .tensor("blk.1.attn_k.weight")
            .expect("because it was written");
        assert_eq!(key.dims, [256, 128]);
        assert_eq!(key.ggml_type, weights.ggml_type());
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let spec = spec(WeightType::Q4_0);
    let file = model(&spec, 7);
    assert_eq!(Digest::of(&file), Digest::of(&model(&spec, 7)));
    let other = model(&spec, 8);
    let start = usize::try_from(parsed(&file).data_offset()).expect("because it is small");
    assert_eq!(file[..start], other[..start]);
    assert_ne!(file[start..], other[start..]);
}

/// The bytes are pinned, as timings of two commits are only comparable on equal models.
#[test]
fn the_bytes_of_seed_1_are_pinned() {
    let mut digests = String::new();
    for weights in WeightType::ALL {
        let digest = Digest::of(&model(&spec(weights), 1)).to_string();
        digests += &format!("{} {}\n", weights.ggml_type().name(), &digest[..16]);
    }
    assert_eq!(digests, PINNED);
}

const PINNED: &str = "\
F32 4858e4bbacbbf191
F16 cc77dff5257b721a
BF16 9c9192b717f77ba4
Q4_0 4817263898da1d22
Q4_1 eb83002705a49e9e
Q8_0 468313bbf98bac6d
Q2_K 9e605ed149b3c816
Q4_K f13601e392873ae0
Q5_K 82d94bd3557b38e0
Q6_K 3d3c34fcd1e1c818
IQ4_NL 4a55aaacc23abf1a
MXFP4 62132cb0cc4f287d
";

fn half(bytes: &[u8]) -> f32 {
    let bits = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    assert_ne!(bits >> 10 & 31, 31, "an f16 that is no number");
    assert_ne!(bits >> 10 & 31, 0, "an f16 that is not normal");
    f32::from_bits((bits & 0x8000) << 16 | ((bits >> 10 & 31) + 112) << 23 | (bits & 0x3ff) << 13)
}

/// Weights of the simple types, as ggml defines them.
fn weights_of(weights: WeightType, bytes: &[u8]) -> Option<Vec<f32>> {
    let nibbles = |quants: &[u8]| -> Vec<f32> {
        let low = quants.iter().map(|quant| quant & 15);
        low.chain(quants.iter().map(|quant| quant >> 4))
            .map(f32::from)
            .collect()
    };
    let blocks = |size| bytes.chunks_exact(size);
    Some(match weights {
        WeightType::F32 => blocks(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        WeightType::F16 => blocks(2).map(half).collect(),
        WeightType::Bf16 => blocks(2)
            .map(|b| f32::from_le_bytes([0, 0, b[0], b[1]]))
            .collect(),
        WeightType::Q4_0 => blocks(18)
            .flat_map(|b| nibbles(&b[2..]).into_iter().map(|q| half(b) * (q - 8.0)))
            .collect(),
        WeightType::Q4_1 => blocks(20)
            .flat_map(|b| {
                nibbles(&b[4..])
                    .into_iter()
                    .map(|q| half(b) * q + half(&b[2..]))
            })
            .collect(),
        WeightType::Q8_0 => blocks(34)
            .flat_map(|b| b[2..].iter().map(|q| half(b) * f32::from(q.cast_signed())))
            .collect(),
        WeightType::Q2K
        | WeightType::Q4K
        | WeightType::Q5K
        | WeightType::Q6K
        | WeightType::Iq4Nl
        | WeightType::Mxfp4 => return None,
    })
}

/// Offsets of the f16 scales in a block.
fn scale_offsets(weights: WeightType) -> &'static [usize] {
    match weights {
        WeightType::F32 | WeightType::F16 | WeightType::Bf16 | WeightType::Mxfp4 => &[],
        WeightType::Q4_0 | WeightType::Q8_0 | WeightType::Iq4Nl => &[0],
        WeightType::Q4_1 | WeightType::Q4K | WeightType::Q5K => &[0, 2],
        WeightType::Q2K => &[80, 82],
        WeightType::Q6K => &[208],
    }
}

#[test]
fn scales_are_normal_numbers_and_weights_deviate_by_one_over_the_root_of_the_width() {
    for weights in WeightType::ALL {
        let file = model(&spec(weights), 1);
        let directory = parsed(&file);
        for tensor in directory
            .tensors()
            .iter()
            .filter(|tensor| tensor.dims.len() == 2)
        {
            let start = usize::try_from(tensor.offset).expect("because it is small");
            let bytes = &file[start..][..usize::try_from(tensor.bytes).expect("because small")];
            let block = usize::try_from(weights.ggml_type().block_bytes()).expect("because small");
            for block in bytes.chunks_exact(block) {
                let scales = scale_offsets(weights).iter().map(|at| half(&block[*at..]));
                scales.for_each(|scale| assert!(scale.abs() < 0.2, "{weights:?} {scale}"));
            }
            let Some(values) = weights_of(weights, bytes) else {
                continue;
            };
            let count = values.len() as f32;
            let mean = values.iter().sum::<f32>() / count;
            let deviation = (values.iter().map(|v| v * v).sum::<f32>() / count).sqrt();
            assert!(mean.abs() < 0.005, "{weights:?} {mean}");
            assert!((0.03..0.09).contains(&deviation), "{weights:?} {deviation}");
        }
    }
}

#[test]
fn sizes_from_one_megabyte_to_eight_gigabytes_have_a_shape_near_them() {
    let mut bytes = 1_000_000;
    while bytes <= 8 << 30 {
        for weights in [
            WeightType::Q4_0,
            WeightType::Q8_0,
            WeightType::Q4K,
            WeightType::F32,
        ] {
            let spec =
                Spec::for_bytes(bytes, &tokenizer(), weights).expect("because it is in range");
            let draft = spec
                .draft(&tokenizer())
                .expect("because the shape was chosen to fit");
            let made = draft.file_bytes().expect("because it has a size");
            let off = made.abs_diff(bytes) * 100 / bytes;
            assert!(off <= 25, "{weights:?} {bytes} {made} {spec:?}");
            assert!(
                bytes < 1 << 30 || off <= 3,
                "{weights:?} {bytes} {made} {spec:?}"
            );
        }
        bytes = bytes * 5 / 2;
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let base = spec(WeightType::Q4K);
    let wrong = [
        Spec { width: 192, ..base },
        Spec { width: 0, ..base },
        Spec { heads: 0, ..base },
        Spec {
            kv_heads: 0,
            ..base
        },
        Spec {
            kv_heads: 3,
            ..base
        },
        Spec { ffn: 300, ..base },
        Spec { layers: 0, ..base },
    ];
    for spec in wrong {
        let refused = synth::write(&spec, &tokenizer(), 1, &mut Vec::new());
        assert!(matches!(refused, Err(SynthError::Shape { .. })), "{spec:?}");
    }
    let no_tokens = synth::write(&base, &Metadata::default(), 1, &mut Vec::new());
    assert!(matches!(no_tokens, Err(SynthError::NoTokens { .. })));
    let tiny = Spec::for_bytes(10_000, &tokenizer(), WeightType::Q4K);
    assert!(matches!(tiny, Err(SynthError::Size { .. })));
}
