//! Wrong words: exit 2 in the form of every error; help and version.

use crate::sandbox::Sandbox;

#[test]
fn wrong_words_are_named() {
    Sandbox::new().session(
        "usage",
        &[
            &[],
            &["invent"],
            &["inspekt", "m.gguf"],
            &["ls", "extra"],
            &["ls", "--jsn"],
            &["run"],
            &["run", "llama-server"],
            &["run", "--trust", "blind", "--", "true"],
            &["scrub", "--budget", "5 apples"],
            &["scrub", "--budget"],
            &["verify", "--threads", "many"],
            &["gc", "--dry-run", "--dry-run"],
            &["rm"],
            &["--version"],
        ],
    );
}
