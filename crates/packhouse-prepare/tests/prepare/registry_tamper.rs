//! Registered artifacts that somebody changed, and what may not be registered at all, on the real
//! file system.

use crate::registry_world::{binding, record, said, verified};
use crate::store_fixture::{PatientClock, folder};
use packhouse_prepare::registry::{
    Glance, Look, Outcome, PublishError, Record, Registry, glance, verify,
};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A tree with all that a tree may have, in a folder of its own.
fn tree(at: &Path) -> PathBuf {
    let top = at.join("pack");
    fs::create_dir_all(top.join("inner/empty")).unwrap();
    fs::write(top.join("a.bin"), [1; 3000]).unwrap();
    fs::write(top.join("inner/b.bin"), [2; 70_000]).unwrap();
    fs::write(top.join("inner/none"), []).unwrap();
    symlink("../a.bin", top.join("inner/link")).unwrap();
    top
}

fn registered(path: &Path) -> Result<Record, String> {
    record(&RealFs, &RealClock, path, binding(), &|_| ())
}

fn flip(path: &Path) {
    let times = fs::metadata(path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(times.modified().unwrap()).unwrap();
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// What is done to the tree, and what is then said.
type Case = (&'static str, fn(&Path), &'static [&'static str]);

const CASES: &[Case] = &[
    ("nothing", |_| (), &[]),
    (
        "a byte, and the file's time set back",
        |top| flip(&top.join("a.bin")),
        &["a.bin: SHA-256 "],
    ),
    (
        "a file longer",
        |top| fs::write(top.join("a.bin"), [1; 3001]).unwrap(),
        &["a.bin: 3001 bytes, expected 3000"],
    ),
    (
        "a file cut",
        |top| fs::write(top.join("inner/b.bin"), []).unwrap(),
        &["inner/b.bin: 0 bytes, expected 70000"],
    ),
    (
        "a file added",
        |top| fs::write(top.join("inner/c.bin"), "").unwrap(),
        &["inner/c.bin: file that was not there"],
    ),
    (
        "a file removed",
        |top| fs::remove_file(top.join("inner/none")).unwrap(),
        &["inner/none: missing"],
    ),
    (
        "a file renamed",
        |top| fs::rename(top.join("a.bin"), top.join("z.bin")).unwrap(),
        &["a.bin: missing", "z.bin: file that was not there"],
    ),
    (
        "two files that have each other's names",
        |top| {
            fs::rename(top.join("a.bin"), top.join("t")).unwrap();
            fs::rename(top.join("inner/b.bin"), top.join("a.bin")).unwrap();
            fs::rename(top.join("t"), top.join("inner/b.bin")).unwrap();
        },
        &[
            "a.bin: 70000 bytes, expected 3000",
            "inner/b.bin: 3000 bytes, expected 70000",
        ],
    ),
    (
        "a link to something else in it",
        |top| relink(top, "b.bin"),
        &["inner/link: link to b.bin, expected ../a.bin"],
    ),
    (
        "a link that leaves",
        |top| relink(top, "../../a.bin"),
        &["inner/link: link to ../../a.bin, expected ../a.bin"],
    ),
    (
        "a link to the root's files",
        |top| relink(top, "/etc/passwd"),
        &["inner/link: link to /etc/passwd, expected ../a.bin"],
    ),
    (
        "a file in a link's place",
        |top| {
            fs::remove_file(top.join("inner/link")).unwrap();
            fs::write(top.join("inner/link"), [1; 3000]).unwrap();
        },
        &["inner/link: file, expected a link"],
    ),
    (
        "a link in a file's place, to the same bytes",
        |top| {
            fs::rename(top.join("a.bin"), top.join("../a.bin")).unwrap();
            symlink("../a.bin", top.join("a.bin")).unwrap();
        },
        &["a.bin: link, expected a file"],
    ),
    (
        "a folder emptied",
        |top| {
            for name in ["b.bin", "none", "link"] {
                fs::remove_file(top.join("inner").join(name)).unwrap();
            }
            fs::remove_dir(top.join("inner/empty")).unwrap();
        },
        &[
            "inner/b.bin: missing",
            "inner/empty: missing",
            "inner/link: missing",
            "inner/none: missing",
        ],
    ),
    (
        "an empty folder more and one less",
        |top| fs::rename(top.join("inner/empty"), top.join("void")).unwrap(),
        &["inner/empty: missing", "void: folder that was not there"],
    ),
    (
        "a folder in a file's place",
        |top| {
            fs::remove_file(top.join("a.bin")).unwrap();
            fs::create_dir(top.join("a.bin")).unwrap();
        },
        &["a.bin: folder, expected a file"],
    ),
    (
        "a file in a folder's place",
        |top| {
            fs::remove_dir(top.join("inner/empty")).unwrap();
            fs::write(top.join("inner/empty"), "x").unwrap();
        },
        &["inner/empty: file, expected a folder"],
    ),
    (
        "a pipe in a file's place",
        |top| {
            fs::remove_file(top.join("a.bin")).unwrap();
            fifo(&top.join("a.bin"));
        },
        &["a.bin: device, socket or pipe, expected a file"],
    ),
    (
        "a socket more",
        |top| drop(UnixListener::bind(top.join("s")).unwrap()),
        &["s: device, socket or pipe that was not there"],
    ),
    (
        "the tree gone",
        |top| fs::rename(top, top.with_extension("old")).unwrap(),
        &[": <top> is not there"],
    ),
    (
        "a link to the very tree in its place",
        |top| {
            fs::rename(top, top.with_extension("old")).unwrap();
            symlink("pack.old", top).unwrap();
        },
        &[": <top> is a symlink, expected a regular file or a folder"],
    ),
    (
        "a file in the tree's place",
        |top| {
            fs::rename(top, top.with_extension("old")).unwrap();
            fs::write(top, "x").unwrap();
        },
        &[": file, expected a folder"],
    ),
    (
        "a pipe in the tree's place",
        |top| {
            fs::rename(top, top.with_extension("old")).unwrap();
            fifo(top);
        },
        &[": <top> is a device, socket or pipe, expected a regular file or a folder"],
    ),
];

fn relink(top: &Path, target: &str) {
    fs::remove_file(top.join("inner/link")).unwrap();
    symlink(target, top.join("inner/link")).unwrap();
}

#[test]
fn every_change_of_an_artifact_is_named_and_no_stat_is_believed() {
    let place = folder();
    let tops: Vec<PathBuf> = (0..CASES.len())
        .map(|index| tree(&place.path().join(index.to_string())))
        .collect();
    let keys = tops
        .iter()
        .map(|top| registered(top).expect("because it is whole"));
    let records: Vec<Record> = keys.collect();
    // Content alone makes the key, wherever it lies.
    assert!(
        records
            .iter()
            .all(|record| record.key() == records[0].key())
    );
    for ((what, change, expected), (top, record)) in CASES.iter().zip(tops.iter().zip(&records)) {
        assert_eq!(glance(&RealFs, record), Glance::Same, "{what}");
        change(top);
        let found = verify(&RealFs, &RealClock, record, NonZeroUsize::MIN, &|_| ());
        let lines = said(&found);
        assert_eq!(lines.len(), expected.len(), "{what}: {lines:#?}");
        for (line, expected) in lines.iter().zip(*expected) {
            let expected = expected.replace("<top>", &top.display().to_string());
            assert!(
                line.starts_with(&expected),
                "{what}: {line}, expected {expected}"
            );
        }
        assert_eq!(found.has_difference(), !expected.is_empty(), "{what}");
        let glance = glance(&RealFs, record);
        let is_same = glance == Glance::Same;
        assert_eq!(is_same, expected.is_empty(), "{what}: {glance:?}");
        // Threads find the same.
        let threads = NonZeroUsize::new(3).expect("because 3 is not 0");
        assert_eq!(
            verify(&RealFs, &RealClock, record, threads, &|_| ()),
            found,
            "{what}"
        );
    }
}

#[test]
fn a_touched_file_looks_changed_and_is_as_it_was() {
    let place = folder();
    let top = tree(place.path());
    let record = registered(&top).expect("because it is whole");
    let looked = || Look::take(&RealFs, &top).expect("because it is there");
    let before = looked();
    assert!(looked().is_still(&before));
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(top.join("a.bin"), mode).unwrap();
    let Glance::Changed(finding) = glance(&RealFs, &record) else {
        panic!("its mode and time are others");
    };
    assert_eq!(finding.path, "a.bin");
    assert!(!finding.what.is_certain(), "{finding:?}");
    assert!(!looked().is_still(&before));
    let touched = looked();
    fs::write(top.join("more"), "x").unwrap();
    assert!(!looked().is_still(&touched));
    fs::remove_file(top.join("more")).unwrap();
    assert!(looked().is_still(&touched));
    assert_eq!(verified(&RealFs, &RealClock, &record), [""; 0]);
}

/// What is made or done, and what is then said.
type Told = (&'static str, fn(&Path), &'static str);

const REFUSED: &[Told] = &[
    (
        "an empty folder",
        |top| fs::create_dir(top).unwrap(),
        "<top> has no file in it",
    ),
    (
        "folders of nothing",
        |top| fs::create_dir_all(top.join("a/b")).unwrap(),
        "<top> has no file in it",
    ),
    (
        "an empty file",
        |top| fs::write(top, "").unwrap(),
        "<top> has no byte in it",
    ),
    (
        "empty files",
        |top| {
            fs::create_dir(top).unwrap();
            fs::write(top.join("a"), "").unwrap();
        },
        "<top> has no byte in it",
    ),
    ("nothing", |_| (), "<top> is not there"),
    (
        "a link",
        |top| symlink("/etc/passwd", top).unwrap(),
        "<top> is a symlink, expected a regular file or a folder",
    ),
    (
        "a pipe",
        fifo,
        "<top> is a device, socket or pipe, expected",
    ),
    (
        "a pipe in it",
        |top| {
            tree(top.parent().unwrap());
            fifo(&top.join("inner/p"));
        },
        "<top>/inner/p is a device, socket or pipe",
    ),
    (
        "a link that leaves",
        |top| {
            tree(top.parent().unwrap());
            relink(top, "../../other");
        },
        "<top>/inner/link is a link to ../../other, which is outside of the folder",
    ),
    (
        "an absolute link, although it leads into the folder",
        |top| {
            tree(top.parent().unwrap());
            relink(top, &top.join("a.bin").display().to_string());
        },
        "<top>/inner/link is a link to <top>/a.bin, an absolute path",
    ),
    (
        "a link to nothing",
        |top| {
            tree(top.parent().unwrap());
            relink(top, "nothing");
        },
        "<top>/inner/link is a link to nothing, which is not there",
    ),
    (
        "only links",
        |top| {
            fs::create_dir(top).unwrap();
            symlink(".", top.join("a")).unwrap();
        },
        "<top> has no file in it",
    ),
    (
        "folders without end",
        |top| fs::create_dir_all(top.join("d/".repeat(70))).unwrap(),
        "is more than 64 folders deep",
    ),
];

#[test]
fn what_is_no_pack_is_refused_by_name() {
    let place = folder();
    for (index, (what, make, expected)) in REFUSED.iter().enumerate() {
        let at = place.path().join(index.to_string());
        fs::create_dir(&at).unwrap();
        let top = at.join("pack");
        make(&top);
        let refused = registered(&top).expect_err(what);
        let refused = refused.replace(&top.display().to_string(), "<top>");
        assert!(refused.contains(expected), "{what}: {refused}");
    }
    let taken = |path: &str| Look::take(&RealFs, Path::new(path)).err();
    let device = taken("/dev/null")
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        device.starts_with("/dev/null is a device, socket or pipe"),
        "{device}"
    );
    for path in ["/", "relative", "/tmp/../tmp", ""] {
        let refused = taken(path)
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            refused.contains("does not name a file or folder"),
            "{path}: {refused}"
        );
    }
}

/// Hashes a tree and does something to it once its small files are hashed and its large one is not.
fn hashed_while(top: &Path, change: impl Fn(&Path) + Sync) -> Result<Record, String> {
    fs::write(top.join("long.bin"), vec![3; 1 << 20]).unwrap();
    let told = AtomicU64::new(0);
    record(&RealFs, &RealClock, top, binding(), &|_| {
        // Four files: their first pieces, and the first of the next round.
        if told.fetch_add(1, Ordering::Relaxed) == 6 {
            change(top);
        }
    })
}

const MEANWHILE: &[Told] = &[
    (
        "written while it is hashed",
        |top| {
            let file = fs::File::options()
                .write(true)
                .open(top.join("long.bin"))
                .unwrap();
            std::os::unix::fs::FileExt::write_at(&file, b"x", (1 << 20) - 1).unwrap();
        },
        "long.bin changed while it was read: its mtime differs",
    ),
    (
        "cut while it is hashed",
        |top| fs::write(top.join("long.bin"), "").unwrap(),
        "long.bin changed while it was read: its size differs",
    ),
    (
        "replaced while it is hashed",
        |top| {
            fs::write(top.join("../new"), vec![3; 1 << 20]).unwrap();
            fs::rename(top.join("../new"), top.join("long.bin")).unwrap();
        },
        "long.bin changed while it was read: its ",
    ),
    (
        "replaced after it was hashed",
        |top| {
            fs::write(top.join("../new"), [1; 3000]).unwrap();
            fs::rename(top.join("../new"), top.join("a.bin")).unwrap();
        },
        "a.bin changed while it was read: its inode differs",
    ),
    (
        "written after it was hashed, with its time set back",
        |top| flip(&top.join("a.bin")),
        "a.bin changed while it was read: its ctime differs",
    ),
    (
        "added meanwhile",
        |top| fs::write(top.join("inner/new"), "x").unwrap(),
        "inner/new changed while it was read: its name differs",
    ),
    (
        "removed meanwhile",
        |top| fs::remove_file(top.join("a.bin")).unwrap(),
        "a.bin changed while it was read: its name differs",
    ),
    (
        "a link retargeted meanwhile",
        |top| relink(top, "b.bin"),
        "inner/link changed while it was read: its target differs",
    ),
    (
        "the whole tree replaced meanwhile",
        |top| {
            fs::rename(top, top.with_extension("old")).unwrap();
            let copied = Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .args([top.with_extension("old"), top.to_owned()])
                .status();
            assert!(copied.unwrap().success());
        },
        "<top> was replaced while it was read",
    ),
];

#[test]
fn what_changes_while_it_is_hashed_is_not_registered() {
    let place = folder();
    for (index, (what, change, expected)) in MEANWHILE.iter().enumerate() {
        let top = tree(&place.path().join(index.to_string()));
        let refused = hashed_while(&top, change).expect_err(what);
        let refused = refused.replace(&top.display().to_string(), "<top>");
        assert!(refused.contains(expected), "{what}: {refused}");
    }
    let top = tree(&place.path().join("quiet"));
    hashed_while(&top, |_| ()).expect("because nothing changes");
}

#[test]
fn what_changes_while_it_is_verified_is_neither_good_nor_bad() {
    let place = folder();
    let top = tree(place.path());
    fs::write(top.join("long.bin"), vec![3; 1 << 20]).unwrap();
    let record = registered(&top).expect("because it is whole");
    let told = AtomicU64::new(0);
    let found = verify(&RealFs, &RealClock, &record, NonZeroUsize::MIN, &|_| {
        if told.fetch_add(1, Ordering::Relaxed) == 6 {
            let file = fs::File::options()
                .append(true)
                .open(top.join("a.bin"))
                .unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    });
    assert!(!found.is_good() && !found.has_difference(), "{found:?}");
    let lines = said(&found);
    assert_eq!(
        lines,
        ["a.bin: changed while it was read: its mtime differs"]
    );
}

#[test]
fn hostile_names_are_kept_apart_and_found_again() {
    let place = folder();
    let top = place.path().join(OsStr::from_bytes(b"pa\xffck \"'\n"));
    fs::create_dir(&top).unwrap();
    let mut names: Vec<OsString> = [
        &b"new\nline"[..],
        b"quote\"'`$(x)",
        b"\xff",
        b"\xfe",
        b"\xef\xbf\xbd",
        b"%FF",
        b"%",
        b"\x1b[31m",
        b"back\\slash",
        b" ",
        b"-rf",
        b"...",
    ]
    .map(OsStr::from_bytes)
    .map(OsStr::to_owned)
    .to_vec();
    names.push(OsString::from_vec(vec![b'n'; 255]));
    names.push(OsString::from_vec(vec![0xe9; 255]));
    for (index, name) in names.iter().enumerate() {
        fs::write(top.join(name), [u8::try_from(index).unwrap(); 9]).unwrap();
    }
    let mut deep = top.clone();
    for _ in 0..12 {
        deep.push(OsString::from_vec(vec![b'd'; 250]));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("x"), "x").unwrap();
    symlink(OsStr::from_bytes(b"\xff"), top.join("link")).unwrap();

    let clock = Arc::new(PatientClock::default());
    let paths = (place.path().join("state"), top.clone());
    fs::create_dir(&paths.0).unwrap();
    fs::set_permissions(&paths.0, fs::Permissions::from_mode(0o700)).unwrap();
    let made = crate::registry_world::register(Arc::new(RealFs), clock, (&paths.0, &paths.1));
    let (record, outcome) = made.expect("because any name is a name");
    assert_eq!(outcome, Outcome::New);
    let registry = Registry::open_if_there(Arc::new(RealFs), Arc::new(RealClock), &paths.0);
    let registry = registry
        .expect("because it is ours")
        .expect("because it was made");
    let read = registry.read(record.key()).expect("because it was written");
    assert_eq!(read, record);
    assert_eq!(verified(&RealFs, &RealClock, &read), [""; 0]);
    for name in &names {
        assert!(read.artifact().entry(name).is_some(), "{name:?}");
    }
    // Names that look alike once what is no UTF-8 is replaced.
    fs::rename(top.join(&names[2]), top.join("t")).unwrap();
    fs::rename(top.join(&names[3]), top.join(&names[2])).unwrap();
    fs::rename(top.join("t"), top.join(&names[3])).unwrap();
    let found = verify(&RealFs, &RealClock, &read, NonZeroUsize::MIN, &|_| ());
    let paths: Vec<&OsStr> = found
        .findings
        .iter()
        .map(|finding| &*finding.path)
        .collect();
    assert_eq!(
        paths,
        [OsStr::from_bytes(b"\xfe"), OsStr::from_bytes(b"\xff")]
    );
}

/// Does it again while others have the lock for as long as it waits: on a slow disk so many of them
/// take longer than that together.
fn had_lock<T>(work: impl Fn() -> Result<T, PublishError>) -> T {
    for _ in 0..20 {
        match work() {
            Err(PublishError::Busy { .. }) => {}
            done => return done.expect("because it is ours"),
        }
    }
    panic!("the lock was never had");
}

#[test]
fn many_registrars_at_once_leave_one_whole_record_of_each_pack() {
    let place = folder();
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let tops: Vec<PathBuf> = (0..4)
        .map(|index| {
            let top = tree(&place.path().join(index.to_string()));
            // Two packs, each at two places.
            fs::write(top.join("a.bin"), [index % 2; 3000]).unwrap();
            top
        })
        .collect();
    let records: Vec<Record> = tops
        .iter()
        .map(|top| registered(top).expect("because it is whole"))
        .collect();
    std::thread::scope(|scope| {
        for round in 0..8 {
            for record in &records {
                let state = &state;
                scope.spawn(move || {
                    let registry = Registry::make(Arc::new(RealFs), Arc::new(RealClock), state);
                    let registry = registry.expect("because it is ours");
                    had_lock(|| registry.publish(record.clone()));
                    let read = registry.read(record.key());
                    // Another may have removed it meanwhile; damaged it never is.
                    if let Err(error) = read {
                        assert!(error.to_string().contains("no record of"), "{error}");
                    }
                    if round == 7 {
                        had_lock(|| registry.remove(record.key()));
                    }
                    had_lock(|| registry.publish(record.clone()));
                });
            }
        }
    });
    let registry = Registry::make(Arc::new(RealFs), Arc::new(RealClock), &state);
    let registry = registry.expect("because it is ours");
    let (keys, strays) = registry.list().expect("because it can be listed");
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(strays.is_empty());
    for key in keys {
        let read = registry.read(key).expect("because nobody writes any more");
        assert!(records.contains(&read));
    }
}
