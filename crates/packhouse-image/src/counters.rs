//! What a serve did, as integers, and the one line that says so.

use crate::images::Off;
use crate::refusal::RefusalCode;
use crate::served::NotWrittenCode;
use crate::settings::Check;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// What a serve did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tiles that an image held.
    pub tiles_hit: u64,
    /// Tiles that were packed.
    pub tiles_packed: u64,
    /// Tiles whose image was written.
    pub tiles_written: u64,
    /// Files that were there and not used, by reason.
    pub refused: BTreeMap<RefusalCode, u64>,
    /// Packed tiles whose image was not written, by reason.
    pub not_written: BTreeMap<NotWrittenCode, u64>,
    /// Columns that were asked for to pack tiles.
    pub columns_gathered: u64,
    /// Columns that were asked for to be compared with an image.
    pub columns_sampled: u64,
    /// Bytes read of images.
    pub bytes_read: u64,
    /// Bytes of images written.
    pub bytes_written: u64,
    /// Files that were removed.
    pub files_removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
    /// What was in the way of noting the owner, or of removing what it left.
    pub owner_problems: u64,
    /// Hashing the head, where the caller told.
    pub head_hash_ns: u64,
    /// Reading images and hashing what was read.
    pub read_ns: u64,
    /// Comparing columns.
    pub sample_ns: u64,
    /// Packing.
    pub pack_ns: u64,
    /// Making room, hashing, writing, noting the owner.
    pub write_ns: u64,
    /// Taking the packer's fingerprint; 0 when these packers had it, or images are off.
    pub fingerprint_ns: u64,
}

impl Counters {
    /// Tiles that were served.
    pub const fn tiles(&self) -> u64 {
        self.tiles_hit + self.tiles_packed
    }

    /// Files that were there and not used.
    pub fn tiles_refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// What the line says beside the counters.
pub(crate) struct Line<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) off: Option<&'a Off>,
    pub(crate) seed: u64,
    pub(crate) check: Check,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.counters;
        f.write_str("packhouse: head image: ")?;
        if let Some(off) = self.off {
            write!(f, "off ({}): ", Shown(&off.to_string()))?;
        }
        let (tiles, written) = (counters.tiles(), counters.tiles_written);
        let (hit, packed) = (counters.tiles_hit, counters.tiles_packed);
        let noun = if tiles == 1 { "tile" } else { "tiles" };
        write!(
            f,
            "{tiles} {noun}: {hit} from images, {packed} packed, {written} written"
        )?;
        reasons(f, "refused", &counters.refused)?;
        if self.off.is_none() {
            reasons(f, "not written", &counters.not_written)?;
        }
        if counters.owner_problems > 0 {
            write!(
                f,
                "; problems with owner records: {}",
                counters.owner_problems
            )?;
        }
        if counters.files_removed > 0 {
            let bytes = units::bytes(counters.bytes_removed);
            write!(f, "; {} files removed ({bytes})", counters.files_removed)?;
        }
        write!(f, "; {} columns gathered", counters.columns_gathered)?;
        if self.off.is_none() {
            self.files(f)?;
        }
        let times = [
            ("head hash", counters.head_hash_ns),
            ("fingerprint", counters.fingerprint_ns),
            ("read", counters.read_ns),
            ("sample", counters.sample_ns),
            ("pack", counters.pack_ns),
            ("write", counters.write_ns),
        ];
        let mut separator = ';';
        // What rounds to `0 us` is left out.
        for (name, ns) in times.into_iter().filter(|(_, ns)| *ns >= 1_000) {
            write!(f, "{separator} {name} {}", units::duration_ns(ns))?;
            separator = ',';
        }
        Ok(())
    }
}

impl Line<'_> {
    /// What was done with files.
    fn files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.counters;
        match self.check {
            Check::Sample => {
                let seed = self.seed;
                write!(f, ", {} sampled (seed {seed:x})", counters.columns_sampled)?;
            }
            Check::Full => write!(f, ", {} compared (full)", counters.columns_sampled)?,
        }
        let read = units::bytes(counters.bytes_read);
        let written = units::bytes(counters.bytes_written);
        write!(f, "; {read} read, {written} written")
    }
}

/// Says how many there are of each reason, when there are any.
fn reasons<R: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    counts: &BTreeMap<R, u64>,
) -> fmt::Result {
    let mut text = String::new();
    for (reason, count) in counts {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{count} {reason}")?;
    }
    match text.is_empty() {
        true => Ok(()),
        false => write!(f, "; {what}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_times_of_what_was_done() {
        let counters = Counters {
            tiles_packed: 1,
            columns_gathered: 9,
            fingerprint_ns: 5_000_000,
            read_ns: 999,
            sample_ns: 0,
            pack_ns: 1_000,
            ..Counters::default()
        };
        let line = Line {
            counters: &counters,
            off: Some(&Off::Switch),
            seed: 0,
            check: Check::Sample,
        };
        let text = "packhouse: head image: off (switched off): 1 tile: 0 from images, 1 packed, 0 \
                    written; 9 columns gathered; fingerprint 5 ms, pack 1 us";
        assert_eq!(line.to_string(), text);
    }
}
