//! Each test that `docs/threats.md` names exists, and each of a table of what was asked.

use crate::tree::Tree;

/// The tables, and how the heads of those begin whose rows need a test.
const TABLES: [(&str, &str); 2] = [
    ("docs/threats.md", "| failure"),
    ("docs/design/head-image.md", "| asked"),
];

/// Finds rows of the tables without a test or a written reason, and test names that are no function
/// of their crate.
pub(crate) fn tests_exist(tree: &Tree) -> Vec<String> {
    let findings = TABLES.iter().map(|table| table_findings(tree, table));
    findings.flatten().collect()
}

fn table_findings(tree: &Tree, (path, head): &(&str, &str)) -> Vec<String> {
    let Some(text) = tree.text_of(path) else {
        return vec![format!("{path} is missing")];
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", index + 1);
        let is_row = line.starts_with("| ") && !line.starts_with(head);
        let mut named_count = 0;
        for (member, test) in line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|name| name.split_once("::"))
        {
            let Some(member) = tree.members.iter().find(|known| known.name == member) else {
                continue;
            };
            named_count += 1;
            let wanted = format!("fn {test}(");
            let prefix = format!("{}/", member.folder);
            let mut files = tree
                .with_ending(&[".rs"])
                .filter(|file| file.path.starts_with(&prefix));
            if !files.any(|file| file.text.contains(&wanted)) {
                findings.push(format!("{place}: {} has no test {test}", member.name));
            }
        }
        let has_reason = *path != TABLES[0].0 && line.contains("| reason: ");
        if is_row && named_count == 0 && !has_reason {
            findings.push(format!("{place}: a failure without a test"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{member, tree};

    #[test]
    fn a_row_without_a_test_and_a_test_that_is_not_there_are_findings() {
        let source = (
            "crates/packhouse-store/src/lib.rs",
            "fn a_flip_is_refused() {}\n",
        );
        let count = |row: &str| {
            let text = format!("| failure | answer | test |\n|---|---|---|\n{row}\n");
            let files = [
                ("docs/threats.md", text.as_str()),
                ("docs/design/head-image.md", ""),
                source,
            ];
            tests_exist(&tree(&files, vec![member("packhouse-store", &[])])).len()
        };
        assert_eq!(count("| a | b | `packhouse-store::a_flip_is_refused` |"), 0);
        assert_eq!(count("| a | b | `packhouse-store::a_flip_is_kept` |"), 1);
        assert_eq!(count("| a | b | later |"), 1);
        assert_eq!(count("| a | b | `elsewhere::a_flip_is_refused` |"), 1);
        assert_eq!(count("| a | b | reason: none |"), 1);
        assert_eq!(tests_exist(&tree(&[], Vec::new())).len(), 2);
        let asked = |row: &str| {
            let text = format!("| asked | answer | test |\n|---|---|---|\n{row}\n");
            let files = [
                ("docs/threats.md", ""),
                ("docs/design/head-image.md", &text),
            ];
            tests_exist(&tree(&files, Vec::new())).len()
        };
        assert_eq!(asked("| a | b | reason: nothing to test |"), 0);
        assert_eq!(asked("| a | b | |"), 1);
    }
}
