//! A wrong length is a bug of the caller, found before anything is written.

use crate::{admit, length};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{Avx2, Avx512, Code, IsaLevel, KERNELS, KernelRow, Packers};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn ragged() -> Admitted {
    admit(Layout::Q4_0JointN, "Q4_0", &[64, 17], &[])
}

fn buffers(admitted: &Admitted) -> (Vec<u8>, Vec<u8>) {
    let source = vec![1; length(admitted.source_bytes()) + 1];
    let payload = vec![1; length(admitted.payload_bytes()) + 1];
    (source, payload)
}

fn kernel(admitted: &Admitted) -> packhouse_pack::Kernel {
    let kernel = Packers::detect().kernel(admitted);
    kernel.expect("because the layout has a judge")
}

#[test]
#[should_panic(expected = "source bytes")]
fn a_source_of_another_length_is_not_packed() {
    let admitted = ragged();
    let (source, mut payload) = buffers(&admitted);
    let end = payload.len() - 1;
    kernel(&admitted).pack(&source, &mut payload[..end]);
}

#[test]
#[should_panic(expected = "payload bytes")]
fn a_target_of_another_length_is_not_packed_into() {
    let admitted = ragged();
    let (source, mut payload) = buffers(&admitted);
    kernel(&admitted).pack(&source[..source.len() - 1], &mut payload);
}

#[test]
#[should_panic(expected = "payload bytes")]
fn a_payload_of_another_length_is_not_unpacked() {
    let admitted = ragged();
    let (mut source, payload) = buffers(&admitted);
    let end = source.len() - 1;
    let kernel = kernel(&admitted);
    let inverse = kernel.inverse().expect("because the layout has an inverse");
    inverse.unpack(&payload, &mut source[..end]);
}

#[test]
#[should_panic(expected = "source bytes")]
fn a_target_of_another_length_is_not_unpacked_into() {
    let admitted = ragged();
    let (mut source, payload) = buffers(&admitted);
    let kernel = kernel(&admitted);
    let inverse = kernel.inverse().expect("because the layout has an inverse");
    inverse.unpack(&payload[..payload.len() - 1], &mut source);
}

/// The doors of single kernels, which assert for themselves since they are what is unsafe inside.
#[test]
fn each_kernel_asserts_its_lengths_and_ranges_before_it_writes() {
    let mut asserted_count = 0;
    let mut rows = 0;
    for row in KERNELS {
        if matches!(row.code, Code::HeadAvx2(_) | Code::HeadAvx512(_)) {
            rows += usize::from(packs_heads(row, &mut asserted_count));
            continue;
        }
        let Some(admitted) = tensor(row) else {
            continue;
        };
        assert!(row.takes(&admitted), "{row:?}");
        rows += usize::from(row.code.level() > IsaLevel::Scalar);
        for fault in Fault::ALL {
            let outcome = match row.code {
                Code::Judge => continue,
                Code::Avx2(_, None) | Code::Avx512(_, None) => panic!("{row:?}"),
                Code::HeadAvx2(_) | Code::HeadAvx512(_) => panic!("{row:?}"),
                Code::Avx2(pack, Some(unpack)) => Avx2::detect().map(|token| {
                    let pack = |call: &mut PackCall<'_>| {
                        let [first, second] = &mut call.targets;
                        let steps = call.range.clone();
                        pack(token, call.admitted, steps, call.source, [first, second]);
                    };
                    let unpack = |call: &mut UnpackCall<'_>| {
                        let groups = call.range.clone();
                        unpack(token, call.admitted, groups, call.payload, &mut call.target);
                    };
                    faulty(&admitted, fault, pack, unpack)
                }),
                Code::Avx512(pack, Some(unpack)) => Avx512::detect().map(|token| {
                    let pack = |call: &mut PackCall<'_>| {
                        let [first, second] = &mut call.targets;
                        let steps = call.range.clone();
                        pack(token, call.admitted, steps, call.source, [first, second]);
                    };
                    let unpack = |call: &mut UnpackCall<'_>| {
                        let groups = call.range.clone();
                        unpack(token, call.admitted, groups, call.payload, &mut call.target);
                    };
                    faulty(&admitted, fault, pack, unpack)
                }),
            };
            if let Some([packed, unpacked]) = outcome {
                let is_right = fault == Fault::None;
                assert_eq!(packed, is_right, "pack {fault:?} {row:?}");
                assert_eq!(unpacked, is_right, "unpack {fault:?} {row:?}");
                asserted_count += 1;
            }
        }
    }
    println!("{asserted_count} faulty calls of {rows} kernels");
    let kernels = KERNELS.iter();
    let kernels = kernels.filter(|row| row.code.level() > IsaLevel::Scalar);
    assert_eq!(rows, kernels.count(), "each kernel has a door");
    assert!(asserted_count > 0 || Avx2::detect().is_none());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    ShortInput,
    LongInput,
    ShortTarget,
    LongTarget,
    RangeBeyond,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::None,
        Self::ShortInput,
        Self::LongInput,
        Self::ShortTarget,
        Self::LongTarget,
        Self::RangeBeyond,
    ];
}

