//! The integration tests of packhouse-layout: one binary, one module per subject.

#![forbid(unsafe_code)]

mod admission;
mod dequant;
mod docs;
mod groups;
mod int8_tile;
mod mersenne;
mod reference;
mod vectors;

use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::{Admitted, Layout, Refusal, pack_scalar, unpack_scalar};
use std::collections::BTreeMap;

fn ty(name: &str) -> GgmlType {
    GgmlType::from_name(name).expect("because the type is current")
}

fn parameters(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

fn try_admit(
    layout: Layout,
    type_name: &str,
    dims: &[u64],
    pairs: &[(&str, u64)],
) -> Result<Admitted, Refusal> {
    layout.admit(ty(type_name), dims, &parameters(pairs))
}

fn admit(layout: Layout, type_name: &str, dims: &[u64], pairs: &[(&str, u64)]) -> Admitted {
    try_admit(layout, type_name, dims, pairs).expect("because the test's tensor fits")
}

fn pack(admitted: &Admitted, source: &[u8]) -> Vec<u8> {
    let mut payload = vec![0xa5; length(admitted.payload_bytes())];
    pack_scalar(admitted, source, &mut payload).expect("because the layout has a judge");
    payload
}

fn unpack(admitted: &Admitted, payload: &[u8]) -> Vec<u8> {
    let mut source = vec![0xa5; length(admitted.source_bytes())];
    unpack_scalar(admitted, payload, &mut source).expect("because the layout has a judge");
    source
}

fn random(byte_count: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length(byte_count)];
    SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

fn length(byte_count: u64) -> usize {
    usize::try_from(byte_count).expect("because tests are small")
}
