//! What layouts refuse, and that the refusal names the value in the way.

use crate::{admit, parameters, try_admit};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Fingerprint, TensorDigest};
use packhouse_layout::{Layout, NoJudge, pack_scalar};

/// (layout, type, dims, parameters, what is said).
pub(crate) type Refused = (
    Layout,
    &'static str,
    &'static [u64],
    &'static [(&'static str, u64)],
    &'static str,
);

pub(crate) const REFUSED: &[Refused] = &[
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_1",
        &[32, 16],
        &[],
        "type Q4_1 has no packing in q4_0-xe2-dpas-v2",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[33, 16],
        &[],
        "row of 33 elements is no whole number of 32-element blocks",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32, 17],
        &[],
        "17 rows are no multiple of 16",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32, 15],
        &[],
        "15 rows are no multiple of 16",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32],
        &[],
        "1 rows are no multiple of 16",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32, 0],
        &[],
        "dims [32, 0] are not a matrix or a stack of matrices with rows",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32, 16, 2],
        &[],
        "q4_0-xe2-dpas-v2 is an order of one matrix, and dims [32, 16, 2] are a stack of them",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[1 << 40, 1 << 40],
        &[],
        "the sizes of a tensor of dims [1099511627776, 1099511627776] do not fit 64 bits",
    ),
    (
        Layout::Q4_0Xe2DpasV2,
        "Q4_0",
        &[32, 16],
        &[("n_tile", 8)],
        "q4_0-xe2-dpas-v2 has no parameter n_tile",
    ),
    (
        Layout::Q4_0JointN,
        "Q4_0",
        &[32, 16],
        &[("n_tile", 0)],
        "q4_0-joint-n-v1 takes n_tile from 1 to 1024 here, not 0",
    ),
    (
        Layout::Q4_0JointN,
        "Q4_0",
        &[32, 16],
        &[("n_tile", 1025)],
        "q4_0-joint-n-v1 takes n_tile from 1 to 1024 here, not 1025",
    ),
    (
        Layout::Q4_0JointN,
        "Q4_0",
        &[1 << 58, 3],
        &[("n_tile", 1024)],
        "the sizes of a tensor of dims [288230376151711744, 3] do not fit 64 bits",
    ),
    (
        Layout::Q4_0JointN,
        "F16",
        &[32, 16],
        &[],
        "type F16 has no packing in q4_0-joint-n-v1",
    ),
    (
        Layout::Q4_0Reordered,
        "Q4_0",
        &[32, 4, 1, 2],
        &[],
        "q4_0-reordered-v1 is an order of one matrix, and dims [32, 4, 1, 2] are a stack of them",
    ),
    (
        Layout::Identity,
        "Q4_0",
        &[16, 4],
        &[],
        "row of 16 elements is no whole number of 32-element blocks",
    ),
    (
        Layout::Identity,
        "F32",
        &[0, 1 << 40, 1 << 40],
        &[],
        "the sizes of a tensor of dims [0, 1099511627776, 1099511627776] do not fit 64 bits",
    ),
    (
        Layout::Int8TileRm,
        "I8",
        &[32, 16],
        &[],
        "type I8 has no packing in int8-tile-rm-v1",
    ),
    (
        Layout::Int8TileB8,
        "F16",
        &[32, 16, 2],
        &[],
        "int8-tile-b8-v1 is an order of one matrix, and dims [32, 16, 2] are a stack of them",
    ),
    (
        Layout::Int8TileRm,
        "F16",
        &[0, 16],
        &[],
        "dims [0, 16] are not a matrix or a stack of matrices with rows",
    ),
    (
        Layout::Int8TileRm,
        "F16",
        &[32, 0],
        &[],
        "dims [32, 0] are not a matrix or a stack of matrices with rows",
    ),
    (
        Layout::Int8TileRm,
        "F16",
        &[32, 16, 0],
        &[],
        "dims [32, 16, 0] are not a matrix or a stack of matrices with rows",
    ),
    (
        Layout::Int8TileB8,
        "Q4_0",
        &[48, 16],
        &[],
        "row of 48 elements is no whole number of 32-element blocks",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[32, 16],
        &[("kpad", 31), ("kd", 64)],
        "int8-tile-rm-v1: columns of 32 values do not fit kpad, which is 31",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[32, 16],
        &[("kd", 31)],
        "int8-tile-rm-v1: kpad is 32, more than kd, which is 31",
    ),
    (
        Layout::Int8TileB8,
        "F32",
        &[32, 16],
        &[("kd", 96)],
        "int8-tile-b8-v1: kd is 96, which the blocked order needs to be a multiple of 64",
    ),
    (
        Layout::Int8TileB8,
        "F32",
        &[32, 16],
        &[("nd", 192)],
        "int8-tile-b8-v1: nd is 192, which the blocked order needs to be a multiple of 128",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[32, 16],
        &[("t", 17), ("nd", 16)],
        "int8-tile-rm-v1: t is 17, more than nd, which is 16",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[32, 16],
        &[("nd", 15)],
        "int8-tile-rm-v1: t is 16, more than nd, which is 15",
    ),
    (
        Layout::Int8TileB8,
        "F32",
        &[32, 16],
        &[("kd", 63)],
        "int8-tile-b8-v1 takes kd from 64 to 16777216 here, not 63",
    ),
    (
        Layout::Int8TileB8,
        "F32",
        &[32, 16],
        &[("t", 16_777_217)],
        "int8-tile-b8-v1 takes t from 1 to 16777216 here, not 16777217",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[32, 16],
        &[("kd", 16_777_216), ("nd", 4097)],
        "int8-tile-rm-v1: kd 16777216 times nd 4097 is more than 68719476736 bytes of codes",
    ),
    (
        Layout::Int8TileRm,
        "F32",
        &[1, 1 << 60],
        &[("t", 1), ("kd", 1 << 10)],
        "the sizes of a tensor of dims [1, 1152921504606846976] do not fit 64 bits",
    ),
    (
        Layout::GgmlCpuRepack,
        "Q4_0",
        &[32, 16],
        &[("unit_rows", 8)],
        "ggml-cpu-repack takes unit_rows from 16 to 16 here, not 8",
    ),
    (
        Layout::GgmlCpuRepack,
        "Q4_0",
        &[32, 6],
        &[],
        "6 rows are no multiple of 4",
    ),
];

