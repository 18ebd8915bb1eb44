//! What a command gives back, and how it is printed: text or one JSON document, in one place.

use crate::failure::{Exit, Failure};
use packhouse_base::shown::{Shown, is_hidden};
use serde_json::Value;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal as _, Write as _};

/// A command's answer in both forms.
#[derive(Debug)]
pub(crate) struct Answer {
    /// For people.
    pub(crate) text: String,
    /// For programs.
    pub(crate) json: Value,
    /// How the program ends.
    pub(crate) exit: Exit,
}

impl Answer {
    /// A plain answer.
    pub(crate) fn done(text: String, json: Value) -> Self {
        Self {
            text,
            json,
            exit: Exit::Done,
        }
    }

    /// Prints to stdout. A reader that went away is no error; any other failure is.
    pub(crate) fn print(&self, as_json: bool) -> io::Result<Exit> {
        let text = if as_json {
            format!("{}\n", escaped(&format!("{:#}", self.json)))
        } else {
            self.text.clone()
        };
        let mut stdout = io::stdout().lock();
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(self.exit),
        }
    }
}

/// Says something on stderr, beside the answer. A stderr that does not take it (a full disk, a
/// terminal that is gone) changes nothing of what is done, nor how the program ends.
pub(crate) fn say(text: impl Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Why an answer is not on stdout.
pub(crate) fn unwritten(error: &io::Error) -> Failure {
    Failure::new("cannot write the answer", "stdout")
        .because(error)
        .cause("the command came to its end: what it did is done, and only its words are lost")
        .hint("df -h")
}

/// A JSON text in which what a terminal would obey is spelled out. JSON escapes the first control
/// characters only, and the others stand nowhere but in strings.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !is_hidden(letter) {
            text.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

/// How a table's column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that fits a terminal where it is drawn on one: long words are cut in the middle there.
/// What a program reads is whole.
pub(crate) fn fitted_table(columns: &[Column], rows: &[Vec<String>]) -> String {
    match io::stdout().is_terminal() {
        true => table(columns, &fitted(columns, rows, TERMINAL_CHARS)),
        false => table(columns, rows),
    }
}

/// The rows, with the widest columns of words cut until a line has `chars` characters.
fn fitted(columns: &[Column], rows: &[Vec<String>], chars: usize) -> Vec<Vec<String>> {
    let shown = |row: &Vec<String>| row.iter().map(|cell| Shown(cell).to_string()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let blanks = columns.len().saturating_sub(1) * 2;
    while widths.iter().sum::<usize>() + blanks > chars {
        let words = widths.iter_mut().zip(columns);
        let words = words
            .filter(|(width, column)| matches!(column, Column::Left) && **width > CELL_CHARS_MIN);
        match words.max_by_key(|(width, _)| **width) {
            Some((width, _)) => *width -= 1,
            None => break,
        }
    }
    let cut = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        cells.map(|(cell, width)| shortened(cell, *width)).collect()
    };
    rows.iter().map(cut).collect()
}

/// A text of at most `chars` characters: its start and its end, with `...` between them.
pub(crate) fn shortened(text: &str, chars: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= chars || chars < CUT.len() {
        return text.to_owned();
    }
    let kept = chars - CUT.len();
    let (start, end) = (kept.div_ceil(2), kept / 2);
    let (start, end) = (&letters[..start], &letters[letters.len() - end..]);
    format!(
        "{}{CUT}{}",
        start.iter().collect::<String>(),
        end.iter().collect::<String>()
    )
}

const CUT: &str = "...";
const TERMINAL_CHARS: usize = 120;
/// A word that is cut more says nothing.
const CELL_CHARS_MIN: usize = 9;
/// No path of Linux is longer; a formatter takes 65535 at most.
const CELL_CHARS_MAX: usize = 4096;

/// Renders rows as a table with two blanks between columns and none at a line's end. Cells may hold
/// text of others: what a terminal would obey in them is spelled out, and of a longer one than
/// anybody reads the start and the end are shown.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| {
        let cells = row.iter().map(|cell| Shown(cell).to_string());
        cells.map(|cell| shortened(&cell, CELL_CHARS_MAX)).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells =
            row.iter()
                .zip(columns)
                .zip(&widths)
                .map(|((cell, column), width)| match column {
                    Column::Left => format!("{cell:<width$}"),
                    Column::Right => format!("{cell:>width$}"),
                });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_the_same_and_nothing_that_a_terminal_obeys() {
        let hidden = "\u{1b}[2J \u{7f}\u{9b}31m\u{202e}\u{e0041} gr\u{fc}n\t\n\\";
        let document = serde_json::json!({ "text": [hidden] });
        let text = escaped(&format!("{document:#}"));
        let back: Value = serde_json::from_str(&text).expect("because it is JSON");
        assert_eq!(back, document);
        assert!(
            text.contains("\\u009b31m\\u202e\\udb40\\udc41 gr\u{fc}n"),
            "{text}"
        );
        assert!(!text.replace('\n', "").chars().any(is_hidden), "{text}");
    }

    #[test]
    fn a_table_fits_a_terminal_and_keeps_both_ends_of_long_words() {
        let columns = [Column::Left, Column::Left, Column::Right];
        let path = format!("/models/{}/pack.bin", "x".repeat(300));
        let row = |key: &str, path: &str| vec![key.to_owned(), path.to_owned(), "9 MiB".to_owned()];
        let rows = [row("key", &path), row("0123456789ab", "short")];
        let text = table(&columns, &fitted(&columns, &rows, 120));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 120), "{text}");
        assert!(
            lines[0].contains("/models/xxx") && lines[0].contains("xxx/pack.bin"),
            "{text}"
        );
        assert!(lines[0].contains("xxx...xxx"), "{text}");
        assert!(lines[1].starts_with("0123456789ab  short  "), "{text}");
        // What fits is left as it is.
        let small = [row("key", "short")];
        assert_eq!(fitted(&columns, &small, 120), small);
        assert_eq!(shortened("abcdefghij", 9), "abc...hij");
        assert_eq!(shortened("abcdefghij", 8), "abc...ij");
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
    }

    /// A field of a program's message had a name of a megabyte, and the table of it panicked.
    #[test]
    fn a_word_that_nobody_reads_is_cut_and_breaks_no_table() {
        let row = |word: String| vec![word, "end".to_owned()];
        let columns = [Column::Left, Column::Right];
        let text = table(
            &columns,
            &[row("x".repeat(1 << 20)), row("\u{7f}".repeat(70_000))],
        );
        for line in text.lines() {
            assert!(line.contains("...") && line.ends_with("  end"), "{line}");
            assert_eq!(line.chars().count(), CELL_CHARS_MAX + 5);
        }
        let path = "x".repeat(4096);
        assert!(table(&columns, &[row(path.clone())]).starts_with(&path));
    }

    #[test]
    fn a_table_is_aligned_and_ends_without_blanks() {
        let rows = [
            vec!["type".into(), "bytes".into()],
            vec!["Q4_0".into(), "9 MiB".into()],
        ];
        let text = table(&[Column::Left, Column::Right], &rows);
        assert_eq!(text, "type  bytes\nQ4_0  9 MiB\n");
        let text = table(&[Column::Left, Column::Left], &rows[..1]);
        assert_eq!(text, "type  bytes\n");
        assert_eq!(table(&[Column::Left], &[vec![String::new()]]), "\n");
    }
}
