//! Each form, with outputs of real programs: `ops-*` of test-backend-ops b11434 (the failing one
//! with a wrong dot product preloaded), `libtest.txt` of Rust 1.95; `gtest.txt` is transcribed from
//! GoogleTest's own documentation and sources.

use super::*;

const PASS: &str = include_str!("../testdata/ops-pass.txt");
const FAIL: &str = include_str!("../testdata/ops-fail.txt");
const NO_CASE: &str = include_str!("../testdata/ops-no-case.txt");
const NO_BACKEND: &str = include_str!("../testdata/ops-no-backend.txt");
const SKIPPED: &str = include_str!("../testdata/ops-skipped.txt");
const UNSUPPORTED: &str = include_str!("../testdata/ops-unsupported.txt");
const GTEST: &str = include_str!("../testdata/gtest.txt");
const LIBTEST: &str = include_str!("../testdata/libtest.txt");

fn ops(backend: Option<&str>, op: Option<&str>) -> Proof {
    Proof::BackendOps {
        backend: backend.map(str::to_owned),
        op: op.map(str::to_owned),
    }
}

/// Passed, failed, skipped; and the fault, empty where there is none.
fn read(proof: &Proof, text: &str) -> ((u64, u64, u64), String) {
    let reading = proof.read(text.as_bytes());
    let counts = reading.counts;
    let fault = reading.fault.map(|fault| fault.to_string());
    (
        (counts.passed, counts.failed, counts.skipped),
        fault.unwrap_or_default(),
    )
}

#[test]
fn real_outputs_of_test_backend_ops_are_counted() {
    let asked = ops(Some("CPU"), Some("MUL_MAT"));
    assert_eq!(read(&asked, PASS), ((4, 0, 0), String::new()));
    assert_eq!(read(&asked, FAIL), ((0, 4, 0), String::new()));
    let reading = asked.read(FAIL.as_bytes());
    let first = reading.first_failed.expect("because four failed");
    assert!(first.contains("MUL_MAT(type_a=q4_0"), "{first}");
    let asked = ops(Some("CPU"), Some("GET_ROWS_BACK"));
    assert_eq!(read(&asked, UNSUPPORTED), ((4, 0, 54), String::new()));
    assert_eq!(read(&ops(None, None), PASS).0, (4, 0, 0));
}

#[test]
fn outputs_that_only_look_like_passes_prove_nothing() {
    let asked = ops(Some("NOPE"), None);
    let said = "no back end NOPE; there are CPU".to_owned();
    assert_eq!(read(&asked, NO_BACKEND), ((0, 0, 0), said));
    let said = "back end CPU was skipped".to_owned();
    assert_eq!(read(&ops(Some("CPU"), None), SKIPPED), ((0, 0, 0), said));
    let asked = ops(Some("CPU"), Some("NOSUCH"));
    assert_eq!(read(&asked, NO_CASE), ((0, 0, 0), String::new()));
    let (counts, fault) = read(&ops(Some("CPU"), Some("ADD")), PASS);
    assert_eq!(counts, (0, 0, 0));
    assert!(
        fault.ends_with("is a case of MUL_MAT, asked was ADD"),
        "{fault}"
    );
    let said = "back end CPU ran, asked was NOPE".to_owned();
    assert_eq!(read(&asked_of("NOPE"), PASS).1, said);
}

fn asked_of(backend: &str) -> Proof {
    ops(Some(backend), None)
}

#[test]
fn each_edit_of_an_output_is_noticed() {
    let case = PASS
        .lines()
        .find(|line| line.contains("MUL_MAT("))
        .expect("because there are 4");
    let without = PASS.replacen(&format!("{case}\n"), "", 1);
    let twice = PASS.replacen(case, &format!("{case}\n{case}"), 1);
    let cut = PASS.replacen(
        case,
        case.split_once("): ").expect("because it has one").0,
        1,
    );
    let failed = PASS.replacen("1;32mOK", "1;31mFAIL", 1);
    let ends = |count| PASS.lines().take(count).map(|line| format!("{line}\n"));
    let early: String = ends(7).collect();
    let edits = [
        (without, "cases: its summary says 4, its lines say 3"),
        (twice, "cases: its summary says 4, its lines say 5"),
        (cut, "expected a case, or `  P/T tests passed`"),
        (
            failed,
            "cases that passed: its summary says 4, its lines say 3",
        ),
        (
            early,
            "its output ends after line 7, expected a case, or `  P/T tests passed`",
        ),
        (
            PASS.replace("  4/4 tests", "  3/4 tests"),
            "cases that passed: its summary says 3, its lines say 4",
        ),
        (
            PASS.replace("1/1 backends", "0/1 backends"),
            "back ends that passed: its summary says 0, its lines say 1",
        ),
        (
            PASS.replace("Testing 1", "Testing 2"),
            "expected `Backend I/N: NAME`",
        ),
        (
            PASS.replace("1/1 backends", "1/2 backends"),
            "back ends: its summary says 2, its lines say 1",
        ),
        (format!("{PASS}more\n"), "is \"more\", expected the end"),
        (
            format!("words\n{PASS}"),
            "is \"words\", expected `Testing N devices`",
        ),
        (PASS.trim_end().to_owned(), "expected the end of a line"),
        (String::new(), "it printed nothing on stdout"),
    ];
    for (text, said) in edits {
        assert_ne!(text, PASS, "{said}");
        let fault = read(&ops(Some("CPU"), Some("MUL_MAT")), &text).1;
        assert!(fault.contains(said), "{said}: {fault}");
    }
}

