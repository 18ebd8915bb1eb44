//! Whether files are a valid bag, and the bag that a payload makes.
//!
//! Both are functions of bytes in memory; no list is believed.

use crate::contents::{Contents, passed};
use crate::faults::{BagFault, FormFault};
use crate::info::{BagInfo, Oxum};
use crate::lists::{self, List};
use crate::paths::is_path;
use crate::{DATA_DIR, DECLARATION, DECLARATION_FILE, INFO_FILE, MANIFEST_FILE, TAG_MANIFEST_FILE};
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

/// Judges files as a bag. Errors with everything that is wrong, in the order of paths.
pub fn check(contents: &Contents) -> Result<(), Vec<BagFault>> {
    let digests = digests(contents);
    let mut faults = paths_and_sizes(contents);
    if let Some(bytes) = found(contents, DECLARATION_FILE, &mut faults)
        && bytes != DECLARATION
    {
        let fault = FormFault::Line {
            line: 1,
            expected: "BagIt-Version: 1.0, then Tag-File-Character-Encoding: UTF-8".to_owned(),
        };
        faults.push(not_bagit(DECLARATION_FILE, fault));
    }
    if let Some(bytes) = found(contents, INFO_FILE, &mut faults) {
        match BagInfo::parse(bytes) {
            Err(fault) => faults.push(not_bagit(INFO_FILE, fault)),
            Ok((_, said)) => {
                let actual = oxum(contents);
                if said != actual {
                    faults.push(BagFault::Oxum { said, actual });
                }
            }
        }
    }
    if let Some(list) = list(contents, MANIFEST_FILE, is_payload, &mut faults) {
        compare(&list, &digests, &mut faults);
        let payload = digests
            .keys()
            .filter(|path| is_payload(path) && is_path(path));
        let unlisted = payload.filter(|path| !list.digests.contains_key(**path));
        faults.extend(unlisted.map(|path| BagFault::Unlisted {
            path: (*path).to_owned(),
        }));
    }
    if let Some(list) = list(contents, TAG_MANIFEST_FILE, is_tag, &mut faults) {
        if list.digests.len() < TAGS.len() {
            let fault = FormFault::Line {
                line: list.digests.len() + 1,
                expected: TAGS.join(", then "),
            };
            faults.push(not_bagit(TAG_MANIFEST_FILE, fault));
        }
        compare(&list, &digests, &mut faults);
    }
    let beside = |path: &str| !is_payload(path) && !is_tag(path) && path != TAG_MANIFEST_FILE;
    let beside = contents.paths().filter(|path| beside(path));
    faults.extend(beside.map(|path| BagFault::Unlisted {
        path: path.to_owned(),
    }));
    if faults.is_empty() {
        return Ok(());
    }
    faults.sort_by(|one, other| (one.path(), one.code()).cmp(&(other.path(), other.code())));
    faults.dedup();
    Err(faults)
}

/// The bag that `OpenBag::close` makes of a payload, whose paths are those from `data/`. Judges
/// nothing: whether it is valid, `check` says.
pub fn closed(payload: &Contents, info: &BagInfo) -> Contents {
    let files = payload.files().iter();
    let files = files.map(|(path, bytes)| (format!("{DATA_DIR}/{path}"), bytes.clone()));
    let mut contents = Contents::new(files.collect());
    let manifest = lists::render(digests(&contents).into_iter());
    let [info_file, declaration, manifest_file, tag_manifest] =
        tag_files(info, oxum(&contents), manifest);
    for (name, bytes) in [info_file, declaration, manifest_file, tag_manifest] {
        contents.insert(name, bytes);
    }
    contents
}