struct PackCall<'a> {
    admitted: &'a Admitted,
    range: std::ops::Range<u64>,
    source: &'a [u8],
    targets: [Vec<u8>; 2],
}

struct UnpackCall<'a> {
    admitted: &'a Admitted,
    range: std::ops::Range<u64>,
    payload: &'a [u8],
    target: Vec<u8>,
}

/// A tensor for a kernel; `None` where the judge serves any.
fn tensor(row: &KernelRow) -> Option<Admitted> {
    let admitted = match row.layout {
        Layout::Q4_0JointN => ragged(),
        Layout::Q4_0Reordered => admit(row.layout, "Q4_0", &[64, 5], &[]),
        Layout::Q4_0Xe2DpasV2 => admit(row.layout, "Q4_0", &[64, 32], &[]),
        Layout::GgmlCpuRepack => {
            let name = row.type_name?;
            let ty = GgmlType::from_name(name).expect("because kernels name known types");
            let [(_, unit_rows)] = row.parameters else {
                panic!("twins are by unit: {row:?}");
            };
            let dims = [ty.block_elements() * 2, 3 * unit_rows];
            admit(row.layout, name, &dims, &[])
        }
        Layout::Identity | Layout::Int8TileB8 | Layout::Int8TileRm => return None,
    };
    Some(admitted)
}

/// Calls a packer of heads with each fault that it can have; tells whether it is one. A call that
/// did not go through has written nothing.
fn packs_heads(row: &KernelRow, asserted_count: &mut usize) -> bool {
    let admitted = admit(row.layout, "F32", &[70, 131], &[]);
    assert!(row.takes(&admitted), "{row:?}");
    let one = NonZeroUsize::MIN;
    let call = |source: &[u8], target: &mut [u8]| match row.code {
        Code::Judge | Code::Avx2(..) | Code::Avx512(..) => None,
        Code::HeadAvx2(pack) => {
            Avx2::detect().map(|token| pack(token, &admitted, source, target, one))
        }
        Code::HeadAvx512(pack) => {
            Avx512::detect().map(|token| pack(token, &admitted, source, target, one))
        }
    };
    let (source_bytes, payload_bytes) = (admitted.source_bytes(), admitted.payload_bytes());
    let (source, payload) = (length(source_bytes), length(payload_bytes));
    for (fault, source, target) in [
        (Fault::None, source, payload),
        (Fault::ShortInput, source - 1, payload),
        (Fault::LongInput, source + 1, payload),
        (Fault::ShortTarget, source, payload - 1),
        (Fault::LongTarget, source, payload + 1),
    ] {
        let source = vec![1; source];
        let mut target = vec![0x77; target];
        let packed = catch_unwind(AssertUnwindSafe(|| call(&source, &mut target)));
        if let Ok(None) = packed {
            continue;
        }
        assert_eq!(packed.is_ok(), fault == Fault::None, "{fault:?} {row:?}");
        let is_poison = target.iter().all(|byte| *byte == 0x77);
        assert_eq!(is_poison, fault != Fault::None, "{fault:?} {row:?}");
        *asserted_count += 1;
    }
    row.code.level() > IsaLevel::Scalar
}

/// Calls both kernels with one fault; tells whether they went through. A call that did not has
/// written nothing.
fn faulty(
    admitted: &Admitted,
    fault: Fault,
    pack: impl Fn(&mut PackCall<'_>),
    unpack: impl Fn(&mut UnpackCall<'_>),
) -> [bool; 2] {
    let (source, payload) = buffers(admitted);
    let cut = |exact: u64, short: Fault, long: Fault| match fault {
        same if same == short => length(exact) - 1,
        same if same == long => length(exact) + 1,
        _ => length(exact),
    };
    let (short, long) = (Fault::ShortTarget, Fault::LongTarget);
    let beyond = u64::from(fault == Fault::RangeBeyond);
    let split = admitted.split();
    let step = (split.step_bytes, split.step_count);
    let mut call = PackCall {
        admitted,
        range: beyond..split.step_count + beyond,
        source: &source[..cut(admitted.source_bytes(), Fault::ShortInput, Fault::LongInput)],
        targets: [
            vec![0x77; cut(step.0[0] * step.1, short, long)],
            vec![0x77; length(step.0[1] * step.1)],
        ],
    };
    let packed = catch_unwind(AssertUnwindSafe(|| pack(&mut call))).is_ok();
    let is_poison = |bytes: &Vec<u8>| bytes.iter().all(|byte| *byte == 0x77);
    assert!(packed || call.targets.iter().all(is_poison), "{fault:?}");
    let mut call = UnpackCall {
        admitted,
        range: beyond..admitted.group_count() + beyond,
        payload: &payload[..cut(
            admitted.payload_bytes(),
            Fault::ShortInput,
            Fault::LongInput,
        )],
        target: vec![0x77; cut(admitted.source_bytes(), short, long)],
    };
    let unpacked = catch_unwind(AssertUnwindSafe(|| unpack(&mut call))).is_ok();
    assert!(unpacked || is_poison(&call.target), "{fault:?}");
    [packed, unpacked]
}
