//! Each test that `docs/threats.md` names exists.

use crate::tree::Tree;

const THREATS: &str = "docs/threats.md";

/// Finds rows of `docs/threats.md` without a test, and test names that are no function of their
/// crate.
pub(crate) fn tests_exist(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.text_of(THREATS) else {
        return vec![format!("{THREATS} is missing")];
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{THREATS}:{}", index + 1);
        let is_row = line.starts_with("| ") && !line.starts_with("| failure");
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
        if is_row && named_count == 0 {
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
            let files = [("docs/threats.md", text.as_str()), source];
            tests_exist(&tree(&files, vec![member("packhouse-store", &[])])).len()
        };
        assert_eq!(count("| a | b | `packhouse-store::a_flip_is_refused` |"), 0);
        assert_eq!(count("| a | b | `packhouse-store::a_flip_is_kept` |"), 1);
        assert_eq!(count("| a | b | later |"), 1);
        assert_eq!(count("| a | b | `elsewhere::a_flip_is_refused` |"), 1);
        assert_eq!(tests_exist(&tree(&[], Vec::new())).len(), 1);
    }
}
