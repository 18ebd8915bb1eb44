//! Each way to change a bag is found, by its own code and path, before and after the lists were
//! made to fit.

use crate::samples::{bag, codes, folder, info, lay, payload, real_dir};
use packhouse_bag::{BagFault, Contents, ReadError, check, closed};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

pub(crate) type Tamper = Box<dyn Fn(&mut Contents)>;
/// Code and path.
pub(crate) type Fault = (&'static str, &'static str);
/// A change, and all that is found.
pub(crate) type Case = (&'static str, Tamper, Vec<Fault>);

fn text(bag: &Contents, name: &str) -> String {
    let bytes = bag.get(name).expect("because every bag has it");
    String::from_utf8(bytes.to_vec()).expect("because it is ASCII")
}

/// Edits one of the files beside the payload, and makes the tag manifest fit.
fn edit(name: &'static str, edit: impl Fn(String) -> String + 'static) -> Tamper {
    Box::new(move |bag| {
        let edited = edit(text(bag, name));
        bag.insert(name, edited.into_bytes());
        if name != "tagmanifest-sha256.txt" {
            fit(bag);
        }
    })
}

/// Makes the tag manifest again, for whatever three files there are.
fn fit(bag: &mut Contents) {
    let names = ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"];
    let lines = names.iter().filter_map(|name| {
        let digest = packhouse_base::digest::Digest::of(bag.get(name)?);
        Some(format!("{digest}  {name}\n"))
    });
    let lines: String = lines.collect();
    bag.insert("tagmanifest-sha256.txt", lines.into_bytes());
}

fn insert(path: &'static str, bytes: &'static [u8]) -> Tamper {
    Box::new(move |bag| bag.insert(path, bytes))
}

fn remove(path: &'static str) -> Tamper {
    Box::new(move |bag| {
        bag.remove(path).expect("because it is there");
    })
}

/// Sets the payload's file and closes the bag again, so that every list fits.
fn reclosed(path: &'static str, bytes: &'static [u8]) -> Tamper {
    Box::new(move |bag| {
        let mut payload = bag.payload();
        payload.insert(path, bytes);
        *bag = closed(&payload, &info());
    })
}

const MANIFEST: &str = "manifest-sha256.txt";
const TAGS: &str = "tagmanifest-sha256.txt";
const OUTPUT: &str = "data/outputs/00ff";

fn swapped(text: String) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.swap(0, 1);
    lines.join("\n") + "\n"
}

fn doubled(text: String) -> String {
    let first = text.lines().next().expect("because there are lines");
    format!("{first}\n{text}")
}

#[rustfmt::skip]
fn of_the_payload() -> Vec<Case> {
    let oxum = ("bag.oxum", "bag-info.txt");
    let not_a_path = |path| vec![("bag.path", path)];
    vec![
        ("another byte", insert(OUTPUT, &[1; 256]), vec![("bag.digest", OUTPUT)]),
        ("a byte less", insert(OUTPUT, &[1; 255]), vec![oxum, ("bag.digest", OUTPUT)]),
        ("a file gone", remove(OUTPUT), vec![oxum, ("bag.listed-missing", OUTPUT)]),
        ("one invented", insert("data/zz", b"1"), vec![oxum, ("bag.unlisted", "data/zz")]),
        ("an empty one, listed", reclosed("zz", b""), vec![("bag.empty-file", "data/zz")]),
        ("a blank in a path, listed", reclosed("a b", b"1"), not_a_path("data/a b")),
        ("an upper case letter, listed", reclosed("Zz", b"1"), not_a_path("data/Zz")),
        ("a path out, listed", reclosed("../zz", b"1"), not_a_path("data/../zz")),
        ("a hidden one, listed", reclosed(".zz", b"1"), not_a_path("data/.zz")),
        ("nine components, listed", reclosed("1/2/3/4/5/6/7/8", b"1"),
            not_a_path("data/1/2/3/4/5/6/7/8")),
        ("a folder of others, listed", reclosed("outputs", b"1"), not_a_path("data/outputs")),
        ("a file as the folder of all", insert("data", b"1"),
            vec![("bag.path", "data"), ("bag.unlisted", "data")]),
        ("a file beside it", insert("readme.txt", b"1"), vec![("bag.unlisted", "readme.txt")]),
    ]
}

