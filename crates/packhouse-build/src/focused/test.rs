//! The tests of a run: named commands, each with the form of its proof and a time limit.
//!
//! Invariants:
//! - names are different, of one line, and at most 200 bytes long;
//! - a command is a list of words; no shell is between.
//!
//! The file of tests is specified in `docs/format/focused.md`.

use super::proof::Proof;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// How its output proves what ran.
    pub proof: Proof,
    /// Seconds after which it is killed.
    pub timeout_s: u64,
}

/// Why tests can't be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestsError {
    /// Not TOML, or a table of another form.
    #[error("line {line}: {reason}")]
    Form {
        /// Where, from 1.
        line: usize,
        /// What the parser said, in one line.
        reason: String,
    },
    /// Not UTF-8.
    #[error("not UTF-8 from byte {offset}")]
    NotText {
        /// The first byte that is wrong.
        offset: usize,
    },
    /// No test at all.
    #[error("no test in it")]
    Nothing,
    /// More tests than one run has.
    #[error("{actual} tests, at most {TESTS_MAX} are run")]
    TooMany {
        /// How many there are.
        actual: usize,
    },
    /// A name that no test can have.
    #[error("test {name:?}: a name has 1 to {NAME_BYTES_MAX} bytes, of one line")]
    Name {
        /// The name.
        name: String,
    },
    /// Two tests of one name.
    #[error("test {name:?}: there are two of this name")]
    Twice {
        /// The name.
        name: String,
    },
    /// A test without a command.
    #[error("test {name:?}: its command is empty")]
    Command {
        /// The name.
        name: String,
    },
    /// A form of proof that is not known.
    #[error("test {name:?}: proof {proof:?}, known are {}", PROOFS.join(", "))]
    Proof {
        /// The test's name.
        name: String,
        /// The word.
        proof: String,
    },
    /// A setting that only another form of proof has.
    #[error("test {name:?}: {setting} is for proof {proof:?} only")]
    Setting {
        /// The test's name.
        name: String,
        /// The setting.
        setting: &'static str,
        /// The form that has it.
        proof: &'static str,
    },
    /// A time limit that is none.
    #[error("test {name:?}: timeout_s {timeout_s}, it is from 1 to {TIMEOUT_S_MAX}")]
    Timeout {
        /// The test's name.
        name: String,
        /// The value.
        timeout_s: u64,
    },
    /// An operation's name that is none.
    #[error("not the name of an operation: {op:?} (letters, digits and _, at most 64)")]
    Op {
        /// The name.
        op: String,
    },
}

/// One table of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestTable {
    name: String,
    command: Vec<String>,
    proof: String,
    timeout_s: Option<u64>,
    backend: Option<String>,
    op: Option<String>,
    fixtures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    #[serde(default)]
    test: Vec<TestTable>,
}

/// Reads a file of tests. `timeout_s` is the limit of tests that name none. Errors name the test.
pub fn parse_tests(bytes: &[u8], timeout_s: u64) -> Result<Vec<Test>, TestsError> {
    let text = std::str::from_utf8(bytes).map_err(|error| TestsError::NotText {
        offset: error.valid_up_to(),
    })?;
    let file: TestFile = toml::from_str(text).map_err(|error| {
        let line = error.span().and_then(|span| text.get(..span.start));
        TestsError::Form {
            line: line.map_or(1, |before| before.matches('\n').count() + 1),
            reason: error.message().lines().collect::<Vec<_>>().join(" "),
        }
    })?;
    let tests = file.test.into_iter();
    let tests: Result<Vec<_>, _> = tests.map(|table| test_of(table, timeout_s)).collect();
    let tests = tests?;
    judge(&tests)?;
    Ok(tests)
}

