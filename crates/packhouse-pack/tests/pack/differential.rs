//! Every kernel of the table against the judge of its layout: on every edge of its tiles, on
//! targets that begin anywhere, on one to five threads, with all bytes equal and none beside them
//! touched.

use crate::{admit, length, levels};
use packhouse_base::Blame;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::{Admitted, Layout, judge, pack_scalar, unpack_scalar};
use packhouse_pack::{IsaLevel, KERNELS, Kernel, NoKernel, Packers};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Bytes before and after a target that must stay as they are.
const MARGIN: usize = 192;

/// Tensors on the edges of tiles of 16 and 8 rows, of what is done side by side (4 tiles, 8 tiles,
/// 4 blocks), and of what several threads share.
fn tensors() -> Vec<Admitted> {
    let mut all = Vec::new();
    let blocks = [1, 2, 3, 4, 5, 8, 13];
    for columns in blocks.map(|count| count * 32) {
        for rows in [16, 32, 48, 64, 80, 128, 144] {
            let dims = [columns, rows];
            all.push(admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &dims, &[]));
        }
        for rows in [1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 71, 72, 73] {
            let dims = [columns, rows];
            all.push(admit(Layout::Q4_0JointN, "Q4_0", &dims, &[]));
        }
        for rows in [1, 2, 3, 4, 5, 7, 16] {
            let dims = [columns, rows];
            all.push(admit(Layout::Q4_0Reordered, "Q4_0", &dims, &[]));
        }
    }
    for n_tile in [1, 4, 7, 16] {
        let pairs = [("n_tile", n_tile)];
        all.push(admit(Layout::Q4_0JointN, "Q4_0", &[96, 17], &pairs));
    }
    for (name, dims) in [
        ("F32", vec![5, 3]),
        ("Q6_K", vec![256, 2, 3]),
        ("I8", vec![0, 3]),
    ] {
        all.push(admit(Layout::Identity, name, &dims, &[]));
    }
    for (name, block) in [
        ("Q4_0", 32),
        ("IQ4_NL", 32),
        ("MXFP4", 32),
        ("Q4_K", 256),
        ("Q2_K", 256),
    ] {
        for (count, dims) in [
            (1, vec![8]),
            (2, vec![16]),
            (3, vec![24]),
            (5, vec![40, 3]),
            (2, vec![48, 2]),
        ] {
            let dims: Vec<_> = std::iter::once(count * block).chain(dims).collect();
            all.push(admit(Layout::GgmlCpuRepack, name, &dims, &[]));
        }
    }
    for layout in [Layout::Int8TileB8, Layout::Int8TileRm] {
        for (name, dims) in [("F32", [5, 3]), ("BF16", [67, 131]), ("Q4_0", [64, 17])] {
            all.push(admit(layout, name, &dims, &[]));
            let sizes = [("kd", 128), ("nd", 256), ("kpad", 70), ("t", 50)];
            all.push(admit(layout, name, &dims, &sizes));
        }
    }
    all
}

/// Sources whose period is a prime, so that no two tiles, rows or blocks are alike, and a random
/// one.
fn sources(admitted: &Admitted) -> [Vec<u8>; 2] {
    let byte_count = length(admitted.source_bytes());
    let by_prime = (0..byte_count).map(|index| u8::try_from(index % 251).unwrap_or(0));
    let mut random = vec![0; byte_count];
    SplitMix64::new(admitted.source_bytes()).fill(&mut random);
    [by_prime.collect(), random]
}

/// Runs `work` on targets poisoned with two bytes, at several offsets, and compares every byte.
fn assert_writes_all(expected: &[u8], name: &str, work: impl Fn(&mut [u8])) {
    assert_margins(expected, expected.len(), name, work);
}

/// The same with a target of `given` bytes: what lies after the expected ones is beside it.
fn assert_margins(expected: &[u8], given: usize, name: &str, work: impl Fn(&mut [u8])) {
    for (poison, offset) in [(0x00, 0), (0xff, 0), (0xa5, 1), (0x5a, 16)] {
        let mut buffer = vec![poison; expected.len() + 2 * MARGIN];
        let start = buffer.as_ptr().align_offset(64) + 64 + offset;
        let end = start + expected.len();
        work(&mut buffer[start..start + given]);
        let differs = buffer[start..end]
            .iter()
            .zip(expected)
            .position(|(byte, right)| byte != right);
        assert_eq!(differs, None, "{name}: first wrong byte, offset {offset}");
        let beside = buffer[..start].iter().chain(&buffer[end..]);
        assert!(
            beside.clone().all(|byte| *byte == poison),
            "{name}: a byte beside the target, offset {offset}"
        );
    }
}

