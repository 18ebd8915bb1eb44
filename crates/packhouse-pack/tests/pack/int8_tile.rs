//! Int8 tiles at every level against the judge: on every edge of blocks, lines and strips, on
//! targets that begin anywhere, on one to five threads, with all bytes equal and none beside them
//! touched.

use crate::int8_values::values;
use crate::{length, levels};
use packhouse_layout::int8_tile::{
    GoldenHead, TileGeometry, TileOrder, TileSizes, golden_head, pack_tile,
};
use packhouse_pack::int8_tile::Gather;
use packhouse_pack::{IsaLevel, Packers, TILE_KERNELS};
use proptest::prelude::*;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Codes before and after a target that must stay as they are.
const MARGIN: usize = 192;

/// The vocabulary row of a tile's first column.
const FIRST: u64 = 1000;

/// A tile with the columns that it is given, and what the judge makes of them.
struct Case {
    geometry: TileGeometry,
    values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sum: f64,
}

/// How a tile is packed.
#[derive(Clone, Copy, Debug)]
struct Way {
    threads: usize,
    is_serial: bool,
    poison: Poison,
}

/// What lies in a target before it is packed into, and where it begins in its cache line.
#[derive(Clone, Copy, Debug)]
struct Poison {
    code: i8,
    scale: u32,
    offset: usize,
}

const POISONS: [Poison; 4] = [
    Poison {
        code: 0x55,
        scale: 0x7fc0_0001,
        offset: 0,
    },
    Poison {
        code: -1,
        scale: 0x1234_5678,
        offset: 16,
    },
    Poison {
        code: 0,
        scale: 0,
        offset: 0,
    },
    Poison {
        code: -128,
        scale: 0xffff_ffff,
        offset: 1,
    },
];

impl Case {
    fn new(order: TileOrder, sizes: TileSizes, count: u64, seed: u64) -> Self {
        let geometry = TileGeometry::new(order, sizes).expect("because the test's sizes fit");
        let values = values(seed, sizes.kpad, count);
        let mut codes = vec![0x55; length(geometry.code_bytes())];
        let mut scales = vec![f32::NAN; length(geometry.nd())];
        let sum = pack_tile(&geometry, &values, &mut codes, &mut scales);
        Self {
            geometry,
            values,
            codes,
            scales,
            sum,
        }
    }

    fn column(&self, index: u64) -> &[f32] {
        let depth = length(self.geometry.kpad());
        &self.values[length(index) * depth..][..depth]
    }

    fn column_count(&self) -> u64 {
        self.values.len() as u64 / self.geometry.kpad()
    }

    /// Packs the tile in one way and compares every byte; each column is asked for once.
    fn pack(&self, packers: &Packers, way: Way) {
        let (level, columns) = (packers.level().name(), self.column_count());
        let name = format!("{:?}, {columns} columns, {level}, {way:?}", self.geometry);
        let asked: Vec<_> = (0..columns).map(|_| AtomicU64::new(0)).collect();
        let fill = |column: u64, target: &mut [f32]| {
            asked[length(column - FIRST)].fetch_add(1, Ordering::Relaxed);
            assert!(target.iter().all(|value| value.to_bits() == 0), "{name}");
            target.copy_from_slice(self.column(column - FIRST));
            Ok::<(), Infallible>(())
        };
        let mut serial = fill;
        let gather = match way.is_serial {
            true => Gather::Serial(&mut serial),
            false => Gather::Parallel(&fill),
        };
        self.assert_packed(&name, way.poison, |codes, scales| {
            let threads = NonZeroUsize::new(way.threads).expect("because it begins at 1");
            let columns = FIRST..FIRST + columns;
            let packed = packers.pack_tile(&self.geometry, columns, gather, codes, scales, threads);
            let Ok(sum) = packed;
            sum
        });
        let is_once = |asked: &AtomicU64| asked.load(Ordering::Relaxed) == 1;
        assert!(asked.iter().all(is_once), "{name}: {asked:?}");
    }

