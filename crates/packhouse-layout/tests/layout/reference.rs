//! What the reference lab's layouts are, stated a second time: places of single values, the source
//! of its packer's own test, and the byte form of its rules. The mutants are mistakes that packers
//! of these layouts have made or could make; each must disagree.

use crate::mersenne::Mersenne;
use crate::{admit, length, pack, random, unpack};
use packhouse_base::digest::Digest;
use packhouse_layout::{Admitted, Layout};
use packhouse_layout::{q4_0_reordered_v1 as reordered, q4_0_xe2_dpas_v2 as xe2};

/// (columns, rows, row, column, byte, whether the high half).
const NIBBLES: [(u64, u64, u64, u64, u64, bool); 10] = [
    (5120, 17408, 0, 0, 0, false),
    (5120, 17408, 0, 1, 0, true),
    (5120, 17408, 0, 8, 64, false),
    (5120, 17408, 1, 0, 4, false),
    (5120, 17408, 15, 31, 255, true),
    (5120, 17408, 16, 0, 256, false),
    (5120, 17408, 0, 32, 278_528, false),
    (5120, 17408, 1234, 777, 6_704_456, true),
    (17408, 5120, 0, 32, 81_920, false),
    (17408, 5120, 1234, 777, 1_985_864, true),
];

/// (columns, rows, row, block, byte).
const SCALES: [(u64, u64, u64, u64, u64); 5] = [
    (5120, 17408, 0, 0, 44_564_480),
    (5120, 17408, 1, 0, 44_564_482),
    (5120, 17408, 0, 1, 44_599_296),
    (5120, 17408, 17407, 159, 50_135_038),
    (17408, 5120, 0, 1, 44_574_720),
];

#[test]
fn xe2_values_lie_where_the_reference_says() {
    for (columns, rows, row, column, byte, is_high) in NIBBLES {
        let index = xe2::nibble_index(rows, row, column);
        let place = (index / 2, index % 2 == 1);
        assert_eq!(
            place,
            (byte, is_high),
            "({row}, {column}) of {columns}x{rows}"
        );
    }
    for (columns, rows, row, block, byte) in SCALES {
        let offset = xe2::scale_offset(columns, rows, row, block);
        assert_eq!(offset, byte, "({row}, {block}) of {columns}x{rows}");
    }
}

#[test]
fn the_feed_forward_matrices_have_the_reference_sizes() {
    for dims in [[5120, 17408], [17408, 5120]] {
        let admitted = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &dims, &[]);
        assert_eq!(admitted.source_bytes(), 50_135_040);
        assert_eq!(admitted.payload_bytes(), 50_135_040);
        let split = admitted.split();
        let regions = split.step_bytes.map(|bytes| bytes * split.step_count);
        assert_eq!(regions, [44_564_480, 5_570_560]);
    }
}

#[test]
fn the_joint_n_example_has_the_reference_size() {
    let admitted = admit(Layout::Q4_0JointN, "Q4_0", &[64, 5], &[("n_tile", 4)]);
    assert_eq!(
        (admitted.source_bytes(), admitted.payload_bytes()),
        (180, 288)
    );
}

/// The source of the reference packer's own test: 16 rows of one block.
pub(crate) fn self_test_source() -> Vec<u8> {
    let mut mersenne = Mersenne::new(2928);
    let mut source = Vec::new();
    for row in 0..16 {
        source.extend([row, 255 - row]);
        source.extend((0..16).map(|_| mersenne.byte()));
    }
    source
}

#[test]
fn the_self_test_source_is_the_references() {
    assert_eq!(
        Digest::of(&self_test_source()).to_string(),
        "03adbf437829aaa3e6557388c46fc973b1424c368d5cf9ccd79b62ed4a0a90c5"
    );
}

/// How the byte form of the Xe2 layout may go wrong.
#[derive(Clone, Copy, Default)]
struct Xe2Mistake {
    /// Nibbles stay unsigned.
    keeps_sign: bool,
    /// Groups 1 and 2 change places.
    swaps_groups: bool,
    /// A byte's two columns change places.
    swaps_halves: bool,
    /// Scales go to the next row.
    scale_row: u64,
    /// Scales go row by row, not block by block.
    scales_by_row: bool,
    /// Scales go through a float that quiets NaN.
    converts_scales: bool,
}

/// The byte form: output byte q of dword (b, t, g, l) takes its low nibble from source byte
/// `8 (g mod 2) + 2 q` of block (16 t + l, b) and its high nibble from the next one, from their low
/// halves for g = 0, 1 and their high halves for g = 2, 3; the byte is then XORed with 0x88.
fn xe2_by_bytes(admitted: &Admitted, source: &[u8], mistake: Xe2Mistake) -> Vec<u8> {
    let (columns, rows) = (admitted.dims()[0], admitted.dims()[1]);
    let (blocks, tiles) = (columns / 32, rows / 16);
    let mut payload = vec![0; length(admitted.payload_bytes())];
    for (b, t) in (0..blocks).flat_map(|b| (0..tiles).map(move |t| (b, t))) {
        for (g, l) in (0..4_u64).flat_map(|g| (0..16_u64).map(move |l| (g, l))) {
            let block = &source[length(((16 * t + l) * blocks + b) * 18)..][..18];
            let from = match g {
                1 | 2 if mistake.swaps_groups => 3 - g,
                _ => g,
            };
            for q in 0..4 {
                let mut pair = [0, 1].map(|high: u64| {
                    let byte = block[length(2 + 8 * (from % 2) + 2 * q + high)];
                    byte >> (from / 2 * 4) & 15
                });
                if mistake.swaps_halves {
                    pair.reverse();
                }
                let sign = if mistake.keeps_sign { 0 } else { 0x88 };
                let dword = (b * tiles + t) * 64 + g * 16 + l;
                payload[length(dword * 4 + q)] = (pair[0] | pair[1] << 4) ^ sign;
            }
            if g == 0 {
                let row = (16 * t + l + mistake.scale_row) % rows;
                let index = if mistake.scales_by_row {
                    row * blocks + b
                } else {
                    b * rows + row
                };
                let at = length(columns * rows / 2 + 2 * index);
                payload[at..at + 2].copy_from_slice(&scale(block, mistake.converts_scales));
            }
        }
    }
    payload
}

