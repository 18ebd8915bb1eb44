//! External programs by the component protocol: our own kernels pass, and a program that lies in
//! one way is refused for that lie, with the exit code that fits.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

const PACKHOUSE: &str = env!("CARGO_BIN_EXE_packhouse");
const SMALL: &str = "mrow-identity-v1-v1";
const CONTEXT: &str = "contextkv-bf16-v1";
/// One published case and one drawn.
const ONE: &[&str] = &["--width", "1"];

/// A run of the liar, and its exit code with both streams.
fn run(lie: &str, fixture: &str, words: &[&str]) -> (Option<i32>, String) {
    let sandbox = Sandbox::new();
    let liar = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/component_liar.py");
    let liar = liar.to_str().expect("because it is plain text");
    let mut command = vec!["fixture", "run", fixture];
    command.extend(words);
    command.extend(["--", "python3", liar, lie, PACKHOUSE, fixture]);
    let output = sandbox.command(&command).output();
    let output = output.expect("because the command was built");
    let left = std::fs::read_dir(sandbox.path("")).expect("because it is there");
    let left = left.filter_map(Result::ok).map(|entry| entry.file_name());
    let is_ours = |name: &std::ffi::OsString| name.to_string_lossy().contains("component");
    assert_eq!(
        left.filter(is_ours).count(),
        0,
        "{lie}: its folder is still there"
    );
    both(&output)
}

fn both(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream));
    (output.status.code(), text.concat())
}

/// Runs each lie and compares exit code and words.
fn each(cases: &[(&str, i32, &str)], fixture: &str, words: &[&str]) {
    for (lie, exit, expected) in cases {
        let (actual, text) = run(lie, fixture, words);
        assert_eq!(actual, Some(*exit), "{lie}: {text}");
        assert!(
            text.contains(expected),
            "{lie}: expected {expected:?} in {text}"
        );
    }
}

/// Runs a lie that gives no answer. On a busy machine the limit may be over before it comes to
/// that; then it gets more.
fn hangs(lie: &str, exit: i32, words: &[&str], expected: impl Fn(&str) -> String) {
    let mut said = String::new();
    for limit in ["1", "5", "25", "60"] {
        let (actual, text) = run(lie, SMALL, &[words, &["--timeout", limit]].concat());
        if text.contains(&expected(limit)) {
            assert_eq!(actual, Some(exit), "{lie}: {text}");
            return;
        }
        assert!(text.contains("no answer in time"), "{lie}: {text}");
        said = text;
    }
    panic!("{lie}: expected {:?} in {said}", expected("60"));
}

#[test]
fn our_own_kernels_pass_as_an_external_program() {
    let sandbox = Sandbox::new();
    let words = ["fixture", "run", SMALL, CONTEXT, "--json"];
    let words = [
        &words[..],
        &["--", PACKHOUSE, "fixture", "serve", SMALL, CONTEXT],
    ]
    .concat();
    let output = sandbox
        .command(&words)
        .output()
        .expect("because the command was built");
    let (exit, text) = both(&output);
    assert_eq!(exit, Some(0), "{text}");
    let json: Value = serde_json::from_str(&text).expect("because it is JSON");
    assert_eq!(json["passed"], true);
    assert_eq!(json["program"]["devices"], serde_json::json!(["cpu"]));
    let (cases, drawn) = (&json["cases"], &json["drawn_cases"]);
    assert!(
        drawn.as_u64() >= Some(10) && cases.as_u64() > drawn.as_u64(),
        "{cases} {drawn}"
    );
    let trial = &json["trials"][0];
    assert_eq!(
        trial["attested"]["witnesses"][0]["path"],
        "mrow-identity-v1"
    );
    assert_eq!(trial["attested"]["capture"], "unknown");
}

#[test]
fn an_honest_program_passes_in_any_spelling_and_its_warnings_are_told_once() {
    for fixture in [SMALL, CONTEXT] {
        let (exit, text) = run("Honest", fixture, ONE);
        assert_eq!(exit, Some(0), "{text}");
        assert!(text.contains(" drawn "), "{text}");
    }
    let (exit, text) = run("Warns", SMALL, ONE);
    assert_eq!(exit, Some(0), "{text}");
    assert_eq!(text.matches("warning: slow path\n").count(), 1, "{text}");
    assert!(text.contains("warning: \\u{1b}[2Jcleared\n"), "{text}");
}

