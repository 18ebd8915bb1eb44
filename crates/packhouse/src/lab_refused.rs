//! How the lab's refusals are told: each with its one command that helps.

use crate::failure::{Failure, quoted};
use crate::lab::Place;
use packhouse_lab::freeze::{FreezeError, NotFrozen, Unfrozen};
use packhouse_lab::world::HostError;
use std::collections::BTreeSet;

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
        FreezeError::Unfrozen { path, unfrozen } => {
            let all = unfrozen.iter();
            let mut failure = all.fold(failure, |failure, one| failure.cause(one.to_string()));
            for line in paste(unfrozen) {
                failure = failure.cause(line);
            }
            failure.hint(format!("$EDITOR {}", quoted(place.root.join(path))))
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

/// The lines of a preregistration that freeze what is there and not frozen.
fn paste(unfrozen: &[Unfrozen]) -> Vec<String> {
    let listed = unfrozen.iter().filter(|one| one.why == NotFrozen::Listed);
    let paths: BTreeSet<&str> = listed.map(|one| one.path.as_str()).collect();
    let mut lines: Vec<String> = paths
        .iter()
        .flat_map(|path| ["[[frozen]]".to_owned(), format!("path = {path:?}")])
        .collect();
    if !lines.is_empty() {
        lines.insert(0, "these lines freeze it:".to_owned());
    }
    lines
}

/// The command where the host is in the way.
pub(crate) fn of_host(place: &Place) -> String {
    format!("df -h {}", quoted(&place.root))
}
