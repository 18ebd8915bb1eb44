//! The writer: what it makes is what `closed` makes, what it refuses, and what it takes up again.

use crate::samples::{bag, disk, folder, home, info, lay, payload, real_dir};
use packhouse_bag::{
    Bound, Contents, Found, OpenBag, Outcome, WriteError, WriteNewError, discard, look,
    open_or_make_dir, write_new,
};
use packhouse_base::digest::Digest;
use packhouse_sim::SimFs;
use packhouse_sys::fs::{Dir, FsErrorKind};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

/// Writes the sample payload, the exchange in two pieces.
pub(crate) fn write(home: &Dir) -> Result<OpenBag, WriteError> {
    let mut bag = OpenBag::create(home)?;
    for (path, bytes) in payload().files() {
        if path.ends_with(".jsonl") {
            bag.append(path, &bytes[..12])?;
            bag.sync()?;
            bag.append(path, &bytes[12..])?;
        } else {
            bag.put(path, bytes)?;
        }
    }
    Ok(bag)
}

fn writer() -> (SimFs, OpenBag) {
    let sim = disk(1);
    let bag = OpenBag::create(&home(&sim)).expect("because nothing is there");
    (sim, bag)
}

#[test]
fn what_is_written_and_closed_is_what_closed_makes_in_memory() {
    let folder = folder();
    let dir = real_dir(folder.path());
    assert_eq!(look(&dir), Ok(Found::Absent));
    let open = write(&dir).expect("because nothing is in the way");
    assert_eq!(open.bytes(), 296);
    assert!(open.has("legs/00/leg.json") && !open.has("legs/00"));
    assert_eq!(look(&dir), Ok(Found::Open));
    let digest = open.close(&info()).expect("because nothing is in the way");
    assert_eq!(look(&dir), Ok(Found::Closed));
    let closed = dir.open_dir("bag").expect("because it was closed");
    let contents = Contents::read(&closed).expect("because it was closed");
    assert_eq!(contents, bag());
    assert_eq!(Some(digest), bag().digest());
    let names = std::fs::read_dir(folder.path()).expect("because it is ours");
    assert_eq!(names.count(), 1, "nothing but the bag");
}

#[test]
fn a_second_bag_is_refused_whether_the_first_is_open_or_closed() {
    let sim = disk(1);
    let home = home(&sim);
    let open = write(&home).expect("because nothing is in the way");
    let refused = |expected: &str| {
        let error = OpenBag::create(&home).err().expect("because there is one");
        assert_eq!(error.to_string(), expected);
    };
    refused("/evidence/packet/bag.open is there already");
    open.close(&info()).expect("because nothing is in the way");
    refused("/evidence/packet/bag is there already");
    let error = OpenBag::resume(&home).err().expect("because it is closed");
    assert_eq!(error.to_string(), "/evidence/packet/bag is there already");
    home.make_dir("bag.open", 0o755)
        .expect("because it is free");
    let error = look(&home).expect_err("because there are two");
    assert_eq!(
        error.to_string(),
        "/evidence/packet holds both a closed and an open bag"
    );
    assert!(matches!(
        OpenBag::create(&home),
        Err(WriteError::Both { .. })
    ));
    assert!(matches!(
        OpenBag::resume(&home),
        Err(WriteError::Both { .. })
    ));
}

#[test]
fn paths_that_no_bag_may_have_are_refused_by_name() {
    let (_sim, mut bag) = writer();
    let long = "x".repeat(129);
    let longer = ["x".repeat(126), "y".repeat(126)].join("/");
    let wrong = [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "a/../b",
        ".part",
        "A",
        "a b",
        "a\nb",
        "a%0a",
        "a\\b",
        "\u{e9}",
        "-a",
        "_a",
        "a/-b",
        "1/2/3/4/5/6/7/8",
        &long,
        &longer,
    ];
    for path in wrong {
        let error = bag.put(path, b"1").expect_err(path);
        assert!(
            matches!(&error, WriteError::Path { path: named } if named == path),
            "{error}"
        );
        assert!(
            matches!(bag.append(path, b"1"), Err(WriteError::Path { .. })),
            "{path}"
        );
    }
    let right = ["0", "a", "a.b", "a_b-c.d", "1/2/3/4/5/6/7", &long[1..]];
    for path in right {
        bag.put(path, b"1").expect(path);
    }
}