#[rustfmt::skip]
fn of_the_files_beside_it() -> Vec<Case> {
    let not_bagit = |path| vec![("bag.not-bagit", path)];
    let info = |from: &'static str, to: &'static str| {
        edit("bag-info.txt", move |text| text.replace(from, to))
    };
    let oxum = || vec![("bag.oxum", "bag-info.txt")];
    let tags = |change: fn(String) -> String| edit(TAGS, change);
    vec![
        ("no declaration", remove("bagit.txt"), not_bagit("bagit.txt")),
        ("no info", remove("bag-info.txt"), not_bagit("bag-info.txt")),
        ("no manifest", remove(MANIFEST), not_bagit(MANIFEST)),
        ("no tag manifest", remove(TAGS), not_bagit(TAGS)),
        ("another version, fitting", edit("bagit.txt", |text| text.replace("1.0", "0.97")),
            not_bagit("bagit.txt")),
        ("another version", insert("bagit.txt", b"BagIt-Version: 0.97\n"),
            vec![("bag.digest", "bagit.txt"), ("bag.not-bagit", "bagit.txt")]),
        ("another payload size, fitting", info("296.4", "297.4"), oxum()),
        ("another number of files, fitting", info("296.4", "296.5"), oxum()),
        ("another label, fitting", info("Oxum", "Oxun"), not_bagit("bag-info.txt")),
        ("a tag less", tags(|text| without_first(&text)), not_bagit(TAGS)),
        ("a payload file among the tags", tags(|text| {
            format!("{text}{}  {OUTPUT}\n", "0".repeat(64))
        }), not_bagit(TAGS)),
        ("another digest of a tag", tags(|text| {
            format!("{}{}", "0".repeat(64), &text[64..])
        }), vec![("bag.digest", "bag-info.txt")]),
    ]
}

#[rustfmt::skip]
fn of_the_manifest() -> Vec<Case> {
    let not_bagit = || vec![("bag.not-bagit", MANIFEST)];
    let list = |change: fn(String) -> String| edit(MANIFEST, change);
    let last = "data/packet.json";
    let unlisted = || bag().payload().paths().map(unlisted).collect::<Vec<Fault>>();
    let cut = bag().payload().paths().map(with_return).collect::<Vec<Fault>>();
    vec![
        ("a line less", list(|text| without_last(&text)), vec![("bag.unlisted", last)]),
        ("a line twice", list(doubled), not_bagit()),
        ("another order", list(swapped), not_bagit()),
        ("the sign of binary files", list(|text| text.replace("  ", " *")), not_bagit()),
        ("upper case", list(|text| text.replacen("40aff2e", "40AFF2E", 1)), not_bagit()),
        ("a digit less", list(|text| text.replacen("40aff2e", "40aff2", 1)), not_bagit()),
        ("no last line end", list(|text| text.trim_end().to_owned()), not_bagit()),
        ("line ends of two bytes", list(|text| text.replace('\n', "\r\n")),
            [cut, unlisted()].concat()),
        ("an absolute path", list(|text| text.replace("data/packet.json", "/etc/passwd")),
            not_bagit()),
        ("a path out", list(|text| text.replace("data/packet.json", "data/p/../../x")),
            vec![("bag.path", "data/p/../../x"), ("bag.unlisted", last)]),
        ("a file of the other list", list(|text| text.replace("data/packet.json", TAGS)),
            not_bagit()),
        ("nothing", list(|_| String::new()),
            vec![("bag.empty-file", MANIFEST), ("bag.not-bagit", MANIFEST)]),
        ("another digest", Box::new(|bag| {
            let edited = text(bag, MANIFEST).replacen("40aff2e", "00aff2e", 1);
            bag.insert(MANIFEST, edited.into_bytes());
        }), vec![("bag.digest", OUTPUT), ("bag.digest", MANIFEST)]),
    ]
}

