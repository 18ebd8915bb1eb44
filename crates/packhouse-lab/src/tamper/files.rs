//! The bag as a folder, and the fixtures in it.

use super::Tamper;
use super::edit::{Change, split};
use crate::verify::Evidence;
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;

/// All of it.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = folder(evidence);
    tampers.extend(lists(evidence));
    tampers.extend(payload());
    for above in ["fixtures", "drawn"] {
        tampers.extend(fixture(evidence, above));
    }
    tampers
}

/// What lists and files say of each other; nothing is closed again.
fn folder(evidence: &Evidence) -> Vec<Tamper> {
    let path = "bag/data/lane.toml".to_owned();
    let bytes = |path: &str| evidence.files.get(path).unwrap_or_default().to_vec();
    let mut damaged = bytes(&path);
    if let Some(byte) = damaged.first_mut() {
        *byte ^= 1;
    }
    let cases: Vec<(&str, &'static str, Vec<Change>)> = vec![
        (
            "a file of no bytes",
            "bag.empty-file",
            vec![Change::put(&path, Vec::new())],
        ),
        (
            "a file that nobody listed",
            "bag.unlisted",
            vec![Change::put("bag/data/tampered", b"tampered".to_vec())],
        ),
        (
            "a file removed",
            "bag.listed-missing",
            vec![Change::Remove(path.clone())],
        ),
        (
            "a file renamed",
            "bag.unlisted",
            vec![
                Change::Remove(path.clone()),
                Change::put("bag/data/tampered", bytes(&path)),
            ],
        ),
        (
            "a byte changed",
            "bag.digest",
            vec![Change::put(&path, damaged)],
        ),
        (
            "a link in a file's place",
            "bag.link",
            vec![Change::Link(path.clone())],
        ),
        (
            "a name that no bag has",
            "bag.path",
            vec![Change::put("bag/data/Tampered File", b"tampered".to_vec())],
        ),
        (
            "a file beside the bag",
            "bag.unlisted",
            vec![Change::put("tampered", b"tampered".to_vec())],
        ),
    ];
    named(cases)
}

/// Tags and lists that are others; nothing is closed again.
fn lists(evidence: &Evidence) -> Vec<Tamper> {
    let manifest = "bag/manifest-sha256.txt";
    let bytes = |path: &str| evidence.files.get(path).unwrap_or_default().to_vec();
    let first = split(&bytes(manifest)).first().cloned().unwrap_or_default();
    let mut other = first.clone();
    if let Some(digit) = other.first_mut() {
        *digit = if *digit == b'0' { b'1' } else { b'0' };
    }
    let info = "bag/bag-info.txt";
    let more = [bytes(info), b"Tampered: 1\n".to_vec()].concat();
    let cases: Vec<(&str, &'static str, Vec<Change>)> = vec![
        (
            "a digest in the manifest",
            "bag.digest",
            vec![Change::line(manifest, 0, other)],
        ),
        (
            "a line of the manifest removed",
            "bag.unlisted",
            vec![Change::lines(manifest, 0, 1, Vec::new())],
        ),
        (
            "a line of the manifest doubled",
            "bag.not-bagit",
            vec![Change::lines(manifest, 0, 0, vec![first])],
        ),
        (
            "another version of BagIt",
            "bag.not-bagit",
            vec![Change::line(
                "bag/bagit.txt",
                0,
                b"BagIt-Version: 0.97\n".to_vec(),
            )],
        ),
        (
            "no manifest",
            "bag.not-bagit",
            vec![Change::Remove(manifest.to_owned())],
        ),
        (
            "no tag manifest",
            "bag.not-bagit",
            vec![Change::Remove("bag/tagmanifest-sha256.txt".to_owned())],
        ),
        (
            "another size of the payload",
            "bag.oxum",
            vec![Change::line(info, 4, b"Payload-Oxum: 1.1\n".to_vec())],
        ),
        (
            "a label more",
            "bag.not-bagit",
            vec![Change::put(info, more)],
        ),
    ];
    named(cases)
}

