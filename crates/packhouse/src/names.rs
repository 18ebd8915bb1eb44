//! `rm`, `pin` and `unpin`: the names by which sets are kept.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::stores::{self, short};
use packhouse_store::pins::PinError;
use packhouse_store::rm::RemoveError;
use packhouse_store::root::Store;
use serde_json::json;

/// Drops a set's name. Its packs and objects stay until a gc finds them unused.
pub(crate) fn remove(store: &Store, digits: &str) -> Result<Answer, Failure> {
    let set = stores::find_set(store, Some(digits))?;
    store.remove_set(set).map_err(|error| {
        let failure = Failure::new("cannot remove the set", short(&set)).because(&error);
        match error {
            RemoveError::Pinned { pin, .. } | RemoveError::PinRefused { pin } => {
                failure.hint(format!("packhouse unpin {pin}"))
            }
            RemoveError::Absent { .. } => failure.hint("packhouse ls"),
            RemoveError::ReadOnly { .. } => failure.hint("unset PACKHOUSE_READONLY"),
            RemoveError::Folder(_) | RemoveError::Fs(_) => failure.hint("packhouse doctor"),
        }
    })?;
    let text = format!(
        "set {} removed; `packhouse gc` frees what no other set uses\n",
        short(&set)
    );
    Ok(Answer::done(
        text,
        json!({"set": set.to_string(), "removed": true}),
    ))
}

/// Pins a set under a name, or under the digits of its own key.
pub(crate) fn pin(
    store: &Store,
    digits: Option<&str>,
    name: Option<&str>,
) -> Result<Answer, Failure> {
    let set = stores::find_set(store, digits)?;
    let name = name.map_or_else(|| short(&set), str::to_owned);
    store
        .pin(&name, set)
        .map_err(|error| pin_failure("cannot pin", &name, &error))?;
    let text = format!("set {} pinned as {name}\n", short(&set));
    Ok(Answer::done(
        text,
        json!({"set": set.to_string(), "pin": name}),
    ))
}

/// Removes a pin by its name.
pub(crate) fn unpin(store: &Store, name: &str) -> Result<Answer, Failure> {
    store
        .unpin(name)
        .map_err(|error| pin_failure("cannot unpin", name, &error))?;
    Ok(Answer::done(
        format!("pin {name} removed\n"),
        json!({"pin": name, "removed": true}),
    ))
}

fn pin_failure(what: &str, name: &str, error: &PinError) -> Failure {
    match error {
        PinError::Name { .. } => Failure::usage(what, name)
            .because(error)
            .hint("packhouse ls"),
        PinError::Set(_) | PinError::Absent { .. } => {
            Failure::new(what, name).because(error).hint("packhouse ls")
        }
        PinError::Taken { name: pin, .. } | PinError::Refused { name: pin, .. } => {
            Failure::new(what, name)
                .because(error)
                .hint(format!("packhouse unpin {pin}"))
        }
        PinError::Publish(_) | PinError::Fs(_) => Failure::new(what, name)
            .because(error)
            .hint("packhouse doctor"),
    }
}
