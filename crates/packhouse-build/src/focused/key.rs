//! The key of a run: everything that can change what its tests do.
//!
//! Canonical JSON of sorted facts, hashed once. The order in which tests were named takes no part,
//! nor do time limits: a pass is a pass whatever it might have taken.

use super::environment::Environment;
use super::named::NamedFile;
use super::test::Test;
use super::words::lossless;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A test with its program found and hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// The test.
    pub test: &'a Test,
    /// Its program, by the path at which it was found: this is what is started.
    pub program: PathBuf,
    /// The program's real path.
    pub real: PathBuf,
    /// The program's content.
    pub program_digest: Digest,
    /// What runs it, where it is a script.
    pub interpreters: Vec<NamedFile>,
    /// The files that its command names.
    pub files: Vec<NamedFile>,
}

/// The facts of a key, and the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    facts: Value,
    digest: Digest,
}

impl Key {
    /// Makes the key of a run whose tests work in this folder.
    pub fn new(
        folder: &Path,
        fingerprint: Digest,
        fixtures: &BTreeMap<String, Digest>,
        devices: &BTreeSet<String>,
        tests: &[Bound<'_>],
        environment: &Environment,
    ) -> Self {
        let fixtures = fixtures
            .iter()
            .map(|(id, digest)| (id.clone(), json!(digest.to_string())));
        let mut tests: Vec<&Bound<'_>> = tests.iter().collect();
        tests.sort_by(|one, other| one.test.name.cmp(&other.test.name));
        let files = |files: &[NamedFile]| -> Vec<Value> {
            let facts = files.iter().map(
                |file| json!({"path": lossless(&file.path), "sha256": file.sha256.to_string()}),
            );
            facts.collect()
        };
        let tests = tests.into_iter().map(|bound| {
            json!({
                "command": bound.test.command.iter().map(lossless).collect::<Vec<_>>(),
                "files": files(&bound.files),
                "interpreters": files(&bound.interpreters),
                "name": bound.test.name,
                "program": lossless(&bound.program),
                "program_real": lossless(&bound.real),
                "program_sha256": bound.program_digest.to_string(),
                "proof": bound.test.proof,
            })
        });
        Self::of(json!({
            "devices": devices,
            "environment": environment.to_value(),
            "fingerprint": fingerprint.to_string(),
            "fixtures": Value::Object(fixtures.collect()),
            "folder": lossless(folder),
            "schema": KEY_SCHEMA,
            "tests": tests.collect::<Vec<_>>(),
        }))
    }

    /// The key of facts that were recorded.
    pub(super) fn of(facts: Value) -> Self {
        let digest = Digest::of(&canonical::render(&facts));
        Self { facts, digest }
    }

    /// The facts.
    pub fn facts(&self) -> &Value {
        &self.facts
    }

    /// Their digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

const KEY_SCHEMA: &str = "packhouse/focused-key/1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focused::proof::Proof;
    use std::ffi::OsString;

    fn test(name: &str, argument: &str, proof: Proof) -> Test {
        Test {
            name: name.to_owned(),
            command: vec!["program".into(), argument.into()],
            proof,
            timeout_s: 5,
        }
    }

    struct Facts {
        folder: &'static str,
        real: &'static str,
        interpreters: Vec<NamedFile>,
        files: Vec<NamedFile>,
        fingerprint: u8,
        fixture: u8,
        devices: Vec<&'static str>,
        tests: Vec<Test>,
        program: &'static str,
        program_digest: u8,
        whole: Vec<(OsString, OsString)>,
        given: Vec<OsString>,
    }

    fn file(path: &str, digest: u8) -> NamedFile {
        NamedFile {
            path: PathBuf::from(path),
            sha256: Digest::from_bytes([digest; 32]),
            identity: None,
        }
    }

    fn facts() -> Facts {
        let ops = Proof::BackendOps {
            backend: Some("CPU".to_owned()),
            op: None,
        };
        Facts {
            folder: "/b",
            real: "/b/program",
            interpreters: vec![file("/bin/sh", 5)],
            files: vec![file("/b/kernel.cl", 6)],
            fingerprint: 1,
            fixture: 2,
            devices: vec!["cpu:0"],
            tests: vec![test("a", "x", ops), test("b", "y", Proof::Tap)],
            program: "/b/program",
            program_digest: 3,
            whole: vec![("PATH".into(), "/bin".into())],
            given: vec!["A=1".into()],
        }
    }

    fn key(facts: &Facts) -> Key {
        let digest = |byte| Digest::from_bytes([byte; 32]);
        let fixtures = BTreeMap::from([("f".to_owned(), digest(facts.fixture))]);
        let devices = facts.devices.iter().map(|id| (*id).to_owned()).collect();
        let bound: Vec<Bound<'_>> = facts
            .tests
            .iter()
            .map(|test| Bound {
                test,
                program: PathBuf::from(facts.program),
                real: PathBuf::from(facts.real),
                program_digest: digest(facts.program_digest),
                interpreters: facts.interpreters.clone(),
                files: facts.files.clone(),
            })
            .collect();
        let environment = Environment::new(&facts.whole, &facts.given);
        let environment = environment.expect("because all is well formed");
        Key::new(
            Path::new(facts.folder),
            digest(facts.fingerprint),
            &fixtures,
            &devices,
            &bound,
            &environment,
        )
    }

    #[test]
    fn each_fact_takes_part_in_the_key() {
        type Change = fn(&mut Facts);
        let changes: [(&str, Change); 18] = [
            ("folder", |facts| facts.folder = "/b/bin"),
            ("real program", |facts| facts.real = "/b/multi"),
            ("interpreter", |facts| {
                facts.interpreters = vec![file("/bin/sh", 9)]
            }),
            ("no interpreter", |facts| facts.interpreters.clear()),
            ("named file", |facts| {
                facts.files = vec![file("/b/kernel.cl", 9)]
            }),
            ("no named file", |facts| facts.files.clear()),
            ("fingerprint", |facts| facts.fingerprint = 9),
            ("fixture", |facts| facts.fixture = 9),
            ("device", |facts| facts.devices = vec!["cpu:1"]),
            ("devices", |facts| facts.devices.push("cpu:1")),
            ("argument", |facts| facts.tests[0].command[1] = "z".into()),
            ("name", |facts| facts.tests[0].name = "c".to_owned()),
            ("proof", |facts| facts.tests[1].proof = Proof::Gtest),
            ("a test less", |facts| facts.tests.truncate(1)),
            ("program", |facts| facts.program = "/c/program"),
            ("program's content", |facts| facts.program_digest = 9),
            ("inherited", |facts| facts.whole[0].1 = "/usr/bin".into()),
            ("given", |facts| facts.given = vec!["A=2".into()]),
        ];
        let mut seen = BTreeSet::from([key(&facts()).digest()]);
        for (what, change) in changes {
            let mut changed = facts();
            change(&mut changed);
            assert!(seen.insert(key(&changed).digest()), "{what}");
        }
    }

    #[test]
    fn given_and_inherited_are_not_the_same() {
        let mut other = facts();
        other.whole.clear();
        other.given.push("PATH=/bin".into());
        assert_ne!(key(&other).digest(), key(&facts()).digest());
    }

    #[test]
    fn order_and_time_limits_take_no_part() {
        let mut other = facts();
        other.tests.reverse();
        other.tests[0].timeout_s = 77;
        assert_eq!(key(&other), key(&facts()));
        let back = Key::of(key(&other).facts().clone());
        assert_eq!(back, key(&facts()));
    }
}
