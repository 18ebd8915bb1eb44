//! The words of `packhouse image`.

use crate::cli::{byte_count, thread_count};
use clap::{Args, Subcommand, ValueEnum};
use packhouse_layout::int8_tile::{SIZE_MAX, TileOrder};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// One command on head-tile images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Pack a model's head into tiles and store them, or find them
    ///
    /// The head is `output.weight`, or the token embedding where a model ties both. A tile that is
    /// stored is used only if its bytes hold and a sample of its columns, packed again from the
    /// model, agrees bit for bit; any other is made again. Ends with 3 unless all are stored.
    #[command(verbatim_doc_comment)]
    Prepare(ImagePrepareArgs),
    /// Hash stored tiles, or with --model pack every column again and compare
    ///
    /// Hashing shows that a tile has not changed since it was stored. Only --model shows that it is
    /// what the model packs to.
    #[command(verbatim_doc_comment)]
    Verify(ImageVerifyArgs),
    /// List the stored images: one line per head and geometry
    Ls(ImageFolderArgs),
    /// Remove what was not used for long, or what is above a size, oldest use first
    Gc(ImageGcArgs),
    /// Remove images by their keys
    Rm(ImageRmArgs),
}

/// Where images are.
#[derive(Debug, Args)]
pub(crate) struct ImageFolderArgs {
    /// Folder of images, the user's alone [default: PACKHOUSE_IMAGES, else in the user's cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) images: Option<PathBuf>,
}

/// Orders of a tile's codes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TileLayout {
    /// Row by row, a column's codes ND bytes apart
    #[value(name = "int8-tile-rm-v1")]
    RowMajor,
    /// Blocks of 64 by 128 codes, in each of them 8 by 8 microtiles
    #[value(name = "int8-tile-b8-v1")]
    Blocked,
}

impl TileLayout {
    /// The order that the packer knows.
    pub(crate) fn order(self) -> TileOrder {
        match self {
            Self::RowMajor => TileOrder::RowMajor,
            Self::Blocked => TileOrder::Blocked,
        }
    }
}

/// What `image prepare` takes.
#[derive(Debug, Args)]
pub(crate) struct ImagePrepareArgs {
    /// A GGUF file, or the first of its shards
    pub(crate) model: PathBuf,
    /// Depth rows of the device's buffer
    #[arg(long, value_name = "N", value_parser = size)]
    pub(crate) kd: u64,
    /// Columns of the head in a tile
    #[arg(long, value_name = "N", value_parser = size)]
    pub(crate) t: u64,
    /// Columns of the device's buffer [default: T]
    #[arg(long, value_name = "N", value_parser = size)]
    pub(crate) nd: Option<u64>,
    /// Depth rows that are packed, at least the model's hidden size [default: KD]
    #[arg(long, value_name = "N", value_parser = size)]
    pub(crate) kpad: Option<u64>,
    /// Order of a tile's codes
    #[arg(
        long,
        value_enum,
        default_value = "int8-tile-rm-v1",
        hide_possible_values = true
    )]
    pub(crate) layout: TileLayout,
    /// The head's tensor [default: output.weight, else token_embd.weight]
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,
    /// Whose the image is; theirs of another head in this geometry goes [default: MODEL[#NAME]]
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) folder: ImageFolderArgs,
    /// Threads that read, pack and hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Pack every column of a stored tile again, not a sample
    #[arg(long)]
    pub(crate) full: bool,
    /// Size that all images together may have, e.g. 20GiB [default: a fifth of the disk]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) max_bytes: Option<u64>,
    /// Space that the disk keeps free [default: 10GiB]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) min_free: Option<u64>,
}

/// What `image verify` takes.
#[derive(Debug, Args)]
pub(crate) struct ImageVerifyArgs {
    /// Image keys, 8 or more hex digits each [default: every image]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Pack every column again from this model, and compare the images of its head
    #[arg(long)]
    pub(crate) model: Option<PathBuf>,
    /// With --model: the head's tensor [default: output.weight, else token_embd.weight]
    #[arg(long, value_name = "NAME", requires = "model")]
    pub(crate) tensor: Option<String>,
    #[command(flatten)]
    pub(crate) folder: ImageFolderArgs,
    /// Threads that hash and pack [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// What `image gc` takes.
#[derive(Debug, Args)]
pub(crate) struct ImageGcArgs {
    /// Remove images, longest unused first, until no more than this is left, e.g. 20GiB
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) max_bytes: Option<u64>,
    /// Remove images that were not used for so long, e.g. 12h or 30d
    #[arg(long, value_name = "AGE", value_parser = age_ns)]
    pub(crate) max_age: Option<u64>,
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) folder: ImageFolderArgs,
}

/// What `image rm` takes.
#[derive(Debug, Args)]
pub(crate) struct ImageRmArgs {
    /// Image keys, 8 or more hex digits each
    #[arg(
        value_name = "KEY",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) keys: Vec<String>,
    /// Every image
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) folder: ImageFolderArgs,
}

/// Parses a size of a tile.
fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().ok();
    let size = size.filter(|size| (1..=SIZE_MAX).contains(size));
    size.ok_or_else(|| format!("not a whole number from 1 to {SIZE_MAX}"))
}

/// Parses `90s`, `45m`, `12h`, `30d` to nanoseconds; errors name the text.
fn age_ns(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(split.unwrap_or(text.len()));
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err("a unit is one of s m h d".to_owned()),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| "not a whole number".to_owned())?;
    let ns = count.checked_mul(seconds).and_then(|s| s.checked_mul(NS));
    ns.ok_or_else(|| "more than 584 years".to_owned())
}

const NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units_and_limits() {
        assert_eq!(age_ns("0s"), Ok(0));
        assert_eq!(age_ns("45m"), Ok(45 * 60 * NS));
        assert_eq!(age_ns("30d"), Ok(30 * 86_400 * NS));
        assert_eq!(age_ns("12h"), Ok(12 * 3_600 * NS));
        for wrong in ["", "30", "d", "-1d", "1.5d", "1w", "999999999999d", "1 d"] {
            assert!(age_ns(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_default_in_the_help_is_the_librarys() {
        assert_eq!(packhouse_image::MIN_FREE_BYTES, 10 << 30);
    }
}