fn compare(kernel: &Kernel, source: &[u8], payload: &[u8], thread_count: usize) {
    let admitted = kernel.admitted();
    let name = format!(
        "{} {} {:?} {:?} {} on {thread_count} threads",
        admitted.layout().id(),
        admitted.ty().name(),
        admitted.dims(),
        admitted.parameters(),
        kernel.level().name(),
    );
    let threads = NonZeroUsize::new(thread_count).expect("because it begins at 1");
    assert_writes_all(payload, &format!("pack {name}"), |target| {
        kernel.pack_parallel(source, target, threads);
    });
    if let Ok(inverse) = kernel.inverse() {
        assert_writes_all(source, &format!("unpack {name}"), |target| {
            inverse.unpack_parallel(payload, target, threads);
        });
    }
    // A source that begins anywhere packs to the same bytes.
    let mut shifted = vec![0; source.len() + 1];
    shifted[1..].copy_from_slice(source);
    let mut target = vec![0x3c; payload.len()];
    kernel.pack_parallel(&shifted[1..], &mut target, threads);
    assert!(target == payload, "pack {name}: from an odd address");
}

fn judged(admitted: &Admitted, source: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; length(admitted.payload_bytes())];
    pack_scalar(admitted, source, &mut payload).expect("because the tensor has a judge");
    if admitted.layout().is_invertible() {
        let mut back = vec![0; source.len()];
        unpack_scalar(admitted, &payload, &mut back).expect("because the layout has an inverse");
        assert!(back == source, "the judge's inverse of {admitted:?}");
    }
    payload
}

#[test]
fn every_kernel_makes_the_judges_bytes_on_every_edge() {
    let levels = levels();
    let mut exercised = BTreeSet::new();
    for admitted in tensors() {
        for (turn, source) in sources(&admitted).iter().enumerate() {
            let payload = judged(&admitted, source);
            for packers in &levels {
                let kernel = packers.kernel(&admitted).expect("because it has a judge");
                let level = kernel.level();
                let serving = KERNELS
                    .iter()
                    .enumerate()
                    .filter(|(_, row)| row.takes(&admitted) && row.code.level() == level);
                let serving: Vec<usize> = serving.map(|(index, _)| index).collect();
                assert_eq!(serving.len(), 1, "one row serves {admitted:?} at {level:?}");
                exercised.extend(serving);
                // Judges use one thread, and bytes do not depend on the number.
                let is_judge = kernel.level() == IsaLevel::Scalar;
                let thread_counts = if is_judge || turn > 0 { 1..=1 } else { 1..=5 };
                for thread_count in thread_counts {
                    compare(&kernel, source, &payload, thread_count);
                }
            }
        }
    }
    for (index, row) in KERNELS.iter().enumerate() {
        let is_here = row.code.level() <= IsaLevel::detect();
        assert!(!is_here || exercised.contains(&index), "{row:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_matrix_from_any_address_on_any_threads(
        layout in prop::sample::select(vec![
            Layout::Q4_0Xe2DpasV2,
            Layout::Q4_0JointN,
            Layout::Q4_0Reordered,
        ]),
        blocks in 1u64..24,
        rows in 1u64..200,
        seed in any::<u64>(),
        thread_count in 1usize..9,
    ) {
        let rows = match layout {
            Layout::Q4_0Xe2DpasV2 => rows.next_multiple_of(16),
            Layout::GgmlCpuRepack
            | Layout::Identity
            | Layout::Int8TileB8
            | Layout::Int8TileRm
            | Layout::Q4_0JointN
            | Layout::Q4_0Reordered => rows,
        };
        let admitted = admit(layout, "Q4_0", &[blocks * 32, rows], &[]);
        let mut source = vec![0; length(admitted.source_bytes())];
        SplitMix64::new(seed).fill(&mut source);
        let payload = judged(&admitted, &source);
        for packers in levels() {
            let kernel = packers.kernel(&admitted).expect("because it has a judge");
            compare(&kernel, &source, &payload, thread_count);
        }
    }
}

#[test]
#[should_panic(expected = "first wrong byte")]
fn a_kernel_that_leaves_a_byte_as_it_was_would_be_noticed() {
    assert_writes_all(&[7; 40], "canary", |target| {
        for (index, byte) in target.iter_mut().enumerate() {
            if index != 39 {
                *byte = 7;
            }
        }
    });
}

#[test]
#[should_panic(expected = "a byte beside the target")]
fn a_kernel_that_writes_beside_its_target_would_be_noticed() {
    // No safe code reaches beside a slice, so the expected bytes are one fewer than the slice has.
    assert_margins(&[7; 39], 40, "canary", |target| target.fill(7));
}

/// Large enough to be written past the caches where the target's alignment allows it, and to have
/// more K blocks and tiles than are done side by side.
#[test]
fn payloads_larger_than_the_caches_have_the_same_bytes() {
    for (layout, dims) in [
        (Layout::Q4_0Xe2DpasV2, [1056, 2064]),
        (Layout::Q4_0JointN, [1056, 2063]),
        (Layout::Q4_0JointN, [1056, 2112]),
        (Layout::Q4_0Reordered, [1056, 2063]),
    ] {
        let admitted = admit(layout, "Q4_0", &dims, &[]);
        assert!(admitted.source_bytes() > 1 << 20);
        let [source, _] = sources(&admitted);
        let payload = judged(&admitted, &source);
        for packers in levels().iter().skip(1) {
            let kernel = packers.kernel(&admitted).expect("because it has a judge");
            assert_eq!(kernel.level(), packers.level());
            for thread_count in [1, 3] {
                compare(&kernel, &source, &payload, thread_count);
            }
        }
    }
}

/// What `/proc/cpuinfo` says the CPU has, which is not what detection asks.
fn levels_of_cpuinfo() -> Vec<&'static str> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("flags"));
    let flags: BTreeSet<_> = line.unwrap_or_default().split_ascii_whitespace().collect();
    let has = |wanted: &[&str]| wanted.iter().all(|flag| flags.contains(flag));
    let mut found = vec!["scalar"];
    if has(&["avx2"]) {
        found.push("avx2");
    }
    if has(&["avx2", "avx512f", "avx512bw", "avx512vl"]) {
        found.push("avx512");
    }
    found
}

