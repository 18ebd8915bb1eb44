//! `run` and `env`: the plug-in's environment, and the process that becomes the engine.

use crate::answer::{Answer, say};
use crate::cli::{PluginArgs, RunArgs, WatchArgs};
use crate::failure::Failure;
use crate::places::{self, Lookup};
use crate::watch;
use packhouse_sys::spawn::spawn_detached;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BACKEND_PATH: &str = "GGML_BACKEND_PATH";

/// Becomes the engine. Returns only when that failed.
pub(crate) fn run(args: RunArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let (program, words) = args
        .engine
        .split_first()
        .expect("because clap demands a command");
    let mut engine = Command::new(program);
    engine.args(words).envs(variables(&args.plugin, lookup)?);
    let is_off = lookup("PACKHOUSE").is_some_and(|value| value == "0");
    let watched = if is_off {
        None
    } else {
        start_watcher(&mut engine)
    };
    let error = engine.exec();
    if let Some(watch) = watched {
        watch::remove_announcement(&watch.announcement);
    }
    let shown = program.display();
    Err(Failure::new("cannot start the engine", shown)
        .because(&error)
        .hint(format!("command -v {}", quoted(program))))
}

/// Answers with the variables as a shell reads them.
pub(crate) fn env(args: &PluginArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let variables = variables(args, lookup)?;
    let mut text = String::new();
    for (name, value) in &variables {
        writeln!(text, "export {name}={}", quoted(value)).expect("because a String takes all");
    }
    let list: Vec<_> = variables
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value.to_string_lossy()}))
        .collect();
    Ok(Answer::done(text, json!({ "variables": list })))
}

/// Finds the plug-in that belongs to this binary, or that the user names.
pub(crate) fn plugin(lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    places::plugin(lookup, &own_binary()?)
}

/// The variables that an engine needs to find the plug-in, and the plug-in its settings.
fn variables(
    args: &PluginArgs,
    lookup: Lookup<'_>,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let plugin = plugin(lookup)?;
    if let Some(taken) = lookup(BACKEND_PATH).filter(|taken| taken != plugin.as_os_str()) {
        return Err(
            Failure::new(format!("{BACKEND_PATH} is set already"), taken.display())
                .cause("an engine loads one plug-in from there, and ours does not load others yet")
                .hint(format!("env -u {BACKEND_PATH} packhouse run -- CMD")),
        );
    }
    let mut variables = vec![(BACKEND_PATH, plugin.into_os_string())];
    if let Some(trust) = args.trust {
        variables.push(("PACKHOUSE_TRUST", trust.word().into()));
    }
    if let Some(folder) = &args.report {
        variables.push(("PACKHOUSE_REPORT", report_folder(folder)?.into_os_string()));
    }
    Ok(variables)
}

/// Makes the folder for reports, so that a wrong path is said now and not after the load.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI makes what the user names"
)]
fn report_folder(folder: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)
        .and_then(|()| std::path::absolute(folder))
        .map_err(|error| {
            Failure::new("cannot make the folder for reports", folder.display())
                .because(&error)
                .hint(format!("mkdir -p {}", quoted(folder.as_os_str())))
        })
}

/// Starts the watcher of this process and tells the engine where the plug-in announces itself.
/// A watcher that can't be started costs one line, not the engine.
fn start_watcher(engine: &mut Command) -> Option<WatchArgs> {
    let started = watch::arguments().and_then(|watch| {
        let mut command = Command::new(own_binary().map_err(|_| std::io::ErrorKind::NotFound)?);
        command
            .arg("watch")
            .arg(watch.pid.to_string())
            .arg(watch.start.to_string())
            .arg(&watch.announcement)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match spawn_detached(&mut command) {
            Ok(()) => Ok(watch),
            Err(error) => {
                watch::remove_announcement(&watch.announcement);
                Err(error)
            }
        }
    });
    match started {
        Ok(watch) => {
            engine.env("PACKHOUSE_ANNOUNCE", &watch.announcement);
            Some(watch)
        }
        Err(error) => {
            say(format_args!(
                "packhouse: nobody watches whether the plug-in is loaded: {error}\n"
            ));
            None
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the plug-in lies beside the binary"
)]
pub(crate) fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new("cannot find this program's own file", "/proc/self/exe").because(&error)
    })
}

/// Quotes a word for a POSIX shell; plain words stay as they are.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        assert_eq!(quoted(OsStr::new("/a/b-c.so")), "/a/b-c.so");
        assert_eq!(quoted(OsStr::new("")), "''");
        assert_eq!(quoted(OsStr::new("a b")), "'a b'");
        assert_eq!(quoted(OsStr::new("it's $HOME")), r"'it'\''s $HOME'");
    }
}
