//! Whether a folder of copies is in RAM, told in the same words by every command.

use crate::answer::say;
use crate::places::Lookup;
use crate::stage;
use packhouse_stage::StageRoot;
use packhouse_sys::stat::FsKind;
use std::path::Path;

/// Whether the copies of a folder are in RAM.
pub(crate) fn is_ram(root: &StageRoot) -> bool {
    root.file_system().is_ram()
}

/// A line where copies are not in RAM, else nothing.
pub(crate) fn note(root: &StageRoot) -> String {
    note_of(root.path(), root.file_system())
}

/// Says that the copies of the environment's folder are not in RAM, where it is so.
pub(crate) fn note_of_own(lookup: Lookup<'_>) -> Option<String> {
    let path = stage::root_path(None, lookup).ok()?;
    let kind = stage::open_root(&path, false).ok()?.file_system();
    (!kind.is_ram()).then(|| words(&path, kind))
}

fn words(folder: &Path, kind: FsKind) -> String {
    let folder = folder.display();
    format!("copies in {folder} are not in RAM: it is on {kind}")
}

/// Prints the note to stderr, for a command whose stdout is read by scripts.
pub(crate) fn complain(root: &StageRoot) {
    say(note(root));
}

/// Where copies are, in a few words.
pub(crate) fn place(kind: Option<FsKind>) -> String {
    match kind {
        Some(kind) if !kind.is_ram() => format!("on {kind}, not in RAM"),
        Some(_) | None => "in memory".to_owned(),
    }
}

fn note_of(folder: &Path, kind: FsKind) -> String {
    match kind.is_ram() {
        true => String::new(),
        false => crate::image::line(&format!("note: {}", words(folder, kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_system_in_ram_makes_copies_in_ram() {
        let note = |kind| note_of(Path::new("/a"), kind);
        assert_eq!(note(FsKind::Tmpfs), "");
        for kind in [FsKind::Ext, FsKind::Xfs, FsKind::Btrfs, FsKind::Overlay] {
            let expected = format!("note: copies in /a are not in RAM: it is on {kind}\n");
            assert_eq!(note(kind), expected);
            assert_eq!(place(Some(kind)), format!("on {kind}, not in RAM"));
        }
        assert_eq!(place(Some(FsKind::Tmpfs)), "in memory");
    }
}
