//! Each level's twins against the judges; and packers that are wrong in one way, which must be
//! noticed.

use super::*;
use crate::{IsaLevel, Kernel, Packers};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Layout;
use packhouse_layout::ggml_cpu_repack::twin::Twin;
use packhouse_layout::golden::{BYTE_EDGES, SplitMix64};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

const GUARD: usize = 64;

fn admitted(ty: GgmlType, dims: &[u64]) -> Admitted {
    let admitted = Layout::GgmlCpuRepack.admit(ty, dims, &BTreeMap::new());
    admitted.expect("because the test's rows and columns divide")
}

/// One block, one group and more of both; odd counts; stacks of matrices.
fn shapes(twin: Twin) -> Vec<Admitted> {
    let block = twin.ty().block_elements();
    let matrices = [1, 2, 3, 5, 17]
        .into_iter()
        .flat_map(|blocks| [8, 16, 24, 40, 48].map(|rows| vec![blocks * block, rows]));
    let stacks = [[3, 8, 5], [2, 16, 3], [1, 24, 2], [5, 48, 2]]
        .map(|[blocks, rows, count]| vec![blocks * block, rows, count]);
    let all = matrices.chain(stacks);
    all.map(|dims| admitted(twin.ty(), &dims)).collect()
}

/// Random bytes, a counter of a prime period, and each edge byte throughout.
fn contents(admitted: &Admitted) -> Vec<Vec<u8>> {
    let bytes = length(admitted.source_bytes());
    let mut random = vec![0; bytes];
    SplitMix64::new(admitted.source_bytes() * 2 + 1).fill(&mut random);
    let prime = (0..251).cycle().take(bytes).collect();
    let edges = BYTE_EDGES.into_iter().map(|edge| vec![edge; bytes]);
    [random, prime].into_iter().chain(edges).collect()
}

fn judged(twin: Twin, admitted: &Admitted, source: &[u8]) -> Vec<u8> {
    let mut payload = vec![0xa5; source.len()];
    twin.pack_scalar(length(admitted.geometry().row_bytes), source, &mut payload);
    payload
}

/// Runs code on a poisoned target between guards, at every alignment in turn.
fn guarded(bytes: usize, poison: u8, turn: usize, run: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut memory = vec![poison; bytes + 2 * GUARD];
    let start = turn % GUARD;
    run(&mut memory[start..start + bytes]);
    let (before, after) = (&memory[..start], &memory[start + bytes..]);
    assert!(before.iter().all(|byte| *byte == poison), "bytes before");
    assert!(after.iter().all(|byte| *byte == poison), "bytes behind");
    memory[start..start + bytes].to_vec()
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("because it is 1 or more")
}

/// What packs and unpacks on a number of threads.
trait Packing {
    fn pack(&self, source: &[u8], target: &mut [u8], thread_count: NonZeroUsize);
    fn unpack(&self, payload: &[u8], target: &mut [u8], thread_count: NonZeroUsize);
}

impl Packing for Kernel {
    fn pack(&self, source: &[u8], target: &mut [u8], thread_count: NonZeroUsize) {
        self.pack_parallel(source, target, thread_count);
    }

    fn unpack(&self, payload: &[u8], target: &mut [u8], thread_count: NonZeroUsize) {
        let inverse = self.inverse().expect("because twins have inverses");
        inverse.unpack_parallel(payload, target, thread_count);
    }
}

/// Packs and unpacks on three poisons and several threads; `None` when all is as the judge says.
fn difference(
    packing: &dyn Packing,
    twin: Twin,
    admitted: &Admitted,
    source: &[u8],
    turn: usize,
) -> Option<String> {
    let expected = judged(twin, admitted, source);
    for (poison, count) in [(0xa5, 1), (0x5a, 2), (0xc3, 3 + turn % 5)] {
        let packed = guarded(source.len(), poison, turn, |target| {
            packing.pack(source, target, threads(count));
        });
        if packed != expected {
            return Some(format!("{count} threads pack other bytes"));
        }
        let back = guarded(source.len(), poison, turn, |target| {
            packing.unpack(&expected, target, threads(count));
        });
        if back != source {
            return Some(format!("{count} threads give other bytes back"));
        }
    }
    None
}

