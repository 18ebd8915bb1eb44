//! Our values of every type against the stock engine's own functions, bit by bit.
//!
//! A NaN counts as any other: which one an operation makes is the processor's business, and no
//! reader of ours tells them apart. The engine is loaded into this process, once per test.

use engine_tests::{Model, places};
use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::{FileSource, ReadAt as _, TensorDirectory};
use packhouse_ggml::values::LiveValues;
use packhouse_layout::dequant::{dequantise, has_values};
use packhouse_layout::golden::{F16_EDGES, SplitMix64};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;

const VECTORS: &str = include_str!("../../../vectors/dequant.json");

/// Types of which the engine has no function: one whose values are its bytes, and one that it only
/// names.
const NO_FUNCTION: [&str; 2] = ["F32", "F64"];

/// Bytes of the beginning and of the end of each real tensor that are compared.
const REAL_BYTES: u64 = 1 << 19;

fn live() -> LiveValues {
    let live = LiveValues::load(&places::engine_bin());
    live.unwrap_or_else(|error| panic!("the engine is hosted: {error}"))
}

/// Types to compare.
fn compared() -> impl Iterator<Item = GgmlType> {
    let all = GgmlType::all().iter().copied();
    all.filter(|ty| has_values(*ty) && !NO_FUNCTION.contains(&ty.name()))
}

fn length(number: u64) -> usize {
    usize::try_from(number).expect("because it is small")
}

fn ours(ty: GgmlType, source: &[u8]) -> Vec<f32> {
    let count = source.len() as u64 / ty.block_bytes() * ty.block_elements();
    let mut values = vec![0.0; length(count)];
    dequantise(ty, source, &mut values).expect("because the type has values");
    values
}

/// Bits of a value, all NaN alike.
fn bits(value: f32) -> u32 {
    if value.is_nan() {
        return 0x7fc0_0000;
    }
    value.to_bits()
}

/// The first value that differs, and both.
fn difference(ours: &[f32], theirs: &[f32]) -> Option<(usize, f32, f32)> {
    assert_eq!(ours.len(), theirs.len());
    let mut pairs = ours.iter().zip(theirs).enumerate();
    let found = pairs.find(|(_, (ours, theirs))| bits(**ours) != bits(**theirs));
    found.map(|(index, (ours, theirs))| (index, *ours, *theirs))
}

/// Compares the values of whole blocks; returns how many.
fn compare(live: &LiveValues, ty: GgmlType, source: &[u8], what: &str) -> usize {
    let theirs = live.values(ty, source);
    let theirs = theirs.unwrap_or_else(|| panic!("the engine has no function for {}", ty.name()));
    let ours = ours(ty, source);
    if let Some((index, one, other)) = difference(&ours, &theirs) {
        let block = length(ty.block_bytes());
        let at = index / length(ty.block_elements()) * block;
        panic!(
            "{} of {what}: value {index} is {one:e}, the engine's is {other:e}: {:02x?}",
            ty.name(),
            &source[at..at + block]
        );
    }
    ours.len()
}

/// Random blocks; blocks of one byte, for all bytes; random blocks with an edge number at each even
/// offset, since each is an f16's in some type.
fn contents(ty: GgmlType) -> Vec<u8> {
    let block = length(ty.block_bytes());
    let mut stream = SplitMix64::new(u64::from(ty.id()) + 1_000);
    let mut all = vec![0; block * length((1 << 18) / ty.block_elements())];
    stream.fill(&mut all);
    all.extend((0..=255u8).flat_map(|byte| vec![byte; block]));
    for offset in (0..block - 1).step_by(2) {
        for edge in F16_EDGES {
            let mut edged = vec![0; block];
            stream.fill(&mut edged);
            edged[offset..offset + 2].copy_from_slice(&edge.to_le_bytes());
            all.extend(edged);
        }
    }
    all
}

#[test]
fn every_types_values_are_the_engines() {
    let live = live();
    let mut types = 0;
    for ty in compared() {
        let count = compare(&live, ty, &contents(ty), "blocks of all kinds");
        assert!(count > 1 << 18, "{}", ty.name());
        types += 1;
    }
    assert_eq!(types, 28);
}

#[test]
fn every_half_and_every_brain_float_is_the_engines() {
    let live = live();
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for ty in compared().filter(|ty| ty.block_bytes() == 2) {
        assert_eq!(compare(&live, ty, &all, "all of them"), 1 << 16);
    }
}

