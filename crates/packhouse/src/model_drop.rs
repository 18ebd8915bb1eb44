//! `model drop`: what would be dropped, or was.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::model::{Place, keys, short};
use crate::model_source::{self, ModelSource};
use crate::model_users::{Users, Wanted};
use crate::model_words::ModelDropArgs;
use crate::places::Lookup;
use packhouse_base::units;
use packhouse_stage::StageRoot;
use packhouse_stage::models::{self, DropError, ModelKey, ModelListing, ModelMiss, SourceState};
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::path::Path;

/// One copy, and what speaks against dropping it.
struct Chosen<'l> {
    listing: &'l ModelListing,
    /// Who has it open or mapped.
    users: Vec<String>,
    /// Whether no source of it is known to be what was copied, so that nothing would bring it back.
    is_only: bool,
    is_refused: bool,
}

/// Drops copies, or only says which, unless told to.
pub(crate) fn drop_copies(args: &ModelDropArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let place = Place::of(&args.folder, lookup)?;
    let Some(root) = place.open()? else {
        return match args.models.first() {
            Some(model) => Err(place.no_copy(model)),
            None => Ok(answer(&place, &[], None, args.execute)),
        };
    };
    let keys = keys(&place, Some(&root), &args.models)?;
    let listed = models::list(&root).map_err(|error| place.unreadable(&error))?;
    let users = Users::look(lookup);
    let listings = listed.iter().filter(|listing| keys.contains(&listing.key));
    let mut chosen: Vec<Chosen<'_>> = listings
        .map(|listing| Chosen {
            listing,
            users: users.of(&Wanted::of(&place.path, listing)),
            is_only: is_only(&root, listing),
            is_refused: false,
        })
        .collect();
    let refused: Vec<ModelKey> = chosen
        .iter()
        .filter(|copy| copy.is_only && !copy.users.is_empty() && !args.even_if_used)
        .map(|copy| copy.listing.key)
        .collect();
    // All copies of a model go together.
    for copy in &mut chosen {
        copy.is_refused = refused.contains(&copy.listing.key);
    }
    if args.execute {
        let _ = signal::catch_once();
        let timeout_ns = args.lock_timeout.saturating_mul(1_000_000_000);
        for key in keys.into_iter().filter(|key| !refused.contains(key)) {
            drop_one(&place, &root, key, timeout_ns)?;
        }
    }
    Ok(answer(&place, &chosen, users.problem, args.execute))
}

/// Whether none of the paths that a copy is of has its bytes any more. One that can't be read now
/// may have them.
fn is_only(root: &StageRoot, listing: &ModelListing) -> bool {
    listing.paths.iter().all(|path| {
        let found = match ModelSource::named(Path::new(path)) {
            Ok(source) => model_source::find(root, &source, None),
            Err(_) => return true,
        };
        match found.map(|model| model.source) {
            Ok(SourceState::Gone | SourceState::Changed { .. } | SourceState::NotAsked) => true,
            Err(miss) => matches!(miss, ModelMiss::SourceChanged { .. }),
            Ok(
                SourceState::Unchanged
                | SourceState::Written
                | SourceState::Remote { .. }
                | SourceState::Unreadable { .. },
            ) => false,
        }
    })
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

fn answer(place: &Place, chosen: &[Chosen<'_>], problem: Option<String>, execute: bool) -> Answer {
    let mut text = String::new();
    for copy in chosen {
        text += &lines(place, copy, execute);
    }
    if let Some(problem) = &problem {
        text += &format!("who uses copies is unknown: {problem}\n");
    }
    let going = chosen.iter().filter(|copy| !copy.is_refused);
    let bytes: u64 = going.clone().map(|copy| copy.listing.bytes).sum();
    let is_used = going.clone().any(|copy| !copy.users.is_empty()) || problem.is_some();
    let size = units::bytes(bytes);
    text += &match (chosen.is_empty(), execute, is_used) {
        (true, ..) => format!("no model is copied to {}\n", place.path.display()),
        (false, true, true) => format!("{size} are free once what maps them ends\n"),
        (false, true, false) => format!("{size} are free\n"),
        (false, false, _) => "nothing was dropped; --execute does it\n".to_owned(),
    };
    let copies: Vec<Value> = chosen
        .iter()
        .map(|copy| {
            json!({
                "key": copy.listing.key.to_string(),
                "generation": copy.listing.generation,
                "bytes": copy.listing.bytes,
                "paths": copy.listing.paths,
                "users": copy.users,
                "only_copy": copy.is_only,
                "refused": copy.is_refused,
            })
        })
        .collect();
    let exit = match chosen.iter().any(|copy| copy.is_refused) {
        true => Exit::NotExecuted,
        false => Exit::Done,
    };
    let json = json!({
        "executed": execute,
        "bytes": bytes,
        "users_problem": problem,
        "copies": copies,
    });
    Answer { text, json, exit }
}

/// What is, or would be, done with one copy, and who would miss it.
fn lines(place: &Place, copy: &Chosen<'_>, execute: bool) -> String {
    let verb = match (copy.is_refused, execute) {
        (true, _) => "refused to drop",
        (false, true) => "dropped",
        (false, false) => "would drop",
    };
    let paths = match copy.listing.paths.is_empty() {
        true => "of no known path".to_owned(),
        false => copy.listing.paths.join(", "),
    };
    let key = short(copy.listing.key);
    let bytes = units::bytes(copy.listing.bytes);
    let mut text = crate::image::line(&format!("{verb} {key} ({bytes}): {paths}"));
    if !copy.users.is_empty() {
        text += &crate::image::line(&format!("  in use by {}", copy.users.join(", ")));
    }
    if copy.is_only {
        text += "  its source is gone or has other bytes: this is the only copy known\n";
    }
    if copy.is_refused {
        let remedy = place.hint(&format!("drop {key} --even-if-used --execute"));
        text += &format!("  to drop it all the same: {remedy}\n");
    }
    text
}