#[test]
fn a_path_is_taken_by_a_file_its_folder_and_what_is_below() {
    let (_sim, mut bag) = writer();
    bag.put("a/b", b"1").expect("because it is free");
    bag.append("log", b"1").expect("because it is free");
    for path in ["a/b", "a", "a/b/c", "log", "log/x"] {
        let error = bag.put(path, b"2").expect_err(path);
        assert_eq!(error.to_string(), format!("{path}: is in the bag already"));
    }
    for path in ["a/b", "a", "a/b/c", "log/x"] {
        let error = bag.append(path, b"2").expect_err(path);
        assert_eq!(
            error,
            WriteError::Taken {
                path: path.to_owned()
            }
        );
    }
    // None of that stops the writer.
    bag.append("log", b"2").expect("because it is appended to");
    bag.put("a/c", b"1").expect("because it is free");
    let digest = bag.close(&info()).expect("because nothing failed");
    let mut payload = Contents::default();
    payload.insert("a/b", *b"1");
    payload.insert("a/c", *b"1");
    payload.insert("log", *b"12");
    assert_eq!(
        packhouse_bag::closed(&payload, &info()).digest(),
        Some(digest)
    );
}

#[test]
fn a_folder_is_put_as_a_whole_or_refused_before_anything_is_written() {
    let (sim, mut bag) = writer();
    bag.put("log", b"1").expect("because it is free");
    sim.restart_count();
    let folder = |files: &[(&str, &[u8])]| -> BTreeMap<String, Vec<u8>> {
        let files = files.iter();
        files
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()))
            .collect()
    };
    let wrong = [
        ("a", folder(&[]), "a: 0 bytes to put into the bag"),
        (
            "a",
            folder(&[("x", b"1"), ("y", b"")]),
            "a/y: 0 bytes to put into the bag",
        ),
        (
            "a",
            folder(&[("x", b"1"), ("x/y", b"1")]),
            "a/x: is in the bag already",
        ),
        (
            "a",
            folder(&[("x", b"1"), ("../y", b"1")]),
            "not a path of a bag: a/../y",
        ),
        ("log", folder(&[("x", b"1")]), "log: is in the bag already"),
        (
            "log/b",
            folder(&[("x", b"1")]),
            "log/b: is in the bag already",
        ),
        ("A", folder(&[("x", b"1")]), "not a path of a bag: A/x"),
    ];
    for (path, files, words) in wrong {
        let error = bag.put_folder(path, &files).expect_err(words);
        assert_eq!(error.to_string(), words);
    }
    assert_eq!(sim.operation_count(), 0);
    let files = folder(&[("x", b"1"), ("y/z", b"22"), ("y-z", b"3")]);
    bag.put_folder("a/b", &files).expect("because it is free");
    let error = bag
        .put_folder("a/b", &files)
        .expect_err("because it is there");
    assert_eq!(error.to_string(), "a/b: is in the bag already");
    bag.put("a/b/y/more", b"4").expect("because it is free");
    assert_eq!(bag.bytes(), 6);
    let digest = bag.close(&info()).expect("because nothing failed");
    let mut payload = Contents::default();
    for (path, bytes) in [
        ("log", "1"),
        ("a/b/x", "1"),
        ("a/b/y/z", "22"),
        ("a/b/y-z", "3"),
        ("a/b/y/more", "4"),
    ] {
        payload.insert(path, bytes.as_bytes());
    }
    assert_eq!(
        packhouse_bag::closed(&payload, &info()).digest(),
        Some(digest)
    );
}

#[test]
fn empty_files_are_refused_and_appending_nothing_makes_none() {
    let (_sim, mut bag) = writer();
    let error = bag.put("a", b"").expect_err("because it is empty");
    assert_eq!(error.to_string(), "a: 0 bytes to put into the bag");
    bag.append("log", b"").expect("because nothing is asked");
    assert!(!bag.has("log"));
    let error = bag.close(&info()).expect_err("because there is no payload");
    let words = error.to_string();
    assert!(words.contains("data: there and not listed"), "{words}");
}

#[test]
fn more_than_the_limits_is_refused_before_anything_is_written() {
    let (sim, mut bag) = writer();
    sim.restart_count();
    // Pages of zeros that nobody touches.
    let big = vec![0; (1 << 30) + 1];
    let error = bag.put("big", &big).expect_err("because it is too long");
    assert_eq!(
        error.to_string(),
        "big: more than 1073741824 bytes in a file"
    );
    let error = bag.append("big", &big).expect_err("because it is too long");
    assert!(matches!(
        error,
        WriteError::Limit {
            bound: Bound::File,
            ..
        }
    ));
    assert_eq!(sim.operation_count(), 0);
}

#[test]
fn a_name_of_software_that_can_not_stand_in_the_info_is_refused() {
    for software in ["", " a", "a ", "a\nb", "\u{e9}", &"a".repeat(129)] {
        let (_sim, mut bag) = writer();
        bag.put("a", b"1").expect("because it is free");
        let mut info = info();
        info.software = software.to_owned();
        let error = bag.close(&info).expect_err(software);
        assert!(matches!(error, WriteError::Software { .. }), "{error}");
    }
}

