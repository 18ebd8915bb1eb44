//! Lists of files: a line per file, its SHA-256, two blanks and its path, by rising path.

use crate::faults::{BagFault, FormFault};
use crate::paths::is_path;
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

/// A list's digests by path, and the paths in it that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) digests: BTreeMap<String, Digest>,
    pub(crate) faults: Vec<BagFault>,
}

/// Renders the lines of digests by path.
pub(crate) fn render<'a>(digests: impl Iterator<Item = (&'a str, Digest)>) -> Vec<u8> {
    let lines = digests.map(|(path, digest)| format!("{digest}  {path}\n"));
    lines.collect::<String>().into_bytes()
}

/// Parses a list. Errors where it is not what `render` writes; a path that breaks the rule is kept
/// as a fault and the rest of the list is used.
pub(crate) fn parse(bytes: &[u8]) -> Result<List, FormFault> {
    let text = std::str::from_utf8(bytes).map_err(|_| FormFault::NotText)?;
    if text.is_empty() {
        return Err(FormFault::Unended);
    }
    let mut list = List::default();
    let mut last: Option<&str> = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let line = line.strip_suffix('\n').ok_or(FormFault::Unended)?;
        let (digest, path) = parse_line(line).ok_or_else(|| FormFault::Line {
            line: index + 1,
            expected: "<sha256>  <path>".to_owned(),
        })?;
        if last.is_some_and(|last| last.as_bytes() >= path.as_bytes()) {
            return Err(FormFault::Order { line: index + 1 });
        }
        last = Some(path);
        let path = path.to_owned();
        if is_path(&path) {
            list.digests.insert(path, digest);
        } else {
            list.faults.push(BagFault::Path { path });
        }
    }
    Ok(list)
}

fn parse_line(line: &str) -> Option<(Digest, &str)> {
    let (digest, path) = line.split_once("  ")?;
    Some((Digest::parse(digest).ok()?, path))
}