/// The default tests of a llama.cpp build: one run of `program` for each operation.
///
/// # Errors
/// When an operation is no name, is named twice, or the time limit is none.
pub fn backend_ops_tests(
    program: &str,
    ops: &[String],
    backend: &str,
    params: Option<&str>,
    timeout_s: u64,
) -> Result<Vec<Test>, TestsError> {
    let test = |op: &String| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if op.is_empty() || op.len() > OP_BYTES_MAX || !op.bytes().all(is_name) {
            return Err(TestsError::Op { op: op.clone() });
        }
        let mut command: Vec<OsString> = vec![program.into(), "test".into()];
        command.extend(["-b".into(), backend.into(), "-o".into(), op.into()]);
        if let Some(params) = params {
            command.extend(["-p".into(), params.into()]);
        }
        Ok(Test {
            name: format!("{op} on {backend}"),
            command,
            proof: Proof::BackendOps {
                backend: Some(backend.to_owned()),
                op: Some(op.clone()),
            },
            timeout_s,
        })
    };
    let tests: Vec<Test> = ops.iter().map(test).collect::<Result<_, _>>()?;
    judge(&tests)?;
    Ok(tests)
}

fn test_of(table: TestTable, default_timeout_s: u64) -> Result<Test, TestsError> {
    let name = table.name;
    let only_for = |setting, proof| TestsError::Setting {
        name: name.clone(),
        setting,
        proof,
    };
    let is_ops = table.proof == "backend-ops";
    if table.backend.is_some() && !is_ops {
        return Err(only_for("backend", "backend-ops"));
    }
    if table.op.is_some() && !is_ops {
        return Err(only_for("op", "backend-ops"));
    }
    if table.fixtures.is_some() && table.proof != "component" {
        return Err(only_for("fixtures", "component"));
    }
    let proof = match table.proof.as_str() {
        "backend-ops" => Proof::BackendOps {
            backend: table.backend,
            op: table.op,
        },
        "gtest" => Proof::Gtest,
        "libtest" => Proof::Libtest,
        "tap" => Proof::Tap,
        "component" => {
            let mut fixtures = table.fixtures.unwrap_or_default();
            fixtures.sort();
            fixtures.dedup();
            Proof::Component { fixtures }
        }
        _ => {
            let proof = table.proof;
            return Err(TestsError::Proof { name, proof });
        }
    };
    Ok(Test {
        name,
        command: table.command.into_iter().map(OsString::from).collect(),
        proof,
        timeout_s: table.timeout_s.unwrap_or(default_timeout_s),
    })
}

fn judge(tests: &[Test]) -> Result<(), TestsError> {
    if tests.is_empty() {
        return Err(TestsError::Nothing);
    }
    if tests.len() > TESTS_MAX {
        return Err(TestsError::TooMany {
            actual: tests.len(),
        });
    }
    let mut names = BTreeSet::new();
    for test in tests {
        let name = test.name.clone();
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_name || name.chars().any(packhouse_base::shown::is_hidden) {
            return Err(TestsError::Name { name });
        }
        if test
            .command
            .first()
            .is_none_or(|program| program.is_empty())
        {
            return Err(TestsError::Command { name });
        }
        if !(1..=TIMEOUT_S_MAX).contains(&test.timeout_s) {
            let timeout_s = test.timeout_s;
            return Err(TestsError::Timeout { name, timeout_s });
        }
        if !names.insert(name.clone()) {
            return Err(TestsError::Twice { name });
        }
    }
    Ok(())
}