#[test]
fn a_file_system_that_can_not_rename_without_replacing_is_refused() {
    let sim = disk(1);
    sim.set_abilities(true, false);
    let home = home(&sim);
    let mut bag = OpenBag::create(&home).expect("because nothing is there");
    let error = bag.put("a", b"1").expect_err("because it is not supported");
    assert!(
        matches!(&error, WriteError::Fs(error) if error.kind == FsErrorKind::Unsupported),
        "{error}"
    );
    let error = bag.put("b", b"1").expect_err("because it is poisoned");
    assert_eq!(
        error.to_string(),
        "/evidence/packet/bag.open: an earlier write or sync of this bag failed"
    );
    assert!(matches!(bag.sync(), Err(WriteError::Poisoned { .. })));
    assert!(matches!(
        bag.append("c", b"1"),
        Err(WriteError::Poisoned { .. })
    ));
    assert!(matches!(
        bag.close(&info()),
        Err(WriteError::Poisoned { .. })
    ));
    discard(&home).expect("because it is only removed");
    assert_eq!(look(&home), Ok(Found::Absent));
}

#[test]
fn what_a_stopped_writer_left_is_tidied_and_told() {
    let folder = folder();
    let dir = real_dir(folder.path());
    drop(write(&dir).expect("because nothing is in the way"));
    let open = folder.path().join("bag.open");
    std::fs::write(open.join("bagit.txt"), b"").expect("because it is ours");
    std::fs::write(open.join("manifest-sha256.txt"), b"torn").expect("because it is ours");
    std::fs::write(open.join("data/.part"), b"half").expect("because it is ours");
    std::fs::write(open.join("data/legs/00/zero.stderr"), b"").expect("because it is ours");
    std::fs::create_dir_all(open.join("data/legs/01/x")).expect("because it is ours");
    std::fs::write(open.join("data/legs/01/x/zero"), b"").expect("because it is ours");
    let resumed = OpenBag::resume(&dir).expect("because it is only torn");
    assert_eq!(resumed.removed(), ["legs/00/zero.stderr", "legs/01/x/zero"]);
    let paths: Vec<&str> = resumed.paths().collect();
    let payload = payload();
    assert_eq!(paths, payload.paths().collect::<Vec<_>>());
    let read = resumed.read("outputs/00ff").expect("because it is there");
    assert_eq!(Some(read.as_slice()), payload.get("outputs/00ff"));
    let digest = resumed
        .into_bag()
        .close(&info())
        .expect("because it is tidy");
    assert_eq!(Some(digest), bag().digest());
}

#[test]
fn torn_tails_are_cut_and_records_written_anew() {
    let sim = disk(1);
    let home = home(&sim);
    drop(write(&home).expect("because nothing is in the way"));
    let mut resumed = OpenBag::resume(&home).expect("because it was left");
    resumed
        .cut("legs/00/exchange.jsonl", 12)
        .expect("because it is there");
    resumed
        .cut("packet.json", 99)
        .expect("because it is no longer than that");
    resumed
        .remove("legs/00/leg.json")
        .expect("because it is there");
    resumed.cut("outputs/00ff", 0).expect("because it is there");
    assert_eq!(resumed.removed(), ["outputs/00ff"]);
    for path in ["legs/00/leg.json", "outputs/00ff", "x"] {
        let words = format!("{path}: is not in the bag");
        let read = resumed.read(path).expect_err("because it is not there");
        assert_eq!(read.to_string(), words);
        let cut = resumed.cut(path, 1).expect_err("because it is not there");
        assert_eq!(cut.to_string(), words);
        let removed = resumed.remove(path).expect_err("because it is not there");
        assert_eq!(removed.to_string(), words);
    }
    let mut open = resumed.into_bag();
    open.put("run.json", b"{}\n").expect("because it is free");
    assert!(matches!(
        open.append("packet.json", b"1"),
        Err(WriteError::Taken { .. })
    ));
    let digest = open.close(&info()).expect("because no folder is empty");
    let mut payload = Contents::default();
    payload.insert("packet.json", *b"{}\n");
    payload.insert("legs/00/exchange.jsonl", *b"{\"at_ns\":1}\n");
    payload.insert("run.json", *b"{}\n");
    assert_eq!(
        packhouse_bag::closed(&payload, &info()).digest(),
        Some(digest)
    );
}

