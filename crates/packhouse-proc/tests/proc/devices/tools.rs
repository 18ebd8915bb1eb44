//! Tools as real processes: who they are, what they are told, and that they end.

use packhouse_proc::devices::host_tools::HostTools;
use packhouse_proc::devices::{Question, RawReport, ToolAnswer, Tools};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;

/// A tool of a name that is this shell script.
fn tool(name: &str, script: &str, timeout_ns: u64) -> (TempDir, HostTools) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tools = HostTools::new([folder.path().to_owned()], timeout_ns);
    (folder, tools)
}

fn said(answer: ToolAnswer) -> RawReport {
    match answer {
        ToolAnswer::Said(raw) => raw,
        ToolAnswer::Absent | ToolAnswer::Failed { .. } => panic!("{answer:?}"),
    }
}

fn failed(answer: ToolAnswer) -> (String, Option<RawReport>) {
    match answer {
        ToolAnswer::Failed { why, raw } => (why, raw),
        ToolAnswer::Absent | ToolAnswer::Said(_) => panic!("{answer:?}"),
    }
}

#[test]
fn a_tool_is_known_by_its_pid_and_told_nothing_of_our_masks() {
    let (_folder, tools) = tool("xpu-smi", "echo \"$$ $*\"; env", 20 * SECOND);
    let raw = said(tools.ask(&Question::XpuSmiProcesses));
    let mut lines = raw.text.lines();
    let observer = raw.observer.expect("because a process spoke");
    assert_eq!(lines.next(), Some(format!("{observer} ps -j").as_str()));
    // A shell adds PWD and the like; nothing of the tests' own environment gets through.
    let names: Vec<&str> = lines.filter_map(|line| line.split('=').next()).collect();
    assert!(names.contains(&"ZES_ENABLE_SYSMAN"), "{names:?}");
    for name in ["HOME", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
        assert!(!names.contains(&name), "{names:?}");
    }
}

#[test]
fn a_card_is_asked_for_by_its_place() {
    let (_folder, tools) = tool("xpu-smi", "echo \"$*\"", 20 * SECOND);
    let pci = "0000:23:00.0".to_owned();
    let raw = said(tools.ask(&Question::XpuSmiCounters { pci: pci.clone() }));
    assert_eq!(raw.text, "stats -d 0000:23:00.0 -j\n");
    let raw = said(tools.ask(&Question::XpuSmiCard { pci }));
    assert_eq!(raw.text, "discovery -d 0000:23:00.0 -j\n");
}

#[test]
fn a_tool_that_hangs_is_ended_and_its_silence_is_no_answer() {
    let (folder, tools) = tool(
        "nvidia-smi",
        "echo $$ > \"${0%/*}/pid\"; exec sleep 600",
        5 * SECOND,
    );
    let (why, raw) = failed(tools.ask(&Question::NvidiaSmi));
    assert!(why.contains("no answer within 5 s"), "{why}");
    assert_eq!(raw, None);
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(!process.exists(), "{} was left behind", process.display());
}

#[test]
fn a_tool_that_fails_is_kept_with_its_words() {
    let script = "echo 'No devices were found'; echo 'cannot open' >&2; exit 6";
    let (_folder, tools) = tool("nvidia-smi", script, 20 * SECOND);
    let (why, raw) = failed(tools.ask(&Question::NvidiaSmi));
    assert!(
        why.contains("exit status: 6") && why.contains("cannot open"),
        "{why}"
    );
    assert_eq!(
        raw.map(|raw| raw.text).as_deref(),
        Some("No devices were found\n")
    );
}

#[test]
fn a_tool_that_dies_of_a_signal_says_so() {
    let (_folder, tools) = tool("xpu-smi", "kill -SEGV $$", 20 * SECOND);
    let (why, _) = failed(tools.ask(&Question::XpuSmiCards));
    assert!(why.contains("SIGSEGV"), "{why}");
}

#[test]
fn a_tool_that_never_stops_talking_is_cut_off() {
    let (_folder, tools) = tool("xpu-smi", "exec yes", 20 * SECOND);
    let (why, raw) = failed(tools.ask(&Question::XpuSmiCards));
    assert!(why.contains("bytes of output"), "{why}");
    assert!(raw.is_some());
}

#[test]
fn a_tool_that_is_not_there_is_absent() {
    let folder = TempDir::new().unwrap();
    let tools = HostTools::new([folder.path().to_owned(), "relative".into()], SECOND);
    assert_eq!(tools.ask(&Question::XpuSmiCards), ToolAnswer::Absent);
    // A file that nobody may run is no tool.
    std::fs::write(folder.path().join("xpu-smi"), "").unwrap();
    assert_eq!(tools.ask(&Question::XpuSmiCards), ToolAnswer::Absent);
    // Neither is a folder of the name.
    std::fs::create_dir(folder.path().join("nvidia-smi")).unwrap();
    assert_eq!(tools.ask(&Question::NvidiaSmi), ToolAnswer::Absent);
}
