//! Int8 tiles at every level against the judge: on every edge of blocks, lines and strips, on
//! targets that begin anywhere, on one to five threads, with all bytes equal and none beside them
//! touched; and what a caller that fails or panics gets.

use crate::{length, levels};
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, pack_tile};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use std::convert::Infallible;
use std::num::NonZeroUsize;

/// Codes before and after a target that must stay as they are.
const MARGIN: usize = 192;

/// A tile with the columns that it is given, and what the judge makes of them.
struct Case {
    geometry: TileGeometry,
    values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sum: f64,
}

impl Case {
    fn new(order: TileOrder, sizes: TileSizes, values: Vec<f32>) -> Self {
        let geometry = TileGeometry::new(order, sizes).expect("because the test's sizes fit");
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

    /// Packs from a target poisoned in one way and compares every byte.
    fn compare(&self, packers: &Packers, (threads, is_serial): (usize, bool), poison: Poison) {
        let name = format!(
            "{:?} {} columns at {} on {threads} threads, serial {is_serial}, {poison:?}",
            self.geometry,
            self.column_count(),
            packers.level().name(),
        );
        let mut buffer = vec![poison.code; self.codes.len() + 2 * MARGIN];
        let start = buffer.as_ptr().align_offset(64) + 64 + poison.offset;
        let end = start + self.codes.len();
        let mut scales = vec![f32::from_bits(poison.scale); self.scales.len() + 2];
        let (scale_start, scale_end) = (1, 1 + self.scales.len());
        let first = 1000;
        let fill = |column: u64, target: &mut [f32]| {
            assert!(target.iter().all(|value| value.to_bits() == 0), "{name}");
            target.copy_from_slice(self.column(column - first));
            Ok::<(), Infallible>(())
        };
        let mut serial = fill;
        let gather = if is_serial {
            Gather::Serial(&mut serial)
        } else {
            Gather::Parallel(&fill)
        };
        let Ok(sum) = packers.pack_tile(
            &self.geometry,
            first..first + self.column_count(),
            gather,
            &mut buffer[start..end],
            &mut scales[scale_start..scale_end],
            NonZeroUsize::new(threads).expect("because it begins at 1"),
        );
        let bits = |scales: &[f32]| scales.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
        assert_eq!(
            bits(&scales[scale_start..scale_end]),
            bits(&self.scales),
            "{name}"
        );
        let differs = buffer[start..end]
            .iter()
            .zip(&self.codes)
            .position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: first wrong code");
        assert_eq!(sum.to_bits(), self.sum.to_bits(), "{name}");
        let mut beside = buffer[..start].iter().chain(&buffer[end..]);
        assert!(
            beside.all(|code| *code == poison.code),
            "{name}: a code beside the tile"
        );
        for scale in [scales[0], scales[scale_end]] {
            assert_eq!(
                scale.to_bits(),
                poison.scale,
                "{name}: a scale beside the tile"
            );
        }
    }
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

/// Values of all kinds by turns of columns.
fn values(seed: u64, depth: u64, count: u64) -> Vec<f32> {
    let mut stream = SplitMix64::new(seed);
    let mut values = Vec::new();
    for column in 0..count {
        for place in 0..depth {
            let draw = stream.next();
            let fraction = (draw >> 40) as f32 / (1 << 23) as f32 - 1.0;
            values.push(match column % 6 {
                0 => fraction,
                1 => f32::from_bits((draw >> 32) as u32),
                2 if place == 0 => 127.0,
                2 => (draw % 255) as f32 - 127.0 + if draw >> 32 & 1 == 1 { 0.5 } else { 0.0 },
                3 => fraction * 1e-12,
                4 if draw.is_multiple_of(7) => f32::NAN,
                4 => fraction * 3.0e38,
                _ => 0.0,
            });
        }
    }
    values
}

fn geometries() -> Vec<(TileOrder, TileSizes, u64)> {
    let mut all = Vec::new();
    for kpad in [1, 7, 8, 15, 16, 17, 63, 64, 65] {
        for count in [1, 7, 8, 9, 127, 128, 129] {
            for (below, beside) in [(0, 0), (3, 5)] {
                let (kd, t) = (kpad + below, count + beside);
                let sizes = TileSizes {
                    kd,
                    nd: t + beside,
                    kpad,
                    t,
                };
                all.push((TileOrder::RowMajor, sizes, count));
            }
            // Rows that all begin at the same place of a line.
            let sizes = TileSizes {
                kd: kpad,
                nd: 320,
                kpad,
                t: 200,
            };
            all.push((TileOrder::RowMajor, sizes, count));
            for (below, nd) in [(0, 256), (128, 384)] {
                let kd = (kpad + below).next_multiple_of(64);
                let sizes = TileSizes {
                    kd,
                    nd,
                    kpad,
                    t: 200,
                };
                all.push((TileOrder::Blocked, sizes, count));
            }
        }
    }
    all
}

#[test]
fn every_level_makes_the_judges_tile_on_every_edge() {
    let levels = levels();
    for (turn, (order, sizes, count)) in geometries().into_iter().enumerate() {
        let values = values(turn as u64, sizes.kpad, count);
        let case = Case::new(order, sizes, values);
        for packers in &levels {
            for threads in 1..=5 {
                for (poison, is_serial) in [(turn + threads, false), (turn + threads + 1, true)] {
                    let poison = POISONS[poison % POISONS.len()];
                    case.compare(packers, (threads, is_serial), poison);
                }
            }
        }
    }
}