/// A text that lives as long as the tests.
fn leaked(text: String) -> &'static str {
    text.leak()
}

fn unlisted(path: &str) -> Fault {
    ("bag.unlisted", leaked(format!("data/{path}")))
}

fn with_return(path: &str) -> Fault {
    ("bag.path", leaked(format!("data/{path}\r")))
}

fn without_first(text: &str) -> String {
    text.lines()
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn without_last(text: &str) -> String {
    let count = text.lines().count() - 1;
    text.lines()
        .take(count)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// All changes.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = of_the_payload();
    all.extend(of_the_files_beside_it());
    all.extend(of_the_manifest());
    all
}

#[test]
fn each_change_of_a_bag_is_found_by_its_own_code_and_path() {
    for (name, tamper, expected) in cases() {
        let mut bag = bag();
        tamper(&mut bag);
        let faults = check(&bag).expect_err(name);
        let mut expected = expected;
        expected.sort_by_key(|(code, path)| (*path, *code));
        assert_eq!(codes(&faults), expected, "{name}: {faults:?}");
    }
}

#[test]
fn each_bit_of_each_file_is_covered() {
    let bag = bag();
    for (path, bytes) in bag.files() {
        for index in 0..bytes.len() {
            let mut tampered = bag.clone();
            let mut changed = bytes.to_vec();
            changed[index] ^= 1 << (index % 8);
            tampered.insert(path.clone(), changed);
            assert!(check(&tampered).is_err(), "{path} byte {index}");
        }
    }
}

#[test]
fn each_file_cut_at_each_byte_is_found() {
    let bag = bag();
    for (path, bytes) in bag.files() {
        for length in 0..bytes.len() {
            let mut tampered = bag.clone();
            tampered.insert(path.clone(), &bytes[..length]);
            let faults = check(&tampered).expect_err(path);
            let is_named = faults.iter().any(|fault| fault.path() == path);
            assert!(is_named, "{path} cut to {length}: {faults:?}");
        }
    }
}

fn read(folder: &Path) -> Result<Contents, ReadError> {
    Contents::read(&real_dir(folder))
}

fn refused(folder: &Path) -> Vec<BagFault> {
    match read(folder) {
        Err(ReadError::Faults { faults }) => faults,
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_devices_pipes_and_sockets_are_named_and_never_opened() {
    let folder = folder();
    lay(folder.path(), &bag());
    symlink("/etc/passwd", folder.path().join("data/aa")).expect("because it is free");
    symlink("packet.json", folder.path().join("data/bb")).expect("because it is free");
    symlink("/", folder.path().join("data/cc")).expect("because it is free");
    // Whoever opens a pipe without a writer waits for ever.
    let made = Command::new("mkfifo")
        .arg(folder.path().join("data/dd"))
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("data/ee"));
    let _socket = socket.expect("because it is free");
    let faults = refused(folder.path());
    let expected: Vec<(&str, &str)> = ["data/aa", "data/bb", "data/cc", "data/dd", "data/ee"]
        .map(|path| ("bag.link", path))
        .to_vec();
    assert_eq!(codes(&faults), expected);
    let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(words[0], "data/aa: a symbolic link, not a regular file");
    assert_eq!(
        words[3],
        "data/dd: a device, socket or pipe, not a regular file"
    );
}

#[test]
fn a_linked_folder_of_payload_is_not_entered() {
    let folder = folder();
    lay(folder.path(), &bag());
    let aside = folder.path().join("data/outputs");
    std::fs::rename(&aside, folder.path().join("../bag-outputs-aside"))
        .expect("because it is ours");
    symlink("../../bag-outputs-aside", &aside).expect("because it is free");
    let faults = refused(folder.path());
    std::fs::remove_dir_all(folder.path().join("../bag-outputs-aside"))
        .expect("because it is ours");
    assert_eq!(codes(&faults), [("bag.link", "data/outputs")]);
}

#[test]
fn names_that_are_no_paths_and_folders_without_files_are_named() {
    let folder = folder();
    lay(folder.path(), &bag());
    std::fs::create_dir(folder.path().join("data/empty")).expect("because it is free");
    std::fs::write(folder.path().join("data/UPPER"), b"1").expect("because it is free");
    std::fs::write(folder.path().join("data/\u{202e}evil"), b"1").expect("because it is free");
    std::fs::write(folder.path().join(".part"), b"1").expect("because it is free");
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"data/\xff");
    std::fs::write(folder.path().join(name), b"1").expect("because it is free");
    let faults = refused(folder.path());
    let mut found = codes(&faults);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("bag.path", ".part"),
            ("bag.path", "data/UPPER"),
            ("bag.path", "data/\u{202e}evil"),
            ("bag.path", "data/\u{fffd}"),
            ("bag.unlisted", "data/empty"),
        ]
    );
    // A message never turns the reader's terminal around.
    let words = faults.iter().map(ToString::to_string);
    assert!(words.clone().all(|words| !words.contains('\u{202e}')));
    assert!(words.clone().any(|words| words.contains("\\u{202e}evil")));
}

