//! `fingerprint --explain`: in which facts two builds differ, in words.

use crate::answer::{Answer, Column, fitted_table};
use crate::failure::Exit;
use packhouse_build::fingerprint::{self, Difference, Fingerprint};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Answers the question; negative where they differ.
pub(crate) fn explain(one: &Fingerprint, other: &Fingerprint) -> Answer {
    let differences = fingerprint::explain(one, other);
    let json = json!({
        "differences": differences.iter().map(document).collect::<Vec<_>>(),
        "other": other.digest().to_string(),
        "one": one.digest().to_string(),
        "same": differences.is_empty(),
    });
    if differences.is_empty() {
        let text = format!("the same build: {}\n", one.digest());
        return Answer::done(text, json);
    }
    let lines = lines(&parts(&differences));
    let mut rows = vec![vec![
        "what".to_owned(),
        digits(&one.digest().to_string()),
        digits(&other.digest().to_string()),
    ]];
    rows.extend(lines.iter().map(|line| line.cells().to_vec()));
    let mut text = fitted_table(&[Column::Left; 3], &rows);
    text += match lines.len() {
        1 => "the builds differ in this".to_owned(),
        count => format!("the builds differ in these {count}"),
    }
    .as_str();
    text.push('\n');
    Answer {
        text,
        json,
        exit: Exit::Negative,
    }
}

fn document(difference: &Difference) -> Value {
    json!({
        "fact": difference.fact,
        "one": difference.one,
        "other": difference.other,
    })
}

/// One line: what differs, and what it is in each build.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    what: String,
    one: String,
    other: String,
    /// Programs and libraries that load it, where it is a library of another folder.
    loaded_by: usize,
}

impl Line {
    fn cells(&self) -> [String; 3] {
        let what = match self.loaded_by {
            0 => self.what.clone(),
            1 => format!("{} (loaded by 1)", self.what),
            count => format!("{} (loaded by {count})", self.what),
        };
        [what, self.one.clone(), self.other.clone()]
    }
}

/// The differences, each part that one build has no counterpart of as what is in it.
fn parts(differences: &[Difference]) -> Vec<Difference> {
    let mut parts = Vec::new();
    for difference in differences {
        let (part, is_one) = match (&difference.one, &difference.other) {
            (Some(Value::Object(part)), None | Some(Value::Null)) => (part, true),
            (None | Some(Value::Null), Some(Value::Object(part))) => (part, false),
            _ => {
                parts.push(difference.clone());
                continue;
            }
        };
        if part.is_empty() || part.contains_key("sha256") || part.contains_key("unknown") {
            parts.push(difference.clone());
            continue;
        }
        let inner: Vec<Difference> = part
            .iter()
            .map(|(name, value)| Difference {
                fact: difference.fact.iter().chain([name]).cloned().collect(),
                one: is_one.then(|| value.clone()),
                other: (!is_one).then(|| value.clone()),
            })
            .collect();
        parts.extend(self::parts(&inner));
    }
    parts
}

/// One line per thing: a library that many load is one thing, and so are a file's digest and
/// length.
fn lines(differences: &[Difference]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut loaded: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for difference in differences {
        let fact: Vec<&str> = difference.fact.iter().map(String::as_str).collect();
        let (one, other) = (
            shown(difference.one.as_ref()),
            shown(difference.other.as_ref()),
        );
        let what = match fact.as_slice() {
            [.., "bytes"] => continue,
            ["programs" | "libraries" | "with", _, "loads", name] => {
                *loaded.entry(((*name).to_owned(), one, other)).or_default() += 1;
                continue;
            }
            [
                kind @ ("programs" | "libraries" | "scripts" | "links" | "with"),
                name,
                rest @ ..,
            ] => {
                let word = KINDS.iter().find(|(plural, _)| plural == kind);
                let word = word.map_or(*kind, |(_, word)| word);
                match rest {
                    [] | ["sha256"] => format!("{word} {name}"),
                    rest => format!("{word} {name}: {}", rest.join(" ")),
                }
            }
            ["source", "changed", name] => format!("changed source {name}"),
            ["source", "changed", name, rest @ ..] => {
                format!("changed source {name}: {}", rest.join(" "))
            }
            ["source", "folders", name] => format!("source folder {name}"),
            ["source", "folders", name, "files"] => format!("source folder {name}: files"),
            ["source", "folders", name, ..] => format!("source folder {name}"),
            ["source", rest @ ..] => format!("source {}", rest.join(" ")),
            ["names", _, name, ..] => format!("what {name} finds"),
            ["names", whose] => format!("names by {whose}"),
            ["runtimes", name] => format!("runtime {name}"),
            ["build_system", rest @ ..] => format!("build system {}", rest.join(" ")),
            ["host", rest @ ..] => rest.join(" "),
            fact => fact.join(" "),
        };
        let loaded_by = 0;
        lines.push(Line {
            what,
            one,
            other,
            loaded_by,
        });
    }
    for ((name, one, other), loaded_by) in loaded {
        // A library of the build itself has its own line.
        let own = lines.iter_mut().find(|line| {
            (&line.one, &line.other) == (&one, &other) && line.what.starts_with("library ")
        });
        match own {
            Some(line) => line.loaded_by += loaded_by,
            None => lines.push(Line {
                what: format!("loaded library {name}"),
                one,
                other,
                loaded_by,
            }),
        }
    }
    lines
}

