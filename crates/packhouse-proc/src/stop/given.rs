//! What a stop is given to work with: the order, and what can be read of the other records. One
//! that is damaged keeps nobody from stopping what is proven to be the run's without it.

use super::escalate::Group;
use super::{Scene, StopError};
use crate::records::{Identity, Launched, Order, Record, Released, RunExit, Stop};
use crate::runs::{Run, RunsError};

/// A record that is there and can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its name.
    pub file: &'static str,
    /// What is wrong with it.
    pub why: RunsError,
}

/// The records of a run beside its order, as far as they can be read.
pub(super) struct Given<'a> {
    pub(super) begun: Option<Stop>,
    pub(super) exit: Option<RunExit>,
    pub(super) released: Option<Released>,
    pub(super) damaged: Vec<Damaged>,
    pub(super) group: Group<'a>,
}

/// Which processes were launched; the error of a damaged record is for `all`.
pub(super) fn launched(run: &Run) -> Result<Option<Launched>, RunsError> {
    run.read()
}

/// Reads what there is, and begins the group with it.
pub(super) fn all<'a>(
    scene: &'a Scene<'a>,
    run: &Run,
    order: &'a Order,
    launched: Result<Option<Launched>, RunsError>,
) -> Result<Given<'a>, StopError> {
    let mut damaged = Vec::new();
    let is_launch_damaged = launched.is_err();
    let launched = sound(launched, &mut damaged)?;
    let begun = sound(run.read(), &mut damaged)?;
    let exit = sound(run.read(), &mut damaged)?;
    let released = sound(run.read(), &mut damaged)?;
    let identity: Option<Identity> = sound(run.read(), &mut damaged)?;
    let mut group = Group::new(scene, run, order, launched.as_ref())?;
    if let Some(identity) = identity.filter(|_| is_launch_damaged) {
        group.learn_worker(identity.worker);
    }
    Ok(Given {
        begun,
        exit,
        released,
        damaged,
        group,
    })
}

/// Gives the damaged records of which `is_due` is true another name.
pub(super) fn set_aside(
    run: &Run,
    damaged: &[Damaged],
    is_due: impl Fn(&str) -> bool,
) -> Result<(), StopError> {
    for record in damaged.iter().filter(|record| is_due(record.file)) {
        if is_damaged(run, record.file) {
            run.set_aside(record.file)?;
        }
    }
    Ok(())
}

/// Whether a record is damaged still: a sound one may have been written in its place.
fn is_damaged(run: &Run, file: &str) -> bool {
    fn of<R: Record>(run: &Run, file: &str) -> bool {
        file == R::FILE && run.read::<R>().is_err_and(|error| error.is_damage())
    }
    of::<Launched>(run, file)
        || of::<Identity>(run, file)
        || of::<RunExit>(run, file)
        || of::<Stop>(run, file)
        || of::<Released>(run, file)
}

fn sound<R: Record>(
    read: Result<Option<R>, RunsError>,
    damaged: &mut Vec<Damaged>,
) -> Result<Option<R>, StopError> {
    match read {
        Ok(record) => Ok(record),
        Err(why) if why.is_damage() => {
            damaged.push(Damaged { file: R::FILE, why });
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
