//! Lists, analyses, seals, and rehearsals.

use super::*;

#[test]
fn an_analysis_says_what_the_bag_gives_and_nothing_else() {
    let sample = sample::run();
    let changes: [(&str, Value, &str); 20] = [
        ("/analyzer", json!(sha256("x")), "analysis.analyzer"),
        ("/bag", json!(sha256("x")), "analysis.bag"),
        ("/packet", json!(sha256("x")), "analysis.packet"),
        ("/kind", json!("rehearsal"), "analysis.verdict"),
        ("/status", json!("stopped"), "analysis.verdict"),
        ("/verdict", json!("fail"), "analysis.verdict"),
        ("/says/0", json!("x"), "analysis.verdict"),
        ("/gates/0/passed", json!(false), "analysis.gate"),
        ("/gates/3/decides", json!(false), "analysis.gate"),
        ("/gates/3/basis", json!("attested"), "analysis.gate"),
        (
            "/gates/3/measured",
            json!("unequal rows = 0 of 41"),
            "analysis.gate",
        ),
        ("/gates/16/threshold", json!("wins >= 1"), "analysis.gate"),
        (
            "/gates/14/measured",
            json!("kernel.rows = 2"),
            "analysis.gate",
        ),
        ("/gates/0/failure_count", json!(1), "analysis.gate"),
        (
            "/gates/0/failures",
            json!(["equality: x: y"]),
            "analysis.gate",
        ),
        ("/rows/39/sha256", json!(sha256("x")), "analysis.row"),
        ("/rows/0/equal", json!(false), "analysis.row"),
        ("/timing/0/wins", json!(1), "analysis.timing"),
        (
            "/timing/0/bootstrap_lower_95/numerator",
            json!("21"),
            "analysis.timing",
        ),
        ("/timing", json!([]), "analysis.timing"),
    ];
    for (pointer, value, code) in changes {
        let tampered = edit(&sample, ANALYSIS, |analysis| set(analysis, pointer, value));
        rejects(&tampered, pointer, &[code]);
        rejects(&tampered, pointer, &["seal.subject"]);
        rejects(&tampered, pointer, &["ledger.sealed"]);
    }
    let dropped = edit(&sample, ANALYSIS, |analysis| {
        analysis["gates"]
            .as_array_mut()
            .expect("because it is a list")
            .remove(3);
    });
    rejects(&dropped, "without a gate", &["analysis.gate"]);
    let mut second = sample.clone();
    put(
        &mut second.tree,
        "analysis-2/analysis.json",
        bytes(&sample.tree, ANALYSIS),
    );
    rejects(&second, "the same analyzer again", &["analysis.number"]);
    let mut third = sample.clone();
    put(
        &mut third.tree,
        "analysis-3/analysis.json",
        bytes(&sample.tree, ANALYSIS),
    );
    rejects(&third, "a gap", &["analysis.number"]);
}

#[test]
fn a_seal_is_of_what_lies_there_and_has_its_place_in_the_ledger() {
    let sample = sample::run();
    let changes: [(&str, Value, &str); 12] = [
        ("/_type", json!("x"), "seal.type"),
        ("/predicateType", json!("x"), "seal.type"),
        (
            "/subject/0/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        (
            "/subject/1/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        (
            "/subject/2/digest/sha256",
            json!(sha256("x")),
            "seal.subject",
        ),
        ("/subject/1/name", json!("bag"), "seal.subject"),
        ("/predicate/packet", json!(sha256("x")), "seal.subject"),
        ("/predicate/number", json!(2), "seal.head"),
        ("/predicate/verdict", json!("fail"), "seal.verdict"),
        ("/predicate/ledger_head", json!(sha256("x")), "seal.head"),
        ("/predicate/analyzer", json!(sha256("x")), "seal.head"),
        ("/predicate/lab", json!(sha256("x")), "seal.head"),
    ];
    for (pointer, value, code) in changes {
        let tampered = edit(&sample, "seal-1.json", |seal| set(seal, pointer, value));
        rejects(&tampered, pointer, &[code]);
    }
    let swapped = edit(&sample, "seal-1.json", |seal| {
        seal["subject"]
            .as_array_mut()
            .expect("because it is a list")
            .swap(0, 1);
    });
    rejects(&swapped, "subjects swapped", &["seal.subject"]);
}

