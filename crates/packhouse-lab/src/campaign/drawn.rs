//! Drawn fixtures of a run that broke off: the bag gets them when no program lives, so what a
//! killed run had asked is read from its exchanges.

use super::{Campaign, fixture_folder};
use crate::evidence::{Event, Line};
use packhouse_bag::{OpenBag, TAG_MANIFEST_FILE, WriteError};
use packhouse_base::digest::Digest;
use packhouse_component::message::Request;
use std::collections::BTreeSet;

/// Fixture and repeat of each case that an exchange asks. A line that is none, as a torn last one,
/// asks nothing.
pub(crate) fn asked(exchange: &[u8]) -> BTreeSet<(String, u64)> {
    let lines = exchange.split_inclusive(|byte| *byte == b'\n');
    let asked = lines.filter_map(|line| match Line::parse(line).ok()?.event {
        Event::Asked(request) => match *request {
            Request::Case(order) => Some((order.fixture, order.repeat)),
            Request::Hello(_) | Request::Bye => None,
        },
        Event::Said(_) | Event::Seen(_) | Event::End(_) => None,
    });
    asked.collect()
}

/// Puts the fixtures that were asked and are not there, drawn from the same source again.
pub(crate) fn put_asked(
    campaign: &Campaign<'_>,
    bag: &mut OpenBag,
    source: Digest,
    asked: &BTreeSet<(String, u64)>,
) -> Result<(), WriteError> {
    for (fixture, repeat) in asked {
        let folder = fixture_folder(fixture, *repeat);
        let made = campaign.recipes.repeat(fixture, *repeat, source);
        if let Some(made) = made.filter(|_| !bag.has(&format!("{folder}/{TAG_MANIFEST_FILE}"))) {
            bag.put_folder(&folder, made.bag.files())?;
        }
    }
    bag.sync()
}
