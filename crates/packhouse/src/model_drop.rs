//! `model drop`: what would be dropped, or was.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::model::{Place, keys, short};
use crate::model_words::ModelDropArgs;
use crate::places::Lookup;
use packhouse_base::units;
use packhouse_stage::StageRoot;
use packhouse_stage::models::{self, DropError, ModelKey, ModelListing};
use packhouse_sys::signal;
use serde_json::{Value, json};

/// Drops copies, or only says which, unless told to.
pub(crate) fn drop_copies(args: &ModelDropArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    let Some(root) = place.open()? else {
        return match args.models.first() {
            Some(model) => Err(place.no_copy(model)),
            None => Ok(answer(&place, &[], args.execute)),
        };
    };
    let keys = keys(&place, Some(&root), &args.models)?;
    let listed = models::list(&root).map_err(|error| place.unreadable(&error))?;
    let chosen: Vec<&ModelListing> = listed
        .iter()
        .filter(|listing| keys.contains(&listing.key))
        .collect();
    let answer = answer(&place, &chosen, args.execute);
    if args.execute {
        let _ = signal::catch_once();
        let timeout_ns = args.lock_timeout.saturating_mul(1_000_000_000);
        for key in keys {
            drop_one(&place, &root, key, timeout_ns)?;
        }
    }
    Ok(answer)
}

fn drop_one(
    place: &Place,
    root: &StageRoot,
    key: ModelKey,
    timeout_ns: u64,
) -> Result<(), Failure> {
    match models::drop_model(root, key, timeout_ns, &|| (), &signal::was_caught) {
        // Another process was faster.
        Ok(_) | Err(DropError::Absent { .. }) => Ok(()),
        Err(DropError::Cancelled) => {
            Err(Failure::new("stopped before dropping", short(key)).hint(place.hint("status")))
        }
        Err(error @ DropError::Busy { .. }) => {
            let words = format!("drop {} --execute --lock-timeout 3600", short(key));
            Err(Failure::new("cannot drop the copy", short(key))
                .because(&error)
                .hint(place.hint(&words)))
        }
        Err(error @ (DropError::Room(_) | DropError::Fs(_))) => {
            Err(Failure::new("cannot drop the copy", short(key))
                .because(&error)
                .hint(place.hint("status")))
        }
    }
}

fn answer(place: &Place, chosen: &[&ModelListing], execute: bool) -> Answer {
    let verb = if execute { "dropped" } else { "would drop" };
    let mut text = String::new();
    for listing in chosen {
        let paths = match listing.paths.is_empty() {
            true => "of no known path".to_owned(),
            false => listing.paths.join(", "),
        };
        let (key, bytes) = (short(listing.key), units::bytes(listing.bytes));
        text += &crate::image::line(&format!("{verb} {key} ({bytes}): {paths}"));
    }
    let bytes: u64 = chosen.iter().map(|listing| listing.bytes).sum();
    text += &match (chosen.is_empty(), execute) {
        (true, _) => format!("no model is copied to {}\n", place.path.display()),
        (false, true) => format!(
            "{} are free once what maps them ends\n",
            units::bytes(bytes)
        ),
        (false, false) => "nothing was dropped; --execute does it\n".to_owned(),
    };
    let copies: Vec<Value> = chosen
        .iter()
        .map(|listing| {
            json!({
                "key": listing.key.to_string(),
                "generation": listing.generation,
                "bytes": listing.bytes,
                "paths": listing.paths,
            })
        })
        .collect();
    Answer::done(
        text,
        json!({ "executed": execute, "bytes": bytes, "copies": copies }),
    )
}
