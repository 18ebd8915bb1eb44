//! A second reader of bundles, over another tar reader and by sets instead of an order known
//! before: used by the tests and by the fuzz target.

use packhouse_base::digest::{Digest, PackKey, SetKey};
use packhouse_prepare::bundle::{self, BundleError, Contents, ObjectSink};
use packhouse_store::container_record::ContainerRecord;
use packhouse_store::manifest::SetManifest;
use packhouse_store::record::PackRecord;
use std::collections::BTreeMap;
use std::io::Read as _;

/// A way in which the second reader is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Takes whatever follows the end.
    TrailingBytes,
    /// Takes objects whose bytes are others.
    OtherObjects,
    /// Takes any owner of a member.
    Owners,
}

/// Whether both readers say the same of these bytes; answers what they say.
pub(crate) fn compare(bytes: &[u8], mutant: Option<Mutant>) -> Result<bool, String> {
    let first = read(bytes);
    let second = second(bytes, mutant);
    match (&first, &second) {
        (Ok(()), Some(())) => Ok(true),
        (Err(_), None) => Ok(false),
        (Ok(()), None) => Err("the second reader refuses what the first takes".into()),
        (Err(error), Some(())) => Err(format!("the second reader takes it, the first: {error}")),
    }
}

/// Reads a bundle with the reader under test, objects into nothing but their hash.
pub(crate) fn read(bytes: &[u8]) -> Result<(), BundleError> {
    struct Hash;
    impl ObjectSink for Hash {
        fn begin(&mut self, _contents: &Contents) -> Result<(), BundleError> {
            Ok(())
        }

        fn object(
            &mut self,
            expected: packhouse_base::digest::ObjectDigest,
            length: u64,
            fill: &mut dyn FnMut(&mut [u8]) -> Result<(), BundleError>,
        ) -> Result<(), BundleError> {
            let mut hasher = packhouse_base::digest::Hasher::default();
            let mut left = length;
            let mut buffer = [0; 4096];
            while left > 0 {
                let part = usize::try_from(left.min(4096)).expect("because it is 4096 at most");
                fill(&mut buffer[..part])?;
                hasher.update(&buffer[..part]);
                left -= part as u64;
            }
            let actual = hasher.finish();
            if actual == expected.0 {
                Ok(())
            } else {
                Err(BundleError::Object { expected, actual })
            }
        }
    }
    bundle::read(&mut &bytes[..], &mut Hash).map(|_| ())
}

/// The second reader's verdict.
fn second(bytes: &[u8], mutant: Option<Mutant>) -> Option<()> {
    let mut archive = tar::Archive::new(bytes);
    let mut files: Vec<(String, Option<Vec<u8>>)> = Vec::new();
    let mut end = 0;
    for entry in archive.entries().ok()?.raw(true) {
        let mut entry = entry.ok()?;
        let place = usize::try_from(entry.raw_header_position()).ok()?;
        let path = plain_header(entry.header(), mutant)?;
        let is_folder = entry.header().entry_type() == tar::EntryType::Directory;
        let length = usize::try_from(entry.header().size().ok()?).ok()?;
        if is_folder && length != 0 || place != end {
            return None;
        }
        end = place
            .checked_add(512)?
            .checked_add(length.checked_next_multiple_of(512)?)?;
        let padding = bytes.get(place + 512 + length..end)?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).ok()?;
        files.push((path, (!is_folder).then_some(content)));
    }
    let rest = bytes.get(end..)?;
    let is_end = rest.len() >= 1024 && rest[..1024].iter().all(|byte| *byte == 0);
    let trails = rest.len() > 1024 && mutant != Some(Mutant::TrailingBytes);
    (is_end && !trails).then_some(())?;
    holds_together(&files, mutant)
}

/// A header that another tar writer would have written of the same path, type and length.
fn plain_header(header: &tar::Header, mutant: Option<Mutant>) -> Option<String> {
    let path = header.path().ok()?.to_str()?.to_owned();
    let mut expected = tar::Header::new_ustar();
    let (mode, kind) = match header.entry_type() {
        tar::EntryType::Regular => (0o444, tar::EntryType::Regular),
        tar::EntryType::Directory => (0o755, tar::EntryType::Directory),
        _ => return None,
    };
    expected.set_path(&path).ok()?;
    expected.set_entry_type(kind);
    expected.set_mode(mode);
    expected.set_uid(0);
    expected.set_gid(0);
    expected.set_mtime(0);
    expected.set_size(header.size().ok()?);
    expected.set_device_major(0).ok()?;
    expected.set_device_minor(0).ok()?;
    expected.set_cksum();
    let (mut ours, mut theirs) = (*expected.as_bytes(), *header.as_bytes());
    let sum = format!("{:06o}\0 ", header.cksum().ok()?);
    if theirs[148..156] != *sum.as_bytes() {
        return None;
    }
    // The two spell the sum and the parts of a long path differently.
    let is_long = path.len() > 100;
    let prefix_is_empty = theirs[345..500].iter().all(|byte| *byte == 0);
    if is_long == prefix_is_empty {
        return None;
    }
    for block in [&mut ours, &mut theirs] {
        block[148..156].fill(0);
        if is_long {
            block[..100].fill(0);
            block[345..500].fill(0);
        }
        if mutant == Some(Mutant::Owners) {
            block[108..124].fill(0);
            block[265..329].fill(0);
        }
    }
    (ours == theirs).then_some(path)
}