/// A scale's two bytes; `quiets` is what a conversion to a wider float and back does to them.
fn scale(block: &[u8], quiets: bool) -> [u8; 2] {
    let bits = u16::from_le_bytes([block[0], block[1]]);
    let is_nan = bits & 0x7c00 == 0x7c00 && bits & 0x03ff != 0;
    let quiet = if quiets && is_nan { 0x0200 } else { 0 };
    (bits | quiet).to_le_bytes()
}

/// Tensors on which a mistake shows: the self-test, the golden weight, and several tiles.
fn xe2_cases() -> Vec<(Admitted, Vec<u8>)> {
    let one = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, 16], &[]);
    let golden = one.golden();
    let several = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[160, 48], &[]);
    let source = random(several.source_bytes(), 7);
    vec![
        (one, self_test_source()),
        (golden.admitted, golden.source),
        (several, source),
    ]
}

#[test]
fn the_xe2_judge_is_the_byte_form_of_its_rule() {
    for (admitted, source) in xe2_cases() {
        let payload = pack(&admitted, &source);
        let expected = xe2_by_bytes(&admitted, &source, Xe2Mistake::default());
        assert_eq!(payload, expected, "{:?}", admitted.dims());
        assert_eq!(unpack(&admitted, &payload), source, "{:?}", admitted.dims());
    }
}

#[test]
fn each_mistake_of_an_xe2_packer_shows_on_the_golden_weight() {
    let right = Xe2Mistake::default();
    let mistakes: [(&str, Xe2Mistake); 6] = [
        (
            "no XOR 8",
            Xe2Mistake {
                keeps_sign: true,
                ..right
            },
        ),
        (
            "groups swapped",
            Xe2Mistake {
                swaps_groups: true,
                ..right
            },
        ),
        (
            "halves swapped",
            Xe2Mistake {
                swaps_halves: true,
                ..right
            },
        ),
        (
            "scales one row off",
            Xe2Mistake {
                scale_row: 1,
                ..right
            },
        ),
        (
            "scales by row",
            Xe2Mistake {
                scales_by_row: true,
                ..right
            },
        ),
        (
            "scales converted",
            Xe2Mistake {
                converts_scales: true,
                ..right
            },
        ),
    ];
    let golden = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, 16], &[]).golden();
    let admitted = golden.admitted;
    let fingerprint = admitted.fingerprint(&pack(&admitted, &golden.source));
    for (name, mistake) in mistakes {
        let wrong = xe2_by_bytes(&admitted, &golden.source, mistake);
        assert_ne!(admitted.fingerprint(&wrong), fingerprint, "{name}");
    }
}

#[test]
fn the_joint_n_judge_is_its_tile_rule() {
    for (dims, tile) in [([64, 5], 4), ([96, 28], 8), ([32, 1], 8), ([160, 17], 16)] {
        let admitted = admit(Layout::Q4_0JointN, "Q4_0", &dims, &[("n_tile", tile)]);
        let source = random(admitted.source_bytes(), tile);
        let blocks = dims[0] / 32;
        let mut expected = Vec::new();
        for b in 0..blocks {
            for p in 0..dims[1].div_ceil(tile) {
                let byte = |lane: u64, byte: u64| {
                    let row = p * tile + lane;
                    let is_there = row < dims[1];
                    is_there.then(|| source[length((row * blocks + b) * 18 + byte)])
                };
                for lane in 0..tile {
                    expected.extend([0, 1].map(|half| byte(lane, half).unwrap_or(0)));
                }
                for y in 0..16 {
                    expected.extend((0..tile).map(|lane| byte(lane, 2 + y).unwrap_or(0)));
                }
            }
        }
        assert_eq!(
            pack(&admitted, &source),
            expected,
            "{dims:?} in tiles of {tile}"
        );
        assert_eq!(unpack(&admitted, &expected), source, "{dims:?}");
    }
}

#[test]
fn the_reordered_judge_is_quants_then_scales() {
    let admitted = admit(Layout::Q4_0Reordered, "Q4_0", &[96, 7], &[]);
    let source = random(admitted.source_bytes(), 3);
    let mut expected: Vec<u8> = Vec::new();
    for block in source.chunks_exact(18) {
        expected.extend(&block[2..]);
    }
    for block in source.chunks_exact(18) {
        expected.extend(&block[..2]);
    }
    assert_eq!(pack(&admitted, &source), expected);
    assert_eq!(unpack(&admitted, &expected), source);
    assert_eq!(reordered::quants_offset(96, 2, 1), 16 * 7);
    assert_eq!(reordered::scale_offset(96, 7, 2, 1), 16 * 21 + 2 * 7);
}

#[test]
fn the_identity_is_the_bytes_as_they_are() {
    for (name, dims) in [
        ("F32", vec![7]),
        ("Q6_K", vec![256, 3, 2]),
        ("BF16", vec![0, 4]),
    ] {
        let admitted = admit(Layout::Identity, name, &dims, &[]);
        let source = random(admitted.source_bytes(), 5);
        assert_eq!(pack(&admitted, &source), source, "{name}");
        assert_eq!(unpack(&admitted, &source), source, "{name}");
    }
}
