//! What callers of the packer of tiles do to it: columns that fail, panics, wrong lengths, and
//! single kernels called with what does not fit.

use crate::{length, levels};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_pack::int8_tile::{BAND_COLUMNS, CHUNK, CodeColumns, FillParallel, Gather};
use packhouse_pack::{Avx2, Avx512, Packers, TILE_KERNELS, TileCode, TileKernels};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const ORDERS: [TileOrder; 2] = [TileOrder::RowMajor, TileOrder::Blocked];

/// More strips than five threads have at once.
const COLUMNS: u64 = 3000;

fn tile(order: TileOrder) -> (TileGeometry, Vec<i8>, Vec<f32>) {
    let sizes = TileSizes {
        kd: 64,
        nd: 3072,
        kpad: 17,
        t: COLUMNS,
    };
    let geometry = TileGeometry::new(order, sizes).expect("because the sizes fit");
    let codes = vec![0; length(geometry.code_bytes())];
    let scales = vec![0.0; length(geometry.nd())];
    (geometry, codes, scales)
}

/// Packs all columns of a tile on some threads.
fn pack<E: Send>(
    order: TileOrder,
    threads: usize,
    is_serial: bool,
    fill: &FillParallel<'_, E>,
) -> Result<f64, E> {
    let (geometry, mut codes, mut scales) = tile(order);
    let mut serial = |column: u64, values: &mut [f32]| fill(column, values);
    let gather = match is_serial {
        true => Gather::Serial(&mut serial),
        false => Gather::Parallel(fill),
    };
    let threads = NonZeroUsize::new(threads).expect("because it begins at 1");
    let packers = Packers::detect();
    packers.pack_tile(
        &geometry,
        0..COLUMNS,
        gather,
        &mut codes,
        &mut scales,
        threads,
    )
}

fn ways() -> impl Iterator<Item = (TileOrder, usize, bool)> {
    let ways = (1..=5).flat_map(|threads| [(threads, false), (threads, true)]);
    ORDERS.into_iter().flat_map(move |order| {
        ways.clone()
            .map(move |(threads, serial)| (order, threads, serial))
    })
}

/// Some columns fail, on whatever thread; the first of them is told, and few are asked for later.
#[test]
fn the_failure_of_the_first_column_that_fails_is_returned_on_any_threads() {
    for (order, threads, is_serial) in ways() {
        for first in [0, 1, 63, 64, 257, 1000, COLUMNS - 1] {
            let asked = Mutex::new(Vec::new());
            let packed = pack(order, threads, is_serial, &|column, _| {
                asked.lock().expect("because nothing panics").push(column);
                if column >= first { Err(column) } else { Ok(()) }
            });
            let name = format!("{order:?} {threads} {is_serial}");
            assert_eq!(packed, Err(first), "{name}");
            let mut asked = asked.into_inner().expect("because nothing panics");
            asked.sort_unstable();
            let before = asked.iter().take_while(|column| **column <= first);
            assert_eq!(before.count() as u64, first + 1, "{name}: columns before");
            let threads = if is_serial { 1 } else { threads };
            assert!(
                asked.len() as u64 <= first + threads as u64,
                "{name}: {asked:?}"
            );
        }
    }
}

#[test]
fn a_serial_gather_is_called_on_the_calling_thread_in_order() {
    let here = thread::current().id();
    for order in ORDERS {
        let asked = AtomicUsize::new(0);
        let packed = pack(order, 5, true, &|column, _| {
            assert_eq!(thread::current().id(), here);
            assert_eq!(asked.fetch_add(1, Ordering::Relaxed) as u64, column);
            Ok::<(), ()>(())
        });
        assert!(packed.is_ok());
        assert_eq!(asked.into_inner() as u64, COLUMNS);
    }
}

/// A panic of the caller's code comes out as what it was, and no thread waits for ever.
#[test]
fn a_panic_of_gather_comes_out_as_it_was() {
    for (order, threads, is_serial) in ways() {
        for at in [0, 100, COLUMNS - 1] {
            let call = || {
                pack(order, threads, is_serial, &|column, _| {
                    if column == at {
                        std::panic::panic_any(("the caller's own", column));
                    }
                    Ok::<(), ()>(())
                })
            };
            let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("because it panics");
            let panic = panic.downcast::<(&str, u64)>();
            let panic = panic.expect("because it is the caller's");
            assert_eq!(
                *panic,
                ("the caller's own", at),
                "{order:?} {threads} {is_serial}"
            );
        }
    }
}

