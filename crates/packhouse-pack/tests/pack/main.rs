//! The integration tests of packhouse-pack: one binary, one module per subject.

#![forbid(unsafe_code)]

mod differential;
mod doors;
mod int8_calls;
mod int8_tile;
mod int8_values;
mod vectors;

use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{IsaLevel, Packers};
use std::collections::BTreeMap;

fn admit(layout: Layout, type_name: &str, dims: &[u64], pairs: &[(&str, u64)]) -> Admitted {
    let ty = GgmlType::from_name(type_name).expect("because the type is current");
    let parameters: BTreeMap<_, _> = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    layout
        .admit(ty, dims, &parameters)
        .expect("because the test's tensor fits")
}

/// The packers of each level that this CPU has.
fn levels() -> Vec<Packers> {
    IsaLevel::ALL.into_iter().filter_map(Packers::at).collect()
}

fn length(byte_count: u64) -> usize {
    usize::try_from(byte_count).expect("because tests are small")
}
