//! Heads in int8 tiles: the judge against the rules once more, tile by tile against images, and
//! what the golden heads notice.

use crate::{admit, length, pack, random, ty, unpack};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::dequant::{dequantise, has_values};
use packhouse_layout::int8_tile::{
    GoldenHead, TileGeometry, TileOrder, golden_head, pack_tile, quantise_column,
};
use packhouse_layout::{
    Admitted, Layout, NoUnpack, NotInvertible, first_impossible, unpack_scalar,
};
use std::collections::BTreeSet;

const ORDERS: [TileOrder; 2] = [TileOrder::RowMajor, TileOrder::Blocked];

/// Sizes on every edge: the defaults, columns 1, fewer than 8 and ragged, H below kpad and kd.
const SIZES: [&[(&str, u64)]; 6] = [
    &[],
    &[("t", 1)],
    &[("t", 7)],
    &[("kd", 320), ("nd", 256), ("kpad", 300), ("t", 8)],
    &[("kd", 384), ("nd", 128), ("kpad", 384), ("t", 128)],
    &[("kd", 1088), ("nd", 384), ("kpad", 1025), ("t", 5)],
];

/// How a quantiser may differ from the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Right,
    InverseOfScale,
    HalvesToEven,
    HalvesUp,
    Truncates,
    InfinityCounts,
    NotFiniteIsLargest,
    SmallestNeverCounts,
    SmallestCountsFromAbove,
    PaddingScaleZero,
    PaddingRowsUnwritten,
    ScalesFirst,
    BlocksAcrossFirst,
    MicrotilesTurned,
}

impl Rule {
    const WRONG: [Self; 13] = [
        Self::InverseOfScale,
        Self::HalvesToEven,
        Self::HalvesUp,
        Self::Truncates,
        Self::InfinityCounts,
        Self::NotFiniteIsLargest,
        Self::SmallestNeverCounts,
        Self::SmallestCountsFromAbove,
        Self::PaddingScaleZero,
        Self::PaddingRowsUnwritten,
        Self::ScalesFirst,
        Self::BlocksAcrossFirst,
        Self::MicrotilesTurned,
    ];
}

/// One column by the rules, said in other words than the judge's.
fn restated_column(values: &[f32], rule: Rule) -> (Vec<i8>, f32) {
    let mut amax = 0.0f32;
    for value in values {
        let counts = value.is_finite() || rule == Rule::InfinityCounts && value.is_infinite();
        if counts && value.abs() > amax {
            amax = value.abs();
        }
    }
    let counts_as_none = match rule {
        Rule::SmallestNeverCounts => amax == 0.0,
        Rule::SmallestCountsFromAbove => amax <= 1e-12,
        _ => amax < 1e-12,
    };
    if counts_as_none {
        amax = 1.0;
    }
    let scale = amax / 127.0;
    let inverse = match rule {
        Rule::InverseOfScale => 1.0 / scale,
        _ => 127.0 / amax,
    };
    let code = |value: &f32| {
        let value = match (value.is_finite(), rule) {
            (true, _) => *value,
            (false, Rule::NotFiniteIsLargest) => amax,
            (false, _) => 0.0,
        };
        let x = f64::from(value * inverse);
        let nearest = match rule {
            Rule::HalvesToEven => x.round_ties_even(),
            Rule::HalvesUp => (x + 0.5).floor(),
            Rule::Truncates => x.trunc(),
            // A half more away from zero is exact in f64.
            _ => (x.abs() + 0.5).floor() * if x < 0.0 { -1.0 } else { 1.0 },
        };
        nearest.clamp(-127.0, 127.0) as i8
    };
    (values.iter().map(code).collect(), scale)
}

/// Section 8's formula, as the page has it.
fn place(geometry: &TileGeometry, i: u64, j: u64, rule: Rule) -> u64 {
    let (kd, nd) = (geometry.kd(), geometry.nd());
    match geometry.order() {
        TileOrder::RowMajor => i * nd + j,
        TileOrder::Blocked => {
            let block = match rule {
                Rule::BlocksAcrossFirst => i / 64 * (nd / 128) + j / 128,
                _ => j / 128 * (kd / 64) + i / 64,
            };
            let inside = match rule {
                Rule::MicrotilesTurned => j % 8 * 8 + i % 8,
                _ => i % 8 * 8 + j % 8,
            };
            block * 8192 + i % 64 / 8 * 1024 + j % 128 / 8 * 64 + inside
        }
    }
}

