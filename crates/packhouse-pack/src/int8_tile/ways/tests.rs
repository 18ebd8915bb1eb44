//! Packers that are wrong in one way only have another fingerprint.

use super::*;
use crate::Packers;
use crate::int8_tile::columns::{CHUNK, CodeColumns};
use crate::int8_tile::scalar::KERNELS;
use crate::kernels::TileKernels;
use std::cell::Cell;

type Rows = fn((), &CodeColumns, &mut [&mut [i8]], bool);
type Band = fn((), &CodeColumns, &mut [i8], bool);

thread_local! {
    /// Set on the thread that calls the packer.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// Longer than any thread of a busy host takes to begin.
const LONG: Duration = Duration::from_secs(60);

fn found(kernels: TileKernels<()>, order: TileOrder) -> bool {
    CALLS.set(true);
    !differences(Bound::Scalar(kernels), order, LONG).is_empty()
}

/// Packs rows, then spoils one code of the last.
fn spoil_row(codes: &CodeColumns, rows: &mut [&mut [i8]], streamed: bool) {
    (KERNELS.row_major)((), codes, rows, streamed);
    if let Some(code) = rows.last_mut().and_then(|row| row.last_mut()) {
        *code ^= 1;
    }
}

fn spoil_band(codes: &CodeColumns, band: &mut [i8], streamed: bool) {
    (KERNELS.blocked)((), codes, band, streamed);
    band[0] ^= 1;
}

fn is_aside(address: *const i8) -> bool {
    !address.addr().is_multiple_of(64)
}

/// Each is wrong in some ways and right in all others.
const WRONG_ROWS: [(&str, Rows); 9] = [
    (
        "a streamed row is not written",
        |(), codes, rows, streamed| {
            let kept = rows[1].to_vec();
            (KERNELS.row_major)((), codes, rows, streamed);
            if streamed {
                rows[1].copy_from_slice(&kept);
            }
        },
    ),
    (
        "streamed rows change places",
        |(), codes, rows, streamed| {
            if streamed {
                rows.swap(0, 1);
            }
            (KERNELS.row_major)((), codes, rows, streamed);
        },
    ),
    (
        "rows that are not streamed",
        |(), codes, rows, streamed| match streamed {
            true => (KERNELS.row_major)((), codes, rows, streamed),
            false => spoil_row(codes, rows, streamed),
        },
    ),
    (
        "streamed lines of wide strips",
        |(), codes, rows, streamed| match streamed && rows[0].len() == STRIP_COLUMNS {
            true => spoil_row(codes, rows, streamed),
            false => (KERNELS.row_major)((), codes, rows, streamed),
        },
    ),
    (
        "the last strip's edge",
        |(), codes, rows, streamed| match rows[0].len() % 64 == 7 {
            true => spoil_row(codes, rows, streamed),
            false => (KERNELS.row_major)((), codes, rows, streamed),
        },
    ),
    (
        "another thread's strip",
        |(), codes, rows, streamed| match CALLS.get() {
            true => (KERNELS.row_major)((), codes, rows, streamed),
            false => spoil_row(codes, rows, streamed),
        },
    ),
    (
        "another thread's streamed strip",
        |(), codes, rows, streamed| match CALLS.get() || !streamed {
            true => (KERNELS.row_major)((), codes, rows, streamed),
            false => spoil_row(codes, rows, streamed),
        },
    ),
    (
        "streamed rows beside a line",
        |(), codes, rows, streamed| match streamed
            && is_aside(rows[0].as_ptr())
            && rows[0].len() == 48
        {
            true => spoil_row(codes, rows, streamed),
            false => (KERNELS.row_major)((), codes, rows, streamed),
        },
    ),
    (
        "streamed rows of a line",
        |(), codes, rows, streamed| match streamed && rows.iter().all(|row| !is_aside(row.as_ptr()))
        {
            true => spoil_row(codes, rows, streamed),
            false => (KERNELS.row_major)((), codes, rows, streamed),
        },
    ),
];

const WRONG_BANDS: [(&str, Band); 5] = [
    (
        "a streamed microtile is not written",
        |(), codes, band, streamed| {
            let kept = band[64..128].to_vec();
            (KERNELS.blocked)((), codes, band, streamed);
            if streamed {
                band[64..128].copy_from_slice(&kept);
            }
        },
    ),
    (
        "bands that are not streamed",
        |(), codes, band, streamed| match streamed {
            true => (KERNELS.blocked)((), codes, band, streamed),
            false => spoil_band(codes, band, streamed),
        },
    ),
    (
        "another thread's band",
        |(), codes, band, streamed| match CALLS.get() {
            true => (KERNELS.blocked)((), codes, band, streamed),
            false => spoil_band(codes, band, streamed),
        },
    ),
    (
        "streamed bands beside a line",
        |(), codes, band, streamed| match streamed && is_aside(band.as_ptr()) {
            true => spoil_band(codes, band, streamed),
            false => (KERNELS.blocked)((), codes, band, streamed),
        },
    ),
    (
        "streamed bands of a line",
        |(), codes, band, streamed| match streamed && !is_aside(band.as_ptr()) {
            true => spoil_band(codes, band, streamed),
            false => (KERNELS.blocked)((), codes, band, streamed),
        },
    ),
];

#[test]
fn a_packer_that_is_wrong_in_one_way_only_is_another() {
    for (name, row_major) in WRONG_ROWS {
        let kernels = TileKernels {
            row_major,
            ..KERNELS
        };
        assert!(found(kernels, TileOrder::RowMajor), "{name}");
        assert!(!found(kernels, TileOrder::Blocked), "{name}");
    }
    for (name, blocked) in WRONG_BANDS {
        let kernels = TileKernels { blocked, ..KERNELS };
        assert!(found(kernels, TileOrder::Blocked), "{name}");
        assert!(!found(kernels, TileOrder::RowMajor), "{name}");
    }
}

/// Columns that another thread quantises, and such of more chunks than a golden head has.
#[test]
fn a_quantiser_that_is_wrong_for_some_columns_is_another() {
    let elsewhere = TileKernels {
        quantise: |(), values, codes, distance| {
            let scale = (KERNELS.quantise)((), values, codes, distance);
            if CALLS.get() { scale } else { -scale }
        },
        ..KERNELS
    };
    let deep = TileKernels {
        quantise: |(), values, codes, distance| {
            let scale = (KERNELS.quantise)((), values, codes, distance);
            if values.len() > 2 * CHUNK {
                codes[2 * distance] ^= 1;
            }
            scale
        },
        ..KERNELS
    };
    for order in [TileOrder::RowMajor, TileOrder::Blocked] {
        assert!(found(elsewhere, order), "{order:?}");
        assert!(found(deep, order), "{order:?}");
    }
}

/// The fingerprints of packers that differ are not those of the judge's payload, whatever way it is
/// that they differ in.
#[test]
fn what_differs_makes_another_fingerprint() {
    for order in [TileOrder::RowMajor, TileOrder::Blocked] {
        let golden = golden_head(order).admitted;
        let honest = Packers::detect();
        let wrong = Packers::detect();
        let spoiled = TileKernels {
            row_major: WRONG_ROWS[0].1,
            blocked: WRONG_BANDS[0].1,
            ..KERNELS
        };
        let differences = differences(Bound::Scalar(spoiled), order, LONG);
        let kept = wrong.tile_differences_cell(order).set(differences);
        assert_eq!(kept, Ok(()));
        for packers in [&honest, &wrong] {
            let of_layout = packers.fingerprint(&golden);
            assert_eq!(of_layout, Ok(packers.tile_fingerprint(order)));
        }
        assert_ne!(
            honest.tile_fingerprint(order),
            wrong.tile_fingerprint(order)
        );
    }
}

#[test]
fn packers_that_are_right_have_no_differences_with_or_without_threads() {
    for order in [TileOrder::RowMajor, TileOrder::Blocked] {
        for patience in [Duration::ZERO, LONG] {
            let bound = Packers::detect().tile_kernels();
            assert!(differences(bound, order, patience).is_empty(), "{order:?}");
            let bound = Bound::Scalar(KERNELS);
            assert!(differences(bound, order, patience).is_empty(), "{order:?}");
        }
    }
}
