//! The closed bag as a folder: `docs/format/bag.md`, sections 1 and 2.

use crate::report::Report;
use crate::shape::{file, is_digest, sha256, short};
use crate::tree::{Entry, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Judges a bag's files, lists and info, and nothing of what is in the payload. `prefix` is where
/// the bag lies in the tree: empty, or with a final `/`.
pub(crate) fn check(report: &mut Report, tree: &Tree, prefix: &str) {
    let mut bag = Bag {
        report,
        tree,
        prefix,
    };
    bag.names();
    bag.limits();
    bag.declaration();
    let manifest = bag.list("manifest-sha256.txt");
    let tags = bag.list("tagmanifest-sha256.txt");
    if let Some(tags) = &tags {
        bag.tags(tags);
    }
    if let Some(manifest) = &manifest {
        bag.payload(manifest);
    }
    bag.strangers(manifest.as_ref());
    bag.info();
}

/// Returns whether a path may be in a bag.
pub(crate) fn is_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && path.split('/').count() <= COMPONENTS_MAX
        && path.split('/').all(is_component)
}

/// Returns the packet that `bag-info.txt` names, where it has its form.
pub(crate) fn packet_of(tree: &Tree, prefix: &str) -> Option<String> {
    let text = file(tree, &format!("{prefix}bag-info.txt"))?;
    let text = std::str::from_utf8(text).ok()?;
    let label = INFO[2].0;
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .map(str::to_owned)
}

const PATH_BYTES_MAX: usize = 255;
const COMPONENTS_MAX: usize = 8;
const COMPONENT_BYTES_MAX: usize = 128;
const FILE_BYTES_MAX: u64 = 1 << 30;
const BAG_BYTES_MAX: u64 = 4 << 30;
const FILES_MAX: u64 = 65_536;

const DECLARATION: &[u8] = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";

/// The tag files that the tag manifest lists, in its order.
const TAGS: [&str; 3] = ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"];
const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";

/// Labels of `bag-info.txt`, with the value where it is always the same.
const INFO: [(&str, Option<&str>); 5] = [
    ("BagIt-Profile-Identifier: ", Some("urn:packhouse:bag:v1")),
    ("Bag-Software-Agent: ", None),
    ("External-Identifier: ", None),
    (
        "External-Description: ",
        Some(
            "Evidence of one packet. By itself it can't prove when its preregistration was made, \
             that no other run was held back, or what only the measured programs could know.",
        ),
    ),
    ("Payload-Oxum: ", None),
];

fn is_component(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= COMPONENT_BYTES_MAX
        && text.bytes().next().is_some_and(is_alphanumeric)
        && text
            .bytes()
            .all(|byte| is_alphanumeric(byte) || b"_.-".contains(&byte))
}

struct Bag<'a> {
    report: &'a mut Report,
    tree: &'a Tree,
    prefix: &'a str,
}

/// A list of digests by path.
pub(crate) type List = BTreeMap<String, String>;

impl<'a> Bag<'a> {
    fn find(&mut self, code: &'static str, path: &str, words: impl Into<String>) {
        let path = format!("{}{path}", self.prefix);
        self.report.find(code, &path, words);
    }

