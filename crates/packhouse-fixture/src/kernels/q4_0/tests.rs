//! Tests of the kernels from inside: each order read back, wrong kernels, tampered bytes.

mod activations;
mod bad_input;
mod edges;
mod fixtures;
mod readers;
mod tampered;
mod wrong_kernels;

use super::packed::Order;
use super::{IDENTITY, JOINT_N, MRow, REORDERED, REPACK, XE2};
use crate::families;
use crate::{Case, Fixture, Inputs, Kernel, Output, RowVerdict, judge};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::{Layout, pack_scalar};
use std::collections::BTreeMap;

/// Every kernel of this module.
const MROWS: [&MRow; 5] = [&XE2, &JOINT_N, &REORDERED, &IDENTITY, &REPACK];

/// What a kernel's family publishes.
fn fixture(kernel: &MRow) -> Fixture {
    let family = families::find(kernel.fixture());
    (family.expect("because each kernel has a family").generate)()
}

/// Runs a kernel on a case, with some roles' bytes replaced.
fn run(kernel: &MRow, fixture: &Fixture, case: &Case, replaced: &[(&str, &[u8])]) -> Vec<Output> {
    let bytes = |name: &String| fixture.tensors[name].bytes.as_slice();
    let roles = case.inputs.iter();
    let mut tensors: BTreeMap<String, &[u8]> = roles
        .map(|(role, name)| (role.clone(), bytes(name)))
        .collect();
    for (role, bytes) in replaced {
        tensors.insert((*role).to_owned(), bytes);
    }
    let inputs = Inputs {
        width: case.width,
        parameters: &fixture.parameters,
        tensors: &tensors,
    };
    kernel
        .run(&inputs)
        .expect("because the case fits the kernel")
}

/// The binary32 numbers of a tensor.
fn numbers(fixture: &Fixture, name: &str) -> Vec<f32> {
    let (numbers, _) = fixture.tensors[name].bytes.as_chunks();
    numbers.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// The verdicts of a boundary.
fn verdicts(fixture: &Fixture, case: &Case, index: usize, actual: &[u8]) -> Vec<RowVerdict> {
    let expected = &case.expected[index];
    let tensor = &fixture.tensors[&expected.tensor];
    let verdicts = judge(
        &expected.boundary,
        tensor,
        &case.edge_rows,
        (expected.tolerance.limit(&fixture.tensors)).expect("because its bounds are there"),
        actual,
    );
    verdicts.expect("because there is something to judge")
}

/// Indexes of the rows that failed.
fn failed(verdicts: &[RowVerdict]) -> Vec<u64> {
    let failed = verdicts.iter().filter(|verdict| !verdict.passed);
    failed.map(|verdict| verdict.row).collect()
}

/// The weights of a fixture.
fn weights(fixture: &Fixture) -> &[u8] {
    let (_, tensor) = fixture
        .tensors
        .iter()
        .find(|(name, _)| name.starts_with("weights."))
        .expect("because a fixture has weights");
    &tensor.bytes
}

/// The layout that an order is of.
fn layout(order: Order) -> Layout {
    match order {
        Order::Xe2 => Layout::Q4_0Xe2DpasV2,
        Order::JointN => Layout::Q4_0JointN,
        Order::Reordered => Layout::Q4_0Reordered,
        Order::Rows => Layout::Identity,
        Order::Repack8 => Layout::GgmlCpuRepack,
    }
}

/// Rows of blocks as an order packs them.
fn pack(
    order: Order,
    dims: [u64; 2],
    parameters: &BTreeMap<String, u64>,
    source: &[u8],
) -> Vec<u8> {
    let ty = GgmlType::from_name("Q4_0").expect("because the type is current");
    let admitted = layout(order).admit(ty, &dims, parameters);
    let admitted = admitted.expect("because the test's sizes fit");
    let length = usize::try_from(admitted.payload_bytes()).expect("because tests are small");
    let mut payload = vec![0xa5; length];
    pack_scalar(&admitted, source, &mut payload).expect("because Q4_0 has a scalar packer");
    payload
}

fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

/// Q4_0 rows back from the payload of a fixture's weight.
fn source_of(order: Order, fixture: &Fixture) -> Vec<u8> {
    let ty = GgmlType::from_name("Q4_0").expect("because the type is current");
    let (k, n) = (fixture.parameters["k"], fixture.parameters["n"]);
    let own = layout_parameters(order, fixture);
    let admitted = layout(order).admit(ty, &[k, n], &own);
    let admitted = admitted.expect("because the fixture's sizes fit");
    let mut source =
        vec![0; usize::try_from(admitted.source_bytes()).expect("because it is small")];
    packhouse_layout::unpack_scalar(&admitted, weights(fixture), &mut source)
        .expect("because Q4_0 is packed without loss");
    source
}

/// The parameters that the layout of an order has.
fn layout_parameters(order: Order, fixture: &Fixture) -> BTreeMap<String, u64> {
    let names = layout(order).parameters().iter();
    let pairs = names.map(|known| (known.name.to_owned(), fixture.parameters[known.name]));
    pairs.collect()
}