    /// Lets `pack` write to a poisoned target and compares every byte of it.
    fn assert_packed(
        &self,
        name: &str,
        poison: Poison,
        pack: impl FnOnce(&mut [i8], &mut [f32]) -> f64,
    ) {
        let mut buffer = vec![poison.code; self.codes.len() + 2 * MARGIN];
        let start = buffer.as_ptr().align_offset(64) + 64 + poison.offset;
        let end = start + self.codes.len();
        let mut scales = vec![f32::from_bits(poison.scale); self.scales.len() + 2];
        let scales_end = 1 + self.scales.len();
        let sum = pack(&mut buffer[start..end], &mut scales[1..scales_end]);
        let codes = buffer[start..end].iter().zip(&self.codes);
        let differs = codes.enumerate().find(|(_, (code, right))| code != right);
        assert_eq!(differs, None, "{name}: first wrong code");
        let pairs = scales[1..scales_end].iter().zip(&self.scales);
        let mut pairs = pairs.map(|(scale, right)| (scale.to_bits(), right.to_bits()));
        let differs = pairs.position(|(scale, right)| scale != right);
        assert_eq!(differs, None, "{name}: first wrong scale");
        assert_eq!(sum.to_bits(), self.sum.to_bits(), "{name}: sum");
        let mut beside = buffer[..start].iter().chain(&buffer[end..]);
        let is_poison = beside.all(|code| *code == poison.code);
        assert!(is_poison, "{name}: a code beside the tile");
        for scale in [scales[0], scales[scales_end]] {
            let is_poison = scale.to_bits() == poison.scale;
            assert!(is_poison, "{name}: a scale beside the tile");
        }
    }
}

/// Depths and columns on the edges of microtiles, vectors, chunks, lines, blocks and bands, each
/// with padding on no, one and two sides, and with rows that all begin alike in their lines.
fn edges() -> Vec<(TileOrder, TileSizes, u64)> {
    let mut all = Vec::new();
    for kpad in [1, 7, 8, 15, 16, 17, 63, 64, 65] {
        for count in [0, 1, 7, 8, 9, 127, 128, 129] {
            for (kd, nd, t) in [
                (kpad, count.max(1), count.max(1)),
                (kpad + 3, count + 9, count + 5),
                (kpad, 320, 200),
            ] {
                let sizes = TileSizes { kd, nd, kpad, t };
                all.push((TileOrder::RowMajor, sizes, count));
            }
            for (below, nd) in [(0, 256), (128, 384)] {
                let (kd, t) = ((kpad + below).next_multiple_of(64), 200);
                let sizes = TileSizes { kd, nd, kpad, t };
                all.push((TileOrder::Blocked, sizes, count));
            }
        }
    }
    all
}

#[test]
fn every_level_makes_the_judges_tile_on_every_edge() {
    let levels = levels();
    for (turn, (order, sizes, count)) in edges().into_iter().enumerate() {
        let case = Case::new(order, sizes, count, turn as u64);
        for packers in &levels {
            for threads in 1..=5 {
                for is_serial in [false, true] {
                    let poison = POISONS[(turn + threads + usize::from(is_serial)) % 4];
                    let way = Way {
                        threads,
                        is_serial,
                        poison,
                    };
                    case.pack(packers, way);
                }
            }
        }
    }
}

/// Large enough to be written past the caches, of more strips than there are threads, with padding
/// of more than one piece on both sides.
#[test]
fn tiles_larger_than_the_caches_have_the_same_bytes() {
    for (order, kd, nd, kpad) in [
        (TileOrder::RowMajor, 320, 8192, 257),
        (TileOrder::RowMajor, 257, 9001, 257),
        (TileOrder::Blocked, 320, 8192, 257),
        (TileOrder::RowMajor, 4_000_000, 1, 70_001),
    ] {
        let (t, count) = (nd - nd / 10, nd.min(1930));
        let case = Case::new(
            order,
            TileSizes {
                kd,
                nd,
                kpad,
                t: t.max(1),
            },
            count,
            nd,
        );
        for packers in levels() {
            for (turn, poison) in POISONS.into_iter().enumerate() {
                let way = |threads, is_serial| Way {
                    threads,
                    is_serial,
                    poison,
                };
                case.pack(&packers, way(1 + turn, false));
                case.pack(&packers, way(4 - turn, true));
            }
        }
    }
}

#[test]
#[should_panic(expected = "first wrong code")]
fn a_packer_that_leaves_a_code_as_it_was_would_be_noticed() {
    leave(|codes, case| codes[..71].copy_from_slice(&case.codes[..71]));
}

#[test]
#[should_panic(expected = "first wrong scale")]
fn a_packer_that_leaves_the_scales_of_padding_as_they_were_would_be_noticed() {
    leave(|codes, case| codes.copy_from_slice(&case.codes));
}

fn leave(copy: impl Fn(&mut [i8], &Case)) {
    let sizes = TileSizes {
        kd: 8,
        nd: 9,
        kpad: 7,
        t: 8,
    };
    let case = Case::new(TileOrder::RowMajor, sizes, 6, 0);
    for poison in POISONS {
        case.assert_packed("canary", poison, |codes, scales| {
            copy(codes, &case);
            scales[..6].copy_from_slice(&case.scales[..6]);
            case.sum
        });
    }
}

