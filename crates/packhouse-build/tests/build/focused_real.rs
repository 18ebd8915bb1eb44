//! Real processes: how they end, what they are given, and what they load.

use crate::focused_world::{FakeHost, run_in, tap};
use packhouse_base::digest::Digest;
use packhouse_build::focused::{Environment, Outcome, RunResult, Test, Verdict, run_child};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A build folder with a state folder beside it.
struct Bench {
    folder: tempfile::TempDir,
    host: FakeHost,
    environment: Environment,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("because tests have a temporary folder");
        fs::create_dir(folder.path().join("b")).unwrap();
        let host = FakeHost::new();
        host.does(Box::new(run_child));
        host.is_static.set(false);
        let path = std::env::var_os("PATH").expect("because tests have a PATH");
        let whole = [("PATH".into(), path), ("SECRET".into(), "s".into())];
        Self {
            folder,
            host,
            environment: Environment::new(&whole, &["A=b c".into()]).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path())
            .unwrap()
            .join("b")
            .join(name)
    }

    /// Makes the fingerprint hold these files, and what every program here loads.
    fn cover(&self, files: &[&Path]) {
        let listed = Command::new("ldd").arg(files[0]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let words = listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        let system = words.map(PathBuf::from);
        let files = files.iter().map(|path| path.to_path_buf()).chain(system);
        let mut covered = self.host.covered.borrow_mut();
        for path in files {
            let real = fs::canonicalize(&path).unwrap();
            let digest = Digest::of(&fs::read(&real).unwrap());
            covered.insert(real, digest);
        }
    }

    fn run(&self, test: Test, reuse_pass: bool) -> Outcome {
        let state = self.folder.path().join("state");
        let world = (&RealFs as _, &RealClock as _, state.as_path());
        let build = self.path("");
        let place = (build.as_path(), &self.environment);
        run_in(&self.host, world, &[test], reuse_pass, place).unwrap()
    }

    fn shell(&self, script: &str) -> RunResult {
        self.run(tap("it", &["/bin/sh", "-c", script]), false)
            .result
    }

    fn stdout(&self, test: Test) -> String {
        let outcome = self.run(test, false);
        let log = &outcome.result.tests[0].logs[0];
        fs::read_to_string(outcome.logs.join(&log.file)).unwrap()
    }

    fn cc(&self, name: &str, line: &str, arguments: &[&str]) -> PathBuf {
        let (source, target) = (self.path("line.c"), self.path(name));
        fs::write(&source, line).unwrap();
        let mut command = Command::new("cc");
        command.arg("-o").args([&target, &source]).args(arguments);
        let done = command
            .status()
            .expect("because a C compiler is among the basics");
        assert!(done.success(), "{name}");
        target
    }

    /// A script for a program.
    fn script(&self, name: &str, interpreter: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!{interpreter}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A program that loads a library by its path, and passes.
    fn loader_of(&self, library: &Path) -> PathBuf {
        let line = format!(
            "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {{ if (!dlopen(\"{}\", \
             RTLD_NOW)) return 1; return puts(\"ok 1\\n1..1\") < 0; }}",
            library.display()
        );
        self.cc("program", &line, &["-ldl"])
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("because it is UTF-8").to_owned()
}

#[test]
fn each_way_to_end_has_its_verdict() {
    let bench = Bench::new();
    let cases = [
        ("echo 'ok 1'; echo 1..1", Verdict::Pass, ""),
        (
            "echo 'ok 1'; echo 1..1; exit 3",
            Verdict::Fail,
            "exit code 3, though every case passed",
        ),
        (
            "echo 'not ok 1 - sums'; echo 1..1",
            Verdict::Fail,
            "1 of 1 cases failed, first sums",
        ),
        (
            "echo 'ok 1'; echo 1..1; kill -SEGV $$",
            Verdict::Crashed,
            "ended by signal 11",
        ),
        ("true", Verdict::NotExecuted, "it printed nothing on stdout"),
        (
            "echo words",
            Verdict::NotExecuted,
            "its output ends after line 1, expected a plan `1..N`",
        ),
    ];
    for (script, verdict, why) in cases {
        let result = bench.shell(script);
        assert_eq!(result.verdict, verdict, "{script}");
        assert_eq!(result.tests[0].why, why, "{script}");
    }
    let result = bench.run(tap("it", &["/bin/none"]), false).result;
    assert_eq!(result.verdict, Verdict::NotExecuted);
    assert!(
        result.tests[0]
            .why
            .starts_with("it could not be run: /bin/none")
    );
}

#[test]
fn a_test_that_hangs_is_ended_with_all_that_it_started() {
    let bench = Bench::new();
    let script = "echo 'ok 1'; echo 1..1; sleep 600 & echo $! >pid.new; mv pid.new pid; wait";
    let hang = |timeout_s| {
        let mut test = tap("it", &["/bin/sh", "-c", script]);
        test.timeout_s = timeout_s;
        let result = bench.run(test, false).result;
        assert_eq!(result.verdict, Verdict::TimedOut);
        assert_eq!(result.tests[0].exit, "killed when its time was over");
        fs::read_to_string(bench.path("pid")).ok()
    };
    // On a busy machine its time may be over before it has begun.
    let pid = [1, 5, 25, 60].into_iter().find_map(hang);
    let pid = pid.expect("because it begins within a minute");
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    let is_gone = stat.map_or(true, |stat| stat.contains(") Z "));
    assert!(is_gone, "process {pid} lives");
}

#[test]
fn a_test_has_what_is_listed_and_given_and_nothing_else() {
    let bench = Bench::new();
    let said = bench.stdout(tap("it", &["/usr/bin/env"]));
    let mut names: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["A", "LD_DEBUG", "LD_DEBUG_OUTPUT", "PATH"]);
    assert!(
        said.contains("A=b c\n") && !said.contains("SECRET"),
        "{said}"
    );
    let said = bench.stdout(tap("it", &["/bin/sh", "-c", "pwd; cat"]));
    assert_eq!(
        said,
        format!("{}\n", bench.path("").display()).replace("/\n", "\n")
    );
}

#[test]
fn a_library_that_is_loaded_from_elsewhere_is_named() {
    let bench = Bench::new();
    let covered = bench.cc(
        "liba.so",
        "int f(void) { return 1; }",
        &["-shared", "-fPIC"],
    );
    let program = bench.loader_of(&covered);
    bench.cover(&[&program, &covered]);
    let command = text(&program);
    let result = bench.run(tap("it", &[&command]), false).result;
    assert_eq!(
        (result.verdict, result.not_reusable.len()),
        (Verdict::Pass, 0),
        "{result:?}"
    );
    let loaded: Vec<&str> = result.tests[0]
        .loaded
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    assert!(loaded.contains(&text(&covered).as_str()), "{loaded:?}");
    assert!(bench.run(tap("it", &[&command]), true).was_reused);

    // The same program, from now on with another library under the same name.
    let before = fs::read(&covered).unwrap();
    bench.cc(
        "liba.so",
        "int f(void) { return 2; }",
        &["-shared", "-fPIC"],
    );
    assert_ne!(fs::read(&covered).unwrap(), before);
    let result = bench.run(tap("it", &[&command]), false).result;
    let path = text(&covered);
    let said = format!("it: {path} was loaded, and the fingerprint does not cover it");
    assert_eq!(
        (result.verdict, result.not_reusable),
        (Verdict::Pass, vec![said])
    );
    let outcome = bench.run(tap("it", &[&command]), true);
    assert!(!outcome.was_reused);
}

#[test]
fn a_library_without_a_constructor_is_seen_too() {
    let bench = Bench::new();
    let bare = ["-shared", "-fPIC", "-nostdlib", "-nostartfiles"];
    let library = bench.cc("libbare.so", "int f(void) { return 1; }", &bare);
    let program = bench.loader_of(&library);
    bench.cover(&[&program]);
    let result = bench.run(tap("it", &[&text(&program)]), false).result;
    let path = text(&library);
    let said = format!("it: {path} was loaded, and the fingerprint does not cover it");
    assert_eq!(result.not_reusable, [said]);
    // Found by its name: newer loaders tell its path all the same, older ones don't, and then it
    // is said that it was not seen.
    let own = format!("-L{}", bench.path("").display());
    let run_path = format!("-Wl,-rpath,{}", bench.path("").display());
    let line = "#include <stdio.h>\nint f(void); int main(void) { return puts(\"ok 1\\n1..1\") < 0 \
                || f() - 1; }";
    let program = bench.cc("linked", line, &[&own, "-l:libbare.so", &run_path]);
    bench.cover(&[&program, &library]);
    let result = bench.run(tap("it", &[&text(&program)]), false).result;
    let said = "it: library libbare.so was loaded, from a place that was not told";
    let is_seen = result.tests[0].loaded.iter().any(|file| file.path == path);
    assert!(
        is_seen != result.not_reusable.iter().any(|doubt| doubt == said),
        "{result:?}"
    );
}

#[test]
fn a_program_behind_a_program_is_not_taken_for_seen() {
    let bench = Bench::new();
    bench.cover(&[Path::new("/bin/sh")]);
    let result = bench.shell("/bin/true; echo 'ok 1'; echo 1..1");
    assert_eq!(result.verdict, Verdict::Pass);
    let said = "it: program /bin/true was loaded, from a place that was not told";
    assert!(
        result.not_reusable.iter().any(|doubt| doubt == said),
        "{:?}",
        result.not_reusable
    );
}

#[test]
fn what_a_static_program_does_is_not_seen_and_its_pass_is_not_taken() {
    let bench = Bench::new();
    let line = "#include <stdio.h>\nint main(void) { return puts(\"ok 1\\n1..1\") < 0; }";
    let program = bench.cc("static", line, &["-static"]);
    assert!(packhouse_build::fingerprint::is_static(&program));
    assert!(!packhouse_build::fingerprint::is_static(Path::new(
        "/bin/sh"
    )));
    bench.cover(&[&program]);
    let test = || tap("it", &[&text(&program)]);
    let result = bench.run(test(), false).result;
    let said = ["it: what it loaded was not told by its loader"];
    assert_eq!(
        result.not_reusable, said,
        "as the host calls it no static one"
    );
    bench.host.is_static.set(true);
    let said = ["it: it is a static program: what it loads and starts is not seen"];
    assert_eq!(bench.run(test(), false).result.not_reusable, said);
    assert!(!bench.run(test(), true).was_reused);
}

#[test]
fn what_a_test_says_on_stderr_is_kept_and_proves_nothing() {
    let bench = Bench::new();
    let test = tap("it", &["/bin/sh", "-c", "echo 'ok 1' >&2; echo 1..1 >&2"]);
    let outcome = bench.run(test, false);
    assert_eq!(outcome.result.verdict, Verdict::NotExecuted);
    let log = &outcome.result.tests[0].logs[1];
    let said = fs::read_to_string(outcome.logs.join(&log.file)).unwrap();
    assert_eq!((said.as_str(), log.bytes), ("ok 1\n1..1\n", 10));
}

#[test]
fn what_runs_a_script_is_in_its_key_and_its_pass_is_not_taken() {
    let bench = Bench::new();
    let print = |word: &str| {
        format!("#include <stdio.h>\nint main(void) {{ return puts(\"{word}\") < 0; }}")
    };
    let interpreter = bench.cc("interpreter", &print("ok 1\\n1..1"), &[]);
    let outer = bench.script("outer", &text(&interpreter));
    let script = bench.script("script", &text(&outer));
    bench.cover(&[&interpreter, &outer, &script]);
    let test = || tap("it", &[&text(&script)]);
    let first = bench.run(test(), false).result;
    let said = "it: it is a script: what it starts is not all seen";
    assert_eq!(
        (first.verdict, &first.not_reusable[..]),
        (Verdict::Pass, &[said.to_owned()][..])
    );
    let ran = &first.facts["tests"][0]["interpreters"];
    let path = |index: usize| ran[index]["path"].as_str().unwrap().to_owned();
    assert_eq!((path(0), path(1)), (text(&outer), text(&interpreter)));
    assert!(!bench.run(test(), true).was_reused);
    bench.cc("interpreter", &print("not ok 1\\n1..1"), &[]);
    let second = bench.run(test(), false).result;
    assert_eq!(second.verdict, Verdict::Fail);
    assert_ne!(first.key, second.key);
}

/// A program that passes, and before it ends does this.
fn that_does(what: &str) -> String {
    format!(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         int main(int count, char **words) {{ char *none[] = {{0}}; (void)none; (void)count;\n\
         (void)words; puts(\"ok 1\\n1..1\"); fflush(stdout); {what} return 0; }}"
    )
}

#[test]
fn a_program_that_silences_its_loader_is_not_taken_for_seen() {
    let bench = Bench::new();
    let library = bench.cc(
        "libextra.so",
        "int f(void) { return 1; }",
        &["-shared", "-fPIC"],
    );
    let load = format!("dlopen(\"{}\", RTLD_NOW);", text(&library));
    for what in [
        format!("closefrom(3); {load}"),
        // One that is another program at its end, whose loader is told nothing.
        "execve(\"/bin/true\", words, none);".to_owned(),
        format!("{load} _exit(0);"),
    ] {
        let program = bench.cc("program", &that_does(&what), &["-ldl"]);
        bench.cover(&[&program, &library]);
        let test = tap("it", &[&text(&program)]);
        let result = bench.run(test, false).result;
        let said = "it: its loader's account ends before it does: what it loaded later is not seen";
        let reasons: Vec<_> = result.not_reusable.iter().map(String::as_str).collect();
        assert_eq!(
            (result.verdict, reasons),
            (Verdict::Pass, vec![said]),
            "{what}"
        );
    }
}

#[test]
fn what_a_test_leaves_for_the_reader_of_its_loader_costs_its_own_pass_alone() {
    for what in [
        "mkdir $F/x",
        "mkfifo $F/x",
        "ln -s /dev/zero $F/x",
        "rm -r $F",
    ] {
        let bench = Bench::new();
        bench.cover(&[Path::new("/bin/sh")]);
        let script = format!("F=${{LD_DEBUG_OUTPUT%/*}}; {what}; echo 'ok 1'; echo 1..1");
        let result = bench.shell(&script);
        assert_eq!(result.verdict, Verdict::Pass, "{what}: {result:?}");
        let said = "it: what its loader told can't be read: ";
        let is_said = result
            .not_reusable
            .iter()
            .any(|doubt| doubt.starts_with(said));
        let is_gone = what.starts_with("rm") && !result.not_reusable.is_empty();
        assert!(is_said || is_gone, "{what}: {:?}", result.not_reusable);
    }
}

#[test]
fn a_file_that_a_command_names_is_its_content() {
    let bench = Bench::new();
    let test = |word: &str| tap("it", &["/bin/sh", "-c", "echo ok 1; echo 1..1", word]);
    let key = |word: &str| bench.run(test(word), false).result.key;
    let absent = key("kernel.cl");
    fs::write(bench.path("kernel.cl"), "1").unwrap();
    let absolute = text(&bench.path("kernel.cl"));
    let option = format!("--kernel={absolute}");
    let words = [
        "kernel.cl",
        absolute.as_str(),
        option.as_str(),
        "a=kernel.cl",
    ];
    let first = words.map(key);
    assert!(!first.contains(&absent));
    fs::write(bench.path("kernel.cl"), "2").unwrap();
    let second = words.map(key);
    fs::write(bench.path("kernel.cl"), "1").unwrap();
    for (index, word) in words.iter().enumerate() {
        assert_ne!(first[index], second[index], "{word}");
        assert_eq!(first[index], key(word), "{word}");
    }
    let script = "echo ok 1; echo 1..1; mv kernel.cl x; cp x kernel.cl";
    let named = tap("it", &["/bin/sh", "-c", script, "kernel.cl"]);
    let result = bench.run(named, false).result;
    let said = "it: a file that it names was touched meanwhile".to_owned();
    assert!(
        result.not_reusable.contains(&said),
        "{:?}",
        result.not_reusable
    );
    assert_eq!(result.verdict, Verdict::Pass);
}

#[test]
fn a_program_is_started_by_the_name_at_which_it_was_found() {
    let bench = Bench::new();
    let line = "#include <stdio.h>\n#include <string.h>\nint main(int count, char **words) {\n\
                (void)count; int is_check = !!strstr(words[0], \"/check\");\n\
                return puts(is_check ? \"ok 1\\n1..1\" : \"usage\") < 0; }";
    let multi = bench.cc("multi", line, &[]);
    let check = bench.path("check");
    std::os::unix::fs::symlink("multi", &check).unwrap();
    bench.cover(&[&multi]);
    let result = bench.run(tap("it", &[&text(&check)]), false).result;
    assert_eq!(result.verdict, Verdict::Pass, "{result:?}");
    assert!(result.not_reusable.is_empty(), "{result:?}");
    let facts = &result.facts["tests"][0];
    assert_eq!(
        (&facts["program"], &facts["program_real"]),
        (&text(&check).into(), &text(&multi).into())
    );
    assert!(bench.run(tap("it", &[&text(&check)]), true).was_reused);
}
