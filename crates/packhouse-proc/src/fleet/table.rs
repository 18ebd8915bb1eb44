//! Tables of a fleet file: values by key with their places, and every mistake noted on the way.

use super::mistake::{Blocks, Commands, FormFault, Mistake, Reach, Wrong};
use super::nearest::nearest;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and the offset where the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// Mistakes as they are found.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: BTreeMap<Note, Reach>,
    /// How many were found beyond those that are kept.
    more: usize,
}

/// One mistake, in the order of the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    at: usize,
    key: String,
    what: Wrong,
    commands: Commands,
}

impl Notes {
    /// Notes a mistake. One that is noted already reaches the workers of both.
    pub(super) fn add(&mut self, at: usize, key: impl Into<String>, what: Wrong, blocks: Blocks) {
        let note = Note {
            at,
            key: key.into(),
            what,
            commands: blocks.commands,
        };
        let count = self.notes.len();
        match self.notes.entry(note) {
            Entry::Occupied(mut same) => {
                let both = same.get().clone().and(blocks.workers);
                same.insert(both);
            }
            Entry::Vacant(place) if count < MISTAKES_MAX => {
                place.insert(blocks.workers);
            }
            Entry::Vacant(_) => self.more += 1,
        }
    }

    /// The mistakes in the order of the file. What follows only from a line that is no TOML is left
    /// out: other mistakes on it, and what its table seems to lack.
    pub(super) fn finish(self, text: &str) -> Vec<Mistake> {
        let broken = Broken::of(&self.notes, text);
        let notes = self.notes.into_iter();
        let notes = notes.filter(|(note, _)| !broken.explains(note));
        let mistake = |note: Note, workers| {
            let (line, column) = position(text, note.at);
            let commands = note.commands;
            Mistake {
                line,
                column,
                key: note.key,
                what: note.what,
                blocks: Blocks { commands, workers },
            }
        };
        let mut mistakes: Vec<Mistake> = notes
            .map(|(note, workers)| mistake(note, workers))
            .collect();
        if self.more > 0 {
            let note = Note {
                at: text.len(),
                key: String::new(),
                what: Wrong::More { count: self.more },
                commands: Commands::RenderAndStart,
            };
            mistakes.push(mistake(note, Reach::All));
        }
        mistakes
    }
}

/// Where a text is no TOML.
struct Broken<'t> {
    text: &'t str,
    /// Offsets, rising.
    at: Vec<usize>,
    /// Whether the header of a table is among them.
    has_header: bool,
}

impl<'t> Broken<'t> {
    fn of(notes: &BTreeMap<Note, Reach>, text: &'t str) -> Self {
        let slips = notes
            .keys()
            .filter(|note| matches!(note.what, Wrong::Syntax { .. }));
        let at: Vec<usize> = slips.map(|note| note.at).collect();
        let has_header = at.iter().any(|at| {
            let start = *line_of(text, *at).start();
            text[start..].trim_start().starts_with('[')
        });
        Self {
            text,
            at,
            has_header,
        }
    }

    /// Whether a mistake may be there only because something was not read.
    fn explains(&self, note: &Note) -> bool {
        if self.at.is_empty() {
            return false;
        }
        match &note.what {
            Wrong::Syntax { .. } => false,
            // What is missing may be on the broken line: a key in its section, and a table or a
            // placeholder anywhere.
            Wrong::Missing => {
                let is_table = matches!(note.key.as_str(), "engine" | "worker");
                is_table || self.is_in(&section_of(self.text, note.at))
            }
            Wrong::NotTold(_) | Wrong::NoValue(_) => true,
            // A profile may be missing with its header.
            Wrong::Profile { .. } => self.has_header,
            _ => self.is_in(&line_of(self.text, note.at)),
        }
    }

    fn is_in(&self, range: &RangeInclusive<usize>) -> bool {
        let next = self.at.partition_point(|at| at < range.start());
        self.at.get(next).is_some_and(|at| at <= range.end())
    }
}