#[test]
fn a_column_alone_is_what_it_is_in_its_tile() {
    for (order, kd) in [(TileOrder::RowMajor, 200), (TileOrder::Blocked, 256)] {
        let sizes = TileSizes {
            kd,
            nd: 256,
            kpad: 199,
            t: 250,
        };
        let case = Case::new(order, sizes, 249, 77);
        for packers in levels() {
            for column in 0..case.column_count() {
                let mut codes = vec![0x55; 199];
                let scale = packers.pack_column(case.column(column), &mut codes);
                let right = case.scales[length(column)];
                assert_eq!(scale.to_bits(), right.to_bits(), "{order:?} {column}");
                let places = (0u64..).map(|i| length(case.geometry.position(i, column)));
                let mut pairs = codes.iter().zip(places);
                let is_equal = pairs.all(|(code, place)| *code == case.codes[place]);
                assert!(is_equal, "{order:?} column {column}");
            }
        }
    }
}

#[test]
fn the_fingerprint_is_that_of_the_heads_layout_at_every_level() {
    for order in [TileOrder::RowMajor, TileOrder::Blocked] {
        let golden = golden_head(order);
        let right = Ok(golden.admitted.fingerprint(&judged(&golden)));
        for packers in levels() {
            let of_layout = packers.fingerprint(&golden.admitted);
            // Whatever way of packing tiles is wrong, the fingerprint is not the judge's.
            assert_eq!(of_layout, right, "{order:?} {}", packers.level().name());
            for _ in 0..2 {
                assert_eq!(Ok(packers.tile_fingerprint(order)), of_layout, "{order:?}");
            }
        }
    }
    let fingerprint = |order| Packers::detect().tile_fingerprint(order);
    assert_ne!(
        fingerprint(TileOrder::RowMajor),
        fingerprint(TileOrder::Blocked)
    );
}

/// The payload of a golden head, by the judge.
fn judged(golden: &GoldenHead) -> Vec<u8> {
    let geometry = &golden.geometry;
    let (width, depth) = (length(golden.width), length(geometry.kpad()));
    let mut payload = Vec::new();
    for tile in 0..geometry.tile_count(golden.vocabulary) {
        let columns = geometry.tile_columns(golden.vocabulary, tile);
        let columns = &golden.values[length(columns.start) * width..length(columns.end) * width];
        let mut values = vec![0.0; columns.len() / width * depth];
        for (whole, column) in values.chunks_mut(depth).zip(columns.chunks(width)) {
            whole[..width].copy_from_slice(column);
        }
        let mut codes = vec![0; length(geometry.code_bytes())];
        let mut scales = vec![0.0; length(geometry.nd())];
        pack_tile(geometry, &values, &mut codes, &mut scales);
        payload.extend(codes.iter().map(|code| code.cast_unsigned()));
        payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
    }
    payload
}

#[test]
fn each_level_has_kernels_of_its_own() {
    let all: Vec<_> = TILE_KERNELS.iter().map(|code| code.level()).collect();
    let expected: &[IsaLevel] = if cfg!(target_arch = "x86_64") {
        &IsaLevel::ALL
    } else {
        &[IsaLevel::Scalar]
    };
    assert_eq!(all, expected);
    for packers in levels() {
        assert_eq!(packers.tile_level(), packers.level());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_tile_at_any_address_on_any_threads(
        is_blocked in any::<bool>(),
        (kpad, below) in (1u64..300, 0u64..70),
        (count, beside) in (0u64..600, (0u64..200, 0u64..200)),
        seed in any::<u64>(),
        (threads, is_serial, offset) in (1usize..9, any::<bool>(), 0usize..64),
    ) {
        let t = (count + beside.0).max(1);
        let (order, kd, nd) = if is_blocked {
            let whole = |size: u64, multiple: u64| size.next_multiple_of(multiple);
            (TileOrder::Blocked, whole(kpad + below, 64), whole(t + beside.1, 128))
        } else {
            (TileOrder::RowMajor, kpad + below, t + beside.1)
        };
        let case = Case::new(order, TileSizes { kd, nd, kpad, t }, count, seed);
        let poison = Poison { offset, ..POISONS[(seed % 4) as usize] };
        for packers in levels() {
            case.pack(&packers, Way { threads, is_serial, poison });
        }
    }
}