fn named(cases: Vec<(&str, &'static str, Vec<Change>)>) -> Vec<Tamper> {
    let named = cases
        .into_iter()
        .map(|(what, code, changes)| Tamper::beside(format!("bag: {what}"), &[code], changes));
    named.collect()
}

/// Payload files that are not there, or not of a payload; the bag is closed again.
fn payload() -> Vec<Tamper> {
    let mut tampers = Vec::new();
    for file in [
        "lane.toml",
        "prereg.toml",
        "packet.json",
        "run.json",
        "authority.jsonl",
    ] {
        let changes = vec![Change::Remove(format!("bag/data/{file}"))];
        tampers.push(Tamper::within(
            format!("{file} removed"),
            &["record.missing"],
            changes,
        ));
    }
    let strangers = [
        "tampered",
        "legs/00/tampered",
        "outputs/tampered",
        "legs/0/leg.json",
    ];
    for path in strangers {
        let changes = vec![Change::put(
            &format!("bag/data/{path}"),
            b"tampered".to_vec(),
        )];
        let name = format!("payload: a file {path}");
        tampers.push(Tamper::within(name, &["record.unexpected"], changes));
    }
    let logs = ["control", "candidate"].map(|treatment| {
        let path = format!("bag/data/legs/00/{treatment}.stderr");
        Change::put(&path, b"what nobody wrote".to_vec())
    });
    tampers.push(Tamper::within(
        "payload: another log".to_owned(),
        &["leg.end"],
        logs.into(),
    ));
    let legs: [(&str, &[&'static str]); 2] = [
        ("leg.json", &["record.missing"]),
        ("exchange.jsonl", &["record.missing", "rows.missing"]),
    ];
    for (file, codes) in legs {
        let changes = vec![Change::Remove(format!("bag/data/legs/00/{file}"))];
        tampers.push(Tamper::within(
            format!("legs/00/{file} removed"),
            codes,
            changes,
        ));
    }
    tampers
}

/// Published or drawn fixtures: a byte that the own lists do not fit, one that they fit, a folder
/// that is missing, and one too many.
fn fixture(evidence: &Evidence, above: &str) -> Vec<Tamper> {
    let prefix = format!("bag/data/{above}/");
    let names = evidence
        .files
        .paths()
        .filter_map(|path| path.strip_prefix(&prefix));
    let Some(name) = names.filter_map(|rest| rest.split('/').next()).next() else {
        return Vec::new();
    };
    let folder = format!("{prefix}{name}");
    let own = evidence.files.below(&folder);
    let input = input_of(evidence, name, above == "drawn");
    let tensor = own
        .paths()
        .find(|path| Some(path.to_owned()) == input.as_deref());
    let Some(tensor) = tensor.or_else(|| own.paths().find(|path| path.starts_with("data/"))) else {
        return Vec::new();
    };
    let mut damaged = own.get(tensor).unwrap_or_default().to_vec();
    if let Some(byte) = damaged.first_mut() {
        *byte ^= 1;
    }
    let put = |path: &str, bytes: Vec<u8>| Change::put(&format!("{folder}/{path}"), bytes);
    let is_published = above == "fixtures";
    let changed: &[&'static str] = match is_published {
        true => &["fixture.digest"],
        // Who can't draw it again sees that its lists do not fit.
        false => &["fixture.digest", "fixture.drawn"],
    };
    let listed: &[&'static str] = match is_published {
        true => &["packet.fixture"],
        // Who can't draw it again sees that the case had other inputs.
        false => &["fixture.drawn", "case.inputs"],
    };
    let relisted = relisted(&own, &folder, tensor, &damaged);
    let removed = own
        .paths()
        .map(|path| Change::Remove(format!("{folder}/{path}")));
    let copied = own
        .files()
        .iter()
        .map(|(path, bytes)| Change::put(&format!("{prefix}tampered-v1/{path}"), bytes.to_vec()));
    let what = if is_published {
        "fixture"
    } else {
        "drawn fixture"
    };
    vec![
        Tamper::within(
            format!("{what}: a byte changed"),
            changed,
            vec![put(tensor, damaged)],
        ),
        Tamper::within(
            format!("{what}: a byte changed, with its lists"),
            listed,
            relisted,
        ),
        Tamper::within(
            format!("{what} removed"),
            &["fixture.missing"],
            removed.collect(),
        ),
        Tamper::within(
            format!("{what} invented"),
            &["fixture.unused"],
            copied.collect(),
        ),
    ]
}

/// A fixture's folder with another tensor, which all of its own lists fit.
fn relisted(own: &Contents, folder: &str, tensor: &str, damaged: &[u8]) -> Vec<Change> {
    let bytes = |path: &str| own.get(path).unwrap_or_default();
    let manifest = relist(bytes(MANIFEST), tensor, damaged);
    let record = String::from_utf8_lossy(bytes(RECORD)).replace(
        &Digest::of(bytes(tensor)).to_string(),
        &Digest::of(damaged).to_string(),
    );
    let tags = relist(bytes(TAG_MANIFEST), MANIFEST, &manifest);
    let tags = relist(&tags, RECORD, record.as_bytes());
    let files = [
        (tensor, damaged.to_vec()),
        (MANIFEST, manifest),
        (RECORD, record.into_bytes()),
        (TAG_MANIFEST, tags),
    ];
    let put = |(path, bytes)| Change::put(&format!("{folder}/{path}"), bytes);
    files.map(put).into()
}

/// The path of a tensor of a fixture that a case had as its input, below the fixture's folder.
fn input_of(evidence: &Evidence, name: &str, is_drawn: bool) -> Option<String> {
    let above = if is_drawn { "drawn" } else { "fixtures" };
    let folder = format!("bag/data/{above}/{name}");
    let own = evidence.files.below(&folder);
    let exchanges = evidence
        .files
        .paths()
        .filter(|path| path.ends_with("/exchange.jsonl"));
    let exchanges: Vec<&[u8]> = exchanges
        .filter_map(|path| evidence.files.get(path))
        .collect();
    let is_asked = |path: &&str| {
        let sha256 = Digest::of(own.get(path).unwrap_or_default()).to_string();
        let word = format!("\"file\":\"{sha256}.bin\"");
        exchanges
            .iter()
            .any(|bytes| contains(bytes, word.as_bytes()))
    };
    let mut tensors = own.paths().filter(|path| path.starts_with("data/"));
    tensors.find(is_asked).map(str::to_owned)
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// A list with another digest for a path.
fn relist(list: &[u8], path: &str, bytes: &[u8]) -> Vec<u8> {
    let end = format!("  {path}\n");
    let lines = split(list).into_iter().map(|line| {
        if line.ends_with(end.as_bytes()) {
            return format!("{}{end}", Digest::of(bytes)).into_bytes();
        }
        line
    });
    lines.flatten().collect()
}

const MANIFEST: &str = "manifest-sha256.txt";
const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";
const RECORD: &str = "fixture.json";
