//! Bodies of entries: which fields each kind has, and of which form.

use super::Refusal;
use crate::json::{Json, Map};
use crate::shape::{is_digest, short};
use std::collections::BTreeMap;

/// Largest count.
pub(crate) const COUNT_MAX: u64 = i64::MAX as u64;

/// A body whose fields have their forms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    texts: BTreeMap<String, String>,
    counts: BTreeMap<String, u64>,
    lists: BTreeMap<String, Vec<u64>>,
    flags: BTreeMap<String, bool>,
}

impl Body {
    /// Returns a field of text, also a digest, name or word; empty where it is absent or null.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// Returns a count, an index, or the largest count of all devices.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }

    /// Returns a list of counts.
    pub(crate) fn list(&self, name: &str) -> &[u64] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns a boolean.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.flags.get(name).copied().unwrap_or_default()
    }

    /// Reads a body of a kind.
    pub(crate) fn read(kind: &str, map: &Map) -> Result<Self, Refusal> {
        let found = KINDS.iter().find(|(name, _)| *name == kind);
        let Some((_, fields)) = found else {
            return Err(("ledger.kind", format!("an unknown kind {}", short(kind))));
        };
        let names = |is_required: bool| -> Vec<&str> {
            let all = fields
                .iter()
                .filter(|(_, form)| form.is_required() == is_required);
            all.map(|(name, _)| *name).collect()
        };
        exactly(map, kind, &names(true), &names(false))?;
        let mut body = Self::default();
        for (name, form) in *fields {
            if let Some(value) = map.get(*name) {
                body.take(name, *form, value).ok_or_else(|| {
                    let words = format!("`{kind}.{name}` is not of its form: {}", value.render());
                    ("ledger.type", words.chars().take(200).collect())
                })?;
            }
        }
        body.between(kind)?;
        Ok(body)
    }

    fn take(&mut self, name: &str, form: Form, value: &Json) -> Option<()> {
        let name = name.to_owned();
        match (form, value) {
            (Form::OrNull(_), Json::Null) => {}
            (Form::OrNull(form) | Form::Maybe(form), value) => {
                return self.take(&name, *form, value);
            }
            (Form::Text(is), Json::Text(text)) => {
                self.texts.insert(name, is(text).then(|| text.clone())?);
            }
            (Form::Word(words), Json::Text(text)) => {
                let word = words.contains(&text.as_str()).then(|| text.clone())?;
                self.texts.insert(name, word);
            }
            (Form::Count(least), Json::Integer(_)) => {
                self.counts.insert(name, count(value, least)?);
            }
            (Form::One, Json::Integer(1)) => {
                self.counts.insert(name, 1);
            }
            (
                Form::Counts {
                    least,
                    may_be_empty,
                },
                Json::List(items),
            ) => {
                let list: Option<Vec<u64>> = items.iter().map(|item| count(item, least)).collect();
                let list = list?;
                let is_rising = list.windows(2).all(|pair| pair[0] < pair[1]);
                if !is_rising || (list.is_empty() && !may_be_empty) {
                    return None;
                }
                self.lists.insert(name, list);
            }
            (Form::Flag, Json::Bool(flag)) => {
                self.flags.insert(name, *flag);
            }
            (Form::Devices, Json::Object(map)) => {
                let is_device =
                    |(name, value): (&String, &Json)| !name.is_empty() && count(value, 0).is_some();
                if !map.iter().all(is_device) {
                    return None;
                }
                let largest = map.values().filter_map(|value| count(value, 0)).max();
                self.counts.extend(largest.map(|largest| (name, largest)));
            }
            (
                Form::Text(_)
                | Form::Word(_)
                | Form::Count(_)
                | Form::One
                | Form::Counts { .. }
                | Form::Flag
                | Form::Devices,
                _,
            ) => return None,
        }
        Some(())
    }

    /// Judges the rules between fields.
    fn between(&self, kind: &str) -> Result<(), Refusal> {
        let has = |name: &str| self.texts.contains_key(name);
        let refuse = |words: &str| Err(("ledger.value", words.to_owned()));
        match kind {
            "lane" => {
                let action = self.text("action");
                if has("document") != (action == "open") {
                    return refuse("`document` is with `open`, and only there");
                }
                if has("until") != (action == "pause" || action == "block") {
                    return refuse("`until` is with `pause` and `block`, and only there");
                }
            }
            "rehearsed" => {
                let (tampers, rejected) = (self.count("tampers"), self.count("rejected"));
                if has("stage") == self.flag("green") {
                    return refuse("`stage` is null exactly where `green` is true");
                }
                if has("stage") && self.text("reason").is_empty() {
                    return refuse("a stage without a reason");
                }
                if rejected > tampers {
                    return refuse("`rejected` is more than `tampers`");
                }
                let is_whole =
                    has("bag") && has("analysis") && tampers > Some(0) && rejected == tampers;
                if self.flag("green") && !is_whole {
                    return refuse("a green rehearsal has a bag, an analysis, and all rejected");
                }
            }
            "sealed" => {
                if has("stage") != (self.text("verdict") == "abort") {
                    return refuse("`stage` is null exactly where `verdict` is not abort");
                }
                if has("stage") && self.text("reason").is_empty() {
                    return refuse("a stage without a reason");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Refuses an object without exactly these fields.
pub(crate) fn exactly(
    map: &Map,
    what: &str,
    required: &[&str],
    optional: &[&str],
) -> Result<(), Refusal> {
    for name in map.keys().map(String::as_str) {
        if !required.contains(&name) && !optional.contains(&name) {
            let words = format!("{what} has an unknown field {}", short(name));
            return Err(("ledger.unknown-field", words));
        }
    }
    match required.iter().find(|name| !map.contains_key(**name)) {
        Some(name) => Err(("ledger.missing-field", format!("{what} has no `{name}`"))),
        None => Ok(()),
    }
}

/// The form of a field.
#[derive(Clone, Copy)]
enum Form {
    /// Text that a rule admits.
    Text(fn(&str) -> bool),
    /// One of some words.
    Word(&'static [&'static str]),
    /// A count, at least so large.
    Count(u64),
    /// The count 1.
    One,
    /// Counts, ascending, each at least so large.
    Counts { least: u64, may_be_empty: bool },
    /// A boolean.
    Flag,
    /// Counts by device.
    Devices,
    /// It or null.
    OrNull(&'static Form),
    /// It, or the field is absent.
    Maybe(&'static Form),
}

impl Form {
    fn is_required(self) -> bool {
        !matches!(self, Self::Maybe(_))
    }
}

fn count(value: &Json, least: u64) -> Option<u64> {
    match value {
        Json::Integer(integer) => {
            let integer = u64::try_from(*integer).ok()?;
            (least..=COUNT_MAX).contains(&integer).then_some(integer)
        }
        _ => None,
    }
}

/// Returns whether a text is a name of `ledger.md`, section 3.
pub(crate) fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 64
        && text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || b"._-".contains(&byte))
}

/// Returns whether a text is a reviewer of `ledger.md`, section 3.
fn is_reviewer(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 64
        && text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || b"@._+-".contains(&byte))
}

fn is_words(text: &str) -> bool {
    !text.is_empty()
}

fn is_any(_: &str) -> bool {
    true
}

/// Returns whether a text is a day of the Gregorian calendar.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let number = |text: &str, width: usize| -> Option<u32> {
        let is_digits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse().ok())?
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2))
    else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    year >= 1 && (1..=days).contains(&day)
}

