//! What is no TOML in a file, and the rest of it, so that one slip hides no other mistake.
//!
//! The parser recovers within a line and loses all that follows some others. So lines that it can't
//! read are blanked, offsets kept, and what is left is read again until it is sound.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// One thing that is no TOML.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slip {
    pub(super) at: usize,
    pub(super) message: String,
}

/// Reads a text. Returns what is sound of it, with blanks in place of the rest, and the slips in
/// their order.
pub(super) fn sound(text: &str) -> (String, Vec<Slip>) {
    let mut sound = text.to_owned();
    let mut slips: Vec<Slip> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let (found, blank) = look(&sound);
        if found.is_empty() {
            break;
        }
        slips.extend(found);
        if !is_text(&sound, &blank) {
            // The parser stumbles over nothing: over the end of the file.
            break;
        }
        sound = blanked(sound, &blank);
    }
    slips.sort();
    slips.dedup();
    (sound, slips)
}

/// The slips that the parser sees now, and the offsets of what has to go so that it can go on.
fn look(text: &str) -> (Vec<Slip>, Vec<Range<usize>>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<Slip> = errors
        .iter()
        .map(|error| Slip {
            at: error.span().map_or(0, |span| span.start),
            message: error.message().replace('\n', " "),
        })
        .collect();
    errors.sort();
    // What is never closed takes in all that follows: it is the one slip, where it opens.
    let is_unclosed = |slip: &&Slip| UNCLOSED.iter().any(|word| slip.message.starts_with(word));
    let unclosed = errors.iter().find(is_unclosed);
    let opened = unclosed.and_then(|slip| outermost(document.get_ref(), slip.at));
    let end = opened.unwrap_or(text.len());
    let is_before = |slip: &&Slip| opened.is_none() || slip.at < end;
    let mut slips: Vec<Slip> = errors.iter().filter(is_before).cloned().collect();
    let broken = slips.iter().filter(|slip| slip.message != DUPLICATE);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for slip in broken {
        // Slips rise, so one that is in what goes already is in the last of it.
        if ranges.last().is_none_or(|last| slip.at >= last.end) {
            ranges.push(doomed(text, slip.at));
        }
    }
    if let Some(at) = opened {
        ranges.push(value(text, at));
        slips.push(Slip {
            at,
            message: "a list or an inline table that is never closed".to_owned(),
        });
    }
    (slips, ranges)
}

/// Where the outermost list or inline table begins that reaches an offset.
fn outermost(table: &DeTable<'_>, end: usize) -> Option<usize> {
    let begins = table.values().filter_map(|value| {
        let span = value.span();
        let reaches = span.start < end && span.end >= end;
        match value.get_ref() {
            DeValue::Array(_) if reaches => Some(span.start),
            // The span of a table with a header is the header's.
            DeValue::Table(inner) => {
                let own = Some(span.start).filter(|_| reaches);
                own.or_else(|| outermost(inner, end))
            }
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| item.get_ref().as_table())
                .find_map(|inner| outermost(inner, end)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => None,
        }
    });
    begins.min()
}

/// What goes with a slip: its line; after a header all of its section, which would become part of
/// another.
fn doomed(text: &str, at: usize) -> Range<usize> {
    let start = line_start(text, at);
    let mut lines = text[start..].split_inclusive('\n');
    let line = lines.next().unwrap_or("");
    let mut end = start + line.len();
    if is_header(line) {
        let section = lines.take_while(|line| !is_header(line));
        end += section.map(str::len).sum::<usize>();
    }
    start..end
}

/// A value that is never closed: its line and those after it that begin nothing else.
fn value(text: &str, at: usize) -> Range<usize> {
    let start = line_start(text, at);
    let mut lines = text[start..].split_inclusive('\n');
    let first = lines.next().unwrap_or("");
    let more = lines.take_while(|line| !is_header(line) && !begins_key(line));
    start..start + first.len() + more.map(str::len).sum::<usize>()
}

fn line_start(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    let newline = before.iter().rposition(|byte| *byte == b'\n');
    newline.map_or(0, |newline| newline + 1)
}

/// Whether a line looks like the header of a table. A list in a list begins with a quote or digit.
fn is_header(line: &str) -> bool {
    let line = line.trim_start();
    let name = line.trim_start_matches('[');
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.len() < line.len() && name.starts_with(is_letter)
}

