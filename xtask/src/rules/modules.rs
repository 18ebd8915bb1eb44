//! Crate roots that say what they must, and files that no module declares.

use crate::tree::Tree;

/// Crates that may have `unsafe` blocks: safe maps and detached children, and the ggml edge.
const UNSAFE_CRATES: [&str; 5] = [
    "packhouse-sys",
    "packhouse-ggml",
    "packhouse-capi",
    "packhouse-hash",
    "packhouse-pack",
];

/// Test roots of other crates that may have them too.
const UNSAFE_ROOTS: [&str; 2] = [
    // Counts the whole process's memory by a global allocator.
    "crates/packhouse-container/tests/allocation.rs",
    // Maps model files as an engine does, and guards pages that must not be read.
    "crates/packhouse-loader/tests/loader/main.rs",
];

/// Integration binaries that stand beside their crate's one.
const APART: [&str; 2] = [
    // Its allocator is that of the whole process.
    "crates/packhouse-container/tests/allocation.rs",
    // Needs no server: a host in C that is linked to the engine's libraries.
    "engine-tests/tests/plugin_cycles.rs",
];

/// The crate whose folder must build alone: it inherits nothing and uses nothing of ours.
const ALONE: &str = "packhouse-bagcheck";

/// Finds crate roots without `#![forbid(unsafe_code)]` outside the crates that may have unsafe
/// code, roots without a `//!` header, and manifests that do not take the workspace's lints, or
/// that take anything although they must stand alone.
pub(crate) fn crate_roots(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for member in &tree.members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        let text = tree.text_of(&manifest).unwrap_or_default();
        if member.name == ALONE {
            findings.extend(inherited(&manifest, text));
        } else if !text.contains("[lints]\nworkspace = true\n") {
            findings.push(format!(
                "{manifest} does not have `[lints] workspace = true`"
            ));
        }
        for root in &member.roots {
            let text = tree.text_of(root).unwrap_or_default();
            if !text.starts_with("//! ") {
                findings.push(format!("{root} does not begin with a `//!` header"));
            }
            let may = UNSAFE_CRATES.contains(&member.name.as_str())
                || UNSAFE_ROOTS.contains(&root.as_str());
            if !may && !text.lines().any(|line| line == "#![forbid(unsafe_code)]") {
                findings.push(format!("{root} does not forbid unsafe code"));
            }
        }
    }
    findings
}

/// Finds what ties the manifest of the crate that stands alone to this workspace.
fn inherited(manifest: &str, text: &str) -> Vec<String> {
    let ties = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    ties.filter(|line| line.contains("workspace") || line.contains("path = \"../"))
        .map(|line| format!("{manifest} must build alone, but has `{line}`"))
        .collect()
}

/// Finds source files that no `mod` declares (they would never be compiled, nor their tests run),
/// and crates with more than one integration binary.
pub(crate) fn forgotten(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for member in &tree.members {
        let prefix = format!("{}/", member.folder);
        let tests = format!("{prefix}tests/");
        let binaries = member
            .roots
            .iter()
            .filter(|root| root.starts_with(&tests) && !APART.contains(&root.as_str()))
            .count();
        if binaries > 1 {
            findings.push(format!(
                "{} has {binaries} integration binaries",
                member.name
            ));
        }
        // A package of its own inside this folder is no part of the crate.
        let nested: Vec<&str> = tree
            .with_ending(&["/Cargo.toml"])
            .filter_map(|file| file.path.strip_suffix("Cargo.toml"))
            .filter(|folder| folder.starts_with(&prefix) && *folder != prefix)
            .collect();
        for file in tree
            .with_ending(&[".rs"])
            .filter(|file| file.path.starts_with(&prefix))
        {
            let is_elsewhere = nested.iter().any(|folder| file.path.starts_with(folder));
            if is_elsewhere
                || member.roots.contains(&file.path)
                || declared(tree, &file.path, &member.roots)
            {
                continue;
            }
            findings.push(format!("{} is declared by no module", file.path));
        }
    }
    findings
}