#[test]
fn nothing_in_a_case_tells_the_drawn_from_the_published() {
    for fixture in [SMALL, CONTEXT, "head-int8-tile-rm-v1"] {
        let (exit, text) = run("TellsApart", fixture, ONE);
        assert_eq!(exit, Some(0), "{text}");
        assert!(text.contains(" of them drawn for this session"), "{text}");
        assert!(!text.contains("told apart"), "{text}");
    }
}

#[test]
fn wrong_elements_fail_their_rows_and_replayed_answers_the_drawn_ones() {
    let (exit, text) = run("OneBit", SMALL, ONE);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("output row 0"), "{text}");
    assert!(
        text.contains("failed: 2 of 2 cases by packhouse scalar kernels"),
        "{text}"
    );
    let (exit, text) = run("Replay", SMALL, ONE);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("failed: 1 of 2 cases"), "{text}");
    assert!(text.contains("width 1 drawn, output row 0"), "{text}");
    // The same drawn case can be looked at again.
    let challenge = text.rsplit("challenge ").next().map(str::trim);
    let (exit, text) = run(
        "Honest",
        SMALL,
        &[
            "--width",
            "1",
            "--challenge",
            challenge.expect("because it is there"),
        ],
    );
    assert_eq!(exit, Some(0), "{text}");
    assert!(
        text.contains("1 of them drawn from the challenge that was given"),
        "{text}"
    );
}

