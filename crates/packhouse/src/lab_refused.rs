//! How the lab's refusals are told: each with its one command that helps.

use crate::failure::{Failure, quoted};
use crate::lab::Place;
use packhouse_lab::freeze::FreezeError;
use packhouse_lab::world::HostError;

/// Why an experiment can't be frozen, or is not what was frozen.
pub(crate) fn of_freeze(failure: Failure, place: &Place, error: &FreezeError) -> Failure {
    let shown = |path: &str| format!("ls -ld {}", quoted(place.root.join(path)));
    match error {
        FreezeError::Absent { path }
        | FreezeError::Misplaced { path, .. }
        | FreezeError::NotFile { path, .. }
        | FreezeError::Folder { path, .. } => failure.because(error).hint(shown(path)),
        FreezeError::Document { path, .. } => {
            let path = place.root.join(path);
            failure
                .because(error)
                .hint(format!("$EDITOR {}", quoted(path)))
        }
        FreezeError::Dirty { path, .. } => {
            let path = place.root.join(path);
            failure
                .because(error)
                .hint(format!("git -C {} status", quoted(path)))
        }
        FreezeError::Fixture { .. } => failure.because(error).hint("packhouse fixture ls"),
        FreezeError::Changed { differences } => {
            let all = differences.iter();
            let failure = all.fold(failure, |failure, one| failure.cause(one.to_string()));
            failure
                .cause("what is registered may not change: put it back, or register anew")
                .hint(place.hint("state"))
        }
        FreezeError::Host(error) => match error {
            HostError::Git { folder, .. } => failure
                .because(error)
                .hint(format!("git -C {} status", quoted(folder))),
            HostError::NotLoaded { program, .. } => failure
                .because(error)
                .hint(format!("ldd {}", quoted(program))),
            HostError::NoProgram { program, .. } => failure
                .because(error)
                .hint(format!("ls -l {}", quoted(program))),
            HostError::Unknown { .. } => failure.because(error).hint(of_host(place)),
        },
        FreezeError::Fs(error) => {
            let path = quoted(&error.path);
            failure.because(error).hint(format!("ls -ld {path}"))
        }
    }
}

/// The command where the host is in the way.
pub(crate) fn of_host(place: &Place) -> String {
    format!("df -h {}", quoted(&place.root))
}