#[test]
fn what_nobody_writes_into_an_open_bag_stays_and_is_named() {
    let folder = folder();
    let dir = real_dir(folder.path());
    let error = OpenBag::resume(&dir).err().expect("because there is none");
    assert!(matches!(error, WriteError::NotOpen { .. }), "{error}");
    drop(write(&dir).expect("because nothing is in the way"));
    let open = folder.path().join("bag.open");
    symlink("/etc/passwd", open.join("data/link")).expect("because it is free");
    std::fs::write(open.join("stray"), b"1").expect("because it is ours");
    std::fs::create_dir(open.join("folder")).expect("because it is ours");
    let error = OpenBag::resume(&dir)
        .err()
        .expect("because it holds others");
    let words = error.to_string();
    for part in [
        "data/link: a symbolic link, not a regular file",
        "stray: there and not listed",
        "folder: there and not listed",
    ] {
        assert!(words.contains(part), "{words}");
    }
    std::fs::remove_file(open.join("data/link")).expect("because it is ours");
    std::fs::remove_file(open.join("stray")).expect("because it is ours");
    std::fs::remove_dir(open.join("folder")).expect("because it is ours");
    std::fs::write(open.join("data/UPPER"), b"1").expect("because it is ours");
    let error = OpenBag::resume(&dir).err().expect("because no bag has it");
    assert!(
        error
            .to_string()
            .contains("data/UPPER: not a path of a bag"),
        "{error}"
    );
}

#[test]
fn a_discarded_bag_leaves_nothing_and_follows_no_link() {
    let folder = folder();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).expect("because it is ours");
    std::fs::write(folder.path().join("precious"), b"1").expect("because it is ours");
    let dir = real_dir(&home);
    discard(&dir).expect("because absent is as good");
    let open = write(&dir).expect("because nothing is in the way");
    symlink("../../../precious", home.join("bag.open/data/link")).expect("because it is free");
    symlink("../../..", home.join("bag.open/data/above")).expect("because it is free");
    open.discard().expect("because all of it is ours");
    assert_eq!(look(&dir), Ok(Found::Absent));
    let precious = std::fs::read(folder.path().join("precious"));
    assert_eq!(precious.expect("because nobody touched it"), b"1");
    // A link in the bag's place is not followed either.
    lay(&folder.path().join("other"), &bag());
    symlink("../other", home.join("bag.open")).expect("because it is free");
    discard(&dir).expect_err("because it is a link");
    assert!(folder.path().join("other/bagit.txt").exists());
}

#[test]
fn a_file_beside_a_bag_is_written_once_and_only_its_own_bytes_are_as_good() {
    let folder = folder();
    let dir = real_dir(folder.path());
    std::fs::write(folder.path().join(".part-seal-1.json"), b"half").expect("because it is ours");
    assert_eq!(write_new(&dir, "seal-1.json", b"one"), Ok(Outcome::Created));
    assert_eq!(write_new(&dir, "seal-1.json", b"one"), Ok(Outcome::Equal));
    for other in [b"two".as_slice(), b"on", b"one "] {
        let error = write_new(&dir, "seal-1.json", other).expect_err("because it is taken");
        let words = error.to_string();
        let expected = "seal-1.json is there already and is not what is to be written";
        assert!(words.ends_with(expected), "{words}");
        assert!(matches!(error, WriteNewError::Conflict { expected, .. }
            if expected == Digest::of(other)));
    }
    let read = std::fs::read(folder.path().join("seal-1.json"));
    assert_eq!(read.expect("because it was written"), b"one");
    let names = std::fs::read_dir(folder.path()).expect("because it is ours");
    assert_eq!(names.count(), 1, "no leftover");
    symlink("seal-1.json", folder.path().join("seal-2.json")).expect("because it is free");
    std::fs::create_dir(folder.path().join("seal-3.json")).expect("because it is free");
    for name in ["seal-2.json", "seal-3.json"] {
        let error = write_new(&dir, name, b"one").expect_err("because it is no file");
        assert!(matches!(error, WriteNewError::Conflict { .. }), "{error}");
    }
    for name in ["", "..", "a/b", ".part-x", "Seal.json", "a b"] {
        let error = write_new(&dir, name, b"one").expect_err("because it is no name");
        assert!(matches!(error, WriteNewError::Name { .. }), "{error}");
    }
    let error = write_new(&dir, "seal-4.json", b"").expect_err("because it is empty");
    assert_eq!(error.to_string(), "seal-4.json: 0 bytes to write");
    let analysis = open_or_make_dir(&dir, "analysis-1").expect("because it is free");
    assert_eq!(
        write_new(&analysis, "analysis.json", b"1"),
        Ok(Outcome::Created)
    );
    let again = open_or_make_dir(&dir, "analysis-1").expect("because it is a folder");
    assert_eq!(write_new(&again, "analysis.json", b"1"), Ok(Outcome::Equal));
    open_or_make_dir(&dir, "seal-2.json").expect_err("because it is a link");
}
