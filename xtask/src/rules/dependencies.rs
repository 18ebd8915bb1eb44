//! Which crate may use which, why each dependency is there, and under which licence.

use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = "ARCHITECTURE.md";
const DENY: &str = "deny.toml";

/// Finds edges between crates that the table of `ARCHITECTURE.md` does not have, and rows and
/// crates without each other. Dev-dependencies are no edges.
pub(crate) fn edges(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.text_of(TABLE) else {
        return vec![format!("{TABLE} is missing")];
    };
    let table = match may_use(text) {
        Ok(table) => table,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for name in table.keys().filter(|name| !tree.is_member(name)) {
        findings.push(format!(
            "{TABLE} has a row for {name}, which is no crate here"
        ));
    }
    for member in &tree.members {
        let Some(allowed) = table.get(&member.name) else {
            findings.push(format!("{} has no row in {TABLE}", member.name));
            continue;
        };
        for used in member.uses.iter().filter(|used| tree.is_member(used)) {
            if !allowed.contains(used) && !allowed.contains("everything") {
                findings.push(format!(
                    "{} uses {used}, which {TABLE} does not allow",
                    member.name
                ));
            }
        }
    }
    findings
}

/// Finds direct dependencies without a reason in `deny.toml`, and reasons without a dependency.
pub(crate) fn reasons(tree: &Tree) -> Vec<String> {
    let text = tree.text_of(DENY).unwrap_or_default();
    let reasons: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# direct: ")?.split_once(": "))
        .collect();
    let used: BTreeSet<&str> = tree
        .members
        .iter()
        .flat_map(|member| member.uses.iter().chain(&member.dev_uses))
        .map(String::as_str)
        .filter(|name| !tree.is_member(name))
        .collect();
    let missing = used
        .iter()
        .filter(|name| {
            reasons
                .get(**name)
                .is_none_or(|reason| reason.trim().is_empty())
        })
        .map(|name| format!("{name} has no `# direct: {name}: why` in {DENY}"));
    let stale = reasons
        .keys()
        .filter(|name| !used.contains(**name))
        .map(|name| format!("{DENY} has a reason for {name}, which nothing uses"));
    missing.chain(stale).collect()
}

/// Finds packages whose licence expression the allow list of `deny.toml` does not satisfy.
pub(crate) fn licences(tree: &Tree) -> Vec<String> {
    let text = tree.text_of(DENY).unwrap_or_default();
    let allowed: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix("allow = ["))
        .map(|list| {
            list.trim_end_matches(']')
                .split(',')
                .map(|item| item.trim().trim_matches('"'))
        })
        .into_iter()
        .flatten()
        .collect();
    tree.licences
        .iter()
        .filter(|(_, expression)| !satisfied(expression, &allowed))
        .map(|(name, expression)| {
            format!("{name} is under {expression:?}, which {DENY} does not allow")
        })
        .collect()
}

/// Parses the table with the columns `crate`, `what it is`, `may use`.
fn may_use(text: &str) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut table = BTreeMap::new();
    let rows = text
        .lines()
        .skip_while(|line| line.trim() != "| crate | what it is | may use |")
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, uses] = cells.as_slice() else {
            return Err(format!("{TABLE}: no row of three cells: {row}"));
        };
        let uses = uses
            .split_whitespace()
            .filter(|word| *word != "-")
            .map(full_name)
            .collect();
        if table.insert(full_name(name), uses).is_some() {
            return Err(format!("{TABLE} has two rows for {name}"));
        }
    }
    if table.is_empty() {
        return Err(format!(
            "{TABLE} has no table `| crate | what it is | may use |`"
        ));
    }
    Ok(table)
}

/// Names in the table leave `packhouse-` out, but for crates that have no such prefix.
fn full_name(word: &str) -> String {
    match word.trim_matches('`') {
        own @ ("packhouse" | "xtask" | "engine-tests" | "everything") => own.to_owned(),
        short if short.starts_with("packhouse-") => short.to_owned(),
        short => format!("packhouse-{short}"),
    }
}

