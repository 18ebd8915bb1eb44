//! The oracle is `sha2`; inputs are every length around a block, any count of streams around the
//! lanes, and any way to cut them.

use packhouse_hash::{Kernels, Sha256, update_many_with};
use proptest::prelude::*;
use sha2::Digest as _;

/// An unexpected skip is a failure: the CPU's features and the list of choices must agree.
#[test]
fn every_choice_of_this_cpu_is_exercised() {
    let names: Vec<_> = Kernels::all().iter().map(|(name, _)| *name).collect();
    println!("SHA-256 kernels exercised: {names:?}");
    #[cfg(target_arch = "x86_64")]
    {
        assert_eq!(names.contains(&"sha-ni"), is_x86_feature_detected!("sha"));
        let has_wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        assert_eq!(names.contains(&"avx-512"), has_wide);
    }
}

#[test]
fn every_length_around_blocks_and_every_count_of_streams() {
    let pool = bytes(7, 64 * 40 + 64);
    for (name, kernels) in Kernels::all() {
        for count in (0..=40).chain([63, 64, 65]) {
            // Lengths of one call differ by every remainder of a block, and some are far longer.
            let inputs: Vec<&[u8]> = (0..count)
                .map(|index| {
                    let length = index * 37 % 131 + if index % 5 == 3 { 64 * 17 } else { 0 };
                    &pool[index..index + length]
                })
                .collect();
            let expected: Vec<_> = inputs.iter().map(|input| oracle(input)).collect();
            assert_eq!(
                digests(kernels, &inputs),
                expected,
                "{name}, {count} streams"
            );
        }
    }
}

/// A stream's digest must not depend on its neighbours: each lane gets its own bytes, and one bit
/// changed in one stream changes that stream's digest alone.
#[test]
fn a_changed_bit_changes_its_own_stream_only() {
    for (name, kernels) in Kernels::all() {
        let mut inputs: Vec<Vec<u8>> = (0..16).map(|seed| bytes(seed, 640)).collect();
        let before = digests(kernels, &slices(&inputs));
        for changed in 0..16 {
            inputs[changed][changed * 40 % 640] ^= 1;
            let after = digests(kernels, &slices(&inputs));
            for (index, (before, after)) in before.iter().zip(&after).enumerate() {
                assert_eq!(
                    before == after,
                    index != changed,
                    "{name}: {index} {changed}"
                );
            }
            inputs[changed][changed * 40 % 640] ^= 1;
        }
    }
}

#[test]
#[should_panic(expected = "assertion")]
fn a_wrong_digest_would_be_noticed() {
    let (_, kernels) = Kernels::all()[0];
    let mut wrong = bytes(1, 100);
    wrong[99] ^= 0x80;
    assert_eq!(digests(kernels, &[&wrong]), [oracle(&bytes(1, 100))]);
}

proptest! {
    #[test]
    fn any_streams_cut_anywhere(
        lengths in prop::collection::vec(0usize..3000, 1..24),
        cuts in prop::collection::vec(1usize..700, 1..6),
        seed in any::<u64>(),
    ) {
        let inputs: Vec<Vec<u8>> = lengths
            .iter()
            .zip(0u64..)
            .map(|(length, index)| bytes(seed ^ index, *length))
            .collect();
        let expected: Vec<_> = inputs.iter().map(|input| oracle(input)).collect();
        for (name, kernels) in Kernels::all() {
            let mut streams = vec![Sha256::new(); inputs.len()];
            let mut done = vec![0; inputs.len()];
            for turn in 0.. {
                let step = |index: usize| cuts[(turn + index) % cuts.len()];
                let mut parts = Vec::new();
                for (index, (stream, input)) in streams.iter_mut().zip(&inputs).enumerate() {
                    let end = input.len().min(done[index] + step(index));
                    parts.push((stream, &input[done[index]..end]));
                    done[index] = end;
                }
                update_many_with(kernels, &mut parts);
                if done.iter().zip(&inputs).all(|(done, input)| *done == input.len()) {
                    break;
                }
            }
            let digests: Vec<_> = streams.into_iter().map(Sha256::finish).collect();
            prop_assert_eq!(&digests, &expected, "{}", name);
        }
    }
}

fn digests(kernels: Kernels, inputs: &[&[u8]]) -> Vec<[u8; 32]> {
    let mut streams = vec![Sha256::new(); inputs.len()];
    let mut parts: Vec<_> = streams.iter_mut().zip(inputs.iter().copied()).collect();
    update_many_with(kernels, &mut parts);
    streams.into_iter().map(Sha256::finish).collect()
}

fn slices(inputs: &[Vec<u8>]) -> Vec<&[u8]> {
    inputs.iter().map(Vec::as_slice).collect()
}

fn oracle(input: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(input).into()
}

/// A fixed stream of bytes per seed.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
