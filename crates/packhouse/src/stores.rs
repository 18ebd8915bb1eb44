//! Opens the user's store, and finds a set by the first digits of its key.

use crate::failure::{Failure, quoted};
use crate::places::{Lookup, Places};
use packhouse_base::digest::SetKey;
use packhouse_store::container_record::{Admission, ContainerRecord};
use packhouse_store::root::{OpenError, Store, StoreConfig};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::sync::Arc;

/// What a command will do to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Only look.
    Look,
    /// Also move, remove or note; unless the user said `PACKHOUSE_READONLY=1`.
    Change,
}

/// Opens the store of the environment. `None` when nobody made one yet; no command makes one.
pub(crate) fn open_if_there(
    purpose: Purpose,
    lookup: Lookup<'_>,
) -> Result<Option<Store>, Failure> {
    let config = config(lookup)?;
    let look = StoreConfig {
        read_only: true,
        ..config.clone()
    };
    let store = match Store::open(Arc::new(RealFs), Arc::new(RealClock), look) {
        Err(OpenError::Missing { .. }) => return Ok(None),
        other => other.map_err(|error| unusable(&config, &error))?,
    };
    if purpose == Purpose::Look || config.read_only {
        return Ok(Some(store));
    }
    Store::open(Arc::new(RealFs), Arc::new(RealClock), config.clone())
        .map(Some)
        .map_err(|error| unusable(&config, &error))
}

/// Opens the store of the environment, and makes it unless the user said `PACKHOUSE_READONLY=1`.
pub(crate) fn make(lookup: Lookup<'_>) -> Result<Store, Failure> {
    let config = config(lookup)?;
    Store::open(Arc::new(RealFs), Arc::new(RealClock), config.clone())
        .map_err(|error| unusable(&config, &error))
}

/// Opens the store of the environment. Errors when nobody made one yet.
pub(crate) fn open(purpose: Purpose, lookup: Lookup<'_>) -> Result<Store, Failure> {
    match open_if_there(purpose, lookup)? {
        Some(store) => Ok(store),
        None => Err(
            Failure::new("no store here yet", config(lookup)?.root.display())
                .cause(
                    "`packhouse prepare`, or the first engine started by `packhouse run`, makes it",
                )
                .hint("packhouse run -- llama-server -m model.gguf"),
        ),
    }
}

/// Finds a set by 8 or more digits of its key, or the only set when no digits are given.
pub(crate) fn find_set(store: &Store, digits: Option<&str>) -> Result<SetKey, Failure> {
    let sets = store.list_sets().map_err(|error| {
        Failure::new("cannot list the sets", store.config().root.display())
            .because(&error)
            .hint("packhouse doctor")
    })?;
    choose(sets, digits, "store", || {
        Failure::new("no set in the store", store.config().root.display())
            .hint("packhouse prepare model.gguf --plan ggml-cpu")
    })
}

/// Chooses a set by 8 or more digits of its key, or the only one of a place when no digits are
/// given. `none` says that the place has none.
pub(crate) fn choose(
    sets: Vec<SetKey>,
    digits: Option<&str>,
    place: &str,
    none: impl FnOnce() -> Failure,
) -> Result<SetKey, Failure> {
    let Some(digits) = digits else {
        return match sets.as_slice() {
            [only] => Ok(*only),
            [] => Err(none()),
            several => Err(Failure::usage(
                "which set",
                format!("the {place} has {}", several.len()),
            )
            .hint("packhouse ls")),
        };
    };
    let is_hex = digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || digits.len() < DIGITS_MIN || digits.len() > 64 {
        return Err(Failure::usage("not a set key", digits)
            .cause(format!(
                "a set key is given by {DIGITS_MIN} to 64 digits of 0-9 and a-f"
            ))
            .hint("packhouse ls"));
    }
    let matching: Vec<SetKey> = sets
        .into_iter()
        .filter(|set| set.to_string().starts_with(digits))
        .collect();
    match matching.as_slice() {
        [only] => Ok(*only),
        [] => Err(Failure::new("no such set", digits).hint("packhouse ls")),
        several => Err(Failure::usage("more than one set begins with", digits)
            .cause(
                several
                    .iter()
                    .map(SetKey::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            )
            .hint("packhouse ls")),
    }
}

/// How the best container record beside a set admitted its files. `None` when there is none.
pub(crate) fn admission(store: &Store, set: SetKey) -> Option<Admission> {
    let found = store.read_container_records(set).ok()?;
    found.records.iter().map(ContainerRecord::admission).max()
}

/// The line that keeps a skipped hash of the source in sight; empty where nothing was skipped.
pub(crate) fn admission_line(set: SetKey, admission: Option<Admission>) -> String {
    match admission {
        Some(Admission::Skipped) => format!(
            "set {}: source not hashed as a whole, each tensor was\n",
            short(&set)
        ),
        Some(Admission::Hashed) | None => String::new(),
    }
}

/// The digits of a key that tables show.
pub(crate) fn short(key: &SetKey) -> String {
    key.to_string()[..SHOWN].to_owned()
}

fn config(lookup: Lookup<'_>) -> Result<StoreConfig, Failure> {
    let places = Places::find(lookup)?;
    let mut config = StoreConfig::new(places.store, places.state);
    config.read_only = lookup("PACKHOUSE_READONLY").is_some_and(|value| value != "0");
    if let Some(text) = lookup("PACKHOUSE_MAX_BYTES") {
        let count = text.to_str().and_then(|text| text.parse().ok());
        config.max_bytes = Some(count.ok_or_else(|| {
            Failure::usage(
                "PACKHOUSE_MAX_BYTES is no whole number of bytes",
                text.display(),
            )
            .hint("unset PACKHOUSE_MAX_BYTES")
        })?);
    }
    Ok(config)
}

fn unusable(config: &StoreConfig, error: &OpenError) -> Failure {
    let root = config.root.display();
    let hint = match error {
        OpenError::Owner { path, .. } | OpenError::NotDirectory { path, .. } => {
            format!("ls -ld {}", quoted(path))
        }
        OpenError::Writable { path, .. } => format!("chmod go-w {}", quoted(path)),
        OpenError::Relative { .. }
        | OpenError::Missing { .. }
        | OpenError::TooManyLinks { .. }
        | OpenError::State(_)
        | OpenError::Id { .. }
        | OpenError::Publish(_)
        | OpenError::Fs(_) => format!("ls -la {}", quoted(&config.root)),
    };
    Failure::new("cannot use the store", root)
        .because(error)
        .hint(hint)
}

const DIGITS_MIN: usize = 8;
const SHOWN: usize = 12;