#[test]
fn what_the_system_does_not_let_read_is_no_fault_of_the_bag() {
    let sim = crate::samples::disk(1);
    let home = crate::samples::home(&sim);
    sim.set_fault(Some(packhouse_sim::Fault::Stop { at: 0 }));
    home.make_dir("x", 0o755)
        .expect_err("because it stops here");
    let error = Contents::read(&home).expect_err("because the machine stopped");
    assert!(matches!(error, ReadError::Fs(_)), "{error}");
    assert_eq!(error.blame(), packhouse_base::Blame::Host);
}

#[test]
fn a_file_that_this_user_may_not_read_is_neither_missing_nor_empty() {
    let folder = folder();
    lay(folder.path(), &bag());
    let output = folder.path().join(OUTPUT);
    std::fs::set_permissions(&output, Permissions::from_mode(0o000)).expect("because it is ours");
    if std::fs::File::open(&output).is_ok() {
        println!("NOT EXERCISED: root reads what nobody may");
        return;
    }
    match read(folder.path()) {
        Err(ReadError::Fs(error)) => {
            assert_eq!(error.kind, packhouse_sys::fs::FsErrorKind::Permission);
            assert!(error.to_string().contains(OUTPUT), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_very_many_faults_the_first_are_told_and_the_others_counted() {
    let folder = folder();
    for index in 0..50 {
        let name = format!("UPPER-{index:02}");
        std::fs::write(folder.path().join(name), b"1").expect("because it is ours");
    }
    let error = read(folder.path()).expect_err("because no bag has them");
    let words = error.to_string();
    assert!(
        words.starts_with("UPPER-00: not a path of a bag; "),
        "{words}"
    );
    assert!(
        words.ends_with("UPPER-19: not a path of a bag; and 30 more"),
        "{words}"
    );
}

#[test]
fn payload_and_evidence_folders_are_read_by_their_paths() {
    let folder = folder();
    lay(&folder.path().join("bag"), &bag());
    std::fs::write(folder.path().join("seal-1.json"), b"{}\n").expect("because it is ours");
    let all = read(folder.path()).expect("because it is all regular");
    assert_eq!(all.below("bag"), bag());
    assert_eq!(all.below("bag").payload(), payload());
    assert_eq!(all.get("seal-1.json"), Some(b"{}\n".as_slice()));
    assert_eq!(all.below("ba"), Contents::default());
}
