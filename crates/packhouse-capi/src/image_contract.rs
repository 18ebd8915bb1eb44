//! From the structs of `packhouse.h` about head tiles to the values of `packhouse_image`.

use crate::edge::{self, Sized32};
use crate::image_types::*;
use crate::image_usage::TileFailure;
use crate::types::PACKHOUSE_TEXT_BYTES;
use crate::usage::{Failure, Usage};
use packhouse_image::{
    Check, Dtype, Head, HeadDigest, MIN_FREE_BYTES, Mode, OWNER_BYTES_MAX, Owner, RequestRefusal,
    Settings,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use std::ffi::c_char;
use std::mem::offset_of;
use std::num::NonZeroUsize;

/// Takes a tile's sizes and judges them.
///
/// # Safety
/// The pointer is NULL or leads to a geometry of the size that it says.
pub(crate) unsafe fn tile_geometry(
    pointer: *const packhouse_tile_geometry,
) -> Result<TileGeometry, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { edge::take(pointer) }?;
    let order = match given.order {
        PACKHOUSE_TILE_ROW_MAJOR => TileOrder::RowMajor,
        PACKHOUSE_TILE_BLOCKED => TileOrder::Blocked,
        other => {
            return Err(Usage::Value {
                argument: "geometry.order",
                actual: other.into(),
                expected: "PACKHOUSE_TILE_ROW_MAJOR or _BLOCKED",
            }
            .into());
        }
    };
    let packhouse_tile_geometry {
        kd, nd, kpad, t, ..
    } = given;
    let geometry = TileGeometry::new(order, TileSizes { kd, nd, kpad, t });
    Ok(geometry.map_err(TileFailure::Geometry)?)
}

/// Takes a head.
///
/// # Safety
/// The head's dtype is NULL or a text.
pub(crate) unsafe fn head_of(given: &packhouse_head) -> Result<Head, Failure> {
    if given.is_tied > 1 {
        return Err(Usage::Value {
            argument: "head.is_tied",
            actual: given.is_tied.into(),
            expected: "0 or 1",
        }
        .into());
    }
    // SAFETY: the caller's promise.
    let dtype = unsafe { edge::text(given.dtype, "head.dtype") }?;
    Ok(Head {
        vocabulary: given.vocabulary,
        width: given.width,
        tied: given.is_tied == 1,
        dtype: Dtype::new(dtype).map_err(TileFailure::Dtype)?,
        digest: HeadDigest::from_bytes(given.digest),
    })
}

/// Takes an owner.
pub(crate) fn owner_of(text: &str) -> Result<Owner, Usage> {
    const { assert!(OWNER_BYTES_MAX == PACKHOUSE_OWNER_MAX) };
    Owner::new(text).map_err(|error| Usage::Value {
        argument: "owner's length",
        actual: error.bytes,
        expected: "1 to 1024",
    })
}

/// Takes the bytes of tensors.
///
/// # Safety
/// The pointer is NULL or leads to so many tensors, whose bytes nobody changes during `'a`.
pub(crate) unsafe fn tensors_of<'a>(
    pointer: *const packhouse_tensor,
    count: u64,
) -> Result<Vec<&'a [u8]>, Usage> {
    let argument = "tensors";
    if !(1..=TENSORS_MAX).contains(&count) {
        return Err(Usage::Value {
            argument: "tensor_count",
            actual: count,
            expected: "1 to 64",
        });
    }
    if pointer.is_null() {
        return Err(Usage::NullPointer { argument });
    }
    let count = usize::try_from(count).expect("because it is at most 64");
    let tensor = |at| {
        // SAFETY: the caller's promise: so many are there.
        let given = unsafe { pointer.add(at).read() };
        let length = isize::try_from(given.bytes).map_err(|_| Usage::Value {
            argument: "tensors[].bytes",
            actual: given.bytes,
            expected: "at most 9223372036854775807",
        })?;
        if given.data.is_null() {
            return match length {
                0 => Ok(&[][..]),
                _ => Err(Usage::NullPointer {
                    argument: "tensors[].data",
                }),
            };
        }
        // SAFETY: the caller's promise; it is not NULL and no longer than any object.
        Ok(unsafe { std::slice::from_raw_parts(given.data.cast(), length.unsigned_abs()) })
    };
    (0..count).map(tensor).collect()
}