/// A whole head by the rules; `columns` have `width` values each.
fn restated(geometry: &TileGeometry, columns: &[Vec<f32>], rule: Rule) -> Vec<u8> {
    let mut payload = Vec::new();
    for tile in columns.chunks(length(geometry.t())) {
        let mut codes = vec![0_i8; length(geometry.code_bytes())];
        let padding = match rule {
            Rule::PaddingScaleZero => 0.0,
            _ => 1.0 / 127.0,
        };
        let mut scales = vec![padding; length(geometry.nd())];
        if rule == Rule::PaddingRowsUnwritten {
            codes.fill(-91);
        }
        for (j, values) in tile.iter().enumerate() {
            let mut values = values.clone();
            values.resize(length(geometry.kpad()), 0.0);
            let (of_column, scale) = restated_column(&values, rule);
            scales[j] = scale;
            for (i, code) in of_column.into_iter().enumerate() {
                codes[length(place(geometry, i as u64, j as u64, rule))] = code;
            }
        }
        let codes = codes.into_iter().map(|code| code.to_le_bytes()[0]);
        let scales = scales.into_iter().flat_map(f32::to_le_bytes);
        if rule == Rule::ScalesFirst {
            payload.extend(scales.chain(codes));
        } else {
            payload.extend(codes.chain(scales));
        }
    }
    payload
}

fn geometry(admitted: &Admitted) -> TileGeometry {
    let geometry = admitted.tile_geometry();
    geometry.expect("because the layout is one of tiles")
}

/// The values of each row.
fn columns(admitted: &Admitted, source: &[u8]) -> Vec<Vec<f32>> {
    let row_bytes = length(admitted.geometry().row_bytes);
    let rows = source.chunks_exact(row_bytes).map(|row| {
        let mut values = vec![0.0; length(admitted.dims()[0])];
        dequantise(admitted.ty(), row, &mut values).expect("because the type has values");
        values
    });
    rows.collect()
}

#[test]
fn the_judge_packs_every_type_in_every_geometry_by_the_rules() {
    let mut types = 0;
    for ty in GgmlType::all().iter().filter(|ty| has_values(**ty)) {
        types += 1;
        let width = ty.block_elements() * if ty.block_elements() < 100 { 3 } else { 1 };
        for (turn, sizes) in SIZES.into_iter().enumerate() {
            for order in ORDERS {
                let vocabulary = [17, 3, 30, 9, 130, 1][turn];
                let head = admit(order.layout(), ty.name(), &[width, vocabulary], sizes);
                let source = random(head.source_bytes(), 40 + turn as u64);
                let values = columns(&head, &source);
                let expected = restated(&geometry(&head), &values, Rule::Right);
                assert!(pack(&head, &source) == expected, "{head:?}");
                assert_eq!(first_impossible(&head, &expected), None, "{head:?}");
            }
        }
    }
    assert!(types >= 28, "{types} types have values");
}

/// A tile of a head's payload is the payload of its image.
#[test]
fn a_head_is_its_tiles_one_after_the_other() {
    for order in ORDERS {
        let sizes = [("kd", 192), ("nd", 256), ("kpad", 130), ("t", 131)];
        let head = admit(order.layout(), "BF16", &[129, 300], &sizes);
        let source = random(head.source_bytes(), 3);
        let payload = pack(&head, &source);
        let geometry = geometry(&head);
        assert_eq!(geometry.tile_count(300), 3);
        assert_eq!(geometry.tile_columns(300, 2), 262..300);
        let values = columns(&head, &source);
        let tiles = payload.chunks_exact(length(geometry.payload_bytes()));
        assert_eq!(tiles.len(), 3);
        for (tile, expected) in (0..).zip(tiles) {
            let columns = geometry.tile_columns(300, tile);
            let of_tile = &values[length(columns.start)..length(columns.end)];
            let padded = of_tile
                .iter()
                .flat_map(|column| [&column[..], &[0.0]].concat());
            let mut codes = vec![99; length(geometry.code_bytes())];
            let mut scales = vec![9.0; length(geometry.nd())];
            let padded: Vec<f32> = padded.collect();
            pack_tile(&geometry, &padded, &mut codes, &mut scales);
            let codes = codes.iter().flat_map(|code| code.to_le_bytes());
            let scales = scales.iter().flat_map(|scale| scale.to_le_bytes());
            assert!(
                codes.chain(scales).eq(expected.iter().copied()),
                "tile {tile}"
            );
        }
    }
}

