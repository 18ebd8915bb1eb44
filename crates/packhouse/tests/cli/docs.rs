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
    let mut text = String::from(
        "# Command reference\n\nWritten by `cargo xtask docs` from the command's own help; a test \
         compares both.\n\n",
    );
    write!(text, "```text\n{overview}```\n").unwrap();
    for command in commands(&overview) {
        let said = help(&[command, "--help"]);
        write!(text, "\n## packhouse {command}\n\n```text\n{said}```\n").unwrap();
        for inner in commands(&said) {
            let said = help(&[command, inner, "--help"]);
            write!(
                text,
                "\n### packhouse {command} {inner}\n\n```text\n{said}```\n"
            )
            .unwrap();
        }
    }
    compare(&repository().join("docs/cli.md"), &text);
}

/// The commands that a help lists.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next())
}
