//! What a command gives back, and how it is printed: text or one JSON document, in one place.

use crate::failure::Exit;
use packhouse_base::shown::Shown;
use serde_json::Value;
use std::io::{self, Write};

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
            format!("{:#}\n", self.json)
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

/// How a table's column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Renders rows as a table with two blanks between columns and none at a line's end. Cells may hold
/// text of others: what a terminal would obey in them is spelled out.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| Shown(cell).to_string()).collect();
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