/// Every scale of every type of one or two bytes of scale is among the contents above; Q8_K's is an
/// f32, so its edges are here.
#[test]
fn single_precision_scales_are_the_engines() {
    let live = live();
    let ty = GgmlType::from_name("Q8_K").expect("because it is current");
    let mut stream = SplitMix64::new(15);
    for scale in [
        0,
        1,
        0x007f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0x7f7f_ffff,
        0x7f80_0000u32,
    ] {
        for sign in [0, 0x8000_0000] {
            let mut block = vec![0; length(ty.block_bytes())];
            stream.fill(&mut block);
            block[..4].copy_from_slice(&(scale | sign).to_le_bytes());
            compare(
                &live,
                ty,
                &block,
                &format!("a scale of {:#010x}", scale | sign),
            );
        }
    }
}

#[test]
fn types_with_values_are_those_of_which_the_engine_reads_weights() {
    let live = live();
    for ty in GgmlType::all() {
        // Q8_K is a form of activations; the engine has a function for it, but none in the table.
        let is_ours_only = NO_FUNCTION.contains(&ty.name()) || ty.name() == "Q8_K";
        let reads = live.reads_weights(*ty) || is_ours_only;
        assert_eq!(reads, has_values(*ty), "{}", ty.name());
    }
}

#[test]
fn the_checked_in_values_are_the_engines() {
    let live = live();
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let text = |value: &Value| value.as_str().expect("because text").to_owned();
    let mut types = 0;
    for vector in vectors["types"].as_array().expect("because a list") {
        let name = text(&vector["type"]);
        let ty = GgmlType::from_name(&name).expect("because it is current");
        if NO_FUNCTION.contains(&ty.name()) {
            continue;
        }
        let theirs = |source: &[u8]| live.values(ty, source).expect("because it has a function");
        let values: Vec<_> = theirs(&unhex(&text(&vector["source"])))
            .into_iter()
            .map(|value| format!("{:08x}", bits(value)))
            .collect();
        assert_eq!(values.join(" "), text(&vector["values"]), "{name}");
        let number = |key: &str| vector["many"][key].as_u64().expect("because a number");
        let mut source = vec![0; length(number("blocks") * ty.block_bytes())];
        SplitMix64::new(number("seed")).fill(&mut source);
        let many = theirs(&source).into_iter();
        let many: Vec<u8> = many.flat_map(|value| bits(value).to_le_bytes()).collect();
        let digest = Digest::of(&many).to_string();
        assert_eq!(digest, text(&vector["many"]["values_sha256"]), "{name}");
        types += 1;
    }
    assert_eq!(types, 28);
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("because it is hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn real_tensors_have_the_engines_values() {
    let live = live();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for model in [Model::SmolLm2, Model::Gemma3] {
        let file = File::open(model.path()).expect("the model is there");
        let source = FileSource::new(&file).expect("it is a file");
        let directory = TensorDirectory::parse(&source).expect("it is a model");
        for tensor in directory.tensors() {
            let ty = tensor.ggml_type;
            if NO_FUNCTION.contains(&ty.name()) {
                continue;
            }
            let most = REAL_BYTES / ty.block_bytes() * ty.block_bytes();
            for start in [0, tensor.bytes.saturating_sub(most)] {
                let mut bytes = vec![0; length(most.min(tensor.bytes - start))];
                let read = source.read_at(&mut bytes, tensor.offset + start);
                read.expect("the file is whole");
                *found.entry(ty.name()).or_default() += compare(&live, ty, &bytes, &tensor.name);
            }
        }
    }
    println!("values compared: {found:?}");
    for name in ["Q4_0", "Q4_K", "Q6_K"] {
        assert!(found.contains_key(name), "{found:?}");
    }
}

/// A comparison that never failed proves nothing.
#[test]
fn one_bit_is_a_difference_and_one_nan_is_as_another() {
    let values = [1.0, -0.0, f32::from_bits(0x7fc0_0000)];
    let mut others = [1.0, -0.0, f32::from_bits(0xffc0_0001)];
    assert_eq!(difference(&values, &others), None);
    others[1] = 0.0;
    assert_eq!(difference(&values, &others), Some((1, -0.0, 0.0)));
    others[0] = f32::from_bits(0x3f80_0001);
    assert_eq!(difference(&values, &others), Some((0, 1.0, others[0])));
    let q4_0 = GgmlType::from_name("Q4_0").expect("because it is current");
    let theirs = live().values(q4_0, &[[0, 0x3c], [0x99; 2]].concat().repeat(9)[..18]);
    let theirs = theirs.expect("because the engine has a function");
    assert_ne!(difference(&ours(q4_0, &[0; 18]), &theirs), None);
}
