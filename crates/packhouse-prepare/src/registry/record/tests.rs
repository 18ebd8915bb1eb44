use super::super::survey::SeenFile;
use super::*;
use packhouse_sys::stat::FsId;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::os::unix::ffi::OsStringExt as _;

fn stat(inode: u64) -> StatIdentity {
    StatIdentity {
        file_system: FsId::Uuid([7; 16]),
        inode,
        generation: Some(3),
        size: 4,
        mtime_ns: -5,
        ctime_ns: 6,
        uid: 7,
        mode: 0o644,
    }
}

fn file(content: &[u8], stat: Option<StatIdentity>) -> Seen {
    Seen::File(SeenFile {
        content: FileEntry {
            bytes: content.len() as u64,
            digest: Digest::of(content),
        },
        stat,
    })
}

fn binding() -> Binding {
    let texts = ["packer 1", "layout-v1", "abi/1"].map(str::to_owned);
    let [revision, layout, abi] = texts;
    Binding::new(Digest::of(b"model"), revision, layout, abi).expect("because these are plain")
}

fn survey(kind: ArtifactKind, entries: BTreeMap<OsString, Seen>) -> Survey {
    Survey {
        path: "/packs/a b".into(),
        kind,
        entries,
    }
}

fn record_of(survey: &Survey) -> Record {
    let artifact = Artifact::of(survey).expect("because it is one");
    let model = Some(PathBuf::from("/models/m.gguf"));
    Record::new(binding(), artifact, survey, model).expect("because it is short")
}

fn folder() -> Survey {
    let link = Seen::Link {
        target: "../w.bin".into(),
    };
    let entries = BTreeMap::from([
        ("in".into(), Seen::Folder),
        ("in/l".into(), link),
        ("in/x.bin".into(), file(b"yz", None)),
        ("w.bin".into(), file(b"abcd", Some(stat(2)))),
    ]);
    survey(ArtifactKind::Folder, entries)
}

fn single() -> Survey {
    let entries = BTreeMap::from([(OsString::new(), file(b"abcd", Some(stat(2))))]);
    survey(ArtifactKind::File, entries)
}

#[test]
fn a_record_round_trips_and_no_changed_byte_and_no_cut_passes() {
    for survey in [folder(), single()] {
        let good = record_of(&survey);
        let bytes = good.render();
        assert_eq!(Record::parse(good.key(), &bytes), Ok(good.clone()));
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x20] {
                let mut edited = bytes.clone();
                edited[at] ^= flip;
                assert!(Record::parse(good.key(), &edited).is_err(), "byte {at}");
            }
            assert!(Record::parse(good.key(), &bytes[..at]).is_err());
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert!(Record::parse(good.key(), &longer).is_err());
        let other = RegistryKey(Digest::of(b"other"));
        let said = Record::parse(other, &bytes).map_err(|error| error.to_string());
        let expected = format!("key: {other}, its fields have {}", good.key());
        assert_eq!(said, Err(expected));
    }
}

/// What is said of a record in which a text was replaced by somebody who makes the checksum fit.
fn edited(survey: &Survey, from: &str, to: &str) -> Result<Record, String> {
    let good = record_of(survey);
    let text = String::from_utf8(good.render()).expect("because JSON is UTF-8");
    let (_, body) = text
        .split_once("\",")
        .expect("because the checksum is first");
    let body = format!("{{{body}");
    assert!(body.contains(from), "{from} is not in {body}");
    let value = serde_json::from_str(&body.replacen(from, to, 1)).expect("because it is JSON");
    Record::parse(good.key(), &seal(value)).map_err(|error| {
        assert_eq!(error.blame(), Blame::Store);
        error.to_string()
    })
}