#[test]
fn the_bag_is_what_its_lists_say_and_nothing_is_followed() {
    let sample = sample::run();
    let plain = |path: &str, entry: Entry| {
        let mut copy = sample.clone();
        copy.tree.insert(path.to_owned(), entry);
        copy
    };
    let file = |bytes: &[u8]| Entry::file(bytes.to_vec());
    for (path, entry, code) in [
        (RUN, file(b"{}\n"), "bag.digest"),
        (RUN, file(b""), "bag.empty-file"),
        ("bag/data/x", file(b"x"), "bag.unlisted"),
        ("bag/notes.txt", file(b"x"), "bag.unlisted"),
        ("notes.txt", file(b"x"), "bag.unlisted"),
        ("bag.open/data/x", file(b"x"), "bag.unlisted"),
        (".part-seal-1.json", file(b"x"), "bag.path"),
        ("bag/data/X", file(b"x"), "bag.path"),
        ("bag/data/empty", Entry::EmptyFolder, "bag.unlisted"),
        (RUN, Entry::Link("/etc/passwd".to_owned()), "bag.link"),
        ("seal-1.json", Entry::Link("x".to_owned()), "bag.link"),
        (
            "bag/data/pipe",
            Entry::Other("a pipe".to_owned()),
            "bag.link",
        ),
        (
            "bag/bagit.txt",
            file(b"BagIt-Version: 0.97\n"),
            "bag.not-bagit",
        ),
        (
            "bag/bag-info.txt",
            file(b"Payload-Oxum: 1.1\n"),
            "bag.not-bagit",
        ),
        ("bag/manifest-sha256.txt", file(b"x\n"), "bag.not-bagit"),
    ] {
        rejects(&plain(path, entry), path, &[code]);
    }
    let mut gone = sample.clone();
    gone.tree.remove(RUN);
    rejects(&gone, "a listed file", &["bag.listed-missing"]);
    let mut oxum = sample.clone();
    let info = String::from_utf8(bytes(&sample.tree, "bag/bag-info.txt"));
    let info = info.expect("because it is text");
    let wrong = info.replacen("Payload-Oxum: ", "Payload-Oxum: 1", 1);
    put(&mut oxum.tree, "bag/bag-info.txt", wrong);
    sample::tags(&mut oxum.tree);
    rejects(&oxum, "another count", &["bag.oxum"]);
    let mut named = sample.clone();
    let packet = sha256(bytes(&sample.tree, "bag/data/packet.json"));
    let other = info.replace(&packet, &sha256("x"));
    put(&mut named.tree, "bag/bag-info.txt", other);
    sample::tags(&mut named.tree);
    rejects(&named, "another packet", &["packet.digest"]);
}

#[test]
fn a_rehearsal_has_no_marker_and_its_ledger_cites_it() {
    let sample = sample::rehearsal();
    let run = sample::run();
    let marker = bytes(&run.tree, "bag/data/marker.json");
    let tampered = replace(&sample, "bag/data/marker.json", Some(&marker));
    rejects(&tampered, "a marker", &["marker.unexpected"]);
    let mut sealed = sample.clone();
    put(
        &mut sealed.tree,
        "seal-1.json",
        bytes(&run.tree, "seal-1.json"),
    );
    rejects(&sealed, "a seal", &["bag.unlisted"]);
    let mut foreign = sample.clone();
    let last = sample.ledger.iter().filter(|byte| **byte == b'\n').count() - 1;
    let digest = json!(sha256("x"));
    foreign.ledger = edited(&sample.ledger, last, |entry| {
        entry["body"]["analysis"] = digest
    });
    rejects(
        &foreign,
        "a ledger with another analysis",
        &["ledger.sealed"],
    );
    let called = edit(&sample, RUN, |run| run["kind"] = json!("run"));
    rejects(
        &called,
        "a rehearsal that calls itself a run",
        &["marker.missing", "authority.state"],
    );
}

#[test]
fn a_bag_that_is_still_open_is_said_to_be_so_and_no_more() {
    let sample = sample::run();
    let mut open = sample.clone();
    let bag: Vec<String> = open
        .tree
        .keys()
        .filter(|path| path.starts_with("bag/"))
        .cloned()
        .collect();
    for path in bag {
        let entry = open.tree.remove(&path).expect("because it was listed");
        open.tree
            .insert(path.replacen("bag/", "bag.open/", 1), entry);
    }
    let report = check(&open.tree, None, None);
    let words =
        "bag.not-bagit: bag.open: not closed: its run goes on, or was killed and is not finished";
    assert_eq!(
        report
            .findings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [words]
    );
}

/// A word that no analysis can have is of the record, whatever the bag gives.
#[test]
fn an_analysis_has_no_word_of_its_own() {
    let sample = sample::run();
    for field in ["kind", "status", "verdict"] {
        let tampered = edit(&sample, ANALYSIS, |analysis| analysis[field] = json!("x"));
        rejects(&tampered, field, &["record.type"]);
    }
}
