//! `image`: head-tile images, one file per tile, for engines that read files and no store.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::image_prepare;
use crate::image_words::{ImageCommand, ImageFolderArgs};
use crate::places::Lookup;
use crate::{image_look, image_remove, image_verify};
use packhouse_base::shown::Shown;
use packhouse_image::{Folder, FolderError, Removed};
use packhouse_store::root::OpenError;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::Path;

/// Executes one command on images.
pub(crate) fn execute(command: ImageCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        ImageCommand::Prepare(args) => image_prepare::prepare(&args, lookup),
        ImageCommand::Verify(args) => image_verify::verify(&args, lookup),
        ImageCommand::Ls(args) => image_look::list(&args, lookup),
        ImageCommand::Gc(args) => image_remove::collect(&args, lookup),
        ImageCommand::Rm(args) => image_remove::remove(&args, lookup),
    }
}

/// What the user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// `PACKHOUSE=0`.
    Nothing,
    /// `PACKHOUSE_READONLY=1`.
    Reading,
    /// All.
    Writing,
}

impl Allowed {
    /// Asks the environment.
    pub(crate) fn of(lookup: Lookup<'_>) -> Self {
        if lookup("PACKHOUSE").is_some_and(|value| value == "0") {
            Self::Nothing
        } else if lookup("PACKHOUSE_READONLY").is_some_and(|value| value != "0") {
            Self::Reading
        } else {
            Self::Writing
        }
    }
}

/// What is said where images are switched off.
pub(crate) fn off() -> Failure {
    Failure::new("images are off", "PACKHOUSE=0")
        .cause("then none is read and none is written")
        .hint("unset PACKHOUSE")
}

/// What is said where something would have to be removed or written.
pub(crate) fn read_only(path: &Path) -> Failure {
    Failure::new("the folder of images is read-only", path.display())
        .cause("PACKHOUSE_READONLY is set")
        .hint("unset PACKHOUSE_READONLY")
}

/// Opens the folder of images; `None` when nobody made one yet.
pub(crate) fn open(path: &Path) -> Result<Option<Folder>, Failure> {
    Folder::open(&RealFs, path, false).map_err(|error| unusable(path, &error))
}

/// A command for a hint, on the same folder.
pub(crate) fn hint(words: &str, folder: &ImageFolderArgs) -> String {
    match &folder.images {
        Some(path) => format!("packhouse image {words} --images {}", quoted(path)),
        None => format!("packhouse image {words}"),
    }
}

/// One line of an answer. It may hold names of others: what a terminal would obey in them is
/// spelled out.
pub(crate) fn line(text: &str) -> String {
    format!("{}\n", Shown(text))
}

/// The beginning of an image's key, cut to what the names of files have of it.
pub(crate) fn digits<'k>(key: &'k str, folder: &ImageFolderArgs) -> Result<&'k str, Failure> {
    let mut bytes = key.bytes();
    let is_hex = bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || !(DIGITS_MIN..=DIGITS_MAX).contains(&key.len()) {
        return Err(Failure::usage("not an image key", key)
            .cause(format!(
                "an image key is given by {DIGITS_MIN} to {DIGITS_MAX} digits of 0-9 and a-f"
            ))
            .hint(hint("ls", folder)));
    }
    Ok(&key[..key.len().min(NAME_DIGITS)])
}

/// Says why a folder can't be used.
pub(crate) fn unusable(path: &Path, error: &FolderError) -> Failure {
    let hint = match error {
        FolderError::Path(OpenError::Writable { path, .. }) => {
            format!("chmod go-w {}", quoted(path))
        }
        FolderError::Owner { path, .. }
        | FolderError::Path(OpenError::Owner { path, .. } | OpenError::NotDirectory { path, .. }) =>
        {
            format!("ls -ld {}", quoted(path))
        }
        FolderError::Path(
            OpenError::Relative { .. }
            | OpenError::Missing { .. }
            | OpenError::TooManyLinks { .. }
            | OpenError::State(_)
            | OpenError::Id { .. }
            | OpenError::Publish(_)
            | OpenError::Fs(_),
        ) => format!("ls -la {}", quoted(path)),
    };
    Failure::new("cannot use the folder of images", path.display())
        .because(error)
        .hint(hint)
}

/// Threads as asked for, else one per CPU.
pub(crate) fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
}

/// What was removed, for `--json`.
pub(crate) fn removed_document(removed: &[Removed]) -> Value {
    let removed = removed.iter().map(|removed| {
        json!({
            "file": removed.name,
            "bytes": removed.bytes,
            "reason": removed.why.code(),
            "text": removed.why.to_string(),
        })
    });
    removed.collect()
}

const DIGITS_MIN: usize = 8;
const DIGITS_MAX: usize = 64;
/// The names of an image's files begin with so many digits of its key.
const NAME_DIGITS: usize = 32;
