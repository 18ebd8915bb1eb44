//! `docs/cli.md` is what the command says of itself.

use crate::sandbox::{Sandbox, compare, repository};
use std::fmt::Write as _;

#[test]
fn the_command_reference_is_current() {
    let sandbox = Sandbox::new();
    let help = |words: &[&str]| {
        let output = sandbox.command(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let overview = help(&["--help"]);
    let commands = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next());
    let mut text = String::from(
        "# Command reference\n\nWritten by `cargo xtask docs` from the command's own help; a test \
         compares both.\n\n",
    );
    write!(text, "```text\n{overview}```\n").unwrap();
    for command in commands {
        let said = help(&[command, "--help"]);
        write!(text, "\n## packhouse {command}\n\n```text\n{said}```\n").unwrap();
    }
    compare(&repository().join("docs/cli.md"), &text);
}