/// The panics of wrong lengths, by what they name.
#[test]
fn wrong_lengths_are_found_before_a_column_is_asked_for() {
    for order in ORDERS {
        let (geometry, codes, scales) = tile(order);
        let (codes, scales) = (codes.len(), scales.len());
        let reversed = Range {
            start: u64::MAX,
            end: 0,
        };
        for (name, codes, scales, columns) in [
            ("codes", codes - 1, scales, 0..COLUMNS),
            ("codes", codes + 1, scales, 0..COLUMNS),
            ("scales", codes, scales - 1, 0..COLUMNS),
            ("scales", codes, scales + 1, 0..COLUMNS),
            ("columns of a tile", codes, scales, 7..COLUMNS + 8),
            ("columns begin before they end", codes, scales, reversed),
        ] {
            let mut codes = vec![0x55; codes];
            let mut scales = vec![0.5; scales];
            let mut fill = |_: u64, _: &mut [f32]| -> Result<(), ()> { panic!("asked") };
            let gather = Gather::Serial(&mut fill);
            let call = || {
                let threads = NonZeroUsize::MIN;
                Packers::detect().pack_tile(
                    &geometry,
                    columns,
                    gather,
                    &mut codes,
                    &mut scales,
                    threads,
                )
            };
            let panic = catch_unwind(AssertUnwindSafe(call)).expect_err(name);
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.expect("because panics have texts");
            assert!(text.contains(name), "{name}: {text}");
            assert!(codes.iter().all(|code| *code == 0x55), "{name}");
            assert!(scales.iter().all(|scale| *scale == 0.5), "{name}");
        }
    }
}

/// No columns at all are a tile of padding.
#[test]
fn a_tile_without_columns_is_padding_at_every_level() {
    for order in ORDERS {
        let (geometry, mut codes, mut scales) = tile(order);
        for packers in levels() {
            codes.fill(0x55);
            let fill = |_: u64, _: &mut [f32]| Err("asked");
            let gather = Gather::Parallel(&fill);
            let threads = NonZeroUsize::MIN.saturating_add(2);
            let packed =
                packers.pack_tile(&geometry, 9..9, gather, &mut codes, &mut scales, threads);
            assert!(packed.is_ok_and(|sum| sum > 24.0));
            assert!(codes.iter().all(|code| *code == 0));
            assert!(scales.iter().all(|scale| scale.to_bits() == 0x3c01_0204));
        }
    }
}

/// The doors of single kernels, which assert for themselves since they are what is unsafe inside.
#[test]
fn each_kernel_asserts_its_lengths_before_it_writes_beside_its_target() {
    let mut exercised = 0;
    for code in TILE_KERNELS {
        exercised += match code {
            TileCode::Scalar(kernels) => doors((), kernels),
            TileCode::Avx2(kernels) => Avx2::detect().map_or(0, |token| doors(token, kernels)),
            TileCode::Avx512(kernels) => Avx512::detect().map_or(0, |token| doors(token, kernels)),
        };
    }
    assert_eq!(exercised, levels().len());
}

/// Calls each kernel of a level with what fits and with what does not.
fn doors<Token: Copy>(token: Token, kernels: &TileKernels<Token>) -> usize {
    for (values, codes, distance, fits) in [
        (64, 64, 64, true),
        (65, 65, 64, true),
        (65, 101, 100, true),
        (0, 0, 64, true),
        (64, 63, 64, false),
        (65, 64, 64, false),
        (129, 200, 100, false),
        (128, 128, 63, false),
        (1, 0, 64, false),
    ] {
        let name = format!("{values} values, {codes} codes, {distance}");
        let values = vec![1.0; values];
        let mut codes = vec![0x55; codes];
        let call = || (kernels.quantise)(token, &values, &mut codes, distance);

        assert_eq!(catch_unwind(AssertUnwindSafe(call)).is_ok(), fits, "{name}");
        assert!(fits || codes.iter().all(|code| *code == 0x55), "{name}");
    }
    let columns = CodeColumns::new(65, 70);
    assert_eq!((columns.count(), columns.depth()), (128, 65));
    for (row_count, columns_of_row, last, fits) in [
        (65, 128, 128, true),
        (65, 0, 0, true),
        (65, 70, 71, true),
        (65, 70, 69, false),
        (64, 70, 70, false),
        (66, 70, 70, false),
        (65, 129, 129, false),
    ] {
        let mut rows = vec![vec![0x55; columns_of_row]; row_count - 1];
        rows.push(vec![0x55; last]);
        let mut slices: Vec<_> = rows.iter_mut().map(Vec::as_mut_slice).collect();
        let call = || (kernels.row_major)(token, &columns, &mut slices, true);
        let name = format!("{row_count} rows of {columns_of_row}, {last}");
        assert_eq!(catch_unwind(AssertUnwindSafe(call)).is_ok(), fits, "{name}");
    }
    let band = 2 * CHUNK * BAND_COLUMNS;
    for (bytes, count, fits) in [
        (band, 128, true),
        (band - 1, 128, false),
        (band + 1, 128, false),
        (band, 64, false),
    ] {
        let columns = CodeColumns::new(65, count);
        let mut band = vec![0x55; bytes];
        let call = || (kernels.blocked)(token, &columns, &mut band, true);
        assert_eq!(
            catch_unwind(AssertUnwindSafe(call)).is_ok(),
            fits,
            "{bytes}"
        );
        let written = band.iter().all(|code| *code == 0);
        assert_eq!(written, fits, "{bytes}");
    }
    1
}