fn begins_key(line: &str) -> bool {
    let line = line.trim_start();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.\"".contains(letter);
    let rest = line.trim_start_matches(is_letter);
    rest.len() < line.len() && rest.trim_start().starts_with('=')
}

/// Whether there is anything but blanks in some ranges.
fn is_text(text: &str, ranges: &[Range<usize>]) -> bool {
    let mut parts = ranges.iter().map(|range| &text[range.clone()]);
    parts.any(|part| part.bytes().any(|byte| !matches!(byte, b' ' | b'\n')))
}

/// The text with blanks for all but the newlines of some ranges, which are whole lines.
fn blanked(text: String, ranges: &[Range<usize>]) -> String {
    let mut bytes = text.into_bytes();
    for range in ranges {
        for byte in &mut bytes[range.clone()] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(bytes).expect("because whole lines became blanks")
}

/// The parser's word for a key or table that is there twice. It goes on well after one.
const DUPLICATE: &str = "duplicate key";
/// Its words for a value that is never closed; those for a header are others.
const UNCLOSED: [&str; 2] = ["unclosed array, ", "unclosed inline table, "];
/// Each round takes at least one line away; a file with more slips is no fleet file.
const ROUNDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slips(text: &str) -> (Vec<(usize, String)>, String) {
        let (sound, slips) = sound(text);
        assert_eq!(sound.len(), text.len(), "offsets are kept");
        let lines = slips.into_iter().map(|slip| {
            let line = text[..slip.at].matches('\n').count() + 1;
            (line, slip.message)
        });
        (lines.collect(), sound)
    }

    fn left(sound: &str) -> Vec<&str> {
        sound
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect()
    }

    #[test]
    fn one_slip_hides_nothing_else() {
        let text = "a = 1\nport 8088\nb = 2\n[t]\nc = \nd = 4\nport 9\n";
        let (said, sound) = slips(text);
        let lines: Vec<usize> = said.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 5, 7], "{said:?}");
        assert_eq!(left(&sound), ["a = 1", "b = 2", "[t]", "d = 4"]);
    }

    #[test]
    fn what_is_never_closed_is_told_where_it_opens() {
        let never = "a list or an inline table that is never closed";
        for (text, line, rest) in [
            (
                "a = 1\nb = [1,\n[t]\nc = 2\n",
                2,
                vec!["a = 1", "[t]", "c = 2"],
            ),
            (
                "b = [\n  1,\n  2\n[[t]]\nc = 2\n",
                1,
                vec!["[[t]]", "c = 2"],
            ),
            ("[t]\nb = [[1],\nc = 2\n", 2, vec!["[t]", "c = 2"]),
            ("[[t]]\nb = { x = 1\nc = 2\n", 2, vec!["[[t]]", "c = 2"]),
        ] {
            let (said, sound) = slips(text);
            assert_eq!(said, [(line, never.to_owned())], "{text}");
            assert_eq!(left(&sound), rest, "{text}");
        }
    }

    #[test]
    fn a_section_goes_with_its_header() {
        let (said, sound) = slips("[a\nx = 1\n[b]\nx = 2\n[b]\ny = 3\n");
        let lines: Vec<usize> = said.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 5], "{said:?}");
        assert_eq!(left(&sound), ["[b]", "x = 2", "[b]", "y = 3"]);
        for header in ["[a", "[[a", "[[a]", "[a.b", "[a x]"] {
            let (said, sound) = slips(&format!("{header}\nx = [\n1]\n[c]\nx = 2\n"));
            assert_eq!(said.len(), 1, "{said:?}");
            assert_eq!(said[0].0, 1, "{said:?}");
            assert_eq!(left(&sound), ["[c]", "x = 2"], "{header}");
        }
        let (said, sound) = slips("a = [\n  \"x\"\n  \"y\"\n]\nb = 1\n");
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(left(&sound), ["a = [", "\"x\"", "]", "b = 1"]);
    }

    proptest! {
        #[test]
        fn whatever_is_read_keeps_its_length_and_comes_to_an_end(
            text in "([a-c]{0,2} ?=? ?|[\\[\\]{}\"',1\n#\u{e4}]|\"\"\"|[[:print:]]){0,60}",
        ) {
            let (sound, slips) = sound(&text);
            prop_assert_eq!(sound.len(), text.len());
            prop_assert!(slips.is_sorted());
            let is_sound = DeTable::parse(&text).is_ok();
            prop_assert_eq!(slips.is_empty(), is_sound);
            if is_sound {
                prop_assert_eq!(sound, text);
            }
        }
    }
}
