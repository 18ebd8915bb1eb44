//! Inputs that a kernel refuses, and in which words.

use super::*;
use crate::KernelError;

/// Runs width 1 after a change of its parameters and tensors.
fn refusal(
    blocks: Blocks,
    change: impl FnOnce(&mut BTreeMap<String, u64>, &mut BTreeMap<String, &[u8]>),
) -> String {
    let fixture = Recipe::published(blocks).fixture();
    let mut parameters = fixture.parameters.clone();
    let mut tensors = tensors(&fixture, &fixture.cases[0]);
    change(&mut parameters, &mut tensors);
    let result = kernel(&fixture).run(&Inputs {
        width: 1,
        parameters: &parameters,
        tensors: &tensors,
    });
    let error: KernelError = result.expect_err("because something is wrong");
    error.to_string()
}

#[test]
fn a_kernel_says_what_is_missing_or_has_another_size() {
    let insert = |name: &'static str, value: u64| {
        move |parameters: &mut BTreeMap<String, u64>, _: &mut BTreeMap<String, &[u8]>| {
            parameters.insert(name.to_owned(), value);
        }
    };
    let remove = |role: &'static str| {
        move |parameters: &mut BTreeMap<String, u64>, tensors: &mut BTreeMap<String, &[u8]>| {
            parameters.remove(role);
            tensors.remove(role);
        }
    };
    let refusals = [
        refusal(Blocks::Q4K, remove("k")),
        refusal(Blocks::Q4K, insert("k", 800)),
        refusal(Blocks::Mxfp4, insert("n", 0)),
        refusal(Blocks::Q2K, insert("k", 512)),
        refusal(Blocks::Q2K, insert("n", !7)),
        refusal(Blocks::Iq4Nl, remove("weights")),
        refusal(Blocks::Iq4Nl, remove("input")),
        refusal(Blocks::Iq4Nl, |_, tensors| {
            let input = tensors["input"];
            tensors.insert("input".to_owned(), &input[1..]);
        }),
    ];
    let expected = [
        "no parameter k",
        "parameter k is 800, expected a positive multiple of 256",
        "parameter n is 0, expected a positive multiple of 8",
        "input weights has 10080 bytes, expected 6720",
        "input weights has 10080 bytes, expected 18446744073709551615",
        "no input weights",
        "no input input",
        "input input has 1407 bytes, expected 1408",
    ];
    assert_eq!(refusals, expected);
}

/// Outside the contract's domain: whatever comes out, the kernel ends with all of it.
#[test]
fn any_numbers_and_any_weights_are_taken() {
    let numbers = [
        f32::NAN,
        f32::INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
    ];
    for blocks in Blocks::ALL {
        let fixture = Recipe::published(blocks).fixture();
        let case = &fixture.cases[0];
        let weights = vec![0xff; fixture.tensors[&case.inputs["weights"]].bytes.len()];
        for number in numbers {
            let input = (0..Recipe::published(blocks).k()).map(|k| match k % 3 {
                0 => number,
                1 => -number,
                _ => 1.0,
            });
            let input: Vec<u8> = input.flat_map(f32::to_le_bytes).collect();
            let tensors = [("weights", &weights), ("input", &input)];
            let tensors = tensors
                .map(|(role, bytes)| (role.to_owned(), &bytes[..]))
                .into();
            let outputs = kernel(&fixture).run(&Inputs {
                width: 1,
                parameters: &fixture.parameters,
                tensors: &tensors,
            });
            let outputs = outputs.expect("because the lengths are right");
            assert_eq!(outputs[1].bytes.len(), 4 * N, "{number}");
        }
    }
}