    /// Everything below the prefix, without it.
    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Entry)> + use<'a> {
        let prefix = self.prefix;
        let all = self.tree.iter();
        all.filter_map(move |(path, entry)| Some((path.strip_prefix(prefix)?, entry)))
    }

    fn file(&self, path: &str) -> Option<&'a [u8]> {
        file(self.tree, &format!("{}{path}", self.prefix)).map(|bytes| &**bytes)
    }

    fn names(&mut self) {
        let paths: BTreeSet<&str> = self.entries().map(|(path, _)| path).collect();
        for (path, entry) in self.entries() {
            if !is_path(path) {
                self.find("bag.path", path, "no path that a bag may have");
            }
            for (at, _) in path.match_indices('/') {
                if paths.contains(&path[..at]) {
                    self.find("bag.path", path, "lies in what is no folder");
                }
            }
            match entry {
                Entry::File(bytes) if bytes.is_empty() => {
                    self.find("bag.empty-file", path, "a file of 0 bytes");
                }
                Entry::File(_) => {}
                Entry::EmptyFolder => self.find("bag.unlisted", path, "a folder without any file"),
                Entry::Link(target) => {
                    let words = format!("a symbolic link to {}", short(target));
                    self.find("bag.link", path, words);
                }
                Entry::Other(words) => self.find("bag.link", path, words.clone()),
            }
        }
    }

    fn limits(&mut self) {
        let (mut bytes, mut count) = (0, 0);
        for (path, entry) in self.entries() {
            if let Entry::File(content) = entry {
                let length = content.len() as u64;
                if length > FILE_BYTES_MAX {
                    self.find("bag.limits", path, format!("{length} bytes"));
                }
                bytes += length;
                count += 1;
            }
        }
        if bytes > BAG_BYTES_MAX {
            self.find("bag.limits", "", format!("{bytes} bytes in all"));
        }
        if count > FILES_MAX {
            self.find("bag.limits", "", format!("{count} files"));
        }
        self.report.count("files", count);
        self.report.count("bytes", bytes);
    }

    fn declaration(&mut self) {
        match self.file("bagit.txt") {
            Some(DECLARATION) => {}
            Some(_) => self.find(
                "bag.not-bagit",
                "bagit.txt",
                "not the two lines of BagIt 1.0",
            ),
            None => self.find("bag.not-bagit", "bagit.txt", "the file is missing"),
        }
    }

    /// Reads a list of digests: none where it is missing or not of its form.
    fn list(&mut self, name: &str) -> Option<List> {
        let Some(bytes) = self.file(name) else {
            self.find("bag.not-bagit", name, "the file is missing");
            return None;
        };
        match list(bytes) {
            Ok(list) => Some(list),
            Err((line, words)) => {
                self.find("bag.not-bagit", &format!("{name}:{line}"), words);
                None
            }
        }
    }

    fn tags(&mut self, list: &List) {
        if !list.keys().map(String::as_str).eq(TAGS) {
            let words = format!("lists other files than {}", TAGS.join(", "));
            self.find("bag.not-bagit", TAG_MANIFEST, words);
        }
        for (path, digest) in list {
            self.digest(path, digest);
        }
    }

    fn digest(&mut self, path: &str, listed: &str) {
        if let Some(bytes) = self.file(path) {
            let is = sha256(bytes);
            if is != listed {
                let words = format!("the list says {listed}, the bytes are {is}");
                self.find("bag.digest", path, words);
            }
        }
    }

    fn payload(&mut self, manifest: &List) {
        if manifest.is_empty() {
            self.find("bag.not-bagit", "manifest-sha256.txt", "lists nothing");
        }
        for (path, digest) in manifest {
            let full = format!("{}{path}", self.prefix);
            if !path.starts_with("data/") {
                let words = format!("lists {}, which is not in data/", short(path));
                self.find("bag.not-bagit", "manifest-sha256.txt", words);
            } else if !is_path(path) {
                let words = format!("lists {}, which no bag may have", short(path));
                self.find("bag.path", "manifest-sha256.txt", words);
            } else if !self.tree.contains_key(&full) {
                self.find("bag.listed-missing", path, "is listed and not there");
            }
            let is_below = |at: usize| manifest.contains_key(&path[..at]);
            if path.match_indices('/').any(|(at, _)| is_below(at)) {
                let words = format!("lists {} below a file", short(path));
                self.find("bag.path", "manifest-sha256.txt", words);
            }
            self.digest(path, digest);
        }
    }

    /// Finds files that are in no list.
    fn strangers(&mut self, manifest: Option<&List>) {
        for (path, entry) in self.entries() {
            if !matches!(entry, Entry::File(_)) {
                continue;
            }
            let is_known = match manifest {
                Some(list) if path.starts_with("data/") => list.contains_key(path),
                None if path.starts_with("data/") => true,
                Some(_) | None => path == TAG_MANIFEST || TAGS.contains(&path),
            };
            if !is_known {
                self.find("bag.unlisted", path, "is there and not listed");
            }
        }
    }

    fn info(&mut self) {
        let name = "bag-info.txt";
        let Some(bytes) = self.file(name) else {
            self.find("bag.not-bagit", name, "the file is missing");
            return;
        };
        let values = match info(bytes) {
            Ok(values) => values,
            Err(words) => {
                self.find("bag.not-bagit", name, words);
                return;
            }
        };
        let (mut bytes, mut count) = (0, 0);
        for (path, entry) in self.entries() {
            if let (true, Entry::File(content)) = (path.starts_with("data/"), entry) {
                bytes += content.len() as u64;
                count += 1;
            }
        }
        let oxum = format!("{bytes}.{count}");
        if values[4] != oxum {
            let words = format!("says {} of the payload, which is {oxum}", short(values[4]));
            self.find("bag.oxum", name, words);
        }
    }
}

/// Parses `<sha256>  <path>` lines in strictly rising order.
pub(crate) fn list(bytes: &[u8]) -> Result<List, (usize, String)> {
    let text = std::str::from_utf8(bytes).map_err(|_| (1, "not UTF-8".to_owned()))?;
    let mut list = List::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let refuse = |words: &str| Err((index + 1, words.to_owned()));
        let Some(line) = line.strip_suffix('\n') else {
            return refuse("the last line has no end");
        };
        let Some((digest, path)) = line.split_once("  ") else {
            return refuse("no digest, two blanks and a path");
        };
        if !is_digest(digest) || path.is_empty() {
            return refuse("no digest, two blanks and a path");
        }
        let last = list.last_key_value();
        if last.is_some_and(|(last, _): (&String, _)| last.as_str() >= path) {
            return refuse("out of order, or there twice");
        }
        list.insert(path.to_owned(), digest.to_owned());
    }
    Ok(list)
}

/// Parses `bag-info.txt` into its five values.
fn info(bytes: &[u8]) -> Result<[&str; 5], String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let body = text.strip_suffix('\n').ok_or("the last line has no end")?;
    let lines: Vec<&str> = body.split('\n').collect();
    if lines.len() != INFO.len() {
        return Err(format!("{} lines, not {}", lines.len(), INFO.len()));
    }
    let mut values = [""; 5];
    for ((value, line), (label, fixed)) in values.iter_mut().zip(&lines).zip(INFO) {
        *value = line
            .strip_prefix(label)
            .ok_or_else(|| format!("no line `{label}...` where it must be"))?;
        if fixed.is_some_and(|fixed| fixed != *value) {
            return Err(format!("another value of `{label}`: {}", short(value)));
        }
    }
    let agent = values[1];
    let is_agent = (1..=128).contains(&agent.len())
        && agent.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && agent.trim_matches(' ') == agent;
    if !is_agent {
        return Err(format!("no name of a software agent: {}", short(agent)));
    }
    if !is_digest(values[2]) {
        return Err(format!("no digest of a packet: {}", short(values[2])));
    }
    if !is_oxum(values[4]) {
        return Err(format!("no count of bytes and files: {}", short(values[4])));
    }
    Ok(values)
}

fn is_oxum(text: &str) -> bool {
    let is_count = |text: &str| text.parse::<u64>().is_ok_and(|n| n.to_string() == text);
    text.split_once('.')
        .is_some_and(|(bytes, files)| is_count(bytes) && is_count(files))
}