#[test]
fn nothing_gives_a_rounded_head_back() {
    for order in ORDERS {
        let layout = order.layout();
        assert!(!layout.is_invertible());
        let head = admit(layout, "F32", &[3, 2], &[]);
        let mut source = [0x77; 24];
        let payload = pack(&head, &[0; 24]);
        let error = unpack_scalar(&head, &payload, &mut source);
        let expected = NotInvertible {
            layout: layout.id(),
        };
        assert_eq!(error, Err(NoUnpack::Inverse(expected)));
        assert_eq!(source, [0x77; 24]);
    }
    // Those that have an inverse are asked as before.
    let plain = admit(Layout::Identity, "F32", &[3, 2], &[]);
    assert_eq!(unpack(&plain, &pack(&plain, &[5; 24])), [5; 24]);
}

fn golden_columns(golden: &GoldenHead) -> Vec<Vec<f32>> {
    let columns = golden.values.chunks_exact(length(golden.width));
    columns.map(<[f32]>::to_vec).collect()
}

#[test]
fn the_golden_head_has_room_everywhere_and_is_the_golden_weight() {
    for order in ORDERS {
        let golden = golden_head(order);
        let sizes = golden.geometry.sizes();
        assert!(golden.width < sizes.kpad && sizes.kpad < sizes.kd && sizes.t < sizes.nd);
        let tiles = golden.geometry.tile_count(golden.vocabulary);
        let last = golden.geometry.tile_columns(golden.vocabulary, tiles - 1);
        assert_eq!((tiles, last), (2, 150..187));
        let any = admit(order.layout(), "F32", &[7, 3], &[]);
        let weight = any.golden();
        assert_eq!(weight.admitted, golden.admitted);
        assert_eq!(weight.admitted.tile_geometry(), Some(golden.geometry));
        let bytes = golden.values.iter().flat_map(|value| value.to_le_bytes());
        assert!(bytes.eq(weight.source.iter().copied()));
        let restated = restated(&golden.geometry, &golden_columns(&golden), Rule::Right);
        assert!(
            pack(&weight.admitted, &weight.source) == restated,
            "{order:?}"
        );
    }
}

/// The geometry that is asked for is in the pack key; the fingerprint is of the packer alone.
#[test]
fn a_fingerprint_does_not_depend_on_the_geometry() {
    for order in ORDERS {
        for name in ["F32", "Q6_K"] {
            let fingerprints = SIZES.map(|sizes| {
                let head = admit(order.layout(), name, &[256, 3], sizes);
                let golden = head.golden();
                head.fingerprint(&pack(&golden.admitted, &golden.source))
            });
            let fingerprints: BTreeSet<_> = fingerprints.into_iter().collect();
            assert_eq!(fingerprints.len(), 1, "{order:?} {name}");
        }
    }
}

#[test]
fn each_wrong_rule_has_another_golden_payload() {
    for order in ORDERS {
        let golden = golden_head(order);
        let columns = golden_columns(&golden);
        let right = restated(&golden.geometry, &columns, Rule::Right);
        for rule in Rule::WRONG {
            let is_of_blocks = matches!(rule, Rule::BlocksAcrossFirst | Rule::MicrotilesTurned);
            let is_seen = order == TileOrder::Blocked || !is_of_blocks;
            let wrong = restated(&golden.geometry, &columns, rule);
            assert_eq!(wrong != right, is_seen, "{order:?} {rule:?}");
        }
    }
}

#[test]
fn the_golden_head_hits_every_rule() {
    let golden = golden_head(TileOrder::RowMajor);
    let columns = golden_columns(&golden);
    let bits: BTreeSet<u32> = golden.values.iter().map(|value| value.to_bits()).collect();
    let largest = f32::MAX.to_bits();
    for edge in [0, 0x8000_0000, 1, 0x8000_0001, 0x7f_ffff, 0x80_0000] {
        assert!(bits.contains(&edge), "{edge:#010x}");
    }
    for edge in [0x7fc0_0000, 0x7f80_0001, 0x7f80_0000, 0xff80_0000, largest] {
        assert!(bits.contains(&edge), "{edge:#010x}");
    }
    let amax = |column: &Vec<f32>| {
        let finite = column.iter().filter(|value| value.is_finite());
        finite.fold(0.0f32, |most, value| most.max(value.abs()))
    };
    let has = |what: &str, test: &dyn Fn(&Vec<f32>) -> bool| {
        // Both tiles have one, so that a ragged tile's columns are no others.
        let (full, ragged) = columns.split_at(150);
        assert!(full.iter().any(test) && ragged.iter().any(test), "{what}");
    };
    has("all zero", &|column| {
        column.iter().all(|value| *value == 0.0)
    });
    has("nothing finite", &|column| {
        column.iter().all(|value| !value.is_finite())
    });
    has("below 1e-12", &|column| {
        (f32::MIN_POSITIVE..1e-12).contains(&amax(column))
    });
    has("1e-12", &|column| amax(column) == 1e-12);
    has("subnormals", &|column| amax(column).is_subnormal());
    has("127 of both signs", &|column| {
        let codes = restated_column(column, Rule::Right).0;
        codes.contains(&127) && codes.contains(&-127)
    });
    has("exact halves of both signs", &|column| {
        let inverse = 127.0 / amax(column);
        let half = |value: &&f32| value.is_finite() && (**value * inverse).fract().abs() == 0.5;
        let halves = || column.iter().filter(half);
        halves().any(|value| *value > 0.0) && halves().any(|value| *value < 0.0)
    });
    has("two inverses differ", &|column| {
        restated_column(column, Rule::Right) != restated_column(column, Rule::InverseOfScale)
    });
}