#[test]
fn every_level_packs_what_the_judge_packs_and_gives_it_back() {
    let mut compared = 0;
    for level in IsaLevel::ALL {
        let Some(packers) = Packers::at(level) else {
            println!("NOT EXERCISED: {}: this CPU does not have it", level.name());
            continue;
        };
        for twin in Twin::ALL {
            for (index, admitted) in shapes(twin).iter().enumerate() {
                let kernel = packers.kernel(admitted).expect("because twins have judges");
                assert_eq!(kernel.level(), level, "{twin:?} {:?}", admitted.dims());
                for (turn, source) in contents(admitted).iter().enumerate() {
                    let found = difference(&kernel, twin, admitted, source, index * 7 + turn);
                    assert_eq!(found, None, "{twin:?} {:?} {level:?}", admitted.dims());
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 5 * 29 * 10, "{compared} tensors");
}

#[test]
fn units_of_four_rows_have_no_kernel() {
    for twin in Twin::ALL {
        let admitted = admitted(twin.ty(), &[twin.ty().block_elements(), 12]);
        let refused = Packers::detect()
            .kernel(&admitted)
            .map(|kernel| kernel.level());
        let error = refused.expect_err("because stock packs no four rows");
        assert_eq!(error.type_name, twin.type_name());
    }
}

/// Spoils a payload.
type Change = fn(&mut [u8]);

/// A packer that is wrong in one way: the judge, with its source or its payload changed.
struct Mutant {
    name: &'static str,
    twin: Twin,
    admitted: Admitted,
    change_source: fn(&Admitted, &mut [u8]),
    change_payload: Change,
}

impl Packing for Mutant {
    fn pack(&self, source: &[u8], target: &mut [u8], _: NonZeroUsize) {
        let mut source = source.to_vec();
        (self.change_source)(&self.admitted, &mut source);
        target.copy_from_slice(&judged(self.twin, &self.admitted, &source));
        (self.change_payload)(target);
    }

    fn unpack(&self, payload: &[u8], target: &mut [u8], _: NonZeroUsize) {
        let row_bytes = length(self.admitted.geometry().row_bytes);
        self.twin.unpack_scalar(row_bytes, payload, target);
    }
}

fn swap_rows(admitted: &Admitted, source: &mut [u8]) {
    let row_bytes = length(admitted.geometry().row_bytes);
    let (second, third) = source[row_bytes..3 * row_bytes].split_at_mut(row_bytes);
    second.swap_with_slice(third);
}

fn flip_again(payload: &mut [u8]) {
    for packed in payload.chunks_exact_mut(144) {
        packed[16..].iter_mut().for_each(|byte| *byte ^= 0x88);
    }
}

fn swap_minima_and_scales(payload: &mut [u8]) {
    let (scales, minima) = payload[..32].split_at_mut(16);
    scales.swap_with_slice(minima);
}

fn swap_codes(payload: &mut [u8]) {
    let (first, second) = payload[32..56].split_at_mut(12);
    first.swap_with_slice(second);
}

fn swap_pairs(payload: &mut [u8]) {
    payload.swap(32, 33);
}

fn leave_source(_: &Admitted, _: &mut [u8]) {}
fn leave_payload(_: &mut [u8]) {}

/// The mutants of one type, on its golden weight of a unit size.
fn mutants(twin: Twin, golden: &Admitted) -> Vec<Mutant> {
    let payloads: &[(&'static str, Change)] = match twin {
        Twin::Q4_0 => &[("xor left out", flip_again)],
        Twin::Iq4Nl => &[("xor too much", flip_again)],
        Twin::Mxfp4 => &[("exponents of two rows swapped", |payload| {
            payload.swap(0, 7)
        })],
        Twin::Q4K => &[
            ("minima first", swap_minima_and_scales),
            ("codes in another order", swap_codes),
        ],
        Twin::Q2K => &[
            ("minima first", swap_minima_and_scales),
            ("pairs the other way round", swap_pairs),
        ],
    };
    let mutant = |name, change_source, change_payload| Mutant {
        name,
        twin,
        admitted: golden.clone(),
        change_source,
        change_payload,
    };
    let payloads = payloads
        .iter()
        .map(|(name, change)| mutant(name, leave_source, *change));
    let rows = mutant("two rows swapped", swap_rows, leave_payload);
    payloads.chain([rows]).collect()
}

#[test]
fn each_mutant_is_noticed_and_has_another_fingerprint() {
    for (twin, unit) in Twin::ALL
        .into_iter()
        .flat_map(|twin| [(twin, 16), (twin, 8)])
    {
        let golden = admitted(twin.ty(), &[twin.ty().block_elements(), unit]).golden();
        let right = Packers::detect().fingerprint(&golden.admitted);
        let right = right.expect("because twins have judges");
        for mutant in mutants(twin, &golden.admitted) {
            let what = format!("{} in {twin:?}, {unit} rows", mutant.name);
            let found = difference(&mutant, twin, &golden.admitted, &golden.source, 0);
            assert!(found.is_some(), "{what}");
            let mut payload = vec![0; golden.source.len()];
            mutant.pack(&golden.source, &mut payload, threads(1));
            assert_ne!(golden.admitted.fingerprint(&payload), right, "{what}");
        }
        let right_one = Mutant {
            name: "none",
            twin,
            admitted: golden.admitted.clone(),
            change_source: leave_source,
            change_payload: leave_payload,
        };
        let found = difference(&right_one, twin, &golden.admitted, &golden.source, 0);
        assert_eq!(found, None, "{twin:?}");
    }
}

#[test]
fn forms_have_the_judges_names_and_lengths() {
    let forms = [
        (Twin::Q4_0, Q4_0::TYPE_NAME, Q4_0::BLOCK_BYTES),
        (Twin::Iq4Nl, Iq4Nl::TYPE_NAME, Iq4Nl::BLOCK_BYTES),
        (Twin::Mxfp4, Mxfp4::TYPE_NAME, Mxfp4::BLOCK_BYTES),
        (Twin::Q4K, Q4K::TYPE_NAME, Q4K::BLOCK_BYTES),
        (Twin::Q2K, Q2K::TYPE_NAME, Q2K::BLOCK_BYTES),
    ];
    for (twin, name, block_bytes) in forms {
        assert_eq!((twin.type_name(), twin.block_bytes()), (name, block_bytes));
    }
}
