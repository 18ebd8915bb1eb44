//! Images of head tiles: open, begin a serve, fill tiles, count, release.

use crate::columns::{Columns, ParallelColumns};
use crate::contract::path;
use crate::edge::{self, guard, place, shield};
use crate::handles::{self, packhouse_images, packhouse_serve};
use crate::image_contract::{
    buffers, head_of, owner_of, settings, tensors_of, threads, tile_geometry,
};
use crate::image_report;
use crate::image_types::*;
use crate::image_usage::{ImageCode, TileFailure};
use crate::types::*;
use crate::usage::{OK, Usage};
use packhouse_image::{HeadDigest, Images, Serve};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Tells the lengths of a tile's buffers and file, and how many tiles a head with so many columns
/// has. Sizes that make no tile are refused, and a vocabulary of 0 or of more than 100,000 tiles.
///
/// # Safety
/// As `packhouse.h` says: pointers are NULL or lead to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_tile_measure(
    geometry: *const packhouse_tile_geometry,
    vocabulary: u64,
    sizes: *mut packhouse_tile_sizes,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (geometry, struct_size) = unsafe { (tile_geometry(geometry)?, edge::judge(sizes)?) };
        let fits = packhouse_image::fits_vocabulary(vocabulary, &geometry);
        fits.map_err(|error| TileFailure::Request(error.into()))?;
        let told = packhouse_tile_sizes {
            struct_size,
            reserved: 0,
            code_bytes: geometry.code_bytes(),
            scale_bytes: geometry.scale_bytes(),
            image_bytes: packhouse_image::file_bytes(&geometry),
            tile_count: geometry.tile_count(vocabulary),
        };
        // SAFETY: as above.
        unsafe { edge::fill(sizes, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells where among a tile's codes the one of depth row i of column j lies, with i below kd and j
/// below nd.
///
/// # Safety
/// As for `packhouse_tile_measure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_tile_position(
    geometry: *const packhouse_tile_geometry,
    i: u64,
    j: u64,
    position: *mut u64,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        let target = place(position, "position")?;
        // SAFETY: the caller's promise, here and below.
        let geometry = unsafe { tile_geometry(geometry) }?;
        for (index, count) in [(i, geometry.kd()), (j, geometry.nd())] {
            if index >= count {
                return Err(Usage::Index { index, count }.into());
            }
        }
        // SAFETY: as above.
        unsafe { target.write(geometry.position(i, j)) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Writes a head's digest, and how long it took, into the head: a hash over its vocabulary, width,
/// tied and dtype, and the bytes of all that feeds a column, in an order that stays the same: the
/// matrix, scales that lie apart from it, and last a name of the code that makes floats of them, as
/// the 13 bytes `ggml-values/1`. Hashes on up to `thread_count` threads, the
/// calling one among them, but on no more than the process has CPUs; 0 is one. While images are off
/// it need not be called.
///
/// # Safety
/// As for `packhouse_tile_measure`; so many tensors are at `tensors`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_head_digest(
    head: *mut packhouse_head,
    tensors: *const packhouse_tensor,
    tensor_count: u64,
    thread_count: u32,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let mut told = unsafe { edge::take(head) }?;
        // SAFETY: as above.
        let taken = unsafe { head_of(&told) }?;
        // SAFETY: as above.
        let tensors = unsafe { tensors_of(tensors, tensor_count) }?;
        let start_ns = RealClock.steady_ns();
        let made = HeadDigest::of(
            taken.vocabulary,
            taken.width,
            taken.tied,
            &taken.dtype,
            &tensors,
            threads(thread_count),
        );
        told.digest = *made.bytes();
        told.digest_ns = RealClock.steady_ns().saturating_sub(start_ns);
        // SAFETY: as above; the size was judged when it was taken.
        unsafe { edge::fill(head, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Opens the folder of images. What stands in the way of using it is no failure: images are off
/// then, and `packhouse_images_why_off` says why. The environment is not read: an engine that has
/// switches there sets `mode`. On success `*images` is the caller's: `packhouse_images_release`
/// gives it back.
///
/// # Safety
/// As for `packhouse_tile_measure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_images_open(
    options: *const packhouse_images_options,
    images: *mut *mut packhouse_images,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    // SAFETY: the caller's promise.
    unsafe { edge::clear(images) };
    let body = || {
        let target = place(images, "images")?;
        // SAFETY: the caller's promise, here and below.
        let given = unsafe { edge::take(options) }?;
        let settings = settings(&given)?;
        // SAFETY: as above.
        let root = unsafe { path(given.root) };
        let (fs, clock): (Arc<dyn Fs>, Arc<dyn Clock>) = (Arc::new(RealFs), Arc::new(RealClock));
        let images = Images::open(fs, clock, root.as_deref(), settings);
        let packers = Arc::new(Packers::detect());
        let handle = handles::give(Arc::new(packhouse_images { images, packers }));
        // SAFETY: as above.
        unsafe { target.write(handle) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Takes one more count of images; each is given back by `packhouse_images_release`. NULL is fine.
///
/// # Safety
/// As for `packhouse_images_open`; the caller owns a count of the images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_images_retain(images: *mut packhouse_images) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::retain(images) });
}

/// Gives one count of images back. Serves of them stay. NULL is fine.
///
/// # Safety
/// As for `packhouse_images_retain`; the caller gives that count up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_images_release(images: *mut packhouse_images) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::release(images) });
}

/// Tells why images are off, for one warning at the start; `status` is `PACKHOUSE_OK` in `reason`
/// when they are on.
///
/// # Safety
/// As for `packhouse_images_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_images_why_off(
    images: *const packhouse_images,
    reason: *mut packhouse_refusal,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        unsafe { edge::judge(reason) }?;
        // SAFETY: as above.
        let off = unsafe { opened(images) }?.images.why_off();
        let status = off.map_or(OK, |off| ImageCode::from(off).number());
        let text = off.map(ToString::to_string).unwrap_or_default();
        // SAFETY: as above.
        unsafe { edge::tell(reason, status, &text) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Begins the serve of one head: `owner` says whose images these are by a text that stays the same
/// from start to start, as the model's path, 1 to `PACKHOUSE_OWNER_MAX` bytes. When an owner comes
/// with other weights in the same geometry, the images that nobody else uses go. On success
/// `*serve` is the caller's: `packhouse_serve_release` gives it back.
///
/// The first serve of these images in an order takes the packer's fingerprint, some milliseconds on
/// threads of its own, unless images are off; later ones have it.
///
/// # Safety
/// As for `packhouse_images_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_begin(
    images: *const packhouse_images,
    head: *const packhouse_head,
    geometry: *const packhouse_tile_geometry,
    owner: *const c_char,
    serve: *mut *mut packhouse_serve,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    // SAFETY: the caller's promise.
    unsafe { edge::clear(serve) };
    let body = || {
        let target = place(serve, "serve")?;
        // SAFETY: the caller's promise, here and below.
        let (opened, given) = unsafe { (opened(images)?, edge::take(head)?) };
        // SAFETY: as above.
        let head = unsafe { head_of(&given) }?;
        // SAFETY: as above.
        let geometry = unsafe { tile_geometry(geometry) }?;
        // SAFETY: as above.
        let owner = owner_of(unsafe { edge::text(owner, "owner") }?)?;
        if head.digest == HeadDigest::NONE && opened.images.why_off().is_none() {
            return Err(Usage::Value {
                argument: "head.digest",
                actual: 0,
                expected: "what packhouse_head_digest wrote",
            }
            .into());
        }
        let width = usize::try_from(head.width).unwrap_or(usize::MAX);
        let packers = opened.packers.clone();
        let serve = opened.images.serve(packers, head, geometry, owner);
        let mut serve = serve.map_err(TileFailure::Request)?;
        serve.note_head_hash_ns(given.digest_ns);
        let serve = packhouse_serve {
            serve: Mutex::new(serve),
            images: opened.images.clone(),
            geometry,
            width,
        };
        let handle = handles::give(Arc::new(serve));
        // SAFETY: as above.
        unsafe { target.write(handle) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Takes one more count of a serve. NULL is fine.
///
/// # Safety
/// As for `packhouse_serve_begin`; the caller owns a count of the serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_retain(serve: *mut packhouse_serve) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::retain(serve) });
}

/// Gives one count of a serve back. NULL is fine.
///
/// # Safety
/// As for `packhouse_serve_retain`; the caller gives that count up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_release(serve: *mut packhouse_serve) {
    // SAFETY: the caller's promise.
    shield((), || unsafe { handles::release(serve) });
}

/// Fills one tile: every byte of its codes and scales, whatever was there before. The callback is
/// called with `context` for the sampled columns of an image, or for each column of a tile that is
/// packed; on this thread, or by several at once when the tile's flags allow it. `report` may be
/// NULL. A callback's error ends the call with `PACKHOUSE_TILE_COLUMN`; `report` has its number.
///
/// # Safety
/// As for `packhouse_serve_retain`; `column` does what its type says, and nobody else uses the
/// buffers during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_tile(
    serve: *const packhouse_serve,
    tile: *const packhouse_tile,
    column: packhouse_column,
    context: *mut c_void,
    report: *mut packhouse_tile_report,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (serve, tile) = unsafe { (begun(serve)?, edge::take(tile)?) };
        // SAFETY: as above.
        let columns = unsafe { Columns::new(column, context, serve.width) };
        let columns = columns.ok_or(Usage::NullPointer { argument: "column" })?;
        let report_size = match report.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { edge::judge(report) }?),
        };
        // SAFETY: as above.
        let (codes, scales) = unsafe { buffers(&tile, &serve.geometry) }?;
        let mut locked = lock(serve)?;
        let start_ns = RealClock.steady_ns();
        let mut serial = |column, target: &mut [f32]| columns.fill(column, target);
        // SAFETY: used only where the caller set the flag, which promises it.
        let parallel = unsafe { ParallelColumns::new(columns) };
        let parallel = |column, target: &mut [f32]| parallel.fill(column, target);
        let gather = match tile.flags {
            0 => Gather::Serial(&mut serial),
            _ => Gather::Parallel(&parallel),
        };
        let served = locked.tile(tile.index, tile.k, gather, codes, scales);
        let elapsed_ns = RealClock.steady_ns().saturating_sub(start_ns);
        if let Some(struct_size) = report_size {
            let off = serve.images.why_off();
            if let Some(told) = image_report::tile(&served, off, struct_size, elapsed_ns) {
                // SAFETY: as above.
                unsafe { edge::fill(report, told) };
            }
        }
        served.map_err(TileFailure::from)?;
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells what a serve did since it began.
///
/// # Safety
/// As for `packhouse_serve_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_counters(
    serve: *const packhouse_serve,
    counters: *mut packhouse_image_counters,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (serve, struct_size) = unsafe { (begun(serve)?, edge::judge(counters)?) };
        let counted = lock(serve)?.counters().clone();
        let seed = serve.images.seed();
        // SAFETY: as above.
        unsafe {
            edge::fill(
                counters,
                image_report::counters(&counted, struct_size, seed),
            )
        };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells the first reason whose number is above `after` why files were not used or packed tiles not
/// written, and of how many tiles; `status` is `PACKHOUSE_OK` in it when there is none. Begin with
/// `PACKHOUSE_OK` and go on with each status told.
///
/// # Safety
/// As for `packhouse_serve_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_reason_after(
    serve: *const packhouse_serve,
    after: packhouse_status,
    reason: *mut packhouse_tile_reason,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (serve, struct_size) = unsafe { (begun(serve)?, edge::judge(reason)?) };
        let counted = lock(serve)?.counters().clone();
        let reasons = image_report::reasons(&counted, serve.images.why_off());
        let next = reasons.range(after.saturating_add(1)..).next();
        let told = packhouse_tile_reason {
            struct_size,
            status: next.map_or(OK, |(status, _)| *status),
            tiles: next.map_or(0, |(_, tiles)| *tiles),
        };
        // SAFETY: as above.
        unsafe { edge::fill(reason, told) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// Tells the one line that a user should see once the head is there, whether images were used or
/// not: how many tiles came from images, were packed and were written, what was refused, and what
/// it took. The engine prints it; the library prints nothing.
///
/// # Safety
/// As for `packhouse_serve_retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packhouse_serve_line(
    serve: *const packhouse_serve,
    line: *mut packhouse_line,
    refusal: *mut packhouse_refusal,
) -> packhouse_status {
    let body = || {
        // SAFETY: the caller's promise, here and below.
        let (serve, struct_size) = unsafe { (begun(serve)?, edge::judge(line)?) };
        let text = lock(serve)?.line();
        // SAFETY: as above.
        unsafe { edge::fill(line, image_report::line(&text, struct_size)) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { guard(refusal, body) }
}

/// # Safety
/// The pointer is NULL or images that the caller owns a count of during `'a`.
unsafe fn opened<'a>(images: *const packhouse_images) -> Result<&'a packhouse_images, Usage> {
    let argument = "images";
    // SAFETY: the caller's promise.
    unsafe { handles::borrow(images) }.ok_or(Usage::NullPointer { argument })
}

/// # Safety
/// The pointer is NULL or a serve that the caller owns a count of during `'a`.
unsafe fn begun<'a>(serve: *const packhouse_serve) -> Result<&'a packhouse_serve, Usage> {
    let argument = "serve";
    // SAFETY: the caller's promise.
    unsafe { handles::borrow(serve) }.ok_or(Usage::NullPointer { argument })
}

/// The serve for one call. Nobody waits: a callback that used the serve would wait for itself.
fn lock(serve: &packhouse_serve) -> Result<MutexGuard<'_, Serve>, TileFailure> {
    match serve.serve.try_lock() {
        Ok(locked) => Ok(locked),
        Err(TryLockError::WouldBlock) => Err(TileFailure::Busy),
        // A panic was told as a defect; what it left are counters at worst.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_image::{Dtype, Head, Outcome, Owner, Settings};
    use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
    use std::num::NonZeroUsize;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A defect of ours in the middle of a tile, which the edge catches and tells: the serve counts
    /// on and fills that tile and the others.
    #[test]
    fn a_serve_is_of_use_after_a_defect() {
        let folder = tempfile::tempdir().expect("because there is a folder for it");
        let settings = Settings {
            min_free_bytes: 0,
            ..Settings::new()
        };
        let images = Images::open(
            Arc::new(RealFs),
            Arc::new(RealClock),
            Some(folder.path()),
            settings,
        );
        let sizes = TileSizes {
            kd: 64,
            nd: 128,
            kpad: 64,
            t: 100,
        };
        let geometry = TileGeometry::new(TileOrder::Blocked, sizes);
        let geometry = geometry.expect("because the sizes fit");
        let dtype = Dtype::new("F32").expect("because it is printable");
        let head = Head {
            vocabulary: 130,
            width: 64,
            tied: false,
            dtype,
            digest: HeadDigest::of(130, 64, false, &dtype, &[b"made up"], NonZeroUsize::MIN),
        };
        let owner = Owner::new("a test").expect("because it is short");
        let served = images.serve(Arc::new(Packers::detect()), head, geometry, owner);
        let serve = packhouse_serve {
            serve: Mutex::new(served.expect("because the head fits")),
            images,
            geometry,
            width: 64,
        };
        let (mut codes, mut scales) = (vec![0; 64 * 128], vec![0.0; 128]);
        let mut tile = |index, fill: &mut dyn FnMut(u64) -> f32| {
            let mut locked = lock(&serve).expect("because nobody else has it");
            let mut fill = |column, target: &mut [f32]| {
                target.fill(fill(column));
                Ok::<(), ()>(())
            };
            let gather = Gather::Serial(&mut fill);
            let served = locked.tile(index, 64, gather, &mut codes, &mut scales);
            served.expect("because no column fails").outcome
        };
        let mut defect = |column| match column {
            57 => panic!("a defect"),
            _ => 1.0,
        };
        let caught = catch_unwind(AssertUnwindSafe(|| tile(0, &mut defect)));
        assert!(caught.is_err() && serve.serve.is_poisoned());
        for (index, is_hit) in [(0, false), (1, false), (0, true)] {
            let outcome = tile(index, &mut |column| 1.0 + column as f32);
            assert_eq!(outcome == Outcome::Hit, is_hit, "{index}");
        }
        let counted = lock(&serve).expect("because nobody else has it");
        let counted = counted.counters();
        assert_eq!((counted.tiles_packed, counted.tiles_written), (2, 2));
    }
}