/// No payload of the judge is called impossible, and each edit that no source explains is.
#[test]
fn what_no_head_packs_to_is_found_at_its_byte() {
    for order in ORDERS {
        let golden = golden_head(order);
        let columns = golden_columns(&golden);
        let right = restated(&golden.geometry, &columns, Rule::Right);
        assert_eq!(first_impossible(&golden.admitted, &right), None);
        let geometry = golden.geometry;
        let codes = length(geometry.code_bytes());
        let tile = length(geometry.payload_bytes());
        let place = |i, j| length(geometry.position(i, j));
        let largest_of_first = |payload: &[u8]| {
            let codes = (0..77).filter(|i| [127, 129].contains(&payload[place(*i, 0)]));
            codes.collect::<Vec<_>>()
        };
        let [only] = largest_of_first(&right)[..] else {
            panic!("the first column has one largest value");
        };
        let scale = |j: u64| codes + 4 * length(j);
        let edits = [
            ("a code -128", place(5, 3), 0x80, place(5, 3)),
            ("a row below kpad", place(83, 0), 1, place(83, 0)),
            ("a column beside t", place(0, 150), 1, place(0, 150)),
            (
                "a column beside the last",
                tile + place(0, 37),
                1,
                tile + place(0, 37),
            ),
            ("no largest code", place(only, 0), 126, scale(0)),
            ("a scale beside t", scale(150), 5, scale(150)),
            (
                "a scale beside the last",
                tile + scale(37) + 1,
                9,
                tile + scale(37),
            ),
            // Column 7 is all zeros.
            ("a scale of zeros", scale(7), 5, scale(7)),
            (
                "a negative scale",
                scale(0) + 3,
                right[scale(0) + 3] | 0x80,
                scale(0),
            ),
            ("an infinite scale", scale(0) + 3, 0x7f, scale(0)),
        ];
        for (what, at, byte, found) in edits {
            let mut edited = right.clone();
            assert_ne!(edited[at], byte, "{what}");
            edited[at] = byte;
            if what == "an infinite scale" {
                edited[at - 3..at].copy_from_slice(&[0, 0, 0x80]);
            }
            let first = first_impossible(&golden.admitted, &edited);
            assert_eq!(first, Some(found as u64), "{order:?} {what}");
        }
    }
    let plain = admit(Layout::Identity, "F32", &[3, 2], &[]);
    assert_eq!(first_impossible(&plain, &[0x80; 24]), None);
}

/// Published figures of the rules.
#[test]
fn single_columns_have_the_codes_and_scales_that_the_page_says() {
    let quantised = |values: &[f32]| {
        let mut codes = vec![0; values.len()];
        let scale = quantise_column(values, &mut codes);
        (codes, scale.to_bits())
    };
    let padding = 0x3c01_0204;
    assert_eq!(f32::from_bits(padding), 0.007_874_016);
    assert_eq!(quantised(&[]), (vec![], padding));
    assert_eq!(quantised(&[0.0, -0.0]), (vec![0, 0], padding));
    let not = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(quantised(&not), (vec![0; 3], padding));
    let halves = [127.0, 0.5, -0.5, 1.5, -1.5, 126.5, -126.5, 0.499_999_97];
    let codes = vec![127, 1, -1, 2, -2, 127, -127, 0];
    assert_eq!(quantised(&halves), (codes, 1.0_f32.to_bits()));
    let tiny = [9.999_999e-13, -9.999_999e-13];
    assert_eq!(quantised(&tiny), (vec![0, 0], padding));
    let first = (1e-12_f32 / 127.0).to_bits();
    assert_eq!(quantised(&[1e-12, -5e-13]), (vec![127, -64], first));
    let huge = (f32::MAX / 127.0).to_bits();
    assert_eq!(
        quantised(&[f32::MAX, f32::MIN, 1.0]),
        (vec![127, -127, 0], huge)
    );
    assert_eq!(ty("F32").block_bytes(), 4);
}
