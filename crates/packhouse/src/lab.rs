//! `lab`: evidence that can't be miscounted or quietly redone.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab_words::{LabArgs, LabCommand};
use crate::places::{self, Lookup};
use crate::{
    hints, lab_analyse, lab_arm, lab_experiment, lab_init, lab_lane, lab_ledger, lab_record,
    lab_register, lab_rehearse, lab_report, lab_review, lab_run, lab_seal, lab_state, lab_verify,
    lab_withdraw,
};
use std::path::{Path, PathBuf};

/// Executes one command of the lab.
pub(crate) fn execute(args: LabArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let given = args.lab.as_deref();
    let place = || Place::find(given, lookup);
    match args.command {
        LabCommand::Init(args) => lab_init::execute(&args, given, lookup),
        LabCommand::Lane(command) => lab_lane::execute(&command, &place()?),
        LabCommand::Experiment(command) => lab_experiment::execute(&command, &place()?),
        LabCommand::Register(args) => lab_register::execute(&args, &place()?),
        LabCommand::Rehearse(args) => lab_rehearse::execute(&args, &place()?),
        LabCommand::Review(args) => lab_review::execute(&args, &place()?),
        LabCommand::Arm(args) => lab_arm::execute(&args, &place()?),
        LabCommand::Withdraw(args) => lab_withdraw::execute(&args, &place()?),
        LabCommand::Run(args) => lab_run::execute(&args, &place()?),
        LabCommand::Seal(args) => lab_seal::execute(&args, &place()?),
        LabCommand::Verify(args) => lab_verify::execute(&args, given),
        LabCommand::Analyse(args) => lab_analyse::execute(&args, &place()?),
        LabCommand::Record(args) => lab_record::execute(&args, &place()?),
        LabCommand::Ledger(args) => lab_ledger::execute(&args, &place()?),
        LabCommand::State(args) => lab_state::execute(&args, &place()?, lookup),
        LabCommand::Report(args) => lab_report::execute(&args, &place()?),
    }
}

/// The folder of a lab, and the user's own memory of labs.
pub(crate) struct Place {
    /// The lab's folder, absolute.
    pub(crate) root: PathBuf,
    /// The user's private state folder (`<state>`; the lab's part is `lab` below it).
    pub(crate) state: PathBuf,
    given: Option<PathBuf>,
}

impl Place {
    /// The folder as given, else the nearest one upwards from here that has a ledger.
    pub(crate) fn find(given: Option<&Path>, lookup: Lookup<'_>) -> Result<Self, Failure> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| {
                // No path is empty, so that this hangs on the folder that this process is in.
                Failure::new("not a folder of a lab", path.display())
                    .because(&error)
                    .cause("the folder that this was started in is gone, or can't be looked up")
                    .hint("packhouse lab state --lab DIR")
            })
        };
        let state = places::state(lookup)?;
        let root = match given {
            Some(given) => absolute(given)?,
            None => nearest(&absolute(Path::new("."))?)?,
        };
        if !has_ledger(&root) {
            return Err(no_lab(&root));
        }
        Ok(Self {
            root,
            state,
            given: given.map(Path::to_path_buf),
        })
    }

    /// A folder that is about to become a lab.
    pub(crate) fn at(root: PathBuf, lookup: Lookup<'_>) -> Result<Self, Failure> {
        let given = Some(root.clone());
        let state = places::state(lookup)?;
        Ok(Self { root, state, given })
    }

    /// A command for a hint, on the same lab.
    pub(crate) fn hint(&self, words: &str) -> String {
        match &self.given {
            Some(path) => format!("packhouse lab {words} --lab {}", quoted(path)),
            None => format!("packhouse lab {words}"),
        }
    }
}

fn nearest(here: &Path) -> Result<PathBuf, Failure> {
    let found = here.ancestors().find(|folder| has_ledger(folder));
    found.map(Path::to_path_buf).ok_or_else(|| {
        let failure = Failure::new("no lab here or above", here.display())
            .cause(format!("no folder upwards has {LEDGER}"));
        match below(here) {
            Some(lab) => failure
                .cause(format!("{} is a lab", lab.display()))
                .hint(format!("packhouse lab state --lab {}", quoted(&lab))),
            None => failure.hint("packhouse lab state --lab DIR"),
        }
    })
}

/// The folder that was given is no lab: one that it lies in is named, else what there is of it.
fn no_lab(root: &Path) -> Failure {
    let failure = Failure::new("no lab in this folder", root.display());
    let mut above = root.ancestors().skip(1);
    if let Some(lab) = above.find(|folder| has_ledger(folder)) {
        return failure
            .cause(format!("it has no {LEDGER}; {} is a lab", lab.display()))
            .hint(format!("packhouse lab state --lab {}", quoted(lab)));
    }
    if root.symlink_metadata().is_err() {
        return failure.cause("it is not there").hint(hints::listed(root));
    }
    if crate::files::entries(root).is_err() {
        return failure
            .cause("it is no folder that can be read")
            .hint(hints::listed(root));
    }
    failure
        .cause(format!("it has no {LEDGER}"))
        .hint(format!("packhouse lab init {} --execute", quoted(root)))
}

/// The only lab among the folders in a folder.
fn below(folder: &Path) -> Option<PathBuf> {
    let entries = crate::files::entries(folder).ok()?;
    let mut labs = entries.into_iter().filter(|entry| has_ledger(entry));
    labs.next().filter(|_| labs.next().is_none())
}

fn has_ledger(folder: &Path) -> bool {
    folder.join(LEDGER).symlink_metadata().is_ok()
}

/// The file that makes a folder a lab.
pub(crate) const LEDGER: &str = "ledger.jsonl";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ledger_upwards_is_said_with_the_folder() {
        let failure = nearest(Path::new("/proc")).expect_err("because /proc is no lab");
        assert!(failure.to_string().contains("no lab here or above: /proc"));
    }
}