/// What is replaced, by what, and what is then said.
type Edit = (&'static str, &'static str, &'static str);

/// Edits of the record of a folder.
const EDITS: &[Edit] = &[
    ("<model>", "<zeros>", "key: "),
    ("<key>", "<zeros>", "key: "),
    ("\"packer 1\"", "\"packer 2\"", "key: "),
    ("layout-v1", "layout-v2", "key: "),
    ("abi/1", "abi/2", "key: "),
    ("abi/1", "", "binding: kernel ABI is empty"),
    ("abi/1", "\\u001b", "binding: kernel ABI has the character"),
    ("registry/1", "registry/2", "schema: expected"),
    ("<pack>", "<zeros>", "pack.sha256: "),
    ("<content>", "<zeros>", "pack.sha256: "),
    ("\"bytes\":4", "\"bytes\":5", "pack.sha256: "),
    (
        "\"bytes\":4",
        "\"bytes\":-4",
        "pack.entries[3].bytes: expected a non-negative",
    ),
    (
        "w.bin",
        "v.bin",
        "pack.entries: /packs/a b/in/l is a link to ../v.bin, which is not",
    ),
    (
        "\"path\":\"w.bin\"",
        "\"path\":\"y.bin\"",
        "pack.entries: /packs/a b/in/l is a link",
    ),
    (
        "\"../w.bin\"",
        "\"../../w.bin\"",
        "pack.entries: /packs/a b/in/l is a link to ../../w",
    ),
    (
        "\"../w.bin\"",
        "\"/w.bin\"",
        "pack.entries: /packs/a b/in/l is a link to /w.bin, an absolute",
    ),
    (
        "\"in/x.bin\"",
        "\"in/../x.bin\"",
        "pack.entries[2].path: expected plain names",
    ),
    (
        "\"in/x.bin\"",
        "\"in//x.bin\"",
        "pack.entries[2].path: expected plain names",
    ),
    (
        "\"in/x.bin\"",
        "\"/in/x.bin\"",
        "pack.entries[2].path: expected plain names",
    ),
    (
        "\"in/x.bin\"",
        "\"in/%00\"",
        "pack.entries[2].path: expected",
    ),
    (
        "\"in/x.bin\"",
        "\"in/%41\"",
        "pack.entries[2].path: expected a path, percent",
    ),
    (
        "\"in/x.bin\"",
        "\"in/a\"",
        "pack.entries[2].path: expected a path after",
    ),
    (
        "\"in/x.bin\"",
        "\"in/l\"",
        "pack.entries[2].path: expected a path after",
    ),
    (
        "\"in/x.bin\"",
        "\"io/x.bin\"",
        "pack.entries[2].path: expected a path in a folder",
    ),
    (
        "\"in/x.bin\"",
        "\"\"",
        "pack.entries[2].path: expected a path",
    ),
    (
        "\"kind\":\"link\"",
        "\"kind\":\"pipe\"",
        "pack.entries[1].kind: expected file, folder",
    ),
    (
        "\"kind\":\"link\"",
        "\"kind\":\"file\"",
        "pack.entries[1].bytes: absent",
    ),
    (
        "\"kind\":\"folder\"",
        "\"kind\":\"file\"",
        "pack.entries[0].bytes: absent",
    ),
    (
        "],\"kind\":\"folder\"",
        "],\"kind\":\"tree\"",
        "pack.kind: expected file or folder",
    ),
    (
        "],\"kind\":\"folder\"",
        "],\"kind\":\"file\"",
        "pack.entries[0].path: a file has no",
    ),
    (
        "/packs/a b",
        "packs/a b",
        "pack.path: expected an absolute path",
    ),
    ("/packs/a b", "", "pack.path: expected a path"),
    (
        "/models/m.gguf",
        "m.gguf",
        "model.path: expected an absolute path",
    ),
    ("\"inode\":2,", "", "pack.entries[3].stat.inode: absent"),
    (
        "\"inode\":2,",
        "\"inode\":2,\"i\":2,",
        "pack.entries[3].stat.i: unknown field",
    ),
    (
        "\"bytes\":4",
        "\"bytes\":4,\"c\":1",
        "pack.entries[3].c: unknown field",
    ),
    (
        "\"layout\":",
        "\"later\":1,\"layout\":",
        "later: unknown field",
    ),
    (
        "\"path\":\"/models/m.gguf\"",
        "\"paths\":1",
        "model.paths: unknown field",
    ),
];

/// Edits of the record of a file.
const EDITS_OF_FILE: &[Edit] = &[
    (
        "],\"kind\":\"file\"",
        "],\"kind\":\"folder\"",
        "pack.entries[0].path: expected a path",
    ),
    (
        "{\"bytes\":4,\"kind\":\"file\"",
        "{\"bytes\":4,\"path\":\"a\",\"kind\":\"file\"",
        "pack.entries[0].path: a file",
    ),
    (
        "\"bytes\":4",
        "\"bytes\":0",
        "pack.entries: /packs/a b has no byte in it",
    ),
];

#[test]
fn each_edit_is_refused_for_its_own_reason_even_under_a_fitting_checksum() {
    let record = record_of(&folder());
    let words = [
        ("<model>", Digest::of(b"model").to_string()),
        ("<content>", Digest::of(b"abcd").to_string()),
        ("<key>", record.key().to_string()),
        ("<pack>", record.artifact().digest().to_string()),
        ("<zeros>", "0".repeat(64)),
    ];
    let filled = |text: &str| {
        let words = words.iter();
        words.fold(text.to_owned(), |text, (word, value)| {
            text.replace(word, value)
        })
    };
    for (from, to, expected) in EDITS {
        let said = edited(&folder(), &filled(from), &filled(to)).expect_err(expected);
        assert!(said.starts_with(expected), "{from} -> {to}: {said}");
    }
    for (from, to, expected) in EDITS_OF_FILE {
        let said = edited(&single(), from, to).expect_err(expected);
        assert!(said.starts_with(expected), "{from} -> {to}: {said}");
    }
}

#[test]
fn where_it_lies_and_what_its_stats_were_make_no_other_key() {
    for (from, to) in [
        ("/packs/a b", "/packs/c"),
        ("/models/m.gguf", "/models/n.gguf"),
        ("\"inode\":2", "\"inode\":3"),
    ] {
        let moved = edited(&folder(), from, to).expect("because the key does not cover it");
        assert_eq!(moved.key(), record_of(&folder()).key());
        assert_ne!(moved, record_of(&folder()));
    }
}

#[test]
fn the_digest_is_of_the_bytes_that_the_format_s_page_says() {
    let mut bytes = Vec::new();
    let mut item = |item: &[u8]| {
        bytes.extend_from_slice(&(item.len() as u64).to_le_bytes());
        bytes.extend_from_slice(item);
    };
    item(b"packhouse/registry-artifact/1");
    item(b"folder");
    item(&4u64.to_le_bytes());
    for part in [&b"in"[..], b"folder", b"in/l", b"link", b"../w.bin"] {
        item(part);
    }
    for (path, content) in [(&b"in/x.bin"[..], &b"yz"[..]), (b"w.bin", b"abcd")] {
        item(path);
        item(b"file");
        item(&(content.len() as u64).to_le_bytes());
        item(Digest::of(content).as_bytes());
    }
    assert_eq!(record_of(&folder()).artifact().digest(), Digest::of(&bytes));
}

/// Trees of few names, so that two are often nearly equal.
fn trees() -> impl Strategy<Value = Survey> {
    let name = vec(
        prop_oneof![Just(b'a'), Just(b'%'), Just(0xff), Just(b'\n')],
        1..3,
    );
    let content = vec(any::<u8>(), 0..3);
    let files = btree_map((vec(name, 1..4), any::<bool>()), content, 1..6);
    files.prop_filter_map("an artifact", |files| {
        let mut entries = BTreeMap::new();
        for ((parts, has_stat), content) in files {
            let mut path = OsString::new();
            for (index, part) in parts.iter().enumerate() {
                path = super::super::artifact::join(&path, &OsString::from_vec(part.clone()));
                let seen = match index + 1 < parts.len() {
                    true => Seen::Folder,
                    false => file(&content, has_stat.then(|| stat(9))),
                };
                if entries
                    .insert(path.clone(), seen.clone())
                    .is_some_and(|was| was != seen)
                {
                    return None;
                }
            }
        }
        let survey = survey(ArtifactKind::Folder, entries);
        Artifact::of(&survey).is_ok().then_some(survey)
    })
}

proptest! {
    #[test]
    fn any_tree_round_trips_and_two_share_a_digest_only_if_they_are_equal(
        one in trees(),
        other in trees(),
    ) {
        let (one, other) = (record_of(&one), record_of(&other));
        for record in [&one, &other] {
            prop_assert_eq!(Record::parse(record.key(), &record.render()), Ok(record.clone()));
        }
        let digests = (one.artifact().digest(), other.artifact().digest());
        prop_assert_eq!(digests.0 == digests.1, one.artifact() == other.artifact());
        prop_assert_eq!(one.key() == other.key(), one.artifact() == other.artifact());
    }
}
