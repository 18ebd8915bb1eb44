//! Two readers of bundles on sound ones and on changed ones, and mutants of the second that must
//! be found. The fuzz target does the same for longer.

use crate::bundle_oracle::{Mutant, compare};
use crate::bundles::write;
use crate::store_fixture::{config, folder, real, set};
use packhouse_base::digest::Digest;
use std::path::Path;

fn bundle(payloads: &[&[u8]]) -> Vec<u8> {
    let home = folder();
    let store = real(config(home.path()));
    let manifest = set(&store, payloads);
    write(&store, &manifest)
}

/// Numbers that follow from a seed.
struct Numbers(Digest);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = Digest::of(self.0.as_bytes());
        let bytes = self.0.as_bytes();
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("because there are 32"));
        usize::try_from(number % below as u64).expect("because it is below a usize")
    }
}

/// One random change: of a byte, of a block, or of the length.
fn change(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.next(bytes.len());
    let block = at / 512 * 512;
    match numbers.next(6) {
        0 => bytes[at] ^= 1 << numbers.next(8),
        1 => bytes.truncate(at),
        2 => bytes.extend(std::iter::repeat_n(0, 1 + numbers.next(1024))),
        3 => drop(bytes.drain(block..(block + 512).min(bytes.len()))),
        4 => {
            let copy = bytes[block..(block + 512).min(bytes.len())].to_vec();
            bytes.splice(block..block, copy);
        }
        // A header that another writer could have written.
        _ if bytes.get(block + 257..block + 262) == Some(b"ustar") => {
            let field = [100, 108, 116, 136, 265, 329][numbers.next(6)];
            bytes[block + field + numbers.next(6)] = b'0' + numbers.next(8) as u8;
            bytes[block + 148..block + 156].fill(b' ');
            let sum: u32 = bytes[block..block + 512]
                .iter()
                .map(|b| u32::from(*b))
                .sum();
            bytes[block + 148..block + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        _ => bytes[at] = 0,
    }
}

#[test]
fn both_readers_agree_on_bundles_with_random_changes() {
    let sound = [
        bundle(&[b"alpha", b"", &[7; 513], b"alpha"]),
        bundle(&[b"one"]),
        bundle(&[]),
    ];
    for bytes in &sound {
        assert_eq!(compare(bytes, None), Ok(true));
    }
    let (mut numbers, mut taken) = (Numbers(Digest::of(b"seed")), 0);
    for round in 0..4000 {
        let mut bytes = sound[round % sound.len()].clone();
        for _ in 0..=numbers.next(2) {
            change(&mut bytes, &mut numbers);
            if bytes.is_empty() {
                break;
            }
        }
        let verdict = compare(&bytes, None);
        assert!(verdict.is_ok(), "round {round}: {verdict:?}");
        taken += usize::from(verdict == Ok(true));
    }
    // A byte of zeros that is set to zero changes nothing.
    assert!(taken > 0, "no changed bundle was a sound one");
}

#[test]
fn each_mutant_of_the_second_reader_is_found() {
    let sound = bundle(&[b"alpha", &[7; 513]]);
    for mutant in [Mutant::TrailingBytes, Mutant::OtherObjects, Mutant::Owners] {
        let mut numbers = Numbers(Digest::of(b"mutants"));
        let found = (0..20_000).any(|_| {
            let mut bytes = sound.clone();
            change(&mut bytes, &mut numbers);
            compare(&bytes, Some(mutant)).is_err()
        });
        assert!(found, "{mutant:?} went unnoticed");
    }
}

/// The seeds of the fuzz target are bundles of this format, as this build writes them.
#[test]
fn the_seeds_of_the_fuzz_target_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/bundle");
    let seeds: [&[&[u8]]; 3] = [&[b"alpha", b"", &[7; 513], b"alpha"], &[b"one"], &[]];
    for (name, payloads) in ["several.tar", "one.tar", "none.tar"]
        .into_iter()
        .zip(seeds)
    {
        let (path, bytes) = (folder.join(name), bundle(payloads));
        if std::env::var_os("PACKHOUSE_BLESS").is_some() {
            std::fs::write(&path, &bytes).expect("because the folder is there");
        }
        assert!(
            std::fs::read(&path).ok() == Some(bytes),
            "{name}: PACKHOUSE_BLESS=1 writes it"
        );
    }
}
