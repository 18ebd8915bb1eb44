//! The documents that `lab init` and `lab lane new` write, for people to edit.

use packhouse_sys::fs::{Dir, FsError, FsErrorKind};

/// Writes a document for people to edit, whole. False: something has its name, and stays.
pub(crate) fn place(dir: &Dir, name: &str, text: &str) -> Result<bool, FsError> {
    if dir.stat_entry(name).is_ok() {
        return Ok(false);
    }
    let part = format!(".part-{name}");
    match dir.unlink(&part) {
        Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = dir.create_new(&part, 0o644)?;
    file.write_all_at(0, text.as_bytes())?;
    file.sync()?;
    match dir.rename_new(&part, dir, name) {
        Ok(()) => dir.sync().map(|()| true),
        Err(error) => {
            dir.unlink(&part)?;
            match error.kind {
                FsErrorKind::Exists => Ok(false),
                _ => Err(error),
            }
        }
    }
}

/// A lane's document with its id.
pub(crate) fn lane(id: &str) -> String {
    LANE.replace("@ID@", id)
}

/// A preregistration with its id and lane.
pub(crate) fn prereg(id: &str, lane: &str) -> String {
    PREREG.replace("@ID@", id).replace("@LANE@", lane)
}

/// A preregistration with another id and lane, and all else of it as it was, comments too. `None`:
/// one of them is not, between quotes, on a line of its own before the first table.
pub(crate) fn renamed(text: &str, id: &str, lane: &str) -> Option<String> {
    let head = text
        .lines()
        .position(|line| line.trim_start().starts_with('['));
    let head = head.unwrap_or(usize::MAX);
    let mut renamed = String::with_capacity(text.len());
    let mut counts = [0, 0];
    for (place, line) in text.split_inclusive('\n').enumerate() {
        let field = line.split_once('=').map(|(field, _)| field.trim());
        let own = [("id", id), ("lane", lane)];
        let found = own
            .iter()
            .position(|(name, _)| place < head && field == Some(name));
        match found {
            Some(which) => {
                counts[which] += 1;
                renamed += &with_value(line, own[which].1)?;
            }
            None => renamed += line,
        }
    }
    (counts == [1, 1]).then_some(renamed)
}

/// A line with another value between the quotes behind its `=`.
fn with_value(line: &str, value: &str) -> Option<String> {
    let (field, said) = line.split_once('=')?;
    let open = said.find(|character: char| !matches!(character, ' ' | '\t'))?;
    let quote = said[open..]
        .chars()
        .next()
        .filter(|one| matches!(one, '"' | '\''))?;
    let close = said[open + 1..].find(quote)?;
    let (before, after) = (&said[..=open], &said[open + 1 + close..]);
    Some(format!("{field}={before}{value}{after}"))
}

/// What Git does not keep of a lab.
pub(crate) const IGNORED: &str = "/rehearsals/\n/ledger.lock\n/evidence/*/bag.open/\n";

const LANE: &str = include_str!("lab_templates/lane.toml");
const PREREG: &str = include_str!("lab_templates/prereg.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_lab::{Lane, Prereg};

    #[test]
    fn templates_are_documents_with_their_ids() {
        let lane = Lane::parse(lane("kernels").as_bytes()).expect("because it is ours");
        assert_eq!(
            (lane.id.as_str(), lane.record_key.as_str()),
            ("kernels", "kernels")
        );
        let text = prereg("first", "kernels");
        let prereg = Prereg::parse(text.as_bytes()).expect("because it is ours");
        assert_eq!(
            (prereg.id.as_str(), prereg.lane.as_str()),
            ("first", "kernels")
        );
        assert!(!text.contains('@'));
    }

    #[test]
    fn a_copy_differs_in_its_id_and_its_lane_alone() {
        let text = prereg("first", "kernels");
        let copy = renamed(&text, "second", "other").expect("because both are there");
        let lines = text.lines().zip(copy.lines());
        let changed: Vec<&str> = lines
            .filter(|(one, two)| one != two)
            .map(|(_, two)| two)
            .collect();
        assert_eq!(changed, ["id = \"second\"", "lane = \"other\""]);
        assert_eq!(text.lines().count(), copy.lines().count());
        // What stands behind a value and at the end of a line stays too.
        let text = "id='a'  # 'mine'\r\nlane =\t\"b\"# \"of it\"\r\n[matrix]\r\n";
        let copy = "id='c'  # 'mine'\r\nlane =\t\"d\"# \"of it\"\r\n[matrix]\r\n";
        assert_eq!(renamed(text, "c", "d").as_deref(), Some(copy));
        assert_eq!(renamed("id = 1\nlane = \"b\"\n", "c", "d"), None);
        let text = prereg("first", "kernels");
        assert_eq!(
            renamed(&text.replace("lane =", "# lane ="), "second", "other"),
            None
        );
    }

    #[test]
    fn what_a_template_leaves_out_is_a_document_too() {
        let mut text = String::new();
        for line in prereg("first", "kernels").lines() {
            let is_field = |rest: &str| rest.starts_with('[') || rest.contains(" = ");
            let plain = line.strip_prefix("# ").filter(|rest| is_field(rest));
            // Prose may name a field too; it has a word before the equals sign.
            let plain = plain.filter(|rest| !rest.contains(": ") && !rest.ends_with('.'));
            text += plain.unwrap_or(line);
            text.push('\n');
        }
        let prereg = Prereg::parse(text.as_bytes()).expect("because comments are true");
        assert!(prereg.timing.is_some() && prereg.legs.len() == 3);
        assert_eq!((prereg.frozen.len(), prereg.commits.len()), (1, 1));
        assert_eq!(prereg.rejections.len(), 1);
    }
}