#[test]
fn each_refusal_names_the_value_in_the_way() {
    for (layout, type_name, dims, pairs, said) in REFUSED {
        let refusal = try_admit(*layout, type_name, dims, pairs);
        let refusal = refusal.expect_err("because the table holds what is refused");
        assert_eq!(refusal.to_string(), *said);
        let blame = if pairs.is_empty() {
            Blame::Source
        } else {
            Blame::Caller
        };
        let is_size = said.contains("64 bits");
        assert!(is_size || refusal.blame() == blame, "{said}");
    }
}

#[test]
fn sizes_up_to_the_last_that_fits_are_admitted() {
    // 18 bytes per 32 elements: the elements overflow first, except where rows are padded.
    let rows = (u64::MAX / 32) / 16 * 16;
    let admitted = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, rows], &[]);
    assert_eq!(admitted.payload_bytes(), rows * 18);
    let more = try_admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, rows + 16], &[]);
    assert!(more.is_err());
}

#[test]
fn ids_and_versions_are_those_of_the_design_and_found_again() {
    let named: Vec<_> = Layout::ALL
        .iter()
        .map(|layout| (layout.id(), layout.version()))
        .collect();
    assert_eq!(
        named,
        [
            ("ggml-cpu-repack", 1),
            ("identity-v1", 1),
            ("int8-tile-b8-v1", 1),
            ("int8-tile-rm-v1", 1),
            ("q4_0-joint-n-v1", 1),
            ("q4_0-reordered-v1", 1),
            ("q4_0-xe2-dpas-v2", 2),
        ]
    );
    for layout in Layout::ALL {
        assert_eq!(Layout::from_id(layout.id()), Some(layout));
        assert!(!layout.summary().is_empty() && !layout.order().is_empty());
        for parameter in layout.parameters() {
            assert!(
                parameter
                    .default
                    .is_none_or(|value| (parameter.min..=parameter.max).contains(&value))
            );
        }
    }
    assert_eq!(Layout::from_id("q4_0-xe2-dpas-v3"), None);
}

