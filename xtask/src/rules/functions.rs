//! Functions of at most 70 lines, with a ratchet for those that were longer.
//!
//! Relies on rustfmt: a function ends at the first line that is its own indentation and a brace.

use crate::tree::{File, Tree};
use std::collections::BTreeMap;

const RATCHET: &str = "xtask/long-functions.txt";
const LINES_MAX: usize = 70;

/// Finds functions over 70 lines that `xtask/long-functions.txt` (`path function lines`) does not
/// have with exactly this length, and entries of it that are no longer true.
pub(crate) fn lengths(tree: &Tree) -> Vec<String> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for line in tree.text_of(RATCHET).unwrap_or_default().lines() {
        match line
            .rsplit_once(' ')
            .and_then(|(name, count)| Some((name, count.parse().ok()?)))
        {
            Some((name, count)) => drop(known.insert(name.to_owned(), count)),
            None => findings.push(format!("{RATCHET}: no `path function lines`: {line}")),
        }
    }
    for file in tree.with_ending(&[".rs"]) {
        for (name, count) in functions(file)
            .into_iter()
            .filter(|(_, count)| *count > LINES_MAX)
        {
            let entry = format!("{} {name}", file.path);
            match known.remove(&entry) {
                Some(allowed) if count == allowed => {}
                Some(allowed) if count < allowed => {
                    findings.push(format!(
                        "{entry} has {count} lines: lower {RATCHET} from {allowed}"
                    ));
                }
                Some(_) | None => findings.push(format!("{entry} has {count} lines")),
            }
        }
    }
    findings.extend(
        known
            .keys()
            .map(|entry| format!("{RATCHET}: {entry} is not that long")),
    );
    findings
}

/// Lists (name, line count) of the functions of a file.
fn functions(file: &File) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let close = format!("{indent}}}");
        for (end, line) in lines.iter().enumerate().skip(start) {
            let is_whole = end == start && line.ends_with('}') && line.contains('{');
            let is_declaration = line.ends_with(';') && !line.contains('{');
            if is_whole || **line == *close {
                found.push((name, end - start + 1));
                break;
            }
            if is_declaration && lines[start..=end].iter().all(|line| !line.contains('{')) {
                break;
            }
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        let (word, tail) = rest.split_once(' ')?;
        match word {
            "fn" => return tail.split(['(', '<']).next(),
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"" | "default" => {}
            word if word.starts_with("pub(") => {}
            _ => return None,
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::tree;

    fn function(line_count: usize) -> String {
        format!(
            "    pub(crate) unsafe fn f(\n    ) {{\n{}    }}\n",
            "        x;\n".repeat(line_count - 3)
        )
    }

    #[test]
    fn the_71st_line_is_a_finding() {
        let count = |text: &str| lengths(&tree(&[("a.rs", text)], Vec::new())).len();
        assert_eq!(count(&function(70)), 0);
        assert_eq!(count(&function(71)), 1);
        assert_eq!(
            count(&format!("fn g(\n);\n{}", "const A: u8 = 0;\n".repeat(90))),
            0
        );
        assert_eq!(
            count(&format!(
                "fn g() {{}}\n{}}}\n",
                "const A: u8 = 0;\n".repeat(90)
            )),
            0
        );
    }

    #[test]
    fn the_ratchet_only_turns_one_way() {
        let text = function(80);
        let count = |ratchet| {
            lengths(&tree(
                &[("a.rs", &text), ("xtask/long-functions.txt", ratchet)],
                Vec::new(),
            ))
            .len()
        };
        assert_eq!(count("a.rs f 80\n"), 0);
        assert_eq!(count("a.rs f 79\n"), 1);
        assert_eq!(count("a.rs f 81\n"), 1);
        assert_eq!(count("a.rs f 80\na.rs g 90\n"), 1);
        assert_eq!(count("a.rs f 80\nnonsense\n"), 1);
    }
}
