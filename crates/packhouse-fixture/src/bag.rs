//! A fixture as files: a bag of BagIt 1.0 (RFC 8493), whose bytes follow from the fixture alone.
//!
//! Specified in `docs/format/fixture.md`, section 2.
//!
//! - `sha256sum -c` verifies it in its folder, with either list;
//! - no time, host or path is in it: two makers make the same bytes.

use crate::Fixture;
use crate::record::record;
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;

/// The files of one fixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bag {
    id: String,
    files: BTreeMap<String, Vec<u8>>,
    digest: Digest,
}

impl Bag {
    /// Renders a fixture.
    pub fn of(fixture: &Fixture) -> Self {
        let mut files = BTreeMap::new();
        for (name, tensor) in &fixture.tensors {
            files.insert(format!("{DATA}/{name}"), tensor.bytes.clone());
        }
        let manifest = list(&files);
        let mut tags = BTreeMap::new();
        tags.insert(DECLARATION_FILE.to_owned(), DECLARATION.to_vec());
        tags.insert(RECORD_FILE.to_owned(), record(fixture));
        tags.insert(MANIFEST_FILE.to_owned(), manifest);
        let tag_manifest = list(&tags);
        let digest = Digest::of(&tag_manifest);
        files.append(&mut tags);
        files.insert(TAG_MANIFEST_FILE.to_owned(), tag_manifest);
        Self {
            id: fixture.id.clone(),
            files,
            digest,
        }
    }

    /// The fixture's id, which is the folder's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The fixture's digest: SHA-256 of its list of lists, so of everything in it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Every file by its path within the folder, at most one folder deep.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let lengths = self.files.values().map(|bytes| bytes.len() as u64);
        lengths.sum()
    }
}

/// The lines of a list: `<sha256>  <path>`, sorted by path.
fn list(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let contents: Vec<&[u8]> = files.values().map(Vec::as_slice).collect();
    let digests = Digest::of_many(&contents);
    let lines = files.keys().zip(digests);
    let lines = lines.map(|(path, digest)| format!("{digest}  {path}\n"));
    lines.collect::<String>().into_bytes()
}

/// Reads the lines of a list; `None` where it is not what this module writes.
pub(crate) fn parse_list(bytes: &[u8]) -> Option<BTreeMap<String, Digest>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let lines = text.split_inclusive('\n').map(|line| {
        let (digest, path) = line.strip_suffix('\n')?.split_once("  ")?;
        Some((path.to_owned(), Digest::parse(digest).ok()?))
    });
    lines.collect()
}

/// The folder of tensors.
pub(crate) const DATA: &str = "data";
/// The file that says what this is.
pub(crate) const DECLARATION_FILE: &str = "bagit.txt";
/// All of the fixture but its bytes.
pub const RECORD_FILE: &str = "fixture.json";
/// Hashes of the tensors.
pub(crate) const MANIFEST_FILE: &str = "manifest-sha256.txt";
/// Hashes of the three files above.
pub(crate) const TAG_MANIFEST_FILE: &str = "tagmanifest-sha256.txt";

const DECLARATION: &[u8] = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
