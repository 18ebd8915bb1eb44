//! A private home for the command, and snapshots of what it does there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a home, a plug-in that is a mere file, and an environment of its own.
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("because tests have a temporary folder");
        std::fs::write(folder.path().join("libggml-packhouse.so"), "a plug-in").unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        Self { folder }
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command with words, in the sandbox's environment.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packhouse"));
        command.args(words);
        self.settle_in(command)
    }

    /// A line of a shell, in the sandbox's environment: `"$0" "$@"` is the command with words.
    pub(crate) fn shell(&self, line: &str, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", line, env!("CARGO_BIN_EXE_packhouse")])
            .args(words);
        self.settle_in(command)
    }

    fn settle_in(&self, mut command: Command) -> Command {
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.folder.path())
            .env("PACKHOUSE_STAGE", self.path("stage"))
            .env("PACKHOUSE_PLUGIN", self.path("libggml-packhouse.so"))
            .stdin(Stdio::null());
        command
    }

    /// Runs commands and compares exit codes and both streams with the snapshot of that name.
    pub(crate) fn session(&self, name: &str, lines: &[&[&str]]) {
        self.session_with(name, lines, |_| {});
    }

    /// Like `session`, with a change to each command's environment.
    pub(crate) fn session_with(
        &self,
        name: &str,
        lines: &[&[&str]],
        change: impl Fn(&mut Command),
    ) {
        let mut text = String::new();
        for words in lines {
            let mut command = self.command(words);
            change(&mut command);
            let output = command.output().expect("because the command was built");
            self.describe(&mut text, words, &output);
        }
        compare(&snapshot_path(name), &text);
    }

    fn describe(&self, text: &mut String, words: &[&str], output: &Output) {
        let own = self
            .folder
            .path()
            .to_str()
            .expect("because it is plain text");
        let plain = |bytes: &[u8]| anywhere(&String::from_utf8_lossy(bytes).replace(own, "<tmp>"));
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace(own, "<tmp>"))
            .collect();
        let exit = output.status.code().expect("because nothing kills it");
        let line = ["packhouse".to_owned()]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ");
        writeln!(text, "$ {line}\nexit {exit}").unwrap();
        for (name, stream) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            let stream = plain(stream);
            if !stream.is_empty() {
                writeln!(text, "--- {name}\n{}", stream.trim_end_matches('\n')).unwrap();
            }
        }
        text.push('\n');
    }
}

/// A text as on a host whose temporary folders are in RAM.
fn anywhere(text: &str) -> String {
    let is_kept = |line: &&str| !line.starts_with("note: copies in ");
    let text: String = text.split_inclusive('\n').filter(is_kept).collect();
    let text = text.replace("\"in_ram\": false", "\"in_ram\": true");
    let kinds = ["ext4", "xfs", "btrfs", "overlay"];
    kinds.iter().fold(text, |text, kind| {
        text.replace(&format!("on {kind}, not in RAM"), "in memory")
    })
}

/// Compares with a file that is checked in, or writes it under `PACKHOUSE_BLESS=1`.
pub(crate) fn compare(path: &Path, actual: &str) {
    if std::env::var_os("PACKHOUSE_BLESS").is_some() {
        std::fs::write(path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; `cargo xtask docs` writes it again. It is now:\n{actual}",
        path.display()
    );
}

/// The repository's root.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn snapshot_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/snapshots/{name}.txt"))
}

#[test]
fn every_snapshot_is_of_a_test() {
    let sources =
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli")).unwrap();
    let sources: String = sources
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "rs"))
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
        .collect();
    for entry in std::fs::read_dir(snapshot_path("any").parent().unwrap())
        .unwrap()
        .flatten()
    {
        let name = entry.file_name().into_string().unwrap();
        let quoted = format!("\"{}\"", name.trim_end_matches(".txt"));
        assert!(sources.contains(&quoted), "no test makes {name}");
    }
}

#[test]
#[should_panic(expected = "differs")]
fn another_text_than_the_snapshot_fails() {
    // Under blessing `compare` would write, so the mutant is compared with a file that can't be.
    if std::env::var_os("PACKHOUSE_BLESS").is_some() {
        panic!("differs, as it would");
    }
    compare(&snapshot_path("usage"), "another text");
}