/// A table, what people call it, and whom its mistakes reach.
#[derive(Clone, Debug)]
pub(super) struct Table<'f> {
    /// As in `worker w0`; empty for the whole file.
    label: String,
    table: &'f DeTable<'f>,
    at: usize,
    reach: Reach,
}

impl<'f> Table<'f> {
    pub(super) fn new(
        label: impl Into<String>,
        table: &'f DeTable<'f>,
        at: usize,
        reach: Reach,
    ) -> Self {
        Self {
            label: label.into(),
            table,
            at,
            reach,
        }
    }

    /// Where it begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Whom its mistakes reach.
    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Its keys and where they stand.
    pub(super) fn entries(
        &self,
    ) -> impl Iterator<Item = (&'f str, usize, &'f Spanned<DeValue<'f>>)> {
        let entries = self.table.iter();
        entries.map(|(key, value)| (&**key.get_ref(), key.span().start, value))
    }

    /// Notes every key that is not among the known ones.
    pub(super) fn refuse_others(&self, notes: &mut Notes, known: &'static [&'static str]) {
        for (key, at, _) in self.entries() {
            if !known.contains(&key) {
                let nearest = nearest(key, known);
                self.note(notes, at, key, Wrong::UnknownKey { nearest, known });
            }
        }
    }

    /// Notes a mistake of a key that blocks rendering, and with it starting.
    pub(super) fn note(&self, notes: &mut Notes, at: usize, key: &str, what: Wrong) {
        self.note_for(notes, at, key, what, Commands::RenderAndStart);
    }

    /// Notes a mistake of a key.
    pub(super) fn note_for(
        &self,
        notes: &mut Notes,
        at: usize,
        key: &str,
        what: Wrong,
        commands: Commands,
    ) {
        let blocks = Blocks {
            commands,
            workers: self.reach.clone(),
        };
        notes.add(at, self.key(key), what, blocks);
    }

    /// A key as people would say it.
    pub(super) fn key(&self, key: &str) -> String {
        if self.label.is_empty() {
            key.to_owned()
        } else {
            format!("{}, {key}", self.label)
        }
    }

    /// Notes that a key is missing, at the table's beginning.
    pub(super) fn missing(&self, notes: &mut Notes, key: &str) {
        self.note(notes, self.at, key, Wrong::Missing);
    }

    /// A value of any type.
    pub(super) fn value(&self, key: &str) -> Option<&'f Spanned<DeValue<'f>>> {
        self.table.get(key)
    }

    /// A text without zero bytes.
    pub(super) fn text(&self, notes: &mut Notes, key: &str) -> Option<Located<&'f str>> {
        let value = self.value(key)?;
        self.text_of(notes, key, value)
    }

    /// A text parsed to something; its error is a mistake.
    pub(super) fn parsed<T, E: Into<Wrong>>(
        &self,
        notes: &mut Notes,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Located<T>> {
        let Located { at, value } = self.text(notes, key)?;
        self.parsed_of(notes, key, at, parse(value))
    }

    fn parsed_of<T, E: Into<Wrong>>(
        &self,
        notes: &mut Notes,
        key: &str,
        at: usize,
        parsed: Result<T, E>,
    ) -> Option<Located<T>> {
        match parsed {
            Ok(value) => Some(Located { at, value }),
            Err(error) => {
                self.note(notes, at, key, error.into());
                None
            }
        }
    }

    /// Every text of an array that could be parsed. `None`: there is no array.
    pub(super) fn list<T, E: Into<Wrong>>(
        &self,
        notes: &mut Notes,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Located<Vec<Located<T>>>> {
        let value = self.value(key)?;
        let at = value.span().start;
        let DeValue::Array(items) = value.get_ref() else {
            self.note(
                notes,
                at,
                key,
                wrong_type("array of strings", value.get_ref()),
            );
            return None;
        };
        let mut list = Vec::new();
        for item in items.iter() {
            let text = self.text_of(notes, key, item);
            let parsed =
                text.and_then(|text| self.parsed_of(notes, key, text.at, parse(text.value)));
            list.extend(parsed);
        }
        Some(Located { at, value: list })
    }

    /// A text without zero bytes.
    pub(super) fn text_of(
        &self,
        notes: &mut Notes,
        key: &str,
        value: &'f Spanned<DeValue<'f>>,
    ) -> Option<Located<&'f str>> {
        let at = value.span().start;
        let DeValue::String(text) = value.get_ref() else {
            self.note(notes, at, key, wrong_type("string", value.get_ref()));
            return None;
        };
        if text.contains('\0') {
            let found = text.to_string();
            let why = FormFault::Zero;
            self.note(notes, at, key, Wrong::Form { found, why });
            return None;
        }
        Some(Located { at, value: text })
    }

    /// A truth value.
    pub(super) fn flag(&self, notes: &mut Notes, key: &str) -> Option<bool> {
        let value = self.value(key)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        let what = wrong_type("boolean", value.get_ref());
        self.note(notes, value.span().start, key, what);
        None
    }

    /// A whole number within limits.
    pub(super) fn number(
        &self,
        notes: &mut Notes,
        key: &str,
        min: u64,
        max: u64,
    ) -> Option<Located<u64>> {
        let value = self.value(key)?;
        let at = value.span().start;
        let DeValue::Integer(number) = value.get_ref() else {
            self.note(notes, at, key, wrong_type("integer", value.get_ref()));
            return None;
        };
        let parsed = u64::from_str_radix(number.as_str(), number.radix());
        match parsed.ok().filter(|number| (min..=max).contains(number)) {
            Some(value) => Some(Located { at, value }),
            None => {
                let found = number.to_string();
                self.note(notes, at, key, Wrong::Range { found, min, max });
                None
            }
        }
    }

    /// A table in this one.
    pub(super) fn inner(&self, notes: &mut Notes, key: &str) -> Option<Table<'f>> {
        let value = self.value(key)?;
        self.inner_of(notes, key, value, self.reach.clone())
    }

    /// A value that must be a table.
    pub(super) fn inner_of(
        &self,
        notes: &mut Notes,
        key: &str,
        value: &'f Spanned<DeValue<'f>>,
        reach: Reach,
    ) -> Option<Table<'f>> {
        let at = value.span().start;
        let label = self.key(key);
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(label, table, at, reach)),
            other => {
                let commands = Commands::RenderAndStart;
                let blocks = Blocks {
                    commands,
                    workers: reach,
                };
                notes.add(at, label, wrong_type("table", other), blocks);
                None
            }
        }
    }
}

