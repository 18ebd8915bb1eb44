//! Tests of these fixtures, and of their kernels through them.

mod edges;
mod order;
mod refused;
mod tampered;

use super::*;
use crate::kernels::blocks::Term;
use crate::{Kernel, Output, judge, kernels};
use packhouse_layout::dequant::dequantise;
use packhouse_layout::unpack_scalar;

fn kernel(fixture: &Fixture) -> &'static dyn Kernel {
    kernels::of_fixture(&fixture.id).expect("because each of these fixtures has a kernel")
}

/// The inputs of a case, the weights replaced by those given.
fn run(fixture: &Fixture, case: &Case, weights: Option<&[u8]>) -> Vec<Output> {
    let mut tensors = tensors(fixture, case);
    if let Some(weights) = weights {
        tensors.insert("weights".to_owned(), weights);
    }
    let inputs = Inputs {
        width: case.width,
        parameters: &fixture.parameters,
        tensors: &tensors,
    };
    let outputs = kernel(fixture).run(&inputs);
    outputs.expect("because the fixture has what its kernel needs")
}

fn tensors<'a>(fixture: &'a Fixture, case: &Case) -> BTreeMap<String, &'a [u8]> {
    let inputs = case.inputs.iter();
    let inputs = inputs.map(|(role, file)| (role.clone(), &fixture.tensors[file].bytes[..]));
    inputs.collect()
}

/// The rows of a boundary that fail, each with its worst column.
fn failing(
    fixture: &Fixture,
    case: &Case,
    expected: &Expected,
    actual: &[u8],
) -> Vec<(u64, Option<u64>)> {
    let tensor = &fixture.tensors[&expected.tensor];
    let limit = expected.tolerance.limit(&fixture.tensors);
    let (edges, limit) = (
        &case.edge_rows,
        limit.expect("because its bounds are there"),
    );
    let verdicts = judge(&expected.boundary, tensor, edges, limit, actual);
    let verdicts = verdicts.expect("because lengths and types are the boundary's");
    let failing = verdicts.into_iter().filter(|verdict| !verdict.passed);
    let columns = failing.map(|verdict| (verdict.row, verdict.worst.map(|worst| worst.column)));
    columns.collect()
}

/// Gives each output of a case, from its terms, as binary32 bytes.
fn outputs_by(fixture: &Fixture, case: &Case, blocks: Blocks, by: fn(&[Term]) -> f32) -> Vec<u8> {
    let inputs = Inputs {
        width: case.width,
        parameters: &fixture.parameters,
        tensors: &tensors(fixture, case),
    };
    let case = KernelCase::of(blocks, &inputs).expect("because the fixture is whole");
    let outputs = case.each_output(by).into_iter();
    outputs.flat_map(f32::to_le_bytes).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks();
    values
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect()
}

/// The values of whole blocks of a type, by the judge of values.
fn values(type_name: &str, bytes: &[u8]) -> Vec<f64> {
    let ty = GgmlType::from_name(type_name).expect("because its types are current");
    let count = bytes.len() as u64 / ty.block_bytes() * ty.block_elements();
    let mut values = vec![0.0; at(count)];
    dequantise(ty, bytes, &mut values).expect("because the type has values");
    values.into_iter().map(f64::from).collect()
}

#[test]
fn every_case_is_what_its_kernel_gives_and_every_number_is_finite() {
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        assert!(FAMILIES.iter().any(|family| family.id == fixture.id));
        for case in &fixture.cases {
            let outputs = run(&fixture, case, None);
            assert_eq!(outputs.len(), case.expected.len());
            for (output, expected) in outputs.iter().zip(&case.expected) {
                assert_eq!(output.boundary, expected.boundary);
                assert_eq!(failing(&fixture, case, expected, &output.bytes), []);
                assert_eq!(expected.tolerance, Tolerance::BitEqual);
            }
            for file in [&case.expected[1].tensor, &case.near[0].tensor] {
                let outputs = floats_of(&fixture.tensors[file].bytes);
                assert!(
                    outputs.iter().all(|y| y.is_finite()),
                    "{} {file}",
                    fixture.id
                );
            }
        }
    }
}

/// Weights go back to ggml's order, both operands become numbers by the judge of values, and the
/// products are summed in binary64: nothing of the kernel takes part.
#[test]
fn outputs_are_those_of_unpacked_dequantised_weights_in_binary64() {
    for blocks in Blocks::ALL {
        let recipe = Recipe::published(blocks);
        let fixture = recipe.fixture();
        for case in &fixture.cases {
            let packed = &fixture.tensors[&case.inputs["weights"]].bytes;
            let mut source = vec![0; packed.len()];
            unpack_scalar(&recipe.admitted(), packed, &mut source).expect("because it is packed");
            assert_eq!(source, recipe.source(case.width == EDGE_WIDTH));
            let weights = values(blocks.type_name(), &source);
            let minima = minima(blocks, &source);
            let codes = &fixture.tensors[&case.expected[0].tensor].bytes;
            let activations = values(blocks.activations().type_name(), codes);
            let output = floats_of(&fixture.tensors[&case.expected[1].tensor].bytes);
            let exact = floats_of(&fixture.tensors[&case.near[0].tensor].bytes);
            let mut index = 0;
            for x in activations.chunks_exact(recipe.k()) {
                let rows = weights.chunks_exact(recipe.k());
                for (w, minima) in rows.zip(minima.chunks_exact(recipe.k())) {
                    let sum: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
                    // A code's part of a weight is at most the weight and its minimum.
                    let parts = w.iter().zip(minima).map(|(w, m)| w.abs() + 2.0 * m.abs());
                    let bound = bound(recipe, parts.zip(x).map(|(w, x)| w * x.abs()));
                    let what = format!("{} width {} output {index}", fixture.id, case.width);
                    let error = |y: &[f32]| (f64::from(y[index]) - sum).abs();
                    assert!(
                        error(&output) <= bound,
                        "{what}: {} of {bound}",
                        error(&output)
                    );
                    assert!(
                        error(&exact) <= bound,
                        "{what}: {} of {bound}",
                        error(&exact)
                    );
                    index += 1;
                }
            }
            assert_eq!(index, output.len());
        }
    }
}

/// Three roundings of a term, one for each block and one for the subtraction; three of a
/// dequantised weight and one of an activation; and half the smallest subnormal for each that can
/// be below normal.
fn bound(recipe: Recipe, magnitudes: impl Iterator<Item = f64>) -> f64 {
    let roundings = (recipe.block_count() + 8) as f64;
    roundings * 2f64.powi(-24) * magnitudes.sum::<f64>() + roundings * 2f64.powi(-149)
}

/// The minima of whole blocks: what codes of 0 stand for.
fn minima(blocks: Blocks, source: &[u8]) -> Vec<f64> {
    let quants = match blocks {
        Blocks::Q4K => 16..144,
        Blocks::Q2K => 16..80,
        Blocks::Iq4Nl | Blocks::Mxfp4 => {
            return vec![0.0; values(blocks.type_name(), source).len()];
        }
    };
    let mut source = source.to_vec();
    for block in source.chunks_exact_mut(blocks.packed_bytes() / GROUP_ROWS) {
        block[quants.clone()].fill(0);
    }
    values(blocks.type_name(), &source)
}
