//! Our own packers against the stock engine's: equal fingerprints, equal bytes, equal choices.
//!
//! The engine's libraries are loaded into this process, and its CPU_REPACK buffer type packs. One
//! engine per process: the runner gives each test its own.

use engine_tests::mutant::engine_with_wrong_packer;
use engine_tests::{Sandbox, places};
use packhouse_base::digest::Fingerprint;
use packhouse_base::ggml_type::GgmlType;
use packhouse_ggml::live::LivePacker;
use packhouse_layout::ggml_cpu_repack::twin::Twin;
use packhouse_layout::golden::{BYTE_EDGES, SplitMix64};
use packhouse_layout::stock_x86::{self, Features};
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{IsaLevel, Packers};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

/// Unit sizes with a twin.
const UNITS: [u64; 2] = [16, 8];

fn live(folder: &Path) -> LivePacker {
    LivePacker::load(folder).unwrap_or_else(|error| panic!("the engine is hosted: {error}"))
}

/// Our packers at every level that this CPU has, scalar first.
fn levels() -> Vec<Packers> {
    let levels: Vec<_> = IsaLevel::ALL.into_iter().filter_map(Packers::at).collect();
    for level in IsaLevel::ALL.into_iter().skip(levels.len()) {
        println!("NOT EXERCISED: {}: this CPU does not have it", level.name());
    }
    levels
}

fn admitted(ty: GgmlType, dims: &[u64]) -> Admitted {
    let admitted = Layout::GgmlCpuRepack.admit(ty, dims, &BTreeMap::new());
    admitted.unwrap_or_else(|refusal| panic!("{} {dims:?}: {refusal}", ty.name()))
}

/// Any tensor of a type and unit size.
fn of_unit(twin: Twin, unit_rows: u64) -> Admitted {
    admitted(twin.ty(), &[twin.ty().block_elements(), unit_rows])
}

fn fingerprint(packers: &Packers, twin: Twin, unit_rows: u64) -> Fingerprint {
    let fingerprint = packers.fingerprint(&of_unit(twin, unit_rows));
    fingerprint.unwrap_or_else(|error| panic!("{twin:?} {unit_rows}: {error}"))
}

/// Shapes on every edge: one block and more, one group and more, stacks of matrices.
fn shapes(block: u64) -> Vec<Vec<u64>> {
    let mut shapes = Vec::new();
    for blocks in [1, 2, 3, 5, 8, 13] {
        for rows in [8, 16, 24, 40, 64] {
            shapes.push(vec![blocks * block, rows]);
        }
    }
    for (rows, count) in [(8, 2), (8, 5), (16, 3), (24, 2), (40, 7)] {
        shapes.push(vec![3 * block, rows, count]);
    }
    shapes
}

/// Random bytes, then each edge byte alone, then a counter of a prime period.
fn contents(bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = vec![0; bytes];
    SplitMix64::new(seed).fill(&mut random);
    let prime = (0..bytes).map(|at| (at % 251) as u8).collect();
    let edges = BYTE_EDGES.into_iter().map(|edge| vec![edge; bytes]);
    [random, prime].into_iter().chain(edges).collect()
}

#[test]
fn each_twin_has_the_engines_fingerprint() {
    let live = live(&places::engine_bin());
    for packers in levels() {
        for twin in Twin::ALL {
            for unit in UNITS {
                let what = format!("{twin:?} {unit} {}", packers.level().name());
                let engine = live.fingerprint(twin.ty(), unit);
                assert_eq!(engine, Some(fingerprint(&packers, twin, unit)), "{what}");
            }
        }
    }
}

#[test]
fn each_twin_packs_the_bytes_that_the_engine_packs() {
    let live = live(&places::engine_bin());
    let mut compared = 0;
    for packers in levels() {
        for twin in Twin::ALL {
            compared += compare(&live, &packers, twin);
        }
    }
    assert_eq!(compared, levels().len() * 5 * 35 * 10);
}

/// Packs all shapes and contents of a type on both sides; returns how many.
fn compare(live: &LivePacker, packers: &Packers, twin: Twin) -> usize {
    let ty = twin.ty();
    let mut compared = 0;
    for (index, dims) in shapes(ty.block_elements()).iter().enumerate() {
        let admitted = admitted(ty, dims);
        let kernel = packers
            .kernel(&admitted)
            .expect("because twins have judges");
        let what = format!("{twin:?} {dims:?} {}", kernel.level().name());
        assert_eq!(kernel.level(), packers.level(), "{what}");
        let bytes = usize::try_from(admitted.source_bytes()).expect("because it is small");
        for source in contents(bytes, index as u64 * 31 + 7) {
            let mut engine = vec![0xa5; bytes];
            assert!(live.pack(ty, dims, &source, &mut engine), "{what}");
            let mut ours = vec![0x5a; bytes];
            let threads = NonZeroUsize::new(1 + compared % 3).expect("because it is 1 and more");
            kernel.pack_parallel(&source, &mut ours, threads);
            assert!(ours == engine, "{what}");
            let mut back = vec![0x3c; bytes];
            let inverse = kernel.inverse().expect("because twins have inverses");
            inverse.unpack(&engine, &mut back);
            assert!(back == source, "{what}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_engine_packs_what_the_choice_says_and_nothing_else() {
    let live = live(&places::engine_bin());
    // `scripts/engine.sh` builds for all that this CPU has.
    let features = Features::detect();
    let mut packed = 0;
    for ty in GgmlType::all() {
        for rows in [1, 4, 7, 8, 12, 16, 20, 24, 32] {
            let dims = [ty.block_elements() * 2, rows];
            let choice = stock_x86::choose("a.weight", *ty, &dims, false, features);
            assert_eq!(
                live.packs(*ty, &dims),
                choice.is_ok(),
                "{} {rows}",
                ty.name()
            );
            packed += usize::from(choice.is_ok());
        }
    }
    assert!(packed > 0);
}

#[test]
fn a_wrong_packer_in_the_engine_has_another_fingerprint() {
    let sandbox = Sandbox::new();
    let live = live(&engine_with_wrong_packer(sandbox.path()));
    for packers in levels() {
        for unit in UNITS {
            let engine = live.fingerprint(Twin::Q4_0.ty(), unit);
            assert!(engine.is_some());
            assert_ne!(engine, Some(fingerprint(&packers, Twin::Q4_0, unit)));
        }
    }
}