/// Whether the files are those of one set: by their names and contents, then by their order.
fn holds_together(files: &[(String, Option<Vec<u8>>)], mutant: Option<Mutant>) -> Option<()> {
    let by_path: BTreeMap<&str, &[u8]> = files
        .iter()
        .filter_map(|(path, content)| Some((path.as_str(), content.as_deref()?)))
        .collect();
    let contents = Contents::parse(by_path.get("packhouse-bundle.json")?).ok()?;
    let set = format!("v1/sets/{}", contents.set);
    let manifest = by_path.get(format!("{set}/manifest.json").as_str())?;
    let manifest = SetManifest::parse(SetKey(contents.set.0), manifest).ok()?;
    let index = by_path.get(format!("{set}/runtime-index.tsv").as_str())?;
    (manifest.render_index() == *index).then_some(())?;
    let mut expected = vec!["CACHEDIR.TAG".to_owned(), "v1/id".to_owned()];
    expected.extend(["packhouse-bundle.json".to_owned()]);
    expected.extend(["manifest.json", "runtime-index.tsv"].map(|name| format!("{set}/{name}")));
    for entry in manifest.entries() {
        let path = two_digits("v1/packs", entry.pack.0);
        let record = PackRecord::parse(PackKey(entry.pack.0), by_path.get(path.as_str())?).ok()?;
        (record.object == entry.object && record.length == entry.length).then_some(())?;
        expected.push(path);
        let path = two_digits("v1/objects", entry.object.0);
        let object = by_path.get(path.as_str())?;
        (object.len() as u64 == entry.length).then_some(())?;
        let is_its = Digest::of(object) == entry.object.0;
        (is_its || mutant == Some(Mutant::OtherObjects)).then_some(())?;
        expected.push(path);
    }
    for (name, _) in &contents.containers {
        let path = format!("{set}/containers/{name}.json");
        ContainerRecord::parse(*name, by_path.get(path.as_str())?).ok()?;
        expected.push(path);
    }
    for (path, bytes) in lengths(&contents, &set) {
        (by_path.get(path.as_str())?.len() as u64 == bytes).then_some(())?;
    }
    // The tag and the id have one content; what it is, the tests of a sound bundle show.
    (*by_path.get("CACHEDIR.TAG")? == packhouse_store::root::TAG).then_some(())?;
    is_id_of(contents.set, by_path.get("v1/id")?).then_some(())?;
    expected.sort();
    expected.dedup();
    let present: Vec<&str> = by_path.keys().copied().collect();
    (present == expected && by_path.len() + folders(files) == files.len()).then_some(())?;
    in_order(files)
}

/// The lengths that a table of contents tells, by path.
fn lengths(contents: &Contents, set: &str) -> Vec<(String, u64)> {
    let own = [
        ("manifest.json", contents.manifest_bytes),
        ("runtime-index.tsv", contents.index_bytes),
    ];
    let own = own.map(|(name, bytes)| (format!("{set}/{name}"), bytes));
    let containers = contents.containers.iter();
    let containers =
        containers.map(|(name, bytes)| (format!("{set}/containers/{name}.json"), *bytes));
    let packs = contents.packs.iter();
    let packs = packs.map(|(key, bytes)| (two_digits("v1/packs", key.0), *bytes));
    let objects = contents.objects.iter();
    let objects = objects.map(|(object, bytes)| (two_digits("v1/objects", object.0), *bytes));
    own.into_iter()
        .chain(containers)
        .chain(packs)
        .chain(objects)
        .collect()
}

fn two_digits(base: &str, name: Digest) -> String {
    let name = name.to_string();
    format!("{base}/{}/{name}", &name[..2])
}

fn folders(files: &[(String, Option<Vec<u8>>)]) -> usize {
    files
        .iter()
        .filter(|(_, content)| content.is_none())
        .count()
}

fn is_id_of(set: SetKey, id: &[u8]) -> bool {
    let mut hashed = 21u64.to_le_bytes().to_vec();
    hashed.extend_from_slice(b"packhouse/bundle-id/1");
    hashed.extend_from_slice(&32u64.to_le_bytes());
    hashed.extend_from_slice(set.as_bytes());
    let text = Digest::of(&hashed).to_string();
    id == format!("{}\n", &text[..32]).as_bytes()
}

/// The order of the format, as a rank of each path, and the folders that the files need.
fn in_order(files: &[(String, Option<Vec<u8>>)]) -> Option<()> {
    let rank = |path: &str| match path {
        "packhouse-bundle.json" => 0,
        "CACHEDIR.TAG" => 1,
        "v1/" => 2,
        "v1/id" => 3,
        path if path.starts_with("v1/packs/") => 4,
        "v1/pins/" => 5,
        "v1/quarantine/" => 6,
        path if path.starts_with("v1/sets/") => 7,
        _ => 8,
    };
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let keys: Vec<(i32, &str)> = paths.iter().map(|path| (rank(path), *path)).collect();
    keys.windows(2)
        .all(|pair| pair[0] < pair[1])
        .then_some(())?;
    let mut needed = vec!["v1/".to_owned(), "v1/pins/".to_owned()];
    needed.extend(["quarantine", "packs", "objects", "sets"].map(|name| format!("v1/{name}/")));
    for (path, _) in files.iter().filter(|(_, content)| content.is_some()) {
        for (at, _) in path.match_indices('/') {
            needed.push(path[..=at].to_owned());
        }
    }
    needed.sort();
    needed.dedup();
    let mut present: Vec<&str> = files
        .iter()
        .filter_map(|(path, content)| content.is_none().then_some(path.as_str()))
        .collect();
    present.sort_unstable();
    (present == needed).then_some(())
}
