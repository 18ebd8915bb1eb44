//! `packhouse focused` on the stock engine's own test program.

use engine_tests::{Mode, Sandbox, places};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Few cases, so that a run takes half a second.
const FEW: [&str; 2] = ["--params", "type_a=q4_0,type_b=f32,m=16,n=1,"];

/// Exit code and document.
fn focused(sandbox: &Sandbox, build: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    command.arg("focused").arg(build).args(more).arg("--json");
    let output = command.output().expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    (output.status.code(), document)
}

fn counts(document: &Value, what: &str) -> u64 {
    let counts = &document["result"]["tests"][0]["counts"];
    counts[what].as_u64().expect("it is a number")
}

fn why(document: &Value) -> &str {
    let why = &document["result"]["tests"][0]["why"];
    why.as_str().expect("it is a text")
}

fn not_reusable(document: &Value) -> String {
    document["result"]["not_reusable"].to_string()
}

/// The engine's folder under another path, with one library changed.
fn changed_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("changed");
    fs::create_dir(&copy).expect("the sandbox is writable");
    let entries = fs::read_dir(places::engine_bin()).expect("the engine is readable");
    for entry in entries.flatten() {
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        if entry.file_name() == "libggml-cpu.so" {
            let mut bytes = fs::read(from).expect("the engine is readable");
            bytes.push(0);
            fs::write(to, bytes).expect("the sandbox is writable");
        } else if let Ok(target) = fs::read_link(&from) {
            symlink(target, to).expect("the sandbox is writable");
        } else {
            fs::copy(&from, &to).expect("the sandbox has room");
        }
    }
    copy
}

#[test]
fn stock_kernels_pass_and_the_pass_is_taken_for_the_same_key_only() {
    let sandbox = Sandbox::new();
    let build = places::engine_bin();
    let (exit, first) = focused(&sandbox, &build, &FEW);
    assert_eq!((exit, counts(&first, "failed")), (Some(0), 0), "{first:#}");
    assert!(counts(&first, "passed") >= 10, "{first:#}");
    assert_eq!(not_reusable(&first), "[]");
    let loaded = first["result"]["tests"][0]["loaded"].to_string();
    assert!(loaded.contains("/libggml-cpu.so\""), "{loaded}");
    let reuse = [FEW[0], FEW[1], "--reuse-pass"];
    let (exit, again) = focused(&sandbox, &build, &reuse);
    assert_eq!(
        (exit, &again["reused"]),
        (Some(0), &Value::Bool(true)),
        "{again:#}"
    );
    assert_eq!(again["result"], first["result"]);
    let other = [&reuse[..], &["--env", "GGML_NO_SUCH=1"]].concat();
    let (_, other) = focused(&sandbox, &build, &other);
    assert_eq!(other["reused"], false, "{other:#}");
}

#[test]
fn what_the_engine_calls_ok_without_a_case_is_not_executed() {
    let sandbox = Sandbox::new();
    let build = places::engine_bin();
    let (exit, none) = focused(&sandbox, &build, &[&FEW[..], &["--op", "NOSUCH"]].concat());
    assert_eq!((exit, why(&none)), (Some(3), "no case ran"), "{none:#}");
    let (exit, none) = focused(
        &sandbox,
        &build,
        &[&FEW[..], &["--backend", "NOPE"]].concat(),
    );
    assert_eq!(
        (exit, why(&none)),
        (Some(3), "no back end NOPE; there are CPU"),
        "{none:#}"
    );
    let (exit, again) = focused(&sandbox, &build, &["--backend", "NOPE", "--reuse-pass"]);
    assert_eq!(
        (exit, &again["reused"]),
        (Some(3), &Value::Bool(false)),
        "{again:#}"
    );
}

#[test]
fn a_changed_back_end_has_no_pass_of_the_one_before() {
    let sandbox = Sandbox::new();
    let (exit, stock) = focused(&sandbox, &places::engine_bin(), &FEW);
    assert_eq!(exit, Some(0), "{stock:#}");
    let copy = changed_copy(sandbox.path());
    let reuse = [FEW[0], FEW[1], "--reuse-pass"];
    let (exit, changed) = focused(&sandbox, &copy, &reuse);
    assert_eq!(
        (exit, &changed["reused"]),
        (Some(0), &Value::Bool(false)),
        "{changed:#}"
    );
    assert_ne!(changed["key"], stock["key"]);
    let fingerprint = |document: &Value| document["result"]["facts"]["fingerprint"].clone();
    assert_ne!(fingerprint(&changed), fingerprint(&stock));
    let loaded = changed["result"]["tests"][0]["loaded"].to_string();
    let own = copy.join("libggml-cpu.so");
    assert!(loaded.contains(&own.display().to_string()), "{loaded}");
}

#[test]
fn a_back_end_from_elsewhere_is_named_unless_it_is_identified() {
    let sandbox = Sandbox::new();
    let (build, plugin) = (places::engine_bin(), places::plugin());
    let plugin = plugin.canonicalize().expect("it was built");
    let plugin = plugin.to_str().expect("its path is a text");
    let variable = format!("GGML_BACKEND_PATH={plugin}");
    let words = [&FEW[..], &["--env", &variable]].concat();
    let (exit, said) = focused(&sandbox, &build, &words);
    assert_eq!(exit, Some(0), "{said:#}");
    let named = format!("{plugin} was loaded, and the fingerprint does not cover it");
    assert!(not_reusable(&said).contains(&named), "{said:#}");
    let (_, again) = focused(&sandbox, &build, &[&words[..], &["--reuse-pass"]].concat());
    assert_eq!(again["reused"], false, "{again:#}");
    let words = [&words[..], &["--with", plugin]].concat();
    let (exit, said) = focused(&sandbox, &build, &words);
    assert_eq!(
        (exit, not_reusable(&said)),
        (Some(0), "[]".to_owned()),
        "{said:#}"
    );
}

#[test]
fn a_kernel_that_is_wrong_fails() {
    let sandbox = Sandbox::new();
    let source = sandbox.path().join("wrong.c");
    let library = sandbox.path().join("libwrong.so");
    // Another result at each call, so that it can't agree with itself.
    let line = "#include <stddef.h>\nstatic int calls;\n\
        void ggml_vec_dot_q4_0_q8_0(int n, float *s, size_t a, const void *b, size_t c,\n\
        const void *d, size_t e, int f) { *s = 1.0f + calls++; }\n";
    fs::write(&source, line).expect("the sandbox is writable");
    let done = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .expect("a C compiler is among the basics");
    assert!(done.success());
    let preload = format!("LD_PRELOAD={}", library.display());
    let words = [&FEW[..], &["--env", &preload]].concat();
    let (exit, said) = focused(&sandbox, &places::engine_bin(), &words);
    assert_eq!(
        (exit, &said["verdict"]),
        (Some(1), &"fail".into()),
        "{said:#}"
    );
    assert!(counts(&said, "failed") > 0, "{said:#}");
    // The loader is asked with the tests' environment, so what is preloaded is identified too.
    let loaded = said["result"]["tests"][0]["loaded"].to_string();
    assert!(loaded.contains("/libwrong.so\""), "{said:#}");
    assert_eq!(not_reusable(&said), "[]");
}