const DIGEST: Form = Form::Text(is_digest);
const NAME: Form = Form::Text(is_name);
const WORDS: Form = Form::Text(is_words);
const TEXT: Form = Form::Text(is_any);
const COUNT: Form = Form::Count(0);
const STAGE: Form = Form::Word(&[
    "discovery",
    "identities",
    "file-system",
    "rehearsal",
    "hello",
    "marker",
    "leg",
    "closing",
    "analysis",
    "seal",
]);
const VERDICT: Form = Form::Word(&["pass", "fail", "abort"]);

/// Fields of each kind.
const KINDS: [(&str, &[(&str, Form)]); 16] = [
    ("genesis", &[("lab", WORDS), ("id", DIGEST)]),
    (
        "lane",
        &[
            ("lane", NAME),
            (
                "action",
                Form::Word(&["open", "pause", "resume", "block", "close"]),
            ),
            ("reason", WORDS),
            ("document", Form::Maybe(&DIGEST)),
            ("until", Form::Maybe(&Form::Text(is_date))),
        ],
    ),
    (
        "registered",
        &[
            ("packet", DIGEST),
            ("experiment", NAME),
            ("lane", NAME),
            ("prereg", DIGEST),
            ("treatment", WORDS),
        ],
    ),
    (
        "rehearsed",
        &[
            ("packet", DIGEST),
            ("green", Form::Flag),
            ("stage", Form::OrNull(&STAGE)),
            ("reason", TEXT),
            ("bag", Form::Maybe(&DIGEST)),
            ("analysis", Form::Maybe(&DIGEST)),
            ("analyzer", DIGEST),
            ("tampers", COUNT),
            ("rejected", COUNT),
            ("elapsed_ns", COUNT),
            ("detectable_ns", Form::Maybe(&Form::Devices)),
        ],
    ),
    (
        "reviewed",
        &[
            ("packet", DIGEST),
            ("reviewer", Form::Text(is_reviewer)),
            ("verdict", Form::Word(&["approve", "reject"])),
            ("note", TEXT),
            ("rehearsal", COUNT),
        ],
    ),
    (
        "armed",
        &[
            ("packet", DIGEST),
            ("rehearsal", COUNT),
            (
                "reviews",
                Form::Counts {
                    least: 0,
                    may_be_empty: true,
                },
            ),
        ],
    ),
    (
        "nonce",
        &[
            ("packet", DIGEST),
            ("nonce", DIGEST),
            ("markers", Form::Maybe(&DIGEST)),
        ],
    ),
    (
        "released",
        &[
            ("packet", DIGEST),
            ("nonce", DIGEST),
            ("stage", STAGE),
            ("reason", WORDS),
        ],
    ),
    ("withdrawn", &[("packet", DIGEST), ("reason", WORDS)]),
    (
        "consumed",
        &[("packet", DIGEST), ("nonce", DIGEST), ("marker", DIGEST)],
    ),
    ("closed", &[("packet", DIGEST), ("bag", DIGEST)]),
    (
        "sealed",
        &[
            ("packet", DIGEST),
            ("verdict", VERDICT),
            ("bag", DIGEST),
            ("analysis", DIGEST),
            ("seal", DIGEST),
            ("number", Form::One),
            ("stage", Form::OrNull(&STAGE)),
            ("reason", TEXT),
        ],
    ),
    (
        "analysed",
        &[
            ("packet", DIGEST),
            ("number", Form::Count(2)),
            ("verdict", VERDICT),
            ("bag", DIGEST),
            ("analysis", DIGEST),
            ("seal", DIGEST),
            ("analyzer", DIGEST),
            ("why", WORDS),
        ],
    ),
    (
        "record",
        &[
            ("key", WORDS),
            ("packet", DIGEST),
            ("seal", DIGEST),
            ("claim", WORDS),
            (
                "widths",
                Form::Counts {
                    least: 1,
                    may_be_empty: false,
                },
            ),
            ("supersedes", Form::OrNull(&COUNT)),
        ],
    ),
    ("corrected", &[("entry", COUNT), ("text", WORDS)]),
    ("note", &[("lane", Form::Maybe(&NAME)), ("text", WORDS)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reviewer_is_plain_and_lower_case() {
        let longest = "a".repeat(64);
        for text in ["a", "ann+lab@example.org", "0_.-", &longest] {
            assert!(is_reviewer(text), "{text}");
        }
        let too_long = "a".repeat(65);
        for text in ["", "Ann", "a nn", "@a", "a\u{200b}", "\u{ff41}", &too_long] {
            assert!(!is_reviewer(text), "{text:?}");
        }
    }

    #[test]
    fn a_date_is_a_day_that_there_was() {
        for date in [
            "2024-02-29",
            "2000-02-29",
            "0001-01-01",
            "9999-12-31",
            "2026-04-30",
        ] {
            assert!(is_date(date), "{date}");
        }
        for date in [
            "2026-02-29",
            "1900-02-29",
            "0000-01-01",
            "2026-13-01",
            "2026-00-01",
            "2026-04-31",
            "2026-4-30",
            "2026-04-30 ",
            "+026-04-30",
            "2026-04",
            "2026-01-00",
            "",
        ] {
            assert!(!is_date(date), "{date}");
        }
    }
}
