//! The verifier that was written apart, from the specification alone, says the same of bags, seals
//! and signatures that were changed.

use crate::samples::{bag, codes};
use crate::seals::{other_statements, statement, value};
use crate::signatures::{PUBLIC, envelope, other_forms};
use crate::tampered::cases;
use packhouse_bag::dsse::Envelope;
use packhouse_bag::seal::Statement;
use packhouse_bag::{Contents, check};
use packhouse_bagcheck::{Entry, PublicKey, Report, Tree, check_bag};
use packhouse_base::canonical;
use std::collections::BTreeSet;

fn tree(contents: &Contents, folder: &str) -> Tree {
    let files = contents.files().iter();
    let files = files.map(|(path, bytes)| (format!("{folder}{path}"), Entry::file(bytes.clone())));
    files.collect()
}

/// The codes of findings about one path, or about all.
fn found<'r>(report: &'r Report, path: &str) -> BTreeSet<&'r str> {
    let findings = report.findings.iter();
    let findings = findings.filter(|finding| path.is_empty() || finding.path == path);
    findings.map(|finding| finding.code).collect()
}

#[test]
fn each_changed_bag_has_the_same_codes_for_both() {
    assert_eq!(found(&check_bag(&tree(&bag(), "")), ""), BTreeSet::new());
    for (name, tamper, _) in cases() {
        let mut bag = bag();
        tamper(&mut bag);
        let faults = check(&bag).expect_err(name);
        let ours: BTreeSet<&str> = codes(&faults).iter().map(|(code, _)| *code).collect();
        let report = check_bag(&tree(&bag, ""));
        let theirs = found(&report, "");
        // It may go on with a list that has a line of the other one.
        let is_form = ours.contains("bag.not-bagit") && theirs.is_superset(&ours);
        assert!(theirs == ours || is_form, "{name}: {ours:?} {theirs:?}");
    }
}

/// What the other verifier says of a seal and its signature beside a bag.
fn sealed(seal: &[u8], signature: &[u8], path: &str) -> BTreeSet<String> {
    let mut evidence = tree(&bag(), "bag/");
    evidence.insert("analysis-1/analysis.json".to_owned(), Entry::file(*b"{}\n"));
    evidence.insert("seal-1.json".to_owned(), Entry::file(seal));
    evidence.insert("seal-1.dsse.json".to_owned(), Entry::file(signature));
    let key = PublicKey::from_pem(PUBLIC).expect("because it is a key");
    let report = packhouse_bagcheck::check(&evidence, None, Some(&key));
    found(&report, path)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_changed_seal_has_its_code_for_both() {
    for (place, other, code) in other_statements() {
        let mut changed = value();
        *changed.pointer_mut(place).expect("because it is a place") = other.clone();
        let changed = canonical::render(&changed);
        let ours = Statement::parse(&changed).expect_err(place);
        let theirs = sealed(&changed, b"", "seal-1.json");
        assert_eq!(ours.code(), code, "{place}");
        assert!(theirs.contains(code), "{place} {other}: {theirs:?}");
    }
}

#[test]
fn each_changed_signature_is_one_that_neither_takes() {
    let seal = statement().render();
    let path = "seal-1.dsse.json";
    assert_eq!(sealed(&seal, &envelope(|_| ()), path), BTreeSet::new());
    for (words, change) in other_forms() {
        let changed = envelope(change);
        Envelope::parse(&changed).expect_err(words);
        let theirs = sealed(&seal, &changed, path);
        assert!(theirs.contains("seal.signature"), "{words}: {theirs:?}");
    }
}