/// The four files beside a payload, each with its name, the tag manifest last.
pub(crate) fn tag_files(
    info: &BagInfo,
    oxum: Oxum,
    manifest: Vec<u8>,
) -> [(&'static str, Vec<u8>); 4] {
    let info = info.render(oxum);
    let tags: [&[u8]; 3] = [&info, DECLARATION, &manifest];
    let tags = TAGS.into_iter().zip(Digest::of_many(&tags));
    let tag_manifest = lists::render(tags);
    [
        (INFO_FILE, info),
        (DECLARATION_FILE, DECLARATION.to_vec()),
        (MANIFEST_FILE, manifest),
        (TAG_MANIFEST_FILE, tag_manifest),
    ]
}

fn digests(contents: &Contents) -> BTreeMap<&str, Digest> {
    let bytes: Vec<&[u8]> = contents.files().values().map(AsRef::as_ref).collect();
    contents.paths().zip(Digest::of_many(&bytes)).collect()
}

fn paths_and_sizes(contents: &Contents) -> Vec<BagFault> {
    let mut faults = Vec::new();
    let mut all_bytes = 0;
    for (count, (path, bytes)) in contents.files().iter().enumerate() {
        let size = bytes.len() as u64;
        if let Some(bound) = passed(size, all_bytes, count) {
            let path = path.clone();
            faults.push(BagFault::Limit { path, bound });
        }
        all_bytes = all_bytes.saturating_add(size);
        if !is_path(path) || is_folder(contents, path) {
            faults.push(BagFault::Path { path: path.clone() });
        }
        if size == 0 {
            faults.push(BagFault::EmptyFile { path: path.clone() });
        }
    }
    faults
}

/// Says whether a path is also a folder of another: no disk holds both.
fn is_folder(contents: &Contents, path: &str) -> bool {
    let below = format!("{path}/");
    let mut behind = contents.files().range(below.clone()..);
    behind
        .next()
        .is_some_and(|(other, _)| other.starts_with(&below))
}

fn found<'c>(
    contents: &'c Contents,
    name: &'static str,
    faults: &mut Vec<BagFault>,
) -> Option<&'c [u8]> {
    let bytes = contents.get(name);
    if bytes.is_none() {
        faults.push(not_bagit(name, FormFault::Missing));
    }
    bytes
}

/// Parses one of the two lists; `None` where it is not of its form.
fn list(
    contents: &Contents,
    name: &'static str,
    belongs: fn(&str) -> bool,
    faults: &mut Vec<BagFault>,
) -> Option<List> {
    let mut list = match lists::parse(found(contents, name, faults)?) {
        Ok(list) => list,
        Err(fault) => {
            faults.push(not_bagit(name, fault));
            return None;
        }
    };
    faults.append(&mut list.faults);
    if let Some(line) = list.digests.keys().position(|path| !belongs(path)) {
        let fault = FormFault::Line {
            line: line + 1,
            expected: "a path of this list".to_owned(),
        };
        faults.push(not_bagit(name, fault));
        return None;
    }
    Some(list)
}

fn compare(list: &List, digests: &BTreeMap<&str, Digest>, faults: &mut Vec<BagFault>) {
    for (path, listed) in &list.digests {
        let path = path.clone();
        match digests.get(path.as_str()) {
            None if is_payload(&path) => faults.push(BagFault::ListedMissing { path }),
            // The four files' absence is told once, where they are looked for.
            None => {}
            Some(actual) if actual != listed => faults.push(BagFault::Digest {
                path,
                listed: *listed,
                actual: *actual,
            }),
            Some(_) => {}
        }
    }
}

fn oxum(contents: &Contents) -> Oxum {
    let payload = contents.files().iter();
    let payload = payload.filter(|(path, _)| is_payload(path));
    payload.fold(Oxum::default(), |sum, (_, bytes)| Oxum {
        bytes: sum.bytes + bytes.len() as u64,
        files: sum.files + 1,
    })
}

fn is_payload(path: &str) -> bool {
    path.strip_prefix(DATA_DIR)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn is_tag(path: &str) -> bool {
    TAGS.contains(&path)
}

fn not_bagit(path: &str, fault: FormFault) -> BagFault {
    BagFault::NotBagit {
        path: path.to_owned(),
        fault,
    }
}

/// What the tag manifest lists, in its order.
const TAGS: [&str; 3] = [INFO_FILE, DECLARATION_FILE, MANIFEST_FILE];
