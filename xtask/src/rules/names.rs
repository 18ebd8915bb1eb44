//! Names of one build machine, which mean nothing elsewhere.

use crate::tree::Tree;

/// Finds paths of a developer's machine and names of a registry's mirror in any file.
pub(crate) fn machine(tree: &Tree) -> Vec<String> {
    // Spelled in two parts, so that this file passes its own rule.
    let banned = [
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
        concat!("arti", "factory"),
    ];
    let mut findings = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            for name in banned.iter().filter(|name| stands_alone(line, name)) {
                findings.push(format!("{}:{}: {name}", file.path, index + 1));
            }
        }
    }
    findings
}

/// Returns whether a line has the name where a path would begin, not inside a longer one.
fn stands_alone(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !name.starts_with('/')
            || before.is_none_or(|c| !c.is_ascii_alphanumeric() && !"_-.>})/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::tree;

    #[test]
    fn a_path_of_one_machine_is_a_finding() {
        let count =
            |text: &str| machine(&tree(&[("a.md", &text.replace('|', ""))], Vec::new())).len();
        assert_eq!(count("see /ro|ot/.cache"), 1);
        assert_eq!(count("\"/wo|rk/main\""), 1);
        assert_eq!(count("https://x.arti|factory.example"), 1);
        assert_eq!(count("<store>/ro|ot/x and my/wo|rk/x"), 0);
    }
}