/// Evaluates an SPDX expression: OR of ANDs, with parentheses; `/` is the old spelling of OR.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    either(&mut rest, allowed) && rest.is_empty()
}

fn either(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut answer = both(rest, allowed);
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        answer |= both(rest, allowed);
    }
    answer
}

fn both(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut answer = term(rest, allowed);
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        answer &= term(rest, allowed);
    }
    answer
}

fn term(rest: &mut &[&str], allowed: &[&str]) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let answer = either(rest, allowed);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            answer && closed
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            let whole = format!("{licence} WITH {exception}");
            allowed.contains(&whole.as_str())
        }
        [licence, tail @ ..] => {
            *rest = tail;
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{member, tree};

    const ARCHITECTURE: &str = "text\n\n| crate | what it is | may use |\n|---|---|---|\n\
        | `base` | ids | - |\n| `store` | objects | `base` `sys` |\n\
        | `sys` | traits | `base` |\n\nend\n";

    fn members() -> Vec<crate::tree::Member> {
        vec![
            member("packhouse-base", &["sha2"]),
            member("packhouse-store", &["packhouse-base", "packhouse-sys"]),
            member("packhouse-sys", &["packhouse-base"]),
        ]
    }

    #[test]
    fn only_edges_of_the_table_pass() {
        let files = [("ARCHITECTURE.md", ARCHITECTURE)];
        assert_eq!(edges(&tree(&files, members())), Vec::<String>::new());

        let mut upward = members();
        upward[0].uses.push("packhouse-store".into());
        let findings = edges(&tree(&files, upward));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("packhouse-base uses packhouse-store"));
    }

    #[test]
    fn a_row_or_a_crate_alone_and_a_lost_table_are_findings() {
        let files = [("ARCHITECTURE.md", ARCHITECTURE)];
        let mut more = members();
        more.push(member("packhouse-new", &[]));
        assert_eq!(edges(&tree(&files, more)).len(), 1);
        let mut fewer = members();
        fewer.pop();
        assert_eq!(edges(&tree(&files, fewer)).len(), 1);
        assert_eq!(
            edges(&tree(&[("ARCHITECTURE.md", "no table")], members())).len(),
            1
        );
        assert_eq!(edges(&tree(&[], members())).len(), 1);
    }

    #[test]
    fn dev_dependencies_are_no_edges_but_have_reasons() {
        let mut some = members();
        some[0].dev_uses = vec!["packhouse-store".into(), "proptest".into()];
        let deny = "# direct: sha2: hashes\n# direct: proptest: properties\n";
        let whole = tree(
            &[("ARCHITECTURE.md", ARCHITECTURE), ("deny.toml", deny)],
            some,
        );
        assert_eq!(edges(&whole), Vec::<String>::new());
        assert_eq!(reasons(&whole), Vec::<String>::new());
    }

    #[test]
    fn a_missing_an_empty_and_a_stale_reason_are_findings() {
        let count = |deny| reasons(&tree(&[("deny.toml", deny)], members())).len();
        assert_eq!(count("# direct: sha2: hashes\n"), 0);
        assert_eq!(count(""), 1);
        assert_eq!(count("# direct: sha2: \n"), 1);
        assert_eq!(count("# direct: sha2: hashes\n# direct: libc: calls\n"), 1);
    }

    #[test]
    fn a_licence_expression_needs_an_allowed_branch() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(GPL-2.0 OR GPL-3.0) AND MIT",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_package_under_another_licence_is_a_finding() {
        let mut whole = tree(&[("deny.toml", "allow = [\"MIT\", \"Zlib\"]\n")], members());
        whole.licences = vec![("a".into(), "MIT".into()), ("b".into(), "Zlib".into())];
        assert_eq!(licences(&whole), Vec::<String>::new());
        whole.licences.push(("c".into(), "AGPL-3.0".into()));
        assert_eq!(licences(&whole).len(), 1);
    }
}
