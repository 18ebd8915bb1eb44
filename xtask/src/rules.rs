//! Every rule of `cargo xtask tidy`, in the order in which they are judged.

mod dependencies;
mod functions;
mod modules;
mod names;
mod text;
mod threats;

use crate::tree::Tree;

/// A rule: what it finds wrong, one line each.
pub(crate) type Rule = fn(&Tree) -> Vec<String>;

/// The rules by name.
pub(crate) const ALL: [(&str, Rule); 11] = [
    ("may-use", dependencies::edges),
    ("dependency-reason", dependencies::reasons),
    ("licence", dependencies::licences),
    ("line", text::lines),
    ("leftover", text::leftovers),
    ("size", text::sizes),
    ("function-length", functions::lengths),
    ("crate-root", modules::crate_roots),
    ("forgotten-file", modules::forgotten),
    ("machine-name", names::machine),
    ("threat-test", threats::tests_exist),
];

#[cfg(test)]
pub(crate) mod testing {
    //! Small trees for the mutants of the rules.

    use crate::tree::{File, Member, Tree};

    pub(crate) fn tree(files: &[(&str, &str)], members: Vec<Member>) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
                byte_count: text.len() as u64,
            })
            .collect();
        Tree {
            files,
            members,
            licences: Vec::new(),
        }
    }

    pub(crate) fn member(name: &str, uses: &[&str]) -> Member {
        Member {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
            dev_uses: Vec::new(),
        }
    }
}
