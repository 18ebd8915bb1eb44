//! `image gc` and `image rm`: what was removed, or would be, and why.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure, quoted};
use crate::image::{self, Allowed};
use crate::image_words::{ImageFolderArgs, ImageGcArgs, ImageRmArgs};
use crate::places::{self, Lookup};
use packhouse_base::units;
use packhouse_image::{
    CollectError, Collected, Limits, Removal, Removed, Selection, collect as sweep,
    remove as take_out,
};
use packhouse_sys::clock::RealClock;
use serde_json::json;
use std::path::Path;

/// Removes what is stale, damaged, too old or too much. What could not be removed makes it "not
/// executed".
pub(crate) fn collect(args: &ImageGcArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = places::images(args.folder.images.as_deref(), lookup)?;
    if !args.dry_run {
        may_change(&path, lookup)?;
    }
    let limits = Limits {
        max_bytes: args.max_bytes,
        max_age_ns: args.max_age,
    };
    let Some(folder) = image::open(&path)? else {
        return Ok(collected(&path, &Collected::default(), args.dry_run));
    };
    let found = sweep(&folder, &RealClock, limits, args.dry_run)
        .map_err(|error| refused("gc did not run", &path, &error))?;
    Ok(collected(&path, &found, args.dry_run))
}

/// Removes images by their keys, or all.
pub(crate) fn remove(args: &ImageRmArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = places::images(args.folder.images.as_deref(), lookup)?;
    may_change(&path, lookup)?;
    let keys = args.keys.iter().map(|key| image::digits(key, &args.folder));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let Some(folder) = image::open(&path)? else {
        return match keys.first() {
            None => Ok(removed_answer(&path, &Removal::default())),
            Some(key) => Err(none_of(key, &path, &args.folder)),
        };
    };
    if args.all {
        let removal = take_out(&folder, &RealClock, Selection::All, false);
        let removal = removal.map_err(|error| refused("nothing was removed", &path, &error))?;
        return Ok(removed_answer(&path, &removal));
    }
    // All keys are judged before the first goes.
    for key in &keys {
        take_out(&folder, &RealClock, Selection::Key(key), true)
            .map_err(|error| not_meant(key, &path, &args.folder, &error))?;
    }
    let mut all = Removal::default();
    for key in &keys {
        let removal = take_out(&folder, &RealClock, Selection::Key(key), false);
        match removal {
            Ok(removal) => {
                all.removed.extend(removal.removed);
                all.failures.extend(removal.failures);
            }
            // Given twice, or another process was faster.
            Err(CollectError::Absent { .. }) => {}
            Err(error) => return Err(not_meant(key, &path, &args.folder, &error)),
        }
    }
    Ok(removed_answer(&path, &all))
}

fn not_meant(key: &str, path: &Path, folder: &ImageFolderArgs, error: &CollectError) -> Failure {
    match error {
        CollectError::Absent { .. } => none_of(key, path, folder),
        CollectError::Prefix { .. } | CollectError::Ambiguous { .. } => {
            Failure::usage("which image", key)
                .because(error)
                .hint(image::hint("ls", folder))
        }
        CollectError::Busy { .. } | CollectError::Fs(_) => {
            refused("nothing was removed", path, error)
        }
    }
}

fn none_of(key: &str, path: &Path, folder: &ImageFolderArgs) -> Failure {
    Failure::new("no such image", key)
        .cause(format!("none in {} begins so", path.display()))
        .hint(image::hint("ls", folder))
}

fn may_change(path: &Path, lookup: Lookup<'_>) -> Result<(), Failure> {
    match Allowed::of(lookup) {
        Allowed::Reading => Err(image::read_only(path)),
        // The switch is about engines; who asks for a removal means it.
        Allowed::Nothing | Allowed::Writing => Ok(()),
    }
}

fn refused(what: &str, path: &Path, error: &CollectError) -> Failure {
    Failure::new(what, path.display())
        .because(error)
        .hint(format!("ls -la {}", quoted(path)))
}

fn removed_answer(path: &Path, removal: &Removal) -> Answer {
    let mut text = removed_text(&removal.removed);
    for failure in &removal.failures {
        text += &image::line(&format!("not removed: {failure}"));
    }
    text += &format!(
        "removed {}, {}\n",
        files(removal),
        units::bytes(removal.freed_bytes())
    );
    let json = json!({
        "folder": path.display().to_string(),
        "removed": image::removed_document(&removal.removed),
        "removed_bytes": removal.freed_bytes(),
        "failures": failures(removal),
    });
    Answer {
        text,
        json,
        exit: exit(removal),
    }
}

fn collected(path: &Path, found: &Collected, dry_run: bool) -> Answer {
    let removal = &found.removal;
    let mut text = removed_text(&removal.removed);
    for failure in &removal.failures {
        text += &image::line(&format!("not removed: {failure}"));
    }
    for fault in &found.unread {
        text += &image::line(&format!("stays, could not be read: {fault}"));
    }
    for stray in &found.strays {
        let (name, kind) = (&stray.name, stray.kind);
        text += &image::line(&format!("not ours, stays: {name} ({kind})"));
    }
    if found.over_bytes > 0 {
        let bytes = units::bytes(found.over_bytes);
        text += &format!("{bytes} above the cap are being written\n");
    }
    let verb = match dry_run {
        true => "would remove",
        false => "removed",
    };
    text += &format!(
        "{verb} {}, {} of {}\n",
        files(removal),
        units::bytes(removal.freed_bytes()),
        units::bytes(found.held_bytes),
    );
    let json = json!({
        "folder": path.display().to_string(),
        "dry_run": dry_run,
        "removed": image::removed_document(&removal.removed),
        "removed_bytes": removal.freed_bytes(),
        "held_bytes": found.held_bytes,
        "above_cap_bytes": found.over_bytes,
        "failures": failures(removal),
        "unread": found.unread.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "not_ours": found.strays.iter().map(|stray| stray.name.as_str()).collect::<Vec<_>>(),
    });
    Answer {
        text,
        json,
        exit: exit(removal),
    }
}

/// Each removal with its size and its reason.
fn removed_text(removed: &[Removed]) -> String {
    let rows: Vec<Vec<String>> = removed
        .iter()
        .map(|removed| {
            let bytes = units::bytes(removed.bytes);
            vec![removed.name.clone(), bytes, removed.why.to_string()]
        })
        .collect();
    table(&[Column::Left, Column::Right, Column::Left], &rows)
}

fn files(removal: &Removal) -> String {
    match removal.removed.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

fn failures(removal: &Removal) -> Vec<String> {
    removal.failures.iter().map(ToString::to_string).collect()
}

fn exit(removal: &Removal) -> Exit {
    match removal.failures.is_empty() {
        true => Exit::Done,
        false => Exit::NotExecuted,
    }
}