#[test]
fn the_levels_of_this_cpu_are_exercised() {
    let levels = levels();
    let names: Vec<_> = levels
        .iter()
        .map(|packers| packers.level().name())
        .collect();
    println!("isa levels exercised: {}", names.join(" "));
    if cfg!(target_os = "linux") {
        assert_eq!(names, levels_of_cpuinfo());
    }
    let detected = Packers::detect().level();
    assert_eq!(levels.last().map(Packers::level), Some(detected));
    // A forced level is what runs, wherever the table has a kernel for it.
    for layout in [
        Layout::Q4_0Xe2DpasV2,
        Layout::Q4_0JointN,
        Layout::Q4_0Reordered,
    ] {
        let admitted = admit(layout, "Q4_0", &[32, 16], &[]);
        for packers in &levels {
            let kernel = packers.kernel(&admitted).expect("because it has a judge");
            assert_eq!(kernel.level(), packers.level(), "{layout:?}");
        }
    }
}

#[test]
fn parameters_without_a_kernel_of_their_own_fall_back_to_the_judge() {
    let admitted = admit(Layout::Q4_0JointN, "Q4_0", &[32, 16], &[("n_tile", 4)]);
    let kernel = Packers::detect().kernel(&admitted);
    let kernel = kernel.expect("because the layout has a judge");
    assert_eq!(kernel.level(), IsaLevel::Scalar);
}

/// Whose side it is on that no packer serves: the host's where another CPU would, or else that of
/// who asked, as `NoJudge` says.
#[test]
fn a_level_is_named_where_it_would_help() {
    let none = |helping| NoKernel {
        layout: "q4_0-joint-n-v1",
        type_name: "Q4_0",
        parameters: BTreeMap::from([("n_tile".to_owned(), 8)]),
        level: "scalar",
        helping,
    };
    let helped = none(Some("avx2"));
    assert_eq!(
        helped.to_string(),
        "no packer of q4_0-joint-n-v1 for type Q4_0 with n_tile 8 at isa level scalar; there is \
         one at avx2"
    );
    assert_eq!(helped.blame(), Blame::Host);
    assert_eq!(none(None).blame(), Blame::Caller);
    let admitted = admit(Layout::GgmlCpuRepack, "Q6_K", &[256, 16], &[]);
    let no_judge = judge(&admitted).expect_err("because an engine packs it");
    let no_kernel = Packers::detect().kernel(&admitted);
    let no_kernel = no_kernel.expect_err("because an engine packs it");
    assert_eq!(no_kernel.blame(), no_judge.blame());
}

#[test]
fn what_only_an_engine_packs_is_an_answer() {
    let admitted = admit(Layout::GgmlCpuRepack, "Q6_K", &[256, 16], &[]);
    assert!(judge(&admitted).is_err());
    for packers in levels() {
        let none = packers.kernel(&admitted).map(|kernel| kernel.level());
        let said = none.expect_err("because no kernel packs Q6_K").to_string();
        // No level would help, so none is named.
        assert_eq!(
            said,
            "no packer of ggml-cpu-repack for type Q6_K with unit_rows 16: an engine makes it"
        );
        assert!(packers.fingerprint(&admitted).is_err());
    }
}