#[test]
fn a_tensor_without_room_is_a_case_that_failed() {
    let line = "failed to allocate tensors [CPU] ";
    let glued = PASS
        .replacen("  MUL_MAT(", &format!("{line}  MUL_MAT("), 1)
        .replace("4/4 tests", "4/5 tests");
    let (counts, fault) = read(&asked_of("CPU"), &glued);
    assert_eq!(counts, (4, 1, 0));
    // Its name is not on the list of failing tests then.
    assert!(fault.contains("what its cases say"), "{fault}");
}

#[test]
fn googletest_is_counted_and_each_edit_is_noticed() {
    assert_eq!(read(&Proof::Gtest, GTEST), ((2, 1, 1), String::new()));
    for (old, new, said) in [
        (
            "some words of the test\n",
            "some words",
            "tests ended: its summary says 4",
        ),
        (
            "[       OK ] Q4.Packs (0 ms)\n",
            "",
            "tests ended: its summary says 4",
        ),
        (
            "Running 4 tests",
            "Running 5 tests",
            "tests begun: its summary says 5",
        ),
        (
            "4 tests from 2 test suites ran.",
            "3 tests from 2 test suites ran.",
            "ran: its summary",
        ),
        (
            "[  PASSED  ] 2 tests.",
            "[  PASSED  ] 3 tests.",
            "passed: its summary says 3",
        ),
        (
            "[  FAILED  ] 1 test, listed",
            "[  FAILED  ] 2 tests, listed",
            "failed: its summary",
        ),
        (
            "[  SKIPPED ] 1 test, listed",
            "[  SKIPPED ] 2 tests, listed",
            "skipped: its summary",
        ),
        (
            "[  PASSED  ] 2 tests.\n",
            "",
            "expected `[  PASSED  ] N tests.`",
        ),
        (
            " 1 FAILED TEST\n",
            "[ RUN      ] A.b\n",
            "a second round is not read",
        ),
        (
            "Running 4 tests",
            "Running four tests",
            "expected `[==========] Running N tests`",
        ),
    ] {
        let edited = GTEST.replacen(old, new, 1);
        assert_ne!(edited, GTEST, "{old}");
        let fault = read(&Proof::Gtest, &edited).1;
        assert!(fault.contains(said), "{said}: {fault}");
    }
    let early: String = GTEST
        .lines()
        .take(9)
        .map(|line| format!("{line}\n"))
        .collect();
    let fault = read(&Proof::Gtest, &early).1;
    assert!(fault.contains("its output ends after line 9"), "{fault}");
}

#[test]
fn rusts_harness_is_counted_and_each_edit_is_noticed() {
    // Two programs: one with a failure, then one test of it alone.
    assert_eq!(read(&Proof::Libtest, LIBTEST), ((3, 1, 2), String::new()));
    for (old, new, said) in [
        (
            "test packs ... ok\n",
            "",
            "tests that passed: its summary says 2",
        ),
        (
            "running 5 tests",
            "running 6 tests",
            "tests: its summary says 6",
        ),
        (
            "2 passed;",
            "3 passed;",
            "tests that passed: its summary says 3",
        ),
        (
            "1 failed;",
            "0 failed;",
            "tests that failed: its summary says 0",
        ),
        (
            "2 ignored;",
            "1 ignored;",
            "tests that were ignored: its summary says 1",
        ),
        (
            "0 measured;",
            "1 measured;",
            "tests that were measured: its summary says 1",
        ),
        (
            "test result: FAILED.",
            "test result: ok.",
            "a status that its numbers have",
        ),
        (
            "test packs ... ok",
            "test packs ... hidden",
            "expected ok, FAILED or ignored",
        ),
        ("running 5 tests\n", "", "expected `running N tests`"),
    ] {
        let edited = LIBTEST.replacen(old, new, 1);
        assert_ne!(edited, LIBTEST, "{old}");
        let fault = read(&Proof::Libtest, &edited).1;
        assert!(fault.contains(said), "{said}: {fault}");
    }
    assert!(
        read(&Proof::Libtest, "nothing\n")
            .1
            .contains("expected `running N tests`")
    );
}

