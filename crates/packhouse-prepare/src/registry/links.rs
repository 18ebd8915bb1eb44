//! Where the symlinks of a tree lead. Pure values: the tree is a list, nothing is opened.
//!
//! A link may lead to what is in the tree, by way of other links of it. One that leads out would
//! make the pack depend on what nobody hashed.
//!
//! Never: asks the file system. What a link of the tree leads to is resolved as the kernel would,
//! component by component, because `a/..` is not where it seems where `a` is itself a link.

use super::artifact::{What, join};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What is wrong with a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// Its target begins at the root of the file system.
    #[error("an absolute path")]
    Absolute,
    /// It leads out of the folder.
    #[error("which is outside of the folder")]
    Outside,
    /// There is nothing.
    #[error("which is not there")]
    Nothing,
    /// It leads through what is no folder.
    #[error("which leads through a file")]
    ThroughFile,
    /// It leads to itself.
    #[error("which never ends")]
    Endless,
}

/// Follows the link at `path` with this target to something in the tree.
pub(super) fn judge(
    entries: &BTreeMap<OsString, What>,
    path: &OsStr,
    target: &Path,
) -> Result<(), LinkFault> {
    let mut here = parent(path);
    let mut todo = parts_reversed(target)?;
    let mut hops = 0;
    while let Some(part) = todo.pop() {
        if !here.is_empty() && !matches!(entries.get(&here), Some(What::Folder)) {
            return Err(LinkFault::ThroughFile);
        }
        match part.as_bytes() {
            b"" | b"." => continue,
            b".." if here.is_empty() => return Err(LinkFault::Outside),
            b".." => here = parent(&here),
            _ => {
                let next = join(&here, &part);
                match entries.get(&next) {
                    None => return Err(LinkFault::Nothing),
                    Some(What::Link { target }) => {
                        hops += 1;
                        if hops > HOPS_MAX {
                            return Err(LinkFault::Endless);
                        }
                        todo.extend(parts_reversed(target)?);
                    }
                    Some(What::Folder | What::File(_)) => here = next,
                }
            }
        }
    }
    Ok(())
}

fn parts_reversed(target: &Path) -> Result<Vec<OsString>, LinkFault> {
    let bytes = target.as_os_str().as_bytes();
    if bytes.starts_with(b"/") {
        return Err(LinkFault::Absolute);
    }
    let parts = bytes.split(|byte| *byte == b'/').rev();
    Ok(parts.map(|part| OsStr::from_bytes(part).into()).collect())
}

fn parent(path: &OsStr) -> OsString {
    let parent = Path::new(path).parent().map(PathBuf::from);
    parent.unwrap_or_default().into_os_string()
}

/// As many as Linux follows.
const HOPS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::super::artifact::FileEntry;
    use super::*;
    use packhouse_base::digest::Digest;

    fn tree(links: &[(&str, &str)]) -> BTreeMap<OsString, What> {
        let file = || {
            What::File(FileEntry {
                bytes: 1,
                digest: Digest::of(b"x"),
            })
        };
        let mut tree = BTreeMap::from([
            ("a".into(), What::Folder),
            ("a/b".into(), What::Folder),
            ("a/b/f".into(), file()),
            ("g".into(), file()),
        ]);
        for (path, target) in links {
            let target = PathBuf::from(target);
            tree.insert(path.into(), What::Link { target });
        }
        tree
    }

    #[test]
    fn a_link_leads_to_something_in_the_tree_or_is_refused_for_its_reason() {
        let long: String = "./".repeat(300) + "g";
        for (path, target, judged) in [
            ("l", "g", Ok(())),
            ("l", "./a//b/../b/f", Ok(())),
            ("l", ".", Ok(())),
            ("l", &long, Ok(())),
            ("a/l", "..", Ok(())),
            ("a/l", "../g", Ok(())),
            ("a/b/l", "../../g", Ok(())),
            ("l", "/g", Err(LinkFault::Absolute)),
            ("l", "..", Err(LinkFault::Outside)),
            ("l", "a/../../g", Err(LinkFault::Outside)),
            ("a/b/l", "../../../g", Err(LinkFault::Outside)),
            ("l", "h", Err(LinkFault::Nothing)),
            ("l", "a/h/..", Err(LinkFault::Nothing)),
            ("l", "g/..", Err(LinkFault::ThroughFile)),
            ("l", "g/", Err(LinkFault::ThroughFile)),
            ("l", "l", Err(LinkFault::Endless)),
        ] {
            let entries = tree(&[(path, target)]);
            let found = judge(&entries, OsStr::new(path), Path::new(target));
            assert_eq!(found, judged, "{path} -> {target}");
        }
    }

    #[test]
    fn links_through_links_are_followed_as_the_kernel_does() {
        // By its text `a/up/..` is `a`; in fact `a/up` is the top, and above it is outside.
        let entries = tree(&[("a/up", ".."), ("l", "a/up/.."), ("m", "a/up/g")]);
        let found = |path: &str, target: &str| judge(&entries, OsStr::new(path), target.as_ref());
        assert_eq!(found("l", "a/up/.."), Err(LinkFault::Outside));
        assert_eq!(found("m", "a/up/g"), Ok(()));
        let entries = tree(&[("out", "/etc"), ("l", "out/passwd")]);
        let found = judge(&entries, OsStr::new("l"), Path::new("out/passwd"));
        assert_eq!(found, Err(LinkFault::Absolute));
        let entries = tree(&[("x", "y"), ("y", "x")]);
        let found = judge(&entries, OsStr::new("x"), Path::new("y"));
        assert_eq!(found, Err(LinkFault::Endless));
    }
}