/// Whether a parent module declares the file, or a root does so in an inline `mod folder { ... }`.
fn declared(tree: &Tree, path: &str, roots: &[String]) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let (folder, stem) = match stem {
        "mod" => folder.rsplit_once('/').unwrap_or(("", folder)),
        _ => (folder, stem),
    };
    let (above, folder_name) = folder.rsplit_once('/').unwrap_or(("", folder));
    let root_in = |candidate: &str, wanted: &str| {
        let lies_there = candidate
            .rsplit_once('/')
            .is_some_and(|(at, _)| at == wanted);
        lies_there && roots.iter().any(|root| root == candidate)
    };
    let is_parent = |candidate: &str| {
        candidate == format!("{folder}.rs")
            || candidate == format!("{folder}/mod.rs")
            || root_in(candidate, folder)
    };
    let has_line = |text: &str, wanted: &str| {
        text.lines().any(|line| {
            let line = line.trim();
            line.trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ")
                == wanted
        })
    };
    // By a path of its own, as files are that two test binaries share.
    let by_path = format!("{stem}.rs\"]");
    let shared = |text: &str| {
        text.lines()
            .any(|line| line.starts_with("#[path = \"") && line.ends_with(&by_path))
    };
    let declaration = format!("mod {stem};");
    tree.files.iter().any(|file| {
        let inline =
            root_in(&file.path, above) && has_line(&file.text, &format!("mod {folder_name} {{"));
        (is_parent(&file.path) || inline) && has_line(&file.text, &declaration)
            || root_in(&file.path, above) && shared(&file.text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{member, tree};

    const MANIFEST: &str = "[package]\n[lints]\nworkspace = true\n";
    const ROOT: &str = "//! A crate.\n#![forbid(unsafe_code)]\nmod inner;\n";

    fn count(rule: crate::rules::Rule, name: &str, files: &[(&str, &str)]) -> usize {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (format!("crates/{name}/{path}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        let mut whole = tree(&files, vec![member(name, &[])]);
        let tests = files.iter().map(|(path, _)| *path).filter(|path| {
            path.split_once("/tests/")
                .is_some_and(|(_, rest)| !rest.contains('/') || rest.ends_with("/main.rs"))
        });
        whole.members[0].roots.extend(tests.map(str::to_owned));
        rule(&whole).len()
    }

    #[test]
    fn a_root_must_forbid_unsafe_code_unless_its_crate_may() {
        let good = [("Cargo.toml", MANIFEST), ("src/lib.rs", ROOT)];
        assert_eq!(count(crate_roots, "packhouse-base", &good), 0);
        let bare = [("Cargo.toml", MANIFEST), ("src/lib.rs", "//! A crate.\n")];
        assert_eq!(count(crate_roots, "packhouse-base", &bare), 1);
        assert_eq!(count(crate_roots, "packhouse-sys", &bare), 0);
        let commented = [
            ("Cargo.toml", MANIFEST),
            ("src/lib.rs", "//! A.\n// #![forbid(unsafe_code)]\n"),
        ];
        assert_eq!(count(crate_roots, "packhouse-base", &commented), 1);
    }

    #[test]
    fn the_crate_that_stands_alone_inherits_nothing() {
        let findings = |manifest: &str| {
            let name = "crates/packhouse-bagcheck";
            let root = "//! Header.\n#![forbid(unsafe_code)]\n";
            let files = [
                (&*format!("{name}/Cargo.toml"), manifest),
                (&*format!("{name}/src/lib.rs"), root),
            ];
            crate_roots(&tree(&files, vec![member("packhouse-bagcheck", &[])]))
        };
        assert_eq!(findings("[package]\n# no workspace here\n"), [""; 0]);
        assert_eq!(findings("[lints]\nworkspace = true\n").len(), 1);
        assert_eq!(findings("serde.workspace = true\n").len(), 1);
        assert_eq!(
            findings("packhouse-bag = { path = \"../packhouse-bag\" }\n").len(),
            1
        );
    }

    #[test]
    fn a_manifest_without_lints_and_a_root_without_header_are_findings() {
        let loose = [("Cargo.toml", "[package]\n"), ("src/lib.rs", ROOT)];
        assert_eq!(count(crate_roots, "packhouse-base", &loose), 1);
        let mute = [
            ("Cargo.toml", MANIFEST),
            ("src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ];
        assert_eq!(count(crate_roots, "packhouse-base", &mute), 1);
    }

    #[test]
    fn an_undeclared_file_is_a_finding() {
        let inner = ("src/inner.rs", "mod deep;\n");
        let deep = ("src/inner/deep.rs", "");
        assert_eq!(
            count(forgotten, "a", &[("src/lib.rs", ROOT), inner, deep]),
            0
        );
        assert_eq!(
            count(
                forgotten,
                "a",
                &[("src/lib.rs", ROOT), inner, ("src/lost.rs", "")]
            ),
            1
        );
        let test = ("tests/all/main.rs", "mod one;\n");
        let lib = ("src/lib.rs", "");
        assert_eq!(
            count(forgotten, "a", &[lib, test, ("tests/all/one.rs", "")]),
            0
        );
        assert_eq!(
            count(forgotten, "a", &[lib, test, ("tests/all/two.rs", "")]),
            1
        );
    }

    #[test]
    fn a_second_integration_binary_is_a_finding() {
        let two = [("src/lib.rs", ""), ("tests/a.rs", ""), ("tests/b.rs", "")];
        assert_eq!(count(forgotten, "a", &two), 1);
        assert_eq!(count(forgotten, "a", &two[..2]), 0);
    }
}