#[test]
fn tap_is_counted_and_each_fault_is_named() {
    let text = "TAP version 14\n1..5\nok 1 - packs\n# words\n    ok 1 - a subtest\n\
                not ok 2 - sums\n  ---\n  message: x\n  ...\nok 3 - gpu # SKIP no card\n\
                not ok 4 - new # todo later\nok\n";
    assert_eq!(read(&Proof::Tap, text), ((2, 1, 2), String::new()));
    let first = Proof::Tap.read(text.as_bytes()).first_failed;
    assert_eq!(first.as_deref(), Some("sums"));
    assert_eq!(
        read(&Proof::Tap, "ok 1\n1..1\n"),
        ((1, 0, 0), String::new())
    );
    assert_eq!(
        read(&Proof::Tap, "1..0 # SKIP no card\n"),
        ((0, 0, 0), String::new())
    );
    for (text, counts, said) in [
        ("ok 1\nok 2\n", (2, 0, 0), "expected a plan `1..N`"),
        (
            "1..3\nok 1\nok 2\n",
            (2, 0, 0),
            "tests: its summary says 3, its lines say 2",
        ),
        (
            "1..2\nok 1\nok 1\n",
            (1, 0, 0),
            "is \"ok 1\", expected the next number",
        ),
        ("1..1\n1..1\nok 1\n", (0, 0, 0), "expected one plan only"),
        ("1..x\n", (0, 0, 0), "is \"1..x\", expected a plan"),
        (
            "1..2\nnot ok 1\nBail out! no card\n",
            (0, 1, 0),
            "it gave up: no card",
        ),
    ] {
        let (actual, fault) = read(&Proof::Tap, text);
        assert_eq!(actual, counts, "{text}");
        assert!(fault.contains(said), "{said}: {fault}");
    }
}

#[test]
fn tap_directives_are_read_as_readers_of_tap_do() {
    for (line, counts) in [
        ("ok 1 - gpu #skip no card", (0, 0, 1)),
        ("ok 1 - gpu # SKIP see bug # 12", (0, 0, 1)),
        ("ok 1 - bug #12 #  Skipped", (0, 0, 1)),
        ("ok 1 - gpu #ToDo later", (0, 0, 1)),
        ("not ok 1 - gpu #ToDo later", (0, 0, 1)),
        ("ok 1#skip", (0, 0, 1)),
        ("ok # skip", (0, 0, 1)),
        (r"ok 1 - a \\# skip", (0, 0, 1)),
        (r"ok 1 - a \# SKIP", (1, 0, 0)),
        (r"not ok 1 - a \# todo", (0, 1, 0)),
        ("ok 1 - skip # 12", (1, 0, 0)),
        ("ok 1 - a # ski\u{ed}", (1, 0, 0)),
    ] {
        let text = format!("1..1\n{line}\n");
        assert_eq!(read(&Proof::Tap, &text), (counts, String::new()), "{line}");
    }
}

mod any {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A pass needs the whole text: none of its beginnings is one, and no line can go.
        #[test]
        fn no_part_of_an_output_is_a_pass(at in 0usize..4000, which in 0usize..4) {
            let (proof, text) = match which {
                0 => (asked_of("CPU"), PASS),
                1 => (Proof::Gtest, GTEST),
                2 => (Proof::Libtest, LIBTEST.split_inclusive("\n\nfailures").next().unwrap_or("")),
                _ => (Proof::Tap, "TAP version 14\n1..3\nok 1 a\nok 2 b\nok 3 c\n"),
            };
            let last = text.rfind("  4/4").or(text.rfind("[==========]")).unwrap_or(text.len() - 1);
            let at = at % last.max(1);
            if text.is_char_boundary(at) {
                let (_, fault) = read(&proof, &text[..at]);
                prop_assert!(!fault.is_empty(), "{}", &text[..at]);
            }
        }

        #[test]
        fn no_bytes_at_all_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for proof in [ops(Some("CPU"), None), Proof::Gtest, Proof::Libtest, Proof::Tap] {
                let _ = proof.read(&bytes);
            }
        }
    }
}