/// A fact in few words.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Value::String(text)) => match is_digest(text) {
            true => digits(text),
            false => cut(text),
        },
        Some(Value::Object(fields)) => match fields.get("sha256").or(fields.get("unknown")) {
            Some(value) => shown(Some(value)),
            None if fields.is_empty() => "none".to_owned(),
            None => cut(&fields
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")),
        },
        Some(value) => cut(&value.to_string()),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn digits(text: &str) -> String {
    text.chars().take(DIGITS_SHOWN).collect()
}

fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.chars().count() > VALUE_CHARS {
        true => line.chars().take(VALUE_CHARS).collect::<String>() + "...",
        false => line.to_owned(),
    }
}

const KINDS: [(&str, &str); 5] = [
    ("programs", "program"),
    ("libraries", "library"),
    ("scripts", "script"),
    ("links", "link"),
    ("with", "file with it,"),
];
const DIGITS_SHOWN: usize = 12;
const VALUE_CHARS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(one: &Value, other: &Value) -> Vec<[String; 3]> {
        let of = |facts: &Value| Fingerprint::new(facts.clone(), json!({}), BTreeMap::new());
        let differences = fingerprint::explain(&of(one), &of(other));
        lines(&parts(&differences))
            .iter()
            .map(Line::cells)
            .collect()
    }

    #[test]
    fn a_library_that_many_load_is_one_line() {
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        let program = |digest: &str| json!({ "loads": { "liba.so": digest, "libc.so.6": old } });
        let build = |digest: &str, kernel: &str| {
            json!({
                "host": { "kernel": { "release": kernel } },
                "libraries": { "bin/liba.so": { "bytes": digest.len(), "sha256": digest } },
                "programs": { "p": program(digest), "q": program(digest) },
            })
        };
        let own = cells(&build(&old, "6.1"), &build(&new, "6.2"));
        let line = |what: &str, one: &str, other: &str| [what, one, other].map(str::to_owned);
        let expected = [
            line("kernel release", "6.1", "6.2"),
            line("library bin/liba.so (loaded by 2)", &old[..12], &new[..12]),
        ];
        assert_eq!(own, expected);
        let without = |digest: &str| json!({ "programs": { "p": program(digest) } });
        let foreign = cells(&without(&old), &without(&new));
        let expected = [line(
            "loaded library liba.so (loaded by 1)",
            &old[..12],
            &new[..12],
        )];
        assert_eq!(foreign, expected);
    }

    #[test]
    fn a_part_that_only_one_build_has_is_told_file_by_file() {
        let git = json!({ "source": {
            "changed": {
                "a.c": { "executable": false, "sha256": "a".repeat(64) },
                "b.c": "deleted",
            },
            "kind": "git",
            "submodules": {},
        } });
        let unknown = json!({ "source": { "kind": "unknown", "why": "no build system names it" } });
        let expected = [
            ["changed source a.c", "aaaaaaaaaaaa", "-"],
            ["changed source b.c", "deleted", "-"],
            ["source kind", "git", "unknown"],
            ["source submodules", "none", "-"],
            ["source why", "-", "no build system names it"],
        ];
        assert_eq!(cells(&git, &unknown), expected);
    }

    #[test]
    fn what_only_one_build_has_and_what_is_unknown_are_said_so() {
        let one = json!({
            "programs": { "p": { "bytes": 1, "sha256": "c".repeat(64) } },
            "source": { "changed": { "new\nline.c": "deleted" }, "commit": "d".repeat(40) },
            "host": { "bios": { "bios_date": { "unknown": "there is none" } } },
        });
        let other = json!({
            "programs": {},
            "source": { "changed": {}, "commit": null },
            "host": { "bios": { "bios_date": { "unknown": "x".repeat(99) } } },
        });
        let long = format!("{}...", "x".repeat(60));
        let expected = [
            ["bios bios_date unknown", "there is none", &long],
            ["program p", "cccccccccccc", "-"],
            ["changed source new\nline.c", "deleted", "-"],
            ["source commit", "dddddddddddd", "null"],
        ];
        assert_eq!(cells(&one, &other), expected);
    }
}
