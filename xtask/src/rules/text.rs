//! What the text of a file may not have: long lines, other characters, leftovers, sheer size.

use crate::tree::Tree;

const SOURCE: [&str; 8] = [".rs", ".toml", ".sh", ".c", ".cpp", ".h", ".py", ".ci/run"];
const COLUMNS_MAX: usize = 100;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Finds source lines over 100 columns, with characters outside ASCII, tabs or trailing blanks.
/// `clippy.toml` and `deny.toml` are tables with one entry a line and may be wider.
pub(crate) fn lines(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.with_ending(&SOURCE) {
        let is_table = matches!(
            file.path.as_str(),
            "clippy.toml" | "deny.toml" | "Cargo.toml"
        );
        for (index, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, index + 1);
            if line.chars().count() > COLUMNS_MAX && !is_table {
                findings.push(format!("{place}: {} columns", line.chars().count()));
            }
            if let Some(odd) = line.chars().find(|c| !c.is_ascii() || c.is_ascii_control()) {
                findings.push(format!("{place}: character {odd:?}"));
            }
            if line.ends_with(' ') {
                findings.push(format!("{place}: trailing blank"));
            }
        }
    }
    findings
}

/// Finds marks of unfinished or switched-off code.
pub(crate) fn leftovers(tree: &Tree) -> Vec<String> {
    // Each mark is spelled in two parts, so that this file passes its own rule.
    let marks = [
        concat!("to", "do!"),
        concat!("un", "implemented!"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("TO", "DO"),
        concat!("#[ig", "nore"),
        concat!("#[al", "low("),
        concat!("#![al", "low("),
    ];
    let mut findings = Vec::new();
    for file in tree.with_ending(&[".rs", ".sh", ".c", ".cpp", ".h", ".py"]) {
        for (index, line) in file.text.lines().enumerate() {
            for mark in marks.iter().filter(|mark| line.contains(**mark)) {
                // mktemp's template is no mark.
                if *mark != concat!("XX", "X") || !line.contains("mktemp") {
                    findings.push(format!("{}:{}: {mark}", file.path, index + 1));
                }
            }
        }
    }
    findings
}

/// Finds files that are too large for git.
pub(crate) fn sizes(tree: &Tree) -> Vec<String> {
    tree.files
        .iter()
        .filter(|file| file.byte_count > FILE_BYTES_MAX)
        .map(|file| format!("{} has {} bytes", file.path, file.byte_count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::tree;

    #[test]
    fn a_long_line_and_an_odd_character_are_findings() {
        let (exact, over) = ("x".repeat(100), "x".repeat(101));
        let count = |path, text: &str| lines(&tree(&[(path, text)], Vec::new())).len();
        assert_eq!(count("a.rs", &exact), 0);
        assert_eq!(count("a.rs", &over), 1);
        assert_eq!(count("a.md", &over), 0);
        assert_eq!(count("a.sh", "caf\u{e9}"), 1);
        assert_eq!(count("a.rs", "\tx"), 1);
        assert_eq!(count("a.rs", "x "), 1);
    }

    #[test]
    fn each_leftover_is_a_finding() {
        for mark in [
            "to|do!()",
            "un|implemented!()",
            "// FIX|ME",
            "#[ig|nore]",
            "#[al|low(x)]",
        ] {
            let text = mark.replace('|', "");
            assert_eq!(
                leftovers(&tree(&[("a.rs", &text)], Vec::new())).len(),
                1,
                "{text}"
            );
        }
        assert_eq!(
            leftovers(&tree(&[("a.rs", "#[expect(x)]")], Vec::new())).len(),
            0
        );
        let template = format!("mktemp -d /tmp/a.{}", "X".repeat(6));
        assert_eq!(
            leftovers(&tree(&[("a.sh", &template)], Vec::new())).len(),
            0
        );
    }

    #[test]
    fn a_large_file_is_a_finding() {
        let mut whole = tree(&[("model.bin", "")], Vec::new());
        assert_eq!(sizes(&whole).len(), 0);
        whole.files[0].byte_count = FILE_BYTES_MAX + 1;
        assert_eq!(sizes(&whole).len(), 1);
    }
}