/// The longest file of tests that is read, in bytes.
pub const TESTS_BYTES_MAX: u64 = 1 << 20;
/// Tests of one run at most.
pub const TESTS_MAX: usize = 256;
/// The longest time limit, in seconds: a week.
pub const TIMEOUT_S_MAX: u64 = 7 * 24 * 3600;
const NAME_BYTES_MAX: usize = 200;
const OP_BYTES_MAX: usize = 64;
const PROOFS: [&str; 5] = ["backend-ops", "gtest", "libtest", "tap", "component"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Test>, TestsError> {
        parse_tests(text.as_bytes(), 600)
    }

    #[test]
    fn a_file_of_tests_is_read_and_its_defaults_are_filled_in() {
        let text = r#"
            [[test]]
            name = "ops"
            command = ["test-backend-ops", "test"]
            proof = "backend-ops"
            backend = "CPU"
            [[test]]
            name = "all kernels"
            command = ["run", "a b"]
            proof = "component"
            fixtures = ["b", "a", "b"]
            timeout_s = 5
        "#;
        let tests = parse(text).expect("because it is well formed");
        let expected = Proof::BackendOps {
            backend: Some("CPU".to_owned()),
            op: None,
        };
        assert_eq!((&tests[0].proof, tests[0].timeout_s), (&expected, 600));
        let fixtures = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(tests[1].proof, Proof::Component { fixtures });
        assert_eq!(tests[1].command, ["run", "a b"]);
        assert_eq!(tests[1].timeout_s, 5);
    }

    #[test]
    fn each_mistake_names_its_test() {
        let one = |rest: &str| format!("[[test]]\nname = \"a\"\n{rest}\n");
        let plain = "command = [\"x\"]\nproof = \"tap\"";
        let twice = one(plain) + &one(plain);
        let long = format!("[[test]]\nname = \"{}\"\n{plain}", "n".repeat(201));
        for (text, said) in [
            ("", "no test in it"),
            (&twice, "test \"a\": there are two of this name"),
            (
                &one("command = [\"x\"]\nproof = \"junit\""),
                "test \"a\": proof \"junit\", known are backend-ops, gtest, libtest, tap",
            ),
            (
                &one("command = []\nproof = \"tap\""),
                "test \"a\": its command is empty",
            ),
            (
                &one(&format!("{plain}\nbackend = \"CPU\"")),
                "test \"a\": backend is for proof \"backend-ops\" only",
            ),
            (
                &one(&format!("{plain}\nfixtures = []")),
                "test \"a\": fixtures is for proof \"component\" only",
            ),
            (
                &one(&format!("{plain}\ntimeout_s = 0")),
                "test \"a\": timeout_s 0, it is from 1 to 604800",
            ),
            (&long, "a name has 1 to 200 bytes, of one line"),
            (
                "[[test]]\nname = \"a\\nb\"\ncommand = [\"x\"]\nproof = \"tap\"",
                "test \"a\\nb\": a name has",
            ),
            (
                &one(&format!("{plain}\ncolour = 1")),
                "unknown field `colour`",
            ),
            (&one("proof = \"tap\""), "missing field `command`"),
            ("\n[[test]\n", "line 2: "),
        ] {
            let error = parse(text).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = parse_tests(b"# \xff", 600).expect_err("because it is no text");
        assert_eq!(error.to_string(), "not UTF-8 from byte 2");
    }

    #[test]
    fn an_operation_is_a_name_and_has_a_run_of_its_own() {
        let ops = ["MUL_MAT".to_owned(), "ADD".to_owned()];
        let tests = backend_ops_tests("/b/t", &ops, "CPU", Some("m=16"), 9);
        let tests = tests.expect("because both are names");
        assert_eq!(tests[0].name, "MUL_MAT on CPU");
        let command = ["/b/t", "test", "-b", "CPU", "-o", "MUL_MAT", "-p", "m=16"];
        assert_eq!(tests[0].command, command);
        assert_eq!(tests[1].command.len(), 8);
        for (ops, said) in [
            (vec!["MUL.*"], "not the name of an operation: \"MUL.*\""),
            (vec![""], "not the name of an operation: \"\""),
            (vec!["ADD", "ADD"], "there are two of this name"),
            (vec![], "no test in it"),
        ] {
            let ops: Vec<String> = ops.into_iter().map(str::to_owned).collect();
            let error = backend_ops_tests("t", &ops, "CPU", None, 9).expect_err(said);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