/// More tensors than feed any head.
const TENSORS_MAX: u64 = 64;

/// Takes the settings of images.
pub(crate) fn settings(given: &packhouse_images_options) -> Result<Settings, Usage> {
    let value = |argument, actual: u64, expected| {
        Err(Usage::Value {
            argument,
            actual,
            expected,
        })
    };
    let mode = match given.mode {
        PACKHOUSE_IMAGES_OFF => Mode::Off,
        PACKHOUSE_IMAGES_READ_ONLY => Mode::ReadOnly,
        PACKHOUSE_IMAGES_READ_WRITE => Mode::ReadWrite,
        other => {
            let expected = "PACKHOUSE_IMAGES_OFF, _READ_ONLY or _READ_WRITE";
            return value("options.mode", other.into(), expected);
        }
    };
    let check = match given.check {
        PACKHOUSE_CHECK_SAMPLE => Check::Sample,
        PACKHOUSE_CHECK_FULL => Check::Full,
        other => {
            let expected = "PACKHOUSE_CHECK_SAMPLE or _FULL";
            return value("options.check", other.into(), expected);
        }
    };
    let name = packhouse_images_options::NAME;
    let offset = match (given.flags & !PACKHOUSE_IMAGES_SEEDED, given.reserved) {
        (0, 0) => None,
        (0, _) => Some(offset_of!(packhouse_images_options, reserved)),
        _ => Some(offset_of!(packhouse_images_options, flags)),
    };
    if let Some(offset) = offset {
        return Err(Usage::UnknownField { name, offset });
    }
    let seed = match given.flags {
        0 if given.seed != 0 => {
            let expected = "0, or PACKHOUSE_IMAGES_SEEDED in options.flags";
            return value("options.seed", given.seed, expected);
        }
        0 => None,
        _ => Some(given.seed),
    };
    Ok(Settings {
        mode,
        check,
        // Without a cap `Settings` has the default one.
        max_bytes: (given.max_bytes > 0).then_some(given.max_bytes),
        min_free_bytes: match given.min_free_bytes {
            0 => MIN_FREE_BYTES,
            u64::MAX => 0,
            bytes => bytes,
        },
        max_age_ns: match given.max_age_ns {
            0 | u64::MAX => None,
            age_ns => Some(age_ns),
        },
        threads: threads(given.thread_count),
        seed,
    })
}