/// Runs one lie in each case, and compares what each case is refused for: that and nothing else.
fn each_case(lies: &[(&str, &str)]) {
    let names: Vec<&str> = lies.iter().map(|(lie, _)| *lie).collect();
    let (exit, text) = run(
        &names.join(","),
        SMALL,
        &["--width", "4", "--repeats", "8", "--json"],
    );
    assert_eq!(exit, Some(1), "{text}");
    let json: Value = serde_json::from_str(&text).expect("because it is JSON");
    let trials = json["trials"].as_array().expect("because it is a list");
    assert!(trials.len() >= lies.len(), "{} cases", trials.len());
    for (index, trial) in trials.iter().enumerate() {
        let faults = trial["not_judged"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let Some((lie, expected)) = lies.get(index) else {
            assert_eq!(
                trial["passed"], true,
                "case {index} after the last lie: {trial}"
            );
            continue;
        };
        let expected = expected.replace('#', &index.to_string());
        let is_it = |fault: &Value| {
            fault
                .as_str()
                .is_some_and(|text| text.starts_with(&expected))
        };
        // Without any witness that of the poison is missing too.
        let more = usize::from(*lie == "NoWitness");
        assert!(
            faults.first().is_some_and(is_it) && faults.len() == 1 + more,
            "{lie}: {faults:?}"
        );
        assert_eq!(trial["attested"], Value::Null, "{lie}");
    }
}

#[test]
fn each_lie_about_a_tensor_is_refused_for_what_it_is() {
    each_case(&[
        ("StaleDigest", "boundary output: SHA-256 "),
        ("Shape", "boundary output: shape ["),
        ("Stride", "boundary output: stride ["),
        ("Type", "boundary output: dtype i32, expected f32"),
        ("Offset", "boundary output: storage offset 1, expected 0"),
        ("Bytes", "boundary output: "),
        (
            "Elsewhere",
            "boundary output: on device cuda:GPU-1, asked was cpu",
        ),
        (
            "OtherFile",
            "boundary output: in file case-#-activations.bin, asked was case-#-output.bin",
        ),
        ("Missing", "boundary output: missing"),
        ("Invented", "boundary logits: not one of the case's"),
        ("Twice", "boundary output: recorded twice"),
        (
            "Alias",
            "boundary activations and boundary output: share the bytes 0x",
        ),
        (
            "InPlace",
            "boundary output and input weights: share the bytes 0x",
        ),
        ("Null", "boundary output: at 0x0 to 0x"),
    ]);
    each(
        &[("Base", 1, "one storage, but bases 0x")],
        CONTEXT,
        &["--width", "1"],
    );
}

#[test]
fn each_lie_in_the_folders_is_refused_for_what_it_is() {
    let no_file = |kind: &str| format!("output case-#-output.bin: {kind}, expected a new file");
    each_case(&[
        ("Extra", "output notes.txt: nobody asked for it"),
        ("Empty", "output case-#-output.bin: 0 bytes"),
        ("Short", "output case-#-output.bin: "),
        ("Long", "output case-#-output.bin: "),
        ("Absent", "output case-#-output.bin: absent"),
        ("Symlink", &no_file("a symlink")),
        ("HardLink", &no_file("a file with several names")),
        ("Folder", &no_file("a folder")),
        ("Deep", &no_file("a folder")),
        (
            "ExtraInput",
            "inputs' folder: cache.bin: the driver did not put it there",
        ),
        ("Pipe", &no_file("no regular file")),
    ]);
}

#[test]
fn each_lie_about_inputs_and_the_run_is_refused_for_what_it_is() {
    each_case(&[
        ("InputInMemory", "input weights: SHA-256 "),
        ("InputUntold", "input input: missing"),
        ("NoWitness", "no witness of execution"),
        (
            "Capturing",
            "capture state told, though the program said that it can't",
        ),
        ("Index", "answers case 5, asked was case 4"),
    ]);
    let untold = "capture state unknown, though the program said that it tells it";
    let cases = [
        ("EditInput", 1, "input input: its file "),
        ("DropInput", 1, "input input: its file "),
        ("CaptureUntold", 1, untold),
    ];
    each(&cases, SMALL, ONE);
}

#[test]
fn a_program_that_leaves_the_protocol_was_not_executed() {
    let protocol = "at hello: the program speaks \"packhouse/component/2\", expected \
                    \"packhouse/component/1\"";
    let chatty = "in case 0: frame of 1684107116 bytes, at most 1048576; as text its length is \
                  \"load\"";
    let cases = [
        (
            "OldChallenge",
            3,
            "at hello: the program gives back another challenge",
        ),
        ("Protocol", 3, protocol),
        (
            "ManyDevices",
            3,
            "at hello: devices: 20000 entries, at most 64",
        ),
        ("UnknownField", 3, "in case 0: speedup: unknown field"),
        ("Rate", 3, "in case 0: not JSON of this protocol: "),
        ("Answers", 3, "bytes on stdout that nobody asked for"),
        ("Chatty", 3, chatty),
        ("Half", 3, "in case 0: the program ended with code 0"),
        (
            "Dies",
            3,
            "cause: in case 0: the program ended by signal 11\ncause: log: device lost\n",
        ),
    ];
    each(&cases, SMALL, ONE);
    hangs("Hangs", 3, ONE, |limit| {
        format!(
            "cause: in case 0: no answer in time\ncause: --timeout is {limit} s for each answer\n\
             cause: log: waiting for the device\n"
        )
    });
}

#[test]
fn what_was_not_executed_is_no_failure_and_no_pass() {
    let cases = [
        ("Declines", 3, ": declined: width not built in"),
        ("NoWidth", 3, ": the program does not offer width 1"),
        ("NoArm", 3, ": the program does not offer arm plain"),
        (
            "NoFixture",
            3,
            "cases of mrow-identity-v1-v1: the program does not offer this fixture",
        ),
        ("NoDevice", 3, "error: the program offers no device: "),
    ];
    each(&cases, SMALL, ONE);
    let (exit, text) = run("Honest,Declines", SMALL, ONE);
    assert_eq!(exit, Some(3), "{text}");
    assert!(
        text.contains("not executed: 1 case; passed: 1 case by "),
        "{text}"
    );
}

/// Ends what it holds, whatever happens.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_driver_leaves_no_program_and_the_next_one_removes_its_folder() {
    let sandbox = Sandbox::new();
    let script = "echo $$ > pid.new; mv pid.new pid; exec sleep 300";
    let mut command = sandbox.command(&["fixture", "run", "--", "sh", "-c", script]);
    let mut driver = Killed(command.spawn().expect("because the command was built"));
    let pid = until(|| std::fs::read_to_string(sandbox.path("pid")).ok());
    driver.0.kill().expect("because it is ours");
    driver.0.wait().expect("because it is ours");
    let stat = format!("/proc/{}/stat", pid.trim());
    until(|| {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    let left = || {
        let entries = std::fs::read_dir(sandbox.path("")).expect("because it is there");
        let names = entries
            .filter_map(Result::ok)
            .map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().contains("component"))
            .count()
    };
    assert_eq!(left(), 1);
    let output = sandbox.command(&["fixture", "run", "--", "true"]).output();
    let (exit, text) = both(&output.expect("because the command was built"));
    assert_eq!(exit, Some(3), "{text}");
    assert_eq!(left(), 0);
}

/// Asks until there is an answer.
fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < end, "nothing came in a minute");
        std::thread::yield_now();
    }
}