#[test]
fn parameters_are_completed_as_pack_keys_want_them() {
    let joint = admit(Layout::Q4_0JointN, "Q4_0", &[32, 16], &[]);
    assert_eq!(*joint.parameters(), parameters(&[("n_tile", 8)]));
    let sizes = |kd, nd, kpad, t| parameters(&[("kd", kd), ("nd", nd), ("kpad", kpad), ("t", t)]);
    for (layout, given, complete) in [
        (Layout::Int8TileRm, &[][..], sizes(96, 50, 96, 50)),
        (Layout::Int8TileB8, &[], sizes(128, 128, 96, 50)),
        (
            Layout::Int8TileB8,
            &[("kpad", 129)],
            sizes(192, 128, 129, 50),
        ),
        (Layout::Int8TileB8, &[("t", 129)], sizes(128, 256, 96, 129)),
        (
            Layout::Int8TileRm,
            &[("t", 7), ("kd", 100)],
            sizes(100, 7, 96, 7),
        ),
        (Layout::Int8TileRm, &[("nd", 64)], sizes(96, 64, 96, 50)),
    ] {
        let tiles = admit(layout, "Q4_0", &[96, 50], given);
        assert_eq!(*tiles.parameters(), complete, "{layout:?} {given:?}");
    }
    let repacked = admit(Layout::GgmlCpuRepack, "Q8_0", &[32, 24], &[]);
    assert_eq!(*repacked.parameters(), parameters(&[("unit_rows", 8)]));
    let same = admit(
        Layout::GgmlCpuRepack,
        "Q8_0",
        &[32, 24],
        &[("unit_rows", 8)],
    );
    assert_eq!(same, repacked);
}

#[test]
fn dims_are_canonical_and_the_identity_is_that_of_the_pack_key() {
    let admitted = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, 16, 1, 1], &[]);
    assert_eq!(admitted.dims(), [32, 16]);
    let fingerprint = Fingerprint(Digest::of(b"f"));
    let source = TensorDigest(Digest::of(b"s"));
    let identity = admitted.identity(fingerprint, source);
    assert_eq!(identity.layout, "q4_0-xe2-dpas-v2");
    assert_eq!(
        (identity.layout_version, identity.type_id, &*identity.dims),
        (2, 2, &[32, 16][..])
    );
    assert!(identity.parameters.is_empty());
}

#[test]
fn a_type_that_only_an_engine_packs_is_an_answer() {
    let admitted = admit(Layout::GgmlCpuRepack, "Q6_K", &[256, 16], &[]);
    let none = pack_scalar(&admitted, &[], &mut []);
    assert_eq!(
        none,
        Err(NoJudge {
            layout: "ggml-cpu-repack",
            name: "Q6_K"
        })
    );
}

/// A size beyond 64 bits is told as one, not as a row that is no whole number of blocks.
#[test]
fn sizes_beyond_64_bits_are_told_by_every_layout() {
    let wide = 1 << 63;
    for (layout, dims) in [
        (Layout::GgmlCpuRepack, vec![32, wide]),
        (Layout::GgmlCpuRepack, vec![32, 16, u64::MAX]),
        (Layout::GgmlCpuRepack, vec![wide, 16]),
        (Layout::Identity, vec![32, wide]),
        (Layout::Int8TileB8, vec![32, wide]),
        (Layout::Int8TileRm, vec![32, wide]),
        (Layout::Int8TileRm, vec![wide, wide]),
        (Layout::Q4_0JointN, vec![32, wide]),
        (Layout::Q4_0Reordered, vec![32, wide]),
        (Layout::Q4_0Xe2DpasV2, vec![32, wide]),
    ] {
        let refusal = try_admit(layout, "Q4_0", &dims, &[]).expect_err("because it is too large");
        let said = format!("the sizes of a tensor of dims {dims:?} do not fit 64 bits");
        assert_eq!(refusal.to_string(), said, "{layout:?}");
    }
}

/// A tensor without elements may have as many rows as 64 bits count.
#[test]
fn the_last_group_of_rows_without_bytes_ends_with_them() {
    let admitted = admit(Layout::Identity, "F32", &[0, u64::MAX], &[]);
    let last = admitted.group_count() - 1;
    assert_eq!(admitted.group_rows(last).end, u64::MAX);
    assert_eq!(admitted.group_source(last), 0..0);
    assert_eq!(admitted.source_bytes(), 0);
}

#[test]
fn a_parameter_of_the_callers_can_not_move_the_cursor() {
    let refusal = try_admit(Layout::Identity, "F32", &[4], &[("\u{1b}[2J\n", 1)]);
    let said = refusal.expect_err("because it is unknown").to_string();
    assert_eq!(said, "identity-v1 has no parameter \\u{1b}[2J\\u{a}");
}
