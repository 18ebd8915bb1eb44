//! `fixture prepare`: recipes to published folders.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture::{Place, select, sound};
use crate::fixture_verify::{damages, own_lists};
use crate::fixture_words::FixturePrepareArgs;
use crate::hints;
use crate::places::Lookup;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_fixture::Bag;
use packhouse_fixture::published::{PublishError, Published, Shelf};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Makes and publishes fixtures, or finds them.
pub(crate) fn prepare(args: &FixturePrepareArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let families = select(&args.select.ids)?;
    let place = Place::of(&args.select, lookup)?;
    let folder = place.make()?;
    let shelf = Shelf::make(&RealFs, &RealClock, &folder);
    let shelf = shelf.map_err(|error| place.unusable(&error))?;
    let timeout_ns = args.lock_timeout.saturating_mul(1_000_000_000);
    let (mut text, mut documents) = (String::new(), Vec::new());
    for family in families {
        let bag = Bag::of(&sound(family)?);
        let published = shelf.publish(&bag, timeout_ns);
        let published = published.map_err(|error| not_published(&place, bag.id(), &error))?;
        text += &line(&bag, &published);
        documents.push(document(&shelf, &bag, &published));
    }
    let _ = writeln!(text, "in {}", Shown(&shelf.path("").display().to_string()));
    let json = json!({ "folder": place.path.display().to_string(), "fixtures": documents });
    Ok(Answer::done(text, json))
}

fn not_published(place: &Place, id: &str, error: &PublishError) -> Failure {
    let hint = match error {
        PublishError::Busy { .. } => place.hint(&format!("prepare {id} --lock-timeout 3600")),
        PublishError::Unstable { .. } => place.hint(&format!("verify {id}")),
        PublishError::Fs(error) => hints::of(error, &place.path),
    };
    Failure::new("cannot publish the fixture", id)
        .because(error)
        .hint(hint)
}

fn line(bag: &Bag, published: &Published) -> String {
    let word = match published {
        Published::Reused => "reused",
        Published::Made => "made",
        Published::Replaced { .. } => "made again",
    };
    let mut text = format!(
        "{word}: {}, {}, sha256 {}\n",
        bag.id(),
        units::bytes(bag.bytes()),
        bag.digest()
    );
    if let Published::Replaced { damaged, aside } = published {
        text += &damages(bag.id(), damaged);
        text += &format!("aside: {}\n", Shown(&aside.display().to_string()));
    }
    text
}

fn document(shelf: &Shelf<'_>, bag: &Bag, published: &Published) -> Value {
    let mut document = json!({
        "id": bag.id(),
        "path": shelf.path(bag.id()).display().to_string(),
        "bytes": bag.bytes(),
        "sha256": bag.digest().to_string(),
        "outcome": match published {
            Published::Reused => "reused",
            Published::Made => "made",
            Published::Replaced { .. } => "replaced",
        },
    });
    if let Published::Replaced { damaged, aside } = published {
        document["damages"] = own_lists(damaged);
        document["aside"] = json!(aside.display().to_string());
    }
    document
}
