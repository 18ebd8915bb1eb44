//! The structs of `packhouse.h` for images of head tiles, field by field as C has them, under the
//! rules of `types`.

use crate::types::{PACKHOUSE_DIGEST_BYTES, PACKHOUSE_TEXT_BYTES, packhouse_status};
use std::ffi::{c_char, c_void};

/// Most bytes of a dtype's text, without its NUL.
pub const PACKHOUSE_DTYPE_MAX: usize = 16;
/// Most bytes of an owner's text, without its NUL.
pub const PACKHOUSE_OWNER_MAX: usize = 1024;
/// Bytes of a serve's line, its final NUL among them.
pub const PACKHOUSE_LINE_BYTES: usize = 1008;

/// No image is read, written, removed or touched: every tile is packed.
pub const PACKHOUSE_IMAGES_OFF: u32 = 1;
/// Images are read; nothing is written, removed or touched.
pub const PACKHOUSE_IMAGES_READ_ONLY: u32 = 2;
/// Images are read, and written where one was absent or refused.
pub const PACKHOUSE_IMAGES_READ_WRITE: u32 = 3;

/// A few columns of each image are packed again and compared: both ends, and others that the seed
/// moves.
pub const PACKHOUSE_CHECK_SAMPLE: u32 = 1;
/// Every column of each image is packed again and compared, which costs more than packing: for
/// tests and for doubt.
pub const PACKHOUSE_CHECK_FULL: u32 = 2;

/// `seed` is used as it is; without this bit the library draws one at each start.
pub const PACKHOUSE_IMAGES_SEEDED: u32 = 1;

/// The code of depth row i of column j lies at `i * nd + j`: layout `int8-tile-rm-v1`.
pub const PACKHOUSE_TILE_ROW_MAJOR: u32 = 1;
/// Blocks of 64 rows by 128 columns of 8 by 8 microtiles: layout `int8-tile-b8-v1`. kd must be a
/// multiple of 64 and nd one of 128.
pub const PACKHOUSE_TILE_BLOCKED: u32 = 2;

/// The column callback may be called by several threads at once.
pub const PACKHOUSE_TILE_COLUMNS_PARALLEL: u32 = 1;

/// The tile came from an image.
pub const PACKHOUSE_TILE_HIT: u32 = 1;
/// The tile was packed.
pub const PACKHOUSE_TILE_PACKED: u32 = 2;

/// What `packhouse_images_open` is told.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_images_options {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_IMAGES_OFF`, `_READ_ONLY` or `_READ_WRITE`.
    pub mode: u32,
    /// `PACKHOUSE_CHECK_*`: how provenance is proved.
    pub check: u32,
    /// `PACKHOUSE_IMAGES_SEEDED` or 0.
    pub flags: u32,
    /// The folder of images, an absolute path, made when it is not there; it is this user's alone.
    /// NULL is none: then images are off.
    pub root: *const c_char,
    /// Most bytes of all images: 0 is the default, a fifth of the file system; UINT64_MAX sets
    /// no limit. What was used longest ago goes first.
    pub max_bytes: u64,
    /// Bytes that must stay free in the file system: 0 is the default, 10 GiB; UINT64_MAX
    /// sets no limit, so that none need stay free.
    pub min_free_bytes: u64,
    /// Images not used for so many nanoseconds go at the next write; 0, the default, sets no
    /// limit, nor does UINT64_MAX.
    pub max_age_ns: u64,
    /// Moves the sampled columns, when `flags` say so.
    pub seed: u64,
    /// Most threads that read, hash and pack, the calling one among them, but no more than the
    /// process has CPUs; 0 is one.
    pub thread_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// The bytes of one tensor, as the model's file has them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tensor {
    /// The bytes; NULL when there are none.
    pub data: *const c_void,
    /// How many.
    pub bytes: u64,
}

/// What a head is, beside its tiles: part of each image's identity.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_head {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// 1 when the head is the token embedding, else 0.
    pub is_tied: u32,
    /// Rows of the stored `[vocabulary, hidden]` tensor: columns of the head.
    pub vocabulary: u64,
    /// Values that the column callback gives per column: what a row of the tensor holds.
    pub width: u64,
    /// The stored type's name, NUL-terminated: 1 to `PACKHOUSE_DTYPE_MAX` printable ASCII
    /// characters without blanks, bytes 0x21 to 0x7e.
    pub dtype: *const c_char,
    /// What the head's content is, by `packhouse_head_digest`. Not looked at while images are off.
    pub digest: [u8; PACKHOUSE_DIGEST_BYTES],
    /// Nanoseconds that the digest took, by the same call; told in counters and line.
    pub digest_ns: u64,
}

/// The sizes of one tile: what the device's buffer and kernel take.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tile_geometry {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_TILE_ROW_MAJOR` or `_BLOCKED`.
    pub order: u32,
    /// Depth rows of the device's buffer.
    pub kd: u64,
    /// Columns of the device's buffer.
    pub nd: u64,
    /// Depth rows that are packed: the head's width, padded for the kernel; at most kd.
    pub kpad: u64,
    /// Columns of the head in a full tile; at most nd. The last tile may have fewer.
    pub t: u64,
}

