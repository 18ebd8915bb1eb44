//! What was done with head tiles, as the structs of `packhouse.h` tell it.

use crate::columns::ColumnError;
use crate::edge::chars_of;
use crate::image_types::*;
use crate::image_usage::ImageCode;
use crate::types::{PACKHOUSE_TEXT_BYTES, packhouse_status};
use crate::usage::OK;
use packhouse_base::shown::Shown;
use packhouse_image::{Counters, Off, Outcome, Removed, Served, TileError, Written};
use std::collections::BTreeMap;
use std::ffi::c_char;

/// Tells how a tile was filled; nothing of a request that was refused.
pub(crate) fn tile(
    served: &Result<Served, TileError<ColumnError>>,
    off: Option<&Off>,
    struct_size: u32,
    elapsed_ns: u64,
) -> Option<packhouse_tile_report> {
    let mut told = blank(struct_size, elapsed_ns);
    match served {
        Err(TileError::Request(_)) => return None,
        Err(TileError::Gather(error)) => {
            told.failed_column = error.column;
            told.column_error = error.returned;
        }
        Ok(served) => tell(&mut told, served, off),
    }
    Some(told)
}

fn tell(told: &mut packhouse_tile_report, served: &Served, off: Option<&Off>) {
    told.scale_sum = served.scale_sum;
    let removed = served.removed.iter().map(removal);
    let problems = served.owner_problems.iter().map(ToString::to_string);
    let notes: Vec<String> = removed.chain(problems).collect();
    told.note_count = u32::try_from(notes.len()).unwrap_or(u32::MAX);
    told.notes_text = text(&notes.join("; "));
    let (refused, written) = match &served.outcome {
        Outcome::Hit => {
            told.outcome = PACKHOUSE_TILE_HIT;
            return;
        }
        Outcome::Packed { refused, written } => (refused, written),
    };
    told.outcome = PACKHOUSE_TILE_PACKED;
    if let Some(refusal) = refused {
        told.refused = ImageCode::from(refusal.code()).number();
        told.refused_text = text(&refusal.to_string());
    }
    match written {
        Written::Yes { bytes } => told.written_bytes = *bytes,
        Written::No(why) => {
            told.unwritten = ImageCode::of_not_written(why.code(), off).number();
            told.unwritten_text = text(&match off {
                Some(off) => off.to_string(),
                None => why.to_string(),
            });
        }
    }
}

fn removal(removed: &Removed) -> String {
    let Removed { name, bytes, why } = removed;
    format!("removed {name}, {bytes} bytes: {why}")
}

/// A text for C; names of others in it are shown, not obeyed.
fn text(text: &str) -> [c_char; PACKHOUSE_TEXT_BYTES] {
    chars_of(&Shown(text).to_string())
}

const fn blank(struct_size: u32, elapsed_ns: u64) -> packhouse_tile_report {
    packhouse_tile_report {
        struct_size,
        outcome: 0,
        refused: OK,
        unwritten: OK,
        written_bytes: 0,
        scale_sum: 0.0,
        elapsed_ns,
        failed_column: 0,
        column_error: 0,
        note_count: 0,
        refused_text: [0; PACKHOUSE_TEXT_BYTES],
        unwritten_text: [0; PACKHOUSE_TEXT_BYTES],
        notes_text: [0; PACKHOUSE_TEXT_BYTES],
    }
}

/// Tells what a serve did.
pub(crate) fn counters(
    counted: &Counters,
    struct_size: u32,
    seed: u64,
) -> packhouse_image_counters {
    packhouse_image_counters {
        struct_size,
        reserved: 0,
        seed,
        tiles_hit: counted.tiles_hit,
        tiles_packed: counted.tiles_packed,
        tiles_written: counted.tiles_written,
        tiles_unwritten: counted.not_written.values().sum(),
        tiles_refused: counted.tiles_refused(),
        columns_gathered: counted.columns_gathered,
        columns_sampled: counted.columns_sampled,
        bytes_read: counted.bytes_read,
        bytes_written: counted.bytes_written,
        files_removed: counted.files_removed,
        bytes_removed: counted.bytes_removed,
        owner_problems: counted.owner_problems,
        digest_ns: counted.head_hash_ns,
        read_ns: counted.read_ns,
        sample_ns: counted.sample_ns,
        pack_ns: counted.pack_ns,
        write_ns: counted.write_ns,
        fingerprint_ns: counted.fingerprint_ns,
    }
}

/// Why files were not used and packed tiles not written, by status, each with its tiles.
pub(crate) fn reasons(counted: &Counters, off: Option<&Off>) -> BTreeMap<packhouse_status, u64> {
    let refused = counted.refused.iter();
    let refused = refused.map(|(code, tiles)| (ImageCode::from(*code), *tiles));
    let unwritten = counted.not_written.iter();
    let unwritten = unwritten.map(|(code, tiles)| (ImageCode::of_not_written(*code, off), *tiles));
    let all = refused.chain(unwritten);
    all.map(|(code, tiles)| (code.number(), tiles)).collect()
}

/// Tells a serve's line.
pub(crate) fn line(line: &str, struct_size: u32) -> packhouse_line {
    let line = Shown(line).to_string();
    packhouse_line {
        struct_size,
        reserved: 0,
        text_bytes: line.len() as u64,
        text: chars_of(&line),
    }
}
