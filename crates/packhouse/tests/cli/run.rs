//! `run` and `env`: variables, the process that becomes the engine, and the watcher it leaves.

use crate::sandbox::Sandbox;
use crate::worker_world::{wait_or, wait_until};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};

#[test]
fn the_variables_are_what_a_shell_can_read() {
    let sandbox = Sandbox::new();
    sandbox.session(
        "env",
        &[
            &["env"],
            &["env", "--json", "--trust", "deep"],
            &["env", "--report", "it's a folder"],
            &["env", "--report", "libggml-packhouse.so/reports"],
        ],
    );
    let shell = format!(
        "eval \"$({} env --report \"it's\")\" && printf %s \"$PACKHOUSE_REPORT\"",
        env!("CARGO_BIN_EXE_packhouse")
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &shell]).current_dir(sandbox.path(""));
    command.env("PACKHOUSE_PLUGIN", sandbox.path("libggml-packhouse.so"));
    let said = command
        .env_remove("GGML_BACKEND_PATH")
        .output()
        .unwrap()
        .stdout;
    assert_eq!(
        String::from_utf8(said).unwrap(),
        sandbox.path("it's").to_str().unwrap()
    );
}

#[test]
fn what_stands_in_the_way_of_a_start_is_named() {
    let sandbox = Sandbox::new();
    sandbox.session(
        "run-refused",
        &[&["run", "--", "no-such-engine", "-m", "x"]],
    );
    sandbox.session_with(
        "run-chained",
        &[&["run", "--", "true"], &["env"]],
        |command| {
            command.env("GGML_BACKEND_PATH", "/opt/other/libggml-other.so");
        },
    );
    sandbox.session_with("run-no-plugin", &[&["run", "--", "true"]], |command| {
        command.env("PACKHOUSE_PLUGIN", "/nowhere/libggml-packhouse.so");
    });
    let left: Vec<_> = std::fs::read_dir(sandbox.path(""))
        .unwrap()
        .flatten()
        .collect();
    // The watcher of the engine that never came removes its folder too, or `run` did.
    assert!(left.iter().all(|entry| {
        !entry
            .file_name()
            .to_string_lossy()
            .starts_with("packhouse-")
    }));
}

#[test]
fn the_plugin_of_our_own_env_is_no_stranger() {
    let sandbox = Sandbox::new();
    let plugin = sandbox.path("libggml-packhouse.so");
    let mut command = sandbox.command(&["run", "--", "true"]);
    assert!(
        command
            .env("GGML_BACKEND_PATH", plugin)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn the_engine_has_the_same_process_id_and_its_own_exit_code() {
    let sandbox = Sandbox::new();
    let script = "echo $$ $GGML_BACKEND_PATH $PACKHOUSE_TRUST; exit 7";
    let child = sandbox
        .command(&["run", "--trust", "sample", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let plugin = sandbox.path("libggml-packhouse.so");
    let expected = format!("{pid} {} sample\n", plugin.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// Starts a shell in the engine's place whose stdin keeps it alive.
fn start(sandbox: &Sandbox, script: &str) -> Child {
    let mut command = sandbox.command(&["run", "--", "sh", "-c", script]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn an_engine_that_opens_a_model_without_the_plugin_is_told_of() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("blob"), "GGUF and more").unwrap();
    let mut engine = start(&sandbox, "exec 9<blob; read word");
    let mut line = String::new();
    BufReader::new(engine.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let blob = sandbox.path("blob");
    let begin = format!(
        "packhouse: process {} opened {} without",
        engine.id(),
        blob.display()
    );
    assert!(line.starts_with(&begin), "{line}");
    // It has spoken when it is done with all else.
    assert_eq!(announcement_folders(&sandbox), 0);
    engine.stdin.take().unwrap().write_all(b"end\n").unwrap();
    engine.wait().unwrap();
}

#[test]
fn an_announced_plugin_ends_the_watcher_without_a_word() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("m.gguf"), "GGUF").unwrap();
    // Ends when the watcher removed the announcement, which it does as its last act.
    let script = "exec 9<m.gguf; : >\"$PACKHOUSE_ANNOUNCE\"
        while [ -e \"${PACKHOUSE_ANNOUNCE%/*}\" ]; do sleep 0.02; done";
    let mut engine = start(&sandbox, script);
    let mut said = String::new();
    engine
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(engine.wait().unwrap().success());
    assert_eq!(said, "");
    assert_eq!(announcement_folders(&sandbox), 0);
}

/// The watcher is a convenience: without a place for its announcement the engine starts all the
/// same.
#[test]
fn an_engine_starts_without_a_watcher_too() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "--", "echo", "served"]);
    let output = command.env("TMPDIR", "/nowhere").output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"served\n"[..])
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("packhouse: nobody watches whether the plug-in is loaded: "),
        "{said}"
    );
}

#[test]
fn with_packhouse_off_nobody_watches() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "--", "sh", "-c", "echo \"<$PACKHOUSE_ANNOUNCE>\""]);
    let output = command.env("PACKHOUSE", "0").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "<>\n");
}

/// A supervisor that waits for the end of a pipe, a port or a terminal must not wait for the
/// watcher.
#[test]
fn the_watcher_holds_no_descriptor_but_stderr() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("inherited"), "").unwrap();
    let script = format!(
        "exec 7>inherited; exec {} run -- sh -c 'echo $$; read word'",
        env!("CARGO_BIN_EXE_packhouse")
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).current_dir(sandbox.path(""));
    command.env("PACKHOUSE_PLUGIN", sandbox.path("libggml-packhouse.so"));
    command
        .env("TMPDIR", sandbox.path(""))
        .env_remove("GGML_BACKEND_PATH");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut engine = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(engine.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim(), engine.id().to_string());
    // Until it is its own program, it looks like the one that started it.
    let watcher = watcher_of(engine.id());
    let held = || {
        let mut held: Vec<String> = std::fs::read_dir(format!("/proc/{watcher}/fd"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name() != "2")
            .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
            .filter(|target| !target.starts_with("/proc/"))
            .collect();
        held.dedup();
        held
    };
    // At moments it looks into a file of the engine's; what it holds it has at every look.
    wait_or(
        "nothing but /dev/null",
        || held() == ["/dev/null"],
        || format!("{:?}", held()),
    );
    let session = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .nth(3)
            .unwrap()
            .to_owned()
    };
    assert_ne!(session(watcher), session(engine.id()));
    engine.stdin.take().unwrap().write_all(b"end\n").unwrap();
    engine.wait().unwrap();
}

fn watcher_of(engine: u32) -> u32 {
    let begin = format!("watch\0{engine}\0");
    let found = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.into_iter().find_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_watcher = String::from_utf8_lossy(&line).contains(&begin);
            let pid = entry.file_name().to_str()?.parse().ok()?;
            is_watcher.then_some(pid)
        })
    };
    wait_until("the watcher", || found().is_some());
    found().expect("because it lives as long as its engine")
}

fn announcement_folders(sandbox: &Sandbox) -> usize {
    let entries = std::fs::read_dir(sandbox.path("")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("packhouse-")).count()
}
