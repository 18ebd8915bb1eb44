//! What a kernel refuses, and how it says so.

use super::super::{IDENTITY, JOINT_N, MRow, REPACK, XE2};
use crate::{Inputs, Kernel};
use std::collections::BTreeMap;

/// What a kernel says to sizes, and to weights and an input of some lengths.
fn refusal(kernel: &MRow, sizes: &[(&str, u64)], lengths: &[(&str, usize)], width: u64) -> String {
    let sizes = sizes
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    let parameters: BTreeMap<String, u64> = sizes.collect();
    let bytes = lengths
        .iter()
        .map(|(role, length)| ((*role).to_owned(), vec![0; *length]));
    let bytes: BTreeMap<String, Vec<u8>> = bytes.collect();
    let tensors = bytes
        .iter()
        .map(|(role, bytes)| (role.clone(), bytes.as_slice()));
    let inputs = Inputs {
        width,
        parameters: &parameters,
        tensors: &tensors.collect(),
    };
    match kernel.run(&inputs) {
        Ok(_) => "done".to_owned(),
        Err(why) => why.to_string(),
    }
}

#[test]
fn sizes_and_lengths_that_do_not_fit_are_refused_by_name() {
    let whole = [("weights", 18 * 16), ("input", 2 * 128)];
    let sizes = [("k", 32), ("n", 16)];
    assert_eq!(refusal(&XE2, &sizes, &whole, 2), "done");
    assert_eq!(refusal(&REPACK, &sizes, &whole, 2), "done");
    let says = |sizes: &[(&str, u64)], lengths: &[(&str, usize)]| refusal(&XE2, sizes, lengths, 2);
    assert_eq!(says(&[("n", 16)], &whole), "no parameter k");
    assert_eq!(says(&[("k", 32)], &whole), "no parameter n");
    let k = "parameter k is 48, expected a positive multiple of 32";
    assert_eq!(says(&[("k", 48), ("n", 16)], &whole), k);
    let k = "parameter k is 0, expected a positive multiple of 32";
    assert_eq!(says(&[("k", 0), ("n", 16)], &whole), k);
    let n = "parameter n is 24, expected a positive multiple of 16";
    assert_eq!(says(&[("k", 32), ("n", 24)], &whole), n);
    assert_eq!(says(&sizes, &whole[1..]), "no input weights");
    assert_eq!(says(&sizes, &whole[..1]), "no input input");
    let weights = "input weights has 287 bytes, expected 288";
    assert_eq!(says(&sizes, &[("weights", 287), whole[1]]), weights);
    let input = "input input has 257 bytes, expected 256";
    assert_eq!(says(&sizes, &[whole[0], ("input", 257)]), input);
    let rows = "parameter n is 12, expected a positive multiple of 8";
    assert_eq!(refusal(&REPACK, &[("k", 32), ("n", 12)], &whole, 2), rows);
}

#[test]
fn a_tile_has_a_size_and_is_padded() {
    let lengths = [("weights", 18 * 8), ("input", 128)];
    let sizes = [("k", 32), ("n", 5)];
    assert_eq!(
        refusal(&JOINT_N, &sizes, &lengths, 1),
        "no parameter n_tile"
    );
    let tiled = |tile| [("k", 32), ("n", 5), ("n_tile", tile)];
    let none = "parameter n_tile is 0, expected 1 or more";
    assert_eq!(refusal(&JOINT_N, &tiled(0), &lengths, 1), none);
    assert_eq!(refusal(&JOINT_N, &tiled(4), &lengths, 1), "done");
    let short = "input weights has 144 bytes, expected 90";
    assert_eq!(refusal(&JOINT_N, &tiled(1), &lengths, 1), short);
}

/// Sizes that 64 bits can't multiply are those of no bytes, and no arithmetic overflows.
#[test]
fn sizes_beyond_64_bits_are_another_length() {
    let lengths = [("weights", 18), ("input", 128)];
    let most = u64::MAX / 32 * 32;
    for sizes in [
        [("k", most), ("n", most), ("n_tile", u64::MAX)],
        [("k", most), ("n", 1), ("n_tile", 1)],
        [("k", 32), ("n", u64::MAX / 16 * 16), ("n_tile", 7)],
    ] {
        for kernel in [&JOINT_N, &IDENTITY] {
            let said = refusal(kernel, &sizes, &lengths, 1);
            assert!(
                said.starts_with("input weights has 18 bytes, expected "),
                "{said}"
            );
        }
    }
    let wide = refusal(&IDENTITY, &[("k", 32), ("n", 1)], &lengths, u64::MAX);
    let expected = format!("input input has 128 bytes, expected {}", u64::MAX);
    assert_eq!(wide, expected);
}
