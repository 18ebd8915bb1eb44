//! The one command that shows why a path can't be used: on what is there, and names in the cause.

use crate::failure::quoted;
use packhouse_build::focused::RunsError;
use packhouse_fixture::published::PublishError as ShelfError;
use packhouse_prepare::beside::BesideError;
use packhouse_prepare::registry::{PublishError, RegistryError};
use packhouse_store::root::OpenError;
use packhouse_store::state::StateError;
use packhouse_sys::fs::{FsError, FsErrorKind};
use std::error::Error;
use std::io;
use std::path::Path;

/// The command for an error on `path`: the folder that is open to others is closed, a full file
/// system is measured, and else the path of the cause is listed, or what there is of it.
pub(crate) fn of(error: &(dyn Error + 'static), path: &Path) -> String {
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return of_open(error, path);
    }
    if let Some(error) = error.downcast_ref::<FsError>() {
        return of_fs(error);
    }
    match error.downcast_ref::<RegistryError>() {
        Some(RegistryError::Path(error)) => return of_open(error, path),
        Some(RegistryError::State(error)) => return of_state(error, path),
        None => {}
    }
    match error.downcast_ref::<RunsError>() {
        Some(RunsError::Folder(error)) => return of_open(error, path),
        Some(RunsError::Fs(error)) => return of_fs(error),
        Some(RunsError::Mode { path, .. } | RunsError::Busy { path }) => return listed(path),
        None => {}
    }
    if let Some(PublishError::Fs(error)) = error.downcast_ref() {
        return of_fs(error);
    }
    if let Some(ShelfError::Fs(error)) = error.downcast_ref() {
        return of_fs(error);
    }
    match error.downcast_ref::<BesideError>() {
        Some(BesideError::Fs(error)) => return of_fs(error),
        Some(
            BesideError::Taken { path }
            | BesideError::Busy { path }
            | BesideError::Foreign { path, .. },
        ) => return listed(path),
        None => {}
    }
    match error.downcast_ref::<io::Error>() {
        Some(outer) => match outer.get_ref() {
            Some(inner) if !inner.is::<io::Error>() => of(inner, path),
            Some(_) | None => of_io(outer, path),
        },
        None => listed(path),
    }
}

fn of_open(error: &OpenError, path: &Path) -> String {
    match error {
        OpenError::Writable { path, .. } => format!("chmod go-w {}", quoted(path)),
        OpenError::State(error) => of_state(error, path),
        OpenError::Fs(error) => of_fs(error),
        OpenError::Relative { path }
        | OpenError::Missing { path }
        | OpenError::Owner { path, .. }
        | OpenError::NotDirectory { path, .. }
        | OpenError::TooManyLinks { path }
        | OpenError::Id { path, .. } => listed(path),
        OpenError::Publish(_) => listed(path),
    }
}

fn of_state(error: &StateError, path: &Path) -> String {
    match error {
        StateError::Mode { path, .. } => format!("chmod 0700 {}", quoted(path)),
        StateError::Owner { path, .. } => listed(path),
        StateError::Fs(error) => of_fs(error),
        _ => listed(path),
    }
}

fn of_fs(error: &FsError) -> String {
    match error.kind {
        FsErrorKind::NoSpace | FsErrorKind::Quota => measured(&error.path),
        FsErrorKind::TooLarge => "ulimit -f".to_owned(),
        _ => listed(&error.path),
    }
}

fn of_io(error: &io::Error, path: &Path) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => measured(path),
        _ => listed(path),
    }
}

/// Lists a path, or the nearest folder above it that is there.
pub(crate) fn listed(path: &Path) -> String {
    format!("ls -ld {}", quoted(there(path)))
}

fn measured(path: &Path) -> String {
    format!("df -h {}", quoted(there(path)))
}

/// What there is of a path.
fn there(path: &Path) -> &Path {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    let above = path.ancestors().find(is_there);
    above.unwrap_or(match path.is_absolute() {
        true => Path::new("/"),
        false => Path::new("."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::fs::Operation;
    use std::path::PathBuf;

    #[test]
    fn a_hint_names_what_is_there_and_what_can_be_done() {
        let path = Path::new("/nosuch/x");
        let fs = |kind| FsError {
            operation: Operation::MakeDir,
            path: PathBuf::from("/usr/nosuch/y"),
            kind,
        };
        let open = OpenError::Writable {
            path: PathBuf::from("/tmp/a b"),
            mode: 0o777,
        };
        assert_eq!(of(&open, path), "chmod go-w '/tmp/a b'");
        let wrapped = OpenError::Fs(fs(FsErrorKind::Permission));
        assert_eq!(of(&wrapped, path), "ls -ld /usr");
        assert_eq!(of(&fs(FsErrorKind::NoSpace), path), "df -h /usr");
        assert_eq!(of(&fs(FsErrorKind::TooLarge), path), "ulimit -f");
        let outer = io::Error::other(BesideError::Fs(fs(FsErrorKind::Quota)));
        assert_eq!(of(&outer, path), "df -h /usr");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(of(&full, path), "df -h /");
        let absent = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(of(&absent, path), "ls -ld /");
        assert_eq!(of(&absent, Path::new("nosuch/x")), "ls -ld .");
    }
}