pub(super) fn wrong_type(expected: &'static str, found: &DeValue<'_>) -> Wrong {
    Wrong::Type {
        expected,
        found: match found {
            DeValue::String(_) => "string",
            DeValue::Integer(_) => "integer",
            DeValue::Float(_) => "float",
            DeValue::Boolean(_) => "boolean",
            DeValue::Datetime(_) => "date or time",
            DeValue::Array(_) => "array",
            DeValue::Table(_) => "table",
        },
    }
}

/// Line and column of an offset, both from 1.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

/// The offsets of the line that an offset is in, its end included.
fn line_of(text: &str, offset: usize) -> RangeInclusive<usize> {
    let offset = offset.min(text.len());
    let bytes = text.as_bytes();
    let start = bytes[..offset].iter().rposition(|byte| *byte == b'\n');
    let end = bytes[offset..].iter().position(|byte| *byte == b'\n');
    start.map_or(0, |newline| newline + 1)..=end.map_or(text.len(), |end| offset + end)
}

/// The offsets from a table's beginning to the line before the next header.
fn section_of(text: &str, offset: usize) -> RangeInclusive<usize> {
    let first = line_of(text, offset);
    let rest = text.get(first.end() + 1..).unwrap_or("");
    let mut end = *first.end();
    for line in rest.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            break;
        }
        end += line.len();
    }
    *first.start()..=end
}

/// How many lines the keys of the whole file have: those before the first header, and at least one.
pub(super) fn lines_before_tables(text: &str) -> usize {
    let (last, _) = position(text, *section_of(text, 0).end());
    last
}

/// More are only counted.
const MISTAKES_MAX: usize = 1_000;
