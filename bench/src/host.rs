//! What a figure was measured on.

use packhouse_base::digest::Hasher;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Command;

/// CPU, kernel, memory, load, and this repository's commit.
pub fn identity() -> Value {
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "memory": field("/proc/meminfo", "MemTotal"),
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_before": read("/proc/loadavg"),
        "commit": output("git", &["rev-parse", "HEAD"]),
        "tree_changed": !output("git", &["status", "--porcelain", "--untracked-files=no"])
            .is_empty(),
        "compiler": output("rustc", &["--version"]),
    })
}

/// The kind of a folder's file system; its path would be that of one machine.
///
/// # Errors
/// Where `stat` can't be run.
pub fn file_system(folder: &Path) -> io::Result<String> {
    let output = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(folder)
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file's length and SHA-256.
///
/// # Errors
/// Whatever the system says.
pub fn file_identity(path: &Path) -> io::Result<Value> {
    let mut hasher = Hasher::default();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        bytes += length as u64;
    }
    Ok(json!({
        "name": path.file_name().map(|name| name.to_string_lossy()),
        "bytes": bytes,
        "sha256": hasher.finish().to_string(),
    }))
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or("", |(_, value)| value.trim())
        .to_owned()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