#[test]
fn a_failure_stays_one_when_the_program_dies_after_it_and_a_bad_end_is_one() {
    let cases = [
        (
            "DiesLater",
            1,
            "failed: in case 1: the program ended with code 5\n",
        ),
        (
            "BadEnd",
            1,
            "failed: at bye: the program ended with code 4\nlog: leaked 3 buffers\n",
        ),
        (
            "LastWord",
            1,
            "failed: at bye: 5 bytes on stdout that nobody asked for\n",
        ),
    ];
    each(&cases, SMALL, ONE);
    hangs("Stays", 1, &[], |_| {
        "failed: at bye: no answer in time\n".to_owned()
    });
}

#[test]
fn what_cannot_be_started_or_served_says_so() {
    let sandbox = Sandbox::new();
    let refused = |words: &[&str]| {
        let output = sandbox
            .command(words)
            .output()
            .expect("because the command was built");
        assert!(output.stdout.is_empty());
        both(&output)
    };
    let missing = "error: cannot start the program: no-such\n\
                   cause: no-such: no such program in the search path\n\n\
                   hint: command -v no-such\n";
    let missing = (Some(3), missing.to_owned());
    assert_eq!(refused(&["fixture", "run", "--", "no-such"]), missing);
    let none = "error: nothing to run: any fixture\ncause: at width 777\n\
                cause: the program offers mrow-identity-v1-v1\n\nhint: packhouse fixture ls\n";
    let words = [
        "fixture", "run", "--width", "777", "--", PACKHOUSE, "fixture", "serve", SMALL,
    ];
    assert_eq!(refused(&words), (Some(3), none.to_owned()));
    let (exit, text) = refused(&["fixture", "run", "--challenge", "12", "--", "true"]);
    assert_eq!(exit, Some(2), "{text}");
    assert!(text.contains("error: not a challenge: 12\n"), "{text}");
    let (exit, text) = refused(&["fixture", "run", "--timeout", "9"]);
    assert_eq!(exit, Some(2), "{text}");
    let (exit, text) = refused(&["fixture", "serve", SMALL]);
    assert_eq!(exit, Some(3), "{text}");
    assert!(
        text.contains("cause: the driver went away without bye\n"),
        "{text}"
    );
    let (exit, text) = refused(&["fixture", "serve", "--json"]);
    assert_eq!(exit, Some(2), "{text}");
    assert!(
        text.contains("error: two things on stdout: --json and serve\n"),
        "{text}"
    );
}

/// Whoever became this command may have ignored the signal of a child's end: the kernel keeps no
/// child that ended then, and its number is soon another's.
#[test]
fn a_parent_that_ignored_sigchld_changes_nothing() {
    let sandbox = Sandbox::new();
    let words = ["fixture", "run", SMALL, "--width", "1"];
    let serve = ["--", PACKHOUSE, "fixture", "serve", SMALL];
    let line = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
                os.execv(sys.argv[1], sys.argv[1:])";
    let output = sandbox
        .shell(
            "exec python3 -c \"$LINE\" \"$0\" \"$@\"",
            &[&words[..], &serve].concat(),
        )
        .env("LINE", line)
        .output();
    let (exit, text) = both(&output.expect("because there is a shell"));
    assert_eq!(exit, Some(0), "{text}");
}
