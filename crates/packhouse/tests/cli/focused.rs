//! `focused` from outside: exit codes, words, kills, and when nothing is run.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A build of one C program that does what its first argument says, and prints TAP.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "pass";
    FILE *begun = fopen("begun", "w");
    if (begun) fclose(begun);
    int hangs = !strcmp(word, "hang") || !access("hang", F_OK);
    if (hangs) { puts("ok 1\n1..1"); fflush(stdout); pause(); }
    if (!strcmp(word, "touch")) chmod("bin/program", 0755);
    if (!strcmp(word, "nothing")) { puts("1..0"); return 0; }
    printf("%s 1 - case\n1..1\n", strcmp(word, "fail") ? "ok" : "not ok");
    return 0;
}
"#;

struct Bench {
    sandbox: Sandbox,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            sandbox: Sandbox::new(),
        };
        fs::create_dir_all(bench.sandbox.path("b/bin")).unwrap();
        fs::write(bench.sandbox.path("program.c"), PROGRAM).unwrap();
        let done = Command::new("cc")
            .arg("-o")
            .arg(bench.sandbox.path("b/bin/program"))
            .arg(bench.sandbox.path("program.c"))
            .status()
            .expect("because a C compiler is among the basics");
        assert!(done.success());
        bench.tests(&["pass"]);
        bench
    }

    fn real(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.sandbox.path(name)).unwrap()
    }

    fn tests(&self, words: &[&str]) {
        let test = |word: &&str| {
            let command = format!("[\"program\", \"{word}\"]");
            // The limit that a command gives is for the one whose time is to be over.
            let limit = ["timeout_s = 600\n", ""][usize::from(*word == "hang")];
            format!("[[test]]\nname = \"{word}\"\ncommand = {command}\nproof = \"tap\"\n{limit}")
        };
        let text: String = words.iter().map(test).collect();
        fs::write(self.sandbox.path("tests.toml"), text).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let words = ["focused", "b", "--tests", "tests.toml"];
        self.sandbox.command(&[&words[..], more].concat())
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().expect("because it was built")
    }

    fn document(&self, more: &[&str]) -> Value {
        let output = self.run(&[more, &["--json"]].concat());
        let said = text(&output);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
    }
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn each_verdict_has_its_exit_code_and_its_words() {
    let bench = Bench::new();
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("pass: 1 of 1 tests passed\n"),
        "{}",
        text(&output)
    );
    bench.tests(&["pass", "fail", "hang"]);
    let output = bench.run(&["--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    for said in [
        "fail: 1 of 1 cases failed, first case\n  log: ",
        "hang: its time was over",
        ".stderr\n",
        "\nfail: 1 of 3 tests passed\n",
    ] {
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    assert!(!text(&output).contains("not reusable"), "{}", text(&output));
    bench.tests(&["pass", "nothing"]);
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    for said in [
        "nothing: no case ran\n",
        "\nnot executed: 1 of 2 tests passed\n",
    ] {
        assert!(text(&output).contains(said), "{}", text(&output));
    }
}

#[test]
fn a_build_that_is_touched_under_its_tests_has_no_pass() {
    let bench = Bench::new();
    bench.tests(&["touch"]);
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = "not reusable: touched while its tests ran: /";
    assert!(text(&output).contains(said), "{}", text(&output));
    bench.tests(&["pass"]);
    let (one, other) = (bench.document(&[]), bench.run(&[]));
    assert_eq!(
        one["result"]["facts"]["folder"].as_str(),
        bench.real("b").to_str()
    );
    let said = "reusable by the same key; a program with an environment of its own is not seen\n";
    assert!(text(&other).contains(said), "{}", text(&other));
}

#[test]
fn a_pass_is_taken_until_a_byte_of_the_build_or_a_variable_changes() {
    let bench = Bench::new();
    let first = bench.document(&[]);
    let not_reusable = &first["result"]["not_reusable"];
    assert_eq!(not_reusable, &serde_json::json!([]));
    let begun = bench.sandbox.path("b/begun");
    fs::remove_file(&begun).unwrap();
    let reused = bench.document(&["--reuse-pass"]);
    assert_eq!(
        (&reused["reused"], begun.exists()),
        (&Value::Bool(true), false),
        "{reused:#}"
    );
    assert_eq!(
        (&reused["result"], &reused["key"]),
        (&first["result"], &first["key"])
    );
    let other = bench.document(&["--reuse-pass", "--env", "A=1"]);
    assert_eq!(
        (&other["reused"], begun.exists()),
        (&Value::Bool(false), true)
    );
    let program = bench.sandbox.path("b/bin/program");
    let mut bytes = fs::read(&program).unwrap();
    bytes.push(0);
    fs::write(&program, bytes).unwrap();
    let rebuilt = bench.document(&["--reuse-pass"]);
    assert_eq!(rebuilt["reused"], false);
    assert_ne!(rebuilt["key"], first["key"]);
}

#[test]
fn a_kill_while_tests_run_leaves_no_pass_and_no_process() {
    let bench = Bench::new();
    let first = bench.document(&[]);
    let key = first["key"].as_str().expect("because it is text");
    let state = bench.sandbox.path("home/.local/state/packhouse/focused/v1");
    let record = state.join(key).join("result.json");
    assert!(record.exists(), "{}", record.display());
    // The same key, from now on with a program that hangs where it passed.
    fs::remove_file(bench.sandbox.path("b/begun")).unwrap();
    fs::write(bench.sandbox.path("b/hang"), "").unwrap();
    let mut hung = bench
        .command(&[])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("because it was built");
    let begun = bench.sandbox.path("b/begun");
    wait("the test never began", || begun.exists());
    assert!(
        !record.exists(),
        "the old pass is gone before a test begins"
    );
    hung.kill().unwrap();
    hung.wait().unwrap();
    let program = fs::canonicalize(bench.sandbox.path("b/bin/program")).unwrap();
    wait("the test outlives its runner", || {
        processes_of(&program) == 0
    });
    assert!(!record.exists());
    fs::remove_file(bench.sandbox.path("b/hang")).unwrap();
    let after = bench.document(&["--reuse-pass"]);
    assert_eq!(
        (&after["reused"], &after["verdict"]),
        (&false.into(), &"pass".into())
    );
    let said = "no result is recorded for this build, these tests and this environment";
    assert_eq!(
        (&after["not_reused"], &after["key"]),
        (&said.into(), &first["key"])
    );
}

fn wait(what: &str, until: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !until() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn processes_of(program: &Path) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_it = |entry: &fs::DirEntry| {
        fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
    };
    entries.filter(is_it).count()
}

#[test]
fn a_damaged_fixture_stops_everything_and_is_not_repaired_in_passing() {
    let bench = Bench::new();
    let fixtures = bench.sandbox.path("fixtures");
    let words = ["--fixtures", "fixtures"];
    assert_eq!(bench.document(&words)["verdict"], "pass");
    let data = fixtures.join("v1/mmvq-q4_0-q8_1-v1/data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let extra = |index: usize| data.join(format!("extra{index:02}"));
    (0..10).for_each(|index| fs::write(extra(index), "").unwrap());
    let output = bench.run(&["--fixtures", "fixtures", "--reuse-pass"]);
    let said = text(&output);
    let causes = said.lines().filter(|line| line.starts_with("cause: "));
    assert_eq!(
        (output.status.code(), causes.count()),
        (Some(3), 9),
        "{said}"
    );
    assert!(said.contains("\ncause: and 2 more\n"), "{said}");
    (0..10).for_each(|index| fs::remove_file(extra(index)).unwrap());
    let damaged = fixtures.join("v1/mmvq-q4_0-q8_1-v1/data/weights.q4_0.bin");
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[7] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let begun = bench.sandbox.path("b/begun");
    fs::remove_file(&begun).unwrap();
    for more in [&words[..], &["--fixtures", "fixtures", "--reuse-pass"]] {
        let output = bench.run(more);
        assert_eq!((output.status.code(), begun.exists()), (Some(3), false));
        let said = text(&output);
        assert!(
            said.starts_with("error: a fixture is damaged, and nothing was run: mmvq-q4_0-q8_1-v1"),
            "{said}"
        );
        assert!(
            said.contains("hint: packhouse fixture prepare mmvq-q4_0-q8_1-v1"),
            "{said}"
        );
    }
    assert_eq!(fs::read(&damaged).unwrap(), bytes);
}

#[test]
fn a_component_is_fed_fixtures_and_judged() {
    let bench = Bench::new();
    let own = env!("CARGO_BIN_EXE_packhouse");
    let component = |ids: &str| {
        let text = format!(
            "[[test]]\nname = \"kernels\"\ncommand = [\"{own}\", \"fixture\", \"serve\"]\n\
             proof = \"component\"\nfixtures = [{ids}]\n"
        );
        fs::write(bench.sandbox.path("tests.toml"), text).unwrap();
    };
    component("\"mmvq-q4_0-q8_1-v1\"");
    let said = bench.document(&[]);
    assert_eq!(said["verdict"], "pass", "{said:#}");
    // Five widths, published and drawn.
    assert_eq!(
        said["result"]["tests"][0]["counts"]["passed"], 10,
        "{said:#}"
    );
    component("\"nope\"");
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = "no such fixture: nope";
    assert!(text(&output).contains(said), "{}", text(&output));
}

#[test]
fn a_mistake_is_told_in_one_error() {
    let bench = Bench::new();
    let cases: [(&[&str], i32, &str); 6] = [
        (
            &["focused", "none"],
            3,
            "error: cannot open the build: none\n",
        ),
        (
            &["focused", "b", "--op", "MUL.*"],
            2,
            "error: no such tests: not the name of an operation: \"MUL.*\" (letters",
        ),
        (
            &["focused", "b"],
            3,
            "error: cannot find the program of the test: MUL_MAT on CPU\ncause: test-backend-ops: \
             no such program in the search path\n",
        ),
        (
            &["focused", "b", "--tests", "none.toml"],
            3,
            "error: cannot read the file of tests: none.toml\n",
        ),
        (
            &["focused", "b", "--tests", "program.c"],
            2,
            "error: not a file of tests: program.c\ncause: line 6: key with no value",
        ),
        (
            &["focused", "b", "--env", "NOVALUE"],
            2,
            "error: not a variable for tests: not NAME=VALUE: NOVALUE\n",
        ),
    ];
    for (words, exit, said) in cases {
        let output = bench
            .sandbox
            .command(words)
            .output()
            .expect("because it was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{stderr}");
        assert!(stderr.starts_with(said), "{stderr}");
        assert!(
            output.stdout.is_empty() && stderr.contains("\nhint: "),
            "{stderr}"
        );
    }
}
