//! The bytes of a bag, and that others read them as bags too.

use crate::samples::{bag, folder, info, lay, payload};
use packhouse_bag::info::DESCRIPTION;
use packhouse_bag::{BagInfo, Contents, FormFault, Oxum, check, closed};
use packhouse_base::digest::Digest;
use proptest::prelude::*;
use std::process::Command;

#[test]
fn the_bytes_of_a_bag_are_those_of_the_format() {
    let bag = bag();
    let text = |name: &str| {
        let bytes = bag.get(name).expect("because every bag has it");
        String::from_utf8(bytes.to_vec()).expect("because it is ASCII")
    };
    assert_eq!(
        text("bagit.txt"),
        "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
    );
    let packet_line = format!("External-Identifier: {}\n", Digest::of(b"packet"));
    assert_eq!(
        text("bag-info.txt"),
        format!(
            "BagIt-Profile-Identifier: urn:packhouse:bag:v1\n\
             Bag-Software-Agent: packhouse 0.1.0\n{packet_line}\
             External-Description: {DESCRIPTION}\nPayload-Oxum: 296.4\n"
        )
    );
    let manifest = text("manifest-sha256.txt");
    let paths: Vec<&str> = manifest.lines().map(|line| &line[66..]).collect();
    assert_eq!(
        paths,
        [
            "data/legs/00/exchange.jsonl",
            "data/legs/00/leg.json",
            "data/outputs/00ff",
            "data/packet.json"
        ]
    );
    assert_eq!(
        manifest.lines().nth(2),
        Some(
            "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880  \
             data/outputs/00ff"
        )
    );
    let tags = text("tagmanifest-sha256.txt");
    let tags: Vec<&str> = tags.lines().map(|line| &line[66..]).collect();
    assert_eq!(tags, ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"]);
    // As a script of Python makes it from the specification.
    assert_eq!(
        bag.digest().map(|digest| digest.to_string()).as_deref(),
        Some("d1676642e13b2084f2884ea5e0a71c2510a94861ff2b03354748e50274e99a1b")
    );
    assert_eq!(check(&bag), Ok(()));
}

#[test]
fn coreutils_verify_a_bag_and_find_a_changed_byte() {
    let folder = folder();
    let mut bag = bag();
    lay(folder.path(), &bag);
    let verify = || {
        let mut command = Command::new("sha256sum");
        command.args(["--strict", "--check", "--quiet"]);
        command.args(["tagmanifest-sha256.txt", "manifest-sha256.txt"]);
        let output = command.current_dir(folder.path()).output();
        output.expect("because coreutils are everywhere")
    };
    let output = verify();
    assert!(output.status.success(), "{output:?}");
    bag.insert("data/outputs/00ff", [1; 256]);
    lay(folder.path(), &bag);
    let output = verify();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("data/outputs/00ff: FAILED"), "{said}");
}

#[test]
fn what_the_info_says_is_read_back() {
    let (said, oxum) = bag().info().expect("because it was just made");
    assert_eq!(said, info());
    assert_eq!(
        oxum,
        Oxum {
            bytes: 296,
            files: 4
        }
    );
    let absent = Contents::default().info();
    assert_eq!(absent, Err(FormFault::Missing));
}

#[test]
fn info_of_any_other_form_is_refused_and_its_line_is_named() {
    let bag = bag();
    let bytes = bag.get("bag-info.txt").expect("because it was just made");
    let text = std::str::from_utf8(bytes).expect("because it is ASCII");
    let packet = Digest::of(b"packet").to_string();
    let (name, oxum) = ("packhouse 0.1.0", "296.4");
    // With the number of the line, or 0 where the end is missing.
    let wrong = [
        (text.replace("v1", "v2"), 1),
        (text.replace(name, ""), 2),
        (text.replace(name, " x"), 2),
        (text.replace(name, "x\t"), 2),
        (text.replace(name, &"x".repeat(129)), 2),
        (text.replace(&packet, &packet[1..]), 3),
        (text.replace(&packet, &packet.to_uppercase()), 3),
        (text.replace("can't", "can"), 4),
        (text.replace(oxum, "0296.4"), 5),
        (text.replace(oxum, "+296.4"), 5),
        (text.replace(oxum, "296"), 5),
        (text.replace(oxum, "99999999999999999999.4"), 5),
        (text.replace("Payload-Oxum: 296.4\n", ""), 5),
        (format!("{text}Bagging-Date: 2026-01-01\n"), 6),
        (text.replace('\n', "\r\n"), 1),
        (text.trim_end().to_owned(), 0),
        (String::new(), 0),
    ];
    for (text, expected) in wrong {
        match BagInfo::parse(text.as_bytes()) {
            Err(FormFault::Line { line, .. }) => assert_eq!(line, expected, "{text}"),
            Err(FormFault::Unended) => assert_eq!(expected, 0, "{text}"),
            other => panic!("{other:?}: {text}"),
        }
    }
    assert_eq!(BagInfo::parse(b"\xff\n"), Err(FormFault::NotText));
}

#[test]
fn a_bag_says_what_it_can_not_prove() {
    assert!(DESCRIPTION.contains("can't prove when its preregistration was made"));
    let bag = bag();
    let bytes = bag.get("bag-info.txt").expect("because it was just made");
    let text = String::from_utf8_lossy(bytes).into_owned();
    assert!(text.contains(DESCRIPTION), "{text}");
}

#[test]
fn the_same_payload_makes_the_same_bag_and_another_one_another() {
    assert_eq!(bag(), bag());
    let mut other = payload();
    other.insert("outputs/00ff", [0; 256]);
    assert_ne!(closed(&other, &info()).digest(), bag().digest());
    let mut info = info();
    info.packet = Digest::of(b"other");
    assert_ne!(closed(&payload(), &info).digest(), bag().digest());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any payload of right paths and some bytes makes a valid bag, which gives it back.
    #[test]
    fn any_payload_makes_a_valid_bag_that_gives_it_back(
        files in prop::collection::btree_map(
            "[a-z0-9][a-z0-9_.-]{0,9}(/[a-z0-9][a-z0-9_.-]{0,9}){0,3}",
            prop::collection::vec(any::<u8>(), 1..40),
            1..9,
        )
    ) {
        let names: Vec<String> = files.keys().cloned().collect();
        let is_inside = |name: &String| {
            names.iter().any(|other| name.starts_with(&format!("{other}/")))
        };
        let mut payload = Contents::default();
        for (path, bytes) in files.into_iter().filter(|(path, _)| !is_inside(path)) {
            payload.insert(path, bytes);
        }
        let bag = closed(&payload, &info());
        prop_assert_eq!(check(&bag), Ok(()));
        prop_assert_eq!(bag.payload(), payload);
    }
}