/// What follows from a geometry and a vocabulary.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tile_sizes {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of a tile's codes: kd times nd.
    pub code_bytes: u64,
    /// Bytes of a tile's scales: 4 times nd.
    pub scale_bytes: u64,
    /// Bytes of a tile's image file.
    pub image_bytes: u64,
    /// Tiles of a head with so many columns.
    pub tile_count: u64,
}

/// One tile to fill, and where. The buffers are the caller's, and may be a device's, mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tile {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_TILE_COLUMNS_PARALLEL` or 0.
    pub flags: u32,
    /// Which tile, below `tile_count`.
    pub index: u64,
    /// The depth that the kernel is about to multiply with: kpad, or the tile is refused.
    pub k: u64,
    /// Where the codes go: every one of them is written.
    pub codes: *mut i8,
    /// How many bytes there are: kd times nd.
    pub code_bytes: u64,
    /// Where the scales go, aligned as floats are: every one of them is written.
    pub scales: *mut f32,
    /// How many floats there are: nd.
    pub scale_count: u64,
}

/// How a tile was filled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tile_report {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// `PACKHOUSE_TILE_HIT` or `PACKHOUSE_TILE_PACKED`; 0 when the callback failed.
    pub outcome: u32,
    /// Why a file that was there was not used; `PACKHOUSE_OK` when none was refused.
    pub refused: packhouse_status,
    /// Why a packed tile was not written; `PACKHOUSE_OK` when it was, or was a hit.
    pub unwritten: packhouse_status,
    /// Bytes of the image that was written.
    pub written_bytes: u64,
    /// The sum of the tile's scales, those of padding among them, in the order of the columns.
    pub scale_sum: f64,
    /// Nanoseconds of the whole call.
    pub elapsed_ns: u64,
    /// The column whose callback failed, when one did.
    pub failed_column: u64,
    /// What that callback returned; 0 when none failed.
    pub column_error: i32,
    /// Files that were removed, and what was in the way of noting the owner: `notes_text` has them.
    pub note_count: u32,
    /// Which file was refused and why, in words, cut between characters, NUL-terminated UTF-8.
    pub refused_text: [c_char; PACKHOUSE_TEXT_BYTES],
    /// Why a packed tile was not written, likewise.
    pub unwritten_text: [c_char; PACKHOUSE_TEXT_BYTES],
    /// Each file that was removed, with its bytes and why, and each problem, likewise, with
    /// semicolons between.
    pub notes_text: [c_char; PACKHOUSE_TEXT_BYTES],
}

/// What a serve did so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_image_counters {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// The seed of the samples, given or drawn.
    pub seed: u64,
    /// Tiles from images.
    pub tiles_hit: u64,
    /// Tiles packed.
    pub tiles_packed: u64,
    /// Of these, tiles written.
    pub tiles_written: u64,
    /// Packed tiles that were not written; `packhouse_serve_reason_after` has them by reason.
    pub tiles_unwritten: u64,
    /// Files that were there and not used, likewise.
    pub tiles_refused: u64,
    /// Columns that the callback gave for packing.
    pub columns_gathered: u64,
    /// Columns that the callback gave for comparing.
    pub columns_sampled: u64,
    /// Bytes read from images.
    pub bytes_read: u64,
    /// Bytes written to images.
    pub bytes_written: u64,
    /// Files removed to make room, or because their owner left them.
    pub files_removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
    /// What was in the way of noting the owner, or of removing what it left.
    pub owner_problems: u64,
    /// Nanoseconds of hashing the head.
    pub digest_ns: u64,
    /// Nanoseconds of reading and hashing.
    pub read_ns: u64,
    /// Nanoseconds of packing sampled columns and comparing.
    pub sample_ns: u64,
    /// Nanoseconds of packing tiles.
    pub pack_ns: u64,
    /// Nanoseconds of writing images.
    pub write_ns: u64,
    /// Nanoseconds of taking the packer's fingerprint; 0 when an earlier serve of the same images
    /// took it, or images are off.
    pub fingerprint_ns: u64,
}

/// One reason and how many tiles it was given for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_tile_reason {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// The reason.
    pub status: packhouse_status,
    /// Tiles.
    pub tiles: u64,
}

/// The one line that says where a serve's tiles came from.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct packhouse_line {
    /// sizeof of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Length of the whole line, which may be more than fits.
    pub text_bytes: u64,
    /// The line without its newline, cut between characters, NUL-terminated UTF-8.
    pub text: [c_char; PACKHOUSE_LINE_BYTES],
}

/// Gives one column of the head, row `column` of the stored tensor as floats: writes `value_count`
/// values, the head's width, and returns 0; anything else is an error, which ends the tile's call.
/// The values are zero before. It must not throw, unwind or jump out, nor use the serve that calls
/// it, and for one column it gives the same values each time.
pub type packhouse_column = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        column: u64,
        values: *mut f32,
        value_count: u64,
    ) -> i32,
>;
