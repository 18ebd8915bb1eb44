//! The logits program: token ids and the digest of every step's raw logits.

use crate::report::{self, Load};
use crate::sandbox::{Mode, Sandbox};
use crate::{PROMPTS, TOKENS};
use std::path::Path;

/// One run of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// One line per prompt and step: prompt, step, token id, SHA-256 of the logits.
    pub steps: Vec<String>,
    /// What it wrote to stderr.
    pub log: String,
    /// What the plug-in reported, if it did.
    pub load: Option<Load>,
}

impl Run {
    /// What the plug-in reported; fails if it reported nothing.
    pub fn load(&self) -> &Load {
        self.load.as_ref().unwrap_or_else(|| {
            panic!(
                "no `packhouse:` report; its lines: {:?}",
                report::lines(&self.log)
            )
        })
    }
}

/// Runs all prompts for all tokens.
pub fn run(sandbox: &Sandbox, mode: Mode, model: &Path, options: &[&str]) -> Run {
    run_program(sandbox, "logits", mode, model, options)
}

/// The same with another program file, e.g. one of a mutated engine.
pub fn run_program(
    sandbox: &Sandbox,
    program: &str,
    mode: Mode,
    model: &Path,
    options: &[&str],
) -> Run {
    let (mut command, reports) = sandbox.engine(program, mode);
    command
        .arg("-m")
        .arg(model)
        .args(["-t", "2", "-n", &TOKENS.to_string()])
        .args(options);
    for prompt in PROMPTS {
        command.args(["-p", prompt]);
    }
    let output = command.output().expect("the logits program can be started");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "it ended with {}:\n{log}",
        output.status
    );
    let text = String::from_utf8(output.stdout).expect("it writes ASCII");
    let steps: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(
        steps.len(),
        PROMPTS.len() * TOKENS,
        "it stopped early:\n{log}"
    );
    Run {
        steps,
        log,
        load: report::last(&reports),
    }
}

/// Fails at the first step that differs, naming it.
pub fn assert_equal(what: &str, expected: &Run, actual: &Run) {
    for (expected, actual) in expected.steps.iter().zip(&actual.steps) {
        assert_eq!(expected, actual, "{what}: the first step that differs");
    }
    assert_eq!(expected.steps.len(), actual.steps.len(), "{what}");
}