/// So many threads, but no more than the process may run at once; 0 is one.
pub(crate) fn threads(asked: u32) -> NonZeroUsize {
    let asked = usize::try_from(asked).ok().and_then(NonZeroUsize::new);
    match asked.unwrap_or(NonZeroUsize::MIN) {
        NonZeroUsize::MIN => NonZeroUsize::MIN,
        many => many.min(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
    }
}

/// Takes a tile's buffers, whose lengths must be the geometry's.
///
/// # Safety
/// The pointers in the tile are NULL or lead to as many codes and scales as it says, during `'a`,
/// which nobody else uses.
pub(crate) unsafe fn buffers<'a>(
    tile: &packhouse_tile,
    geometry: &TileGeometry,
) -> Result<(&'a mut [i8], &'a mut [f32]), Failure> {
    if tile.flags & !PACKHOUSE_TILE_COLUMNS_PARALLEL != 0 {
        return Err(Usage::UnknownField {
            name: packhouse_tile::NAME,
            offset: offset_of!(packhouse_tile, flags),
        }
        .into());
    }
    let (expected, actual) = (geometry.code_bytes(), tile.code_bytes);
    if actual != expected {
        return Err(TileFailure::Request(RequestRefusal::Codes { expected, actual }).into());
    }
    let (expected, actual) = (geometry.nd(), tile.scale_count);
    if actual != expected {
        return Err(TileFailure::Request(RequestRefusal::Scales { expected, actual }).into());
    }
    let (codes, scales) = (tile.codes, tile.scales);
    let nulls = [
        ("tile.codes", codes.is_null()),
        ("tile.scales", scales.is_null()),
    ];
    if let Some((argument, _)) = nulls.into_iter().find(|(_, is_null)| *is_null) {
        return Err(Usage::NullPointer { argument }.into());
    }
    if !scales.is_aligned() {
        return Err(Usage::Value {
            argument: "tile.scales' address",
            actual: scales.addr() as u64,
            expected: "a multiple of 4",
        }
        .into());
    }
    // A tile has at most 2^36 codes and 2^24 scales.
    let lengths = [geometry.code_bytes(), geometry.nd()];
    let [code_count, scale_count] = lengths.map(|length| usize::try_from(length).unwrap_or(0));
    let (code_end, scale_end) = (
        codes.addr().saturating_add(code_count),
        scales.addr().saturating_add(4 * scale_count),
    );
    if codes.addr() < scale_end && scales.addr() < code_end {
        let [first, second] = ["tile.codes", "tile.scales"];
        return Err(Usage::Overlap { first, second }.into());
    }
    // SAFETY: the caller's promise; neither is NULL, they are aligned and do not overlap.
    unsafe {
        Ok((
            std::slice::from_raw_parts_mut(codes, code_count),
            std::slice::from_raw_parts_mut(scales, scale_count),
        ))
    }
}

/// Says of a struct how it is called and how long its first version is.
macro_rules! sized {
    ($($name:ident up to $last:ident: $last_type:ty;)*) => {
        $(
            // SAFETY: it is `repr(C)`, begins with `struct_size`, and holds numbers and pointers.
            unsafe impl Sized32 for $name {
                const NAME: &'static str = stringify!($name);
                const FIRST_SIZE: usize = offset_of!(Self, $last) + size_of::<$last_type>();
            }
        )*
    };
}

sized! {
    packhouse_images_options up to reserved: u32;
    packhouse_head up to digest_ns: u64;
    packhouse_tile_geometry up to t: u64;
    packhouse_tile_sizes up to tile_count: u64;
    packhouse_tile up to scale_count: u64;
    packhouse_tile_report up to notes_text: [c_char; PACKHOUSE_TEXT_BYTES];
    packhouse_image_counters up to write_ns: u64;
    packhouse_tile_reason up to tiles: u64;
    packhouse_line up to text: [c_char; PACKHOUSE_LINE_BYTES];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bounds: u64) -> Settings {
        let given = packhouse_images_options {
            struct_size: 0,
            mode: PACKHOUSE_IMAGES_READ_WRITE,
            check: PACKHOUSE_CHECK_SAMPLE,
            flags: 0,
            root: std::ptr::null(),
            max_bytes: bounds,
            min_free_bytes: bounds,
            max_age_ns: bounds,
            seed: 0,
            thread_count: 0,
            reserved: 0,
        };
        settings(&given).expect("because each bound may be any number")
    }

    /// What an engine left zero is bounded: it would fill the disk otherwise.
    #[test]
    fn bounds_of_zero_are_the_defaults() {
        assert_eq!(taken(0), Settings::new());
    }

    #[test]
    fn no_bounds_are_asked_for() {
        let unlimited = Settings {
            max_bytes: Some(u64::MAX),
            min_free_bytes: 0,
            max_age_ns: None,
            ..Settings::new()
        };
        assert_eq!(taken(u64::MAX), unlimited);
    }

    #[test]
    fn other_bounds_are_taken_as_they_are() {
        for bound in [1, 4096, u64::MAX - 1] {
            let expected = Settings {
                max_bytes: Some(bound),
                min_free_bytes: bound,
                max_age_ns: Some(bound),
                ..Settings::new()
            };
            assert_eq!(taken(bound), expected);
        }
    }
}
